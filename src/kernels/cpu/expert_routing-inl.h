// Included by cpu/row_kernels.cc alone.
#include "kernels/expert_routing.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/checked_math.h"
#include "hwy/highway.h"
#include "kernels/cpu/for_each_row.h"
#include "kernels/cpu/for_each_span.h"
#include "kernels/cpu/highway_levels.h"
#include "kernels/cpu/vector_math-inl.h"
#include "kernels/row_blocks.h"

HWY_BEFORE_NAMESPACE();
namespace tidemill::HWY_NAMESPACE {
namespace {

// sum_e exp(logits[e] - m).
float SumExp(const float* logits, size_t n, float m) {
  const Lane16 d;
  const auto most = hn::Set(d, m);
  const size_t whole = n / 16 * 16;
  HWY_ALIGN float tail[16], sums[16];
  // Made up with what has no weight: exp(-inf) = 0. Where m is infinite or NaN the sum is NaN with or without it.
  for (size_t j = 0; j < 16; ++j) tail[j] = whole + j < n ? logits[whole + j] : -std::numeric_limits<float>::infinity();
  for (size_t part = 0; part < 16; part += hn::Lanes(d)) {
    auto acc = hn::Zero(d);
    for (size_t e = part; e < whole; e += 16) acc = hn::Add(acc, Exp(d, hn::Sub(hn::LoadU(d, logits + e), most)));
    hn::Store(hn::Add(acc, Exp(d, hn::Sub(hn::Load(d, tail + part), most))), d, sums + part);
  }
  return TreeSum16(sums);
}

// x[i] = exp(x[i] - m).
void ExpInPlace(float* x, size_t n, float m) {
  const Lane16 d;
  const auto most = hn::Set(d, m);
  for (size_t i = 0; i < n; i += 16) {
    HWY_ALIGN float block[16] = {};
    const size_t count = std::min<size_t>(16, n - i);
    std::copy(x + i, x + i + count, block);
    for (size_t part = 0; part < 16; part += hn::Lanes(d)) {
      hn::Store(Exp(d, hn::Sub(hn::Load(d, block + part), most)), d, block + part);
    }
    std::copy(block, block + count, x + i);
  }
}

// y[i] += sum_j weights[j] * out[slots[j], i].
void ScatterAddSpan(const float* out, size_t stride, const uint32_t* slots, const float* weights, size_t top_k,
                    size_t n, float* y) {
  const Lane16 d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    auto acc = hn::Zero(d);
    for (size_t j = 0; j < top_k; ++j) {
      acc = hn::MulAdd(hn::Set(d, weights[j]), hn::LoadU(d, out + slots[j] * stride + i), acc);
    }
    hn::StoreU(hn::Add(hn::LoadU(d, y + i), acc), d, y + i);
  }
  if (i == n) return;
  HWY_ALIGN float tail[16] = {};
  auto acc = hn::Zero(d);
  for (size_t j = 0; j < top_k; ++j) {
    std::copy(out + slots[j] * stride + i, out + slots[j] * stride + n, tail);
    acc = hn::MulAdd(hn::Set(d, weights[j]), hn::Load(d, tail), acc);
  }
  hn::Store(acc, d, tail);
  for (size_t j = 0; i + j < n; ++j) y[i + j] = y[i + j] + tail[j];
}

}  // namespace
}  // namespace tidemill::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tidemill {
namespace {

// NaN before every number, so that it is chosen and shows in the weights.
bool ComesBefore(float a, float b) { return std::isnan(a) ? !std::isnan(b) : a > b; }

// The chosen ids in the order of their logits, which go to `values`. Returns the largest.
float Choose(const float* logits, size_t n, size_t top_k, uint32_t* ids, float* values) {
  size_t count = 0;
  for (size_t e = 0; e < n; ++e) {
    if (count == top_k && !ComesBefore(logits[e], values[top_k - 1])) continue;
    size_t at = count < top_k ? count++ : top_k - 1;
    for (; at > 0 && ComesBefore(logits[e], values[at - 1]); --at) {
      values[at] = values[at - 1];
      ids[at] = ids[at - 1];
    }
    values[at] = logits[e];
    ids[at] = static_cast<uint32_t>(e);
  }
  return values[0];
}

void SortById(size_t top_k, uint32_t* ids, float* values) {
  for (size_t i = 1; i < top_k; ++i) {
    const uint32_t id = ids[i];
    const float value = values[i];
    size_t at = i;
    for (; at > 0 && ids[at - 1] > id; --at) {
      ids[at] = ids[at - 1];
      values[at] = values[at - 1];
    }
    ids[at] = id;
    values[at] = value;
  }
}

}  // namespace

