// The settings of Qwen3-Next and Qwen3.5, from files of both kinds; errors are in tests/malformed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "models/registry.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/model_folder.h"
#include "tests/support/safetensors_writer.h"

namespace tidemill::qwen_hybrid_test {
namespace {

using ::testing::ElementsAre;
using testing::GgufWriter;
using testing::ModelFolder;
using testing::SafetensorsWriter;

Result<ModelSettings> Read(const std::string& config, const SafetensorsWriter& weights = SafetensorsWriter()) {
  ModelFolder folder;
  return ReadModelSettings(folder.Write("config.json", config).Write("model.safetensors", weights.Build()).Open());
}

// Five layers, and `keys` behind their settings.
std::string Config(const std::string& family, const std::string& keys) {
  return R"({"model_type": ")" + family + R"(", "vocab_size": 8, "hidden_size": 8, "num_hidden_layers": 5,
      "num_attention_heads": 2, "head_dim": 16, "max_position_embeddings": 64)" +
         keys + "}";
}

ModelSettings Settings(const std::string& family, const std::string& keys) {
  const auto settings = Read(Config(family, keys));
  EXPECT_TRUE(settings.ok()) << settings.error().message();
  return settings.ok() ? *settings : ModelSettings();
}

constexpr const char* kFamilies[] = {"qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"};

TEST(LinearLayers, Checkpoint_AreThoseOfTransformers) {
  for (const char* family : kFamilies) {
    SCOPED_TRACE(family);
    EXPECT_THAT(Settings(family, "").linear_layers, ElementsAre(true, true, true, false, true));
    EXPECT_THAT(Settings(family, R"(, "full_attention_interval": 2)").linear_layers,
                ElementsAre(true, false, true, false, true));
    // layer_types wins, under either of two names.
    EXPECT_THAT(Settings(family, R"(, "full_attention_interval": 2, "layer_types":
        ["full_attention", "mamba", "attention", "linear_attention", "full_attention"])")
                    .linear_layers,
                ElementsAre(false, true, false, true, false));
  }
}

TEST(LinearSizes, MissingOnes_AreThoseOfTransformers) {
  for (const char* family : kFamilies) {
    const ModelSettings s = Settings(family, "");
    EXPECT_THAT((std::vector{s.linear_num_key_heads, s.linear_num_value_heads, s.linear_key_head_dim,
                             s.linear_value_head_dim, s.linear_conv_kernel_dim}),
                ElementsAre(16, 32, 128, 128, 4));
    EXPECT_EQ(s.rotary_dim, 4U);  // a quarter
    EXPECT_EQ(s.num_mtp_layers, 0U);
  }
  const ModelSettings s = Settings("qwen3_next", R"(, "linear_num_key_heads": 2, "linear_num_value_heads": 6,
      "linear_key_head_dim": 5, "linear_value_head_dim": 7, "linear_conv_kernel_dim": 3, "partial_rotary_factor": 0.5)");
  EXPECT_THAT((std::vector{s.linear_num_key_heads, s.linear_num_value_heads, s.linear_key_head_dim,
                           s.linear_value_head_dim, s.linear_conv_kernel_dim, s.rotary_dim}),
              ElementsAre(2, 6, 5, 7, 3, 8));
}

constexpr char kExperts[] = R"(, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 6)";

TEST(Mixtures, OfEachFamily_AreThoseOfTransformers) {
  const ModelSettings next = Settings("qwen3_next", kExperts + std::string(R"(, "norm_topk_prob": false,
      "decoder_sparse_step": 2, "mlp_only_layers": [3], "shared_expert_intermediate_size": 5)"));
  EXPECT_EQ(next.shared_expert_intermediate_size, 5U);
  EXPECT_FALSE(next.norm_topk_prob);
  EXPECT_THAT(next.dense_layers, ElementsAre(true, false, true, true, true));
  EXPECT_TRUE(Settings("qwen3_next", kExperts).norm_topk_prob);

  // These keys are none of its own.
  const ModelSettings moe = Settings("qwen3_5_moe_text", kExperts + std::string(R"(, "norm_topk_prob": false,
      "decoder_sparse_step": 2, "mlp_only_layers": [3])"));
  EXPECT_EQ(moe.shared_expert_intermediate_size, 512U);
  EXPECT_TRUE(moe.norm_topk_prob);
  EXPECT_TRUE(moe.dense_layers.empty());
  EXPECT_EQ(moe.intermediate_size, 6U);  // of its experts, since no layer is dense

  EXPECT_EQ(Settings("qwen3_5_text", kExperts).num_experts, 0U);
}

TEST(FixedKeys, OfReleasedFiles_AreAccepted) {
  for (const char* family : kFamilies) {
    Settings(family, R"(, "attn_output_gate": true, "output_gate_type": "swish", "mamba_ssm_dtype": "float32",
        "mtp_num_hidden_layers": 1, "mtp_use_dedicated_embeddings": false)");
  }
}

TEST(Wrapper, HasTheSettingsOfItsLanguageModel) {
  const std::string rope = R"(, "rope_parameters": {"rope_theta": 5000, "partial_rotary_factor": 0.5,
                               "rope_type": "default", "mrope_section": [2, 1, 1], "mrope_interleaved": true})";
  for (const std::string family : {"qwen3_5", "qwen3_5_moe"}) {
    const std::string inner = family + "_text", keys = rope + (family == "qwen3_5" ? "" : kExperts);
    const auto wrapped = Read(R"({"model_type": ")" + family + R"(", "tie_word_embeddings": true, "text_config": )" +
                              Config(inner, keys) + "}");
    ASSERT_TRUE(wrapped.ok()) << wrapped.error().message();
    const ModelSettings plain = Settings(inner, keys);
    EXPECT_EQ(wrapped->architecture, family);
    EXPECT_EQ(wrapped->linear_layers, plain.linear_layers);
    EXPECT_EQ(wrapped->rope.theta, 5000);
    EXPECT_EQ(wrapped->rotary_dim, plain.rotary_dim);
    EXPECT_EQ(wrapped->num_experts, plain.num_experts);
    EXPECT_TRUE(wrapped->tie_word_embeddings);
    EXPECT_FALSE(plain.tie_word_embeddings);
  }
}

TEST(DraftLayers, OfACheckpoint_AreThereWithTheirTensors) {
  const std::string config = Config("qwen3_5_text", R"(, "mtp_num_hidden_layers": 1)");
  const auto with = Read(config, SafetensorsWriter().Add("mtp.fc.weight", "F32", {1}, "0000"));
  ASSERT_TRUE(with.ok()) << with.error().message();
  EXPECT_EQ(with->num_mtp_layers, 1U);
  EXPECT_EQ(Settings("qwen3_5_text", R"(, "mtp_num_hidden_layers": 1)").num_mtp_layers, 0U);
}

// ---- under the names of GGUF files ----

GgufWriter Gguf(const std::string& family) {
  GgufWriter writer;
  writer.SetString("general.architecture", family)
      .Set<uint32_t>(family + ".block_count", 5)
      .Set<uint32_t>(family + ".context_length", 64)
      .Set<uint32_t>(family + ".embedding_length", 8)
      .Set<uint32_t>(family + ".attention.head_count", 2)
      .Set<uint32_t>(family + ".attention.key_length", 16)
      .Set<uint32_t>(family + ".attention.value_length", 16)
      .Set<uint32_t>(family + ".rope.dimension_count", 4)
      .Set<uint32_t>(family + ".ssm.conv_kernel", 3)
      .Set<uint32_t>(family + ".ssm.state_size", 5)
      .Set<uint32_t>(family + ".ssm.group_count", 2)
      .Set<uint32_t>(family + ".ssm.time_step_rank", 6)
      .Set<uint32_t>(family + ".ssm.inner_size", 42)
      .AddTensor("token_embd.weight", DType::kF32, {8, 3}, std::string(8 * 3 * 4, '\0'));
  return writer;
}

ModelSettings Settings(GgufWriter writer) {
  ModelFolder folder;
  const auto settings = ReadModelSettings(folder.Write("model.gguf", writer.Build()).Open());
  EXPECT_TRUE(settings.ok()) << settings.error().message();
  return settings.ok() ? *settings : ModelSettings();
}

TEST(Gguf, Sizes_AreReadByLlamaCppsKeys) {
  for (const std::string family : {"qwen3next", "qwen35", "qwen35moe"}) {
    SCOPED_TRACE(family);
    const ModelSettings s = Settings(Gguf(family)
                                         .Set<uint32_t>(family + ".expert_count", 4)
                                         .Set<uint32_t>(family + ".expert_used_count", 2)
                                         .Set<uint32_t>(family + ".expert_feed_forward_length", 6)
                                         .Set<uint32_t>(family + ".expert_shared_feed_forward_length", 7));
    EXPECT_THAT((std::vector{s.linear_num_key_heads, s.linear_num_value_heads, s.linear_key_head_dim,
                             s.linear_value_head_dim, s.linear_conv_kernel_dim, s.rotary_dim}),
                ElementsAre(2, 6, 5, 7, 3, 4));
    EXPECT_THAT(s.linear_layers, ElementsAre(true, true, true, false, true));
    EXPECT_EQ(s.shared_expert_intermediate_size, family == "qwen35" ? 0U : 7U);
    EXPECT_TRUE(s.norm_topk_prob);
  }
}

TEST(Gguf, LayersOfTheDraftHead_AreCountedBehindTheOthers) {
  const auto with_head = [](uint32_t layers = 1) {
    return Gguf("qwen35")
        .Set<uint32_t>("qwen35.nextn_predict_layers", layers)
        .AddTensor("blk.4.nextn.enorm.weight", DType::kF32, {1}, std::string(4, '\0'));
  };
  const ModelSettings s = Settings(with_head().Set<uint32_t>("qwen35.full_attention_interval", 2));
  EXPECT_EQ(s.num_hidden_layers, 4U);
  EXPECT_EQ(s.num_mtp_layers, 1U);
  EXPECT_THAT(s.linear_layers, ElementsAre(true, false, true, false));
  const std::string flags("\0\1\1\0\0", 5);
  EXPECT_THAT(Settings(with_head().SetRawArray("qwen35.attention.recurrent_layers", 7, 5, flags)).linear_layers,
              ElementsAre(false, true, true, false));
  ModelFolder folder;
  EXPECT_EQ(ReadModelSettings(folder.Write("model.gguf", with_head(2).Build()).Open()).error().message(),
            "metadata: \"qwen35.nextn_predict_layers\": expected as many layers of a draft head as have tensors "
            "blk.3.nextn.*, found 2");
}

}  // namespace
}  // namespace tidemill::qwen_hybrid_test
