// Six good model files, cut at every byte of their headers and around every tensor, and with bits of the header flipped: each answer is one
// clean line, or a file that keeps every promise. Every bit, or one in seven where a sanitizer or an emulator slows the program down.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "formats/model_files.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/inspect_gguf.h"
#include "tests/support/inspect_safetensors.h"
#include "tests/support/model_folder.h"
#include "tests/support/safetensors_writer.h"
#include "tidemill/model.h"

namespace tidemill::testing::systematic_damage_test {
namespace {

constexpr size_t kBitStep = TIDEMILL_BIT_STEP;

struct File {
  std::string name;
  std::string bytes;
};
struct GoodModel {
  const char* name;
  File damaged;
  size_t header_bytes;       // of the file to damage
  std::vector<File> others;  // beside it
  std::string opened;        // empty: the folder
};

GgufWriter LlamaKeys() {
  GgufWriter w;
  w.SetString("general.architecture", "llama").SetString("general.name", "six files");
  w.Set<uint32_t>("llama.embedding_length", 32).Set<uint32_t>("llama.block_count", 1);
  w.Set<uint32_t>("llama.context_length", 64).Set<uint32_t>("llama.attention.head_count", 2);
  w.Set<float>("llama.attention.layer_norm_rms_epsilon", 1e-5f).Set<bool>("flag", true).SetAlignment(64);
  return w.SetStrings("tokenizer.ggml.tokens", {"a", "b", "ab"}).SetArray<int32_t>("tokenizer.ggml.token_type", {1, 1});
}

GoodModel Gguf(const char* name, const std::string& file_name, GgufWriter w, std::vector<File> others = {}) {
  std::string bytes = w.Build();
  return {name, {file_name, std::move(bytes)}, w.header_bytes(), std::move(others), file_name};
}

GoodModel F32Model() {
  GgufWriter w = LlamaKeys();
  w.AddTensor("token_embd.weight", DType::kF32, {32, 3}, std::string(384, 'e'));
  return Gguf("Gguf", "m.gguf", w.AddTensor("output_norm.weight", DType::kF32, {32}, std::string(128, 'n')));
}

GoodModel QuantisedModel() {
  GgufWriter w = LlamaKeys();
  w.AddTensor("token_embd.weight", DType::kQ8_0, {32, 3}, std::string(102, 'e'));
  w.AddTensor("blk.0.ffn_up.weight", DType::kQ4_K, {256, 2}, std::string(288, 'u'));
  w.AddTensor("blk.0.ffn_down.weight", DType::kQ6_K, {256}, std::string(210, 'd'));
  return Gguf("QuantisedGguf", "m.gguf", w.AddTensor("x", DType::kQ5_1, {32, 2, 2}, std::string(96, 'x')));
}

GoodModel PartOfTwo() {
  const auto number = [](GgufWriter& w, uint16_t part) {
    w.Set<uint16_t>("split.no", part).Set<uint16_t>("split.count", 2).Set<int32_t>("split.tensors.count", 2);
  };
  GgufWriter first = LlamaKeys(), second;
  number(first, 0);
  number(second, 1);
  first.AddTensor("token_embd.weight", DType::kF16, {32, 3}, std::string(192, 'e'));
  second.AddTensor("output_norm.weight", DType::kF32, {32}, std::string(128, 'n'));
  return Gguf("PartOfGguf", "m-00001-of-00002.gguf", first, {{"m-00002-of-00002.gguf", second.Build()}});
}

std::string Config() {
  return R"({"model_type":"qwen3_moe","vocab_size":16,"hidden_size":8,"num_hidden_layers":2,"intermediate_size":16,)"
         R"("num_attention_heads":2,"max_position_embeddings":64,"rms_norm_eps":1e-5,"tie_word_embeddings":true,)"
         R"("hidden_act":"silu","rope_parameters":{"rope_type":"yarn","factor":4.0,"rope_theta":10000,)"
         R"("original_max_position_embeddings":32,"beta_fast":32},"use_sliding_window":true,"sliding_window":4,)"
         R"("layer_types":["full_attention","sliding_attention"],"num_experts":4,"num_experts_per_tok":2,)"
         R"("mlp_only_layers":[1],"eos_token_id":[2,3],"bos_token_id":null,"note":"a\u00e9\n"})";
}

SafetensorsWriter Tensors() {
  SafetensorsWriter w;
  w.SetMetadata("format", "pt").SetMetadata("note", "a\\u00e9");
  w.Add("model.embed", "BF16", {3, 4}, std::string(24, 'e')).Add("norm", "F32", {4}, std::string(16, 'n'));
  w.Add("ids\\u002e1", "I64", {1}, std::string(8, 'i')).Add("none", "F16", {0}, "");
  return w.Add("q", "F8_E4M3", {2, 2, 1}, "qqqq");
}

GoodModel SafetensorsModel() {
  const SafetensorsWriter w = Tensors();
  return {"Safetensors",
          {"model.safetensors", w.Build()},
          8 + w.Header().size(),
          {{"config.json", Config()}},
          "model.safetensors"};
}

GoodModel IndexedModel() {
  const std::string index =
      R"({"metadata":{"total_size":28.0,"more":[1,{"x":2}]},"weight_map":{"norm":"m-1.safetensors",)"
      R"("c\u0061":"m-2.safetensors","q":"m-1.safetensors"},"extra":{"weight_map":1}})";
  return {"Index",
          {"model.safetensors.index.json", index},
          index.size(),
          {{"config.json", Config()},
           {"m-1.safetensors", Tensors().Build()},
           {"m-2.safetensors", SafetensorsWriter().Add("ca", "U8", {1}, "x").Build()}},
          ""};
}

GoodModel ConfiguredModel() {
  const std::string config = Config();
  return {"Config", {"config.json", config}, config.size(), {{"model.safetensors", Tensors().Build()}}, ""};
}

const std::vector<GoodModel>& GoodModels() {
  static const std::vector<GoodModel> models = {F32Model(),         QuantisedModel(), PartOfTwo(),
                                                SafetensorsModel(), IndexedModel(),   ConfiguredModel()};
  return models;
}

class DamageTest : public ::testing::TestWithParam<size_t> {
 protected:
  void SetUp() override {
    folder_.Write(model().damaged.name, model().damaged.bytes);
    for (const File& other : model().others) folder_.Write(other.name, other.bytes);
    path_ = model().opened.empty() ? folder_.path() : folder_.path() + "/" + model().opened;
  }

