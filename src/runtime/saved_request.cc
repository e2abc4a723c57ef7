// Saving requests and resuming them: SavedRequest, Engine::Resume and what fills Event::saved.
#include <algorithm>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/checksum.h"
#include "base/mapped_file.h"
#include "base/out_of_memory.h"
#include "decoding/repetition_detector.h"
#include "runtime/engine_impl.h"
#include "runtime/request_record.h"
#include "tidemill/engine.h"

namespace tidemill {

struct SavedRequest::Impl {
  std::string name;                // for messages
  std::optional<MappedFile> file;  // whose bytes the record borrows, where it was opened
  RequestRecord record;
};

namespace {

// All that decoding and the end of a text depend on. Which merges make a token is of no importance to what was generated.
uint64_t HashVocabulary(const Tokenizer& tokenizer) {
  std::string text;
  const auto add = [&text](std::string_view part) {
    text += std::to_string(part.size()) + ":";
    text += part;
  };
  for (size_t i = 0; i < tokenizer.vocab_size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    add(tokenizer.TokenName(id));
    add(tokenizer.TokenBytes(id));
    add(tokenizer.IsSpecial(id) ? "special" : "");
  }
  for (const int32_t id : tokenizer.end_of_generation_ids()) add(std::to_string(id));
  return Checksum(std::as_bytes(std::span(text)));
}

uint64_t VocabularyOf(Engine::Impl& engine) {
  if (!engine.vocabulary) engine.vocabulary = HashVocabulary(engine.model->text().tokenizer);
  return *engine.vocabulary;
}

Result<std::vector<std::byte>> Save(Engine::Impl& engine, ActiveRequest& request, FinishReason finish) {
  TIDEMILL_TRY(state, request.state().Checkpoint());
  RequestRecord record = request.Record(finish);
  record.model = engine.language_model().id;
  record.vocabulary = VocabularyOf(engine);
  record.numeric_class = std::string(request.numeric_class());
  record.state = state;
  return EncodeRequest(record);
}

Error Another(const std::string& what) { return Error(ErrorCode::kFailedPrecondition, what); }

// The part of a class that AttentionClass::name is; empty: dense.
std::string_view AttentionPart(std::string_view numeric_class) {
  const size_t slash = numeric_class.rfind('/');
  const std::string_view last =
      numeric_class.substr(slash == std::string_view::npos ? numeric_class.size() : slash + 1);
  const auto kind = ParseAttentionKind(last.substr(0, last.find('-')));
  return kind.ok() ? last : std::string_view();
}

Result<void> CheckIdentity(const RequestRecord& record, std::string_view numeric_class, Engine::Impl& engine) {
  const ModelInfo& info = engine.model->info();
  if (record.numeric_class != numeric_class) {  // first, since --rope-scaling makes another model, too
    const std::string flags = AttentionPart(record.numeric_class) != AttentionPart(numeric_class)
                                  ? "--attention, its --sparq flags and --attention-floor"
                              : engine.language_model().delta_shape()
                                  ? "--kv-dtype, --dtype, --isa, --rope-scaling, --linear-form, --linear-buffer, "
                                    "--linear-start and --linear-buffer-dtype"
                                  : "--kv-dtype, --dtype, --isa and --rope-scaling";
    return Another("expected numeric class " + record.numeric_class + ", found " + std::string(numeric_class) +
                   "; choose " + flags + " as when it was saved");
  }
  if (record.model != engine.language_model().id) {
    return Another("it was saved with another model than " + info.path + "; load that one");
  }
  if (record.vocabulary != VocabularyOf(engine)) {
    return Another("it was saved with another tokenizer than that of " + info.path + "; load that one");
  }
  return {};
}

Error Contradiction(const std::string& what) { return Error(ErrorCode::kCorruptFile, what + "; the file is damaged"); }

// Answers have tokens only, a prompt may have other rows of the embedding.
Result<void> CheckIds(const RequestRecord& record, const Model& model) {
  for (size_t i = 0; i < record.ids.size(); ++i) {
    const size_t end = i < record.prompt_tokens ? model.info().vocab_size : model.text().tokenizer.vocab_size();
    if (record.ids[i] >= 0 && static_cast<size_t>(record.ids[i]) < end) continue;
    return Contradiction("token " + std::to_string(i) + ": expected an id below " + std::to_string(end) + ", found " +
                         std::to_string(record.ids[i]));
  }
  return {};
}

// Whatever it ended by: --max-new-tokens may have cut it there, and repetitions may have been allowed.
bool EndsInRepetition(const RequestRecord& record) {
  RepetitionDetector detector;
  bool repeats = false;
  for (size_t i = static_cast<size_t>(record.prompt_tokens); i < record.ids.size(); ++i)
    repeats = detector.Push(record.ids[i]);
  return repeats;
}

// That an answer which goes on does not end at once.
Result<void> CheckGoesOn(const RequestRecord& record, const GenerationOptions& generation) {
  const auto ended = [](const std::string& how) {
    return Error(ErrorCode::kInvalidArgument, "the answer has ended: " + how);
  };
  const size_t answer = record.ids.size() - static_cast<size_t>(record.prompt_tokens);
  if (generation.max_new_tokens.has_value() && answer >= static_cast<size_t>(*generation.max_new_tokens)) {
    return ended("it has " + std::to_string(answer) + " of at most " + std::to_string(*generation.max_new_tokens) +
                 " tokens; give a larger --max-new-tokens or a prompt");
  }
  if (record.finish == FinishReason::kEos && !generation.ignore_eos) {
    return ended("by an end-of-sequence token; give --ignore-eos or a prompt");
  }
  const bool may_end = answer >= static_cast<size_t>(generation.min_new_tokens);
  if (generation.stop_at_repetition && may_end && EndsInRepetition(record)) {
    return ended("by a repetition; give --allow-repetition or a prompt");
  }
  if (record.finish == FinishReason::kStop && generation.stop == record.generation.stop) {
    return ended("by a stop text; give another --stop or a prompt");
  }
  return {};
}

// The rows are those of the first ids; at least one id is still to run.
Result<void> CheckState(const RequestRecord& record, const SequenceState& state) {
  if (state.length() >= record.ids.size()) {
    return Contradiction("expected a state of fewer tokens than the " + std::to_string(record.ids.size()) +
                         " tokens, found " + std::to_string(state.length()));
  }
  uint64_t tokens = 0;
  for (size_t i = 0; i < state.length(); ++i) tokens = ChainTokenHash(tokens, static_cast<RowKey>(record.ids[i]));
  if (tokens != state.identity().tokens) return Contradiction("the state is that of other tokens");
  return {};
}

// What a request goes on with: where that depends on its length, what it was saved with.
AttentionPolicy AttentionOf(const RequestRecord& record, const ResumeOptions& options, Engine::Impl& engine) {
  const AttentionPolicy policy = options.attention.value_or(engine.options.attention);
  const std::vector<AttentionPolicy> choices = ChoicesByLength(policy);
  if (choices.size() == 1) return policy;
  for (const AttentionPolicy& one : choices) {
    const auto its_class = engine.ClassOf(options.linear, one);
    if (its_class.ok() && its_class->name == record.numeric_class) return one;
  }
  return policy;
}

// Rows of an answer that is prompt now would be dense. What cannot be rolled back to them is computed again from the start.
void DropAnswerRows(const AttentionClass& attention, size_t prompt_tokens, ActiveRequest& request) {
  SequenceState& state = request.state();
  if (!attention.is_sparse() || attention.from || state.length() <= prompt_tokens) return;
  if (attention.evicts() || !state.Rollback(prompt_tokens).ok()) (void)request.DropWaitingState();
}

// Whether segments of a longer prompt begin elsewhere.
bool CutsFollowFromTheEnd(const LanguageModel& model) {
  return model.settings.armt && model.settings.armt->segment_alignment != SegmentAlignment::kLeft;
}

// Throws std::bad_alloc.
Result<std::unique_ptr<ActiveRequest>> NewContinuation(const RequestRecord& record, ResumeOptions options,
                                                       Engine::Impl& engine) {
  const AttentionPolicy attention = AttentionOf(record, options, engine);
  TIDEMILL_TRY(request_class, engine.ClassOf(options.linear, attention));
  TIDEMILL_TRY_VOID(CheckIdentity(record, request_class.name, engine));
  TIDEMILL_TRY_VOID(CheckIds(record, *engine.model));
  const bool is_answer = options.more_prompt.empty();
  Request request{.prompt = record.ids,
                  .generation = options.generation ? std::move(*options.generation) : record.generation,
                  .draft = options.draft,
                  .keep_state = options.keep_state,
                  .snapshot_seconds = options.snapshot_seconds,
                  .needs_room_for_all = options.needs_room_for_all,
                  .linear = options.linear,
                  .attention = attention};
  if (is_answer) TIDEMILL_TRY_VOID(CheckGoesOn(record, request.generation));
  request.prompt.insert(request.prompt.end(), options.more_prompt.begin(), options.more_prompt.end());
  if (request.prompt.size() > engine.options.context) {
    return Error(ErrorCode::kContextFull, std::to_string(request.prompt.size()) + " tokens: the context holds " +
                                              std::to_string(engine.options.context) + "; choose a larger --context");
  }
  const size_t answered = is_answer ? record.ids.size() - static_cast<size_t>(record.prompt_tokens) : 0;
  TIDEMILL_TRY(active, engine.NewRequest(std::move(request), answered));
  // The last token is in no state. Without room it is checked, and computed again when the request starts.
  const bool has_room = engine.memory->Fits(active->state().LedgerGrowth(record.ids.size() - 1, 1));
  TIDEMILL_TRY_VOID(active->state().Restore(record.state));
  TIDEMILL_TRY_VOID(CheckState(record, active->state()));
  if (!is_answer) DropAnswerRows(request_class.attention, static_cast<size_t>(record.prompt_tokens), *active);
  if (!has_room || (!is_answer && CutsFollowFromTheEnd(engine.language_model()))) (void)active->DropWaitingState();
  active->Continue(record, is_answer);
  return active;
}

// Throws std::bad_alloc.
Result<SavedRequest> Decode(std::unique_ptr<SavedRequest::Impl> impl, std::span<const std::byte> bytes) {
  TIDEMILL_TRY(record, DecodeRequest(bytes).WithContext("load a saved request: " + impl->name));
  impl->record = std::move(record);
  return SavedRequest(std::move(impl));
}

}  // namespace

SavedRequest::SavedRequest(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
SavedRequest::SavedRequest(SavedRequest&&) noexcept = default;
SavedRequest& SavedRequest::operator=(SavedRequest&&) noexcept = default;
SavedRequest::~SavedRequest() = default;

Result<SavedRequest> SavedRequest::Open(const std::string& path) {
  try {
    auto impl = std::make_unique<Impl>();
    impl->name = path;
    TIDEMILL_TRY(file, MappedFile::Open(path).WithContext("load a saved request"));
    impl->file.emplace(std::move(file));
    const std::span<const std::byte> bytes = impl->file->bytes();
    return Decode(std::move(impl), bytes);
  } catch (const std::exception&) {  // std::bad_alloc
    return OutOfMemoryError("load a saved request");
  }
}

Result<SavedRequest> SavedRequest::Read(std::span<const std::byte> bytes) {
  try {
    auto impl = std::make_unique<Impl>();
    impl->name = std::to_string(bytes.size()) + " bytes";
    return Decode(std::move(impl), bytes);
  } catch (const std::exception&) {  // std::bad_alloc
    return OutOfMemoryError("load a saved request");
  }
}

std::span<const int32_t> SavedRequest::ids() const { return impl_->record.ids; }
size_t SavedRequest::prompt_tokens() const { return static_cast<size_t>(impl_->record.prompt_tokens); }
const GenerationOptions& SavedRequest::generation() const { return impl_->record.generation; }

Result<RequestId> Engine::Resume(const SavedRequest& saved, ResumeOptions options) {
  try {
    TIDEMILL_TRY(active, NewContinuation(saved.impl().record, std::move(options), *impl_)
                             .WithContext("resume request: " + saved.impl().name));
    return impl_->Admit(std::move(active));
  } catch (const std::exception&) {  // std::bad_alloc
    return OutOfMemoryError("resume request");
  }
}

void Engine::Impl::SaveFinished() {
  for (const auto& request : requests) {
    if (!request->done() || !request->keeps_state()) continue;
    const auto event = std::find_if(events.begin(), events.end(), [&](const Event& candidate) {
      return candidate.request == request->id() && candidate.finish.has_value();
    });
    if (event == events.end()) continue;  // it failed
    try {
      Result<std::vector<std::byte>> saved = Save(*this, *request, *event->finish);
      if (saved.ok()) event->saved = std::make_shared<const std::vector<std::byte>>(std::move(saved).value());
    } catch (const std::exception&) {  // std::bad_alloc
    }
    if (event->saved != nullptr) continue;
    try {
      request->FlushText(&*event);     // nobody else will
    } catch (const std::exception&) {  // without memory for it
    }
  }
}

void Engine::Impl::EndSnapshots() {
  const SnapshotTimer::Clock::time_point now = SnapshotTimer::Clock::now();
  for (const auto& request : requests) request->snapshots().End(now);
}

void Engine::Impl::SaveSnapshots() {
  for (const auto& request : requests) {
    if (!request->running() || request->done() || !request->reads_prompt()) continue;
    const SnapshotTimer::Clock::time_point now = SnapshotTimer::Clock::now();
    if (!request->snapshots().IsDue(now, snapshot_share)) continue;
    request->snapshots().Begin(now);  // also of one that fails: it is not tried in each step
    try {
      Result<std::vector<std::byte>> saved = Save(*this, *request, FinishReason::kCancelled);
      if (!saved.ok()) continue;
      Event event;
      event.request = request->id();
      event.saved = std::make_shared<const std::vector<std::byte>>(std::move(saved).value());
      events.push_back(std::move(event));
    } catch (const std::exception&) {  // std::bad_alloc
    }
  }
}

}  // namespace tidemill
