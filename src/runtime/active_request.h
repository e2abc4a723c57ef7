// One request in flight: its tokens, its state, and how its tokens become text and an end.
//
// It waits, runs, or is preempted: its state is then written to disk or dropped. A dropped state is recomputed from the tokens, with the
// same bits.
#ifndef TIDEMILL_RUNTIME_ACTIVE_REQUEST_H_
#define TIDEMILL_RUNTIME_ACTIVE_REQUEST_H_

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/spill_file.h"
#include "decoding/drafter.h"
#include "decoding/num_draft_tokens.h"
#include "decoding/repetition_detector.h"
#include "decoding/sampler.h"
#include "decoding/stop_matcher.h"
#include "engine/step_executor.h"
#include "planner/growth_choice.h"
#include "runtime/draft_steps.h"
#include "runtime/prefix_cache.h"
#include "runtime/request_record.h"
#include "runtime/snapshot_timer.h"
#include "state/sequence_state.h"
#include "tensor/matrix.h"
#include "tidemill/engine.h"
#include "tidemill/tokenizer.h"

namespace tidemill {

// Faults that a test injects: these may throw, or spoil the logits. An empty one does nothing.
struct RequestFaults {
  std::function<void(RequestId, std::span<float> logits)> sampling = {};  // before a token is chosen
  std::function<void(RequestId)> decoding = {};                           // before it becomes text
};

class ActiveRequest {
 public:
  using Clock = std::chrono::steady_clock;

  struct Parts {
    Sampler sampler;
    const Tokenizer& tokenizer;  // the model's
    std::unique_ptr<SequenceState> state;
    size_t context;                           // tokens
    std::unique_ptr<Drafter> drafter;         // null for none; it gets the prompt here
    DraftCosts costs;                         // NumDraftTokens's
    size_t sparse_from = SIZE_MAX;            // as StepSequence::sparse_from
    size_t max_shared = SIZE_MAX;             // AttentionClass::SharedPositions
    std::string_view numeric_class;           // outlives the request
    std::string_view attention_reason = {};   // RequestStats::attention_reason
    const LanguageModel* segments = nullptr;  // the model, where it reads its text in segments
  };
  ActiveRequest(RequestId id, Request request, Parts parts);

  // Before its first step: the state holds a beginning of the prompt. If `is_answer`, its last record.ids - record.prompt_tokens tokens
  // begin the answer, and text that they withheld is still to come.
  void Continue(const RequestRecord& record, bool is_answer);

  RequestId id() const { return id_; }
  SequenceState& state() { return *state_; }
  bool running() const { return running_; }

  // Known tokens that are not in the state: of the prompt, or the last sampled token; more after a preemption.
  size_t pending() const { return tokens().size() - state_->length(); }
  size_t num_prompt_tokens() const { return sampler_.history().num_prompt_tokens(); }
  bool reads_prompt() const { return state_->length() < sampler_.history().num_prompt_tokens(); }
  std::span<const int32_t> tokens() const { return sampler_.history().ids(); }  // the prompt, and what was generated
  // Of them the first ones, whose rows others may have or take.
  std::span<const int32_t> shared_tokens() const { return tokens().first(std::min(tokens().size(), max_shared_)); }
  size_t sparse_from() const { return sparse_from_; }  // StepSequence's

  // Before Start, while it holds nothing: the first `length` of its tokens come from a state of them, and its drafter's from `draft`, which
  // may be null. Without memory it changes nothing.
  void Continue(SequenceState& from, size_t length, SequenceState* draft);
  void DropPrefix();  // what that took
  // Whether its state shares blocks of rows with others, which may hold more rows than its own would: since Continue, or since another
  // request continued from it.
  bool is_sharing() const { return sharing_; }
  void Share() { sharing_ = true; }
  // It shares with nobody from now on. What it shares already goes with the next Preempt.
  void StopSharing() { shares_ = false; }
  bool shares() const { return shares_; }
  bool has_started() const { return started_; }
  bool is_cold() const { return state_->length() == 0 && !spilled_; }
  bool stores() const { return store_; }
  const std::string& cache_salt() const { return cache_salt_; }
  SharingGroup sharing_group() const { return {cache_salt_, state_->identity().numeric_class}; }
  std::string_view numeric_class() const { return numeric_class_; }
  // Once it is done: its state, of the first tokens(), where it may be kept for others; else null.
  std::unique_ptr<SequenceState> TakeState();
  // Its drafter's state of tokens(), from which another request's drafter may continue; null: none.
  SequenceState* DraftStateForOthers() { return steps_ == nullptr ? nullptr : steps_->KnownState(); }
  std::unique_ptr<SequenceState> TakeDraftState() { return steps_ == nullptr ? nullptr : steps_->TakeState(); }

