// --chat-template and --chat-template-kwargs of run, chat and tokenize --chat; and the choice among a model's templates.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/cli/model_files.h"
#include "tests/cli/process.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_tokenizer_json.h"

namespace tidemill::testing::chat_template_flags_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr const char* kMessages = R"([{"role": "user", "content": "hi"}])";
constexpr const char* kWithTools = R"({"messages": [{"role": "user", "content": "hi"}], "tools": [{"name": "f"}]})";

std::string Output(const std::vector<std::string>& arguments, const ProcessOptions& options = {}) {
  const ProcessResult result = RunTidemill(arguments, options);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  return result.out;
}

std::string Rendered(const std::string& model, const std::string& chat, std::vector<std::string> more = {}) {
  std::vector<std::string> arguments = {"tokenize", model, "--chat", "-", "--render"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return Output(arguments, {.input = chat});
}

void ExpectError(const ProcessResult& result, int exit_code, const std::string& message) {
  EXPECT_EQ(result.exit_code, exit_code);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.err, "tidemill: " + message + "\n");
}

// A folder with a tokenizer, these files beside it, and no weights.
std::string TextFolder(const std::string& name, const std::vector<std::pair<std::string, std::string>>& files) {
  std::filesystem::create_directories(TestFolder() + "/" + name + "/chat_templates");
  WriteFile(name + "/tokenizer.json", TinyTokenizerJson(997));
  for (const auto& [file, text] : files) WriteFile(name + "/" + file, text);
  return TestFolder() + "/" + name;
}

TEST(ChatTemplateFlags, NamesOfTokenizerConfig_ChooseATemplate) {
  const std::string model = TextFolder("list", {{"tokenizer_config.json", R"({"chat_template": [
      {"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}, {"name": "rag", "template": "R"}]})"}});
  EXPECT_EQ(Rendered(model, kMessages), "D");
  EXPECT_EQ(Rendered(model, kWithTools), "T");
  EXPECT_EQ(Rendered(model, R"({"messages": [], "tools": null})"), "D");
  EXPECT_EQ(Rendered(model, kMessages, {"--chat-template", "rag"}), "R");
  EXPECT_EQ(Rendered(model, kWithTools, {"--chat-template", "default"}), "D");
}

TEST(ChatTemplateFlags, FilesOfTheFolder_GoBeforeTokenizerConfig) {
  const std::string model = TextFolder("files", {{"tokenizer_config.json", R"({"chat_template": "C"})"},
                                                 {"chat_templates/rag.jinja", "R"},
                                                 {"chat_templates/tool_use.jinja", "T"},
                                                 {"chat_templates/notes.txt", "{{"}});
  const std::string trouble = "chat templates: expected one that is named default, found \"rag\", \"tool_use\"";
  ExpectError(
      RunTidemill({"tokenize", model, "--chat", "-", "--render"}, {.input = kMessages}), 1,
      "render the chat: " + model + ": " + trouble + "; choose one with --chat-template, or tokenize a text instead");
  EXPECT_EQ(Rendered(model, kMessages, {"--chat-template", "rag"}), "R");
  WriteFile("files/chat_template.jinja", "J");
  EXPECT_EQ(Rendered(model, kMessages), "J");
  EXPECT_EQ(Rendered(model, kWithTools), "T");
}

TEST(ChatTemplateFlags, TooManyFiles_AreRefused) {
  const std::string model = TextFolder("many", {});
  for (int i = 0; i < 101; ++i) WriteFile("many/chat_templates/" + std::to_string(i) + ".jinja", "x");
  ExpectError(RunTidemill({"tokenize", model, "x"}), 1,
              "load tokenizer of " + model + ": chat_templates: expected at most 100 templates, found more");
}

TEST(ChatTemplateFlags, KeysOfGguf_ChooseATemplate) {
  const std::string model =
      WriteFile("named.gguf", BuildTinyLlama({.chat_template = "D", .more_templates = {{"rag", "R"}, {"bad", "{{"}}}));
  EXPECT_EQ(Rendered(model, kMessages), "D");
  EXPECT_EQ(Rendered(model, kMessages, {"--chat-template", "rag"}), "R");
  ExpectError(
      RunTidemill({"tokenize", model, "--chat", "-", "--chat-template", "bad"}, {.input = kMessages}), 1,
      "render the chat: --chat-template \"bad\": parse chat template: line 1, column 1: an expression is not closed: "
      "expected \"}}\"");
  ExpectError(RunTidemill({"chat", model, "--chat-template", "nope"}), 1,
              "render the chat: --chat-template \"nope\": expected a template of " + model +
                  " (\"default\", \"rag\", \"bad\") or a file, found neither; name one of them or a .jinja file");
}

TEST(ChatTemplateFlags, File_IsTheTemplateOfEachCommand) {
  const std::string none = WriteFile("no_template.gguf", BuildTinyLlama({.chat_template = ""}));
  const std::string file = WriteFile("own.jinja", "{{ messages[-1].content }}{{ ' deeply' if deeply else '' }}");
  const std::string kwargs = R"({"deeply": true})";
  EXPECT_EQ(Rendered(none, kMessages, {"--chat-template", file}), "hi");
  EXPECT_EQ(Rendered(none, kMessages, {"--chat-template", file, "--chat-template-kwargs", kwargs}), "hi deeply");
  const auto prompt_tokens = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"run", none, "-n", "1", "--json", "--temp", "0", "hi hi hi"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return json::parse(Output(arguments))["prompt_tokens"].get<int>();
  };
  const int plain = prompt_tokens({"--chat-template", file});
  EXPECT_GT(prompt_tokens({"--chat-template", file, "--chat-template-kwargs", kwargs}), plain);
  EXPECT_THAT(
      Output({"chat", none, "-n", "2", "--chat-template", file, "--chat-template-kwargs", kwargs}, {.input = "hi\n"}),
      HasSubstr("\n"));
}

