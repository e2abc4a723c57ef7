// The wiring of Llama and its descendants: RMS norms, rotary positions, grouped queries, gated feed-forward layers or mixtures of them. A
// family states here where it differs.
#ifndef TIDEMILL_MODELS_GATED_DECODER_H_
#define TIDEMILL_MODELS_GATED_DECODER_H_

#include <memory>
#include <string>

#include "models/language_model.h"
#include "models/weight_loader.h"
#include "tidemill/result.h"

namespace tidemill {

struct GatedDecoderOptions {
  Bias qkv_bias = Bias::kNone;
  Bias o_bias = Bias::kNone;
  Bias mlp_bias = Bias::kNone;
  bool qk_norm = false;            // RMS norm of each query and key head
  bool branch_norms = false;       // a norm after each branch, too (Gemma's four)
  bool norm_one_plus = false;      // checkpoints store w of (1 + w)
  bool interleaved_heads = false;  // GGUF files hold each head's q and k rows interleaved
  bool scaled_embedding = false;   // by sqrt(hidden_size)
  bool local_rope = false;         // layers with a window use settings.local_rope
  bool output_gate = false;        // the q matrix holds a gate behind each head's rows
  bool tiled_value_heads = false;  // DeltaLayer::tiled
  std::string mlp_norm_gguf = "ffn_norm";

  // Of a mixture in a checkpoint: the router after "model.layers.N.", and the experts' matrices after "experts.E.".
  std::string mixture = "mlp";
  std::string expert_gate = "gate_proj", expert_up = "up_proj", expert_down = "down_proj";

  // Of the one layer of LoadGatedLayer.
  std::string layer_prefix = "";                   // of its names in a checkpoint; empty: "model.layers.N."
  std::string attention_norm = "input_layernorm";  // empty: none
  bool reads_tokens = false;                       // AttentionLayer::reads_tokens
};

// Layer i alone; the rest of the model is another family's.
Result<DecoderLayer> LoadGatedLayer(const ModelSettings& settings, const GatedDecoderOptions& options, size_t i,
                                    WeightLoader& weights);

Result<std::unique_ptr<LanguageModel>> LoadGatedDecoder(const ModelSettings& settings,
                                                        const GatedDecoderOptions& options, WeightLoader& weights);

}  // namespace tidemill

#endif  // TIDEMILL_MODELS_GATED_DECODER_H_
