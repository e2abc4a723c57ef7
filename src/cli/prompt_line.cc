#include "cli/prompt_line.h"

#include <limits>
#include <utility>

#include "cli/conversation.h"
#include "cli/errors.h"
#include "cli/flags.h"
#include "cli/id_lists.h"
#include "cli/numbers.h"

namespace tidemill::cli {
namespace {

Error Wrong(const std::string& what) { return Error(ErrorCode::kInvalidArgument, "read the line: " + what); }

Error WrongMember(const std::string& name, const std::string& expected, const Json& found) {
  std::string text =
      found.is_structured() ? found.type_name() : found.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 40) text = text.substr(0, 37) + "...";
  return Wrong(Quoted(name) + ": expected " + expected + ", found " + text);
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

constexpr const char* kOthers[] = {"id", "prompt", "messages", "ids", "seed", "stop", "ignore_eos", "logit_bias"};

bool IsWhole(const Json& value) {  // of int32_t
  if (value.is_number_unsigned()) return value.get<uint64_t>() <= uint64_t{std::numeric_limits<int32_t>::max()};
  return value.is_number_integer() && value.get<int64_t>() >= std::numeric_limits<int32_t>::min();
}

Result<void> ReadStop(const Json& value, std::vector<std::string>* stop) {
  if (value.is_string()) {
    stop->push_back(value.get<std::string>());
    return {};
  }
  if (!value.is_array()) return WrongMember("stop", "a string or a list of strings", value);
  for (const Json& text : value) {
    if (!text.is_string()) return WrongMember("stop", "a string or a list of strings", value);
    stop->push_back(text.get<std::string>());
  }
  return {};
}

Result<void> ReadBiases(const Json& value, std::vector<std::pair<int32_t, float>>* biases) {
  if (!value.is_object()) return WrongMember("logit_bias", "an object of id and bias, as in {\"42\": -100}", value);
  for (const auto& [name, bias] : value.items()) {
    const auto id = ParseNumber<int32_t>(name);
    if (!id || !bias.is_number())
      return WrongMember("logit_bias", "an object of id and bias, as in {\"42\": -100}", value);
    biases->emplace_back(*id, bias.get<float>());
  }
  return {};
}

// True where `name` is a number among the flags.
Result<bool> ReadNumber(const std::string& name, const Json& value, GenerationFlags* flags) {
  for (const WholeMember& member : kWhole) {
    if (name != member.name) continue;
    if (!IsWhole(value)) return WrongMember(name, "a whole number", value);
    flags->*member.target = value.get<int32_t>();
    return true;
  }
  for (const RealMember& member : kReal) {
    if (name != member.name) continue;
    if (!value.is_number()) return WrongMember(name, "a number", value);
    flags->*member.target = value.get<float>();
    return true;
  }
  return false;
}

Result<void> ReadMember(const std::string& name, Json& value, PromptLine* line) {
  TIDEMILL_TRY(is_number, ReadNumber(name, value, &line->generation));
  if (is_number) return {};
  if (name == "prompt") {
    if (!value.is_string()) return WrongMember(name, "a string", value);
    line->prompt = value.get<std::string>();
  } else if (name == "messages") {
    TIDEMILL_TRY(messages, MessagesFrom("\"messages\"", value));
    if (messages.empty()) return WrongMember(name, "at least one message", value);
    line->messages = std::move(messages);
  } else if (name == "ids") {
    TIDEMILL_TRY(lists, IdListsFrom("\"ids\"", value));
    if (lists.is_nested) return WrongMember(name, "one list of ids", value);
    line->ids = std::move(lists.lists.front());
  } else if (name == "seed") {
    if (!value.is_number_unsigned()) return WrongMember(name, "a whole number from 0", value);
    line->generation.seed = value.get<uint64_t>();
  } else if (name == "stop") {
    return ReadStop(value, &line->stop.emplace());
  } else if (name == "ignore_eos") {
    if (!value.is_boolean()) return WrongMember(name, "true or false", value);
    line->ignore_eos = value.get<bool>();
  } else if (name == "logit_bias") {
    return ReadBiases(value, &line->logit_bias.emplace());
  } else if (name != "id") {
    std::vector<std::string> names(std::begin(kOthers), std::end(kOthers));
    for (const WholeMember& member : kWhole) names.emplace_back(member.name);
    for (const RealMember& member : kReal) names.emplace_back(member.name);
    const auto nearest = Nearest(name, names);
    return Wrong(Quoted(name) + ": no such member; " +
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

Result<PromptLine> ParsePromptLine(std::string_view text, Json* id) {
  *id = nullptr;
  TIDEMILL_TRY(json, ParseJson("read the line", text));
  if (!json->is_object()) return Wrong(std::string("expected a JSON object, found ") + json->type_name());
  if (const auto found = json->find("id"); found != json->end()) {
    if (!found->is_string() && !found->is_number()) return WrongMember("id", "a string or a number", *found);
    *id = *found;
  }
  PromptLine line;
  line.id = *id;
  for (auto& [name, value] : json->get_ref<Json::object_t&>()) TIDEMILL_TRY_VOID(ReadMember(name, value, &line));
  const int prompts = (line.prompt ? 1 : 0) + (line.messages.empty() ? 0 : 1) + (line.ids.empty() ? 0 : 1);
  if (prompts != 1) {
    return Wrong("expected one of \"prompt\", \"messages\" and \"ids\", found " +
                 (prompts == 0 ? std::string("none") : std::to_string(prompts)));
  }
  return line;
}

}  // namespace tidemill::cli
