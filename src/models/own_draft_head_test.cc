// Draft heads in their target's own files (MTP) as the registry loads or refuses them; what they compute is compared in tests/.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "models/registry.h"
#include "tests/fixtures_path.h"
#include "tests/support/changed_checkpoint.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/model_folder.h"

namespace tidemill::own_draft_head_test {
namespace {

using testing::ChangedCheckpoint;
using testing::GgufWriter;
using testing::ModelFolder;

constexpr size_t kVocab = 128, kHidden = 48;

// A model and its head, or why there is none.
struct Pair {
  std::unique_ptr<ModelFiles> files;
  std::unique_ptr<LanguageModel> target, head;
  Error error{ErrorCode::kInternal, "none"};
};

Pair Load(const std::string& path) {
  Pair pair;
  const auto threads = std::move(ThreadPool::Create(1)).value();
  const LoadSettings settings{.threads = threads.get(), .progress = {}};
  pair.files = std::make_unique<ModelFiles>(std::move(ModelFiles::Open(path)).value());
  auto target = LoadLanguageModel(*pair.files, settings);
  EXPECT_TRUE(target.ok()) << target.error().message();
  if (!target.ok()) return pair;
  pair.target = std::move(target).value();
  auto head = LoadOwnDraftHead(*pair.files, *pair.target, settings);
  if (head.ok()) {
    pair.head = std::move(head).value();
  } else {
    pair.error = std::move(head).error();
  }
  return pair;
}

Pair Load(const ChangedCheckpoint& checkpoint) {
  ModelFolder folder;
  checkpoint.WriteTo(folder);
  return Load(folder.path());
}

void ExpectError(const Pair& pair, ErrorCode code, const std::string& message) {
  ASSERT_EQ(pair.head, nullptr) << "expected: " << message;
  EXPECT_EQ(pair.error.code(), code);
  EXPECT_EQ(pair.error.message(), message);
}

ChangedCheckpoint Checkpoint(const std::string& family) { return ChangedCheckpoint("families/" + family); }

// The file of a fixture, all of F32, with tensors left out and added.
class ChangedGguf {
 public:
  explicit ChangedGguf(const std::string& family) {
    std::ifstream in(std::string(TIDEMILL_FIXTURES) + "/families/gguf/" + family + ".gguf", std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(in), {});
    file_ = std::make_unique<GgufFile>(GgufFile::Parse(std::as_bytes(std::span(bytes_))).value());
    for (const std::string_view key : file_->keys()) {
      const GgufValue& value = *file_->FindValue(key);
      const std::string payload(reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size());
      if (value.type == GgufValueType::kArray) {
        writer_.SetRawArray(key, static_cast<uint32_t>(value.element_type), value.count, payload);
      } else {
        writer_.SetRaw(key, static_cast<uint32_t>(value.type), payload);
      }
    }
  }

  ChangedGguf& Remove(const std::string& name) {
    removed_.push_back(name);
    return *this;
  }
  // A copy of another tensor, with the last bit of the last number changed if `other`.
  ChangedGguf& AddCopy(const std::string& name, const std::string& of, bool other) {
    const FileTensor* tensor = file_->FindTensor(of);
    TIDEMILL_CHECK(tensor != nullptr);
    std::string data(reinterpret_cast<const char*>(tensor->bytes.data()), tensor->bytes.size());
    if (other) data[data.size() - 4] = static_cast<char>(data[data.size() - 4] ^ 1);
    added_.push_back({name, {tensor->cols, tensor->rows}, data});
    return *this;
  }

  Pair Load() {
    for (const FileTensor& tensor : file_->tensors()) {
      if (std::find(removed_.begin(), removed_.end(), tensor.name) != removed_.end()) continue;
      std::vector<uint64_t> dims;
      for (size_t i = tensor.rank; i-- > 0;) dims.push_back(tensor.shape[i]);
      writer_.AddTensor(tensor.name, tensor.dtype, dims,
                        {reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()});
    }
    for (const Added& tensor : added_) writer_.AddTensor(tensor.name, DType::kF32, tensor.dims, tensor.data);
    ModelFolder folder;
    folder.Write("model.gguf", writer_.Build());
    return own_draft_head_test::Load(folder.path() + "/model.gguf");
  }

