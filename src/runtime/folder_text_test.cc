// The text side of a folder in Hugging Face's layout: tokenizer.json, special tokens, chat template, generation_config.json.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>

#include "runtime/model_impl.h"
#include "tests/fixtures_path.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/model_folder.h"
#include "tests/support/safetensors_writer.h"
#include "tidemill/engine.h"

namespace tidemill::folder_text_test {
namespace {

using testing::ModelFolder;
using ::testing::StartsWith;

std::string Fixture(const std::string& name) {
  std::ifstream file(std::string(TIDEMILL_FIXTURES) + "/" + name, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(file)), {});
  EXPECT_FALSE(bytes.empty()) << name << " is missing";
  return bytes;
}

// 803 tokens: 0 is <|begin_of_text|>, which it puts in front, 1 <|endoftext|>, 2 <|im_start|>, 3 <|im_end|>.
std::string TokenizerJson() { return Fixture("tokenizer_json/llama3_like.json"); }

// No weights: text needs none.
ModelFolder& AddBasics(ModelFolder& folder, const std::string& config = "{}") {
  return folder.Write("config.json", config).Write("model.safetensors", testing::SafetensorsWriter().Build());
}

std::string Rendered(const ModelText& text) {
  ChatRenderInput input;
  input.messages.emplace_back();
  input.messages[0].role = "user";
  input.messages[0].content = "Hi";
  const auto prompt = text.chat_template->Render(input);
  EXPECT_TRUE(prompt.ok());
  return prompt.ok() ? prompt->text : "";
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

TEST(FolderText, TokenizerAndSpecialTokens_ComeFromTheFolder) {
  ModelFolder folder;
  AddBasics(folder, R"({"bos_token_id": 0, "eos_token_id": 1})").Write("tokenizer.json", TokenizerJson());
  const auto text = LoadText(folder.path());
  ASSERT_TRUE(text.ok()) << text.error().message();
  EXPECT_EQ(text->tokenizer.vocab_size(), 803U);
  EXPECT_EQ(text->bos_token, "<|begin_of_text|>");
  EXPECT_EQ(text->eos_token, "<|endoftext|>");
  EXPECT_TRUE(text->tokenizer.IsEndOfGeneration(1));
  EXPECT_FALSE(text->chat_template.has_value());

  const auto ids = text->tokenizer.Encode("What is it?");
  ASSERT_TRUE(ids.ok()) << ids.error().message();
  EXPECT_EQ(ids->front(), 0);
  const auto decoded = text->tokenizer.Decode(*ids, false);
  ASSERT_TRUE(decoded.ok()) << decoded.error().message();
  EXPECT_EQ(*decoded, "What is it?");
}

TEST(FolderText, EndTokensOfGenerationConfig_ComeBeforeThoseOfConfig) {
  ModelFolder folder;
  AddBasics(folder, R"({"eos_token_id": 2})")
      .Write("tokenizer.json", TokenizerJson())
      .Write("generation_config.json", R"({"eos_token_id": [1, 400]})");
  const auto text = LoadText(folder.path());
  ASSERT_TRUE(text.ok()) << text.error().message();
  EXPECT_EQ(text->eos_token, "<|endoftext|>");
  EXPECT_TRUE(text->tokenizer.IsEndOfGeneration(1));
  EXPECT_TRUE(text->tokenizer.IsEndOfGeneration(400));
  EXPECT_FALSE(text->tokenizer.IsEndOfGeneration(2));
}

TEST(FolderText, ChatTemplate_OfItsOwnFileComesBeforeTokenizerConfig) {
  ModelFolder folder;
  AddBasics(folder)
      .Write("tokenizer.json", TokenizerJson())
      .Write("tokenizer_config.json", R"({"chat_template": "{{ messages[0]['content'] }}!"})");
  const auto config_only = LoadText(folder.path());
  ASSERT_TRUE(config_only.ok()) << config_only.error().message();
  ASSERT_TRUE(config_only->chat_template.has_value());
  EXPECT_EQ(Rendered(*config_only), "Hi!");

  folder.Write("chat_template.jinja", Fixture("chat_templates/chatml.jinja"));
  const auto both = LoadText(folder.path());
  ASSERT_TRUE(both.ok()) << both.error().message();
  EXPECT_EQ(Rendered(*both), "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

TEST(FolderText, NoTokenizer_IsNotFound) {
  ModelFolder folder;
  AddBasics(folder);
  const auto text = LoadText(folder.path());
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(text.error().message(), "load tokenizer of " + folder.path() +
                                        ": tokenizer.json: not in the folder; text needs it (transformers' "
                                        "save_pretrained of a fast tokenizer writes it)");
}

TEST(FolderText, IdsPastTheVocabulary_AreRefusedByFileAndKey) {
  ModelFolder folder;
  AddBasics(folder)
      .Write("tokenizer.json", TokenizerJson())
      .Write("generation_config.json", R"({"eos_token_id": 803})");
  const auto text = LoadText(folder.path());
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.error().code(), ErrorCode::kCorruptFile);
  EXPECT_EQ(text.error().message(),
            "load tokenizer of " + folder.path() +
                ": generation_config.json: \"eos_token_id\": expected ids below the tokenizer's 803, found 803");
}

TEST(FolderText, TemplateThatDoesNotParse_IsTheFilesFault) {
  ModelFolder folder;
  AddBasics(folder).Write("tokenizer.json", TokenizerJson()).Write("chat_template.jinja", "{% if %}");
  const auto text = LoadText(folder.path());
  ASSERT_TRUE(text.ok()) << "plain text needs none: " << text.error().message();
  EXPECT_FALSE(text->chat_template.has_value());
  EXPECT_THAT(text->chat_template_trouble, StartsWith("chat template: parse chat template: line 1, "));
}

TEST(FolderText, NamedTemplates_TheDefaultIsTheOne) {
  const auto of = [](const std::string& templates) {
    ModelFolder folder;
    AddBasics(folder)
        .Write("tokenizer.json", TokenizerJson())
        .Write("tokenizer_config.json", R"({"chat_template": )" + templates + "}");
    auto text = LoadText(folder.path());
    EXPECT_TRUE(text.ok()) << text.error().message();
    return std::move(text).value();
  };
  EXPECT_EQ(Rendered(of(R"([{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}])")), "D");
  EXPECT_EQ(of(R"([{"name": "a", "template": "T"}, {"name": "b", "template": "U"}])").chat_template_trouble,
            "chat templates: expected one that is named default, found a, b");
  EXPECT_THAT(of("[1]").chat_template_trouble, StartsWith("tokenizer_config.json: "));
  EXPECT_THAT(of("7").chat_template_trouble, StartsWith("tokenizer_config.json: \"chat_template\": expected a string"));
}

TEST(FolderText, SpecialTokensOfTheTemplate_ComeFromTokenizerConfig) {
  ModelFolder folder;
  AddBasics(folder, R"({"bos_token_id": 0, "eos_token_id": 1})")
      .Write("tokenizer.json", TokenizerJson())
      .Write("tokenizer_config.json",
             R"({"bos_token": null, "eos_token": {"content": "<e>", "lstrip": false}, "pad_token": "<p>",
        "unk_token": null, "extra_special_tokens": {"image_token": "<i>", "audio_token": {"content": "<a>"}},
        "chat_template": "{{ bos_token }}|{{ eos_token }}|{{ pad_token }}|{{ unk_token }}|{{ image_token }}{{ audio_token }}"})");
  const auto text = LoadText(folder.path());
  ASSERT_TRUE(text.ok()) << text.error().message();
  EXPECT_EQ(text->bos_token, "");
  EXPECT_EQ(text->eos_token, "<e>");
  EXPECT_TRUE(text->tokenizer.IsEndOfGeneration(1)) << "ids end a text, not spellings";
  using Tokens = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(text->special_tokens, (Tokens{{"pad_token", "<p>"}, {"image_token", "<i>"}, {"audio_token", "<a>"}}));
}

TEST(FolderText, TokenizerThatDoesNotParse_IsNamed) {
  ModelFolder folder;
  AddBasics(folder).Write("tokenizer.json", "{");
  const auto text = LoadText(folder.path());
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.error().code(), ErrorCode::kCorruptFile);
  EXPECT_THAT(text.error().message(), StartsWith("load tokenizer of " + folder.path() + ": tokenizer.json: "));
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

TEST(ModelLoad, WithoutText_NeedsNoTokenizerAndTakesNoRequests) {
  const std::string folder = std::string(TIDEMILL_FIXTURES) + "/families/qwen3";
  const auto model = Model::Load(folder, {.threads = 1, .progress = {}, .text = false});
  ASSERT_TRUE(model.ok()) << model.error().message();
  const Tokenizer& tokenizer = (*model)->text().tokenizer;
  EXPECT_EQ(tokenizer.vocab_size(), 0U);
  EXPECT_EQ(tokenizer.Encode("Hello <s> 1")->size(), 0U);
  EXPECT_EQ(tokenizer.TokenBytes(0), "");
  const auto engine = Engine::Create(*model, {.threads = 1});
  ASSERT_TRUE(engine.ok()) << engine.error().message();
  const auto refused = (*engine)->Submit({.prompt = {1}, .generation = {}});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(refused.error().message(),
            "submit request: the model was loaded without its tokenizer; load it with LoadOptions::text");
}

TEST(ModelLoad, TokenizerLargerThanTheModel_IsRefusedWithTheNumberThatTheFilesGive) {
  ModelFolder folder;
  folder.Write("config.json", Fixture("families/gpt2/config.json"))
      .Write("model.safetensors", Fixture("families/gpt2/model.safetensors"))
      .Write("tokenizer.json", TokenizerJson());
  const auto model = Model::Load(folder.path(), {.threads = 1, .progress = {}});
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.error().code(), ErrorCode::kCorruptFile);
  EXPECT_EQ(model.error().message(),
            "load " + folder.path() +
                ": tokenizer: expected at most 128 tokens, the \"vocab_size\" of config.json, found 803");
}

}  // namespace
}  // namespace tidemill::folder_text_test
