#include "runtime/active_request.h"

#include <algorithm>
#include <array>
#include <exception>
#include <string>
#include <utility>

#include "base/checked_math.h"
#include "base/out_of_memory.h"
#include "base/seconds_of.h"
#include "engine/segments.h"
#include "runtime/linear_class.h"
#include "runtime/process_usage.h"
#include "runtime/sparse_stats.h"

namespace tidemill {
namespace {

constexpr std::string_view kNoMemoryForDrafts = "there is no memory for draft tokens";

bool IsChain(std::span<const int32_t> parents) {
  for (size_t i = 0; i < parents.size(); ++i) {
    if (parents[i] != static_cast<int32_t>(i) - 1) return false;
  }
  return true;
}

double Milliseconds(ActiveRequest::Clock::duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

std::vector<int32_t> SpecialStops(const std::vector<std::string>& stops, const Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  for (const std::string& stop : stops) {
    const std::optional<int32_t> id = tokenizer.FindToken(stop);
    if (id && tokenizer.IsSpecial(*id)) ids.push_back(*id);
  }
  return ids;
}

}  // namespace

ActiveRequest::ActiveRequest(RequestId id, Request request, Parts parts)
    : id_(id),
      options_(std::move(request.generation)),
      keep_state_(request.keep_state),
      store_(request.store && parts.max_shared != 0),
      snapshots_(request.snapshot_seconds, Clock::now()),
      cache_salt_(std::move(request.cache_salt)),
      sampler_(std::move(parts.sampler)),
      tokenizer_(parts.tokenizer),
      decoder_(parts.tokenizer),
      stop_ids_(SpecialStops(options_.stop, tokenizer_)),
      stop_(options_.stop),
      state_(std::move(parts.state)),
      numeric_class_(parts.numeric_class),
      attention_reason_(parts.attention_reason),
      segments_(parts.segments),
      context_(parts.context),
      sparse_from_(parts.sparse_from),
      max_shared_(parts.max_shared),
      prompt_tokens_(request.prompt.size()),
      max_draft_tokens_(parts.drafter == nullptr ? 0 : request.draft.num_draft_tokens),
      drafter_(std::move(parts.drafter)),
      steps_(StepDrafter::Of(drafter_.get())),
      num_draft_tokens_(std::min(request.draft.min_draft_tokens, max_draft_tokens_), max_draft_tokens_,
                        drafter_ == nullptr ? DraftOrder::kOneByOne : drafter_->draft_order(), parts.costs),
      shares_(parts.max_shared != 0),
      submitted_(Clock::now()),
      page_faults_before_(ProcessPageFaults()) {
  sampler_.Prime(request.prompt);
  if (drafter_ != nullptr) {
    for (const int32_t token : request.prompt) drafter_->Append(token);
  }
  draft_tokens_.reserve(max_events());
  parents_.reserve(max_events());
  accepted_nodes_.reserve(max_events());
  sampled_.reserve(max_events());
  path_.reserve(max_events());
}

void ActiveRequest::Continue(const RequestRecord& record, bool is_answer) {
  if (!is_answer) return;
  const std::vector<int32_t> all(tokens().begin(), tokens().end());
  const std::span<const int32_t> ids = all;
  earlier_ = ids.size() - static_cast<size_t>(record.prompt_tokens);
  sampler_.Prime(ids.first(ids.size() - earlier_));
  for (const int32_t id : ids.last(earlier_)) {
    sampler_.Accept(id);
    repetition_.Push(id);
  }
  decoder_ = StreamDecoder(tokenizer_, false, record.partial_character);
  carried_ = stop_.Push(record.held_text).emit;
}

RequestRecord ActiveRequest::Record(FinishReason finish) const {
  const TokenHistory& history = sampler_.history();
  RequestRecord record;
  record.finish = finish;
  record.prompt_tokens = history.num_prompt_tokens();
  record.ids.assign(history.ids().begin(), history.ids().end());
  record.held_text = carried_ + std::string(stop_.held());
  if (finish != FinishReason::kStop) record.partial_character = decoder_.pending();  // after a stop text nothing counts
  record.generation = options_;
  return record;
}

size_t ActiveRequest::next_positions() const {
  const bool one_follows =
      !options_.max_new_tokens || earlier_ + generated_ + 1 < static_cast<size_t>(*options_.max_new_tokens);
  return std::min(tokens().size() + (one_follows ? 1 : 0), state_->max_length());
}

uint64_t ActiveRequest::GrowthBytes(size_t rows, size_t step) const {
  const uint64_t features = drafter_ == nullptr ? 0 : drafter_->feature_bytes() - drafter_->held_feature_bytes();
  uint64_t bytes = 0;
  return CheckedAdd(state_->LedgerGrowth(rows, step), features, &bytes) ? bytes : UINT64_MAX;
}

uint64_t ActiveRequest::BytesWith(size_t rows, size_t step) const {
  const StateBytes now = state_->bytes();
  const uint64_t held = now.reserved + now.keys + (drafter_ == nullptr ? 0 : drafter_->held_feature_bytes());
  uint64_t bytes = 0;
  return CheckedAdd(held, GrowthBytes(rows, step), &bytes) ? bytes : UINT64_MAX;
}

void ActiveRequest::ForEachBlock(const LayerState::BlockVisitor& visit) const {
  if (state_ != nullptr) state_->ForEachBlock(visit);
  if (steps_ != nullptr) steps_->ForEachBlock(visit);
}

bool ActiveRequest::DropWaitingState() {
  if (running_ || state_->length() == 0) return false;
  ClearState();
  sharing_ = false;
  return true;
}

uint64_t ActiveRequest::waiting_bytes() const {
  if (running_ || state_->length() == 0) return 0;
  const StateBytes bytes = state_->bytes();
  return bytes.reserved + bytes.keys;
}

bool ActiveRequest::ReleaseDraftState() {
  if (steps_ == nullptr || steps_->state_bytes() == 0) return false;
  steps_->ReleaseState();
  return true;
}

bool ActiveRequest::GiveUpFeatures() {
  if (drafter_ == nullptr || drafter_->feature_bytes() == 0) return false;
  GiveUpDrafter("there is no room for the draft head's features");
  return true;
}

void ActiveRequest::GiveUpDrafter(std::string_view trouble) {
  const std::string_view earlier = drafter_->trouble();
  DropDrafter(earlier.empty() ? trouble : earlier);
}

void ActiveRequest::Continue(SequenceState& from, size_t length, SequenceState* draft) {
  if (!from.ForkTo(*state_, length).ok()) return;
  sharing_ = true;
  if (draft != nullptr && steps_ != nullptr) steps_->Continue(*draft, length);
}

void ActiveRequest::DropPrefix() {
  ClearState();
  sharing_ = false;
  if (drafter_ != nullptr) drafter_->Release();
}

std::unique_ptr<SequenceState> ActiveRequest::TakeState() {
  return store_ && !failed_ && state_->length() != 0 ? std::move(state_) : nullptr;
}

void ActiveRequest::Start() {
  running_ = true;
  if (spilled_) {
    const Result<std::vector<std::byte>> bytes = spilled_->Read();
    if (bytes.ok()) (void)state_->Restore(*bytes);  // where it fails the state is empty as before
    spilled_.reset();
  }
  if (!started_) cached_ = state_->length();
}

void ActiveRequest::Preempt(const std::string& spill_folder) {
  try {
    if (!spill_folder.empty() && state_->length() != 0) {
      const Result<std::vector<std::byte>> bytes = state_->Checkpoint();
      Result<SpillFile> file = bytes.ok() ? SpillFile::Write(spill_folder, *bytes) : bytes.error();
      if (file.ok()) spilled_ = std::move(*file);
    }
  } catch (const std::exception&) {  // without memory for the folder's name it is recomputed
  }
  ClearState();
  sharing_ = false;
  if (drafter_ != nullptr) drafter_->Release();
  offered_ = {};
  running_ = false;
  ++preemptions_;
}

DraftTask ActiveRequest::AskForDraftTokens(size_t num_draft_tokens) {
  draft_tokens_.clear();
  parents_.clear();
  offered_ = {};
  drafting_seconds_ = 0;
  empty_ = DraftTree::Empty::kNothing;
  if (drafter_ == nullptr || pending() != 1) return {};
  // One more token than drafted is sampled, and none is past the end.
  size_t left = context_ - state_->length() - 1;
  if (options_.max_new_tokens)
    left = std::min(left, static_cast<size_t>(*options_.max_new_tokens) - earlier_ - generated_ - 1);
  return {.drafter = drafter_.get(),
          .steps = steps_,
          .num_draft_tokens = std::min({num_draft_tokens, num_draft_tokens_.Next(), left})};
}

ActiveRequest::DraftRows ActiveRequest::TakeDraftTokens(const DraftTask& task) {
  const DraftTree& proposed = task.draft_tokens;
  if (task.failed) {
    StopDrafting(kNoMemoryForDrafts);
    return {};
  }
  if (!std::all_of(proposed.ids.begin(), proposed.ids.end(),
                   [this](int32_t id) { return id >= 0 && static_cast<size_t>(id) < tokenizer_.vocab_size(); })) {
    StopDrafting("an id was drafted that the tokenizer does not have");
    return {};
  }
  drafting_seconds_ = is_timed_ ? task.seconds : 0;
  const bool is_reading = drafter_->reads_text() && !drafter_->reads_features() && draft_stats_.drafted[0] == 0;
  if (is_reading) draft_stats_.draft_prefill_ms += 1000 * drafting_seconds_;
  if (proposed.ids.empty()) {
    empty_ = proposed.empty;
    if (found_unlikely()) num_draft_tokens_.Drafted(1, drafting_seconds_, drafter_->reads_text());
    return {};
  }
  num_draft_tokens_.Drafted(proposed.ids.size(), drafting_seconds_, drafter_->reads_text());
  draft_tokens_.push_back(tokens().back());  // within what was reserved, like the others
  draft_tokens_.insert(draft_tokens_.end(), proposed.ids.begin(), proposed.ids.end());
  if (!proposed.parents.empty()) {
    parents_.push_back(-1);
    for (const int32_t parent : proposed.parents) parents_.push_back(parent + 1);  // the last sampled token is row 0
  }
  offered_ = {.all = proposed.ids.size(), .free = proposed.ids.size()};
  while (state_->HasRoom(1) && offered_.free != 0 && !state_->HasRoom(1 + offered_.free)) --offered_.free;
  return offered_;
}

bool ActiveRequest::AreWorthGrowing(const DraftRows& draft_tokens) const {
  if (!early_growth_) return false;
  EarlyGrowth growth = *early_growth_;
  if (state_->growth().fell_back) growth.growth.policy = KvPolicy::kGeometric;
  const size_t known = state_->length() + 1;
  return num_draft_tokens_.Gain(draft_tokens.free, draft_tokens.all) >
         growth.Seconds(known - 1, known + draft_tokens.free, known + draft_tokens.all);
}

void ActiveRequest::DropDrafter(std::string_view trouble) {
  draft_trouble_ = trouble;
  steps_ = nullptr;
  drafter_ = nullptr;
}

void ActiveRequest::StopDrafting(std::string_view trouble) {
  DropDrafter(trouble);
  draft_tokens_.clear();
  parents_.clear();
}

void ActiveRequest::BeginStep() {
  if (started_) return;
  started_ = true;
  first_step_ = Clock::now();
}

ActiveRequest::Next ActiveRequest::NextTokens(size_t rows) {
  BeginStep();
  rows_ = rows;
  if (rows > pending()) {
    next_row_ = 0;
    draft_tokens_.resize(rows);
    if (!parents_.empty()) parents_.resize(rows);
    if (IsChain(parents_)) parents_.clear();  // chains need no parents, and are faster
    return {draft_tokens_, Wanted::kAll, parents_};
  }
  next_row_ = rows == pending() ? rows - 1 : kNoRow;
  draft_tokens_.clear();
  parents_.clear();
  return {tokens().subspan(state_->length(), rows), next_row_ == kNoRow ? Wanted::kNothing : Wanted::kLast};
}

void ActiveRequest::Sample(size_t row, std::span<float> logits) {
  if (row != next_row_) return;
  next_row_ = kNoRow;
  path_.push_back(static_cast<uint32_t>(row));
  try {
    const std::span<float> known = logits.first(tokenizer_.vocab_size());
    const auto position = static_cast<uint32_t>(tokens().size());
    if (injected_ != nullptr && injected_->sampling) injected_->sampling(id_, known);
    Result<SampledToken> token = sampler_.Sample(known, position);
    if (!token.ok()) {
      sample_error_ = std::move(token).error();
      return;
    }
    sampled_.push_back(*token);
    sampler_.Accept(token->id);
    const bool is_end = !options_.ignore_eos && tokenizer_.IsEndOfGeneration(token->id);
    if (!is_end) next_row_ = DraftTokenBehind(row, token->id);
  } catch (const std::exception&) {
    sample_error_ = OutOfMemoryError("sample token");
  }
}

size_t ActiveRequest::DraftTokenBehind(size_t row, int32_t id) const {
  for (size_t draft_token = row + 1; draft_token < draft_tokens_.size(); ++draft_token) {
    if (ParentOf(draft_token) == row && draft_tokens_[draft_token] == id) return draft_token;
  }
  return kNoRow;
}

void ActiveRequest::Abandon() {
  sampler_.Retract(sampled_.size());
  sampled_.clear();
  path_.clear();
  sample_error_.reset();
}

void ActiveRequest::Advance(std::vector<Event>* events, const ConstMatrix<float>& features) {
  const size_t drafted = draft_tokens_.empty() ? 0 : draft_tokens_.size() - 1;
  const size_t first = state_->length() + rows_ - drafted;  // the length after the first sampled token
  drafted_ += drafted;
  const bool decodes = pending() - sampled_.size() == 1;
  if (drafter_ != nullptr && decodes) CountDraftTokens(drafted);
  try {
    keys_.reserve(rows_);  // before a token is reported: Commit allocates nothing more
  } catch (const std::exception&) {
    return Fail(OutOfMemoryError("advance request"), events);
  }
  size_t taken = 0;
  for (const SampledToken& token : sampled_) {
    Event event;
    event.request = id_;
    std::optional<FinishReason> reason;
    const size_t generated = generated_;
    StreamDecoder decoder = decoder_;
    bool has_text = false;
    try {
      text_before_.assign(carried_).append(stop_.held());
      has_text = true;
      reason = TakeToken(token, first + taken, &event);
      if (reason) {
        CountTokens(taken + 1);
        sampler_.Retract(sampled_.size() - taken - 1);  // what was sampled after the end
        Commit(first + taken - state_->length(), features);
        Finish(*reason, &event);
      }
    } catch (const std::exception&) {
      generated_ = generated;  // that token is not reported; only the text before it is still to come
      if (has_text) {
        decoder_ = std::move(decoder);
        stop_.Finish();
        carried_.swap(text_before_);
      }
      return Fail(OutOfMemoryError("advance request"), events);
    }
    events->push_back(std::move(event));
    if (reason) return;
    ++taken;
  }
  CountTokens(taken);
  Commit(taken == 0 ? rows_ - drafted : first + taken - 1 - state_->length(), features);
  sampled_.clear();
  path_.clear();
  if (sample_error_) Fail(*std::exchange(sample_error_, std::nullopt), events);
}

void ActiveRequest::CountDraftTokens(size_t draft_tokens) {
  static_assert(DraftOptions::kMax <= NumDraftTokens::kMax);  // what CheckedTree takes
  accepted_in_step_ = sampled_.empty() ? 0 : sampled_.size() - 1;
  const size_t checked = draft_tokens + (found_unlikely() ? 1 : 0);  // an unlikely draft token counts as rejected
  if (num_draft_tokens_.order() == DraftOrder::kTree) {
    accepted_nodes_.clear();
    for (size_t i = 1; i <= accepted_in_step_; ++i) accepted_nodes_.push_back(path_[i] - 1);
    num_draft_tokens_.CheckedTree(checked, accepted_nodes_);
  } else {
    num_draft_tokens_.Checked(checked, accepted_in_step_);
  }
  ++draft_stats_.steps_by_draft_tokens[std::min(draft_tokens, DraftStats::kStepCounts - 1)];
  draft_stats_.cut += draft_tokens < offered_.all ? 1U : 0U;
  draft_stats_.grown += draft_tokens > offered_.free ? 1U : 0U;
  std::array<size_t, 1 + DraftOptions::kMax> depths = {};
  size_t deepest = 0;
  for (size_t draft_token = 1; draft_token <= draft_tokens; ++draft_token)
    deepest = std::max(deepest, depths[draft_token] = depths[ParentOf(draft_token)] + 1);
  for (size_t i = 0; i < std::min(deepest, DraftStats::kPositions); ++i) {
    ++draft_stats_.drafted[i];
    draft_stats_.accepted[i] += i < accepted_in_step_ ? 1 : 0;
  }
}

void ActiveRequest::CountTokens(size_t tokens) {
  if (tokens == 0 || draft_tokens_.empty()) return;
  const size_t draft_tokens = tokens - 1;
  accepted_ += draft_tokens;
  ++draft_stats_.bonuses;
  for (size_t i = 1; i <= draft_tokens && !parents_.empty(); ++i) {
    size_t first = path_[i - 1] + 1;
    while (ParentOf(first) != path_[i - 1]) ++first;
    draft_stats_.later_siblings += first != path_[i] ? 1U : 0U;
  }
}

void ActiveRequest::Took(double seconds, size_t tokens) {
  if (drafter_ == nullptr) return;
  const size_t draft_tokens = draft_tokens_.empty() ? 0 : draft_tokens_.size() - 1;
  const size_t others = tokens - std::min(tokens, accepted_in_step_ + 1);
  const bool is_with_tree = num_draft_tokens_.order() == DraftOrder::kTree && draft_tokens != 0;
  num_draft_tokens_.Took(draft_tokens, is_with_tree ? seconds : seconds - drafting_seconds_,
                         static_cast<double>(others));
}

void ActiveRequest::Commit(size_t rows, const ConstMatrix<float>& features) {
  for (size_t i = 0; i < rows && reads_features(); ++i)
    drafter_->AddFeature(state_->length() + i, {features.row(parents_.empty() ? i : path_[i]), features.cols});
  const size_t segment = segments_ == nullptr ? 0 : SegmentFirst(*state_);
  const auto ran = tokens().subspan(state_->length(), rows);
  keys_.assign(ran.begin(), ran.end());
  if (parents_.empty()) {
    state_->Commit(keys_);
  } else {
    state_->CommitPath(std::span<const uint32_t>(path_).first(rows), keys_);
  }
  if (segments_ == nullptr || SegmentFirst(*state_) == segment) return;
  const Result<void> finite = CheckMemories(*state_, segment);
  if (!finite.ok()) sample_error_ = finite.error();
}

std::optional<FinishReason> ActiveRequest::TakeToken(const SampledToken& token, size_t length, Event* event) {
  if (injected_ != nullptr && injected_->decoding) injected_->decoding(id_);
  last_token_time_ = Clock::now();
  if (generated_++ == 0) first_token_ = last_token_time_;
  event->token = token.id;
  event->logprob = token.logprob.value_or(0.0F);
  event->top_logprobs.assign(token.top().begin(), token.top().end());
  if (!options_.ignore_eos && tokenizer_.IsEndOfGeneration(token.id)) return FinishReason::kEos;
  if (std::find(stop_ids_.begin(), stop_ids_.end(), token.id) != stop_ids_.end()) {
    FlushText(event);
    return FinishReason::kStop;
  }
  const StopMatcher::Output output = stop_.Push(decoder_.Push(token.id));
  event->text = std::exchange(carried_, {});
  event->text += output.emit;
  if (output.stopped) return FinishReason::kStop;
  const bool all = options_.max_new_tokens && earlier_ + generated_ >= static_cast<size_t>(*options_.max_new_tokens);
  const bool repeats = repetition_.Push(token.id);
  if (all || length == context_) return FinishReason::kLength;
  const bool may_end = earlier_ + generated_ >= static_cast<size_t>(options_.min_new_tokens);
  if (repeats && may_end && options_.stop_at_repetition) return FinishReason::kRepetition;
  try {
    if (drafter_ != nullptr) drafter_->Append(token.id);
  } catch (const std::exception&) {
    DropDrafter(kNoMemoryForDrafts);  // the step's accepted tokens are still to be committed
  }
  return std::nullopt;
}

void ActiveRequest::FlushText(Event* event) {
  if (event->text.empty()) {
    event->text.swap(carried_);  // also where there is no memory
  } else {
    event->text += std::exchange(carried_, {});
  }
  const StopMatcher::Output output = stop_.Push(decoder_.Finish());
  event->text += output.emit;
  if (!output.stopped) event->text += stop_.Finish();
}

void ActiveRequest::Finish(FinishReason reason, Event* event) {
  // Text that is held back belongs to the request that goes on.
  const bool is_cut = reason == FinishReason::kLength || reason == FinishReason::kCancelled;
  const bool goes_on = keep_state_ && is_cut;
  if (reason != FinishReason::kStop && !goes_on) FlushText(event);
  event->finish = reason;
  event->stats = Stats();
  done_ = true;
}

void ActiveRequest::Cancel(std::vector<Event>* events) {
  Event event;
  event.request = id_;
  try {
    Finish(FinishReason::kCancelled, &event);
  } catch (const std::exception&) {  // without memory for the withheld text
    event.finish = FinishReason::kCancelled;
    event.stats = Stats();
    done_ = true;
  }
  events->push_back(std::move(event));
}

void ActiveRequest::Fail(Error error, std::vector<Event>* events) {
  Event event;
  event.request = id_;
  event.error = std::move(error);
  try {
    FlushText(&event);  // generated text is never lost: withheld text comes with the error
    event.error = std::move(*event.error).WithContext("generate token " + std::to_string(generated_ + 1));
  } catch (const std::exception&) {  // without memory for more words
  }
  event.stats = Stats();
  done_ = failed_ = true;
  events->push_back(std::move(event));
}

void ActiveRequest::ClearState() {
  std::optional<LinearStats> before = LinearStatsOf(*state_);
  state_->Clear();
  if (!before) return;
  const std::optional<LinearStats> after = LinearStatsOf(*state_);
  if (!linear_before_) linear_before_.emplace();
  linear_before_->boundaries += before->boundaries - after->boundaries;
  linear_before_->state_writes += before->state_writes - after->state_writes;
}

RequestStats ActiveRequest::Stats() {
  RequestStats stats;
  stats.prompt_tokens = prompt_tokens_;
  stats.cached_tokens = cached_;
  stats.generated_tokens = generated_;
  stats.context = context_;
  stats.drafted_tokens = drafted_;
  stats.accepted_tokens = accepted_;
  stats.drafts = draft_stats_;
  stats.draft_trouble = drafter_ == nullptr ? draft_trouble_ : drafter_->trouble();
  stats.preemptions = preemptions_;
  if (generated_ != 0) {
    stats.prefill_ms = Milliseconds(first_token_ - first_step_);
    stats.ttft_ms = Milliseconds(first_token_ - submitted_);
    stats.decode_ms = Milliseconds(last_token_time_ - first_token_);
  }
  stats.state_bytes = state_->bytes().committed;
  const GrowthCounts growth = state_->growth();
  stats.growth = {.allocated_bytes = state_->bytes().reserved,
                  .growths = growth.growths,
                  .bytes_copied = growth.bytes_copied,
                  .fell_back = growth.fell_back,
                  .gave_up_columns = growth.gave_up_columns};
  stats.numeric_class = numeric_class_;
  stats.linear = LinearStatsOf(*state_);
  if (stats.linear && linear_before_) {
    stats.linear->boundaries += linear_before_->boundaries;
    stats.linear->state_writes += linear_before_->state_writes;
  }
  if (sparse_from_ != SIZE_MAX) stats.attention = SparseStatsOf(*state_);
  stats.attention_reason = attention_reason_;
  const PageFaults now = ProcessPageFaults();
  stats.faults = {.minor = now.minor - page_faults_before_.minor, .major = now.major - page_faults_before_.major};
  return stats;
}

}  // namespace tidemill
