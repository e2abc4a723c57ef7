// One request in flight: its tokens, its state, and how its tokens become text and an end.
//
// It waits, runs, or waits again: then its state is put aside or dropped, and what was dropped is computed again from its tokens, which
// gives the same bits.
#ifndef TIDEMILL_RUNTIME_ACTIVE_REQUEST_H_
#define TIDEMILL_RUNTIME_ACTIVE_REQUEST_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/spill_file.h"
#include "decoding/sampler.h"
#include "decoding/stop_matcher.h"
#include "state/sequence_state.h"
#include "tidemill/engine.h"
#include "tidemill/tokenizer.h"

namespace tidemill {

class ActiveRequest {
 public:
  using Clock = std::chrono::steady_clock;

  ActiveRequest(RequestId id, Request request, Sampler sampler, const Tokenizer& tokenizer,
                std::unique_ptr<SequenceState> state, size_t context);

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

  // The next tokens to run, `count` <= pending(). `last`: logits are wanted after them.
  struct Next {
    std::span<const int32_t> tokens;
    bool last = false;
  };
  Next NextTokens(size_t count);

  // Logits [vocab] of the last of those tokens: chooses the next token, to be taken up by Advance, among those of the tokenizer,
  // which may have fewer than the model has rows.
  void Sample(std::span<float> logits);

  // What follows appends at most one event, for which there must be room, and throws nothing: without memory the request fails.

  // The step of `rows` tokens is committed. An event if it made a token.
  void Advance(size_t rows, std::vector<Event>* events);

  // Ends the request with its last event.
  void Cancel(std::vector<Event>* events);
  void Fail(Error error, std::vector<Event>* events);

  bool done() const { return done_; }
  std::atomic<bool> cancelled{false};

 private:
  // Commits the step; true when it made a token, with which it fills the event. Throws std::bad_alloc.
  Result<bool> MakeToken(size_t rows, Event* event);
  void FlushText(Event* event);
  void Finish(FinishReason reason, Event* event);
  RequestStats Stats();

  RequestId id_;
  GenerationOptions options_;
  Sampler sampler_;
  const Tokenizer& tokenizer_;  // the model's, which the engine keeps
  StreamDecoder decoder_;
  StopMatcher stop_;
  std::unique_ptr<SequenceState> state_;
  std::optional<SpillFile> spilled_;  // what the state was
  size_t context_;
  std::vector<RowKey> keys_;
  std::optional<Result<SampledToken>> sampled_;
  size_t generated_ = 0, preemptions_ = 0;
  bool running_ = false, started_ = false, done_ = false;
  Clock::time_point submitted_, first_step_, first_token_, last_token_time_;
};

}  // namespace tidemill

#endif  // TIDEMILL_RUNTIME_ACTIVE_REQUEST_H_