void RouteTokens(ExecutionContext& ctx, ConstMatrix<float> logits, Normalise normalise, Matrix<uint32_t> experts,
                 Matrix<float> weights) {
  TIDEMILL_DCHECK(experts.cols >= 1 && experts.cols <= logits.cols && weights.cols == experts.cols);
  const auto sum_exp = TIDEMILL_PICK(ctx.isa(), SumExp);
  const auto exp_in_place = TIDEMILL_PICK(ctx.isa(), ExpInPlace);
  const size_t top_k = experts.cols;
  const auto route = [&](size_t t) {
    uint32_t* ids = experts.row(t);
    float* values = weights.row(t);
    const float m = Choose(logits.row(t), logits.cols, top_k, ids, values);
    SortById(top_k, ids, values);
    exp_in_place(values, top_k, m);
    float sum = 0;
    if (normalise == Normalise::kOverAll) {
      sum = sum_exp(logits.row(t), logits.cols, m);
    } else {
      for (size_t j = 0; j < top_k; ++j) sum = sum + values[j];
    }
    for (size_t j = 0; j < top_k; ++j) values[j] = values[j] / sum;
  };
  const size_t block = BlockRows(logits.cols, kRowBlockElements / 4);  // an exp and comparisons for each element
  ctx.threads().ParallelFor(DivideRoundUp(logits.rows, block),
                            [&](size_t chunk, size_t) {  // to its end: these are indices
                              for (size_t t = chunk * block; t < std::min(logits.rows, (chunk + 1) * block); ++t)
                                route(t);
                            });
}

void GroupByExpert(ConstMatrix<uint32_t> experts, const ExpertGroups& groups) noexcept {
  const size_t num_experts = groups.offsets.size() - 1;
  TIDEMILL_DCHECK(groups.order.size() == experts.rows * experts.cols);
  // offsets[e + 1] first counts expert e's rows, then says where its next row goes: when all are placed, where it ends.
  std::fill(groups.offsets.begin(), groups.offsets.end(), 0U);
  for (size_t t = 0; t < experts.rows; ++t) {
    for (size_t j = 0; j < experts.cols; ++j) {
      TIDEMILL_DCHECK(experts.row(t)[j] < num_experts);
      ++groups.offsets[experts.row(t)[j] + 1];
    }
  }
  uint32_t next = 0;
  for (size_t e = 0; e < num_experts; ++e) {
    const uint32_t count = groups.offsets[e + 1];
    groups.offsets[e + 1] = next;
    next += count;
  }
  for (size_t t = 0; t < experts.rows; ++t) {
    for (size_t j = 0; j < experts.cols; ++j) {
      const uint32_t slot = groups.offsets[experts.row(t)[j] + 1]++;
      groups.order[slot] = static_cast<uint32_t>(t);
      groups.slots.row(t)[j] = slot;
    }
  }
}

void GatherRows(ExecutionContext& ctx, ConstMatrix<float> x, std::span<const uint32_t> order, Matrix<float> y) {
  ForEachSpan(ctx, order.size(), y.cols, kRowBlockElements, [&](size_t s, size_t first, size_t n) {
    std::memcpy(y.row(s) + first, x.row(order[s]) + first, n * sizeof(float));
  });
}

void ScatterAddExperts(ExecutionContext& ctx, ConstMatrix<float> out, ConstMatrix<uint32_t> slots,
                       ConstMatrix<float> weights, Matrix<float> y) {
  const auto kernel = TIDEMILL_PICK(ctx.isa(), ScatterAddSpan);
  // Whole vectors, about as many elements of `out` as elsewhere.
  const size_t chunk = std::max<size_t>(256, kRowBlockElements / (slots.cols + 1) / 16 * 16);
  ForEachSpan(ctx, y.rows, y.cols, chunk, [&](size_t t, size_t first, size_t n) {
    kernel(out.data + first, out.stride, slots.row(t), weights.row(t), slots.cols, n, y.row(t) + first);
  });
}

}  // namespace tidemill
#endif
