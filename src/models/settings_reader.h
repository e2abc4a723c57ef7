// A model's settings under either of their names: config.json's, or a GGUF file's "<architecture>.<key>".
#ifndef TIDEMILL_MODELS_SETTINGS_READER_H_
#define TIDEMILL_MODELS_SETTINGS_READER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/model_files.h"
#include "formats/model_settings.h"
#include "kernels/activation.h"
#include "tidemill/result.h"

namespace tidemill {

// One setting's names; empty: files of that kind lack it.
struct SettingKey {
  std::string config;  // a path of keys: "rope_parameters.rope_theta"
  std::string gguf;    // after the architecture: "rope.freq_base"
};

class SettingsReader {
 public:
  // Borrows `files`. `architecture`: the family's name in this kind of file. `under`: the key of config.json whose object holds the
  // settings; empty: they stand in config.json itself.
  SettingsReader(const ModelFiles& files, std::string architecture, std::string under = "")
      : files_(files), architecture_(std::move(architecture)), under_(std::move(under)) {
    if (gguf()) return;
    config_ = *files.config();
    if (!under_.empty()) config_ = config_->Find(under_);
  }

  bool gguf() const { return files_.gguf() != nullptr; }
  const JsonValue& config() const { return *config_; }  // where the settings of a checkpoint stand
  const ModelFiles& files() const { return files_; }
  const std::string& architecture() const { return architecture_; }

  bool Has(const SettingKey& key) const;
  // The ...Or forms return `fallback` if the setting is missing or null; an invalid one is kCorruptFile with its key.
  Result<uint64_t> Uint(const SettingKey& key, uint64_t min, uint64_t max) const;
  Result<uint64_t> UintOr(const SettingKey& key, uint64_t fallback, uint64_t min, uint64_t max) const;
  Result<double> FloatOr(const SettingKey& key, double fallback) const;
  Result<double> FloatWithin(const SettingKey& key, double fallback, double above,
                             double below) const;  // above < x < below
  Result<bool> BoolOr(const SettingKey& key, bool fallback) const;
  Result<std::string> StringOr(const SettingKey& key, std::string_view fallback) const;

  // Counts a key of config.json as read (JsonValue::Unread): always, or where it only says `value` again.
  void Take(const std::string& key) const;
  void TakeIfEqual(const SettingKey& key, double value) const;
  void TakeIfEqual(const SettingKey& key, std::string_view value) const;

  // "config.json: "hidden_size": expected ..., found ..."
  Error Wrong(const SettingKey& key, const std::string& expected, const std::string& found,
              ErrorCode code = ErrorCode::kCorruptFile) const;

 private:
  std::string GgufKey(const SettingKey& key) const { return architecture_ + "." + key.gguf; }

  const ModelFiles& files_;
  std::string architecture_;
  std::string under_;
  std::optional<JsonValue> config_;  // null: a GGUF file
};

// "0.25": for messages.
std::string SettingText(double value);

// config.json's names of what all decoders have, and a family's defaults.
struct DecoderKeys {
  std::string hidden_size = "hidden_size";
  std::string intermediate_size = "intermediate_size";
  std::string num_hidden_layers = "num_hidden_layers";
  std::string num_attention_heads = "num_attention_heads";
  std::string max_position_embeddings = "max_position_embeddings";
  SettingKey norm_eps = {"rms_norm_eps", "attention.layer_norm_rms_epsilon"};
  double default_norm_eps = 1e-6;
  std::string rope_theta = "rope_theta";
  double default_rope_theta = 10000;
  std::string hidden_act = "hidden_act";
  std::string default_hidden_act = "silu";
  // Beside rope_parameters; of those too, in them. Empty: the family turns whole heads.
  std::string partial_rotary_factor = "";
  double default_partial_rotary_factor = 1;
  bool rotary = true;
  bool rope_by_layer_type = false;  // in config.json: the family reads its ropes
  bool tied_by_default = false;
};

// Sizes, rope and windows that concern all layers ("sliding_window"). Experts, layer types and the rest are the family's.
Result<ModelSettings> ReadDecoderSettings(const SettingsReader& reader, const DecoderKeys& keys);

// `sliding_window`, if any, in every layer. `missing`: the window of a config.json that does not have the key; 0: none.
Result<void> ReadSlidingWindow(const SettingsReader& reader, ModelSettings& settings, uint64_t missing = 0);

// `sliding_window` in the layers that layer_types calls "sliding_attention", or without layer_types in those from max_window_layers on.
// What a config.json does not have is as transformers' Qwen has it.
Result<void> ReadLayerWindows(const SettingsReader& reader, ModelSettings& settings);

// layer_types, one for each layer. kCorruptFile for another number of them. Only where config.json has the key.
Result<std::vector<std::string_view>> ReadLayerTypes(const SettingsReader& reader, const ModelSettings& settings);

// num_experts and so on; `settings` stays unchanged if the file has no experts.
Result<void> ReadExpertSettings(const SettingsReader& reader, ModelSettings& settings);

// The layers without a mixture of a config.json, as Qwen has them: those in mlp_only_layers, and those that decoder_sparse_step leaves
// out. In a GGUF file there are none.
Result<void> ReadDenseLayers(const SettingsReader& reader, ModelSettings& settings);

// kUnsupported where the file has biases, tensors whose names end with `suffix`, and config.json does not say so: transformers would leave
// them out. `fallback`: what it says without the key.
Result<void> CheckBias(const SettingsReader& reader, const std::string& key, bool fallback, std::string_view suffix);

// hidden_act as transformers spells it. kUnsupported names the known ones.
Result<Activation> ActivationOf(const std::string& name);

}  // namespace tidemill

#endif  // TIDEMILL_MODELS_SETTINGS_READER_H_
