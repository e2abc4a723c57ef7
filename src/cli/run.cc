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
#include "cli/prompt_progress.h"
#include "cli/run_prompts.h"
#include "cli/run_text.h"
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
  TIDEMILL_TRY(given, ReadRunText(flags));
  TIDEMILL_TRY(saved, LoadState(flags.state));

  TIDEMILL_TRY(session, OpenSession(flags.model, flags.machine, flags.draft, context));
  const Model& model = *session.model;
  WarnAboutDroppedBytes(model.text().tokenizer, given, context.messages);
  const GenerationOptions options =
      saved ? flags.generation.ApplyTo(saved->generation()) : AnswerOptions(flags.generation, model);
  WarnAboutIdleFlags(flags.generation, options, "", context.messages);
  TIDEMILL_TRY(ids, EncodeRunText(given, flags, model, saved ? &*saved : nullptr));
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
                                                           .snapshot_seconds = state.snapshot_seconds(),
                                                           .needs_room_for_all = is_asked_for})
                         : session.engine->Submit({.prompt = ids,
                                                   .generation = options,
                                                   .draft = draft,
                                                   .keep_state = keep,
                                                   .snapshot_seconds = state.snapshot_seconds(),
                                                   .needs_room_for_all = is_asked_for}));
  const size_t prompt_tokens = !saved        ? ids.size()
                               : ids.empty() ? saved->prompt_tokens()
                                             : saved->ids().size() + ids.size();
  saved.reset();
  std::shared_ptr<const std::vector<std::byte>> kept;
  Answer answer;
  PromptProgress progress(context.messages);
  bool has_warned = false;  // since the last snapshot that was written
  const auto write_snapshot = [&](const auto& snapshot) {
    const Result<void> written = state.Write(snapshot);
    if (!written.ok() && !has_warned) {
      progress.Hide();
      context.messages.Warning(written.error().message() + "; the prompt is read on");
    }
    has_warned = !written.ok();
  };
  size_t prompt_read = 0;
  const auto show_progress = [&](size_t read) {
    if (read != SIZE_MAX) prompt_read = read;  // else the request has ended
    progress.Show(read, prompt_tokens);
  };
  const RequestHooks hooks{.reads = show_progress, .snapshot = write_snapshot};
  const Result<void> generated = Generate(*session.engine, id, context.signals, show, &answer, &kept, hooks);
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
  if (keep && answer.finish == FinishReason::kCancelled && answer.tokens.empty()) {
    const std::string& file = *flags.state.save_file;
    context.messages.Note("stopped by a signal: " + file + " has " + std::to_string(prompt_read) + " of the prompt's " +
                          std::to_string(prompt_tokens) + " tokens; --load-state " + file + " goes on");
  }
  grace.reset();
  WarnAboutGrowth(answer.stats, context.messages);
  WarnAboutDrafts(answer.stats, context.messages);
  NoteAttention(answer.stats, flags.machine.attention, context.messages);
  WarnAboutEnd(answer, flags.generation, options, *session.engine, context.messages);
  if (flags.stats) context.messages.Say(DescribeAnswer(answer, session, options));
  return {};
}

}  // namespace tidemill::cli
