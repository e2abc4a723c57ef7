// Whole models as the registry loads or refuses them; what they compute is compared in tests/.
#include "models/registry.h"

#include <gtest/gtest.h>

#include "tests/support/changed_checkpoint.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/model_folder.h"
#include "tests/support/tiny_model.h"

namespace tidemill::registry_test {
namespace {

using testing::BuildTinyLlama;
using testing::ModelFolder;

Result<std::unique_ptr<LanguageModel>> Load(const ModelFolder& folder) {
  const ModelFiles files = folder.Open();
  const auto threads = std::move(ThreadPool::Create(1)).value();
  return LoadLanguageModel(files, {.threads = threads.get(), .progress = {}});
}

Result<std::unique_ptr<LanguageModel>> LoadGguf(const std::string& bytes) {
  ModelFolder folder;
  return Load(folder.Write("model.gguf", bytes));
}

// A seeded checkpoint of tests/fixtures/families/, changed.
class Checkpoint : public testing::ChangedCheckpoint {
 public:
  explicit Checkpoint(const std::string& family) : ChangedCheckpoint("families/" + family) {}
};

Result<std::unique_ptr<LanguageModel>> Load(const testing::ChangedCheckpoint& checkpoint) {
  ModelFolder folder;
  checkpoint.WriteTo(folder);
  return Load(folder);
}

void ExpectLoads(const Result<std::unique_ptr<LanguageModel>>& model) {
  EXPECT_TRUE(model.ok()) << model.error().message();
}

void ExpectError(const Result<std::unique_ptr<LanguageModel>>& model, ErrorCode code, const std::string& message) {
  ASSERT_FALSE(model.ok()) << "expected: " << message;
  EXPECT_EQ(model.error().code(), code);
  EXPECT_EQ(model.error().message(), message);
}

const std::string kNorm(16 * sizeof(float), '\0');

TEST(UnreadWeights, AreRefusedWithTheirNumberAndTheFirstName) {
  Checkpoint one("llama3_rope");
  one.Add("model.layers.0.self_attn.q_norm.weight", "F32", {16}, kNorm);
  ExpectError(Load(one), ErrorCode::kUnsupported,
              "tensors: 1 weight that nothing reads, \"model.layers.0.self_attn.q_norm.weight\": the model is of "
              "another family or variant than the settings say, or deeper");
  one.Add("model.layers.0.self_attn.k_norm.weight", "F32", {16}, kNorm);
  ExpectError(Load(one), ErrorCode::kUnsupported,
              "tensors: 2 weights that nothing reads, the first \"model.layers.0.self_attn.q_norm.weight\": the model "
              "is of another family or variant than the settings say, or deeper");
}

TEST(UnreadWeights, LayersPastTheirNumber_AreRefused) {
  const auto model = Load(Checkpoint("gpt2").Replace("\"n_layer\": 3", "\"n_layer\": 2"));
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.error().code(), ErrorCode::kUnsupported);
  EXPECT_TRUE(
      model.error().message().starts_with("tensors: 12 weights that nothing reads, the first \"transformer.h.2."))
      << model.error().message();

