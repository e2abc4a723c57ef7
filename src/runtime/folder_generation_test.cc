// What the settings of generation in a model's files recommend.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "runtime/model_impl.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/model_folder.h"
#include "tests/support/safetensors_writer.h"

namespace tidemill::folder_generation_test {
namespace {

using testing::ModelFolder;
using ::testing::StartsWith;

ModelFolder& AddBasics(ModelFolder& folder) {
  return folder.Write("config.json", "{}").Write("model.safetensors", testing::SafetensorsWriter().Build());
}

RecommendedGeneration Recommended(const Result<RecommendedGeneration>& recommended) {
  EXPECT_TRUE(recommended.ok()) << recommended.error().message();
  return recommended.ok() ? *recommended : RecommendedGeneration{};
}

RecommendedGeneration RecommendedBy(const std::string& generation_config) {
  ModelFolder folder;
  AddBasics(folder).Write("generation_config.json", generation_config);
  return Recommended(ReadRecommendation(folder.Open()));
}

RecommendedGeneration RecommendedBy(testing::GgufWriter& writer) {
  ModelFolder folder;
  folder.Write("model.gguf", writer.SetString("general.architecture", "llama").Build());
  const auto files = ModelFiles::Open(folder.path() + "/model.gguf");
  EXPECT_TRUE(files.ok()) << files.error().message();
  return Recommended(ReadRecommendation(*files));
}

void ExpectGreedy(const RecommendedGeneration& found) {
  EXPECT_EQ(found.options.temperature, 0.0f);
  EXPECT_EQ(found.options.top_k, 0);
  EXPECT_EQ(found.options.top_p, 1.0f);
  EXPECT_EQ(found.options.min_p, 0.0f);
}

TEST(FolderGeneration, KeysThatChangeTheAnswer_AreObeyed) {
  const GenerationOptions options =
      RecommendedBy(R"({"no_repeat_ngram_size": 3, "min_new_tokens": 4, "suppress_tokens": [7, 9]})").options;
  EXPECT_EQ(options.no_repeat_ngram_size, 3);
  EXPECT_EQ(options.min_new_tokens, 4);
  EXPECT_EQ(options.suppress_tokens, (std::vector<int32_t>{7, 9}));
  for (const char* wrong :
       {R"({"no_repeat_ngram_size": -1})", R"({"min_new_tokens": "x"})", R"({"suppress_tokens": 3})",
        R"({"suppress_tokens": [-4]})", R"({"max_new_tokens": 0})", R"({"max_length": -1})",
        R"({"max_new_tokens": 3, "min_new_tokens": 4})", R"({"bad_words_ids": [3]})", R"({"bad_words_ids": [[]]})",
        R"({"bad_words_ids": [[1, "x"]]})", R"({"forced_bos_token_id": [1]})", R"({"forced_eos_token_id": -1})",
        R"({"stop_strings": 3})", R"({"stop_strings": [3]})", R"({"begin_suppress_tokens": 7})"}) {
    ModelFolder folder;
    AddBasics(folder).Write("generation_config.json", wrong);
    EXPECT_FALSE(ReadRecommendation(folder.Open()).ok()) << wrong;
  }
}

TEST(FolderGeneration, Lengths_AreKeptApart) {
  const GenerationOptions both = RecommendedBy(R"({"max_new_tokens": 30, "max_length": 20})").options;
  EXPECT_EQ(both.max_new_tokens, 30);
  EXPECT_EQ(both.max_length, 20);
  const GenerationOptions none = RecommendedBy(R"({"max_new_tokens": null})").options;
  EXPECT_FALSE(none.max_new_tokens || none.max_length);
}

TEST(FolderGeneration, ForcedAndSuppressedTokens_AreRead) {
  const GenerationOptions options =
      RecommendedBy(R"({"forced_bos_token_id": 4, "forced_eos_token_id": 5, "begin_suppress_tokens": [6, 7],
                        "stop_strings": "end"})")
          .options;
  EXPECT_EQ(options.forced_bos_token_id, 4);
  EXPECT_EQ(options.forced_eos_token_id, std::vector<int32_t>{5});
  EXPECT_EQ(options.begin_suppress_tokens, (std::vector<int32_t>{6, 7}));
  EXPECT_EQ(options.stop, std::vector<std::string>{"end"});
  const GenerationOptions lists =
      RecommendedBy(R"({"forced_eos_token_id": [5, 6], "stop_strings": ["a", "b"]})").options;
  EXPECT_EQ(lists.forced_eos_token_id, (std::vector<int32_t>{5, 6}));
  EXPECT_EQ(lists.stop, (std::vector<std::string>{"a", "b"}));
}

// As transformers has it, which leaves a list of an end-of-sequence token alone out.
TEST(FolderGeneration, BadWords_AreReadWithoutEndTokens) {
  using Words = std::vector<std::vector<int32_t>>;
  EXPECT_EQ(RecommendedBy(R"({"bad_words_ids": [[1], [2, 1], [9]], "eos_token_id": [1, 9]})").options.bad_words_ids,
            (Words{{2, 1}}));
  EXPECT_EQ(RecommendedBy(R"({"bad_words_ids": [[1], [2, 1]]})").options.bad_words_ids, (Words{{1}, {2, 1}}));
}

TEST(FolderGeneration, WithoutSamplingKeys_RecommendsNothingButItsPenalty) {
  for (const char* text : {"{}", R"({"eos_token_id": 1, "max_length": 20, "temperature": null})"}) {
    const RecommendedGeneration nothing = RecommendedBy(text);
    ExpectGreedy(nothing);
    EXPECT_EQ(nothing.options.repetition_penalty, 1.0f);
    EXPECT_FALSE(nothing.says_how_to_choose);
  }
  const RecommendedGeneration penalty = RecommendedBy(R"({"repetition_penalty": 1.1})");
  ExpectGreedy(penalty);
  EXPECT_EQ(penalty.options.repetition_penalty, 1.1f);
  EXPECT_FALSE(penalty.says_how_to_choose);
}

TEST(FolderGeneration, DoSampleFalse_RecommendsGreedyWhateverElseItSays) {
  const RecommendedGeneration greedy =
      RecommendedBy(R"({"do_sample": false, "temperature": 0.7, "top_p": 0.5, "repetition_penalty": 1.1})");
  ExpectGreedy(greedy);
  EXPECT_EQ(greedy.options.repetition_penalty, 1.1f);
  EXPECT_TRUE(greedy.says_how_to_choose);
  EXPECT_TRUE(RecommendedBy(R"({"do_sample": false})").says_how_to_choose);
}

TEST(FolderGeneration, WithSampling_HasTransformersDefaultsAndTheFilesNumbers) {
  const RecommendedGeneration defaults = RecommendedBy(R"({"do_sample": true})");
  EXPECT_TRUE(defaults.says_how_to_choose);
  EXPECT_EQ(defaults.options.temperature, 1.0f);
  EXPECT_EQ(defaults.options.top_k, 50);
  EXPECT_EQ(defaults.options.top_p, 1.0f);
  EXPECT_EQ(defaults.options.min_p, 0.0f);
  for (const std::string begin : {"{\"do_sample\": true, ", "{"}) {
    const RecommendedGeneration given =
        RecommendedBy(begin + R"("temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.05})");
    EXPECT_TRUE(given.says_how_to_choose);
    EXPECT_EQ(given.options.temperature, 0.6f);
    EXPECT_EQ(given.options.top_k, 20);
    EXPECT_EQ(given.options.top_p, 0.95f);
    EXPECT_EQ(given.options.min_p, 0.05f);
  }
}

