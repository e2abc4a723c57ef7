#include "cli/prompt_line.h"

#include <limits>
#include <utility>

#include "cli/errors.h"
#include "cli/flags.h"
#include "cli/id_lists.h"
#include "cli/numbers.h"

namespace tidemill::cli {
namespace {

Error WrongLine(const std::string& what) { return Error(ErrorCode::kInvalidArgument, "read the line: " + what); }

Error WrongMember(std::string_view name, const std::string& expected, const JsonValue& found) {
  return WrongLine(Quoted(name) + ": expected " + expected + ", found " + found.Describe());
}

struct WholeMember {
  const char* name;
  std::optional<int32_t> GenerationFlags::*target;
};
constexpr WholeMember kWhole[] = {{"max_new_tokens", &GenerationFlags::max_new_tokens},
                                  {"min_new_tokens", &GenerationFlags::min_new_tokens},
                                  {"top_k", &GenerationFlags::top_k},
                                  {"no_repeat_ngram_size", &GenerationFlags::no_repeat_ngram_size},
                                  {"logprobs", &GenerationFlags::logprobs}};

struct RealMember {
  const char* name;
  std::optional<float> GenerationFlags::*target;
};
constexpr RealMember kReal[] = {{"temperature", &GenerationFlags::temperature},
                                {"top_p", &GenerationFlags::top_p},
                                {"min_p", &GenerationFlags::min_p},
                                {"repetition_penalty", &GenerationFlags::repetition_penalty},
                                {"presence_penalty", &GenerationFlags::presence_penalty},
                                {"frequency_penalty", &GenerationFlags::frequency_penalty}};

constexpr const char* kOthers[] = {"id",  "prompt", "messages", "tools",      "chat_template_kwargs",
                                   "ids", "seed",   "stop",     "ignore_eos", "logit_bias"};

Result<void> ReadStop(const JsonValue& value, std::vector<std::string>* stop) {
  if (value.is_string()) {
    stop->emplace_back(value.text());
    return {};
  }
  if (!value.is_array()) return WrongMember("stop", "a string or a list of strings", value);
  for (const JsonValue& text : value.Elements()) {
    if (!text.is_string()) return WrongMember("stop", "a string or a list of strings", value);
    stop->emplace_back(text.text());
  }
  return {};
}

Result<void> ReadBiases(const JsonValue& value, std::vector<std::pair<int32_t, float>>* biases) {
  if (!value.is_object()) return WrongMember("logit_bias", "an object of id and bias, as in {\"42\": -100}", value);
  for (const auto& [name, bias] : value.Members()) {
    const auto id = ParseNumber<int32_t>(name);
    const bool is_ban = bias.is_string() && bias.text() == "-inf";
    if (!id || (!bias.is_number() && !is_ban))
      return WrongMember("logit_bias", "an object of id and bias, as in {\"42\": -100}", value);
    const double number = is_ban ? -std::numeric_limits<double>::infinity() : bias.GetFloat("").value();
    biases->emplace_back(*id, static_cast<float>(number));
  }
  return {};
}

// True where `name` is a number among the flags.
Result<bool> ReadNumber(std::string_view name, const JsonValue& value, GenerationFlags* flags) {
  for (const WholeMember& member : kWhole) {
    if (name != member.name) continue;
    const auto whole = value.GetInt("", std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max());
    if (!whole.ok()) return WrongMember(name, "a whole number", value);
    flags->*member.target = static_cast<int32_t>(*whole);
    return true;
  }
  for (const RealMember& member : kReal) {
    if (name != member.name) continue;
    if (!value.is_number()) return WrongMember(name, "a number", value);
    flags->*member.target = static_cast<float>(value.GetFloat("").value());
    return true;
  }
  return false;
}

// As OpenAI's: the content is a text, a list of parts, or null or missing beside calls of tools.
Result<void> CheckMessages(const JsonValue& list) {
  if (!list.is_array()) return WrongMember("messages", "a list of messages", list);
  if (list.size() == 0) return WrongLine("\"messages\": expected at least one message, found an empty list");
  size_t number = 0;
  for (const JsonValue& message : list.Elements()) {
    const std::string where = "messages\" " + std::to_string(number++) + ": \"";
    if (!message.is_object()) return WrongMember("messages", "objects in the list", message);
    const auto role = message.Member("role"), content = message.Member("content");
    if (!role || !role->is_string()) return WrongMember(where + "role", "a string", role.value_or(message));
    const bool has_content = content && !content->is_null();
    if (has_content && !content->is_string() && !content->is_array())
      return WrongMember(where + "content", "a string, a list of parts or null", *content);
  }
  return {};
}

Result<void> ReadMember(std::string_view name, const JsonValue& value, PromptLine* line) {
  TIDEMILL_TRY(is_number, ReadNumber(name, value, &line->generation));
  if (is_number) return {};
  if (const auto expected = ReadAttentionMember(name, value, &line->attention)) {
    if (!expected->empty()) return WrongMember(name, *expected, value);
    return {};
  }
  if (name == "prompt") {
    if (!value.is_string()) return WrongMember(name, "a string", value);
    line->prompt = std::string(value.text());
  } else if (name == "messages") {
    TIDEMILL_TRY_VOID(CheckMessages(value));
    line->messages = Json(value);
  } else if (name == "tools") {
    if (!value.is_array()) return WrongMember(name, "a list of tools", value);
    line->tools = Json(value);
  } else if (name == "chat_template_kwargs") {
    if (!value.is_object()) return WrongMember(name, "an object of variables", value);
    line->chat_template_kwargs = Json(value);
  } else if (name == "ids") {
    TIDEMILL_TRY(lists, IdListsFrom("\"ids\"", value));
    if (lists.is_nested) return WrongMember(name, "one list of ids", value);
    line->ids = std::move(lists.lists.front());
  } else if (name == "seed") {
    const auto seed = value.GetUint("", 0, std::numeric_limits<uint64_t>::max());
    if (!seed.ok()) return WrongMember(name, "a whole number from 0", value);
    line->generation.seed = *seed;
  } else if (name == "stop") {
    return ReadStop(value, &line->stop.emplace());
  } else if (name == "ignore_eos") {
    if (!value.is_bool()) return WrongMember(name, "true or false", value);
    line->ignore_eos = value.GetBool("").value();
  } else if (name == "logit_bias") {
    return ReadBiases(value, &line->logit_bias.emplace());
  } else if (name != "id") {
    std::vector<std::string> names(std::begin(kOthers), std::end(kOthers));
    for (const WholeMember& member : kWhole) names.emplace_back(member.name);
    for (const RealMember& member : kReal) names.emplace_back(member.name);
    names.insert(names.end(), kAttentionMembers.begin(), kAttentionMembers.end());
    const auto nearest = Nearest(name, names);
    return WrongLine(Quoted(name) + ": no such member; " +
                     (nearest ? "did you mean \"" + *nearest + "\"?" : "docs/cli.md lists them"));
  }
  return {};
}

}  // namespace

GenerationOptions PromptLine::ApplyTo(GenerationOptions options) const {
  options = generation.ApplyTo(std::move(options));
  if (stop) options.stop = *stop;
  if (logit_bias) options.logit_bias = *logit_bias;
  options.ignore_eos = ignore_eos.value_or(options.ignore_eos);
  return options;
}

std::string PromptLine::ChatJson() const {
  Json chat;
  chat["messages"] = *messages;
  if (tools) chat["tools"] = *tools;
  if (chat_template_kwargs) chat["chat_template_kwargs"] = *chat_template_kwargs;
  return chat.dump();
}

Result<PromptLine> ParsePromptLine(std::string_view text, Json* id) {
  *id = nullptr;
  TIDEMILL_TRY(json, ParseJson("read the line", text));
  if (!json.is_object()) return WrongLine("expected a JSON object, found " + json.Describe());
  if (const auto found = json.Member("id")) {
    if (!found->is_string() && !found->is_number()) return WrongMember("id", "a string or a number", *found);
    *id = Json(*found);
  }
  PromptLine line;
  line.id = *id;
  for (const auto& [name, value] : json.Members()) TIDEMILL_TRY_VOID(ReadMember(name, value, &line));
  const int prompts = (line.prompt ? 1 : 0) + (line.messages ? 1 : 0) + (line.ids.empty() ? 0 : 1);
  if (!line.messages && (line.tools || line.chat_template_kwargs)) {
    return WrongLine("\"tools\" and \"chat_template_kwargs\": expected \"messages\" beside them, found none");
  }
  if (prompts != 1) {
    return WrongLine("expected one of \"prompt\", \"messages\" and \"ids\", found " +
                     (prompts == 0 ? std::string("none") : std::to_string(prompts)));
  }
  return line;
}

}  // namespace tidemill::cli
