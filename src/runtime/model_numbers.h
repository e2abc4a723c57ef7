// A model as the planner's plain numbers.
#ifndef TIDEMILL_RUNTIME_MODEL_NUMBERS_H_
#define TIDEMILL_RUNTIME_MODEL_NUMBERS_H_

#include <cstddef>
#include <cstdint>

#include "models/language_model.h"
#include "planner/predicted_costs.h"
#include "runtime/sparse_class.h"
#include "tensor/dtype.h"

namespace tidemill {

// Of the model's first `num_layers` layers, at most all, whose attention is dense. Of a draft head without what only the target's features go through.
ModelNumbers NumbersOf(const LanguageModel& model, DType kv_dtype, size_t num_layers = SIZE_MAX);
// Of all layers, with that attention.
ModelNumbers NumbersOf(const LanguageModel& model, DType kv_dtype, const AttentionClass& attention);

}  // namespace tidemill

#endif  // TIDEMILL_RUNTIME_MODEL_NUMBERS_H_
