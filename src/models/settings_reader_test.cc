#include "models/settings_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "models/registry.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/model_folder.h"
#include "tests/support/safetensors_writer.h"

namespace tidemill::settings_reader_test {
namespace {

using ::testing::ElementsAre;
using testing::GgufWriter;
using testing::ModelFolder;

ModelFiles Checkpoint(const std::string& config) {
  ModelFolder folder;
  folder.Write("config.json", config).Write("model.safetensors", testing::SafetensorsWriter().Build());
  return folder.Open();
}

template <typename T>
void ExpectError(const Result<T>& result, ErrorCode code, const std::string& message) {
  ASSERT_FALSE(result.ok()) << "expected: " << message;
  EXPECT_EQ(result.error().code(), code) << result.error().message();
  EXPECT_EQ(result.error().message(), message);
}

// ---- windows, under the names of GGUF files ----

// A file of `layers` layers that has what every Gemma 3 has, and what is in `writer`.
std::vector<size_t> Gemma3Windows(uint32_t layers, GgufWriter writer) {
  writer.SetString("general.architecture", "gemma3")
      .Set<uint32_t>("gemma3.block_count", layers)
      .Set<uint32_t>("gemma3.context_length", 64)
      .Set<uint32_t>("gemma3.embedding_length", 8)
      .Set<uint32_t>("gemma3.feed_forward_length", 8)
      .Set<uint32_t>("gemma3.attention.head_count", 2)
      .Set<float>("gemma3.attention.layer_norm_rms_epsilon", 1e-5f)
      .AddTensor("token_embd.weight", DType::kF32, {8, 3}, std::string(8 * 3 * 4, '\0'));
  ModelFolder folder;
  folder.Write("model.gguf", writer.Build());
  const auto settings = ReadModelSettings(folder.Open());
  EXPECT_TRUE(settings.ok()) << settings.error().message();
  return settings.ok() ? std::vector<size_t>(settings->windows.begin(), settings->windows.end())
                       : std::vector<size_t>();
}

TEST(LayerWindows, Gemma3Gguf_FollowThePatternOfTheFile) {
  const auto window = [] { return GgufWriter().Set<uint32_t>("gemma3.attention.sliding_window", 16); };
  EXPECT_THAT(Gemma3Windows(5, window().Set<uint32_t>("gemma3.attention.sliding_window_pattern", 2)),
              ElementsAre(16, 0, 16, 0, 16));
  EXPECT_THAT(Gemma3Windows(7, window()), ElementsAre(16, 16, 16, 16, 16, 0, 16));
  EXPECT_THAT(Gemma3Windows(2, GgufWriter()), ElementsAre(0, 0));
}

// ---- windows, under the names of checkpoints ----

// Three layers.
std::vector<size_t> Windows(const std::string& family, const std::string& keys) {
  const ModelFiles files = Checkpoint(R"({"model_type": ")" + family + R"(", "vocab_size": 8, "hidden_size": 8,
      "num_hidden_layers": 3, "num_attention_heads": 2, "max_position_embeddings": 64)" +
                                      keys + "}");
  const auto settings = ReadModelSettings(files);
  EXPECT_TRUE(settings.ok()) << settings.error().message();
  return settings.ok() ? settings->windows : std::vector<size_t>{99};
}

TEST(LayerWindows, Checkpoint_AreThoseOfTransformers) {
  EXPECT_THAT(Windows("mistral", R"(, "sliding_window": 5)"), ElementsAre(5, 5, 5));
  EXPECT_THAT(Windows("mistral", R"(, "sliding_window": null)"), ElementsAre());
  EXPECT_THAT(Windows("mistral", ""), ElementsAre(4096, 4096, 4096));
  EXPECT_THAT(Windows("mixtral", ""), ElementsAre());
  EXPECT_THAT(Windows("llama", R"(, "sliding_window": 5)"), ElementsAre());
  for (const char* family : {"qwen2", "qwen3"}) {
    EXPECT_THAT(Windows(family, R"(, "sliding_window": 5)"), ElementsAre());
    EXPECT_THAT(Windows(family, R"(, "sliding_window": 5, "use_sliding_window": true, "max_window_layers": 1)"),
                ElementsAre(0, 5, 5));
    EXPECT_THAT(Windows(family, R"(, "sliding_window": 5, "use_sliding_window": true)"), ElementsAre(0, 0, 0));
    EXPECT_THAT(Windows(family, R"(, "use_sliding_window": true, "max_window_layers": 2)"), ElementsAre(0, 0, 4096));
    EXPECT_THAT(Windows(family, R"(, "sliding_window": 5, "use_sliding_window": true,
                                     "layer_types": ["full_attention", "sliding_attention", "full_attention"])"),
                ElementsAre(0, 5, 0));
  }
  EXPECT_THAT(Windows("qwen3_moe", R"(, "sliding_window": 5, "use_sliding_window": true, "max_window_layers": 2)"),
              ElementsAre(5, 5, 5));
}

// ---- biases ----

TEST(Bias, ThatConfigDenies_IsRefused) {
  const struct {
    const char *family, *tensor, *key, *value;
  } cases[] = {
      {"llama", "model.layers.0.self_attn.q_proj.bias", "attention_bias", ""},
      {"llama", "model.layers.0.mlp.up_proj.bias", "mlp_bias", R"(, "mlp_bias": false)"},
      {"qwen3", "model.layers.0.self_attn.q_proj.bias", "attention_bias", R"(, "attention_bias": false)"},
      {"gpt_neox", "gpt_neox.layers.0.attention.dense.bias", "attention_bias", R"(, "attention_bias": false)"}};
  for (const auto& c : cases) {
    ModelFolder folder;
    const std::string config = R"({"vocab_size": 8, "hidden_size": 8, "num_hidden_layers": 1,
        "num_attention_heads": 1, "max_position_embeddings": 64, "model_type": ")" +
                               std::string(c.family) + "\"";
    folder.Write("model.safetensors", testing::SafetensorsWriter().Add(c.tensor, "F32", {1}, "0000").Build());
    folder.Write("config.json", config + c.value + "}");
    ExpectError(ReadModelSettings(folder.Open()), ErrorCode::kUnsupported,
                "config.json: \"" + std::string(c.key) + "\": expected true, since the file has \"" + c.tensor +
                    "\", found false");
    folder.Write("config.json", config + ", \"" + c.key + "\": true}");
    EXPECT_TRUE(ReadModelSettings(folder.Open()).ok()) << c.family;
  }
}

// ---- PARD's mask token ----

// A decoder's config with 300 tokens, and `keys` at its end.
Result<ModelSettings> SettingsWith(const std::string& keys) {
  const ModelFiles files = Checkpoint(R"({"vocab_size": 300, "hidden_size": 8, "num_hidden_layers": 1,
                                          "num_attention_heads": 2, "max_position_embeddings": 64)" +
                                      keys + "}");
  return ReadDecoderSettings(SettingsReader(files, "llama"), {});
}

