// The text side of a folder in Hugging Face's layout: tokenizer.json, special tokens, chat template.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "runtime/model_impl.h"
#include "tests/fixtures_path.h"
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
                                        "save_pretrained of a fast tokenizer writes it), or tokenizer.model, or "
                                        "vocab.json and merges.txt");
}

// As a model has them that also reads images.
TEST(FolderText, TokensOfTheLanguageModel_AreFoundInTextConfig) {
  ModelFolder folder;
  AddBasics(folder, R"({"eos_token_id": null, "text_config": {"eos_token_id": [1, 3]}})")
      .Write("tokenizer.json", TokenizerJson());
  const auto text = LoadText(folder.path());
  ASSERT_TRUE(text.ok()) << text.error().message();
  EXPECT_EQ(text->eos_token, "<|endoftext|>");
  EXPECT_TRUE(text->tokenizer.IsEndOfGeneration(3));

  ModelFolder wrong;
  AddBasics(wrong, R"({"text_config": {"eos_token_id": 803}})").Write("tokenizer.json", TokenizerJson());
  const auto refused = LoadText(wrong.path());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message(),
            "load tokenizer of " + wrong.path() +
                ": config.json: \"text_config.eos_token_id\": expected ids below the tokenizer's 803, found 803");
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
            "chat templates: expected one that is named default, found \"a\", \"b\"");
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
