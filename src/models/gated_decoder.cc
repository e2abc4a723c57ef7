#include "models/gated_decoder.h"

#include <cmath>
#include <utility>

#include "models/delta_loader.h"
#include "models/layers/attention_branch.h"
#include "models/layers/delta_branch.h"
#include "models/layers/mixture_branch.h"
#include "models/layers/mlp_branch.h"
#include "models/settings_reader.h"

namespace tidemill {
namespace {

class GatedDecoderLoader {
 public:
  GatedDecoderLoader(const ModelSettings& settings, const GatedDecoderOptions& options, WeightLoader& weights)
      : s_(settings), options_(options), weights_(weights) {
    // Checkpoints of the bare decoder lack the prefix, those of a model that also reads images have a longer one.
    if (weights.HasTensor("model.language_model.embed_tokens.weight")) root_ = "model.language_model.";
    if (weights.Has({"embed_tokens", ""}) && !weights.Has({root_ + "embed_tokens", "token_embd"})) root_ = "";
  }

  Result<DecoderLayer> LoadOne(size_t i) {
    TIDEMILL_TRY_VOID(FindActivation());
    return LoadLayer(i);
  }

  Result<std::unique_ptr<LanguageModel>> Load() {
    TIDEMILL_TRY_VOID(FindActivation());
    auto model = std::make_unique<LanguageModel>();
    model->settings = s_;
    const WeightName embedding_name{root_ + "embed_tokens", "token_embd"};
    TIDEMILL_TRY(embedding, weights_.Matrix(embedding_name, s_.vocab_size, s_.hidden_size));
    model->embedding = std::move(embedding);
    if (options_.scaled_embedding)
      model->embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(s_.hidden_size)));
    TIDEMILL_TRY(head, weights_.Head({"lm_head", "output"}, embedding_name, s_.tie_word_embeddings, s_.vocab_size,
                                     s_.hidden_size));
    model->head = std::move(head);
    TIDEMILL_TRY(final_norm, Rms({root_ + "norm", "output_norm"}));
    model->final_norm = std::move(final_norm);
    model->logit_soft_cap = static_cast<float>(s_.final_logit_softcapping);
    TIDEMILL_TRY_VOID(LoadRopes(*model));
    for (size_t i = 0; i < s_.num_hidden_layers; ++i) {
      TIDEMILL_TRY(layer, LoadLayer(i));
      model->layers.push_back(std::move(layer));
    }
    return model;
  }

 private:
  Result<void> FindActivation() {
    TIDEMILL_TRY(activation, ActivationOf(s_.hidden_act));
    activation_ = activation;
    return {};
  }

  Result<Norm> Rms(const WeightName& name) {
    return weights_.Rms(name, s_.hidden_size, s_.norm_eps, options_.norm_one_plus);
  }

  Result<void> LoadRopes(LanguageModel& model) {
    std::vector<float> divisors;
    if (const WeightName name{"", "rope_freqs"}; weights_.gguf() && weights_.Has(name)) {
      TIDEMILL_TRY(values, weights_.Vector(name, s_.rotary_dim / 2));
      for (const float value : values) {
        if (!(value >= 1e-3f && value <= 1e6f)) {  // real files: 1 to the factor; a frequency stays a finite f32
          return Error(
              ErrorCode::kCorruptFile,
              "tensor \"rope_freqs.weight\": expected numbers from 0.001 to 1e6, found " + std::to_string(value));
        }
      }
      // They are the file's own scaling, which a caller's replaces.
      if (s_.rope_override_factor == 0) divisors = std::move(values);
    }
    model.ropes.push_back(MakeRopeTable(s_.rope, s_.rotary_dim, divisors));
    if (options_.local_rope) model.ropes.push_back(MakeRopeTable(s_.local_rope, s_.rotary_dim));
    return {};
  }

  WeightName Name(size_t layer, const std::string& checkpoint, const std::string& gguf) const {
    const std::string prefix =
        options_.layer_prefix.empty() ? root_ + "layers." + std::to_string(layer) + "." : options_.layer_prefix;
    return {prefix + checkpoint, "blk." + std::to_string(layer) + "." + gguf};
  }

