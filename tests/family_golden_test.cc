// Seeded checkpoints of every family against transformers' logits (tests/fixtures/families/README.md), on every level.
// More folders of the same form, their paths separated by colons, are taken from TIDEMILL_CHECKPOINTS.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/mapped_file.h"
#include "formats/safetensors.h"
#include "kernels/testing/compare.h"
#include "tests/support/model_runner.h"

namespace tidemill {
namespace {

using testing::ModelRunner;
using testing::RunnerOptions;

// f32 against f32 in another order of sums: logits are of order 1 to 10, depth and width are small.
constexpr double kTolerance = 1e-4;

constexpr const char* kFamilies[] = {"gemma3_text", "gpt2", "gpt_neox", "llama3_rope",   "llama_yarn", "mistral",
                                     "mixtral",     "opt",  "qwen2",    "opt_post_norm", "qwen3",      "qwen3_moe"};

class Golden {
 public:
  explicit Golden(const std::string& folder) {
    std::ifstream in(folder + "/golden.json");
    EXPECT_TRUE(in.good()) << folder << "/golden.json is missing";
    json_ = nlohmann::json::parse(in);
    auto file = MappedFile::Open(folder + "/golden.safetensors");
    EXPECT_TRUE(file.ok());
    file_ = std::move(file).value();
    auto tensors = SafetensorsFile::Parse(file_->bytes());
    EXPECT_TRUE(tensors.ok());
    tensors_ = std::move(tensors).value();
  }

  size_t num_prompts() const { return json_.at("prompts").size(); }
  std::vector<int32_t> Ids(size_t prompt, const char* what) const { return json_.at("prompts")[prompt].at(what); }
  std::vector<float> Logits(size_t prompt) const {
    const FileTensor* tensor = tensors_->FindTensor("prompt" + std::to_string(prompt) + ".logits");
    EXPECT_NE(tensor, nullptr);
    std::vector<float> values(tensor->rows * tensor->cols);
    std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
    return values;
  }

 private:
  nlohmann::json json_;
  std::optional<MappedFile> file_;
  std::optional<SafetensorsFile> tensors_;
};

void ExpectGolden(const std::string& folder, RunnerOptions options, size_t chunk) {
  SCOPED_TRACE(folder + " level " + std::string(IsaName(options.isa)) + " chunk " + std::to_string(chunk) +
               (options.mapped ? " mapped" : " packed"));
  options.context = 128;
  options.f32 = true;
  const Golden golden(folder);
  ModelRunner runner(folder, options);
  ASSERT_GT(golden.num_prompts(), 0U);
  for (size_t p = 0; p < golden.num_prompts(); ++p) {
    const std::vector<int32_t> ids = golden.Ids(p, "input_ids"), greedy = golden.Ids(p, "greedy_ids");
    const std::vector<float> expected = golden.Logits(p);
    ASSERT_FALSE(greedy.empty());
    const auto state = runner.NewState();
    const std::vector<float> logits = runner.Feed(*state, ids, chunk);
    ASSERT_EQ(logits.size(), ids.size() * runner.model().settings.vocab_size);
    ASSERT_LE(expected.size(), logits.size());
    ASSERT_FALSE(expected.empty());
    EXPECT_TRUE(testing::Within(expected, std::span(logits).last(expected.size()), [](size_t) { return kTolerance; }))
        << "prompt " << p;
    EXPECT_EQ(runner.Greedy(*state, logits, greedy.size()), greedy) << "prompt " << p;
  }
}

std::vector<std::string> Folders() {
  std::vector<std::string> folders;
  for (const char* family : kFamilies) folders.push_back(std::string(TIDEMILL_FIXTURES) + "/families/" + family);
  if (const char* more = std::getenv("TIDEMILL_CHECKPOINTS"); more != nullptr) {
    std::istringstream list(more);
    for (std::string folder; std::getline(list, folder, ':');) folders.push_back(folder);
  }
  return folders;
}

TEST(FamilyGolden, EveryCheckpointAndLevel_MatchesTransformers) {
  for (const std::string& folder : Folders()) {
    for (const Isa isa : KnownIsas()) {
      if (isa <= DetectIsa()) ExpectGolden(folder, {.isa = isa, .threads = 2}, 512);
    }
  }
}

TEST(FamilyGolden, MappedAndInSmallChunks_MatchesTransformers) {
  for (const std::string& folder : Folders()) ExpectGolden(folder, {.mapped = true}, 5);
}

}  // namespace
}  // namespace tidemill