TEST(FolderGeneration, ATopKOfMinusOne_IsAllTokens) {
  EXPECT_EQ(RecommendedBy(R"({"do_sample": true, "top_k": -1})").options.top_k, 0);
}

TEST(FolderGeneration, OneSamplingKeyWithoutDoSample_MeansToSample) {
  for (const std::string key : {"temperature", "top_k", "top_p", "min_p"}) {
    const RecommendedGeneration found = RecommendedBy("{\"" + key + "\": 1}");
    EXPECT_TRUE(found.says_how_to_choose) << key;
    EXPECT_EQ(found.options.temperature, 1.0f) << key;
  }
}

TEST(GgufGeneration, KeysOfSampling_AreARecommendation) {
  testing::GgufWriter nothing;
  const RecommendedGeneration none = RecommendedBy(nothing);
  ExpectGreedy(none);
  EXPECT_FALSE(none.says_how_to_choose);
  testing::GgufWriter writer;
  writer.Set<float>("general.sampling.temp", 0.6f).Set<int32_t>("general.sampling.top_k", 20);
  writer.Set<float>("general.sampling.top_p", 0.95f).Set<float>("general.sampling.min_p", 0.05f);
  const RecommendedGeneration all = RecommendedBy(writer);
  EXPECT_TRUE(all.says_how_to_choose);
  EXPECT_EQ(all.options.temperature, 0.6f);
  EXPECT_EQ(all.options.top_k, 20);
  EXPECT_EQ(all.options.top_p, 0.95f);
  EXPECT_EQ(all.options.min_p, 0.05f);
  testing::GgufWriter one;
  one.Set<int32_t>("general.sampling.top_k", 20);
  const RecommendedGeneration top_k = RecommendedBy(one);
  EXPECT_TRUE(top_k.says_how_to_choose);
  EXPECT_EQ(top_k.options.temperature, 1.0f);
  EXPECT_EQ(top_k.options.top_k, 20);
  testing::GgufWriter warm;
  warm.Set<float>("general.sampling.temp", 0.6f);
  EXPECT_EQ(RecommendedBy(warm).options.top_k, 50) << "as for the folder that it was made from";
}

