// A target of 16 tokens that fits into a few KB, and what may draft for it: seeds of fuzz_draft_head, and what it runs them with.
#ifndef TIDEMILL_TESTS_FUZZ_TINY_DRAFT_HEADS_H_
#define TIDEMILL_TESTS_FUZZ_TINY_DRAFT_HEADS_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "tests/support/byte_level_tokenizer.h"
#include "tests/support/safetensors_writer.h"

namespace tidemill::testing {

inline constexpr uint64_t kTinyVocab = 16, kTinyHidden = 8, kTinyFfn = 8, kTinyLayers = 7, kTinyDraftVocab = 6;

// config.json and model.safetensors of a folder.
struct TinyCheckpoint {
  std::string config, tensors;

  // An input of fuzz_draft_head: the settings up to the first zero byte, then the tensors.
  std::string Input() const { return config + '\0' + tensors; }
};

// "<0>" to "<2>", which are special, then one character each.
inline std::string TinyTokenizer() {
  std::vector<std::string> tokens;
  for (size_t id = 0; id < kTinyVocab; ++id)
    tokens.push_back(id < 3 ? "<" + std::to_string(id) + ">" : std::string(1, static_cast<char>('a' + id)));
  return ByteLevelTokenizer(tokens, [](size_t id) { return id < 3; }, {});
}

class TinyWriter {
 public:
  // Numbers from -1 to 1 in a fixed order that repeats late.
  TinyWriter& Matrix(const std::string& name, const std::vector<uint64_t>& shape) {
    uint64_t count = 1;
    for (const uint64_t size : shape) count *= size;
    std::string bytes(count * sizeof(float), '\0');
    for (uint64_t i = 0; i < count; ++i) {
      state_ = state_ * 6364136223846793005U + 1442695040888963407U;
      const float number = static_cast<float>(state_ >> 40) / static_cast<float>(1 << 23) - 1;
      std::memcpy(bytes.data() + i * sizeof number, &number, sizeof number);
    }
    writer_.Add(name, "F32", shape, bytes);
    return *this;
  }
  template <typename T>
  TinyWriter& Numbers(const std::string& name, const char* type, const std::vector<T>& numbers) {
    std::string bytes(numbers.size() * sizeof(T), '\0');
    std::memcpy(bytes.data(), numbers.data(), bytes.size());
    writer_.Add(name, type, {numbers.size()}, bytes);
    return *this;
  }
  // `inputs`: of the attention; of EAGLE-3 a token beside features.
  TinyWriter& Layer(const std::string& prefix, uint64_t inputs = kTinyHidden) {
    const uint64_t kv = kTinyHidden / 2;
    Matrix(prefix + "self_attn.q_proj.weight", {kTinyHidden, inputs});
    Matrix(prefix + "self_attn.k_proj.weight", {kv, inputs});
    Matrix(prefix + "self_attn.v_proj.weight", {kv, inputs});
    Matrix(prefix + "self_attn.o_proj.weight", {kTinyHidden, kTinyHidden});
    Matrix(prefix + "mlp.gate_proj.weight", {kTinyFfn, kTinyHidden});
    Matrix(prefix + "mlp.up_proj.weight", {kTinyFfn, kTinyHidden});
    Matrix(prefix + "mlp.down_proj.weight", {kTinyHidden, kTinyFfn});
    return Matrix(prefix + "post_attention_layernorm.weight", {kTinyHidden});
  }
  std::string Build() const { return writer_.Build(); }

 private:
  SafetensorsWriter writer_;
  uint64_t state_ = 1;
};

// `more` keys behind a comma.
inline std::string TinyConfig(uint64_t layers, const std::string& more = "") {
  return R"({"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":8,"intermediate_size":8,)"
         R"("num_attention_heads":2,"num_key_value_heads":1,"num_hidden_layers":)" +
         std::to_string(layers) +
         R"(,"vocab_size":16,"max_position_embeddings":64,"rms_norm_eps":1e-6,"hidden_act":"silu","bos_token_id":1,)"
         R"("eos_token_id":2,"tie_word_embeddings":false)" +
         more + "}";
}

// A Llama of so many layers.
inline TinyCheckpoint TinyModel(uint64_t layers, const std::string& more = "") {
  TinyWriter tensors;
  tensors.Matrix("model.embed_tokens.weight", {kTinyVocab, kTinyHidden});
  for (uint64_t i = 0; i < layers; ++i) {
    const std::string prefix = "model.layers." + std::to_string(i) + ".";
    tensors.Matrix(prefix + "input_layernorm.weight", {kTinyHidden}).Layer(prefix);
  }
  tensors.Matrix("model.norm.weight", {kTinyHidden}).Matrix("lm_head.weight", {kTinyVocab, kTinyHidden});
  return {TinyConfig(layers, more), tensors.Build()};
}

inline TinyCheckpoint TinyEagle() {
  TinyWriter tensors;
  tensors.Matrix("fc.weight", {kTinyHidden, 2 * kTinyHidden}).Matrix("fc.bias", {kTinyHidden}).Layer("layers.0.");
  return {TinyConfig(1), tensors.Build()};
}

// `marks`: t2d, which may contradict d2t.
inline TinyCheckpoint TinyEagle3(bool marks_agree = true) {
  TinyWriter tensors;
  tensors.Matrix("fc.weight", {kTinyHidden, 3 * kTinyHidden}).Layer("midlayer.", 2 * kTinyHidden);
  tensors.Matrix("midlayer.hidden_norm.weight", {kTinyHidden}).Matrix("midlayer.input_layernorm.weight", {kTinyHidden});
  tensors.Matrix("norm.weight", {kTinyHidden}).Matrix("lm_head.weight", {kTinyDraftVocab, kTinyHidden});
  std::vector<int64_t> distances;  // to ids 3, 5, 7, ...
  std::vector<uint8_t> marks(kTinyVocab);
  for (uint64_t i = 0; i < kTinyDraftVocab; ++i) {
    distances.push_back(static_cast<int64_t>(3 + i));
    marks[3 + 2 * i] = marks_agree ? 1 : 0;
  }
  tensors.Numbers("d2t", "I64", distances).Numbers("t2d", "BOOL", marks);
  return {TinyConfig(1, R"(,"draft_vocab_size":6)"), tensors.Build()};
}

inline TinyCheckpoint TinyPard() { return TinyModel(1, R"(,"pard_token":15,"spd_type":"pard")"); }

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_FUZZ_TINY_DRAFT_HEADS_H_
