// A mixture of experts around its products: which experts a token's row goes to, with which weights; rows brought together expert by
// expert; and their results brought back. arXiv:1701.06538, arXiv:2401.04088 section 2.1.
//
// RouteTokens: from the router's logits, the top_k experts of each token and their weights.
//   logits : [tokens, experts] f32      experts : [tokens, top_k] ids in ascending order      weights : [tokens, top_k] f32, of those ids
//   1 <= top_k <= experts < 2^32. Chosen are the largest logits, of equal ones the lower ids, NaN before every number.
//     weights[t, j] = exp(l[e_j]) / sum_i exp(l[i])       softmax over all experts           Normalise::kOverAll
//     weights[t, j] = exp(l[e_j]) / sum_i exp(l[e_i])     the same divided by the chosen ones' sum: Qwen3-MoE's norm_topk_prob, and
//                                                         Mixtral's softmax over the chosen logits    Normalise::kOverChosen
//   Bits:  m = the largest logit, p[e] = exp(l[e] - m), exp as in cpu/vector_math-inl.h. kOverAll: s[e % 16] += p[e] in ascending e, added
//          by the fixed tree; kOverChosen: s += p[e_j] in ascending j; p / s. In exact arithmetic the two readings of kOverChosen are
//          the same number; here they are the same bits, since m is always among the chosen and the sum over all is never formed.
//   Error: |w - exact| <= ExpertWeightTolerance(experts, top_k, m - l[e]) * exact + 2^-148.
//   A row with NaN, with +infinity, or of nothing but -infinity has NaN for all weights and valid ids.
//
// GroupByExpert: the rows of each expert together. A slot is one (token, expert) pair; slots are ordered by expert, then by token.
//   order : [tokens * top_k] the token of each slot      offsets : [experts + 1] expert e has slots [offsets[e], offsets[e + 1])
//   slots : [tokens, top_k] the slot of each pair: ascending in a row, as experts are
//
// GatherRows: y[s] = x[order[s]].      x : [tokens, hidden]      y : [order.size(), hidden], no overlap
//
// ScatterAddExperts: y[t, i] += sum_j weights[t, j] * out[slots[t, j], i].      out : [tokens * top_k, hidden]      y : [tokens, hidden]
//   Bits:  a = 0; a = MulAdd(weights[t, j], out[slots[t, j], i], a) in ascending j; y = y + a: a token's bits depend on its own experts
//          only, in ascending id, whatever else is in the batch.
//   Error: |y - exact| <= ScatterAddTolerance(top_k) * (sum_j |weights * out| + |y before|).
//
// Threads: RouteTokens and the two that move rows split over ctx; GroupByExpert is one pass on the caller. Nothing allocates.
#ifndef TIDEMILL_KERNELS_EXPERT_ROUTING_H_
#define TIDEMILL_KERNELS_EXPERT_ROUTING_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/execution_context.h"
#include "tensor/matrix.h"

namespace tidemill {

enum class Normalise { kOverAll, kOverChosen };

void RouteTokens(ExecutionContext& ctx, ConstMatrix<float> logits, Normalise normalise, Matrix<uint32_t> experts,
                 Matrix<float> weights);

struct ExpertGroups {
  std::span<uint32_t> order;    // [tokens * top_k]
  std::span<uint32_t> offsets;  // [experts + 1]
  Matrix<uint32_t> slots;       // [tokens, top_k]
};
void GroupByExpert(ConstMatrix<uint32_t> experts, const ExpertGroups& groups) noexcept;

void GatherRows(ExecutionContext& ctx, ConstMatrix<float> x, std::span<const uint32_t> order, Matrix<float> y);

void ScatterAddExperts(ExecutionContext& ctx, ConstMatrix<float> out, ConstMatrix<uint32_t> slots,
                       ConstMatrix<float> weights, Matrix<float> y);

// `below` = m - l[e]: its rounding is relative to itself and exp makes `below` roundings of it; exp: 1.25 ulp. In the sum each term has
// the same, and the mean of `below` under the weights is at most ln experts; the additions: experts / 16 + 5 or top_k; one division.
inline double ExpertWeightTolerance(size_t experts, size_t top_k, double below) {
  return (below + std::log(static_cast<double>(experts)) + static_cast<double>(experts) / 16 +
          static_cast<double>(top_k) + 12) *
         0x1p-24;
}
// top_k steps of two roundings at most, and the last addition.
constexpr double ScatterAddTolerance(size_t top_k) { return (static_cast<double>(top_k) + 2) * 0x1p-24; }

namespace reference {
void RouteTokens(ConstMatrix<float> logits, Normalise normalise, Matrix<uint32_t> experts, Matrix<float> weights);
void GroupByExpert(ConstMatrix<uint32_t> experts, const ExpertGroups& groups);
void GatherRows(ConstMatrix<float> x, std::span<const uint32_t> order, Matrix<float> y);
void ScatterAddExperts(ConstMatrix<float> out, ConstMatrix<uint32_t> slots, ConstMatrix<float> weights,
                       Matrix<float> y);
}  // namespace reference

}  // namespace tidemill

#endif  // TIDEMILL_KERNELS_EXPERT_ROUTING_H_
