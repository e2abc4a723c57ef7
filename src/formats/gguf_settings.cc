#include <string_view>

#include "formats/model_settings.h"

namespace tidemill {
namespace {

constexpr uint64_t kMaxSize = uint64_t{1} << 20;

Error SettingError(const std::string& key, const std::string& expected, double found) {
  return Error(ErrorCode::kCorruptFile,
               "metadata: \"" + key + "\": expected " + expected + ", found " + std::to_string(found));
}

}  // namespace

Result<ModelSettings> ReadGgufSettings(const GgufFile& file) {
  ModelSettings s;
  TIDEMILL_TRY(architecture, file.GetString("general.architecture"));
  s.architecture = std::string(architecture);
  TIDEMILL_TRY(name, file.GetStringOr("general.name", ""));
  s.name = std::string(name);
  const auto key = [&s](const char* suffix) { return s.architecture + "." + suffix; };

  TIDEMILL_TRY(hidden, file.GetUint(key("embedding_length"), 1, kMaxSize));
  TIDEMILL_TRY(ffn, file.GetUint(key("feed_forward_length"), 1, kMaxSize));
  TIDEMILL_TRY(layers, file.GetUint(key("block_count"), 1, 4096));
  TIDEMILL_TRY(heads, file.GetUint(key("attention.head_count"), 1, 4096));
  TIDEMILL_TRY(kv_heads, file.GetUintOr(key("attention.head_count_kv"), heads, 1, 4096));
  TIDEMILL_TRY(context, file.GetUint(key("context_length"), 1, uint64_t{1} << 30));
  TIDEMILL_TRY(theta, file.GetFloatOr(key("rope.freq_base"), 10000));
  TIDEMILL_TRY(eps, file.GetFloat(key("attention.layer_norm_rms_epsilon")));
  if (heads % kv_heads != 0) {
    return SettingError(key("attention.head_count_kv"), "a divisor of attention.head_count = " + std::to_string(heads),
                        static_cast<double>(kv_heads));
  }
  TIDEMILL_TRY(head_dim, file.GetUintOr(key("attention.key_length"), hidden / heads, 2, 512));
  TIDEMILL_TRY(value_dim, file.GetUintOr(key("attention.value_length"), head_dim, 2, 512));
  TIDEMILL_TRY(rotary_dim, file.GetUintOr(key("rope.dimension_count"), head_dim, 2, 512));
  if (head_dim < 2 || head_dim > 512 || head_dim % 2 != 0) {
    return SettingError(key("attention.key_length"), "an even number of 2 to 512", static_cast<double>(head_dim));
  }
  if (value_dim != head_dim) {
    return SettingError(key("attention.value_length"), "the key length, " + std::to_string(head_dim),
                        static_cast<double>(value_dim));
  }
  if (rotary_dim > head_dim || rotary_dim % 2 != 0) {
    return SettingError(key("rope.dimension_count"), "an even number up to " + std::to_string(head_dim),
                        static_cast<double>(rotary_dim));
  }
  if (!(theta > 0 && theta < 1e12))
    return SettingError(key("rope.freq_base"), "a number above 0 and below 1e12", theta);
  if (!(eps > 0 && eps < 1))
    return SettingError(key("attention.layer_norm_rms_epsilon"), "a number between 0 and 1", eps);

  TIDEMILL_TRY(scaling, file.GetStringOr(key("rope.scaling.type"), "none"));
  if (scaling != "none") {
    return Error(ErrorCode::kUnsupported, "metadata: \"" + key("rope.scaling.type") + "\": rope scaling '" +
                                              std::string(scaling) + "' is not supported yet");
  }
  if (file.FindTensor("rope_freqs.weight") != nullptr) {
    return Error(ErrorCode::kUnsupported,
                 "tensor \"rope_freqs.weight\": scaled rope frequencies are not supported yet");
  }
  TIDEMILL_TRY(experts, file.GetUintOr(key("expert_count"), 0, 0, 1 << 20));
  if (experts != 0) {
    return Error(ErrorCode::kUnsupported,
                 "metadata: \"" + key("expert_count") + "\": mixtures of experts are not supported yet");
  }
  const FileTensor* embedding = file.FindTensor("token_embd.weight");
  if (embedding == nullptr) {
    return Error(ErrorCode::kCorruptFile, "tensor \"token_embd.weight\": not in the file; every language model has it");
  }
  if (embedding->rows > (uint64_t{1} << 24)) {
    return SettingError("token_embd.weight", "at most 2^24 rows", static_cast<double>(embedding->rows));
  }
  s.vocab_size = embedding->rows;
  s.hidden_size = hidden;
  s.intermediate_size = ffn;
  s.num_hidden_layers = layers;
  s.num_attention_heads = heads;
  s.num_key_value_heads = kv_heads;
  s.head_dim = head_dim;
  s.rotary_dim = rotary_dim;
  s.max_position_embeddings = context;
  s.rope_theta = theta;
  s.rms_norm_eps = eps;
  s.tie_word_embeddings = file.FindTensor("output.weight") == nullptr;
  return s;
}

}  // namespace tidemill
