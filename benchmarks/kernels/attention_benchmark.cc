#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "benchmarks/kernels/measure.h"
#include "kernels/attention.h"
#include "kernels/testing/seeded_inputs.h"

namespace tidemill::benchmarks {
namespace {

constexpr size_t kHeads = 9, kKvHeads = 3, kHeadDim = 64;

// `len` rows at the end of `kv_len` positions, F16 keys and values, one span.
void Run(benchmark::State& state, size_t len, size_t kv_len) {
  OneThread one;
  const AttentionShape shape{.heads = kHeads,
                             .kv_heads = kKvHeads,
                             .head_dim = kHeadDim,
                             .scale = 0.125F,
                             .kv_dtype = DType::kF16,
                             .soft_cap = 0,
                             .window = 0,
                             .sink = 0,
                             .bias = {}};
  const size_t elements = kKvHeads * kv_len * kHeadDim;
  const bool cold = len == 1;
  const size_t copies = cold ? std::max<size_t>(2, kColdBytes / (4 * elements)) : 1;
  testing::Random random(1);
  std::vector<uint16_t> stored(copies * 2 * elements);
  for (uint16_t& x : stored) x = FloatToHalf(random.Uniform(2));
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
    span.k = std::as_bytes(std::span(stored)).data() + next * 4 * elements;
    span.v = span.k + 2 * elements;
    Attention(one.context, shape, {&task, 1});
    benchmark::ClobberMemory();
    next = next + 1 == copies ? 0 : next + 1;
  }
  const size_t positions = len * (kv_len - len) + len * (len + 1) / 2;
  Report(state, AttentionCost(shape, len, positions, kv_len), cold);
}

const bool kRegistered = [] {
  const auto add = [](const char* kind, size_t len, size_t kv_len) {
    const std::string name = std::string("Attention/") + kind +
                             "/heads:9/kv_heads:3/head_dim:64/kv:F16/len:" + std::to_string(len) +
                             "/kv_len:" + std::to_string(kv_len);
    Configure(benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) { Run(state, len, kv_len); }));
  };
  for (const size_t depth : {512, 2048, 8192}) add("decode", 1, depth);
  add("prefill", 512, 512);
  add("prefill", 512, 2048);
  return true;
}();

}  // namespace
}  // namespace tidemill::benchmarks
