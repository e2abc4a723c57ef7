// tidemill run: one completion, or one for each line of a file.
#include <cstddef>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "cli/errors.h"
#include "cli/flags.h"
#include "cli/generation_defaults.h"
#include "cli/json.h"
#include "cli/run_prompts.h"
#include "cli/saved_state.h"
#include "cli/session.h"

namespace tidemill::cli {
namespace {

void AddFlags(FlagSet& set, RunFlags& flags) {
  set.Positional("MODEL", flags.model, "A .gguf file or a model folder");
  set.OptionalPositional("TEXT", flags.text.positional, "The prompt; - is standard input");
  flags.text.AddTo(set, true);
  flags.form.AddTo(set);
  set.Switch("--stats", flags.stats, "Times and sizes on stderr");
  set.Switch("--json", flags.json, "One JSON object instead of the text");
  flags.state.AddTo(set);
  set.Excludes("--load-state", "--chat");
  set.Excludes("--load-state", "--system");
  set.Excludes("--load-state", "--chat-template");
  set.Excludes("--load-state", "--chat-template-kwargs");
  flags.generation.AddTo(set);
  flags.draft.AddTo(set);
  flags.machine.AddTo(set);
  flags.machine.AddPrefixCacheTo(set);
  set.Removed("--attention-backend", "attention always reads the rows that are there; leave it out");
  flags.prompts.AddTo(set);
  set.Excludes("--prompts", "--save-state");
  set.Excludes("--prompts", "--load-state");
  set.Excludes("--prompts", "--allow-repetition");
  flags.machine.AddSharingTo(set);
}

// With --load-state there need be none, and standard input is read only where - names it.
Result<std::string> ReadPrompt(const RunFlags& flags) {
  const TextSource& text = flags.text;
  if (flags.state.load_file && !text.positional && !text.prompt && !text.file) return std::string();
  return text.Read("read the prompt", "give one with -p, or talk with tidemill chat MODEL");
}

// Behind a saved text a prompt is raw and its middle.
Result<std::vector<int32_t>> EncodePrompt(const Model& model, const RunFlags& flags, const std::string& prompt) {
  if (!flags.state.load_file) {
    TIDEMILL_TRY(encoder, PromptEncoder::Create(model, flags.form));
    return encoder.Encode(prompt);
  }
  return model.text().tokenizer.Encode(prompt, {.add_special = false, .parse_special = true});
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

Result<void> RunMany(const RunFlags& flags, CommandContext& context) {
  if (flags.text.positional || flags.text.prompt || flags.text.file)
    return UsageError("--prompts", "expected no other prompt, found one; leave out one of both");
  return RunPrompts(flags, context);
}

}  // namespace

Result<void> RunCommand(CommandContext& context) {
  RunFlags flags;
  FlagSet set("run", "Stream one completion to standard output");
  AddFlags(set, flags);
  TIDEMILL_TRY(go_on, set.Parse(context));
  if (!go_on) return {};
  TIDEMILL_TRY_VOID(flags.generation.CheckRanges());
  TIDEMILL_TRY_VOID(flags.form.Check());
  TIDEMILL_TRY_VOID(flags.draft.Check());
  if (flags.prompts.file) return RunMany(flags, context);
  if (flags.generation.logprobs && !flags.json) return UsageError("--logprobs", "shown with --json only; add it");
  TIDEMILL_TRY(prompt, ReadPrompt(flags));
  TIDEMILL_TRY(saved, LoadState(flags.state));

  TIDEMILL_TRY(session, OpenSession(flags.model, flags.machine, flags.draft, context));
  const Model& model = *session.model;
  WarnAboutDroppedBytes(model.text().tokenizer, prompt, context.messages);
  const GenerationOptions options =
      saved ? flags.generation.ApplyTo(saved->generation()) : AnswerOptions(flags.generation, model);
  WarnAboutIdleFlags(flags.generation, options, "", context.messages);
  TIDEMILL_TRY(ids, EncodePrompt(model, flags, prompt));
  const auto show = [&](const std::string& text) -> Result<void> {
    if (flags.json) return {};
    return context.out.WriteModelText(text);
  };
  std::optional<SignalWatch::Grace> grace;  // until what was generated is written, also as JSON
  grace.emplace(context.signals, nullptr);
  TIDEMILL_TRY(state, StateOutput::Create(flags.state, context.out));
  const bool keep = state.is_wanted();
  const DraftOptions draft = flags.draft.options();
  const bool is_asked_for = flags.generation.max_new_tokens.has_value();
  TIDEMILL_TRY(id, saved ? session.engine->Resume(*saved, {.generation = options,
                                                           .more_prompt = ids,
                                                           .draft = draft,
                                                           .keep_state = keep,
                                                           .needs_room_for_all = is_asked_for})
                         : session.engine->Submit({.prompt = ids,
                                                   .generation = options,
                                                   .draft = draft,
                                                   .keep_state = keep,
                                                   .needs_room_for_all = is_asked_for}));
  saved.reset();
  std::shared_ptr<const std::vector<std::byte>> kept;
  Answer answer;
  const Result<void> generated = Generate(*session.engine, id, context.signals, show, &answer, &kept);
  const bool can_save = generated.ok() || kept != nullptr;  // also where nobody takes the text any more
  const Result<void> saved_state = can_save ? state.Write(kept) : Result<void>();
  if (!generated.ok()) {
    if (flags.json && !answer.tokens.empty())
      TIDEMILL_TRY_VOID(context.out.Write(JsonLine(FailureJson(answer, generated.error()))));
    return generated.error();
  }
  if (flags.json) {
    std::string line;
    try {
      line = JsonLine(AnswerJson(answer, model, *session.engine, session.load_ms, options));
    } catch (const std::bad_alloc&) {
      TIDEMILL_TRY_VOID(context.out.Write(JsonLine({{"text", answer.text}})));
      return Error(ErrorCode::kOutOfMemory,
                   "write the answer as JSON: memory: expected more than there is; its text alone was written");
    }
    TIDEMILL_TRY_VOID(context.out.Write(line));
  } else {
    TIDEMILL_TRY_VOID(context.out.EndLineOnTerminal(answer.text));
  }
  if (!saved_state.ok()) return saved_state.error();
  grace.reset();
  WarnAboutGrowth(answer.stats, context.messages);
  WarnAboutDrafts(answer.stats, context.messages);
  NoteAttention(answer.stats, flags.machine.attention, context.messages);
  WarnAboutEnd(answer, flags.generation, options, *session.engine, context.messages);
  if (flags.stats) context.messages.Say(DescribeAnswer(answer, session, options));
  return {};
}

}  // namespace tidemill::cli
