#include "tests/support/tiny_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "formats/gguf.h"
#include "tensor/dequantize.h"
#include "tests/support/tiny_vocabulary.h"

namespace tidemill::testing::tiny_model_test {
namespace {

GgufFile ParseOrDie(const std::string& bytes) {
  auto file = GgufFile::Parse(std::as_bytes(std::span(bytes)));
  EXPECT_TRUE(file.ok()) << file.error().message();
  return std::move(file).value();
}

std::vector<float> Weights(const GgufFile& file, const std::string& name) {
  const FileTensor* tensor = file.FindTensor(name);
  EXPECT_NE(tensor, nullptr) << name;
  std::vector<float> weights(tensor->rows * tensor->cols);
  DequantizeRow(tensor->dtype, tensor->bytes, weights);
  return weights;
}

void ExpectTensor(const GgufFile& file, const std::string& name, DType dtype, uint64_t rows, uint64_t cols) {
  const FileTensor* tensor = file.FindTensor(name);
  ASSERT_NE(tensor, nullptr) << name;
  EXPECT_EQ(tensor->rows, rows) << name;
  EXPECT_EQ(tensor->cols, cols) << name;
  EXPECT_EQ(InfoOf(tensor->dtype).name, InfoOf(dtype).name) << name;
}

TEST(TinyLlama, EveryDType_HasTheTensorsAndKeysOfTheFamily) {
  for (int t = 0; t < kNumDTypes; ++t) {
    const auto dtype = static_cast<DType>(t);
    const std::string bytes =
        BuildTinyLlama({.hidden = 256, .heads = 4, .kv_heads = 2, .head_dim = 40, .dtype = dtype, .tied = false});
    const auto dtype_of = [&](size_t cols) { return cols % InfoOf(dtype).block_elements == 0 ? dtype : DType::kF32; };
    const GgufFile file = ParseOrDie(bytes);
    EXPECT_EQ(file.tensors().size(), 3U + 2 * 9);
    ExpectTensor(file, "token_embd.weight", dtype_of(256), 997, 256);
    ExpectTensor(file, "output.weight", dtype_of(256), 997, 256);
    ExpectTensor(file, "output_norm.weight", DType::kF32, 1, 256);
    ExpectTensor(file, "blk.1.attn_norm.weight", DType::kF32, 1, 256);
    ExpectTensor(file, "blk.1.attn_q.weight", dtype_of(256), 160, 256);
    ExpectTensor(file, "blk.1.attn_k.weight", dtype_of(256), 80, 256);
    ExpectTensor(file, "blk.1.attn_v.weight", dtype_of(256), 80, 256);
    ExpectTensor(file, "blk.1.attn_output.weight", dtype_of(160), 256, 160);
    ExpectTensor(file, "blk.1.ffn_norm.weight", DType::kF32, 1, 256);
    ExpectTensor(file, "blk.1.ffn_gate.weight", dtype_of(256), 224, 256);
    ExpectTensor(file, "blk.1.ffn_up.weight", dtype_of(256), 224, 256);
    ExpectTensor(file, "blk.1.ffn_down.weight", dtype_of(224), 256, 224);
    EXPECT_EQ(file.GetString("general.architecture").value(), "llama");
    EXPECT_EQ(file.GetUint("llama.block_count", 1, 100).value(), 2U);
    EXPECT_EQ(file.GetUint("llama.attention.head_count_kv", 1, 100).value(), 2U);
    EXPECT_EQ(file.GetUint("llama.attention.key_length", 1, 100).value(), 40U);
    EXPECT_EQ(file.GetStrings("tokenizer.ggml.tokens").value().size(), 997U);
    EXPECT_EQ(file.GetInts("tokenizer.ggml.token_type").value().size(), 997U);
  }
}

TEST(TinyLlama, ColumnsThatAreNoWholeBlocks_AreF32) {
  const std::string bytes = BuildTinyLlama({.heads = 2, .kv_heads = 1, .head_dim = 40, .dtype = DType::kQ4_0});
  const GgufFile file = ParseOrDie(bytes);
  ExpectTensor(file, "blk.0.attn_output.weight", DType::kF32, 64, 80);
  ExpectTensor(file, "blk.0.attn_q.weight", DType::kQ4_0, 80, 64);
}

TEST(TinyLlama, Tied_HasNoHead_AndUsualHeadDimNoLengthKeys) {
  const std::string bytes = BuildTinyLlama({});
  const GgufFile file = ParseOrDie(bytes);
  EXPECT_EQ(file.FindTensor("output.weight"), nullptr);
  EXPECT_EQ(file.FindValue("llama.attention.key_length"), nullptr);
}

TEST(TinyLlama, Seed_DecidesEveryByte) {
  EXPECT_EQ(BuildTinyLlama({.seed = 5}), BuildTinyLlama({.seed = 5}));
  EXPECT_NE(BuildTinyLlama({.seed = 5}), BuildTinyLlama({.seed = 6}));
}

TEST(TinyLlama, Weights_HaveTheStatedSpread) {
  const std::string bytes = BuildTinyLlama({.vocab = 2000});
  const GgufFile file = ParseOrDie(bytes);
  const auto deviation = [&](const std::string& name) {
    double sum = 0;
    const std::vector<float> weights = Weights(file, name);
    for (const float w : weights) sum += static_cast<double>(w) * static_cast<double>(w);
    return std::sqrt(sum / static_cast<double>(weights.size()));
  };
  EXPECT_NEAR(deviation("token_embd.weight"), 3.0 / 8, 0.01);
  EXPECT_NEAR(deviation("blk.1.attn_q.weight"), 1.0 / 8, 0.005);
  EXPECT_NEAR(deviation("blk.1.ffn_down.weight"), 1.0 / std::sqrt(224.0), 0.005);
  EXPECT_NEAR(deviation("output_norm.weight"), 1.0, 0.1);
}

TEST(TinyVocabulary, AnySize_IsUniqueAndMergesJoinEarlierTokens) {
  for (const int size : {4, 259, 260, 997, 20000}) {
    const TinyVocabulary v = MakeTinyVocabulary(size);
    ASSERT_EQ(v.tokens.size(), static_cast<size_t>(size));
    ASSERT_EQ(v.token_types.size(), v.tokens.size());
    EXPECT_EQ(v.merges.size(), static_cast<size_t>(std::max(0, size - kTinyFullVocabulary)));
    EXPECT_EQ(v.tokens[kTinyEosToken], "<|im_end|>");
    std::set<std::string> known(v.tokens.begin(), v.tokens.begin() + std::min(size, kTinyFullVocabulary));
    for (size_t i = 0; i < v.merges.size(); ++i) {
      const size_t space = v.merges[i].find(' ');
      ASSERT_TRUE(known.contains(v.merges[i].substr(0, space))) << v.merges[i];
      ASSERT_TRUE(known.contains(v.merges[i].substr(space + 1))) << v.merges[i];
      ASSERT_EQ(v.merges[i].substr(0, space) + v.merges[i].substr(space + 1), v.tokens[kTinyFullVocabulary + i]);
      ASSERT_TRUE(known.insert(v.tokens[kTinyFullVocabulary + i]).second);
    }
  }
}

TEST(TinyVocabulary, ByteAlphabet_IsGpt2s) {
  EXPECT_EQ(ByteAlphabet('A'), "A");
  EXPECT_EQ(ByteAlphabet(' '), "\xC4\xA0");   // U+0120
  EXPECT_EQ(ByteAlphabet('\n'), "\xC4\x8A");  // U+010A
  EXPECT_EQ(ByteAlphabet(0), "\xC4\x80");     // U+0100
  EXPECT_EQ(ByteAlphabet(0xAD), "\xC5\x83");  // U+0143, the last that moves
  EXPECT_EQ(ByteAlphabet(0xFF), "\xC3\xBF");
}

// What the model computes when attn_output and ffn_down are zero: the head applied to the normalised embedding.
TEST(CountingModel, EveryToken_IsFollowedByTheNextWithAMargin) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_1}) {
    for (const int vocab : {5, 300, dtype == DType::kF32 ? 997 : 259}) {
      const std::string bytes = BuildCountingModel({.vocab = vocab, .dtype = dtype});
      const GgufFile file = ParseOrDie(bytes);
      for (const char* name : {"blk.0.attn_output.weight", "blk.0.ffn_down.weight"}) {
        EXPECT_THAT(Weights(file, name), ::testing::Each(0.0f));
      }
      const std::vector<float> embedding = Weights(file, "token_embd.weight");
      const std::vector<float> head = Weights(file, "output.weight");
      for (int token = 0; token < vocab; ++token) {
        const float* x = &embedding[static_cast<size_t>(token) * 128];
        float square = 0;
        for (int i = 0; i < 128; ++i) square += x[i] * x[i];
        float right = 0;
        float best_other = -1e9f;
        for (int next = 0; next < vocab; ++next) {
          float logit = 0;
          for (int i = 0; i < 128; ++i) logit += x[i] * head[static_cast<size_t>(next) * 128 + static_cast<size_t>(i)];
          logit /= std::sqrt(square / 128);
          if (next == (token + 1) % vocab)
            right = logit;
          else
            best_other = std::max(best_other, logit);
        }
        ASSERT_GT(right, 7.0f) << InfoOf(dtype).name << " vocab " << vocab << " token " << token;
        ASSERT_LT(best_other, 5.5f) << InfoOf(dtype).name << " vocab " << vocab << " token " << token;
      }
    }
  }
}

}  // namespace
}  // namespace tidemill::testing::tiny_model_test
