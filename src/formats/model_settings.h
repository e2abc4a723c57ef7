// A model's settings as typed, checked numbers, with the names of config.json, whatever file they come from.
#ifndef TIDEMILL_FORMATS_MODEL_SETTINGS_H_
#define TIDEMILL_FORMATS_MODEL_SETTINGS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tensor/dtype.h"

namespace tidemill {

enum class RopeScaling { kNone, kLinear, kDynamic, kLlama3, kYarn };

// Of rotary position embeddings: what rope_theta and rope_scaling, or rope_parameters, say.
struct RopeSettings {
  double theta = 10000;  // > 1
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;                                 // >= 1
  double original_max_position_embeddings = 0;       // kDynamic, kLlama3, kYarn: >= 1
  double low_freq_factor = 1, high_freq_factor = 4;  // kLlama3; low < high
  double beta_fast = 32, beta_slow = 1;              // kYarn
  double attention_factor = 1;                       // kYarn: factor of cosines and sines
  bool truncate = true;                              // kYarn: the ramp's ends are whole numbers
};

// Which segment of a text is shorter than the others.
enum class SegmentAlignment : uint8_t {
  kLeft,    // the last
  kRight,   // the first
  kCenter,  // as torch.chunk cuts: the last may be shorter
};

// Of a recurrent-memory transformer: config.json's block "armt", or of RMT, which has no associative memory, "rmt" (docs/recurrent-memory.md).
struct ArmtSettings {
  size_t segment_size = 1;    // tokens; 1 .. 2^20
  size_t num_mem_tokens = 1;  // behind them, of RMT in front of them, too; 1 .. 1024
  size_t d_mem = 1;           // 1 .. 512; 0: RMT
  size_t nu = 3;              // 1 .. 2 * d_mem
  bool correction = true;
  bool wrap_pos = false;  // memory tokens have the last learned positions, else those behind the segment's tokens
  SegmentAlignment segment_alignment = SegmentAlignment::kLeft;
  double lora_alpha = 0;             // of LoRA adapters that are not merged; 0: none
  DType memory_dtype = DType::kF32;  // of A and z: F32 or BF16
};

struct ModelSettings {
  std::string architecture;  // "llama": the family's name in this kind of file
  std::string name;          // as the file calls itself; may be empty
  size_t vocab_size = 0;     // 1 .. 2^24
  size_t hidden_size = 0;    // 1 .. 2^20, as the other sizes
  size_t intermediate_size = 0;
  size_t num_hidden_layers = 0;        // 1 .. 4096
  size_t num_attention_heads = 0;      // 1 .. 4096
  size_t num_key_value_heads = 0;      // divides num_attention_heads
  size_t head_dim = 0;                 // even, 2 .. 512
  size_t rotary_dim = 0;               // even, 2 .. head_dim; 0: no rotary positions
  size_t max_position_embeddings = 0;  // 1 .. 2^30
  RopeSettings rope;
  RopeSettings local_rope;          // of layers with a window, where a family has two
  double rope_override_factor = 0;  // above 1: of a caller's scaling in place of the file's own; 0: none
  double norm_eps = 1e-5;           // > 0
  std::string hidden_act = "silu";
  bool tie_word_embeddings = false;
  std::vector<size_t>
      windows;  // [num_hidden_layers] positions a row sees, itself included; 0: all. Empty: no layer has a window

  size_t num_experts = 0;          // 0: no mixture
  size_t num_experts_per_tok = 0;  // 1 .. num_experts
  size_t moe_intermediate_size = 0;
  size_t shared_expert_intermediate_size = 0;  // of an expert that every token goes through; 0: there is none
  bool norm_topk_prob = true;
  std::vector<bool> dense_layers;  // [num_hidden_layers] layers without a mixture; empty: none

  // Linear attention: gated delta nets in place of attention.
  std::vector<bool> linear_layers;                            // [num_hidden_layers] layers that have it; empty: none
  size_t linear_num_key_heads = 0;                            // 1 .. 4096
  size_t linear_num_value_heads = 0;                          // a multiple of linear_num_key_heads
  size_t linear_key_head_dim = 0, linear_value_head_dim = 0;  // 1 .. 256
  size_t linear_conv_kernel_dim = 0;                          // 1 .. 16
  size_t num_mtp_layers =
      0;  // of the model's own draft head (MTP), if the file has it: layers behind the others in a GGUF file

  double attention_scale = 0;          // > 0: of the scores, instead of 1 / sqrt(head_dim)
  double attn_logit_softcapping = 0;   // 0: none
  double final_logit_softcapping = 0;  // 0: none

  bool use_parallel_residual = true;  // GPT-NeoX
  bool do_layer_norm_before = true;   // OPT
  size_t word_embed_proj_dim = 0;     // OPT: width of the embedding, 0: hidden_size

  std::optional<ArmtSettings> armt;

  // PARD: of a model that was trained to draft several tokens at once, the token that stands where they come. 0 .. vocab_size - 1
  std::optional<int32_t> pard_token;

  // Positions that a sequence may have: the model's own, or with a caller's scaling as many times that, rounded down. Positions of a segment start over at 0.
  size_t longest_context() const {
    if (armt) return size_t{1} << 30;
    if (rope_override_factor == 0) return max_position_embeddings;
    return static_cast<size_t>(std::min(static_cast<double>(max_position_embeddings) * rope_override_factor, 0x1p30));
  }
  size_t window(size_t layer) const { return windows.empty() ? 0 : windows[layer]; }
  bool is_linear(size_t layer) const { return !linear_layers.empty() && linear_layers[layer]; }
  bool has_mixture(size_t layer) const { return num_experts != 0 && (dense_layers.empty() || !dense_layers[layer]); }
};

}  // namespace tidemill

#endif  // TIDEMILL_FORMATS_MODEL_SETTINGS_H_
