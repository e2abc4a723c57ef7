// A real model: 20 prompts get the same ids and log-probabilities with every drafter that needs no trained head as without one, greedy and
// drawn, four at a time. By default SmolLM2-135M-Instruct (Q4_1) at the path of TIDEMILL_SMOLLM2, which is its own draft model, too; with
// TIDEMILL_TARGET and TIDEMILL_DRAFT_MODEL two others of one vocabulary.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/fixtures_path.h"
#include "tests/support/engine_driver.h"
#include "tests/support/random_requests.h"
#include "tests/support/smollm2_path.h"

namespace tidemill::smollm2_draft_test {
namespace {

using testing::EngineDriver;
using testing::ExpectSame;
using testing::Outcome;

constexpr size_t kPrompts = 20;

std::string PathOf(const char* variable) {
  const char* path = std::getenv(variable);
  return path == nullptr ? testing::SmolLm2Path() : path;
}

std::shared_ptr<const Model> LoadedFrom(const std::string& path) {
  auto model = Model::Load(path, {});
  EXPECT_TRUE(model.ok()) << model.error().message();
  return std::move(model).value();
}

// Half of them new code, half passages with a change.
std::vector<std::vector<int32_t>> Prompts(const Tokenizer& tokenizer) {
  std::vector<std::vector<int32_t>> prompts;
  for (const std::string name : {"coding", "edit"}) {
    std::ifstream in(std::string(TIDEMILL_FIXTURES) + "/../../benchmarks/bmc/speculation_" + name + ".jsonl");
    std::string line;
    for (size_t i = 0; i < kPrompts / 2 && std::getline(in, line); ++i) {
      auto ids = tokenizer.Encode(nlohmann::json::parse(line).at("prompt").get<std::string>());
      EXPECT_TRUE(ids.ok()) << ids.error().message();
      prompts.push_back(std::move(ids).value());
    }
  }
  return prompts;
}

std::map<std::string, DraftOptions> Drafts(size_t layers) {
  const auto tree = [](DraftTreeKind kind) {
    return DraftOptions{.num_draft_tokens = 16, .min_draft_tokens = 1, .source = DraftSource::kModel, .tree = kind};
  };
  return {{"lookup, adapting", {.num_draft_tokens = 8}},
          {"lookup, 5", {.num_draft_tokens = 5, .min_draft_tokens = 5, .ngram_min = 1}},
          {"draft model, adapting", {.num_draft_tokens = 8, .min_draft_tokens = 1, .source = DraftSource::kModel}},
          {"draft model, 4", {.num_draft_tokens = 4, .min_draft_tokens = 4, .source = DraftSource::kModel}},
          {"first layers, 3",
           {.num_draft_tokens = 3, .min_draft_tokens = 3, .source = DraftSource::kLayers, .layers = layers}},
          {"fixed tree", tree(DraftTreeKind::kFixed)},
          {"dynamic tree", tree(DraftTreeKind::kDynamic)},
          {"optimal tree", tree(DraftTreeKind::kOptimal)}};
}

TEST(RealModelDrafts, EveryDrafter_LeavesAnswersAsTheyAre) {
  const auto model = LoadedFrom(PathOf("TIDEMILL_TARGET"));
  const auto draft_model =
      std::getenv("TIDEMILL_DRAFT_MODEL") == nullptr ? model : LoadedFrom(PathOf("TIDEMILL_DRAFT_MODEL"));
  const auto prompts = Prompts(LoadText(PathOf("TIDEMILL_TARGET")).value().tokenizer);
  ASSERT_EQ(prompts.size(), kPrompts);
  const auto request = [&](size_t i, const DraftOptions& draft) {
    return Request{.prompt = prompts[i],
                   .generation = {.max_new_tokens = 48,
                                  .temperature = i % 2 == 0 ? 0.0F : 0.8F,
                                  .ignore_eos = true,
                                  .seed = i,
                                  .logprobs = 1},
                   .draft = draft};
  };
  std::vector<Outcome> plain;
  for (size_t i = 0; i < kPrompts; ++i) {
    EngineDriver driver(model, {.context = 1024, .max_batch = 1});
    const RequestId id = driver.Submit(request(i, {}));
    driver.RunUntilIdle();
    plain.push_back(driver.outcome(id));
    ASSERT_EQ(plain.back().ids.size(), 48U);
  }
  for (const auto& [name, draft] : Drafts(model->info().num_hidden_layers - 1)) {
    EngineDriver driver(model, {.context = 1024, .max_batch = 4, .draft_model = draft_model});
    std::vector<RequestId> ids;
    for (size_t i = 0; i < kPrompts; ++i) ids.push_back(driver.Submit(request(i, draft)));
    driver.RunUntilIdle();
    size_t drafted = 0, right = 0;
    for (size_t i = 0; i < kPrompts; ++i) {
      const Outcome& outcome = driver.outcome(ids[i]);
      ExpectSame(outcome, plain[i], name + ", prompt " + std::to_string(i));
      drafted += outcome.stats.drafted_tokens;
      right += outcome.stats.accepted_tokens;
    }
    EXPECT_GT(right, 0U) << name;
    EXPECT_GT(drafted, right) << name;
    std::printf("%s: %zu of %zu draft tokens were right\n", name.c_str(), right, drafted);
  }
}

}  // namespace
}  // namespace tidemill::smollm2_draft_test