  const GoodModel& model() const { return GoodModels()[GetParam()]; }

  std::string damaged_path() const { return folder_.path() + "/" + model().damaged.name; }

  // Empty when the damaged file, which has these bytes, is refused cleanly or loads and holds. Counts what loads.
  std::string FindProblemOf(const std::string& bytes) {
    if (const auto info = Inspect(path_); !info.ok()) {
      const auto problem = FindErrorProblem(info.error(), {"inspect " + path_ + ": "});
      if (!problem.empty()) return problem;
    } else {
      ++loaded_;
    }
    // In memory of its exact size, where a sanitizer sees a read behind the end.
    const auto copy = std::make_unique<std::byte[]>(bytes.size());
    std::memcpy(copy.get(), bytes.data(), bytes.size());
    const std::span<const std::byte> file(copy.get(), bytes.size());
    if (model().opened.ends_with(".gguf")) return FindGgufProblem(file);
    return model().opened.empty() ? "" : FindSafetensorsProblem(file);
  }

  // Where tensors begin and end in the file to damage.
  std::set<size_t> Boundaries() const {
    std::set<size_t> boundaries;
    const std::span<const std::byte> file = std::as_bytes(std::span(model().damaged.bytes));
    const auto add = [&](const auto& parsed) {
      ASSERT_TRUE(parsed.ok());
      for (const FileTensor& tensor : parsed->tensors()) {
        const auto begin = static_cast<size_t>(tensor.bytes.data() - file.data());
        boundaries.insert({begin, begin + tensor.bytes.size()});
      }
    };
    if (model().opened.ends_with(".gguf")) add(GgufFile::Parse(file));
    if (model().opened.ends_with(".safetensors")) add(SafetensorsFile::Parse(file));
    return boundaries;
  }

  ModelFolder folder_;
  std::string path_;
  size_t loaded_ = 0;
};

TEST_P(DamageTest, CutAnywhereInTheHeaderAndAroundEachTensor_IsRefused) {
  const std::string& bytes = model().damaged.bytes;
  ASSERT_EQ(FindProblemOf(bytes), "");
  ASSERT_EQ(loaded_, 1u) << "the good file loads";
  std::set<size_t> lengths;
  for (size_t length = 0; length <= model().header_bytes; ++length) lengths.insert(length);
  for (const size_t boundary : Boundaries()) lengths.insert({boundary - 1, boundary, boundary + 1});
  lengths.erase(lengths.lower_bound(bytes.size()), lengths.end());
  // From the longest on: a file system may take milliseconds for a file that is written anew, and microseconds for this.
  for (auto length = lengths.rbegin(); length != lengths.rend(); ++length) {
    std::filesystem::resize_file(damaged_path(), *length);
    ASSERT_EQ(FindProblemOf(bytes.substr(0, *length)), "") << "cut at " << *length;
  }
  EXPECT_EQ(loaded_, 1u) << "no file that is cut loads";
}

TEST_P(DamageTest, FlippedBitOfTheHeader_IsRefusedOrHolds) {
  const std::string& bytes = model().damaged.bytes;
  std::fstream file(damaged_path(), std::ios::in | std::ios::out | std::ios::binary);
  const auto put = [&](size_t at, char byte) { file.seekp(static_cast<std::streamoff>(at)).put(byte).flush(); };
  size_t flipped = 0;
  for (size_t bit = 0; bit < model().header_bytes * 8; bit += kBitStep, ++flipped) {
    std::string damaged = bytes;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    put(bit / 8, damaged[bit / 8]);
    ASSERT_EQ(FindProblemOf(damaged), "") << "bit " << bit;
    put(bit / 8, bytes[bit / 8]);
    ASSERT_TRUE(file.good());
  }
  EXPECT_GT(loaded_, 0u);  // a letter of a string may change
  EXPECT_LT(loaded_, flipped);
}

INSTANTIATE_TEST_SUITE_P(GoodModels, DamageTest, ::testing::Range(size_t{0}, GoodModels().size()),
                         [](const auto& index) { return std::string(GoodModels()[index.param].name); });

}  // namespace
}  // namespace tidemill::testing::systematic_damage_test