TEST(ChatTemplateFlags, Kwargs_OfALineGoBeforeThoseOfTheCommand) {
  const std::string model =
      WriteFile("kwargs.gguf", BuildTinyLlama({.chat_template = "{{ a }}{{ 'long words to count' * b }}"}));
  const std::string chat = R"({"messages": [], "chat_template_kwargs": {"a": 2}})";
  EXPECT_EQ(Rendered(model, chat, {"--chat-template-kwargs", R"({"a": 1, "b": 1})"}), "2long words to count");
  const std::string lines = WriteFile("kwargs.jsonl", R"({"messages": [{"role": "user", "content": "x"}]}
{"messages": [{"role": "user", "content": "x"}], "chat_template_kwargs": {"b": 3}}
)");
  const std::string out =
      Output({"run", model, "--prompts", lines, "-n", "1", "--chat-template-kwargs", R"({"b": 1})"});
  const json first = json::parse(out.substr(0, out.find('\n'))), second = json::parse(out.substr(out.find('\n')));
  EXPECT_GT(second["prompt_tokens"], first["prompt_tokens"]) << out;
}

TEST(ChatTemplateFlags, WrongOnes_AreRefusedBeforeTheModelIsRead) {
  const std::string usage = "read the command line: --chat-template-kwargs: ";
  const std::string expected = usage + "expected a JSON object, as in '{\"enable_thinking\": false}', found ";
  ExpectError(RunTidemill({"run", "missing", "hi", "--chat-template-kwargs", "[1]"}), 2, expected + "an array");
  ExpectError(RunTidemill({"chat", "missing", "--chat-template-kwargs", "{"}), 2, expected + "\"{\"");
  ExpectError(RunTidemill({"tokenize", "missing", "--chat", "-", "--chat-template-kwargs", "enable_thinking=false"}), 2,
              expected + "\"enable_thinking=false\"");
  ExpectError(RunTidemill({"tokenize", "missing", "x", "--chat-template-kwargs", "{}"}), 2,
              "read the command line: --chat-template-kwargs requires --chat; see tidemill tokenize --help");
  EXPECT_EQ(RunTidemill({"run", "missing", "hi", "--raw", "--chat-template", "x"}).exit_code, 2);
  EXPECT_EQ(RunTidemill({"run", "missing", "--load-state", "x", "--chat-template", "x"}).exit_code, 2);
  ExpectError(RunTidemill({"run", CountingModelFile(), "hi", "--raw", "--chat-template-kwargs", "{}"}), 2,
              usage + "expected a chat, found a prompt without one; leave out one of both");
  const ProcessResult taken =
      RunTidemill({"run", CountingModelFile(), "hi", "--chat-template-kwargs", R"({"messages": []})"});
  ExpectError(taken, 2, "render chat template: variables: \"messages\" has a field of its own");
}

}  // namespace
}  // namespace tidemill::testing::chat_template_flags_test
