// tidemill run: one completion.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "cli/errors.h"
#include "cli/flag_groups.h"
#include "cli/flags.h"
#include "cli/json.h"
#include "cli/session.h"
#include "cli/text_source.h"

namespace tidemill::cli {
namespace {

struct RunFlags {
  std::string model;
  TextSource text;
  bool chat = false;
  bool raw = false;
  std::optional<std::string> system;
  bool stats = false;
  bool json = false;
  GenerationFlags generation;
  MachineFlags machine;
};

void AddFlags(FlagSet& set, RunFlags& flags) {
  set.Positional("MODEL", flags.model, "A .gguf file or a model folder");
  set.OptionalPositional("TEXT", flags.text.positional, "The prompt; - is standard input");
  flags.text.AddTo(set, true);
  set.Switch("--chat", flags.chat, "Through the model's chat template (if it has one)");
  set.Switch("--raw", flags.raw, "As it is: text that spells a special token becomes that token");
  set.Excludes("--chat", "--raw");
  set.Text("--system", flags.system, "TEXT", "A system message before the prompt");
  set.Switch("--stats", flags.stats, "Times and sizes on stderr");
  set.Switch("--json", flags.json, "One JSON object instead of the text");
  flags.generation.AddTo(set);
  flags.machine.AddTo(set);
}

// By default a chat if the model has a template. A rendered chat gets no second beginning-of-sequence token.
Result<std::vector<int32_t>> EncodePrompt(const Model& model, const RunFlags& flags, const std::string& prompt) {
  const ModelText& text = model.text();
  const bool is_chat = flags.chat || (!flags.raw && text.chat_template.has_value());
  if (!is_chat) {
    if (flags.system)
      return UsageError("--system", "expected a chat, found a prompt without one; leave out one of both");
    return text.tokenizer.Encode(prompt);
  }
  std::vector<ChatMessage> messages;
  if (flags.system) messages.push_back({.role = "system", .content = *flags.system, .more_json = ""});
  messages.push_back({.role = "user", .content = prompt, .more_json = ""});
  TIDEMILL_TRY(rendered, RenderChat(text, std::move(messages)));
  return text.tokenizer.Encode(rendered, {.add_special = false, .parse_special = true});
}

// A vocabulary may lack bytes; the tokenizer leaves them out, and the user should know.
void WarnAboutDroppedBytes(const Tokenizer& tokenizer, const std::string& prompt, Messages& messages) {
  for (const uint8_t byte : tokenizer.dropped_bytes()) {
    const size_t offset = prompt.find(static_cast<char>(byte));
    if (offset != std::string::npos) {
      messages.Warning("the prompt has byte " + std::to_string(byte) + " at offset " + std::to_string(offset) +
                       ", for which the vocabulary has no token; it is left out");
      return;
    }
  }
}

Json LogprobsJson(const Answer& answer, const Tokenizer& tokenizer) {
  Json list = Json::array();
  for (const AnswerToken& token : answer.tokens) {
    Json top = Json::array();
    for (const TokenLogprob& other : token.top_logprobs) {
      top.push_back({{"id", other.id}, {"token", tokenizer.TokenName(other.id)}, {"logprob", other.logprob}});
    }
    list.push_back(
        {{"id", token.id}, {"token", tokenizer.TokenName(token.id)}, {"logprob", token.logprob}, {"top", top}});
  }
  return list;
}

Json AnswerJson(const Answer& answer, const Session& session, const GenerationOptions& options) {
  const RequestStats& stats = answer.stats;
  const double decoded = stats.generated_tokens > 0 ? static_cast<double>(stats.generated_tokens - 1) : 0;
  Json ids = Json::array();
  for (const AnswerToken& token : answer.tokens) ids.push_back(token.id);
  Json json;
  json["text"] = answer.text;
  json["ids"] = std::move(ids);
  json["prompt_tokens"] = stats.prompt_tokens;
  json["generated_tokens"] = stats.generated_tokens;
  json["finish_reason"] = FinishReasonName(answer.finish);
  json["timings"] = {
      {"load_ms", session.load_ms},
      {"prefill_ms", stats.prefill_ms},
      {"first_token_ms", stats.first_token_ms},
      {"decode_ms", stats.decode_ms},
      {"prefill_tokens_per_s", TokensPerSecond(static_cast<double>(stats.prompt_tokens), stats.prefill_ms)},
      {"decode_tokens_per_s", TokensPerSecond(decoded, stats.decode_ms)}};
  json["state"] = {{"bytes", stats.state_bytes},
                   {"policy", KvPolicyName(session.engine->kv_policy())},
                   {"reserved_bytes", stats.growth.reserved_bytes},
                   {"growths", stats.growth.growths},
                   {"bytes_copied", stats.growth.bytes_copied}};
  json["numeric_class"] = session.engine->numeric_class();
  json["seed"] = options.seed;
  if (options.logprobs >= 0) json["logprobs"] = LogprobsJson(answer, session.model->text().tokenizer);
  return json;
}

}  // namespace

Result<void> RunCommand(CommandContext& context) {
  RunFlags flags;
  FlagSet set("run", "Stream one completion to standard output");
  AddFlags(set, flags);
  TIDEMILL_TRY(go_on, set.Parse(context));
  if (!go_on) return {};
  TIDEMILL_TRY_VOID(flags.generation.CheckRanges());
  if (flags.generation.logprobs && !flags.json) return UsageError("--logprobs", "shown with --json only; add it");
  TIDEMILL_TRY(prompt, flags.text.Read("read the prompt", "give one with -p, or talk with tidemill chat MODEL"));
  if (flags.system) TIDEMILL_TRY_VOID(CheckUtf8("read the prompt", "--system", *flags.system));

  TIDEMILL_TRY(session, OpenSession(flags.model, flags.machine, context));
  const Model& model = *session.model;
  WarnAboutDroppedBytes(model.text().tokenizer, prompt, context.messages);
  const GenerationOptions options = flags.generation.ApplyTo(model.default_generation());
  TIDEMILL_TRY(ids, EncodePrompt(model, flags, prompt));
  const auto show = [&](const std::string& text) -> Result<void> {
    if (flags.json) return {};
    return context.out.WriteModelText(text);
  };
  std::optional<SignalWatch::Grace> grace;  // until what was generated is written, also as JSON
  grace.emplace(context.signals, nullptr);
  TIDEMILL_TRY(answer, Generate(*session.engine, {.prompt = ids, .generation = options}, context.signals, show));
  if (flags.json) {
    TIDEMILL_TRY_VOID(context.out.Write(JsonLine(AnswerJson(answer, session, options))));
  } else {
    TIDEMILL_TRY_VOID(context.out.EndLineOnTerminal(answer.text));
  }
  grace.reset();
  if (flags.stats) context.messages.Say(DescribeAnswer(answer, session, options.seed));
  return {};
}

}  // namespace tidemill::cli
