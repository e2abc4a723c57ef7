// Rotary positions as a model's files describe them: rope_theta, rope_scaling and rope_parameters, or a GGUF file's rope.* keys.
#ifndef TIDEMILL_MODELS_ROPE_SETTINGS_H_
#define TIDEMILL_MODELS_ROPE_SETTINGS_H_

#include <cstddef>
#include <string>

#include "formats/model_settings.h"
#include "models/settings_reader.h"
#include "tidemill/result.h"

namespace tidemill {

// Bounds of a base, both excluded. At 1 yarn would divide by the base's logarithm, 0; below 1 angles would exceed the kernels' sines.
inline constexpr double kMinRopeTheta = 1, kMaxRopeTheta = 1e12;

// Where one rope stands.
struct RopePlace {
  std::string at;      // in config.json: "rope_parameters.full_attention"
  std::string before;  // whose members come before those at `at`; empty: none
  // For want of a base in there.
  SettingKey theta = {"rope_theta", "rope.freq_base"};
  double default_theta = 10000;
  bool is_for_all_layers =
      true;  // then an original_max_position_embeddings of config.json itself comes first, as in transformers
};

// The rope of families with one for all layers. As in transformers a rope_scaling that has members stands for all of rope_parameters,
// their base included. kUnsupported where there is one for each type of layer.
Result<RopePlace> FindRope(const SettingsReader& reader, std::string theta_key, double default_theta);

// kUnsupported names an unknown scaling.
Result<RopeSettings> ReadRopeSettings(const SettingsReader& reader, const RopePlace& place,
                                      size_t max_position_embeddings);

}  // namespace tidemill

#endif  // TIDEMILL_MODELS_ROPE_SETTINGS_H_
