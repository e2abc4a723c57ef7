// Draft heads as the registry loads or refuses them; what they compute is compared in tests/.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/registry.h"
#include "tests/fixtures_path.h"
#include "tests/support/changed_checkpoint.h"
#include "tests/support/model_folder.h"

namespace tidemill::draft_head_test {
namespace {

using testing::ChangedCheckpoint;
using testing::ModelFolder;

constexpr size_t kVocab = 96, kDraftVocab = 40, kHidden = 32;

class DraftHeadTest : public ::testing::Test {
 protected:
  using Loaded = Result<std::unique_ptr<LanguageModel>>;

  static std::unique_ptr<LanguageModel> Target(const ChangedCheckpoint& checkpoint) {
    ModelFolder folder;
    checkpoint.WriteTo(folder);
    const ModelFiles files = folder.Open();
    const auto threads = std::move(ThreadPool::Create(1)).value();
    auto model = LoadLanguageModel(files, {.threads = threads.get(), .progress = {}});
    EXPECT_TRUE(model.ok()) << model.error().message();
    return std::move(model).value();
  }

  static Loaded Load(const ChangedCheckpoint& head, const LanguageModel& target) {
    ModelFolder folder;
    head.WriteTo(folder);
    const ModelFiles files = folder.Open();
    const auto threads = std::move(ThreadPool::Create(1)).value();
    return LoadDraftHead(files, target, {.threads = threads.get(), .progress = {}});
  }
  Loaded Load(const ChangedCheckpoint& head) { return Load(head, *target_); }

  void ExpectError(const ChangedCheckpoint& head, ErrorCode code, const std::string& message) {
    const Loaded loaded = Load(head);
    ASSERT_FALSE(loaded.ok()) << "expected: " << message;
    EXPECT_EQ(loaded.error().code(), code);
    EXPECT_EQ(loaded.error().message(), message);
  }

