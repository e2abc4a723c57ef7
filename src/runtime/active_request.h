// One request in flight: its tokens, its state, and how its tokens become text and an end.
//
// It waits, runs, or waits again: then its state is put aside or dropped, and what was dropped is computed again from its tokens, which
// gives the same bits.
#ifndef TIDEMILL_RUNTIME_ACTIVE_REQUEST_H_
#define TIDEMILL_RUNTIME_ACTIVE_REQUEST_H_

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
#include "decoding/draft_width.h"
#include "decoding/drafter.h"
#include "decoding/sampler.h"
#include "decoding/stop_matcher.h"
#include "engine/sequential_executor.h"
#include "planner/growth_choice.h"
#include "runtime/draft_steps.h"
#include "runtime/request_record.h"
#include "state/sequence_state.h"
#include "tensor/matrix.h"
#include "tidemill/engine.h"
#include "tidemill/tokenizer.h"

namespace tidemill {

// What a test has happen to a request: these may throw, or spoil the logits. An empty one does nothing.
struct RequestFaults {
  std::function<void(RequestId, std::span<float> logits)> sampling = {};  // before a token is chosen
  std::function<void(RequestId)> decoding = {};                           // before it becomes text
};

class ActiveRequest {
 public:
  using Clock = std::chrono::steady_clock;

  // `drafter`: null for none; it gets the prompt here. `costs`: DraftWidth's.
  ActiveRequest(RequestId id, Request request, Sampler sampler, const Tokenizer& tokenizer,
                std::unique_ptr<SequenceState> state, size_t context, std::unique_ptr<Drafter> drafter,
                const DraftCosts& costs = {});

  // Before its first step: the state holds a beginning of the prompt, whose last record.ids - record.prompt_tokens tokens are the
  // beginning of the answer where `is_answer`, and text that they held back is still to come.
  void Continue(const RequestRecord& record, bool is_answer);

  RequestId id() const { return id_; }
  SequenceState& state() { return *state_; }
  bool running() const { return running_; }

  // Tokens that are known and not in the state yet: of the prompt, or the last generated one; more after a preemption.
  size_t pending() const { return tokens().size() - state_->length(); }
  std::span<const int32_t> tokens() const { return sampler_.history().ids(); }  // the prompt, and what was generated

  // From waiting to running. A state that cannot be read back is computed again.
  void Start();
  // From running to waiting, without memory. `spill_folder`: see EngineOptions.
  void Preempt(const std::string& spill_folder);

  // What is to be guessed of what follows the one pending token, at most `most` tokens; its `most` is 0 where nothing is.
  DraftTask AskForGuesses(size_t most);
  // What came of it, where that was not 0: so many more rows the step may have, and of them those that its state has room for, or all
  // where the state must grow for the pending token anyway.
  struct GuessRows {
    size_t all = 0, free = 0;
  };
  GuessRows TakeGuesses(const DraftTask& task);
  // How the state grows and what that costs; without it, it never grows for guesses alone.
  void PriceGrowth(const EarlyGrowth& growth) { early_growth_ = growth; }
  // Whether those that are not free are worth that the state grows for them now.
  bool AreWorthGrowing(const GuessRows& guesses) const;

  // The step's tokens: `rows` pending ones, or the pending one and the first rows - 1 guesses. Logits are wanted after the last, or after
  // each.
  struct Next {
    std::span<const int32_t> tokens;
    Wanted wanted = Wanted::kNothing;
    std::span<const int32_t> parents = {};  // StepSequence::parents
  };
  Next NextTokens(size_t rows);

  // Logits [vocab] of the token in row `row`, in their order: chooses the token that follows, to be taken up by Advance, among those of
  // the tokenizer, which may have fewer than the model has rows. Behind a guess that was wrong nothing is chosen.
  void Sample(size_t row, std::span<float> logits);
  // The step is not complete: nothing was chosen.
  void Abandon();

  // What follows throws nothing: without memory the request fails. There must be room for its events.

  // The step is committed, but for wrong guesses. An event for each token that was chosen, at most one more than guesses. features: of
  // the step's rows, where reads_features(); else nothing.
  void Advance(std::vector<Event>* events, const ConstMatrix<float>& features);
  // Of all known tokens and of the next, where that is not the last of all, which is in no state.
  size_t next_positions() const;
  // What it takes of state_memory once its state has room for so many more rows, in steps of `step`, and of that what features take.
  uint64_t BytesWith(size_t rows, size_t step) const;
  uint64_t feature_bytes() const { return drafter_ == nullptr ? 0 : drafter_->feature_bytes(); }
  // Where there is no room beside them: it guesses no more, and nothing else is lost. False: it had none.
  bool GiveUpFeatures();
  // It guesses no more, for this reason, static text, or for one that the drafter had already.
  void GiveUpDrafter(std::string_view trouble);
  // Whether its guesses take steps of that model.
  bool GuessesOn(const DraftForward& forward) const {
    return drafter_ != nullptr && steps_ != nullptr && steps_->forward().IsSame(forward);
  }
  bool reads_features() const { return drafter_ != nullptr && drafter_->reads_features(); }
  size_t most_events() const { return 1 + most_guesses_; }  // of a step
  size_t most_rows() const { return state_->max_length() - state_->length(); }