  // From waiting to running. A state that cannot be read back is recomputed.
  void Start();
  // From running to waiting, without memory. `spill_folder`: see EngineOptions.
  void Preempt(const std::string& spill_folder);

  // The draft wanted after the last sampled token, of at most `num_draft_tokens` tokens; its `num_draft_tokens` is 0 if none is wanted.
  DraftTask AskForDraftTokens(size_t num_draft_tokens);
  // Its result, if that was not 0: the step's draft rows, and those that fit without growth, or all if the last sampled token needs growth
  // anyway.
  struct DraftRows {
    size_t all = 0, free = 0;
  };
  DraftRows TakeDraftTokens(const DraftTask& task);
  // How the state grows and what that costs; without it the state never grows for drafts alone.
  void PriceGrowth(const EarlyGrowth& growth) { early_growth_ = growth; }
  // Whether the draft rows that do not fit are worth growing the state now.
  bool AreWorthGrowing(const DraftRows& draft_tokens) const;

  // Of a model with segments: how many of at most `rows` known tokens a step takes, and whether the segment at hand ends behind them. It may
  // roll its state back by a few tokens. Else, and of the last segment: all, and it does not end.
  struct SegmentPart {
    size_t rows = 0;
    bool ends = false;
  };
  SegmentPart CutToSegment(size_t rows);
  // Of a model with segments: the next whole segments, of at most so many tokens, that end before the prompt's last one does. None where the
  // state is within a segment.
  struct WholeSegments {
    size_t tokens = 0, count = 0;
  };
  WholeSegments NextSegments(size_t most) const;
  // Those have run as a wave.
  void StartWave() { BeginStep(); }
  void AdvanceWave(size_t tokens, std::vector<Event>* events);

  // The step's tokens: `rows` known ones, or the last sampled one and the first rows - 1 draft tokens. Logits are wanted after the last, or
  // after each.
  struct Next {
    std::span<const int32_t> tokens;
    Wanted wanted = Wanted::kNothing;
    std::span<const int32_t> parents = {};  // StepSequence::parents
  };
  Next NextTokens(size_t rows);

  // Logits [vocab] after row `row`, in ascending order: samples the next token, for Advance, among the tokenizer's, which may be fewer than
  // the model's rows. Rejected rows are skipped.
  void Sample(size_t row, std::span<float> logits);
  // The step was not completed: nothing was sampled.
  void Abandon();

  // What follows throws nothing: without memory the request fails. `events` must have enough capacity.

  // Commits the step's accepted rows. An event for each sampled token, at most one more than draft tokens. features: of the step's rows if
  // reads_features(), else empty.
  void Advance(std::vector<Event>* events, const ConstMatrix<float>& features);
  // Positions of all known tokens and the next one, unless that is the last, which enters no state.
  size_t next_positions() const;
  // State memory that it takes once its state has so many more rows, in steps of `step`: beside what it holds, and all.
  uint64_t GrowthBytes(size_t rows, size_t step) const;
  uint64_t BytesWith(size_t rows, size_t step) const;
  // What the ledger counts of it.
  void ForEachBlock(const LayerState::BlockVisitor& visit) const;
  // While it waits: drops its state, which is computed again. False: it has none. Bytes: what that gives at most.
  bool DropWaitingState();
  uint64_t waiting_bytes() const;
  // Its drafter's state, which is computed again. False: it has none.
  bool ReleaseDraftState();
  uint64_t draft_state_bytes() const { return steps_ == nullptr ? 0 : steps_->state_bytes(); }
  void HoldFeatures() {
    if (drafter_ != nullptr) drafter_->HoldFeatures();
  }
  // For lack of memory: it stops drafting, nothing else changes. False: it had none.
  bool GiveUpFeatures();
  // It stops drafting, for this reason (static text) or an earlier one of the drafter.
  void GiveUpDrafter(std::string_view trouble);
  // Whether it drafts with steps of that model.
  bool DraftTokensOn(const DraftForward& forward) const {
    return steps_ != nullptr && steps_->forward().IsSame(forward);
  }
  bool reads_features() const { return drafter_ != nullptr && drafter_->reads_features(); }
  size_t max_events() const { return 1 + max_draft_tokens_; }  // of a step
  size_t max_rows() const { return state_->max_length() - state_->length(); }

  // Time of drafting before this step. Took: of the step, with the drafting of all its requests, for so many tokens in all.
  double drafting_seconds() const { return drafting_seconds_; }
  // That time was draft prefill, so it is no measure of drafting.
  bool drafter_reads_text() const { return empty_ == DraftTree::Empty::kReadText; }
  void LeaveOutDrafting() { is_timed_ = false; }  // if steps are not timed by a clock either
  void Took(double seconds, size_t tokens);

  void Inject(const RequestFaults* faults) { injected_ = faults; }  // null: none; outlives the request

