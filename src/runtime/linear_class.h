// From a caller's policy to the class of a request's linear attention.
#ifndef TIDEMILL_RUNTIME_LINEAR_CLASS_H_
#define TIDEMILL_RUNTIME_LINEAR_CLASS_H_

#include <cstddef>
#include <optional>
#include <string>

#include "kernels/delta_rule.h"
#include "models/language_model.h"
#include "state/sequence_state.h"
#include "tidemill/engine.h"
#include "tidemill/policies.h"
#include "tidemill/result.h"

namespace tidemill {

// The table: by the shape alone, so that a later turn finds its prefix. `bfloat16`: of entries.
DeltaClass ChosenDeltaClass(const DeltaShape& shape, bool bfloat16);

// kInvalidArgument: no such class within `context`, or the model has no linear attention and the policy is not the default. Such a model's
// class is the default one. Errors begin with the flag.
Result<DeltaClass> ResolveLinearPolicy(const LinearPolicy& policy, const LanguageModel& model, size_t context);

// "linear-16", "linear-64-16-bf16": start unless it is the period, period, type unless it is F32.
std::string DeltaClassName(const DeltaClass& form);

// Of a state's linear layers as they are now; none: it has no such layer.
std::optional<LinearStats> LinearStatsOf(SequenceState& state);

}  // namespace tidemill

#endif  // TIDEMILL_RUNTIME_LINEAR_CLASS_H_
