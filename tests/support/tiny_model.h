// Small seeded models as GGUF bytes: a second of work, no download, the same bytes on every machine.
#ifndef TIDEMILL_TESTS_SUPPORT_TINY_MODEL_H_
#define TIDEMILL_TESTS_SUPPORT_TINY_MODEL_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tensor/dtype.h"

namespace tidemill::testing {

// A chat template as model files carry them: <|im_start|>role\ncontent<|im_end|>\n per message.
extern const char kTinyChatTemplate[];

struct TinyLlamaSpec {
  int vocab = 997;
  int hidden = 64;
  int layers = 2;
  int heads = 4;
  int kv_heads = 2;
  int head_dim = 16;
  int ffn = 224;
  int context = 256;
  DType dtype = DType::kF32;  // of all matrices whose cols divide into its blocks; the others and the norms are F32
  std::optional<DType> embedding_dtype = std::nullopt;  // of token_embd.weight and output.weight, when another
  bool tied = true;                                     // no output.weight: token_embd.weight is the head
  uint64_t seed = 1;
  float rope_theta = 10000.0f;
  float rms_norm_eps = 1e-5f;
  std::string chat_template = kTinyChatTemplate;  // empty: no such key
  std::string name = "tiny llama";
  std::vector<std::pair<std::string, std::string>> more_templates = {};  // tokenizer.chat_template.NAME
};

// Architecture `llama` with the keys and tensor names of real files, and the vocabulary of tiny_vocabulary.h. Weights
// are uniform with standard deviation 1 / sqrt(cols), norm weights in [0.75, 1.25], the head three times larger, so
// that logits are of order 1 to 10 and no layer can be left out unseen. Rows of attn_q and attn_k stand in the file's
// order (file row (head, i, half) is row (head, half, i) of the original), which matters to whoever compares with an
// original.
std::string BuildTinyLlama(const TinyLlamaSpec& spec);

struct CountingModelSpec {
  int vocab = 997;
  int context = 256;
  int eos_token = 2;
  DType dtype = DType::kF32;
  int rows_without_token =
      0;  // more rows of embedding and head than the vocabulary has tokens, as Qwen's; part of the circle
};

// A one-layer llama whose most likely next token is (token + 1) % rows, whatever came before: attn_output and ffn_down
// are zero, embeddings are sign codes of 128 bits, and row t + 1 of the head is the code of t. In F32 the
// right logit is 8 and the others are at most 4 for vocabularies up to 49152; in every type they stay above 7 and below
// 5.5.
std::string BuildCountingModel(const CountingModelSpec& spec);
std::string BuildCountingModel(int vocab);

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_TINY_MODEL_H_
