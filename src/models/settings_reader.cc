#include "models/settings_reader.h"

#include <cmath>

#include "base/printable_name.h"
#include "kernels/attention.h"
#include "models/rope_settings.h"

namespace tidemill {
namespace {

constexpr uint64_t kMaxSize = uint64_t{1} << 20;

}  // namespace

std::string SettingText(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

bool SettingsReader::Has(const SettingKey& key) const {
  if (gguf()) return !key.gguf.empty() && files_.gguf()->FindValue(GgufKey(key)) != nullptr;
  return !key.config.empty() && config_->Has(key.config);
}

Result<uint64_t> SettingsReader::Uint(const SettingKey& key, uint64_t min, uint64_t max) const {
  if (gguf()) return files_.gguf()->GetUint(GgufKey(key), min, max);
  return config_->GetUint(key.config, min, max);
}

Result<uint64_t> SettingsReader::UintOr(const SettingKey& key, uint64_t fallback, uint64_t min, uint64_t max) const {
  if (!Has(key)) return fallback;
  return Uint(key, min, max);
}

Result<double> SettingsReader::FloatOr(const SettingKey& key, double fallback) const {
  if (!Has(key)) return fallback;
  return gguf() ? files_.gguf()->GetFloat(GgufKey(key)) : config_->GetFloat(key.config);
}

Result<double> SettingsReader::FloatWithin(const SettingKey& key, double fallback, double above, double below) const {
  TIDEMILL_TRY(value, FloatOr(key, fallback));
  if (!(value > above && value < below))
    return Wrong(key, "a number above " + SettingText(above) + " and below " + SettingText(below), SettingText(value));
  return value;
}

Result<bool> SettingsReader::BoolOr(const SettingKey& key, bool fallback) const {
  if (!Has(key)) return fallback;
  return gguf() ? files_.gguf()->GetBool(GgufKey(key)) : config_->GetBool(key.config);
}

Result<std::string> SettingsReader::StringOr(const SettingKey& key, std::string_view fallback) const {
  if (!Has(key)) return std::string(fallback);
  const auto text = gguf() ? files_.gguf()->GetString(GgufKey(key)) : config_->GetString(key.config);
  if (!text.ok()) return text.error();
  return std::string(*text);
}

void SettingsReader::TakeIfEqual(const SettingKey& key, double value) const {
  if (gguf() || !Has(key)) return;
  const JsonValue found = *config_->Peek(key.config);
  if (found.is_number() && found.GetFloat("").value() == value) Take(key.config);
}

void SettingsReader::TakeIfEqual(const SettingKey& key, std::string_view value) const {
  if (gguf() || !Has(key)) return;
  if (const JsonValue found = *config_->Peek(key.config); found.is_string() && found.text() == value) Take(key.config);
}

void SettingsReader::Take(const std::string& key) const {
  if (!gguf()) static_cast<void>(config_->Find(key));
}

Error SettingsReader::Wrong(const SettingKey& key, const std::string& expected, const std::string& found,
                            ErrorCode code) const {
  const std::string path = under_.empty() ? key.config : under_ + "." + key.config;
  const std::string where = gguf() ? "metadata: " + QuoteName(GgufKey(key)) : "config.json: " + QuoteName(path);
  return Error(code, where + ": expected " + expected + ", found " + found);
}

namespace {

// The part of each head that turns.
Result<void> ReadRotaryDim(const SettingsReader& reader, const DecoderKeys& keys, ModelSettings& s) {
  TIDEMILL_TRY(place, FindRope(reader, keys.rope_theta, keys.default_rope_theta));
  const bool has_parts = !keys.partial_rotary_factor.empty();
  const SettingKey inside{place.at + ".partial_rotary_factor", ""};
  const SettingKey beside{has_parts ? keys.partial_rotary_factor : "partial_rotary_factor", ""};
  const SettingKey key = reader.Has(inside) ? inside : beside;
  TIDEMILL_TRY(factor, reader.FloatOr(key, keys.default_partial_rotary_factor));
  reader.TakeIfEqual(beside, factor);
  if (!has_parts && factor != 1)
    return reader.Wrong(key, "1, since this family turns whole heads", SettingText(factor), ErrorCode::kUnsupported);
  const double rotary_dim = factor * static_cast<double>(s.head_dim);
  if (!(factor > 0 && factor <= 1) || rotary_dim < 2 || static_cast<size_t>(rotary_dim) % 2 != 0)
    return reader.Wrong(key,
                        "a factor up to 1 that leaves an even number of " + std::to_string(s.head_dim) + " dimensions",
                        SettingText(factor));
  s.rotary_dim = static_cast<size_t>(rotary_dim);
  return {};
}

Result<void> ReadHeads(const SettingsReader& reader, const DecoderKeys& keys, ModelSettings& s) {
  const SettingKey heads_key{keys.num_attention_heads, "attention.head_count"};
  const SettingKey kv_heads_key{"num_key_value_heads", "attention.head_count_kv"};
  const SettingKey head_dim_key{"head_dim", "attention.key_length"};
  TIDEMILL_TRY(heads, reader.Uint(heads_key, 1, 4096));
  TIDEMILL_TRY(kv_heads, reader.UintOr(kv_heads_key, heads, 1, 4096));
  if (heads % kv_heads != 0) {
    return reader.Wrong(kv_heads_key, "a divisor of the " + std::to_string(heads) + " attention heads",
                        std::to_string(kv_heads));
  }
  if (heads / kv_heads > kMaxGroup) {
    return reader.Wrong(kv_heads_key, "at most " + std::to_string(kMaxGroup) + " attention heads for each",
                        std::to_string(heads / kv_heads), ErrorCode::kUnsupported);
  }
  TIDEMILL_TRY(head_dim, reader.UintOr(head_dim_key, s.hidden_size / heads, 2, kMaxHeadDim));
  if (head_dim < 2 || head_dim > kMaxHeadDim || head_dim % 2 != 0)
    return reader.Wrong(head_dim_key, "an even number of 2 to " + std::to_string(kMaxHeadDim),
                        std::to_string(head_dim));
  const SettingKey value_key{"", "attention.value_length"};
  TIDEMILL_TRY(value_dim, reader.UintOr(value_key, head_dim, 2, kMaxHeadDim));
  if (value_dim != head_dim)
    return reader.Wrong(value_key, "the key length, " + std::to_string(head_dim), std::to_string(value_dim));
  s.num_attention_heads = heads;
  s.num_key_value_heads = kv_heads;
  s.head_dim = head_dim;
  if (!keys.rotary) return {};
  if (reader.gguf()) {
    const SettingKey rotary_key{"", "rope.dimension_count"};
    TIDEMILL_TRY(rotary_dim, reader.UintOr(rotary_key, head_dim, 2, kMaxHeadDim));
    if (rotary_dim > head_dim || rotary_dim % 2 != 0)
      return reader.Wrong(rotary_key, "an even number up to " + std::to_string(head_dim), std::to_string(rotary_dim));
    s.rotary_dim = rotary_dim;
    return {};
  }
  s.rotary_dim = head_dim;
  if (keys.rope_by_layer_type) return {};
  return ReadRotaryDim(reader, keys, s);
}

// Draft models of PARD (arXiv:2504.18583). Other kinds, such as "pard2", take more than tokens. GGUF files have no such keys.
Result<void> ReadMaskToken(const SettingsReader& reader, ModelSettings& s) {
  const SettingKey kind_key{"spd_type", ""}, token_key{"pard_token", ""};
  TIDEMILL_TRY(kind, reader.StringOr(kind_key, ""));
  if (!kind.empty() && kind != "pard") return reader.Wrong(kind_key, "pard", QuoteName(kind), ErrorCode::kUnsupported);
  if (kind.empty() && !reader.Has(token_key)) return {};
  TIDEMILL_TRY(token, reader.Uint(token_key, 0, s.vocab_size - 1));
  s.pard_token = static_cast<int32_t>(token);
  return {};
}

}  // namespace

Result<ModelSettings> ReadDecoderSettings(const SettingsReader& reader, const DecoderKeys& keys) {
  ModelSettings s;
  s.architecture = reader.architecture();
  if (reader.gguf()) {
    TIDEMILL_TRY(name, reader.files().gguf()->GetStringOr("general.name", ""));
    s.name = std::string(name);
    const FileTensor* embedding = reader.files().FindTensor("token_embd.weight");
    if (embedding == nullptr) {
      return Error(ErrorCode::kCorruptFile,
                   "tensor \"token_embd.weight\": not in the file; every language model has it");
    }
    s.vocab_size = embedding->rows;
    s.tie_word_embeddings = reader.files().FindTensor("output.weight") == nullptr;
  } else {
    TIDEMILL_TRY(vocab, reader.Uint({"vocab_size", ""}, 1, uint64_t{1} << 24));
    TIDEMILL_TRY(tied, reader.BoolOr({"tie_word_embeddings", ""}, keys.tied_by_default));
    s.vocab_size = vocab;
    s.tie_word_embeddings = tied;
  }
  if (s.vocab_size > (uint64_t{1} << 24))
    return Error(ErrorCode::kCorruptFile,
                 "tensor \"token_embd.weight\": expected at most 2^24 rows, found " + std::to_string(s.vocab_size));
  TIDEMILL_TRY(hidden, reader.Uint({keys.hidden_size, "embedding_length"}, 1, kMaxSize));
  TIDEMILL_TRY(layers, reader.Uint({keys.num_hidden_layers, "block_count"}, 1, 4096));
  TIDEMILL_TRY(ffn, reader.UintOr({keys.intermediate_size, "feed_forward_length"}, 4 * hidden, 1, 4 * kMaxSize));
  TIDEMILL_TRY(context, reader.Uint({keys.max_position_embeddings, "context_length"}, 1, uint64_t{1} << 30));
  TIDEMILL_TRY(eps, reader.FloatWithin(keys.norm_eps, keys.default_norm_eps, 0, 1));
  TIDEMILL_TRY(act, reader.StringOr({keys.hidden_act, ""}, keys.default_hidden_act));
  s.hidden_size = hidden;
  s.num_hidden_layers = layers;
  s.intermediate_size = ffn;
  s.max_position_embeddings = context;
  s.norm_eps = eps;
  s.hidden_act = act;
  TIDEMILL_TRY_VOID(ReadHeads(reader, keys, s));
  if (keys.rotary && (reader.gguf() || !keys.rope_by_layer_type)) {
    TIDEMILL_TRY(place, FindRope(reader, keys.rope_theta, keys.default_rope_theta));
    TIDEMILL_TRY(rope, ReadRopeSettings(reader, place, context));
    s.rope = rope;
  }
  TIDEMILL_TRY_VOID(ReadMaskToken(reader, s));
  return s;
}

namespace {

constexpr uint64_t kMaxWindow = uint64_t{1} << 30;

SettingKey WindowKey() { return {"sliding_window", "attention.sliding_window"}; }

// 0: none, which is what null says.
Result<uint64_t> ReadWindow(const SettingsReader& reader, uint64_t missing) {
  const bool is_missing = !reader.gguf() && !reader.config().Peek("sliding_window");
  return reader.UintOr(WindowKey(), is_missing ? missing : 0, 1, kMaxWindow);
}

}  // namespace

Result<void> ReadSlidingWindow(const SettingsReader& reader, ModelSettings& s, uint64_t missing) {
  TIDEMILL_TRY(window, ReadWindow(reader, missing));
  if (window != 0) s.windows.assign(s.num_hidden_layers, window);
  return {};
}

Result<void> ReadLayerWindows(const SettingsReader& reader, ModelSettings& s) {
  TIDEMILL_TRY(window, ReadWindow(reader, 4096));
  if (window == 0) return {};
  s.windows.assign(s.num_hidden_layers, 0);
  const SettingKey types_key{"layer_types", ""};
  if (!reader.Has(types_key)) {
    TIDEMILL_TRY(first, reader.UintOr({"max_window_layers", ""}, 28, 0, 1 << 20));
    for (size_t i = first; i < s.num_hidden_layers; ++i) s.windows[i] = window;
    return {};
  }
  TIDEMILL_TRY(types, ReadLayerTypes(reader, s));
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i] == "sliding_attention") {
      s.windows[i] = window;
    } else if (types[i] != "full_attention") {
      return reader.Wrong(types_key, "sliding_attention or full_attention", QuoteName(types[i]),
                          ErrorCode::kUnsupported);
    }
  }
  return {};
}

