#include "runtime/active_request.h"

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "base/out_of_memory.h"

namespace tidemill {
namespace {

double Milliseconds(ActiveRequest::Clock::duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

}  // namespace

ActiveRequest::ActiveRequest(RequestId id, Request request, Sampler sampler, const Tokenizer& tokenizer,
                             std::unique_ptr<SequenceState> state, size_t context, std::unique_ptr<Drafter> drafter)
    : id_(id),
      options_(std::move(request.generation)),
      keep_state_(request.keep_state),
      sampler_(std::move(sampler)),
      tokenizer_(tokenizer),
      decoder_(tokenizer),
      stop_(options_.stop),
      state_(std::move(state)),
      context_(context),
      prompt_tokens_(request.prompt.size()),
      most_guesses_(drafter == nullptr ? 0 : request.draft.most),
      drafter_(std::move(drafter)),
      submitted_(Clock::now()) {
  sampler_.Prime(request.prompt);
  if (drafter_ != nullptr) {
    for (const int32_t token : request.prompt) drafter_->Append(token);
  }
  guesses_.reserve(most_events());
  sampled_.reserve(most_events());
}

void ActiveRequest::Continue(const RequestRecord& record, bool is_answer) {
  restored_ = state_->length();
  if (!is_answer) return;
  const std::vector<int32_t> all(tokens().begin(), tokens().end());
  const std::span<const int32_t> ids = all;
  earlier_ = ids.size() - static_cast<size_t>(record.prompt_tokens);
  sampler_.Prime(ids.first(ids.size() - earlier_));
  for (const int32_t id : ids.last(earlier_)) sampler_.Accept(id);
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
  if (finish != FinishReason::kStop)
    record.partial_character = decoder_.pending();  // behind a stop text nothing counts
  record.generation = options_;
  return record;
}

void ActiveRequest::Start() {
  running_ = true;
  if (!spilled_) return;
  const Result<std::vector<std::byte>> bytes = spilled_->Read();
  if (bytes.ok()) (void)state_->Restore(*bytes);  // where it fails the state is empty as before
  spilled_.reset();
}

void ActiveRequest::Preempt(const std::string& spill_folder) {
  try {
    if (!spill_folder.empty() && state_->length() != 0) {
      const Result<std::vector<std::byte>> bytes = state_->Checkpoint();
      Result<SpillFile> file = bytes.ok() ? SpillFile::Write(spill_folder, *bytes) : bytes.error();
      if (file.ok()) spilled_ = std::move(*file);
    }
  } catch (const std::exception&) {  // without memory for the folder's name it is computed again
  }
  state_->Clear();
  running_ = false;
  ++preemptions_;
}

size_t ActiveRequest::Draft(size_t most) {
  guesses_.clear();
  if (drafter_ == nullptr || pending() != 1) return 0;
  // A token more than the guesses is made, and none of them is past the end.
  size_t left = context_ - state_->length() - 1;
  if (options_.max_new_tokens)
    left = std::min(left, static_cast<size_t>(*options_.max_new_tokens) - earlier_ - generated_ - 1);
  try {
    const auto proposed = drafter_->Propose(std::min({most, most_guesses_, left}));
    guesses_.push_back(tokens().back());
    guesses_.insert(guesses_.end(), proposed.begin(), proposed.end());
  } catch (const std::exception&) {
    drafter_ = nullptr;
    guesses_.clear();
  }
  return guesses_.empty() ? 0 : guesses_.size() - 1;
}

ActiveRequest::Next ActiveRequest::NextTokens(size_t rows) {
  if (!started_) {
    started_ = true;
    first_step_ = Clock::now();
  }
  rows_ = rows;
  sampling_ = rows >= pending();
  if (rows > pending()) {
    guesses_.resize(rows);
    return {guesses_, Wanted::kAll};
  }
  guesses_.clear();
  return {tokens().subspan(state_->length(), rows), sampling_ ? Wanted::kLast : Wanted::kNothing};
}

void ActiveRequest::Sample(std::span<float> logits) {
  if (!sampling_) return;
  sampling_ = false;
  try {
    Result<SampledToken> token =
        sampler_.Sample(logits.first(tokenizer_.vocab_size()), static_cast<uint32_t>(tokens().size()));
    if (!token.ok()) {
      sample_error_ = std::move(token).error();
      return;
    }
    sampled_.push_back(*token);
    sampler_.Accept(token->id);
    const bool is_end = !options_.ignore_eos && tokenizer_.IsEndOfGeneration(token->id);
    sampling_ = !is_end && sampled_.size() < guesses_.size() && guesses_[sampled_.size()] == token->id;
  } catch (const std::exception&) {
    sample_error_ = OutOfMemoryError("sample token");
  }
}

void ActiveRequest::Abandon() {
  sampler_.Retract(sampled_.size());
  sampled_.clear();
  sample_error_.reset();
}

void ActiveRequest::Advance(std::vector<Event>* events) {
  const size_t guessed = guesses_.empty() ? 0 : guesses_.size() - 1;
  const size_t first = state_->length() + rows_ - guessed;  // the length behind the first of the chosen tokens
  drafted_ += guessed;
  try {
    keys_.reserve(rows_);  // before anybody is told of a token: Commit needs nothing more
  } catch (const std::exception&) {
    return Fail(OutOfMemoryError("advance request"), events);
  }
  size_t taken = 0;
  for (const SampledToken& token : sampled_) {
    Event event;
    event.request = id_;
    std::optional<FinishReason> reason;
    const size_t generated = generated_;
    try {
      reason = TakeToken(token, first + taken, &event);
      if (reason) {
        accepted_ += taken;
        sampler_.Retract(sampled_.size() - taken - 1);  // what was chosen behind the end
        Commit(first + taken - state_->length());
        Finish(*reason, &event);
      }
    } catch (const std::exception&) {
      generated_ = generated;  // nobody is told of that token
      return Fail(OutOfMemoryError("advance request"), events);
    }
    events->push_back(std::move(event));
    if (reason) return;
    ++taken;
  }
  accepted_ += taken == 0 ? 0 : taken - 1;
  Commit(taken == 0 ? rows_ - guessed : first + taken - 1 - state_->length());
  sampled_.clear();
  if (sample_error_) Fail(*std::exchange(sample_error_, std::nullopt), events);
}

void ActiveRequest::Commit(size_t rows) {
  const auto ran = tokens().subspan(state_->length(), rows);
  keys_.assign(ran.begin(), ran.end());
  state_->Commit(keys_);
}

std::optional<FinishReason> ActiveRequest::TakeToken(const SampledToken& token, size_t length, Event* event) {
  last_token_time_ = Clock::now();
  if (generated_++ == 0) first_token_ = last_token_time_;
  event->token = token.id;
  event->logprob = token.logprob.value_or(0.0F);
  event->top_logprobs.assign(token.top().begin(), token.top().end());
  if (!options_.ignore_eos && tokenizer_.IsEndOfGeneration(token.id)) return FinishReason::kEos;
  const StopMatcher::Output output = stop_.Push(decoder_.Push(token.id));
  event->text = std::exchange(carried_, {});
  event->text += output.emit;
  if (drafter_ != nullptr) drafter_->Append(token.id);
  if (output.stopped) return FinishReason::kStop;
  const bool all = options_.max_new_tokens && earlier_ + generated_ >= static_cast<size_t>(*options_.max_new_tokens);
  return all || length == context_ ? std::optional(FinishReason::kLength) : std::nullopt;
}

void ActiveRequest::FlushText(Event* event) {
  event->text += std::exchange(carried_, {});
  const StopMatcher::Output output = stop_.Push(decoder_.Finish());
  event->text += output.emit;
  if (!output.stopped) event->text += stop_.Finish();
}

void ActiveRequest::Finish(FinishReason reason, Event* event) {
  // What is held back belongs to whoever goes on.
  const bool goes_on = keep_state_ && (reason == FinishReason::kLength || reason == FinishReason::kCancelled);
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
  } catch (const std::exception&) {  // without memory for the text that was held back
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
    FlushText(&event);  // what was generated is never lost: held-back text comes with the error
    event.error = std::move(*event.error).WithContext("generate token " + std::to_string(generated_ + 1));
  } catch (const std::exception&) {  // without memory for more words
  }
  event.stats = Stats();
  done_ = true;
  events->push_back(std::move(event));
}

RequestStats ActiveRequest::Stats() {
  RequestStats stats;
  stats.prompt_tokens = prompt_tokens_;
  stats.restored_tokens = restored_;
  stats.generated_tokens = generated_;
  stats.drafted_tokens = drafted_;
  stats.accepted_tokens = accepted_;
  stats.preemptions = preemptions_;
  if (generated_ != 0) {
    stats.prefill_ms = Milliseconds(first_token_ - first_step_);
    stats.first_token_ms = Milliseconds(first_token_ - submitted_);
    stats.decode_ms = Milliseconds(last_token_time_ - first_token_);
  }
  stats.state_bytes = state_->bytes().committed;
  const GrowthCounts growth = state_->growth();
  stats.growth = {.reserved_bytes = state_->bytes().reserved,
                  .growths = growth.growths,
                  .bytes_copied = growth.bytes_copied,
                  .fell_back = growth.fell_back};
  return stats;
}

}  // namespace tidemill
