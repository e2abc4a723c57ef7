// What a policy of `tidemill eval` is at a length.
#ifndef TIDEMILL_RUNTIME_EVAL_POLICIES_H_
#define TIDEMILL_RUNTIME_EVAL_POLICIES_H_

#include <cstddef>

#include "models/language_model.h"
#include "runtime/sparse_class.h"
#include "tensor/dtype.h"
#include "tidemill/eval.h"

namespace tidemill {

// With k, and r of kSparq, chosen as EvalPolicy says where rows see about `positions`.
AttentionPolicy EvalAttentionOf(const EvalPolicy& policy, size_t head_dim, size_t positions);

// Of kinds that choose positions by components of keys, which an audit compares with dense attention.
bool ReadsComponents(AttentionKind kind);

// What attention reads with it by EvalPolicy's formulas, as a share of dense.
double EvalShareOfDense(const AttentionPolicy& attention, size_t head_dim, size_t positions);

// Of the first layer that can be sparse, which stands for all; 0: none can.
size_t SparseHeadDim(const LanguageModel& model, DType kv_dtype);

}  // namespace tidemill

#endif  // TIDEMILL_RUNTIME_EVAL_POLICIES_H_
