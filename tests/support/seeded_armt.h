// A recurrent-memory Llama of any size, with seeded weights, in a folder.
#ifndef TIDEMILL_TESTS_SUPPORT_SEEDED_ARMT_H_
#define TIDEMILL_TESTS_SUPPORT_SEEDED_ARMT_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "tests/support/model_folder.h"
#include "tests/support/safetensors_writer.h"
#include "tests/support/tiny_tokenizer_json.h"

namespace tidemill::testing {

struct ArmtSpec {
  size_t hidden = 512, layers = 6, heads = 8, head_dim = 64, ffn = 2048, vocab = 400, positions = 512;
  size_t segment = 128, memory = 8, d_mem = 32;
};

inline void WriteSeededArmt(const ArmtSpec& spec, ModelFolder& folder) {
  std::mt19937 random(7);
  SafetensorsWriter weights;
  const auto add = [&](const std::string& name, size_t rows, size_t cols, double scale) {
    std::string bytes;
    bytes.reserve(rows * cols * sizeof(float));
    for (size_t i = 0; i < rows * cols; ++i) {
      const auto unit = static_cast<float>(static_cast<double>(random() % 2001) / 1000.0 - 1.0);
      const float value = scale == 0 ? 1.0F : unit * static_cast<float>(scale);
      bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
    }
    weights.Add(name, "F32", rows == 1 ? std::vector<uint64_t>{cols} : std::vector<uint64_t>{rows, cols}, bytes);
  };
  const size_t wide = spec.heads * spec.head_dim;
  const double in = 1 / std::sqrt(static_cast<double>(spec.hidden)), out = in / 4;
  add("model.embed_tokens.weight", spec.vocab, spec.hidden, 1);
  add("memory", spec.memory, spec.hidden, 1);
  add("model.norm.weight", 1, spec.hidden, 0);
  for (size_t i = 0; i < spec.layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    add(layer + "input_layernorm.weight", 1, spec.hidden, 0);
    add(layer + "post_attention_layernorm.weight", 1, spec.hidden, 0);
    for (const char* name : {"q_proj", "k_proj", "v_proj"})
      add(layer + "self_attn." + name + ".weight", wide, spec.hidden, in);
    add(layer + "self_attn.o_proj.weight", spec.hidden, wide, out);
    add(layer + "mlp.gate_proj.weight", spec.ffn, spec.hidden, in);
    add(layer + "mlp.up_proj.weight", spec.ffn, spec.hidden, in);
    add(layer + "mlp.down_proj.weight", spec.hidden, spec.ffn, out);
    add(layer + "W_mq.weight", spec.d_mem, spec.hidden, in);
    add(layer + "W_mk.weight", spec.d_mem, spec.hidden, in);
    add(layer + "W_mv.weight", spec.hidden, spec.hidden, out);
    weights.Add(layer + "W_mb.weight", "F32", {1, spec.hidden}, std::string(spec.hidden * sizeof(float), '\0'));
    weights.Add(layer + "W_mb.bias", "F32", {1}, std::string(sizeof(float), '\0'));
  }
  const auto number = [](size_t value) { return std::to_string(value); };
  folder.Write("model.safetensors", weights.Build());
  folder.Write("tokenizer.json", TinyTokenizerJson(static_cast<int>(spec.vocab)));
  folder.Write(
      "config.json",
      R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "vocab_size": )" +
          number(spec.vocab) + R"(, "hidden_size": )" + number(spec.hidden) + R"(, "intermediate_size": )" +
          number(spec.ffn) + R"(, "num_hidden_layers": )" + number(spec.layers) + R"(, "num_attention_heads": )" +
          number(spec.heads) + R"(, "num_key_value_heads": )" + number(spec.heads) + R"(, "head_dim": )" +
          number(spec.head_dim) + R"(, "max_position_embeddings": )" + number(spec.positions) +
          R"(, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "tie_word_embeddings": true, "armt": {)" +
          R"("segment_size": )" + number(spec.segment) + R"(, "num_mem_tokens": )" + number(spec.memory) +
          R"(, "d_mem": )" + number(spec.d_mem) + "}}");
}

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_SEEDED_ARMT_H_
