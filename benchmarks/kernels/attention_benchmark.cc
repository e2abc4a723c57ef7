#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "benchmarks/kernels/measure.h"
#include "kernels/append_kv.h"
#include "kernels/attention.h"
#include "kernels/testing/seeded_inputs.h"

namespace tidemill::benchmarks {
namespace {

constexpr size_t kHeads = 9, kKvHeads = 3, kHeadDim = 64;

// `len` rows at the end of `kv_len` positions in one span; `cold`: the context is read from memory.
void Run(benchmark::State& state, DType kv_dtype, size_t len, size_t kv_len, bool cold) {
  OneThread one;
  const AttentionShape shape{.heads = kHeads,
                             .kv_heads = kKvHeads,
                             .head_dim = kHeadDim,
                             .scale = 0.125F,
                             .kv_dtype = kv_dtype,
                             .soft_cap = 0,
                             .window = 0,
                             .sink = 0,
                             .bias = {}};
  const size_t rows = 2 * kKvHeads * kv_len, row_bytes = RowBytes(kv_dtype, kHeadDim), bytes = rows * row_bytes;
  const size_t copies = cold ? std::max<size_t>(2, kColdBytes / bytes) : 1;
  std::vector<std::byte> stored(copies * bytes);
  const std::vector<float> values = testing::RandomFloats(1, rows * kHeadDim, 2);
  for (size_t copy = 0; copy < copies; ++copy) {
    AppendKv(one.context, {values.data(), rows, kHeadDim}, kHeadDim, kv_dtype, 0, stored.data() + copy * bytes);
  }
  const std::vector<float> q = testing::RandomFloats(2, len * kHeads * kHeadDim);
  std::vector<float> out(q.size());
  KvSpan span{.k = nullptr, .v = nullptr, .head_stride = kv_len * kHeadDim, .first = 0, .rows = kv_len};
  const AttentionTask task{.context = {&span, 1},
                           .first_position = kv_len - len,
                           .visibility = Visibility::kCausal,
                           .q = ConstMatrix<float>(q.data(), len, kHeads * kHeadDim),
                           .out = Matrix<float>(out.data(), len, kHeads * kHeadDim)};
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
  const auto add = [](const char* kind, DType kv_dtype, size_t len, size_t kv_len, bool cold) {
    const std::string name = std::string("Attention/") + kind +
                             "/heads:9/kv_heads:3/head_dim:64/kv:" + std::string(InfoOf(kv_dtype).name) +
                             "/len:" + std::to_string(len) + "/kv_len:" + std::to_string(kv_len);
    Configure(benchmark::RegisterBenchmark(name.c_str(),
                                           [=](benchmark::State& state) { Run(state, kv_dtype, len, kv_len, cold); }));
  };
  for (const DType kv_dtype : {DType::kF16, DType::kQ8_0}) {
    for (const size_t depth : {512, 2048, 8192}) add("decode", kv_dtype, 1, depth, true);
    for (const size_t depth : {2048, 8192}) add("decode_cached", kv_dtype, 1, depth, false);
    add("prefill", kv_dtype, 512, 512, false);
    add("prefill", kv_dtype, 512, 2048, false);
  }
  return true;
}();

}  // namespace
}  // namespace tidemill::benchmarks