  std::string bytes = BuildTinyLlama({.layers = 2});
  const std::string key = "llama.block_count";
  testing::Patch<uint32_t>(bytes, bytes.find(key) + key.size() + 4, 1);
  ExpectError(LoadGguf(bytes), ErrorCode::kUnsupported,
              "tensors: 9 weights that nothing reads, the first \"blk.1.attn_norm.weight\": the model is of another "
              "family or variant than the settings say, or deeper");
}

TEST(UnreadWeights, OfTypesThatNoWeightHas_AreRefusedToo) {
  Checkpoint packed("llama3_rope");  // as quantised checkpoints hold them beside their scales
  ExpectError(Load(packed.Add("model.layers.0.mlp.down_proj.qweight", "I32", {2, 2}, std::string(16, '\1'))),
              ErrorCode::kUnsupported,
              "tensors: 1 weight that nothing reads, \"model.layers.0.mlp.down_proj.qweight\": the model is of another "
              "family or variant than the settings say, or deeper");
}

TEST(UnreadWeights, BuffersThatFollowFromSettings_MayBeThere) {
  ExpectLoads(Load(
      Checkpoint("llama3_rope").Add("model.layers.0.self_attn.rotary_emb.inv_freq", "F32", {2}, std::string(8, '\0'))));
  ExpectLoads(Load(Checkpoint("gpt2")
                       .Add("transformer.h.0.attn.bias", "F32", {1, 1, 2, 2}, std::string(16, '\0'))
                       .Add("transformer.h.0.attn.masked_bias", "F32", {}, std::string(4, '\0'))));
  ExpectLoads(Load(Checkpoint("gpt_neox")
                       .Add("gpt_neox.layers.0.attention.bias", "BOOL", {1, 1, 2, 2}, std::string(4, '\0'))
                       .Add("gpt_neox.layers.0.attention.masked_bias", "F32", {}, std::string(4, '\0'))
                       .Add("gpt_neox.layers.0.attention.rotary_emb.inv_freq", "F32", {2}, std::string(8, '\0'))));
}

// As a checkpoint of the bare decoder has them.
TEST(Names, MayLackThePrefixOfTheWholeModel) {
  for (const char* family : {"llama3_rope", "llama_yarn", "gemma3_text", "mistral", "mixtral", "qwen2", "qwen3",
                             "qwen3_moe", "qwen3_next_interval", "qwen3_5_text"}) {
    Checkpoint bare(family);
    ExpectLoads(Load(bare.DropPrefix("model.")));
  }
}

// As the language model of one that also reads images, saved by itself.
TEST(Names, MayLackThePrefixOfAModelThatAlsoReadsImages) {
  Checkpoint bare("qwen3_5");
  ExpectLoads(Load(bare.DropPrefix("model.language_model.")));
}

TEST(LinearLayers, WeightsThatContradictTheSettings_AreNamed) {
  ExpectError(
      Load(Checkpoint("qwen3_5_text").Replace("\"linear_conv_kernel_dim\": 4", "\"linear_conv_kernel_dim\": 3")),
      ErrorCode::kCorruptFile,
      "tensor \"model.layers.0.linear_attn.conv1d.weight\": expected shape [80, 3] from the metadata, found [80, "
      "4]");
  ExpectError(
      Load(Checkpoint("qwen3_5_text").Replace("\"linear_num_value_heads\": 4", "\"linear_num_value_heads\": 6")),
      ErrorCode::kCorruptFile,
      "tensor \"model.layers.0.linear_attn.in_proj_qkv.weight\": expected shape [104, 48] from the metadata, "
      "found [80, 48]");
  ExpectError(Load(Checkpoint("qwen3_5_text").Replace("\"full_attention\"", "\"linear_attention\"")),
              ErrorCode::kCorruptFile,
              "tensor \"model.layers.3.linear_attn.in_proj_qkv.weight\": expected shape [80, 48], but the file has no "
              "such tensor");
  Checkpoint infinite("qwen3_5_text");
  const std::string name = "model.layers.1.linear_attn.A_log";
  infinite.Remove(name).Add(name, "F32", {4}, std::string("\0\0\x80\x7F", 4) + std::string(12, '\0'));
  ExpectError(Load(infinite), ErrorCode::kCorruptFile,
              "tensor \"model.layers.1.linear_attn.A_log\": expected numbers from -87 to 88, found inf");
}

// Weights of images and of a draft head are left aside; others are not.
TEST(UnreadWeights, BesideALanguageModel_AreThoseOfImagesAndOfTheDraftHead) {
  ExpectLoads(Load(Checkpoint("qwen3_5")));
  ExpectError(Load(Checkpoint("qwen3_5").Add("model.audio.weight", "F32", {1}, std::string(4, '\0'))),
              ErrorCode::kUnsupported,
              "tensors: 1 weight that nothing reads, \"model.audio.weight\": the model is of another family or variant "
              "than the settings say, or deeper");
}

TEST(TiedHead, MayStandInTheFileWhenItIsTheEmbedding) {
  const struct {
    const char *family, *embedding, *head;
  } cases[] = {{"gemma3_text", "model.embed_tokens.weight", "lm_head.weight"},
               {"gpt2", "transformer.wte.weight", "lm_head.weight"},
               {"opt", "model.decoder.embed_tokens.weight", "lm_head.weight"}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.family);
    Checkpoint same(c.family), other(c.family);
    std::string bytes = same.BytesOf(c.embedding);
    const auto model = Load(same.Add(c.head, "F32", {128, bytes.size() / 4 / 128}, bytes));
    ASSERT_TRUE(model.ok()) << model.error().message();
    EXPECT_FALSE((*model)->head.present());

    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    ExpectError(Load(other.Add(c.head, "F32", {128, bytes.size() / 4 / 128}, bytes)), ErrorCode::kCorruptFile,
                std::string("tensor \"lm_head.weight\": expected the numbers of \"") + c.embedding +
                    "\", since tie_word_embeddings is true, found others; if they are the model's head, set "
                    "tie_word_embeddings to false in config.json");
  }
}