TEST(FolderGeneration, WrongType_IsRefusedByFileAndKey) {
  ModelFolder folder;
  AddBasics(folder).Write("generation_config.json", R"({"do_sample": "yes"})");
  const auto options = ReadRecommendation(folder.Open());
  ASSERT_FALSE(options.ok());
  EXPECT_EQ(options.error().code(), ErrorCode::kCorruptFile);
  EXPECT_THAT(options.error().message(), StartsWith("generation_config.json: \"do_sample\": expected "));
}

// A range wider than Validate's would accept a file whose every request is refused; a narrower one would refuse a good file.
TEST(NumberRanges, EndsAndJustBeyond_AreAsValidateSays) {
  const struct {
    NumberRange range;
    float GenerationOptions::*field;
  } cases[] = {{kTemperatures, &GenerationOptions::temperature},
               {kTopPs, &GenerationOptions::top_p},
               {kMinPs, &GenerationOptions::min_p},
               {kRepetitionPenalties, &GenerationOptions::repetition_penalty}};
  for (const auto& c : cases) {
    const auto accepts = [&](float value) {
      GenerationOptions options;
      options.*c.field = value;
      return Validate(options, 1).ok();
    };
    const auto low = static_cast<float>(c.range.low), high = static_cast<float>(c.range.high);
    EXPECT_TRUE(accepts(low) && accepts(high)) << c.range.expected;
    EXPECT_FALSE(accepts(low == std::numeric_limits<float>::min() ? 0.0f : std::nextafter(low, -1e9f)))
        << c.range.expected;
    EXPECT_FALSE(accepts(std::nextafter(high, 1e9f))) << c.range.expected;
  }
}

// What is read is valid but for ids of tokens and what Validate alone knows; the rest is refused by its key.
TEST(FolderGeneration, EveryKeyWithEveryKindOfValue_IsReadOrRefusedByName) {
  const char* keys[] = {"repetition_penalty",
                        "no_repeat_ngram_size",
                        "min_new_tokens",
                        "max_new_tokens",
                        "max_length",
                        "bad_words_ids",
                        "forced_bos_token_id",
                        "forced_eos_token_id",
                        "suppress_tokens",
                        "begin_suppress_tokens",
                        "stop_strings",
                        "do_sample",
                        "temperature",
                        "top_k",
                        "top_p",
                        "min_p"};
  const char* values[] = {"null",       "true",
                          "false",      "0",
                          "1",          "-1",
                          "3",          "1.5",
                          "-0.5",       "1e300",
                          "2147483648", "99999999999999999999",
                          R"("")",      R"("a")",
                          "[]",         "[1]",
                          "[-1]",       "[1.5]",
                          R"(["a"])",   "[[]]",
                          "[[1]]",      "[[1, 2], [3]]",
                          "[[[1]]]",    "[null]",
                          "{}",         R"({"a": 1})",
                          "[[1], 2]",   "[2147483648]"};
  size_t read = 0, refused = 0;
  for (const std::string key : keys) {
    for (const char* value : values) {
      ModelFolder folder;
      AddBasics(folder).Write("generation_config.json", "{\"" + key + "\": " + value + "}");
      const auto recommended = ReadRecommendation(folder.Open());
      if (recommended.ok()) {
        ++read;
        static_cast<void>(Validate(recommended->options, 4));
        continue;
      }
      ++refused;
      EXPECT_EQ(recommended.error().code(), ErrorCode::kCorruptFile) << key << " " << value;
      EXPECT_NE(recommended.error().message().find("generation_config.json: \"" + key), std::string::npos)
          << recommended.error().message();
    }
  }
  EXPECT_GT(read, 50U);
  EXPECT_GT(refused, 250U);
}

}  // namespace
}  // namespace tidemill::folder_generation_test
