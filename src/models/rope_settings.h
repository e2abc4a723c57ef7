// Rotary positions as a model's files describe them: rope_theta, rope_scaling and rope_parameters, or a GGUF file's rope.* keys.
#ifndef TIDEMILL_MODELS_ROPE_SETTINGS_H_
#define TIDEMILL_MODELS_ROPE_SETTINGS_H_

#include <cstddef>
#include <string_view>

#include "formats/model_settings.h"
#include "models/settings_reader.h"
#include "tidemill/result.h"

namespace tidemill {

// Bounds of a base, both excluded. At 1 yarn would divide by the base's logarithm, 0; below 1 angles would exceed the kernels' sines.
inline constexpr double kMinRopeTheta = 1, kMaxRopeTheta = 1e12;

// The settings under `config_path` ("rope_parameters", "rope_parameters.full_attention"). Empty: rope_parameters, or rope_theta and
// rope_scaling. kUnsupported names an unknown scaling.
Result<RopeSettings> ReadRopeSettings(const SettingsReader& reader, std::string_view config_path, double default_theta,
                                      size_t max_position_embeddings);

}  // namespace tidemill

#endif  // TIDEMILL_MODELS_ROPE_SETTINGS_H_
