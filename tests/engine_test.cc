// The public Engine with models whose answers are known: how requests end, what is refused, and Score.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "decoding/sampler.h"
#include "tests/support/engine_driver.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_vocabulary.h"
#include "tidemill/measure.h"

namespace tidemill::engine_test {
namespace {

using ::testing::AllOf;
using testing::BuildCountingModel;
using testing::BuildTinyLlama;
using ::testing::Each;
using testing::EngineDriver;
using ::testing::Ge;
using testing::kTinyFirstByteToken;
using testing::LoadModel;
using ::testing::Lt;
using testing::Outcome;

constexpr int32_t kEos = 300;

// After token t comes t + 1.
std::shared_ptr<const Model> CountingModel() {
  static const auto model =
      LoadModel("engine_counting", BuildCountingModel({.vocab = 400, .context = 64, .eos_token = kEos}));
  return model;
}

std::shared_ptr<const Model> TinyModel() {
  static const auto model =
      LoadModel("engine_tiny", BuildTinyLlama({.vocab = 300, .context = 64, .dtype = DType::kQ8_0}));
  return model;
}

std::vector<int32_t> Range(int32_t first, size_t count) {
  std::vector<int32_t> ids(count);
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

int32_t ByteToken(char c) { return kTinyFirstByteToken + c; }

const EngineOptions kOneThread = {.threads = 1};

TEST(Engine, BlocksWiderThanAHead_AreRefusedByName) {
  const auto engine = Engine::Create(TinyModel(), {.threads = 1, .kv_type = KvType::kQ8_0});
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.error().code(), ErrorCode::kUnsupported);
  EXPECT_EQ(
      engine.error().message(),
      "start engine: --kv-dtype q8_0: expected a head_dim that is a multiple of 32, found 16; choose f16, bf16 or "
      "f32");
}

TEST(Engine, CountingModel_Counts) {
  EngineDriver driver(CountingModel(), kOneThread);
  const Outcome outcome = driver.Run({7, 9, ByteToken('a')}, {.max_new_tokens = 5});
  EXPECT_EQ(outcome.fault, "");
  EXPECT_EQ(outcome.ids, Range(ByteToken('b'), 5));
  EXPECT_EQ(outcome.text, "bcdef");
  EXPECT_EQ(outcome.finish, FinishReason::kLength);
  EXPECT_EQ(outcome.stats.prompt_tokens, 3U);
  EXPECT_EQ(outcome.stats.generated_tokens, 5U);
  EXPECT_GT(outcome.stats.state_bytes, 0U);
  EXPECT_TRUE(driver.engine().idle());
  EXPECT_EQ(driver.Step(), 0U);
}

TEST(Engine, Eos_EndsAndHasNoText) {
  EngineDriver driver(CountingModel(), kOneThread);
  const Outcome outcome = driver.Run({kEos - 3}, {.max_new_tokens = 20});
  EXPECT_EQ(outcome.ids, Range(kEos - 2, 3));
  EXPECT_EQ(outcome.finish, FinishReason::kEos);
  EXPECT_EQ(outcome.text.find("im_end"), std::string::npos);
  const Outcome ignoring = driver.Run({kEos - 3}, {.max_new_tokens = 20, .ignore_eos = true});
  EXPECT_EQ(ignoring.ids, Range(kEos - 2, 20));
  EXPECT_EQ(ignoring.finish, FinishReason::kLength);
}

TEST(Engine, StopString_EndsBeforeItsText) {
  EngineDriver driver(CountingModel(), kOneThread);
  const Outcome outcome = driver.Run({ByteToken('a')}, {.max_new_tokens = 20, .stop = {"zz", "ef"}});
  EXPECT_EQ(outcome.finish, FinishReason::kStop);
  EXPECT_EQ(outcome.text, "bcd");
  EXPECT_EQ(outcome.ids, Range(ByteToken('b'), 5));
}

// Its own text is empty: it ends the answer all the same.
TEST(Engine, StopStringOfASpecialToken_EndsThere) {
  EngineDriver driver(CountingModel(), kOneThread);
  const Outcome outcome = driver.Run({0}, {.max_new_tokens = 9, .stop = {"<|im_end|>"}, .ignore_eos = true});
  EXPECT_EQ(outcome.finish, FinishReason::kStop);
  EXPECT_EQ(outcome.ids, (std::vector<int32_t>{1, testing::kTinyEosToken}));
  // What is held back for another stop text comes out.
  const Outcome held = driver.Run({ByteToken('a')}, {.max_new_tokens = 3,
                                                     .forced_eos_token_id = {testing::kTinyEosToken},
                                                     .stop = {"bcX", "<|im_end|>"},
                                                     .ignore_eos = true});
  EXPECT_EQ(held.finish, FinishReason::kStop);
  EXPECT_EQ(held.text, "bc");
  EXPECT_EQ(driver.Run({0}, {.max_new_tokens = 9, .stop = {"<|im_end|"}, .ignore_eos = true}).ids.size(), 9U);
}

TEST(Engine, MaxLength_CountsPromptAndAnswerBehindMaxNewTokens) {
  EngineDriver driver(CountingModel(), kOneThread);
  EXPECT_EQ(driver.Run(Range(20, 4), {.max_length = 9}).ids.size(), 5U);
  EXPECT_EQ(driver.Run(Range(20, 4), {.max_length = 9}).finish, FinishReason::kLength);
  EXPECT_EQ(driver.Run(Range(20, 4), {.max_new_tokens = 7, .max_length = 9}).ids.size(), 7U);
  EXPECT_EQ(driver.Run(Range(20, 10), {.max_new_tokens = 2, .max_length = 9}).ids.size(), 2U);
  EXPECT_EQ(driver.Run(Range(20, 4), {.max_length = 9, .min_new_tokens = 50}).ids.size(), 5U);
  for (const size_t prompt : {size_t{9}, size_t{10}}) {
    const auto refused = driver.engine().Submit({.prompt = Range(20, prompt), .generation = {.max_length = 9}});
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code(), ErrorCode::kContextFull);
    EXPECT_EQ(refused.error().message(), "submit request: the prompt has " + std::to_string(prompt) +
                                             " tokens: max_length, of prompt and answer, is 9; shorten it or give "
                                             "--max-new-tokens");
  }
}

TEST(Engine, ForcedAndBannedTokens_AreThoseOfTheOptions) {
  EngineDriver driver(CountingModel(), kOneThread);
  EXPECT_EQ(driver.Run({20}, {.max_new_tokens = 3, .forced_bos_token_id = 50}).ids, Range(50, 3));
  EXPECT_EQ(driver.Run({20, 21}, {.max_new_tokens = 3, .forced_bos_token_id = 50}).ids, Range(22, 3));
  EXPECT_EQ(driver.Run({20}, {.max_new_tokens = 3, .forced_eos_token_id = {kEos}}).ids,
            (std::vector<int32_t>{21, 22, kEos}));
  EXPECT_NE(driver.Run({20}, {.max_new_tokens = 3, .bad_words_ids = {{20, 21}}}).ids[0], 21);
  EXPECT_EQ(driver.Run({20}, {.max_new_tokens = 3, .bad_words_ids = {{19, 21}}}).ids, Range(21, 3));
  EXPECT_NE(driver.Run({20}, {.max_new_tokens = 3, .begin_suppress_tokens = {21}}).ids[0], 21);
  EXPECT_EQ(driver.Run({20}, {.max_new_tokens = 3, .begin_suppress_tokens = {22}}).ids, Range(21, 3));
}

TEST(Engine, BeginningOfAStopString_ComesWithTheEnd) {
  EngineDriver driver(CountingModel(), kOneThread);
  const Outcome outcome = driver.Run({ByteToken('a')}, {.max_new_tokens = 3, .stop = {"cdX"}});
  EXPECT_EQ(outcome.finish, FinishReason::kLength);
  EXPECT_EQ(outcome.text, "bcd");
}

TEST(Engine, MaxNewTokensOfOne_GivesOne) {
  EngineDriver driver(CountingModel(), kOneThread);
  EXPECT_EQ(driver.Run({10}, {.max_new_tokens = 1}).ids, Range(11, 1));
}

TEST(Engine, PromptsAroundTheContext_EndWhereItIsFull) {
  for (const size_t chunk : {1, 3, 512}) {
    EngineDriver driver(CountingModel(), {.threads = 1, .context = 16, .prefill_chunk = chunk});
    ASSERT_EQ(driver.engine().context(), 16U);
    for (const size_t length : {1, 14, 15, 16}) {
      const auto prompt = Range(20, length);
      const Outcome outcome = driver.Run(prompt, {});
      EXPECT_EQ(outcome.fault, "");
      EXPECT_EQ(outcome.ids, Range(20 + static_cast<int32_t>(length), 17 - length)) << length;
      EXPECT_EQ(outcome.finish, FinishReason::kLength);
      EXPECT_FALSE(outcome.error.has_value());
    }
    const auto refused = driver.engine().Submit({.prompt = Range(20, 17), .generation = {}});
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code(), ErrorCode::kContextFull);
    EXPECT_NE(refused.error().message().find("17"), std::string::npos);
    EXPECT_NE(refused.error().message().find("16"), std::string::npos);
    EXPECT_TRUE(driver.engine().idle());
  }
}

