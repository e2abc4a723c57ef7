// Qwen3-Next and Qwen3.5: linear attention (layers/delta_branch.h) in three of four layers; in the others attention whose result passes
// a gate, with norms of each head and rotary positions on a quarter of it. Norms store w of 1 + w. Mixtures have an expert for every token.
// Their draft head (MTP) is another such layer, with attention.
#include <algorithm>
#include <string>

#include "base/printable_name.h"
#include "kernels/delta_rule.h"
#include "models/families/families.h"
#include "models/gated_decoder.h"

namespace tidemill {
namespace {

constexpr uint64_t kMaxHeads = 4096, kMaxInterval = 4096, kMaxConvWidth = 16;

// GGUF files count the layers of the draft head among the others, behind them.
Result<void> ReadDraftLayers(const SettingsReader& reader, ModelSettings& s) {
  if (reader.gguf()) {
    TIDEMILL_TRY(layers, reader.UintOr({"", "nextn_predict_layers"}, 0, 0, s.num_hidden_layers - 1));
    for (size_t i = s.num_hidden_layers - layers; i < s.num_hidden_layers; ++i) {
      const std::string prefix = "blk." + std::to_string(i) + ".nextn.";
      const auto is_of_head = [&](const FileTensor& tensor) { return tensor.name.starts_with(prefix); };
      if (std::ranges::any_of(reader.files().tensors(), is_of_head)) continue;
      return reader.Wrong({"", "nextn_predict_layers"},
                          "as many layers of a draft head as have tensors " + prefix + "*", std::to_string(layers));
    }
    s.num_hidden_layers -= layers;
    s.num_mtp_layers = layers;
    return {};
  }
  TIDEMILL_TRY_VOID(reader.UintOr({"mtp_num_hidden_layers", ""}, 0, 0, 1));
  s.num_mtp_layers = reader.files().FindTensor("mtp.fc.weight") != nullptr ? 1 : 0;
  return {};
}

// layer_types decides; without it every layer is linear but those that full_attention_interval counts.
Result<void> ReadLinearLayers(const SettingsReader& reader, ModelSettings& s) {
  TIDEMILL_TRY(interval, reader.UintOr({"full_attention_interval", "full_attention_interval"}, 4, 1, kMaxInterval));
  s.linear_layers.resize(s.num_hidden_layers);
  for (size_t i = 0; i < s.linear_layers.size(); ++i) s.linear_layers[i] = (i + 1) % interval != 0;
  const SettingKey types_key{"layer_types", ""}, flags_key{"", "attention.recurrent_layers"};
  if (reader.Has(flags_key)) {
    const size_t blocks = s.num_hidden_layers + s.num_mtp_layers;
    TIDEMILL_TRY(flags, reader.files().gguf()->GetBools(reader.architecture() + "." + flags_key.gguf));
    if (flags.size() != blocks) {
      return reader.Wrong(flags_key, std::to_string(blocks) + " bools, one for each layer",
                          std::to_string(flags.size()));
    }
    flags.resize(s.num_hidden_layers);
    s.linear_layers = std::move(flags);
  }
  if (!reader.Has(types_key)) return {};
  TIDEMILL_TRY(types, ReadLayerTypes(reader, s));
  for (size_t i = 0; i < types.size(); ++i) {
    const bool is_linear = types[i] == "linear_attention" || types[i] == "mamba";
    if (!is_linear && types[i] != "full_attention" && types[i] != "attention") {
      return reader.Wrong(types_key, "linear_attention or full_attention", QuoteName(types[i]),
                          ErrorCode::kUnsupported);
    }
    s.linear_layers[i] = is_linear;
  }
  return {};
}

// What a config.json does not have is as transformers has it.
Result<void> ReadLinearSizes(const SettingsReader& reader, ModelSettings& s) {
  const auto size = [&](const SettingKey& key, uint64_t missing, uint64_t max) {
    return reader.gguf() ? reader.Uint(key, 1, max) : reader.UintOr(key, missing, 1, max);
  };
  const SettingKey value_heads_key{"linear_num_value_heads", "ssm.time_step_rank"};
  TIDEMILL_TRY(width, size({"linear_conv_kernel_dim", "ssm.conv_kernel"}, 4, kMaxConvWidth));
  TIDEMILL_TRY(key_dim, size({"linear_key_head_dim", "ssm.state_size"}, 128, kMaxDeltaDim));
  TIDEMILL_TRY(key_heads, size({"linear_num_key_heads", "ssm.group_count"}, 16, kMaxHeads));
  TIDEMILL_TRY(value_heads, size(value_heads_key, 32, kMaxHeads));
  if (value_heads % key_heads != 0) {
    return reader.Wrong(value_heads_key, "a multiple of the " + std::to_string(key_heads) + " key heads",
                        std::to_string(value_heads));
  }
  s.linear_conv_kernel_dim = width;
  s.linear_key_head_dim = key_dim;
  s.linear_num_key_heads = key_heads;
  s.linear_num_value_heads = value_heads;
  if (!reader.gguf()) {
    TIDEMILL_TRY(value_dim, size({"linear_value_head_dim", ""}, 128, kMaxDeltaDim));
    s.linear_value_head_dim = value_dim;
    return {};
  }
  const SettingKey inner_key{"", "ssm.inner_size"};
  TIDEMILL_TRY(inner, reader.Uint(inner_key, 1, kMaxDeltaDim * value_heads));
  if (inner % value_heads != 0) {
    return reader.Wrong(inner_key, "a multiple of the " + std::to_string(value_heads) + " value heads",
                        std::to_string(inner));
  }
  s.linear_value_head_dim = inner / value_heads;
  return {};
}

// Keys of released files that transformers does not read, and what the models are.
Result<void> CheckFixedKeys(const SettingsReader& reader) {
  for (const auto& [name, is] : {std::pair{"attn_output_gate", true}, {"mtp_use_dedicated_embeddings", false}}) {
    TIDEMILL_TRY(found, reader.BoolOr({name, ""}, is));
    if (found != is)
      return reader.Wrong({name, ""}, is ? "true" : "false", found ? "true" : "false", ErrorCode::kUnsupported);
  }
  for (const auto& [name, is] : {std::pair{"output_gate_type", "swish"}, {"mamba_ssm_dtype", "float32"}}) {
    TIDEMILL_TRY(found, reader.StringOr({name, ""}, is));
    if (found != is) return reader.Wrong({name, ""}, is, QuoteName(found), ErrorCode::kUnsupported);
  }
  return {};
}

// The activation of the convolution, too.
Result<void> CheckActivation(const SettingsReader& reader, const ModelSettings& s) {
  if (s.hidden_act == "silu") return {};
  return reader.Wrong({"hidden_act", ""}, "silu", QuoteName(s.hidden_act), ErrorCode::kUnsupported);
}

Result<ModelSettings> ReadHybridSettings(const SettingsReader& reader) {
  TIDEMILL_TRY(s, ReadDecoderSettings(reader, {.partial_rotary_factor = "partial_rotary_factor",
                                               .default_partial_rotary_factor = 0.25}));
  if (!reader.gguf()) {  // of a model that also reads images its own key decides, not that of its language model
    TIDEMILL_TRY(tied, reader.files().config()->GetBoolOr("tie_word_embeddings", s.tie_word_embeddings));
    s.tie_word_embeddings = tied;
    for (const char* name : {"mrope_section", "mrope_interleaved"}) {  // the three positions of a token of text are one
      for (const char* place : {"rope_parameters.", "rope_scaling."}) reader.Take(place + std::string(name));
    }
  }
  TIDEMILL_TRY_VOID(CheckBias(reader, "attention_bias", false, ".self_attn.q_proj.bias"));
  TIDEMILL_TRY_VOID(ReadDraftLayers(reader, s));
  TIDEMILL_TRY_VOID(ReadLinearLayers(reader, s));
  TIDEMILL_TRY_VOID(ReadLinearSizes(reader, s));
  TIDEMILL_TRY_VOID(CheckFixedKeys(reader));
  TIDEMILL_TRY_VOID(CheckActivation(reader, s));
  return s;
}

Result<void> ReadMixture(const SettingsReader& reader, ModelSettings& s) {
  TIDEMILL_TRY_VOID(ReadExpertSettings(reader, s));
  const SettingKey key{"shared_expert_intermediate_size", "expert_shared_feed_forward_length"};
  TIDEMILL_TRY(shared, reader.UintOr(key, reader.gguf() ? s.intermediate_size : 512, 1, uint64_t{1} << 20));
  if (s.num_experts == 0) return {};
  s.shared_expert_intermediate_size = shared;
  if (!reader.Has({"intermediate_size", "feed_forward_length"})) s.intermediate_size = s.moe_intermediate_size;
  return {};
}

GatedDecoderOptions HybridOptions() {
  return {.qkv_bias = Bias::kOptional,
          .o_bias = Bias::kOptional,
          .qk_norm = true,
          .norm_one_plus = true,
          .output_gate = true,
          .mlp_norm_gguf = "post_attention_norm"};
}

constexpr std::string_view kMtp = "mtp.";  // of the draft head's names in a checkpoint

// In a GGUF file of the draft head's i-th layer, which has all of its names.
std::string MtpBlock(const ModelSettings& s, size_t i) {
  return "blk." + std::to_string(s.num_hidden_layers + i) + ".";
}

Result<std::unique_ptr<LanguageModel>> LoadHybrid(const ModelSettings& s, WeightLoader& weights, bool tiled) {
  weights.Skip("model.visual.");
  weights.Skip(kMtp);
  for (size_t i = 0; i < s.num_mtp_layers; ++i) weights.Skip(MtpBlock(s, i));
  GatedDecoderOptions options = HybridOptions();
  options.tiled_value_heads = tiled;
  return LoadGatedDecoder(s, options, weights);
}

// Of the target's settings: one layer with attention, with experts where the others have them.
ModelSettings MtpSettings(ModelSettings s) {
  s.num_hidden_layers = 1;
  s.linear_layers.clear();
  s.dense_layers.clear();
  s.num_mtp_layers = 0;
  return s;
}

Result<void> CheckHasMtp(const ModelSettings& s, const WeightLoader& weights) {
  const std::string advice = "; take files that have it, or draft with ngram, layers:M or a smaller model";
  if (weights.gguf() && s.num_mtp_layers > 1) {
    return Error(ErrorCode::kUnsupported, "metadata: \"" + s.architecture +
                                              ".nextn_predict_layers\": expected a draft head of 1 layer, found " +
                                              std::to_string(s.num_mtp_layers) + advice);
  }
  if (weights.gguf() && s.num_mtp_layers == 0) {
    return Error(ErrorCode::kNotFound, "draft head: expected tensors \"" + MtpBlock(s, 0) +
                                           "nextn.*\" and \"nextn_predict_layers\" 1, found a file of " +
                                           std::to_string(s.num_hidden_layers) + " layers without a draft head" +
                                           advice);
  }
  if (!weights.gguf() && !weights.HasAny(kMtp)) {
    return Error(ErrorCode::kNotFound,
                 "draft head: expected tensors \"mtp.*\", as \"mtp.fc.weight\", found none" + advice);
  }
  return {};
}

}  // namespace

Result<ModelSettings> ReadQwen3NextSettings(const SettingsReader& reader) {
  TIDEMILL_TRY(s, ReadHybridSettings(reader));
  TIDEMILL_TRY_VOID(ReadMixture(reader, s));
  TIDEMILL_TRY(normalised, reader.BoolOr({"norm_topk_prob", ""}, true));
  s.norm_topk_prob = normalised;
  TIDEMILL_TRY_VOID(ReadDenseLayers(reader, s));
  return s;
}

Result<ModelSettings> ReadQwen35Settings(const SettingsReader& reader) { return ReadHybridSettings(reader); }

// transformers reads no mlp_only_layers here.
Result<ModelSettings> ReadQwen35MoeSettings(const SettingsReader& reader) {
  TIDEMILL_TRY(s, ReadHybridSettings(reader));
  TIDEMILL_TRY_VOID(ReadMixture(reader, s));
  if (!reader.gguf()) {
    const auto dense = reader.config().Peek("mlp_only_layers");
    if (dense && dense->is_array() && dense->size() == 0) reader.Take("mlp_only_layers");
  }
  return s;
}

Result<std::unique_ptr<LanguageModel>> LoadQwen3Next(const ModelSettings& settings, WeightLoader& weights) {
  return LoadHybrid(settings, weights, false);
}

Result<std::unique_ptr<LanguageModel>> LoadQwen35(const ModelSettings& settings, WeightLoader& weights) {
  return LoadHybrid(settings, weights, true);
}

// Multi-token prediction: a token beside the hidden in front of it, behind the final norm and normed again, through one product; a layer;
// a norm, behind which is the next hidden.
Result<std::unique_ptr<LanguageModel>> LoadQwenMtp(const LanguageModel& target, WeightLoader& weights) {
  const ModelSettings& s = target.settings;
  TIDEMILL_TRY_VOID(CheckHasMtp(s, weights));
  const size_t hidden = s.hidden_size, layer_index = s.num_hidden_layers;
  const std::string checkpoint(kMtp), block = MtpBlock(s, 0);
  const auto rms = [&](const WeightName& name) { return weights.Rms(name, hidden, s.norm_eps, true); };

  auto head = std::make_unique<LanguageModel>();
  head->settings = MtpSettings(s);
  FeatureInput& input = head->features;
  TIDEMILL_TRY(fuse, weights.Layer({checkpoint + "fc", block + "nextn.eh_proj"}, hidden, 2 * hidden, Bias::kNone));
  TIDEMILL_TRY(token_norm, rms({checkpoint + "pre_fc_norm_embedding", block + "nextn.enorm"}));
  TIDEMILL_TRY(feature_norm, rms({checkpoint + "pre_fc_norm_hidden", block + "nextn.hnorm"}));
  input.fuse = std::move(fuse);
  input.fuses_tokens = true;
  input.token_norm = std::move(token_norm);
  input.feature_norm = std::move(feature_norm);
  input.width = hidden;
  input.target_taps = {target.layers.size() + 1};
  input.own_tap = 2;

  GatedDecoderOptions options = HybridOptions();
  options.layer_prefix = checkpoint + "layers.0.";
  TIDEMILL_TRY(layer, LoadGatedLayer(head->settings, options, layer_index, weights));
  head->layers.push_back(std::move(layer));
  head->ropes = target.ropes;

  WeightName norm_name{checkpoint + "norm", block + "nextn.shared_head_norm"};
  if (weights.gguf() && !weights.Has(norm_name)) norm_name.gguf = "output_norm";
  TIDEMILL_TRY(final_norm, rms(norm_name));
  head->final_norm = std::move(final_norm);
  // Files of llama.cpp's format may have these; a checkpoint's are the target's.
  if (const WeightName name{"", block + "nextn.embed_tokens"}; weights.gguf() && weights.Has(name)) {
    TIDEMILL_TRY(embedding, weights.MatrixUnless(target.embedding, name, s.vocab_size, hidden));
    head->embedding = std::move(embedding);
  }
  if (const WeightName name{"", block + "nextn.shared_head_head"}; weights.gguf() && weights.Has(name)) {
    TIDEMILL_TRY(own, weights.MatrixUnless(target.head_or_tied(), name, s.vocab_size, hidden));
    if (own.rows() != 0) head->head.weight = std::move(own);
  }
  TIDEMILL_TRY_VOID(weights.CheckAllRead(weights.gguf() ? std::string_view(block) : kMtp));
  return head;
}

}  // namespace tidemill
