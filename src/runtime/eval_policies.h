// What a policy of `tidemill eval` is in each layer.
#ifndef TIDEMILL_RUNTIME_EVAL_POLICIES_H_
#define TIDEMILL_RUNTIME_EVAL_POLICIES_H_

#include <cstddef>
#include <optional>
#include <vector>

#include "models/language_model.h"
#include "tensor/dtype.h"
#include "tidemill/eval.h"

namespace tidemill {

// The form of a policy where rows see about `positions`, as EvalPolicy says.
SparseForm EvalFormOf(const EvalPolicy& policy, size_t head_dim, size_t positions);

// What attention reads with it, as a share of dense.
double EvalShareOfDense(const SparseForm& form, size_t head_dim, size_t positions);

// Of each layer of the model; none: it has no attention over all positions, or a window of at most 1024, and stays dense. Without `columns` keys stand in
// rows only.
std::vector<std::optional<SparseLayer>> EvalLayersOf(const EvalPolicy& policy, const LanguageModel& model,
                                                     DType kv_dtype, size_t positions, bool columns);

}  // namespace tidemill

#endif  // TIDEMILL_RUNTIME_EVAL_POLICIES_H_
