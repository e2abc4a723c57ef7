// Compares with jinja2 under transformers' settings: tests/fixtures/chat_templates/goldens.json, which
// tools/make_template_goldens.py writes. A template that fails there must fail here; otherwise every byte is equal.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "tests/fixtures_path.h"
#include "tidemill/chat.h"

namespace tidemill::chat_template_golden_test {
namespace {

using json = nlohmann::ordered_json;  // the order of keys is part of what templates print

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// TIDEMILL_TEMPLATE_GOLDENS names another file, for templates that cannot be part of the repository; each stands in the
// folder of that file.
std::filesystem::path GoldenFile() {
  const char* other = std::getenv("TIDEMILL_TEMPLATE_GOLDENS");
  return other != nullptr ? std::filesystem::path(other)
                          : std::filesystem::path(TIDEMILL_FIXTURES) / "chat_templates" / "goldens.json";
}

const json& Goldens() {
  static const json goldens = json::parse(ReadFile(GoldenFile()));
  return goldens;
}

ChatRenderInput BasicInput() {
  const json& now = Goldens()["now"];
  ChatRenderInput input;
  input.bos_token = "<s>";
  input.eos_token = "</s>";
  input.now = ChatTime{now[0], now[1], now[2], now[3], now[4], now[5]};
  return input;
}

// Parse and render; the error as text if either fails.
struct Outcome {
  std::string text;
  std::string error;
};

Outcome Attempt(const std::string& source, const std::string& conversation, const ChatRenderInput& input) {
  const Result<ChatTemplate> parsed = ChatTemplate::Parse(source);
  if (!parsed.ok()) return {"", parsed.error().message()};
  const Result<PromptText> prompt = parsed->RenderJson(conversation, input);
  if (!prompt.ok()) return {"", prompt.error().message()};
  size_t end = 0;
  for (const ByteRange& range : prompt->caller) {  // the contract of PromptText
    EXPECT_LT(range.begin, range.end);
    EXPECT_TRUE(range.begin >= end);
    end = range.end;
  }
  EXPECT_LE(end, prompt->text.size());
  return {prompt->text, ""};
}

void ExpectGolden(const json& golden, const Outcome& outcome, const std::string& what) {
  if (golden.contains("error")) {
    EXPECT_FALSE(outcome.error.empty()) << what << "\njinja2: " << golden["error"] << "\nhere: " << outcome.text;
  } else {
    EXPECT_EQ(outcome.error, "") << what << "\njinja2: " << golden["output"].get<std::string>();
    if (outcome.error.empty()) {
      EXPECT_EQ(outcome.text, golden["output"].get<std::string>()) << what;
    }
  }
}

TEST(ChatTemplateGolden, EveryTemplateWithEveryConversation_MatchesJinja) {
  std::map<std::string, std::string> sources;
  for (const json& render : Goldens()["renders"]) {
    const std::string name = render["template"];
    if (!sources.contains(name)) sources[name] = ReadFile(GoldenFile().parent_path() / name);
    const json& conversation = Goldens()["conversations"][render["conversation"].get<std::string>()];
    json document = {{"messages", conversation["messages"]}};
    for (const char* key : {"tools", "documents"}) {
      if (conversation.contains(key)) document[key] = conversation[key];
    }
    if (conversation.contains("variables")) document["chat_template_kwargs"] = conversation["variables"];
    ChatRenderInput input = BasicInput();
    input.add_generation_prompt = conversation.value("add_generation_prompt", true);
    ExpectGolden(render, Attempt(sources[name], document.dump(), input),
                 name + " with " + render["conversation"].get<std::string>());
  }
  EXPECT_GE(sources.size(), 1u);
}

TEST(ChatTemplateGolden, EverySnippet_MatchesJinja) {
  if (std::getenv("TIDEMILL_TEMPLATE_GOLDENS") != nullptr) GTEST_SKIP() << "other goldens have no snippets";
  ChatRenderInput input = BasicInput();
  input.variables_json = Goldens()["variables"].dump();
  EXPECT_GE(Goldens()["snippets"].size(), 300u);
  for (const json& snippet : Goldens()["snippets"]) {
    const std::string source = snippet["source"];
    ExpectGolden(snippet, Attempt(source, "[]", input), source);
  }
}

}  // namespace
}  // namespace tidemill::chat_template_golden_test
