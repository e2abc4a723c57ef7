// Requests of models that read segments: how far a step or a wave goes.
#include <algorithm>
#include <exception>
#include <utility>

#include "base/check.h"
#include "base/out_of_memory.h"
#include "engine/segments.h"
#include "runtime/active_request.h"

namespace tidemill {

ActiveRequest::SegmentPart ActiveRequest::CutToSegment(size_t rows) {
  if (segments_ == nullptr || rows == 0) return {rows, false};
  const size_t text = sampler_.history().num_prompt_tokens(), first = SegmentFirst(*state_);
  const size_t end = SegmentEnd(*segments_->settings.armt, text, first);
  if (end >= text) return {rows, false};
  // An answer that went on behind the segment is part of a prompt now. Its last token is computed again, in front of the memory rows.
  if (state_->length() >= end) TIDEMILL_CHECK(state_->Rollback(end - 1).ok());
  const size_t left = end - state_->length();
  return {std::min(rows, left), rows >= left};
}

ActiveRequest::WholeSegments ActiveRequest::NextSegments(size_t most) const {
  WholeSegments whole;
  if (segments_ == nullptr || state_->length() != SegmentFirst(*state_)) return whole;
  const size_t text = sampler_.history().num_prompt_tokens(), first = state_->length();
  while (true) {
    const size_t end = SegmentEnd(*segments_->settings.armt, text, first + whole.tokens);
    if (end >= text || end - first > most) return whole;
    whole.tokens = end - first;
    ++whole.count;
  }
}

void ActiveRequest::AdvanceWave(size_t tokens, std::vector<Event>* events) {
  try {
    keys_.reserve(tokens);
  } catch (const std::exception&) {
    return Fail(OutOfMemoryError("advance request"), events);
  }
  Commit(tokens, {});
  if (sample_error_) Fail(*std::exchange(sample_error_, std::nullopt), events);
}

}  // namespace tidemill