TEST(MaskToken, KeyOfTheCheckpoint_IsReadAndMayBeMissing) {
  for (const char* keys : {"", R"(, "pard_token": null)", R"(, "spd_type": null)"}) {
    const auto settings = SettingsWith(keys);
    ASSERT_TRUE(settings.ok()) << keys << ": " << settings.error().message();
    EXPECT_FALSE(settings->pard_token.has_value()) << keys;
  }
  for (const char* keys : {R"(, "pard_token": 299)", R"(, "pard_token": 299, "spd_type": "pard")"}) {
    const auto settings = SettingsWith(keys);
    ASSERT_TRUE(settings.ok()) << keys << ": " << settings.error().message();
    EXPECT_EQ(settings->pard_token, 299) << keys;
  }
}

TEST(MaskToken, WhatIsNoIdOfTheModel_IsRefused) {
  const std::string expected = R"(config.json: "pard_token": expected an integer of 0 to 299, found )";
  for (const std::string found : {"300", "-1", "7.5", R"("7")"})
    ExpectError(SettingsWith(R"(, "pard_token": )" + found), ErrorCode::kCorruptFile, expected + found);
  ExpectError(SettingsWith(R"(, "spd_type": "pard")"), ErrorCode::kNotFound, expected + "no such key");
}

// Its draft models read hidden states of their target.
TEST(MaskToken, OtherKindOfDraftModel_IsRefused) {
  ExpectError(SettingsWith(R"(, "pard_token": 7, "spd_type": "pard2")"), ErrorCode::kUnsupported,
              R"(config.json: "spd_type": expected pard, found "pard2")");
}

}  // namespace
}  // namespace tidemill::settings_reader_test
