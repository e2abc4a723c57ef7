// Files of recurrent-memory transformers: what their settings may be, and adapters that are not merged.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>

#include "formats/model_files.h"
#include "models/registry.h"
#include "tests/support/changed_checkpoint.h"
#include "tests/support/model_folder.h"

namespace tidemill::armt_test {
namespace {

using testing::ChangedCheckpoint;
using testing::ModelFolder;

// Of the checkpoint once loaded; empty: it loads.
std::string ErrorOf(const ChangedCheckpoint& checkpoint, std::unique_ptr<LanguageModel>* loaded = nullptr) {
  ModelFolder folder;
  checkpoint.WriteTo(folder);
  const Result<ModelFiles> files = ModelFiles::Open(folder.path());
  if (!files.ok()) return files.error().message();
  const auto threads = ThreadPool::Create(1).value();
  LoadSettings settings;
  settings.f32 = true;
  settings.threads = threads.get();
  auto model = LoadLanguageModel(*files, settings);
  if (!model.ok()) return model.error().message();
  if (loaded != nullptr) *loaded = std::move(model).value();
  return "";
}

std::string ErrorWith(const std::string& from, const std::string& to, const std::string& fixture = "armt/llama") {
  return ErrorOf(ChangedCheckpoint(fixture).Replace(from, to));
}

TEST(ArmtSettings, WrongOnes_AreRefusedByName) {
  EXPECT_EQ(ErrorWith("\"segment_size\": 7", "\"segment_size\": 0"),
            "config.json: \"armt.segment_size\": expected an integer of 1 to 1048576, found 0");
  EXPECT_EQ(ErrorWith("\"num_mem_tokens\": 3", "\"num_mem_tokens\": 0"),
            "config.json: \"armt.num_mem_tokens\": expected an integer of 1 to 1024, found 0");
  EXPECT_EQ(ErrorWith("\"segment_size\": 7", "\"segment_size\": 62"),
            "config.json: \"armt.segment_size\": expected with num_mem_tokens at most the model's 64 positions, found "
            "62 and 3");
  EXPECT_EQ(ErrorWith("\"segment_size\": 7", "\"segment_size\": 62", "armt/gpt2"),
            "config.json: \"armt.segment_size\": expected with num_mem_tokens at most the model's 64 positions, found "
            "62 and 3");
  EXPECT_EQ(ErrorWith("\"wrap_pos\": false", "\"wrap_pos\": true"),
            "config.json: \"armt.wrap_pos\": expected false where positions are rotary, found true");
  EXPECT_EQ(ErrorWith("\"segment_alignment\": \"left\"", "\"segment_alignment\": \"middle\""),
            "config.json: \"armt.segment_alignment\": expected \"left\", \"right\" or \"center\", found \"middle\"");
  EXPECT_EQ(ErrorWith("\"d_mem\": 6", "\"memory_dtype\": \"float16\", \"d_mem\": 6"),
            "config.json: \"armt.memory_dtype\": expected \"float32\" or \"bfloat16\", found \"float16\"");
  EXPECT_EQ(ErrorWith("\"d_mem\": 6", "\"d_memory\": 6, \"d_mem\": 6"),
            "config.json: \"armt\": \"armt.d_memory\": no such setting is known; docs/recurrent-memory.md lists them");
  EXPECT_EQ(ErrorWith("\"d_mem\": 6", "\"gating\": true, \"d_mem\": 6"),
            "config.json: \"armt.gating\": expected false, as the original has it, found true");
  EXPECT_EQ(ErrorWith("\"d_mem\": 6", "\"n_heads\": 2, \"d_mem\": 6"),
            "config.json: \"armt.n_heads\": expected 1, as the original has it, found 2");
  EXPECT_EQ(ErrorWith("\"d_mem\": 6", "\"d_mem\": 5"),
            "tensor \"memory_cell.model.model.layers.0.W_mq.weight\": expected shape [5, 40] from the metadata, found "
            "[6, 40]");
  EXPECT_EQ(ErrorWith("\"num_mem_tokens\": 3", "\"num_mem_tokens\": 2"),
            "tensor \"memory_cell.memory\": expected shape [2, 40] from the metadata, found [3, 40]");
  EXPECT_EQ(ErrorWith("\"ArmtLlamaForCausalLM\"", "\"ArmtMambaForCausalLM\"", "armt/recall"),
            "config.json: \"architectures\": expected one that names Llama, Qwen2 or GPT2 for model type \"armt\"");
}

TEST(RmtSettings, WrongOnes_AreRefusedByName) {
  EXPECT_EQ(ErrorWith("\"segment_size\": 7", "\"segment_size\": 59", "armt/rmt_llama"),
            "config.json: \"rmt.segment_size\": expected with num_mem_tokens at most the model's 64 positions, found "
            "59 and 6");
  EXPECT_EQ(ErrorWith("\"segment_size\": 7", "\"segment_size\": 58", "armt/rmt_llama"), "");
  EXPECT_EQ(ErrorWith("\"num_mem_tokens\": 3", "\"num_mem_tokens\": 0", "armt/rmt_gpt2"),
            "config.json: \"rmt.num_mem_tokens\": expected an integer of 1 to 1024, found 0");
  EXPECT_EQ(ErrorWith("\"num_mem_tokens\": 3", "\"num_mem_tokens\": 3, \"d_mem\": 6", "armt/rmt_llama"),
            "config.json: \"rmt\": \"rmt.d_mem\": no such setting is known; docs/recurrent-memory.md lists them");
  EXPECT_EQ(ErrorWith("\"rmt\": {", "\"armt\": {}, \"rmt\": {", "armt/rmt_llama"),
            "config.json: \"armt\" and \"rmt\": expected one of them, found both; leave out the one that the model was "
            "not trained as");
  EXPECT_EQ(ErrorWith("\"rmt\": {", "\"other\": {", "armt/rmt_llama"),
            "config.json: expected a block \"armt\" or \"rmt\" for tensor \"memory_cell.memory\", found none; "
            "docs/recurrent-memory.md lists what it says");
  EXPECT_EQ(ErrorWith("\"armt\": {", "\"armt\": 8, \"other\": {"),
            "config.json: \"armt\": expected an object, found 8");
  EXPECT_EQ(ErrorWith("\"armt\": {", "\"rmt\": {", "armt/recall"),
            "config.json: model type \"armt\": expected a block \"armt\" with the model's segments, found none; "
            "docs/recurrent-memory.md lists what it says");
}

TEST(ArmtSettings, SwitchesAtTheOriginalsValues_Load) {
  EXPECT_EQ(
      ErrorWith(
          "\"d_mem\": 6",
          "\"d_mem\": 6, \"n_heads\": 1, \"use_denom\": true, \"gating\": false, \"layers_attr\": \"model.layers\""),
      "");
}

// A checkpoint with an adapter of rank 2 beside one matrix, in PEFT's names.
ChangedCheckpoint WithAdapter(const std::string& alpha) {
  ChangedCheckpoint checkpoint("armt/llama");
  const std::string plain = "memory_cell.model.model.layers.1.layer.self_attn.o_proj";
  const std::string weight = checkpoint.BytesOf(plain + ".weight");
  std::string a(2 * 32 * sizeof(float), '\0'), b(40 * 2 * sizeof(float), '\0');
  const float of_a = 3, of_b = 0.5F;
  std::memcpy(a.data() + (1 * 32 + 5) * sizeof(float), &of_a, sizeof(float));  // A[1, 5]
  std::memcpy(b.data() + (7 * 2 + 1) * sizeof(float), &of_b, sizeof(float));   // B[7, 1]
  checkpoint.Remove(plain + ".weight")
      .Add(plain + ".base_layer.weight", "F32", {40, 32}, weight)
      .Add(plain + ".lora_A.default.weight", "F32", {2, 32}, a)
      .Add(plain + ".lora_B.default.weight", "F32", {40, 2}, b);
  return checkpoint.Replace("\"d_mem\": 6", "\"d_mem\": 6" + alpha);
}

TEST(ArmtAdapters, NotMerged_AreAddedByTheirAlpha) {
  std::unique_ptr<LanguageModel> plain, adapted;
  ASSERT_EQ(ErrorOf(ChangedCheckpoint("armt/llama"), &plain), "");
  ASSERT_EQ(ErrorOf(WithAdapter(", \"lora_alpha\": 8"), &adapted), "");
  size_t matrices = 0, changed = 0;
  std::vector<const WeightMatrix*> first, second;
  plain->ForEachWeight([&](const WeightUse& use) { first.push_back(&use.linear.weight); });
  adapted->ForEachWeight([&](const WeightUse& use) { second.push_back(&use.linear.weight); });
  ASSERT_EQ(first.size(), second.size());
  for (size_t i = 0; i < first.size(); ++i, ++matrices) {
    for (size_t r = 0; r < first[i]->rows(); ++r) {
      std::vector<float> x(first[i]->cols()), y(x.size());
      first[i]->CopyRow(r, x);
      second[i]->CopyRow(r, y);
      for (size_t c = 0; c < x.size(); ++c) {
        if (x[c] == y[c]) continue;
        ++changed;
        EXPECT_EQ(r, 7U);
        EXPECT_EQ(c, 5U);
        EXPECT_EQ(y[c], static_cast<float>(static_cast<double>(x[c]) + 8.0 / 2 * 3 * 0.5));
      }
    }
  }
  EXPECT_GT(matrices, 50U);
  EXPECT_EQ(changed, 1U);
}

TEST(ArmtAdapters, WithoutAlpha_AreRefused) {
  EXPECT_EQ(
      ErrorOf(WithAdapter("")),
      "config.json: \"armt.lora_alpha\": expected the adapters' alpha, since the files have LoRA adapters that are not "
      "merged, found none");
}

}  // namespace
}  // namespace tidemill::armt_test