  Result<DecoderLayer> LoadLayer(size_t i) {
    const bool four = options_.branch_norms;
    Norm attention_norm, attention_out_norm, mlp_out_norm;
    if (!options_.attention_norm.empty()) {
      TIDEMILL_TRY(norm, Rms(Name(i, options_.attention_norm, "attn_norm")));
      attention_norm = std::move(norm);
    }
    TIDEMILL_TRY(mlp_norm,
                 Rms(Name(i, four ? "pre_feedforward_layernorm" : "post_attention_layernorm", options_.mlp_norm_gguf)));
    if (four) {
      TIDEMILL_TRY(after_attention, Rms(Name(i, "post_attention_layernorm", "post_attention_norm")));
      TIDEMILL_TRY(after_mlp, Rms(Name(i, "post_feedforward_layernorm", "post_ffw_norm")));
      attention_out_norm = std::move(after_attention);
      mlp_out_norm = std::move(after_mlp);
    }
    DecoderLayer layer;
    if (s_.is_linear(i)) {
      const auto name = [&](const std::string& checkpoint, const std::string& gguf) {
        return Name(i, checkpoint, gguf);
      };
      TIDEMILL_TRY(delta, LoadDeltaLayer(s_, options_.tiled_value_heads, name, weights_));
      layer.Add(std::move(attention_norm), std::move(attention_out_norm), DeltaBranch(std::move(delta)));
    } else {
      TIDEMILL_TRY(attention, LoadAttention(i));
      layer.Add(std::move(attention_norm), std::move(attention_out_norm), AttentionBranch(std::move(attention)));
    }
    if (s_.has_mixture(i)) {
      TIDEMILL_TRY(mixture, LoadMixture(i));
      layer.Add(std::move(mlp_norm), std::move(mlp_out_norm), MixtureBranch(std::move(mixture)));
    } else {
      TIDEMILL_TRY(mlp, LoadMlp(i, s_.intermediate_size, "mlp", "", options_.mlp_bias));
      layer.Add(std::move(mlp_norm), std::move(mlp_out_norm), MlpBranch(std::move(mlp)));
    }
    return layer;
  }

  Result<AttentionLayer> LoadAttention(size_t i) {
    const size_t head_dim = s_.head_dim, hidden = s_.hidden_size, read = options_.reads_tokens ? 2 * hidden : hidden;
    const size_t q_dim = s_.num_attention_heads * head_dim, kv_dim = s_.num_key_value_heads * head_dim;
    WeightForm rotated;
    if (options_.interleaved_heads && weights_.gguf()) rotated.order.interleaved_head_dim = head_dim;
    AttentionLayer a{.heads = s_.num_attention_heads, .kv_heads = s_.num_key_value_heads, .head_dim = head_dim};
    const WeightName q_name = Name(i, "self_attn.q_proj", "attn_q");
    WeightForm q_form = rotated;
    if (options_.output_gate) {
      q_form = {.parts = 2, .part = 1, .part_rows = head_dim};
      TIDEMILL_TRY(gate, weights_.Layer(q_name, q_dim, read, options_.qkv_bias, q_form));
      a.gate = std::move(gate);
      q_form.part = 0;
    }
    TIDEMILL_TRY(q, weights_.Layer(q_name, q_dim, read, options_.qkv_bias, q_form));
    TIDEMILL_TRY(k, weights_.Layer(Name(i, "self_attn.k_proj", "attn_k"), kv_dim, read, options_.qkv_bias, rotated));
    TIDEMILL_TRY(v, weights_.Layer(Name(i, "self_attn.v_proj", "attn_v"), kv_dim, read, options_.qkv_bias));
    TIDEMILL_TRY(o, weights_.Layer(Name(i, "self_attn.o_proj", "attn_output"), hidden, q_dim, options_.o_bias));
    a.q = std::move(q);
    a.k = std::move(k);
    a.v = std::move(v);
    a.o = std::move(o);
    if (options_.qk_norm) {
      const bool one_plus = options_.norm_one_plus;
      TIDEMILL_TRY(q_norm, weights_.Rms(Name(i, "self_attn.q_norm", "attn_q_norm"), head_dim, s_.norm_eps, one_plus));
      TIDEMILL_TRY(k_norm, weights_.Rms(Name(i, "self_attn.k_norm", "attn_k_norm"), head_dim, s_.norm_eps, one_plus));
      a.q_norm = std::move(q_norm);
      a.k_norm = std::move(k_norm);
    }
    a.scale =
        static_cast<float>(s_.attention_scale != 0 ? s_.attention_scale : 1 / std::sqrt(static_cast<double>(head_dim)));
    a.soft_cap = static_cast<float>(s_.attn_logit_softcapping);
    a.window = s_.window(i);
    a.rope = options_.local_rope && a.window != 0 ? 1 : 0;
    a.reads_tokens = options_.reads_tokens;
    return a;
  }