 private:
  struct Added {
    std::string name;
    std::vector<uint64_t> dims;
    std::string data;
  };
  std::string bytes_;
  std::unique_ptr<GgufFile> file_;
  GgufWriter writer_;
  std::vector<std::string> removed_;
  std::vector<Added> added_;
};

constexpr const char* kFamilies[] = {"qwen3_next_mtp", "qwen3_5", "qwen3_5_moe"};

TEST(OwnDraftHead, SharesEmbeddingHeadAndPositionsOfTheTarget) {
  for (const std::string family : kFamilies) {
    SCOPED_TRACE(family);
    const Pair folder = Load(Checkpoint(family)), gguf = ChangedGguf(family).Load();
    for (const Pair* pair : {&folder, &gguf}) {
      ASSERT_NE(pair->head, nullptr) << pair->error.message();
      const LanguageModel &head = *pair->head, &target = *pair->target;
      EXPECT_EQ(head.embedding.rows(), 0U);
      EXPECT_EQ(&head.token_embedding(), &target.embedding);
      EXPECT_EQ(&head.head_or_tied(), &target.head.weight);
      EXPECT_EQ(head.ropes[0].inv_freq, target.ropes[0].inv_freq);
      EXPECT_EQ(head.settings.num_hidden_layers, 1U);
      EXPECT_FALSE(head.delta_shape().has_value());
      EXPECT_EQ(head.features.width, kHidden);
      EXPECT_EQ(head.features.target_taps, std::vector<size_t>({target.layers.size() + 1}));
      EXPECT_EQ(head.features.own_tap, 2U);
      EXPECT_TRUE(head.features.token_norm.present() && head.features.feature_norm.present());
      EXPECT_NE(head.id, target.id);
    }
    EXPECT_EQ(folder.head->features.feature_norm.weight, gguf.head->features.feature_norm.weight) << "1 + w";
    EXPECT_EQ(folder.head->final_norm.weight, gguf.head->final_norm.weight);
  }
}

TEST(OwnDraftHead, WhereThereIsNone_WhatIsExpectedIsNamed) {
  const std::string advice = "; take files that have it, or draft with ngram, layers:M or a smaller model";
  ExpectError(Load(Checkpoint("qwen3_next")), ErrorCode::kNotFound,
              "draft head: expected tensors \"mtp.*\", as \"mtp.fc.weight\", found none" + advice);
  ExpectError(ChangedGguf("qwen3_next_interval").Load(), ErrorCode::kNotFound,
              "draft head: expected tensors \"blk.8.nextn.*\" and \"nextn_predict_layers\" 1, found a file of 8 layers "
              "without a draft head" +
                  advice);
  const std::string known = "draft head: expected a model of a family with one of its own, ";
  ExpectError(Load(Checkpoint("qwen3")), ErrorCode::kUnsupported,
              known +
                  "qwen3_next, qwen3_5_text, qwen3_5, qwen3_5_moe_text, qwen3_5_moe, found \"qwen3\"; draft with "
                  "ngram, layers:M, a smaller model or a head for it");
  ExpectError(ChangedGguf("qwen3").Load(), ErrorCode::kUnsupported,
              known +
                  "qwen3next, qwen35, qwen35moe, found \"qwen3\"; draft with ngram, layers:M, a smaller model or a "
                  "head for it");
}

// Of a head in a checkpoint, "mtp." in front.
std::vector<std::string> Spelled(std::vector<std::string> names) {
  for (const char* name : {"fc", "pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm", "layers.0.self_attn.q_proj",
                           "layers.0.self_attn.k_proj", "layers.0.self_attn.v_proj", "layers.0.self_attn.o_proj",
                           "layers.0.self_attn.q_norm", "layers.0.self_attn.k_norm", "layers.0.input_layernorm",
                           "layers.0.post_attention_layernorm"})
    names.push_back(name);
  for (std::string& name : names) name = "mtp." + name + ".weight";
  return names;
}

std::vector<std::string> TensorsOfDense() {
  return Spelled({"layers.0.mlp.gate_proj", "layers.0.mlp.up_proj", "layers.0.mlp.down_proj"});
}

// One expert of several.
std::vector<std::string> TensorsOfMixture() {
  std::vector<std::string> names = {"layers.0.mlp.gate", "layers.0.mlp.shared_expert_gate"};
  for (const char* name : {"gate_proj", "up_proj", "down_proj"}) {
    names.push_back("layers.0.mlp.shared_expert." + std::string(name));
    names.push_back("layers.0.mlp.experts.3." + std::string(name));
  }
  return Spelled(names);
}

TEST(OwnDraftHead, OfFilesWithAndWithout_TheTargetTakesTheSameMemory) {
  ChangedCheckpoint without = Checkpoint("qwen3_5");
  for (const std::string& name : TensorsOfDense()) without.Remove(name);
  const Pair some = Load(Checkpoint("qwen3_5")), none = Load(without);
  EXPECT_EQ(none.error.code(), ErrorCode::kNotFound);
  EXPECT_EQ(some.target->resident_bytes(), none.target->resident_bytes());
  EXPECT_GT(some.head->resident_bytes(), 0U);
}

TEST(OwnDraftHead, EveryMissingTensor_IsNamed) {
  const auto expect = [](const Pair& pair, const std::string& name) {
    ASSERT_EQ(pair.head, nullptr) << name;
    EXPECT_EQ(pair.error.code(), ErrorCode::kCorruptFile);
    EXPECT_TRUE(pair.error.message().starts_with("tensor \"" + name + "\": expected shape ") &&
                pair.error.message().ends_with(", but the file has no such tensor"))
        << pair.error.message();
  };
  for (const std::string& name : TensorsOfDense()) expect(Load(Checkpoint("qwen3_5").Remove(name)), name);
  for (const std::string& name : TensorsOfMixture()) expect(Load(Checkpoint("qwen3_next_mtp").Remove(name)), name);
  expect(Load(Checkpoint("qwen3_5_moe").Remove("mtp.layers.0.mlp.experts.down_proj")),
         "mtp.layers.0.mlp.experts.down_proj");
  for (const char* name : {"nextn.eh_proj", "nextn.enorm", "nextn.hnorm", "attn_q", "attn_norm", "ffn_up"}) {
    const std::string spelled = "blk.4." + std::string(name) + ".weight";
    expect(ChangedGguf("qwen3_5").Remove(spelled).Load(), spelled);
  }
}

TEST(OwnDraftHead, TensorsThatNothingReads_AreRefused) {
  const auto message = [](const std::string& name) {
    return "tensors: 1 weight that nothing reads, \"" + name +
           "\": the model is of another family or variant than the settings say, or deeper";
  };
  const std::string norm(4 * kHidden, '\0');
  ExpectError(Load(Checkpoint("qwen3_5").Add("mtp.layers.1.input_layernorm.weight", "F32", {kHidden}, norm)),
              ErrorCode::kUnsupported, message("mtp.layers.1.input_layernorm.weight"));
  ExpectError(ChangedGguf("qwen3_5").AddCopy("blk.4.attn_gate.weight", "blk.4.attn_k.weight", false).Load(),
              ErrorCode::kUnsupported, message("blk.4.attn_gate.weight"));
}

// Without shared_head_norm it is the target's; embedding and head may stand in the file once more, or be others.
TEST(OwnDraftHead, OptionalTensorsOfGguf_AreTheTargetsUnlessTheyDiffer) {
  const std::string block = "blk.4.nextn.";
  const Pair plain = ChangedGguf("qwen3_5").Load();
  const Pair none = ChangedGguf("qwen3_5").Remove(block + "shared_head_norm.weight").Load();
  ASSERT_NE(none.head, nullptr) << none.error.message();
  EXPECT_EQ(none.head->final_norm.weight, none.target->final_norm.weight);
  EXPECT_NE(none.head->final_norm.weight, plain.head->final_norm.weight);
  for (const bool other : {false, true}) {
    const Pair pair = ChangedGguf("qwen3_5")
                          .AddCopy(block + "embed_tokens.weight", "token_embd.weight", other)
                          .AddCopy(block + "shared_head_head.weight", "output.weight", other)
                          .Load();
    ASSERT_NE(pair.head, nullptr) << pair.error.message();
    EXPECT_EQ(pair.head->embedding.rows(), other ? kVocab : 0);
    EXPECT_EQ(pair.head->head.present(), other);
    EXPECT_EQ(pair.head->resident_bytes() > plain.head->resident_bytes(), other);
  }
}

}  // namespace
}  // namespace tidemill::own_draft_head_test
