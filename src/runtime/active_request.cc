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
                             std::unique_ptr<SequenceState> state, size_t context)
    : id_(id),
      prompt_(std::move(request.prompt)),
      options_(std::move(request.generation)),
      sampler_(std::move(sampler)),
      tokenizer_(tokenizer),
      decoder_(tokenizer),
      stop_(options_.stop),
      state_(std::move(state)),
      context_(context),
      submitted_(Clock::now()) {
  sampler_.Prime(prompt_);
}

ActiveRequest::Next ActiveRequest::NextTokens(size_t most) {
  sampled_.reset();  // of a step that was interrupted
  if (!started_) {
    started_ = true;
    first_step_ = Clock::now();
  }
  if (!prefilling()) return {{&last_token_, 1}, true};
  const size_t count = std::min(most, prompt_.size() - fed_);
  return {std::span(prompt_).subspan(fed_, count), fed_ + count == prompt_.size()};
}

void ActiveRequest::Sample(std::span<float> logits) {
  const size_t position = prompt_.size() + generated_;
  try {
    sampled_ = sampler_.Sample(logits.first(tokenizer_.vocab_size()), static_cast<uint32_t>(position));
  } catch (const std::exception&) {
    sampled_ = OutOfMemoryError("sample token");
  }
}

void ActiveRequest::Advance(size_t tokens, std::vector<Event>* events) {
  const size_t generated = generated_;
  Event event;
  event.request = id_;
  try {
    Result<bool> made = MakeToken(tokens, &event);
    if (!made.ok()) return Fail(std::move(made).error(), events);
    if (!*made) return;
  } catch (const std::exception&) {
    generated_ = generated;  // nobody is told of that token
    return Fail(OutOfMemoryError("advance request"), events);
  }
  events->push_back(std::move(event));
}

Result<bool> ActiveRequest::MakeToken(size_t tokens, Event* event) {
  const std::span<const int32_t> ran = prefilling() ? std::span<const int32_t>(prompt_).subspan(fed_, tokens)
                                                    : std::span<const int32_t>(&last_token_, 1);
  keys_.assign(ran.begin(), ran.end());
  state_->Commit(keys_);
  if (prefilling()) fed_ += tokens;
  if (!sampled_.has_value()) return false;
  if (!sampled_->ok()) return std::move(*sampled_).error();

  const SampledToken& token = sampled_->value();
  sampler_.Accept(token.id);
  last_token_ = token.id;
  last_token_time_ = Clock::now();
  if (generated_++ == 0) first_token_ = last_token_time_;
  event->token = token.id;
  event->logprob = token.logprob.value_or(0.0F);
  event->top_logprobs.assign(token.top().begin(), token.top().end());
  if (!options_.ignore_eos && tokenizer_.IsEndOfGeneration(token.id)) {
    Finish(FinishReason::kEos, event);
  } else {
    const StopMatcher::Output output = stop_.Push(decoder_.Push(token.id));
    event->text = output.emit;
    if (output.stopped) {
      Finish(FinishReason::kStop, event);
    } else if ((options_.max_new_tokens.has_value() && generated_ >= static_cast<size_t>(*options_.max_new_tokens)) ||
               state_->length() == context_) {
      Finish(FinishReason::kLength, event);
    }
  }
  return true;
}

void ActiveRequest::FlushText(Event* event) {
  const StopMatcher::Output output = stop_.Push(decoder_.Finish());
  event->text += output.emit;
  if (!output.stopped) event->text += stop_.Finish();
}

void ActiveRequest::Finish(FinishReason reason, Event* event) {
  if (reason != FinishReason::kStop) FlushText(event);
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
  stats.prompt_tokens = prompt_.size();
  stats.generated_tokens = generated_;
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