// 7 heads of 48 / 7 = 6 numbers are 42: no shape in the file fits.
TEST(PlainFamilies, HeadsThatDoNotFillTheHiddenSize_AreRefusedByShape) {
  ExpectError(Load(Checkpoint("gpt2").Replace("\"n_head\": 4", "\"n_head\": 7")), ErrorCode::kCorruptFile,
              "tensor \"transformer.h.0.attn.c_attn.weight\": expected shape [48, 126] from the metadata, found [48, "
              "144]");
  ExpectError(Load(Checkpoint("gpt_neox")
                       .Replace("\"num_attention_heads\": 3", "\"num_attention_heads\": 7")
                       .Replace("\"partial_rotary_factor\": 0.25", "\"partial_rotary_factor\": 1.0")),
              ErrorCode::kCorruptFile,
              "tensor \"gpt_neox.layers.0.attention.query_key_value.weight\": expected shape [126, 48] from the "
              "metadata, found [144, 48]");
  ExpectError(Load(Checkpoint("opt").Replace("\"num_attention_heads\": 4", "\"num_attention_heads\": 7")),
              ErrorCode::kCorruptFile,
              "tensor \"model.decoder.layers.0.self_attn.q_proj.weight\": expected shape [42, 48] from the metadata, "
              "found [48, 48]");
}

TEST(ModelId, IsTheSameForTheSameModelOnly) {
  const auto id = [](const testing::TinyLlamaSpec& spec) {
    const auto model = LoadGguf(BuildTinyLlama(spec));
    EXPECT_TRUE(model.ok());
    return model.ok() ? (*model)->id : 0;
  };
  const uint64_t original = id({});
  EXPECT_EQ(id({}), original);
  EXPECT_EQ(id({.name = "another name"}), original);
  EXPECT_NE(id({.seed = 2}), original);
  EXPECT_NE(id({.rope_theta = 5e5f}), original);
  EXPECT_NE(id({.rms_norm_eps = 1e-6f}), original);
  EXPECT_NE(id({.dtype = DType::kF16}), original);
}

TEST(ModelId, DiffersWithSettingsOfAFamilyAlone) {
  const auto id = [](const testing::ChangedCheckpoint& checkpoint) {
    const auto model = Load(checkpoint);
    EXPECT_TRUE(model.ok());
    return model.ok() ? (*model)->id : 0;
  };
  EXPECT_NE(id(Checkpoint("mistral")),
            id(Checkpoint("mistral").Replace("\"sliding_window\": 8", "\"sliding_window\": 9")));
  EXPECT_NE(id(Checkpoint("llama_yarn")), id(Checkpoint("llama_yarn").Replace("\"factor\": 4.0", "\"factor\": 5.0")));
  EXPECT_NE(id(Checkpoint("gpt_neox")),
            id(Checkpoint("gpt_neox").Replace("\"use_parallel_residual\": true", "\"use_parallel_residual\": false")));
}

}  // namespace
}  // namespace tidemill::registry_test
