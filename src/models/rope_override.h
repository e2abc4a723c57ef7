// A caller's rope scaling in place of the file's.
#ifndef TIDEMILL_MODELS_ROPE_OVERRIDE_H_
#define TIDEMILL_MODELS_ROPE_OVERRIDE_H_

#include <string>

#include "formats/model_settings.h"
#include "tidemill/policies.h"
#include "tidemill/result.h"

namespace tidemill {

// "yarn=4"
std::string RopeOverrideName(const RopeOverride& wanted);

// Replaces the scaling of settings.rope and sets rope_override_factor. As in transformers, the original length is
// max_position_embeddings, whatever the file's scaling says, and local_rope, which sees a window only, stays.
// kInvalidArgument: a factor out of range. kUnsupported: a model without rotary positions.
Result<void> OverrideRope(const RopeOverride& wanted, ModelSettings& settings);

}  // namespace tidemill

#endif  // TIDEMILL_MODELS_ROPE_OVERRIDE_H_
