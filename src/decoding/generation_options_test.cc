#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "tidemill/generation.h"

namespace tidemill::generation_options_test {
namespace {

constexpr size_t kVocab = 100;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

// Empty if accepted.
std::string MessageOf(const GenerationOptions& options) {
  const auto result = Validate(options, kVocab);
  if (result.ok()) return "";
  EXPECT_EQ(result.error().code(), ErrorCode::kInvalidArgument);
  return result.error().message();
}

// Each value of `field` is refused by its flag, and the message is one line.
template <typename Field, typename Value>
void ExpectRefused(Field GenerationOptions::*field, const std::string& flag, std::initializer_list<Value> values) {
  for (const Value& value : values) {
    GenerationOptions options;
    options.*field = value;
    const std::string message = MessageOf(options);
    EXPECT_TRUE(message.starts_with("generation options: " + flag + ": expected "))
        << flag << " gave '" << message << "'";
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
}

template <typename Field, typename Value>
void ExpectAccepted(Field GenerationOptions::*field, std::initializer_list<Value> values) {
  for (const Value& value : values) {
    GenerationOptions options;
    options.*field = value;
    EXPECT_EQ(MessageOf(options), "");
  }
}

TEST(Validate, Defaults_AreAccepted) { EXPECT_EQ(MessageOf({}), ""); }

TEST(Validate, EachNumber_HasItsClosedRange) {
  constexpr int32_t kMax = std::numeric_limits<int32_t>::max();
  constexpr int32_t kMin = std::numeric_limits<int32_t>::min();
  using Options = GenerationOptions;
  ExpectAccepted(&Options::max_new_tokens, {1, kMax});
  ExpectRefused(&Options::max_new_tokens, "--max-new-tokens", {0, -1, kMin});
  ExpectAccepted(&Options::min_new_tokens, {0, kMax});
  ExpectRefused(&Options::min_new_tokens, "--min-new-tokens", {-1, kMin});
  ExpectAccepted(&Options::temperature, {0.0f, 1e-45f, 100.0f});
  ExpectRefused(&Options::temperature, "--temperature", {-0.1f, 100.1f, kNan, kInf, -kInf});
  ExpectAccepted(&Options::top_k, {0, 1, kMax});
  ExpectRefused(&Options::top_k, "--top-k", {-1, kMin});
  ExpectAccepted(&Options::top_p, {1e-45f, 0.5f, 1.0f});
  ExpectRefused(&Options::top_p, "--top-p", {0.0f, -0.5f, 1.001f, kNan, kInf});
  ExpectAccepted(&Options::min_p, {0.0f, 1.0f});
  ExpectRefused(&Options::min_p, "--min-p", {-0.01f, 1.001f, kNan, kInf});
  ExpectAccepted(&Options::repetition_penalty, {0.01f, 1.0f, 100.0f});
  ExpectRefused(&Options::repetition_penalty, "--repetition-penalty", {0.0f, -1.0f, 100.1f, kNan, kInf});
  ExpectAccepted(&Options::presence_penalty, {-2.0f, 2.0f});
  ExpectRefused(&Options::presence_penalty, "--presence-penalty", {-2.1f, 2.1f, kNan, kInf, -kInf});
  ExpectAccepted(&Options::frequency_penalty, {-2.0f, 2.0f});
  ExpectRefused(&Options::frequency_penalty, "--frequency-penalty", {-2.1f, 2.1f, kNan, kInf, -kInf});
  ExpectAccepted(&Options::no_repeat_ngram_size, {0, 1, 1024});
  ExpectRefused(&Options::no_repeat_ngram_size, "--no-repeat-ngram-size", {-1, 1025, kMin});
  ExpectAccepted(&Options::logprobs, {-1, 0, 20});
  ExpectRefused(&Options::logprobs, "--logprobs", {-2, 21, kMin});
  ExpectAccepted(&Options::seed, {uint64_t{0}, std::numeric_limits<uint64_t>::max()});
}

TEST(Validate, Message_NamesFlagRangeAndValue) {
  EXPECT_EQ(MessageOf({.top_p = 1.5f}),
            "generation options: --top-p: expected a number above 0, at most 1 (1 is off), found 1.5");
  EXPECT_EQ(MessageOf({.temperature = kNan}),
            "generation options: --temperature: expected a number in 0..100 (0 is greedy), found nan");
  EXPECT_EQ(MessageOf({.logit_bias = {{3, 1.0f}, {100, 1.0f}}}),
            "generation options: --logit-bias: expected a token id below the number of tokens 100, found 100");
}

TEST(Validate, MinNewTokens_StaysBelowMaxNewTokens) {
  EXPECT_EQ(MessageOf({.max_new_tokens = 5, .min_new_tokens = 5}), "");
  EXPECT_EQ(MessageOf({.max_new_tokens = 5, .min_new_tokens = 6}),
            "generation options: --min-new-tokens: expected a number in 0..5 (at most --max-new-tokens), found 6");
}

TEST(Validate, LogitBias_RefusesIdsValuesAndTooMany) {
  using Bias = decltype(GenerationOptions::logit_bias);
  ExpectAccepted(&GenerationOptions::logit_bias,
                 {Bias{{0, -100.0f}, {99, 100.0f}}, Bias{{5, 1.0f}, {5, 1.0f}}, Bias(1024, {1, 0.0f})});
  ExpectRefused(&GenerationOptions::logit_bias, "--logit-bias",
                {Bias{{-1, 0.0f}}, Bias{{100, 0.0f}}, Bias{{std::numeric_limits<int32_t>::min(), 0.0f}},
                 Bias{{0, kNan}}, Bias{{0, kInf}}, Bias{{0, 100.1f}}, Bias{{0, -100.1f}}, Bias(1025, {1, 0.0f})});
}

TEST(Validate, OptionsOfFiles_RefuseIdsAndTooMany) {
  using Options = GenerationOptions;
  using Ids = std::vector<int32_t>;
  using Words = std::vector<Ids>;
  ExpectAccepted(&Options::max_length, {std::optional(1), std::optional(std::numeric_limits<int32_t>::max())});
  ExpectRefused(&Options::max_length, "max_length", {std::optional(0), std::optional(-1)});
  for (auto [field, name] : {std::pair{&Options::suppress_tokens, "suppress_tokens"},
                             {&Options::begin_suppress_tokens, "begin_suppress_tokens"},
                             {&Options::forced_eos_token_id, "forced_eos_token_id"}}) {
    ExpectAccepted(field, {Ids{}, Ids{0, 99}, Ids(65536, 1)});
    ExpectRefused(field, name, {Ids{-1}, Ids{1, 100}, Ids(65537, 1)});
  }
  ExpectAccepted(&Options::forced_bos_token_id, {std::optional(0), std::optional(99)});
  ExpectRefused(&Options::forced_bos_token_id, "forced_bos_token_id", {std::optional(-1), std::optional(100)});
  ExpectAccepted(&Options::bad_words_ids, {Words{{1}, {-7, 5000, 99}}, Words(4096, Ids{1}), Words{Ids(256, 1)}});
  ExpectRefused(&Options::bad_words_ids, "bad_words_ids",
                {Words{{}}, Words{{1}, {1, 100}}, Words{{-1}}, Words(4097, Ids{1}), Words{Ids(257, 1)}});
}

TEST(Validate, Stop_RefusesTooManyEmptyLongAndNotUtf8) {
  using Stop = decltype(GenerationOptions::stop);
  ExpectAccepted(&GenerationOptions::stop,
                 {Stop{"\n"}, Stop{std::string(256, 'x')}, Stop(16, "a"), Stop{std::string(1, 0)},
                  Stop{"\u00e9\u20ac\U0001F600"}, Stop{"\xF4\x8F\xBF\xBF", "\xED\x9F\xBF"}});
  ExpectRefused(&GenerationOptions::stop, "--stop",
                {Stop{""}, Stop{std::string(257, 'x')}, Stop(17, "a"), Stop{"a", "\x80"}, Stop{"\xC3"},
                 Stop{"\xC0\x80"}, Stop{"\xE0\x80\x80"}, Stop{"\xED\xA0\x80"}, Stop{"\xF0\x8F\xBF\xBF"},
                 Stop{"\xF4\x90\x80\x80"}, Stop{"\xF5\x80\x80\x80"}, Stop{"\xE2\x82"}, Stop{"ab\xFF"}});
}

TEST(FinishReasonName, EachReason_IsSpelledAsReported) {
  EXPECT_EQ(FinishReasonName(FinishReason::kStop), "stop");
  EXPECT_EQ(FinishReasonName(FinishReason::kLength), "length");
  EXPECT_EQ(FinishReasonName(FinishReason::kEos), "eos");
  EXPECT_EQ(FinishReasonName(FinishReason::kCancelled), "cancelled");
}

}  // namespace
}  // namespace tidemill::generation_options_test