  // What making guesses took before this step; and what the step took, with the guesses of all its requests, for so many tokens in all.
  double drafting_seconds() const { return drafting_seconds_; }
  // What was made then read a text that is new to the drafter: it says little of what guesses take.
  bool drafter_reads_text() const { return empty_ == DraftTree::Empty::kReadText; }
  void LeaveOutDrafting() { is_timed_ = false; }  // where steps are not timed by a clock either
  void Took(double seconds, size_t tokens);

  void Inject(const RequestFaults* faults) { injected_ = faults; }  // null: none; outlives the request

  // These two throw std::bad_alloc. Once it is done, for whom keeps_state(): what of it is to be saved, all but whose it is and its state.
  // Or, where that cannot be, the text that was held back for it.
  RequestRecord Record(FinishReason finish) const;
  void FlushText(Event* event);
  bool keeps_state() const { return keep_state_; }

  // Ends the request with its last event, one.
  void Cancel(std::vector<Event>* events);
  void Fail(Error error, std::vector<Event>* events);

  bool done() const { return done_; }
  std::atomic<bool> cancelled{false};

 private:
  // What the next chosen token says; a reason where it is the last. `length`: of the state once its step is committed. Throws
  // std::bad_alloc.
  std::optional<FinishReason> TakeToken(const SampledToken& token, size_t length, Event* event);
  void DropDrafter(std::string_view trouble);   // for good; static text
  void StopDrafting(std::string_view trouble);  // and this step has no guesses
  bool found_unlikely() const { return empty_ == DraftTree::Empty::kFoundUnlikely; }
  void CountGuesses(size_t guesses);
  void CountTokens(
      size_t tokens);  // of the step: guesses that were right, the first ones, and one that was drawn behind them
  // The row that a guess of the step stands behind.
  size_t ParentOf(size_t guess) const { return parents_.empty() ? guess - 1 : static_cast<size_t>(parents_[guess]); }
  // What was guessed behind a row of the step; valid until the next call.
  Guesses GuessesBehind(size_t row);
  void Commit(size_t rows, const ConstMatrix<float>& features);
  size_t GuessBehind(size_t row,
                     int32_t id) const;  // the row of the step that follows `row` and guesses `id`; kNoRow: none does
  void Finish(FinishReason reason, Event* event);
  RequestStats Stats();

  RequestId id_;
  GenerationOptions options_;
  bool keep_state_;
  Sampler sampler_;
  const Tokenizer& tokenizer_;  // the model's, which the engine keeps
  StreamDecoder decoder_;
  StopMatcher stop_;
  std::string carried_;      // text for the next event, which other stop texts would have held back
  std::string text_before_;  // a token that is taken: carried and held back
  std::unique_ptr<SequenceState> state_;
  std::optional<SpillFile> spilled_;  // what the state was
  size_t context_;
  size_t prompt_tokens_;  // that were submitted
  size_t restored_ = 0;   // of them, those that came with a saved state
  size_t earlier_ = 0;    // the last of them: the answer so far
  std::vector<RowKey> keys_;
  size_t most_guesses_;
  std::unique_ptr<Drafter> drafter_;
  StepDrafter* steps_;              // of drafter_, while there is one
  std::string_view draft_trouble_;  // why there is no drafter any more
  DraftRule rule_;
  DraftWidth width_;
  bool is_timed_ = true;
  double drafting_seconds_ = 0;
  DraftTree::Empty empty_ = DraftTree::Empty::kNothing;  // what the drafter did where this step has no guesses
  size_t right_ = 0;                                     // guesses of the last step
  DraftStats draft_stats_;
  GuessRows offered_;  // guesses that were made for the step
  std::optional<EarlyGrowth> early_growth_;
  std::vector<int32_t> guesses_;  // the pending token, and what may follow it; empty where nothing is guessed
  std::vector<int32_t> parents_;  // of guesses_; empty: each follows the one before it
  std::span<const std::vector<TokenProbability>> drawn_from_;  // of guesses_ behind the first, where they were drawn
  std::vector<int32_t> siblings_;
  std::vector<uint32_t> right_nodes_;
  size_t rows_ = 0;  // of the step
  std::vector<SampledToken> sampled_;
  std::vector<uint32_t> path_;  // the rows that they were chosen behind
  std::optional<Error> sample_error_;
  static constexpr size_t kNoRow = ~size_t{0};
  const RequestFaults* injected_ = nullptr;
  size_t next_row_ = kNoRow;  // of the step: a token that is right, behind which nothing was chosen yet
  size_t generated_ = 0, drafted_ = 0, accepted_ = 0, preemptions_ = 0;
  bool running_ = false, started_ = false, done_ = false;
  Clock::time_point submitted_, first_step_, first_token_, last_token_time_;
  PageFaults page_faults_before_;
};

}  // namespace tidemill

#endif  // TIDEMILL_RUNTIME_ACTIVE_REQUEST_H_