  const std::unique_ptr<LanguageModel> target_ = Target(ChangedCheckpoint("eagle/target"));
};

ChangedCheckpoint Eagle() { return ChangedCheckpoint("eagle/eagle1"); }
ChangedCheckpoint Eagle3() { return ChangedCheckpoint("eagle/eagle3"); }

// A tensor of the EAGLE-3 head with one number in it changed.
template <typename T>
ChangedCheckpoint Changed(const std::string& name, const char* type, size_t index, T number) {
  ChangedCheckpoint head = Eagle3();
  std::string bytes = head.BytesOf(name);
  std::memcpy(bytes.data() + index * sizeof number, &number, sizeof number);
  head.Remove(name).Add(name, type, {bytes.size() / sizeof number}, bytes);
  return head;
}

TEST_F(DraftHeadTest, Eagle_SharesEmbeddingAndHeadOfTheTarget) {
  const Loaded head = Load(Eagle());
  ASSERT_TRUE(head.ok()) << head.error().message();
  const LanguageModel& model = **head;
  EXPECT_EQ(model.embedding.rows(), 0U);
  EXPECT_EQ(&model.token_embedding(), &target_->embedding);
  EXPECT_EQ(&model.head_or_tied(), &target_->head.weight);
  EXPECT_EQ(model.features.width, kHidden);
  EXPECT_EQ(model.features.target_taps, std::vector<size_t>({9}));
  EXPECT_TRUE(model.features.target_ids.empty());
  EXPECT_FALSE(model.layers[0].branches[0].norm.present());
}

TEST_F(DraftHeadTest, Eagle3_SharesTheEmbeddingAndDraftsIdsOfItsOwn) {
  const Loaded head = Load(Eagle3());
  ASSERT_TRUE(head.ok()) << head.error().message();
  const LanguageModel& model = **head;
  EXPECT_EQ(&model.token_embedding(), &target_->embedding);
  EXPECT_EQ(model.head_or_tied().rows(), kDraftVocab);
  EXPECT_EQ(model.features.width, 3 * kHidden);
  EXPECT_EQ(model.features.target_taps, std::vector<size_t>({2, 4, 5}));
  EXPECT_EQ(model.features.target_ids.size(), kDraftVocab);
  EXPECT_NE(model.id, 0U);
}

TEST_F(DraftHeadTest, AnotherEmbeddingInTheFile_IsTheHeads) {
  std::string other = Eagle().BytesOf("embed_tokens.weight");
  other.back() = static_cast<char>(other.back() ^ 1);
  ChangedCheckpoint eagle = Eagle(), eagle3 = Eagle3();
  eagle.Remove("embed_tokens.weight");
  for (ChangedCheckpoint* head : {&eagle, &eagle3}) {
    const Loaded loaded = Load(head->Add("embed_tokens.weight", "F32", {kVocab, kHidden}, other));
    ASSERT_TRUE(loaded.ok()) << loaded.error().message();
    EXPECT_EQ((*loaded)->embedding.rows(), kVocab);
  }
  const Loaded none = Load(Eagle().Remove("embed_tokens.weight"));
  ASSERT_TRUE(none.ok()) << none.error().message();
  EXPECT_EQ((*none)->embedding.rows(), 0U);
}

TEST_F(DraftHeadTest, EveryMissingTensor_IsNamed) {
  const auto names = [](std::vector<std::string> own, const std::string& layer) {
    for (const char* name : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
                             "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", "post_attention_layernorm"})
      own.push_back(layer + name + ".weight");
    return own;
  };
  const auto expect = [&](ChangedCheckpoint head, const std::string& name) {
    const Loaded loaded = Load(head.Remove(name));
    ASSERT_FALSE(loaded.ok()) << name;
    EXPECT_EQ(loaded.error().code(), ErrorCode::kCorruptFile);
    EXPECT_TRUE(loaded.error().message().starts_with("tensor \"" + name + "\": expected shape ") &&
                loaded.error().message().ends_with(", but the file has no such tensor"))
        << loaded.error().message();
  };
  for (const std::string& name : names({"fc.weight"}, "layers.0.")) expect(Eagle(), name);
  for (const std::string& name : names({"fc.weight", "d2t", "lm_head.weight", "norm.weight",
                                        "midlayer.hidden_norm.weight", "midlayer.input_layernorm.weight"},
                                       "midlayer."))
    expect(Eagle3(), name);
}

TEST_F(DraftHeadTest, TheBias_IsThereAsTheSettingsSay) {
  EXPECT_TRUE(Load(Eagle().Remove("fc.bias")).ok());
  const std::string size = "\"hidden_size\": 32", yes = size + ", \"bias\": true", no = size + ", \"bias\": false";
  EXPECT_TRUE(Load(Eagle().Replace(size, yes)).ok());
  EXPECT_TRUE(Load(Eagle().Replace(size, no).Remove("fc.bias")).ok());
  ExpectError(Eagle().Replace(size, yes).Remove("fc.bias"), ErrorCode::kCorruptFile,
              "tensor \"fc.bias\": expected shape [32], but the file has no such tensor");
  ExpectError(Eagle().Replace(size, no), ErrorCode::kUnsupported, "tensor \"fc.bias\": this family has no such bias");
}

TEST_F(DraftHeadTest, DraftIdsWithoutATargetsId_AreRefused) {
  for (const int64_t distance : {int64_t{96}, int64_t{-1}, INT64_MAX, INT64_MIN}) {
    ExpectError(
        Changed<int64_t>("d2t", "I64", 0, distance), ErrorCode::kCorruptFile,
        "tensor \"d2t\": expected distances to ids from 0 to 95, from draft id 0 found " + std::to_string(distance));
  }
  ExpectError(Changed<int64_t>("d2t", "I64", 39, 57), ErrorCode::kCorruptFile,
              "tensor \"d2t\": expected distances to ids from 0 to 95, from draft id 39 found 57");
  std::vector<int64_t> distances(kDraftVocab);
  std::memcpy(distances.data(), Eagle3().BytesOf("d2t").data(), kDraftVocab * sizeof(int64_t));
  ExpectError(Changed<int64_t>("d2t", "I64", 5, distances[4] - 1), ErrorCode::kCorruptFile,
              "tensor \"d2t\": expected each id at most once, found " + std::to_string(4 + distances[4]) +
                  " again for draft id 5");
}

TEST_F(DraftHeadTest, MarksThatAreNotThoseOfTheMap_AreRefused) {
  const std::string marks = Eagle3().BytesOf("t2d");
  for (const char mark : {'\0', '\1'}) {
    const size_t id = marks.find(mark);
    ExpectError(Changed<uint8_t>("t2d", "BOOL", id, mark == 0), ErrorCode::kCorruptFile,
                "tensor \"t2d\": expected " + std::to_string(mark) + " for id " + std::to_string(id) +
                    ", as d2t has it, found " + std::to_string(mark == 0));
  }
  EXPECT_TRUE(Load(Eagle3().Remove("t2d")).ok());  // it says nothing new
}

TEST_F(DraftHeadTest, MapsOfNarrowerNumbers_AreRead) {
  const auto ids = [this](const ChangedCheckpoint& head) {
    const Loaded loaded = Load(head);
    EXPECT_TRUE(loaded.ok()) << loaded.error().message();
    return loaded.ok() ? (*loaded)->features.target_ids : std::vector<int32_t>();
  };
  ChangedCheckpoint narrow = Eagle3();
  const std::string marks = narrow.BytesOf("t2d");
  std::vector<int64_t> distances(kDraftVocab);
  std::memcpy(distances.data(), narrow.BytesOf("d2t").data(), kDraftVocab * sizeof(int64_t));
  const std::vector<int32_t> small(distances.begin(), distances.end());
  const std::string bytes(reinterpret_cast<const char*>(small.data()), kDraftVocab * sizeof(int32_t));
  narrow.Remove("d2t").Add("d2t", "I32", {kDraftVocab}, bytes);
  narrow.Remove("t2d").Add("t2d", "U8", {kVocab}, marks);
  EXPECT_EQ(ids(narrow).size(), kDraftVocab);
  EXPECT_EQ(ids(narrow), ids(Eagle3()));
}

TEST_F(DraftHeadTest, AMapOfAnotherTypeOrLength_IsRefused) {
  const std::string floats(kDraftVocab * 4, '\0'), shorts((kDraftVocab - 1) * 8, '\0');
  ExpectError(Eagle3().Remove("d2t").Add("d2t", "F32", {kDraftVocab}, floats), ErrorCode::kUnsupported,
              "tensor \"d2t\": expected whole numbers of type I64, I32, U8 or BOOL, found type F32");
  ExpectError(Eagle3().Remove("d2t").Add("d2t", "I64", {kDraftVocab - 1}, shorts), ErrorCode::kCorruptFile,
              "tensor \"d2t\": expected shape [40] from the metadata, found [39]");
}

TEST_F(DraftHeadTest, OfAnotherTarget_IsRefused) {
  ExpectError(Eagle().Replace("\"vocab_size\": 96", "\"vocab_size\": 97"), ErrorCode::kInvalidArgument,
              "config.json: \"vocab_size\": expected the target's 96, found 97");
  ExpectError(Eagle().Replace("\"hidden_size\": 32", "\"hidden_size\": 64"), ErrorCode::kInvalidArgument,
              "config.json: \"hidden_size\": expected the target's 32, found 64");
  ExpectError(Eagle3().Replace("\"hidden_size\": 32", "\"hidden_size\": 64"), ErrorCode::kInvalidArgument,
              "config.json: \"hidden_size\": expected the target's 32, found 64");
  const auto refused = [](const LanguageModel& target, const std::string& family) {
    const Loaded loaded = Load(Eagle(), target);
    ASSERT_FALSE(loaded.ok()) << family;
    EXPECT_EQ(loaded.error().code(), ErrorCode::kUnsupported);
    EXPECT_EQ(
        loaded.error().message(),
        "draft head: expected a target with embedding, norms and logits like Llama's, found one of family " + family);
  };
  // A scaled embedding, learned positions, another width of the embedding, layer norms.
  const auto gemma = Target(ChangedCheckpoint("families/gemma3_text")),
             gpt2 = Target(ChangedCheckpoint("families/gpt2")),
             opt = Target(ChangedCheckpoint("families/opt_post_norm"));
  refused(*gemma, "\"gemma3_text\"");
  refused(*gpt2, "\"gpt2\"");
  refused(*opt, "\"opt\"");
  refused(*Target(ChangedCheckpoint("families/gpt_neox")), "\"gpt_neox\"");
  refused(*Target(ChangedCheckpoint("families/gpt_neox")
                      .Replace("\"use_parallel_residual\": true", "\"use_parallel_residual\": false")),
          "\"gpt_neox\"");
  // Each of them alone.
  const auto refused_with = [&](const auto& change) {
    const auto target = Target(ChangedCheckpoint("eagle/target"));
    change(*target);
    refused(*target, "\"llama\"");
  };
  refused_with([](LanguageModel& model) { model.embedding_scale = 2; });
  refused_with([](LanguageModel& model) { model.logit_soft_cap = 30; });
  refused_with([&](LanguageModel& model) { model.position_embedding = std::move(gpt2->position_embedding); });
  refused_with([&](LanguageModel& model) { model.project_in = std::move(opt->project_in); });
  refused_with([&](LanguageModel& model) { model.project_out = std::move(opt->project_out); });
}

TEST_F(DraftHeadTest, WhatNoHeadHere_Has_IsRefused) {
  ExpectError(Eagle().Replace("\"llama\"", "\"qwen2\""), ErrorCode::kUnsupported,
              "config.json: \"model_type\": expected \"llama\", as draft heads have it, found \"qwen2\"");
  ExpectError(Eagle3().Replace("\"num_hidden_layers\": 1", "\"num_hidden_layers\": 2"), ErrorCode::kUnsupported,
              "config.json: \"num_hidden_layers\": expected 1 layer in a head of EAGLE-3, found 2");
  ExpectError(Eagle3().Replace("\"hidden_size\": 32", "\"hidden_size\": 96, \"target_hidden_size\": 32"),
              ErrorCode::kUnsupported,
              "config.json: \"hidden_size\": expected another width than that of the target's features, 96, found 96");
  ExpectError(Eagle3().Replace("\"pad_token_id\"",
                               "\"eagle_config\": {\"eagle_aux_hidden_state_layer_ids\": [1, 3, 4]}, "
                               "\"pad_token_id\""),
              ErrorCode::kUnsupported,
              "config.json: \"eagle_config.eagle_aux_hidden_state_layer_ids\": expected no such key: features are "
              "taken as the authors take them, found one");
  ExpectError(Eagle3().Replace("\"draft_vocab_size\": 40", "\"draft_vocab_size\": 97"), ErrorCode::kCorruptFile,
              "config.json: \"draft_vocab_size\": expected an integer of 1 to 96, found 97");
  ChangedCheckpoint extra = Eagle();
  ExpectError(extra.Add("layers.1.self_attn.q_proj.weight", "F32", {1}, std::string(4, '\0')), ErrorCode::kUnsupported,
              "tensors: 1 weight that nothing reads, \"layers.1.self_attn.q_proj.weight\": the model is of another "
              "family or variant than the settings say, or deeper");
}

TEST_F(DraftHeadTest, IsTakenForAHead_AndModelsAreNot) {
  for (const auto& [name, is_head] :
       {std::pair{"eagle/eagle1", true}, {"eagle/eagle3", true}, {"eagle/target", false}}) {
    auto files = ModelFiles::Open(std::string(TIDEMILL_FIXTURES) + "/" + name);
    ASSERT_TRUE(files.ok());
    EXPECT_EQ(IsDraftHead(*files), is_head) << name;
  }
}

TEST_F(DraftHeadTest, AsAModel_IsRefused) {
  for (const ChangedCheckpoint& head : {Eagle(), Eagle3()}) {
    ModelFolder folder;
    head.WriteTo(folder);
    const ModelFiles files = folder.Open();
    const auto threads = std::move(ThreadPool::Create(1)).value();
    const Loaded loaded = LoadLanguageModel(files, {.threads = threads.get(), .progress = {}});
    ASSERT_FALSE(loaded.ok());
    EXPECT_EQ(loaded.error().code(), ErrorCode::kUnsupported);
    EXPECT_EQ(
        loaded.error().message(),
        "config.json and tensors: expected a model, found a draft head of EAGLE, which needs its target; give the "
        "model that it drafts for, and this as its --draft");
  }
}

}  // namespace
}  // namespace tidemill::draft_head_test
