#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "benchmarks/kernels/measure.h"
#include "kernels/append_kv.h"
#include "kernels/attention.h"
#include "kernels/key_tiles.h"
#include "kernels/testing/seeded_inputs.h"

namespace tidemill::benchmarks {
namespace {

struct Heads {
  size_t heads, kv_heads, dim;
};
// SmolLM2, Llama 3.2 1B, Qwen2.5 0.5B and 1.5B, and Gemma 3 270M.
constexpr Heads kSmall = {9, 3, 64}, kFours = {32, 8, 64}, kSevens = {14, 2, 64}, kWide = {12, 2, 128},
                kLong = {4, 1, 256};

// `len` rows at the end of `kv_len` positions in one span; `cold`: the context is read from memory.
void Run(benchmark::State& state, Heads heads, DType kv_dtype, size_t len, size_t kv_len, bool cold) {
  const auto [num_heads, kv_heads, head_dim] = heads;
  OneThread one;
  const AttentionShape shape{.heads = num_heads,
                             .kv_heads = kv_heads,
                             .head_dim = head_dim,
                             .scale = 0.125F,
                             .kv_dtype = kv_dtype,
                             .soft_cap = 0,
                             .window = 0,
                             .sink = 0,
                             .bias = {}};
  const size_t rows = 2 * kv_heads * kv_len, row_bytes = RowBytes(kv_dtype, head_dim), bytes = rows * row_bytes;
  const size_t copies = cold ? std::max<size_t>(2, kColdBytes / bytes) : 1;
  AlignedBuffer stored = BufferArena().Allocate(copies * bytes).value();  // in large pages, as the engine's caches
  const std::vector<float> values = testing::RandomFloats(1, rows * head_dim, 2);
  for (size_t copy = 0; copy < copies; ++copy) {
    AppendKv(one.context, {values.data(), rows, head_dim}, head_dim, kv_dtype, 0, stored.data() + copy * bytes);
  }
  const std::vector<float> q = testing::RandomFloats(2, len * num_heads * head_dim);
  std::vector<float> out(q.size());
  // As the state keeps them (values are random, and so may stand either way).
  KvSpan span{.k = nullptr,
              .v = nullptr,
              .head_stride = kv_len * head_dim,
              .first = 0,
              .rows = kv_len,
              .transposed = HasKeyTiles(kv_dtype) ? kv_len / kKeyTileRows * kKeyTileRows : 0};
  const AttentionTask task{.context = {&span, 1},
                           .first_position = kv_len - len,
                           .visibility = Visibility::kCausal,
                           .q = ConstMatrix<float>(q.data(), len, num_heads * head_dim),
                           .out = Matrix<float>(out.data(), len, num_heads * head_dim)};
  size_t next = 0;
  for (auto _ : state) {
    span.k = stored.data() + next * bytes;
    span.v = span.k + bytes / 2;
    Attention(one.context, shape, {&task, 1});
    benchmark::ClobberMemory();
    next = next + 1 == copies ? 0 : next + 1;
  }
  const size_t positions = len * (kv_len - len) + len * (len + 1) / 2;
  Report(state, AttentionCost(shape, len, positions, kv_len), cold);
}

const bool kRegistered = [] {
  const auto add = [](const char* kind, Heads heads, DType kv_dtype, size_t len, size_t kv_len, bool cold) {
    const std::string name = std::string("Attention/") + kind + "/heads:" + std::to_string(heads.heads) +
                             "/kv_heads:" + std::to_string(heads.kv_heads) + "/head_dim:" + std::to_string(heads.dim) +
                             "/kv:" + std::string(InfoOf(kv_dtype).name) + "/len:" + std::to_string(len) +
                             "/kv_len:" + std::to_string(kv_len);
    Configure(benchmark::RegisterBenchmark(
        name.c_str(), [=](benchmark::State& state) { Run(state, heads, kv_dtype, len, kv_len, cold); }));
  };
  for (const DType kv_dtype : {DType::kF16, DType::kQ8_0}) {
    for (const size_t depth : {512, 2048, 8192}) add("decode", kSmall, kv_dtype, 1, depth, true);
    for (const size_t depth : {128, 512, 2048, 8192}) add("decode_cached", kSmall, kv_dtype, 1, depth, false);
    for (const Heads heads : {kFours, kSevens, kWide, kLong}) {
      add("decode", heads, kv_dtype, 1, 8192, true);
      add("decode_cached", heads, kv_dtype, 1, 512, false);
    }
    for (const size_t len : {2, 3, 4, 8, 16}) {
      for (const Heads heads : {kSmall, kWide, kLong}) add("drafts", heads, kv_dtype, len, 2048, true);
    }
    add("prefill", kSmall, kv_dtype, 512, 512, false);
    add("prefill", kSmall, kv_dtype, 512, 2048, false);
  }
  return true;
}();

}  // namespace
}  // namespace tidemill::benchmarks