Result<std::vector<std::string_view>> ReadLayerTypes(const SettingsReader& reader, const ModelSettings& s) {
  const SettingKey key{"layer_types", ""};
  TIDEMILL_TRY(types, reader.config().GetStrings(key.config));
  if (types.size() == s.num_hidden_layers) return types;
  return reader.Wrong(key, std::to_string(s.num_hidden_layers) + " types, one for each layer",
                      std::to_string(types.size()));
}

Result<void> ReadExpertSettings(const SettingsReader& reader, ModelSettings& s) {
  const SettingKey local_key{"num_local_experts", "expert_count"}, key{"num_experts", "expert_count"};
  TIDEMILL_TRY(experts, reader.UintOr(reader.Has(local_key) ? local_key : key, 0, 0, 4096));
  if (experts == 0) return {};
  TIDEMILL_TRY(per_token, reader.Uint({"num_experts_per_tok", "expert_used_count"}, 1, experts));
  TIDEMILL_TRY(
      ffn, reader.UintOr({"moe_intermediate_size", "expert_feed_forward_length"}, s.intermediate_size, 1, kMaxSize));
  s.num_experts = experts;
  s.num_experts_per_tok = per_token;
  s.moe_intermediate_size = ffn;
  return {};
}

Result<void> ReadDenseLayers(const SettingsReader& reader, ModelSettings& s) {
  if (reader.gguf()) return {};
  TIDEMILL_TRY(step, reader.UintOr({"decoder_sparse_step", ""}, 1, 1, 4096));
  s.dense_layers.resize(s.num_hidden_layers);
  for (size_t i = 0; i < s.num_hidden_layers; ++i) s.dense_layers[i] = (i + 1) % step != 0;
  const SettingKey key{"mlp_only_layers", ""};
  if (!reader.Has(key)) return {};
  TIDEMILL_TRY(dense, reader.config().GetInts(key.config));
  for (const int64_t layer : dense) {
    if (layer < 0 || static_cast<size_t>(layer) >= s.num_hidden_layers)
      return reader.Wrong(key, "layers below " + std::to_string(s.num_hidden_layers), std::to_string(layer));
    s.dense_layers[static_cast<size_t>(layer)] = true;
  }
  return {};
}

Result<void> CheckBias(const SettingsReader& reader, const std::string& key, bool fallback, std::string_view suffix) {
  if (reader.gguf()) return {};
  TIDEMILL_TRY(stated, reader.BoolOr({key, ""}, fallback));
  if (stated) return {};
  for (const FileTensor& tensor : reader.files().tensors()) {
    if (!tensor.name.ends_with(suffix)) continue;
    return reader.Wrong({key, ""}, "true, since the file has " + QuoteName(tensor.name), "false",
                        ErrorCode::kUnsupported);
  }
  return {};
}

Result<Activation> ActivationOf(const std::string& name) {
  if (name == "silu" || name == "swish") return Activation::kSilu;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast") return Activation::kGeluTanh;
  if (name == "gelu") return Activation::kGeluErf;
  if (name == "relu") return Activation::kRelu;
  return Error(ErrorCode::kUnsupported, "settings: activation " + QuoteName(name) +
                                            ": expected silu, gelu, gelu_new, gelu_pytorch_tanh or relu");
}

}  // namespace tidemill
