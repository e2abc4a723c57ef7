#include "cli/session.h"

#include <chrono>
#include <cstdio>
#include <ctime>
#include <optional>
#include <span>
#include <utility>

#include "cli/errors.h"
#include "cli/generation_defaults.h"
#include "cli/messages.h"
#include "cli/profile_path.h"
#include "cli/unread_warning.h"

namespace tidemill::cli {
namespace {

Result<std::shared_ptr<const Model>> LoadModel(const std::string& path, LoadOptions load, const std::string& doing,
                                               CommandContext& context) {
  ProgressBar progress(context.messages, doing);
  load.progress = [&progress](double fraction) { progress.Show(fraction); };
  return Model::Load(path, std::move(load));
}

// What does not become what the files' maker meant: a line for each file, and one for the tokenizer.
void WarnAboutFiles(const Model& model, std::string_view whose, Messages& messages) {
  if (const std::string& doubt = model.text().tokenizer_doubt; !doubt.empty())
    messages.Warning(std::string(whose) + doubt);
  WarnAboutUnread(model.unread_settings(), whose, messages);
}

Result<void> CheckLayers(const DraftFlags& draft, const Model& model) {
  const size_t layers = model.info().num_hidden_layers;
  if (draft.source != DraftSource::kLayers || draft.layers < layers) return {};
  return UsageError("--draft", "expected layers:M with fewer than the model's " + std::to_string(layers) +
                                   " layers, found " + std::to_string(draft.layers));
}

Result<Session> Open(const std::string& path, const LoadOptions& load, EngineOptions options, const DraftFlags& draft,
                     CommandContext& context) {
  const auto start = std::chrono::steady_clock::now();
  Session session;
  TIDEMILL_TRY(model, LoadModel(path, load, "loading", context));
  session.model = std::move(model);
  WarnAboutFiles(*session.model, "", context.messages);
  TIDEMILL_TRY_VOID(CheckLayers(draft, *session.model));
  if (draft.source == DraftSource::kModel) {
    LoadOptions load_draft = load;
    load_draft.rope_scaling.reset();  // it is the other one's context that has to be longer
    const bool is_own = draft.model.empty();
    bool is_head = is_own;
    if (!is_own) {
      TIDEMILL_TRY(found, DraftHead::IsAt(draft.model));
      is_head = found;
    }
    if (is_head) {
      ProgressBar progress(context.messages, "loading the draft head");
      load_draft.progress = [&progress](double fraction) { progress.Show(fraction); };
      TIDEMILL_TRY(draft_head, is_own ? DraftHead::LoadOwn(session.model, load_draft)
                                      : DraftHead::Load(draft.model, session.model, load_draft));
      session.draft_head = std::move(draft_head);
      WarnAboutUnread(session.draft_head->unread_settings(), "draft head: ", context.messages);
    } else {
      TIDEMILL_TRY(draft_model, LoadModel(draft.model, load_draft, "loading the draft model", context));
      session.draft_model = std::move(draft_model);
      WarnAboutFiles(*session.draft_model, "draft model: ", context.messages);
    }
    options.draft_model = session.draft_model;
    options.draft_head = session.draft_head;
  }
  options.draft_threads = draft.threads.value_or(0);
  NameProfile(options);
  TIDEMILL_TRY(engine, Engine::Create(session.model, options));
  session.engine = std::move(engine);
  if (!session.engine->notice().empty()) context.messages.Warning(session.engine->notice());
  session.load_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  context.messages.Info("loaded " + path + ": " + session.model->info().family + ", " +
                        std::to_string(session.engine->threads()) + " threads, " + session.engine->isa() +
                        ", context " + std::to_string(session.engine->context()) + ", " +
                        session.engine->numeric_class());
  return session;
}

}  // namespace

Result<ModelText> LoadTextOnly(const std::string& path, Messages& messages) {
  TIDEMILL_TRY(text, LoadText(path));
  if (!text.tokenizer_doubt.empty()) messages.Warning(text.tokenizer_doubt);
  WarnAboutUnread(text.unread_settings, "", messages);
  return text;
}

Result<Session> OpenSession(const std::string& path, const MachineFlags& flags, CommandContext& context) {
  TIDEMILL_TRY(options, flags.engine_options());
  return OpenSession(path, flags.load_options(), options, context);
}

Result<Session> OpenSession(const std::string& path, const MachineFlags& flags, const DraftFlags& draft,
                            CommandContext& context) {
  TIDEMILL_TRY(options, flags.engine_options());
  return Open(path, flags.load_options(), options, draft, context);
}

Result<Session> OpenSession(const std::string& path, LoadOptions load, const EngineOptions& options,
                            CommandContext& context) {
  return Open(path, load, options, {}, context);
}

Result<Session> OpenSession(const std::string& path, LoadOptions load, const EngineOptions& options,
                            const DraftFlags& draft, CommandContext& context) {
  return Open(path, load, options, draft, context);
}

Result<Answer> Generate(Engine& engine, Request request, SignalWatch& signals,
                        const std::function<Result<void>(const std::string&)>& on_text) {
  TIDEMILL_TRY(id, engine.Submit(std::move(request)));
  Answer answer;
  std::shared_ptr<const std::vector<std::byte>> saved;
  TIDEMILL_TRY_VOID(Generate(engine, id, signals, on_text, &answer, &saved));
  return answer;
}

Result<void> Generate(Engine& engine, RequestId id, SignalWatch& signals,
                      const std::function<Result<void>(const std::string&)>& on_text, Answer* answer,
                      std::shared_ptr<const std::vector<std::byte>>* saved, const RequestHooks& hooks) {
  std::optional<Error> failure;
  bool is_done = false;
  const SignalWatch::Grace grace(signals, [&engine, id] { engine.Cancel(id); });
  if (signals.received() != 0) engine.Cancel(id);  // it came in a Grace around this one
  const auto tell_read = [&] {
    if (hooks.reads) hooks.reads(engine.prompt_read(id).value_or(SIZE_MAX));
  };
  tell_read();
  while (!is_done) {
    if (engine.idle()) {
      return Error(ErrorCode::kInternal, "generate: the request ended without a last event; please report it");
    }
    const std::span<const Event> events = engine.Step();
    tell_read();
    for (const Event& event : events) {
      if (event.request != id) continue;
      is_done = event.last();
      if (is_done) *saved = event.saved;
      if (!is_done && event.saved != nullptr && hooks.snapshot) hooks.snapshot(event.saved);
      if (event.error) {
        if (!failure) failure = *event.error;
        continue;
      }
      answer->Add(event);
      if (!failure && !event.text.empty()) {
        auto taken = on_text(event.text);
        if (!taken.ok()) {
          failure = std::move(taken).error();
          engine.Cancel(id);
        }
      }
    }
  }
  if (failure) return *failure;
  return {};
}

void WarnAboutGrowth(const RequestStats& stats, Messages& messages) {
  if (stats.growth.fell_back) {
    messages.Warning(
        "--kv-policy reserve: the system has no addresses for the whole context; state grew as under geometric");
  }
  if (stats.growth.gave_up_columns) {
    messages.Warning(
        "--sparq-columns cache: there was no memory for columns of keys; they were read from rows: more slowly, "
        "for the same answer");
  }
}

void WarnAboutDrafts(const RequestStats& stats, Messages& messages) {
  if (stats.draft_trouble.empty()) return;
  messages.Warning("drafting was disabled for some steps: " + std::string(stats.draft_trouble));
}

void NoteAttention(const RequestStats& stats, const AttentionFlags& flags, Messages& messages) {
  const std::string reason(stats.attention_reason), given = flags.given();
  if (!stats.attention) {
    if (reason.empty() || given.empty()) return;
    // A file of floors that chose did not go without effect.
    const std::string idle = reason.starts_with("--attention auto") ? "; without effect: " + given : "";
    messages.Note("dense attention was chosen by " + reason + idle);
    return;
  }
  const SparseStats::Counts& all = stats.attention->all;
  if (all.rows == 0 && flags.from) {
    messages.Note("--sparq-from " + std::to_string(*flags.from) +
                  ": no token attended sparsely, since the request ended before that position");
    return;
  }
  // Rows that read all have the bits of dense attention.
  if (all.rows == all.short_rows || all.dense_share == 1) return;
  messages.Note(std::string(AttentionKindName(stats.attention->kind)) +
                " attention is approximate: the answer may be another than with --attention dense, which reads all");
}

std::string DescribeAnswer(const Answer& answer, const Session& session, const GenerationOptions& options) {
  const RequestStats& stats = answer.stats;
  const double decoded = stats.generated_tokens > 0 ? static_cast<double>(stats.generated_tokens - 1) : 0;
  const size_t prefilled_tokens = stats.prompt_tokens - stats.cached_tokens;
  char lines[768];
  std::snprintf(
      lines, sizeof lines,
      "load         %10.1f ms\n"
      "prefill      %10.1f ms  %6zu tokens  %9.1f tokens/s\n"
      "TTFT         %10.1f ms\n"
      "decode       %10.1f ms  %6zu tokens  %9.1f tokens/s\n"
      "KV cache     %10.2f MiB used, %.2f MiB allocated, %s, grown %llu times, %.2f MiB copied\n"
      "page faults  %10llu minor, %llu major\n",
      session.load_ms, stats.prefill_ms, prefilled_tokens,
      TokensPerSecond(static_cast<double>(prefilled_tokens), stats.prefill_ms), stats.ttft_ms, stats.decode_ms,
      static_cast<size_t>(decoded), TokensPerSecond(decoded, stats.decode_ms),
      static_cast<double>(stats.state_bytes) / (1 << 20), static_cast<double>(stats.growth.allocated_bytes) / (1 << 20),
      stats.growth.fell_back ? "geometric for want of addresses"
                             : std::string(KvPolicyName(session.engine->kv_policy())).c_str(),
      static_cast<unsigned long long>(stats.growth.growths), static_cast<double>(stats.growth.bytes_copied) / (1 << 20),
      static_cast<unsigned long long>(stats.faults.minor), static_cast<unsigned long long>(stats.faults.major));
  return std::string(lines) + DescribeDrafts(stats) + DescribeAttention(stats) + "finish       " +
         std::string(FinishReasonName(answer.finish)) + ", " + DescribeSampling(options) + ", " +
         std::to_string(session.engine->threads()) + " threads, " + session.engine->isa() + ", numeric class " +
         std::string(stats.numeric_class) + "\n";
}

std::string DescribePrefixCache(const PrefixCacheStats& stats) {
  char line[160];
  std::snprintf(line, sizeof line, "prefix cache %10.2f MiB; states %llu, hits %llu, evictions %llu\n",
                static_cast<double>(stats.bytes) / (1 << 20), static_cast<unsigned long long>(stats.states),
                static_cast<unsigned long long>(stats.hits), static_cast<unsigned long long>(stats.evictions));
  return line;
}

}  // namespace tidemill::cli