  // `gguf` stands behind its three names in a GGUF file.
  Result<Mlp> LoadMlp(size_t i, size_t ffn, const std::string& checkpoint, const std::string& gguf, Bias bias) {
    const size_t hidden = s_.hidden_size;
    Mlp mlp{.activation = activation_};
    TIDEMILL_TRY(gate, weights_.Layer(Name(i, checkpoint + ".gate_proj", "ffn_gate" + gguf), ffn, hidden, bias));
    TIDEMILL_TRY(up, weights_.Layer(Name(i, checkpoint + ".up_proj", "ffn_up" + gguf), ffn, hidden, bias));
    TIDEMILL_TRY(down, weights_.Layer(Name(i, checkpoint + ".down_proj", "ffn_down" + gguf), hidden, ffn, bias));
    mlp.gate = std::move(gate);
    mlp.up = std::move(up);
    mlp.down = std::move(down);
    return mlp;
  }

  // A checkpoint has a matrix for each expert, or as GGUF files do one for all, expert behind expert. Then gate and up may stand in one, too:
  // each expert's gate before its up.
  Result<Mlp> LoadExpert(size_t i, size_t expert) {
    const size_t ffn = s_.moe_intermediate_size, hidden = s_.hidden_size, experts = s_.num_experts;
    const std::string all = options_.mixture + ".experts.", one = all + std::to_string(expert) + ".";
    const std::string_view suffix = weights_.gguf() ? ".weight" : "";
    const WeightName both = Name(i, all + "gate_up_proj", "ffn_gate_up_exps");
    const bool fused = weights_.Has(both, suffix);
    WeightName gate_name = both, up_name = both, down_name = Name(i, all + "down_proj", "ffn_down_exps");
    WeightForm gate_form, up_form, down_form;
    if (fused) {
      gate_form = {.parts = 2 * experts, .part = 2 * expert, .suffix = suffix};
      up_form = {.parts = 2 * experts, .part = 2 * expert + 1, .suffix = suffix};
    } else {
      gate_name = Name(i, one + options_.expert_gate, "ffn_gate_exps");
      up_name = Name(i, one + options_.expert_up, "ffn_up_exps");
      if (weights_.gguf()) gate_form = up_form = {.parts = experts, .part = expert};
    }
    if (fused || weights_.gguf()) {
      down_form = {.parts = experts, .part = expert, .suffix = suffix};
    } else {
      down_name = Name(i, one + options_.expert_down, "");
    }
    Mlp mlp{.activation = activation_};
    TIDEMILL_TRY(gate, weights_.Layer(gate_name, ffn, hidden, Bias::kNone, gate_form));
    TIDEMILL_TRY(up, weights_.Layer(up_name, ffn, hidden, Bias::kNone, up_form));
    TIDEMILL_TRY(down, weights_.Layer(down_name, hidden, ffn, Bias::kNone, down_form));
    mlp.gate = std::move(gate);
    mlp.up = std::move(up);
    mlp.down = std::move(down);
    return mlp;
  }

  Result<MixtureOfExperts> LoadMixture(size_t i) {
    MixtureOfExperts mixture{.per_token = s_.num_experts_per_tok,
                             .normalise = s_.norm_topk_prob ? Normalise::kOverChosen : Normalise::kOverAll};
    TIDEMILL_TRY(router, weights_.Layer(Name(i, options_.mixture + ".gate", "ffn_gate_inp"), s_.num_experts,
                                        s_.hidden_size, Bias::kNone));
    mixture.router = std::move(router);
    for (size_t e = 0; e < s_.num_experts; ++e) {
      TIDEMILL_TRY(expert, LoadExpert(i, e));
      mixture.experts.push_back(std::move(expert));
    }
    if (s_.shared_expert_intermediate_size != 0) {
      const std::string name = options_.mixture + ".shared_expert";
      TIDEMILL_TRY(shared, LoadMlp(i, s_.shared_expert_intermediate_size, name, "_shexp", Bias::kNone));
      TIDEMILL_TRY(gate, weights_.Layer(Name(i, name + "_gate", "ffn_gate_inp_shexp"), 1, s_.hidden_size, Bias::kNone));
      mixture.shared = std::move(shared);
      mixture.shared_gate = std::move(gate);
    }
    return mixture;
  }

  const ModelSettings& s_;
  const GatedDecoderOptions& options_;
  WeightLoader& weights_;
  std::string root_ = "model.";  // of names in a checkpoint
  Activation activation_ = Activation::kSilu;
};

}  // namespace

Result<DecoderLayer> LoadGatedLayer(const ModelSettings& settings, const GatedDecoderOptions& options, size_t i,
                                    WeightLoader& weights) {
  return GatedDecoderLoader(settings, options, weights).LoadOne(i);
}

Result<std::unique_ptr<LanguageModel>> LoadGatedDecoder(const ModelSettings& settings,
                                                        const GatedDecoderOptions& options, WeightLoader& weights) {
  return GatedDecoderLoader(settings, options, weights).Load();
}

}  // namespace tidemill
