// From a caller's policy to the class of a request's attention.
#ifndef TIDEMILL_RUNTIME_SPARSE_CLASS_H_
#define TIDEMILL_RUNTIME_SPARSE_CLASS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/language_model.h"
#include "models/layers/branch.h"
#include "tensor/dtype.h"
#include "tidemill/policies.h"
#include "tidemill/result.h"

namespace tidemill {

inline constexpr size_t kShortestAuto = 4096;     // positions, below which AttentionKind::kAuto is dense
inline constexpr double kLargestAutoShare = 0.5;  // of dense attention's bytes, above which it is dense, too

// AttentionPolicy's k, r and local, where they are not given.
inline constexpr size_t kDefaultSparseTokens = 128;
constexpr size_t DefaultSparseComponents(size_t head_dim) { return std::max<size_t>(1, head_dim / 8); }
constexpr size_t DefaultSparseLocal(size_t k) { return std::max<size_t>(1, k / 4); }

// What changes bits of a request's attention.
struct AttentionClass {
  std::vector<std::optional<SparseLayer>> layers = {};  // [layers of the model]; none: dense; empty: all are
  std::string name = {};            // "sparq-r16-k128-l32", then what differs from the defaults; empty: dense
  std::optional<size_t> from = {};  // AttentionPolicy::from
  // RequestStats::attention_reason. Changes no bits.
  std::string_view reason = {};

  bool is_sparse() const { return !layers.empty(); }
  bool evicts() const;  // positions, for good
  // Rows at this position and later ones are sparse.
  size_t SparseFrom(size_t prompt_tokens) const;
  // Of so many first positions rows are dense, as in any prompt that begins with the same tokens; 0: none are shared.
  size_t SharedPositions(size_t prompt_tokens) const;
};

// `length`: positions of the request, by which kAuto and dense_shares choose. kInvalidArgument for what the model or the rows' type does not allow, and for
// what the kind does not read. Errors begin with the flag.
Result<AttentionClass> ResolveAttentionPolicy(const AttentionPolicy& policy, const LanguageModel& model, size_t length,
                                              DType kv_dtype);

// An error of it in the words of who gave no flags: "r 99: ..." for "--sparq-r 99: ...".
Error WithoutFlags(const Error& error);

// What a policy that chooses by length can come to, none of which chooses; the policy alone where it does not.
std::vector<AttentionPolicy> ChoicesByLength(const AttentionPolicy& policy);

}  // namespace tidemill

#endif  // TIDEMILL_RUNTIME_SPARSE_CLASS_H_
