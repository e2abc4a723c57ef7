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
      options_(std::move(request.generation)),
      sampler_(std::move(sampler)),
      tokenizer_(tokenizer),
      decoder_(tokenizer),
      stop_(options_.stop),
      state_(std::move(state)),
      context_(context),
      submitted_(Clock::now()) {
  sampler_.Prime(request.prompt);
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

ActiveRequest::Next ActiveRequest::NextTokens(size_t count) {
  sampled_.reset();  // of a step that was interrupted
  if (!started_) {
    started_ = true;
    first_step_ = Clock::now();
  }
  return {tokens().subspan(state_->length(), count), count == pending()};
}

void ActiveRequest::Sample(std::span<float> logits) {
  try {
    sampled_ = sampler_.Sample(logits.first(tokenizer_.vocab_size()), static_cast<uint32_t>(tokens().size()));
  } catch (const std::exception&) {
    sampled_ = OutOfMemoryError("sample token");
  }
}

void ActiveRequest::Advance(size_t rows, std::vector<Event>* events) {
  const size_t generated = generated_;
  Event event;
  event.request = id_;
  try {
    Result<bool> made = MakeToken(rows, &event);
    if (!made.ok()) return Fail(std::move(made).error(), events);
    if (!*made) return;
  } catch (const std::exception&) {
    generated_ = generated;  // nobody is told of that token
    return Fail(OutOfMemoryError("advance request"), events);
  }
  events->push_back(std::move(event));
}

Result<bool> ActiveRequest::MakeToken(size_t rows, Event* event) {
  const auto ran = tokens().subspan(state_->length(), rows);
  keys_.assign(ran.begin(), ran.end());
  state_->Commit(keys_);
  if (!sampled_.has_value()) return false;
  if (!sampled_->ok()) return std::move(*sampled_).error();

  const SampledToken& token = sampled_->value();
  sampler_.Accept(token.id);
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
  stats.prompt_tokens = sampler_.history().num_prompt_tokens();
  stats.generated_tokens = generated_;
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
