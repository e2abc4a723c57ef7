// A real model computes what prompts have in common once: questions about one text, prompts of one beginning, turns of a chat; and gives the
// same ids as without. By default SmolLM2-135M-Instruct (Q4_1) at the path of TIDEMILL_SMOLLM2. By hand: TIDEMILL_TARGET for another
// one, TIDEMILL_WORDS=2600 for a longer text.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/prefix_cache.h"
#include "tests/support/count_by_hand.h"
#include "tests/support/engine_driver.h"
#include "tests/support/smollm2_path.h"
#include "tidemill/chat.h"

namespace tidemill::smollm2_prefix_test {
namespace {

using testing::EngineDriver;
using testing::Outcome;

std::shared_ptr<const Model> TheModel() {
  static const std::shared_ptr<const Model> model = [] {
    const char* path = std::getenv("TIDEMILL_TARGET");
    auto loaded = Model::Load(path == nullptr ? testing::SmolLm2Path() : path, {});
    EXPECT_TRUE(loaded.ok()) << loaded.error().message();
    return std::move(loaded).value();
  }();
  return model;
}

std::vector<int32_t> Ids(std::vector<ChatMessage> messages) {
  const ModelText& text = TheModel()->text();
  ChatRenderInput input;
  input.messages = std::move(messages);
  auto rendered = text.chat_template->Render(input);
  EXPECT_TRUE(rendered.ok()) << rendered.error().message();
  auto ids = text.tokenizer.Encode(*rendered, {.add_special = false, .parse_special = true});
  EXPECT_TRUE(ids.ok()) << ids.error().message();
  return std::move(ids).value();
}

// So many words about villages, each sentence another.
std::string Text(size_t words) {
  constexpr const char* kPlaces[] = {"mill", "harbour", "market", "chapel", "bridge", "orchard", "quarry"};
  constexpr const char* kGoods[] = {"barley", "rope", "salt", "slate", "wool", "honey", "lamp oil", "timber", "glass"};
  std::string text;
  for (size_t i = 0; i * 12 < words; ++i) {
    text += "In year " + std::to_string(1700 + i) + " the " + kPlaces[i % 7] + " sold " +
            std::to_string(3 + i * 37 % 91) + " loads of " + kGoods[i % 9] + " to the north. ";
  }
  return text;
}

GenerationOptions Greedy(int32_t tokens) { return {.max_new_tokens = tokens, .temperature = 0}; }

struct Total {
  size_t prompts = 0, cached = 0;
  size_t computed() const { return prompts - cached; }
};

Total TotalOf(EngineDriver& driver, const std::vector<RequestId>& ids) {
  Total total;
  for (const RequestId id : ids) {
    EXPECT_FALSE(driver.outcome(id).error.has_value()) << driver.outcome(id).message;
    total.prompts += driver.outcome(id).stats.prompt_tokens;
    total.cached += driver.outcome(id).stats.cached_tokens;
  }
  return total;
}

// What is left when each begins with all that it has in common with one before it; its last token is computed in any case.
size_t LeastComputed(const std::vector<std::vector<int32_t>>& prompts) {
  size_t sum = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    size_t common = 0;
    for (size_t j = 0; j < i; ++j) common = std::max(common, CommonTokens(prompts[i], prompts[j]));
    sum += prompts[i].size() - std::min(common, prompts[i].size() - 1);
  }
  return sum;
}

TEST(SmolLm2Prefix, EightQuestionsOverOneText_ComputeItOnce) {
  const std::string text = Text(testing::CountByHand("TIDEMILL_WORDS", 400));
  std::vector<std::vector<int32_t>> prompts;
  for (int i = 0; i < 8; ++i) {
    prompts.push_back(Ids({{.role = "user",
                            .content = text + "\nWhat was sold in the year " + std::to_string(1710 + 17 * i) + "?",
                            .more_json = ""}}));
  }
  for (const bool one_by_one : {true, false}) {
    EngineDriver driver(TheModel(), {});
    std::vector<RequestId> ids;
    for (const auto& prompt : prompts) {
      ids.push_back(driver.Submit(prompt, Greedy(4)));
      if (one_by_one) driver.RunUntilIdle();
    }
    driver.RunUntilIdle();
    const Total total = TotalOf(driver, ids);
    std::printf("  %zu tokens of prompts, %zu computed\n", total.prompts, total.computed());
    const size_t least = LeastComputed(prompts);
    EXPECT_GE(total.computed(), least);
    EXPECT_LE(total.computed(), least + (one_by_one ? 0 : 8))
        << "together, none waits for a token that only some share";
    EXPECT_LT(total.computed(), prompts[0].size() + 8 * 30);
  }
}

TEST(SmolLm2Prefix, FortyEightPromptsOfOneBeginning_ComputeItOnce) {
  const std::string text = Text(260);
  std::vector<std::vector<int32_t>> prompts;
  for (int i = 0; i < 48; ++i) {
    prompts.push_back(Ids({{.role = "user",
                            .content = text + "\nWrite " + std::to_string(i + 2) + " words about it.",
                            .more_json = ""}}));
  }
  EngineDriver driver(TheModel(), {});
  std::vector<RequestId> ids;
  for (const auto& prompt : prompts) ids.push_back(driver.Submit(prompt, Greedy(3)));
  driver.RunUntilIdle();
  const Total total = TotalOf(driver, ids);
  std::printf("  %zu tokens of prompts, %zu computed\n", total.prompts, total.computed());
  // A waiting prompt takes what the first one has; those that begin alike beyond that may run together.
  const size_t common = CommonTokens(prompts[0], prompts[1]);
  size_t most = prompts[0].size();
  for (size_t i = 1; i < prompts.size(); ++i) most += prompts[i].size() - std::min(common, prompts[i].size() - 1);
  EXPECT_LE(total.computed(), most);
  EXPECT_GE(total.computed(), LeastComputed(prompts));
}

TEST(SmolLm2Prefix, ChatOf20Turns_ComputesWhatIsNewAndOneToken) {
  EngineDriver driver(TheModel(), {}), cold(TheModel(), {.prefix_cache = false});
  std::vector<ChatMessage> messages;
  std::vector<int32_t> known;  // what the state of the turn before holds
  size_t computed = 0, sum = 0;
  for (int turn = 0; turn < 20; ++turn) {
    messages.push_back(
        {.role = "user",
         .content = "Say a word that begins with the letter " + std::string(1, static_cast<char>('A' + turn)) + ".",
         .more_json = ""});
    const std::vector<int32_t> ids = Ids(messages);
    const RequestId id = driver.Submit(ids, Greedy(12));
    driver.RunUntilIdle();
    const Outcome& found = driver.outcome(id);
    ASSERT_FALSE(found.error.has_value()) << found.message;
    const size_t common = std::min(CommonTokens(ids, known), ids.size() - 1);
    EXPECT_EQ(found.stats.cached_tokens, common) << turn;
    if (turn % 6 == 5) {
      const Outcome expected = cold.Run(ids, Greedy(12));
      EXPECT_EQ(found.ids, expected.ids) << turn;
    }
    computed += ids.size() - common;
    sum += ids.size();
    known = ids;
    known.insert(known.end(), found.ids.begin(), found.ids.end() - 1);  // the last one is in no state
    messages.push_back({.role = "assistant", .content = found.text, .more_json = ""});
  }
  std::printf("  %zu tokens of prompts, %zu computed\n", sum, computed);
  EXPECT_LT(computed, sum / 4);
}

}  // namespace
}  // namespace tidemill::smollm2_prefix_test
