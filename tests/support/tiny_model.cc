#include "tests/support/tiny_model.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "tests/support/encode_weights.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/tiny_vocabulary.h"

namespace tidemill::testing {

const char kTinyChatTemplate[] =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + "
    "'\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

namespace {

uint64_t Mix(uint64_t x) {  // SplitMix64's output function
  x += 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

// Element i of a tensor depends on (seed, name, i) only, so adding a tensor changes no other.
class TensorRandom {
 public:
  TensorRandom(uint64_t seed, const std::string& name) : state_(Mix(seed)) {
    for (const char c : name) state_ = Mix(state_ ^ static_cast<unsigned char>(c));
  }
  // In [-1, 1), a multiple of 2^-23.
  float Uniform(uint64_t i) const {
    return static_cast<float>(static_cast<int32_t>(Mix(state_ + i) >> 40) - (1 << 23)) * 0x1p-23f;
  }

 private:
  uint64_t state_;
};

struct TinyShape {
  int vocab, tokens, hidden, layers, heads, kv_heads, head_dim, ffn, context;
  float rope_theta, rms_norm_eps;
};

void SetMetadata(GgufWriter& writer, const TinyShape& s, const std::string& name, int eos_token,
                 const std::string& chat_template) {
  const auto number = [&](const char* key, int value) { writer.Set<uint32_t>(key, static_cast<uint32_t>(value)); };
  writer.SetString("general.architecture", "llama");
  writer.SetString("general.type", "model");
  writer.SetString("general.name", name);
  number("llama.block_count", s.layers);
  number("llama.context_length", s.context);
  number("llama.embedding_length", s.hidden);
  number("llama.feed_forward_length", s.ffn);
  number("llama.attention.head_count", s.heads);
  number("llama.attention.head_count_kv", s.kv_heads);
  writer.Set<float>("llama.rope.freq_base", s.rope_theta);
  writer.Set<float>("llama.attention.layer_norm_rms_epsilon", s.rms_norm_eps);
  if (s.head_dim * s.heads != s.hidden) {
    number("llama.attention.key_length", s.head_dim);
    number("llama.attention.value_length", s.head_dim);
  }
  number("llama.vocab_size", s.vocab);
  number("llama.rope.dimension_count", s.head_dim);
  number("general.quantization_version", 2);

  const TinyVocabulary vocabulary = MakeTinyVocabulary(s.tokens);
  writer.Set<bool>("tokenizer.ggml.add_space_prefix", false);
  writer.Set<bool>("tokenizer.ggml.add_bos_token", false);
  writer.SetString("tokenizer.ggml.model", "gpt2");
  writer.SetString("tokenizer.ggml.pre", "smollm");
  writer.SetStrings("tokenizer.ggml.tokens", vocabulary.tokens);
  writer.SetArray("tokenizer.ggml.token_type", vocabulary.token_types);
  writer.SetStrings("tokenizer.ggml.merges", vocabulary.merges);
  number("tokenizer.ggml.bos_token_id", kTinyBosToken);
  number("tokenizer.ggml.eos_token_id", eos_token);
  number("tokenizer.ggml.unknown_token_id", kTinyUnknownToken);
  number("tokenizer.ggml.padding_token_id", eos_token);
  if (!chat_template.empty()) writer.SetString("tokenizer.chat_template", chat_template);
}

// weights [rows, cols]; falls back to F32 where a row does not divide into blocks.
void AddMatrix(GgufWriter& writer, const std::string& name, DType dtype, int rows, int cols,
               const std::vector<float>& weights) {
  TIDEMILL_CHECK(weights.size() == static_cast<size_t>(rows) * static_cast<size_t>(cols));
  if (static_cast<size_t>(cols) % InfoOf(dtype).block_elements != 0) dtype = DType::kF32;
  writer.AddTensor(name, dtype, {static_cast<uint64_t>(cols), static_cast<uint64_t>(rows)},
                   EncodeWeights(dtype, weights));
}

void AddVector(GgufWriter& writer, const std::string& name, const std::vector<float>& weights) {
  writer.AddTensor(name, DType::kF32, {weights.size()}, EncodeWeights(DType::kF32, weights));
}

std::string Block(int layer, const char* name) { return "blk." + std::to_string(layer) + "." + name + ".weight"; }

// Calls matrix(name, rows, cols) and vector(name, size) for every tensor of layer `layer`, in the order of real files.
template <typename AddMatrixFn, typename AddVectorFn>
void ForEachLayerTensor(const TinyShape& s, int layer, AddMatrixFn matrix, AddVectorFn vector) {
  const int q = s.heads * s.head_dim;
  const int kv = s.kv_heads * s.head_dim;
  vector(Block(layer, "attn_norm"), s.hidden);
  matrix(Block(layer, "ffn_down"), s.hidden, s.ffn);
  matrix(Block(layer, "ffn_gate"), s.ffn, s.hidden);
  matrix(Block(layer, "ffn_up"), s.ffn, s.hidden);
  vector(Block(layer, "ffn_norm"), s.hidden);
  matrix(Block(layer, "attn_k"), kv, s.hidden);
  matrix(Block(layer, "attn_output"), s.hidden, q);
  matrix(Block(layer, "attn_q"), q, s.hidden);
  matrix(Block(layer, "attn_v"), kv, s.hidden);
}

// The code of a token: 128 signs of its own.
float SignCode(int token, int i) {
  const uint64_t word = Mix(Mix(static_cast<uint64_t>(token)) + static_cast<uint64_t>(i / 64));
  return ((word >> (i % 64)) & 1U) != 0 ? 1.0f : -1.0f;
}

}  // namespace

std::string BuildTinyLlama(const TinyLlamaSpec& spec) {
  TIDEMILL_CHECK(spec.vocab >= kTinyFullVocabulary);
  TIDEMILL_CHECK(spec.kv_heads > 0 && spec.heads % spec.kv_heads == 0 && spec.head_dim % 2 == 0);
  const TinyShape shape = {.vocab = spec.vocab,
                           .tokens = spec.vocab,
                           .hidden = spec.hidden,
                           .layers = spec.layers,
                           .heads = spec.heads,
                           .kv_heads = spec.kv_heads,
                           .head_dim = spec.head_dim,
                           .ffn = spec.ffn,
                           .context = spec.context,
                           .rope_theta = spec.rope_theta,
                           .rms_norm_eps = spec.rms_norm_eps};
  GgufWriter writer;
  SetMetadata(writer, shape, spec.name, kTinyEosToken, spec.chat_template);
  for (const auto& [name, source] : spec.more_templates) writer.SetString("tokenizer.chat_template." + name, source);

  const auto random_matrix = [&](const std::string& name, DType dtype, int rows, int cols, float gain) {
    const TensorRandom random(spec.seed, name);
    const float bound =
        gain * std::sqrt(3.0f / static_cast<float>(cols));  // a uniform in [-b, b) has deviation b / sqrt(3)
    std::vector<float> weights(static_cast<size_t>(rows) * static_cast<size_t>(cols));
    for (size_t i = 0; i < weights.size(); ++i) weights[i] = bound * random.Uniform(i);
    AddMatrix(writer, name, dtype, rows, cols, weights);
  };
  const auto matrix = [&](const std::string& name, int rows, int cols) {
    random_matrix(name, spec.dtype, rows, cols, 1.0f);
  };
  const auto vector = [&](const std::string& name, int size) {
    const TensorRandom random(spec.seed, name);
    std::vector<float> weights(static_cast<size_t>(size));
    for (size_t i = 0; i < weights.size(); ++i) weights[i] = 1.0f + 0.25f * random.Uniform(i);
    AddVector(writer, name, weights);
  };

  const DType embedding_dtype = spec.embedding_dtype.value_or(spec.dtype);
  random_matrix("token_embd.weight", embedding_dtype, spec.vocab, spec.hidden, 3.0f);
  for (int layer = 0; layer < spec.layers; ++layer) ForEachLayerTensor(shape, layer, matrix, vector);
  vector("output_norm.weight", spec.hidden);
  if (!spec.tied) random_matrix("output.weight", embedding_dtype, spec.vocab, spec.hidden, 3.0f);
  return writer.Build();
}

std::string BuildCountingModel(const CountingModelSpec& spec) {
  constexpr int kHidden = 128;
  TIDEMILL_CHECK(spec.vocab > kTinyEosToken && spec.eos_token >= 0 && spec.eos_token < spec.vocab);
  const int all_rows = spec.vocab + spec.rows_without_token;
  const TinyShape shape = {.vocab = all_rows,
                           .tokens = spec.vocab,
                           .hidden = kHidden,
                           .layers = 1,
                           .heads = 4,
                           .kv_heads = 2,
                           .head_dim = 32,
                           .ffn = 128,
                           .context = spec.context,
                           .rope_theta = 10000.0f,
                           .rms_norm_eps = 1e-5f};
  GgufWriter writer;
  SetMetadata(writer, shape, "counting model", spec.eos_token, kTinyChatTemplate);

  const auto codes = [&](int first_token, float scale) {  // row t: the code of first_token + t, modulo vocab
    std::vector<float> weights;
    weights.reserve(static_cast<size_t>(all_rows) * kHidden);
    for (int t = 0; t < all_rows; ++t) {
      for (int i = 0; i < kHidden; ++i) weights.push_back(scale * SignCode((first_token + t) % all_rows, i));
    }
    return weights;
  };
  const auto matrix = [&](const std::string& name, int rows, int cols) {
    const bool zero = name == Block(0, "attn_output") || name == Block(0, "ffn_down");
    const TensorRandom random(1, name);
    std::vector<float> weights(static_cast<size_t>(rows) * static_cast<size_t>(cols));
    for (size_t i = 0; i < weights.size(); ++i) weights[i] = zero ? 0.0f : 0.15f * random.Uniform(i);
    AddMatrix(writer, name, spec.dtype, rows, cols, weights);
  };
  const auto vector = [&](const std::string& name, int size) {
    AddVector(writer, name, std::vector<float>(static_cast<size_t>(size), 1.0f));
  };

  AddMatrix(writer, "token_embd.weight", spec.dtype, all_rows, kHidden, codes(0, 1.0f));
  ForEachLayerTensor(shape, 0, matrix, vector);
  vector("output_norm.weight", kHidden);
  AddMatrix(writer, "output.weight", spec.dtype, all_rows, kHidden, codes(all_rows - 1, 1.0f / 16));
  return writer.Build();
}

std::string BuildCountingModel(int vocab) { return BuildCountingModel(CountingModelSpec{.vocab = vocab}); }

}  // namespace tidemill::testing
