// A request that is saved, anywhere, and goes on elsewhere says what it would have said: ids, text and log-probabilities, bit by bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/request_record.h"
#include "tests/support/bits_levels.h"
#include "tests/support/engine_driver.h"
#include "tests/support/resumed_requests.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_vocabulary.h"

namespace tidemill::engine_saved_bits_test {
namespace {

using testing::EngineDriver;
using testing::ExpectJoined;
using testing::Outcome;
using testing::ReadSaved;
using testing::RunAndSave;
using testing::SavedBytes;

constexpr int32_t kAnswerTokens = 24;

// Engines of one numeric class, each another than the one before.
EngineOptions Way(size_t i, KvType kv_type) {
  constexpr KvPolicy kPolicies[] = {KvPolicy::kBmc,     KvPolicy::kIterative, KvPolicy::kUpfront,
                                    KvPolicy::kReserve, KvPolicy::kGeometric, KvPolicy::kPaged};
  static const std::vector<Isa> levels = [] {
    std::vector<Isa> same = testing::LevelsHere();
    std::erase_if(same, [](Isa isa) { return HasFma(isa) != HasFma(DetectIsa()); });
    return same;
  }();
  return {.threads = 1 + i % 2,
          .isa = std::string(IsaName(levels[i % levels.size()])),
          .kv_type = kv_type,
          .context = i % 3 == 0 ? testing::kResumedContext : testing::kResumedContext - 10,
          .kv_policy = kPolicies[i % std::size(kPolicies)],
          .kv_increment = 1 + i % 7,
          .prefill_chunk = 1 + i % 5};
}

Outcome Resume(const Outcome& from, const EngineOptions& engine, ResumeOptions options = {}) {
  EngineDriver driver(testing::ResumedModel(), engine);
  return testing::ResumeSaved(driver, from, std::move(options));
}

struct Case {
  const char* name;
  KvType kv_type;
  GenerationOptions generation;
};

// Only these come: bytes that make one character of two tokens, or break one, and stop texts that often begin.
std::vector<std::pair<int32_t, float>> FewBytes() {
  std::vector<std::pair<int32_t, float>> bias;
  for (const int c : {0xC3, 0xA9, 0x61, 0x62}) bias.emplace_back(testing::ByteToken(c), 100.0f);
  return bias;
}

std::vector<Case> AllCases() {
  const GenerationOptions common = {.max_new_tokens = kAnswerTokens, .ignore_eos = true, .seed = 3, .logprobs = 2};
  std::vector<Case> cases = {{"Greedy", KvType::kF16, common},   {"GreedyWithPenalties", KvType::kF32, common},
                             {"Drawn", KvType::kBF16, common},   {"DrawnWithEverything", KvType::kQ8_0, common},
                             {"HeldBack", KvType::kF16, common}, {"EndsAtAStop", KvType::kF16, common}};
  cases[1].generation.repetition_penalty = 1.3f;
  cases[1].generation.presence_penalty = 0.5f;
  cases[1].generation.frequency_penalty = 0.25f;
  cases[2].generation.temperature = 1.0f;
  cases[3].generation.min_new_tokens = 5;
  cases[3].generation.temperature = 1.5f;
  cases[3].generation.top_k = 50;
  cases[3].generation.top_p = 0.9f;
  cases[3].generation.min_p = 0.01f;
  cases[3].generation.repetition_penalty = 1.1f;
  cases[3].generation.frequency_penalty = 0.5f;
  cases[3].generation.no_repeat_ngram_size = 2;
  for (const size_t i : {4, 5}) {
    cases[i].generation.temperature = 10.0f;  // all four come
    cases[i].generation.logit_bias = FewBytes();
    cases[i].generation.stop = {"aaaaaaaaa", "abbabbabba", "\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9"};
  }
  cases[5].generation.stop.push_back("bb");
  return cases;
}

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class SavedRequestTest : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Cases, SavedRequestTest, ::testing::ValuesIn(AllCases()),
                         [](const auto& test) { return std::string(test.param.name); });

// The uninterrupted run. Where text is to be held back: of the first seed whose text has what the case is about.
Outcome RunWhole(EngineDriver& driver, Case* c) {
  const bool holds_back = !c->generation.stop.empty(), stops = std::string_view(c->name) == "EndsAtAStop";
  for (; c->generation.seed < 1000; ++c->generation.seed) {
    Outcome whole = driver.Run(testing::ResumedPrompt(), c->generation);
    if (!holds_back) return whole;
    const bool has_character = whole.text.find("\xC3\xA9") != std::string::npos;
    if (has_character && whole.ids.size() >= 10 && (whole.finish == FinishReason::kStop) == stops) return whole;
  }
  ADD_FAILURE() << "no seed gives such a text";
  return {};
}

TEST_P(SavedRequestTest, AfterAnyToken_GoesOnElsewhereWithTheSameBits) {
  Case c = GetParam();
  EngineDriver driver(testing::ResumedModel(), {.threads = 1, .kv_type = c.kv_type});
  const Outcome whole = RunWhole(driver, &c);
  ASSERT_EQ(whole.fault, "");
  const auto tokens = static_cast<int32_t>(whole.ids.size());
  ASSERT_GE(tokens, 5);
  size_t with_held_text = 0, with_half_character = 0;
  for (int32_t k = 1; k < tokens; ++k) {
    GenerationOptions shorter = c.generation;
    shorter.max_new_tokens = k;
    shorter.min_new_tokens = std::min(k, shorter.min_new_tokens);
    const Outcome first = RunAndSave(driver, testing::ResumedPrompt(), shorter);
    ASSERT_NE(first.saved, nullptr) << k;
    ASSERT_EQ(first.finish, FinishReason::kLength) << k;
    const auto record = DecodeRequest(SavedBytes(first));
    ASSERT_TRUE(record.ok()) << record.error().message();
    with_held_text += record->held_text.empty() ? 0 : 1;
    with_half_character += record->partial_character.empty() ? 0 : 1;
    const Outcome second = Resume(first, Way(static_cast<size_t>(k), c.kv_type), {.generation = c.generation});
    ExpectJoined(first, second, whole, std::to_string(k) + " tokens before");
    EXPECT_EQ(second.stats.prompt_tokens, testing::ResumedPrompt().size() + static_cast<size_t>(k));
    EXPECT_EQ(second.stats.cached_tokens, second.stats.prompt_tokens - 1);
    ASSERT_FALSE(HasFailure());
  }
  const bool holds_back = !c.generation.stop.empty();
  EXPECT_EQ(with_held_text != 0, holds_back);
  EXPECT_TRUE(!holds_back || with_half_character != 0);
}

// Saved and resumed after every token: what is handed on does not wear out.
TEST_P(SavedRequestTest, AfterEveryToken_GoesOnWithTheSameBits) {
  Case c = GetParam();
  EngineDriver driver(testing::ResumedModel(), {.threads = 1, .kv_type = c.kv_type});
  const Outcome whole = RunWhole(driver, &c);
  GenerationOptions generation = c.generation;
  generation.max_new_tokens = 1;
  generation.min_new_tokens = std::min(1, generation.min_new_tokens);
  Outcome all = RunAndSave(driver, testing::ResumedPrompt(), generation);
  const auto tokens = static_cast<int32_t>(whole.ids.size());
  for (int32_t k = 2; k <= tokens; ++k) {
    generation = c.generation;
    generation.max_new_tokens = k == tokens ? c.generation.max_new_tokens : k;
    generation.min_new_tokens = std::min(k, generation.min_new_tokens);
    Outcome next =
        Resume(all, Way(static_cast<size_t>(k), c.kv_type), {.generation = generation, .keep_state = k < tokens});
    ASSERT_EQ(next.ids.size(), 1U);
    all.ids.push_back(next.ids[0]);
    all.text += next.text;
    all.logprob_bits.insert(all.logprob_bits.end(), next.logprob_bits.begin(), next.logprob_bits.end());
    all.saved = next.saved;
    all.finish = next.finish;
  }
  EXPECT_EQ(all.saved, nullptr);
  Outcome no_more;
  no_more.finish = all.finish;
  ExpectJoined(all, no_more, whole, "after every token");
}

TEST(SavedRequest, CancelledAnywhere_GoesOnAsItWas) {
  const GenerationOptions generation = {
      .max_new_tokens = kAnswerTokens, .temperature = 1.0f, .ignore_eos = true, .logprobs = 1};
  EngineDriver driver(testing::ResumedModel(), {.threads = 1, .prefill_chunk = 4});
  const Outcome whole = driver.Run(testing::ResumedPrompt(), generation);
  for (size_t steps = 0; steps < 12; ++steps) {  // 0: before anything is computed; 1, 2: in the prompt
    const RequestId id =
        driver.Submit({.prompt = testing::ResumedPrompt(), .generation = generation, .keep_state = true});
    for (size_t i = 0; i < steps; ++i) driver.Step();
    driver.engine().Cancel(id);
    driver.RunUntilIdle();
    const Outcome first = driver.outcome(id);
    ASSERT_EQ(first.finish, FinishReason::kCancelled);
    ASSERT_NE(first.saved, nullptr);
    EXPECT_EQ(ReadSaved(first).ids().size(), testing::ResumedPrompt().size() + first.ids.size());
    ExpectJoined(first, Resume(first, Way(steps, KvType::kF16)), whole, std::to_string(steps) + " steps");
  }
}

TEST(SavedRequest, MorePrompt_IsAsIfAllHadBeenSubmitted) {
  const GenerationOptions generation = {.max_new_tokens = 6,
                                        .temperature = 1.0f,
                                        .presence_penalty = 1.0f,
                                        .stop = {"\xC3\xA9 is long"},
                                        .ignore_eos = true,
                                        .logprobs = 1};
  EngineDriver driver(testing::ResumedModel(), {.threads = 1});
  const std::vector<int32_t> more = {60, 61, 62};
  for (const size_t steps : {1, 3, 20}) {
    EngineDriver first_driver(testing::ResumedModel(), {.threads = 1, .prefill_chunk = 4});
    const RequestId id =
        first_driver.Submit({.prompt = testing::ResumedPrompt(), .generation = generation, .keep_state = true});
    for (size_t i = 0; i < steps; ++i) first_driver.Step();
    first_driver.engine().Cancel(id);
    first_driver.RunUntilIdle();
    const Outcome first = first_driver.outcome(id);
    std::vector<int32_t> all = testing::ResumedPrompt();
    all.insert(all.end(), first.ids.begin(), first.ids.end());
    all.insert(all.end(), more.begin(), more.end());
    const Outcome expected = driver.Run(all, generation);
    const Outcome found = Resume(first, Way(steps, KvType::kF16), {.more_prompt = more});
    ExpectJoined({}, found, expected, std::to_string(steps) + " steps");
    EXPECT_EQ(found.stats.prompt_tokens, all.size());
    EXPECT_LT(found.stats.cached_tokens, all.size());
  }
}

}  // namespace
}  // namespace tidemill::engine_saved_bits_test