  // These two throw std::bad_alloc. The record to save, without identity and state: once it is done, if keeps_state(), or as if it were cancelled now.
  // FlushText: the withheld text, if it cannot be saved.
  RequestRecord Record(FinishReason finish) const;
  void FlushText(Event* event);
  bool keeps_state() const { return keep_state_; }
  // When it is saved in its prompt.
  SnapshotTimer& snapshots() { return snapshots_; }

  // Ends the request with its last event, one.
  void Cancel(std::vector<Event>* events);
  void Fail(Error error, std::vector<Event>* events);

  bool done() const { return done_; }
  std::atomic<bool> cancelled{false};

 private:
  // Emits the next sampled token; a reason if it is the last. `length`: of the state once its step is committed. Throws std::bad_alloc.
  std::optional<FinishReason> TakeToken(const SampledToken& token, size_t length, Event* event);
  void DropDrafter(std::string_view trouble);   // for good; static text
  void StopDrafting(std::string_view trouble);  // and this step has no draft
  bool found_unlikely() const { return empty_ == DraftTree::Empty::kFoundUnlikely; }
  void CountDraftTokens(size_t draft_tokens);
  void CountTokens(size_t tokens);  // of the step: accepted draft tokens, and the one sampled after them
  // The row that a draft token of the step follows.
  size_t ParentOf(size_t draft_token) const {
    return parents_.empty() ? draft_token - 1 : static_cast<size_t>(parents_[draft_token]);
  }
  void BeginStep();
  void Commit(size_t rows, const ConstMatrix<float>& features);
  size_t DraftTokenBehind(
      size_t row,
      int32_t id) const;  // the row of the step that follows `row` with draft token `id`; kNoRow: none
  void Finish(FinishReason reason, Event* event);
  void ClearState();
  RequestStats Stats();

  RequestId id_;
  GenerationOptions options_;
  bool keep_state_, store_;
  SnapshotTimer snapshots_;
  std::string cache_salt_;
  Sampler sampler_;
  const Tokenizer& tokenizer_;  // the model's, which the engine keeps
  StreamDecoder decoder_;
  std::vector<int32_t> stop_ids_;  // special tokens, which have no text, that a stop text spells
  StopMatcher stop_;
  RepetitionDetector repetition_;  // of the answer's tokens that were taken
  std::string carried_;            // text for the next event, which other stop texts would have held back
  std::string text_before_;        // a token that is taken: carried and held back
  std::unique_ptr<SequenceState> state_;
  std::optional<SpillFile> spilled_;  // what the state was
  std::string_view numeric_class_, attention_reason_;
  const LanguageModel* segments_;
  std::optional<LinearStats> linear_before_;  // what states did that were cleared; none: there are no linear layers
  size_t context_, sparse_from_, max_shared_;
  size_t prompt_tokens_;  // submitted
  size_t cached_ = 0;     // of them, those that were not computed before the first step
  size_t earlier_ = 0;    // the last of them: the answer so far
  std::vector<RowKey> keys_;
  size_t max_draft_tokens_;
  std::unique_ptr<Drafter> drafter_;
  StepDrafter* steps_;              // StepDrafter::Of(drafter_)
  std::string_view draft_trouble_;  // why there is no drafter any more
  NumDraftTokens num_draft_tokens_;
  bool is_timed_ = true;
  double drafting_seconds_ = 0;
  DraftTree::Empty empty_ = DraftTree::Empty::kNothing;  // why this step has no draft
  size_t accepted_in_step_ = 0;                          // accepted draft tokens of the last step
  DraftStats draft_stats_;
  DraftRows offered_;  // the step's draft
  std::optional<EarlyGrowth> early_growth_;
  std::vector<int32_t> draft_tokens_;  // the last sampled token, and what may follow it; empty where nothing is drafted
  std::vector<int32_t> parents_;       // of draft_tokens_; empty: each follows the one before it
  std::vector<uint32_t> accepted_nodes_;
  size_t rows_ = 0;  // of the step
  std::vector<SampledToken> sampled_;
  std::vector<uint32_t> path_;  // the rows that they follow
  std::optional<Error> sample_error_;
  static constexpr size_t kNoRow = ~size_t{0};
  const RequestFaults* injected_ = nullptr;
  size_t next_row_ = kNoRow;  // of the step: the accepted row to sample after
  size_t generated_ = 0, drafted_ = 0, accepted_ = 0, preemptions_ = 0;
  bool running_ = false, started_ = false, done_ = false, failed_ = false;
  bool sharing_ = false, shares_;
  Clock::time_point submitted_, first_step_, first_token_, last_token_time_;
  PageFaults page_faults_before_;
};

}  // namespace tidemill

#endif  // TIDEMILL_RUNTIME_ACTIVE_REQUEST_H_