TEST(Engine, WholeContextOfTheModel_CanBeUsed) {
  EngineDriver driver(CountingModel(), kOneThread);
  ASSERT_EQ(driver.engine().context(), 64U);
  EXPECT_EQ(driver.Run({20}, {}).ids.size(), 64U);
}

TEST(Engine, RopeScaling_AllowsAContextOfSoManyTimesTheModels) {
  const std::string bytes = BuildTinyLlama({.vocab = 300, .context = 64});
  const auto model = LoadModel("engine_yarn", bytes, false, RopeOverride{RopeKind::kYarn, 2.5});
  EXPECT_EQ(model->info().max_position_embeddings, 64U);
  const auto usual = Engine::Create(model, kOneThread);
  ASSERT_TRUE(usual.ok()) << usual.error().message();
  EXPECT_EQ((*usual)->context(), 64U);
  EXPECT_THAT((*usual)->numeric_class(), ::testing::EndsWith("/kv-f16/rope-yarn=2.5"));

  EngineDriver driver(model, {.threads = 1, .context = 160});
  EXPECT_EQ(driver.engine().context(), 160U);
  const Outcome outcome = driver.Run(Range(20, 150), {.ignore_eos = true});
  EXPECT_EQ(outcome.fault, "");
  EXPECT_EQ(outcome.ids.size(), 11U);
  EXPECT_EQ(outcome.finish, FinishReason::kLength);

  const auto past = Engine::Create(model, {.threads = 1, .context = 161});
  ASSERT_FALSE(past.ok());
  EXPECT_EQ(past.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(past.error().message(),
            "start engine: --context 161: expected at most 160, what --rope-scaling yarn=2.5 makes of the model's 64 "
            "tokens");
  const auto plain = Engine::Create(LoadModel("engine_plain", bytes), {.threads = 1, .context = 161});
  ASSERT_FALSE(plain.ok());
  EXPECT_EQ(plain.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(plain.error().message(),
            "start engine: --context 161: the model was made for 64 tokens; choose at most that or leave the flag out, "
            "or stretch its positions with --rope-scaling yarn=3");
}

TEST(Engine, RequestsThatAreWrong_AreRefused) {
  EngineDriver driver(CountingModel(), kOneThread);
  const auto code = [&](std::vector<int32_t> prompt, const GenerationOptions& generation) {
    const auto result = driver.engine().Submit({.prompt = std::move(prompt), .generation = generation});
    return result.ok() ? std::string("ok")
                       : std::string(ErrorCodeName(result.error().code())) + ": " + result.error().message();
  };
  EXPECT_EQ(code({}, {}), "InvalidArgument: submit request: the prompt is empty");
  EXPECT_THAT(code({1, 400}, {}),
              ::testing::StartsWith("InvalidArgument: submit request: token 1 of the prompt: id 400"));
  EXPECT_THAT(code({-1}, {}), ::testing::StartsWith("InvalidArgument: submit request: token 0 of the prompt: id -1"));
  EXPECT_THAT(code({1}, {.temperature = -1.0f}), ::testing::HasSubstr("--temperature"));
  EXPECT_THAT(code({1}, {.max_new_tokens = 0}), ::testing::StartsWith("InvalidArgument"));
  EXPECT_THAT(code({1}, {.logit_bias = {{400, 1.0f}}}), ::testing::StartsWith("InvalidArgument"));
  EXPECT_TRUE(driver.engine().idle());
}

TEST(Engine, OptionsThatAreWrong_AreRefused) {
  const auto code = [](const EngineOptions& options) {
    const auto engine = Engine::Create(CountingModel(), options);
    return engine.ok() ? std::string("ok") : std::string(ErrorCodeName(engine.error().code()));
  };
  EXPECT_EQ(code({.context = 65}), "InvalidArgument");
  EXPECT_EQ(code({.isa = "abacus"}), "InvalidArgument");
  EXPECT_EQ(code({.max_batch = 0}), "InvalidArgument");
  EXPECT_EQ(code({.max_batch = 1025}), "InvalidArgument");
  EXPECT_EQ(code({.prefill_chunk = 8193}), "InvalidArgument");
  EXPECT_EQ(code({.threads = 100000}), "InvalidArgument");
  EXPECT_EQ(code({.threads = 1, .context = 64, .max_batch = 1, .prefill_chunk = 1}), "ok");
}

TEST(Engine, CancelledBeforeItsFirstStep_EndsWithoutATokenAndLeavesOthers) {
  EngineDriver driver(CountingModel(), kOneThread);
  const RequestId first = driver.Submit({10}, {.max_new_tokens = 4});
  const RequestId second = driver.Submit({50}, {.max_new_tokens = 4});
  driver.engine().Cancel(first);
  driver.engine().Cancel(first);
  driver.engine().Cancel(12345);
  driver.RunUntilIdle();
  EXPECT_EQ(driver.outcome(first).finish, FinishReason::kCancelled);
  EXPECT_EQ(driver.outcome(first).last_events, 1U);
  EXPECT_TRUE(driver.outcome(first).ids.empty());
  EXPECT_EQ(driver.outcome(second).ids, Range(51, 4));
  driver.engine().Cancel(second);  // finished: nothing happens
  EXPECT_EQ(driver.Step(), 0U);
}

TEST(Engine, CancelledWhileTextIsHeldBack_GivesThatText) {
  EngineDriver driver(CountingModel(), kOneThread);
  const RequestId id = driver.Submit({ByteToken('a')}, {.stop = {"cdX"}});
  for (int i = 0; i < 3; ++i) driver.Step();
  EXPECT_EQ(driver.outcome(id).text, "b");
  driver.engine().Cancel(id);
  EXPECT_EQ(driver.Step(), 1U);
  EXPECT_EQ(driver.outcome(id).text, "bcd");
  EXPECT_EQ(driver.outcome(id).finish, FinishReason::kCancelled);
}

// Logits of Score, by position.
std::vector<std::vector<float>> ScoreAll(Engine& engine, const std::vector<int32_t>& ids, bool last_only) {
  std::vector<std::vector<float>> logits;
  size_t next = last_only ? ids.size() - 1 : 0;
  const auto result = engine.Score(ids, last_only, [&](size_t position, std::span<const float> row) -> Result<void> {
    EXPECT_EQ(position, next++);
    logits.emplace_back(row.begin(), row.end());
    return {};
  });
  EXPECT_TRUE(result.ok());
  return logits;
}

bool SameBits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(Engine, Score_HasTheSameBitsInAnyChunks) {
  const auto ids = Range(100, 40);
  EngineDriver whole(TinyModel(), {.threads = 1, .prefill_chunk = 64});
  const auto expected = ScoreAll(whole.engine(), ids, false);
  ASSERT_EQ(expected.size(), 40U);
  for (const size_t chunk : {1, 7, 33}) {
    EngineDriver driver(TinyModel(), {.threads = 2, .max_batch = 1, .prefill_chunk = chunk});
    const auto found = ScoreAll(driver.engine(), ids, false);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_TRUE(SameBits(found[i], expected[i])) << "chunk " << chunk << ", position " << i;
    const auto last = ScoreAll(driver.engine(), ids, true);
    ASSERT_EQ(last.size(), 1U);
    EXPECT_TRUE(SameBits(last[0], expected.back()));
  }
}

// Step chooses from the very logits that Score shows: a sampler over them says the same, log-probabilities included.
TEST(Engine, Score_ShowsTheLogitsOfStep) {
  const GenerationOptions generation = {
      .max_new_tokens = 20, .temperature = 1.5f, .top_k = 50, .ignore_eos = true, .seed = 3, .logprobs = 20};
  const auto prompt = Range(30, 10);
  EngineDriver driver(TinyModel(), kOneThread);
  const Outcome outcome = driver.Run(prompt, generation);
  ASSERT_EQ(outcome.ids.size(), 20U);
  auto ids = prompt;
  ids.insert(ids.end(), outcome.ids.begin(), outcome.ids.end());
  auto logits = ScoreAll(driver.engine(), ids, false);
  const auto eos = TinyModel()->text().tokenizer.end_of_generation_ids();
  auto sampler = Sampler::Create(generation, {.vocab_size = 300, .eos_ids = eos, .max_positions = 64});
  ASSERT_TRUE(sampler.ok());
  sampler->Prime(prompt);
  std::vector<uint32_t> bits;
  for (size_t i = 0; i < outcome.ids.size(); ++i) {
    const size_t position = prompt.size() + i;
    const auto token = sampler->Sample(logits[position - 1], static_cast<uint32_t>(position));
    ASSERT_TRUE(token.ok());
    EXPECT_EQ(token->id, outcome.ids[i]) << i;
    sampler->Accept(token->id);
    bits.push_back(std::bit_cast<uint32_t>(*token->logprob));
    for (const TokenLogprob& top : token->top()) {
      bits.push_back(static_cast<uint32_t>(top.id));
      bits.push_back(std::bit_cast<uint32_t>(top.logprob));
    }
  }
  EXPECT_EQ(bits, outcome.logprob_bits);
}

// The most likely row after token 399 is 400, which no token has.
TEST(Engine, RowsWithoutToken_AreNeverGenerated) {
  const auto model =
      LoadModel("engine_rows", BuildCountingModel({.vocab = 400, .context = 64, .rows_without_token = 60}));
  ASSERT_EQ(model->info().vocab_size, 460U);
  ASSERT_EQ(model->text().tokenizer.vocab_size(), 400U);
  EngineDriver driver(model, kOneThread);
  for (const float temperature : {0.0f, 1.0f, 100.0f}) {
    for (const int32_t top_k : {0, 50}) {
      const Outcome outcome = driver.Run({398}, {.max_new_tokens = 60,
                                                 .temperature = temperature,
                                                 .top_k = top_k,
                                                 .repetition_penalty = 1.1f,
                                                 .ignore_eos = true,
                                                 .logprobs = 20});
      EXPECT_EQ(outcome.fault, "");
      ASSERT_EQ(outcome.ids.size(), 60U);
      EXPECT_THAT(outcome.ids, Each(AllOf(Ge(0), Lt(400))));
    }
  }
  EXPECT_EQ(driver.Run({450}, {.max_new_tokens = 1, .repetition_penalty = 1.1f}).fault, "");
  EXPECT_FALSE(driver.engine().Submit({.prompt = {1}, .generation = {.logit_bias = {{400, 5.0f}}}}).ok());
  const auto logits = ScoreAll(driver.engine(), {399}, false);
  ASSERT_EQ(logits[0].size(), 460U);
  EXPECT_EQ(std::max_element(logits[0].begin(), logits[0].end()) - logits[0].begin(), 400);
}

TEST(Engine, ScoreOfWhatIsWrong_IsRefused) {
  EngineDriver driver(CountingModel(), {.threads = 1, .context = 16});
  size_t rows = 0;
  const auto code = [&](std::vector<int32_t> ids) {
    const auto result = driver.engine().Score(ids, false, [&](size_t, std::span<const float>) -> Result<void> {
      ++rows;
      return {};
    });
    return result.ok() ? std::string("ok") : std::string(ErrorCodeName(result.error().code()));
  };
  EXPECT_EQ(code({}), "InvalidArgument");
  EXPECT_EQ(code({3, 400}), "InvalidArgument");
  EXPECT_EQ(code({-1}), "InvalidArgument");
  EXPECT_EQ(code(Range(1, 17)), "ContextFull");
  const RequestId id = driver.Submit({10}, {.max_new_tokens = 2});
  EXPECT_EQ(code({1}), "FailedPrecondition");
  EXPECT_EQ(rows, 0U);
  driver.RunUntilIdle();
  EXPECT_EQ(driver.outcome(id).ids, Range(11, 2));
  EXPECT_EQ(code(Range(1, 16)), "ok");
  EXPECT_EQ(rows, 16U);
}

TEST(Engine, ErrorOfAScoreSink_EndsTheScore) {
  EngineDriver driver(CountingModel(), {.threads = 1, .max_batch = 1, .prefill_chunk = 2});
  size_t rows = 0;
  const auto result = driver.engine().Score(Range(1, 9), false, [&](size_t, std::span<const float>) -> Result<void> {
    if (++rows == 3) return Error(ErrorCode::kNoSpace, "full");
    return {};
  });
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code(), ErrorCode::kNoSpace);
  EXPECT_EQ(rows, 3U);
  EXPECT_EQ(driver.Run({10}, {.max_new_tokens = 2}).ids, Range(11, 2));
}

TEST(Perplexity, ShortestTexts_AreScored) {
  EngineDriver driver(TinyModel(), kOneThread);
  const auto measure = [&](size_t tokens, bool score_all) {
    return Perplexity(driver.engine(), *TinyModel(), Range(20, tokens), {.context = 16, .score_all = score_all}, {});
  };
  for (const size_t tokens : {2, 3, 4, 17}) {
    const auto half = measure(tokens, false), all = measure(tokens, true);
    ASSERT_TRUE(half.ok() && all.ok()) << tokens;
    EXPECT_EQ(half->windows, 1U) << tokens;
    EXPECT_EQ(half->scored_tokens, tokens == 17 ? 7U : 1U) << tokens;
    EXPECT_EQ(all->scored_tokens, std::min<size_t>(tokens, 16) - 1) << tokens;
    EXPECT_GT(half->perplexity, 1.0) << tokens;  // not NaN
    EXPECT_GT(all->perplexity, 1.0) << tokens;
  }
  for (const size_t tokens : {0, 1}) EXPECT_EQ(measure(tokens, false).error().code(), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace tidemill::engine_test
