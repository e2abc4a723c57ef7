#include "runtime/scheduler.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/checked_math.h"
#include "base/out_of_memory.h"

namespace tidemill {
namespace {

uint64_t Sum(uint64_t a, uint64_t b) {
  uint64_t sum = 0;
  return CheckedAdd(a, b, &sum) ? sum : UINT64_MAX;
}

}  // namespace

Error StateTooLarge(std::string_view what, size_t positions, uint64_t need, uint64_t features, uint64_t have) noexcept {
  try {
    const std::string of_features =
        features == 0 ? "" : ", of which " + std::to_string(features) + " are a draft head's features";
    return Error(
        ErrorCode::kOutOfMemory,
        std::string(what) + ": " + std::to_string(positions) + " tokens: expected at most " + std::to_string(have) +
            " bytes of state, found " + (need == UINT64_MAX ? "more than 2^64" : std::to_string(need)) + of_features +
            "; ask for fewer tokens" + (features == 0 ? "" : ", no draft tokens") + " or give more --state-memory");
  } catch (const std::exception&) {  // without memory for the words
    return OutOfMemoryError(what);
  }
}

Scheduler::Scheduler(const SchedulerLimits& limits)
    : limits_(limits), prefix_cache_(limits.state_memory / 2), draft_steps_(limits.max_batch) {
  running_.reserve(limits.max_batch);
  drafts_.reserve(limits.max_batch);
  drafting_.reserve(limits.max_batch);
  step_.reserve(limits.max_batch);
  stepping_.reserve(limits.max_batch);
}

void Scheduler::Plan(std::span<const std::unique_ptr<ActiveRequest>> requests, std::vector<Event>* events) {
  step_.clear();
  stepping_.clear();
  Admit(requests, events);
  AssignRows();
  for (size_t i = 0; i < running_.size(); ++i) {
    if (running_[i].rows == 0 || !MakeRoom(i, events)) continue;
    ActiveRequest& request = *running_[i].request;
    const ActiveRequest::Next next = request.NextTokens(running_[i].rows);
    step_.push_back({.state = &request.state(), .tokens = next.tokens, .rows = next.wanted, .parents = next.parents});
    stepping_.push_back(&request);
  }
}

void Scheduler::Admit(std::span<const std::unique_ptr<ActiveRequest>> requests, std::vector<Event>* events) {
  // Those that ended are gone from `requests`, and their memory with them.
  size_t kept = 0, at = 0;
  bytes_ = 0;
  one_waits_ = false;
  for (; kept < requests.size() && requests[kept]->running(); ++kept, ++at) {
    while (running_[at].id != requests[kept]->id()) ++at;
    running_[kept] = running_[at];
    bytes_ += running_[kept].bytes;
    UncountFeatures(running_[kept]);
  }
  running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(kept), running_.end());
  for (const auto& request : requests.subspan(kept)) {
    if (running_.size() == limits_.max_batch) return;
    const size_t positions = request->next_positions();
    // A resumed one is not empty, nor is one that has a prefix.
    const auto bytes = [&] { return request->BytesWith(positions - request->state().length(), limits_.prefill_chunk); };
    uint64_t need = bytes();
    if (Sum(bytes_, need) > limits_.state_memory && !running_.empty()) {
      one_waits_ = true;
      return;
    }
    if (need > limits_.state_memory && request->GiveUpFeatures()) need = bytes();
    if (need > limits_.state_memory) {
      request->Fail(StateTooLarge("start request", positions, need, 0, limits_.state_memory), events);
      continue;
    }
    if (!TakePrefix(*request)) return;
    need = bytes();
    if (!Fits(need) && request->is_sharing()) {  // blocks that it shares are larger than its own
      request->DropPrefix();
      need = bytes();
      (void)Fits(need);
    }
    request->Start();
    running_.push_back({request->id(), request.get(), need, request->feature_bytes()});
    bytes_ += need;
  }
}

bool Scheduler::TakePrefix(ActiveRequest& request) {
  if (!limits_.prefix_cache || !request.is_cold() || !request.shares()) return true;
  const std::span<const int32_t> tokens = request.tokens();
  PrefixCache::Found found = prefix_cache_.Find(tokens, request.cache_salt());
  ActiveRequest* source = nullptr;  // of `found`, if it runs
  size_t coming = 0;
  for (const Running& running : running_) {
    ActiveRequest& other = *running.request;
    if (!other.stores() || !other.shares() || other.cache_salt() != request.cache_salt()) continue;
    SequenceState& state = other.state();
    if (const size_t length = SharedPrefix(tokens, other.tokens(), state); length > found.length) {
      found = {&state, length};
      source = &other;
    }
    const size_t common = std::min(CommonTokens(tokens, other.tokens()), tokens.size() - 1);
    if (common > state.length() && state.keeps_all()) coming = std::max(coming, common);
  }
  if (coming >= found.length + PrefixCache::kFewestTokens) return false;
  if (found.length == 0) return true;
  if (source != nullptr) source->Share();
  request.Continue(*found.state, found.length);
  return true;
}

bool Scheduler::Fits(uint64_t more) {
  const uint64_t all = Sum(bytes_, more);
  if (all > limits_.state_memory) return false;
  while (Sum(all, prefix_cache_.bytes()) > limits_.state_memory && prefix_cache_.DropOldest()) {
  }
  return true;
}

void Scheduler::Keep(ActiveRequest& request) noexcept {
  if (!limits_.prefix_cache) return;
  try {
    std::unique_ptr<SequenceState> state = request.TakeState();
    if (state == nullptr) return;
    const std::span<const int32_t> ids = request.tokens().first(state->length());
    prefix_cache_.Keep(ids, request.cache_salt(), std::move(state));
  } catch (const std::exception&) {  // std::bad_alloc
  }
}

void Scheduler::AssignRows() {
  size_t rows = limits_.max_rows;
  for (Running& running : running_) {
    running.rows = running.request->pending() == 1 ? 1 : 0;
    rows -= running.rows;
  }
  const size_t decoding = limits_.max_rows - rows;
  size_t prompt_rows = std::min(rows, limits_.prefill_chunk);
  if (decoding != 0) {
    prompt_rows = std::min(prompt_rows, PromptRowsBeside(decoding));
  } else {
    size_t pending = 0;
    for (const Running& running : running_) pending += running.request->pending();
    prompt_rows = EqualPart(pending, prompt_rows);
  }
  for (Running& running : running_) {
    if (running.rows == 1) continue;
    running.rows = std::min(prompt_rows, running.request->pending());
    prompt_rows -= running.rows;
    rows -= running.rows;
  }
  AddDraftTokens(rows);
}

void Scheduler::AddDraftTokens(size_t rows) {
  drafts_.clear();
  drafting_.clear();
  for (Running& running : running_) {
    if (running.rows != 1) continue;
    DraftTask draft = running.request->AskForDraftTokens(rows);
    if (draft.num_draft_tokens == 0) continue;
    if (draft.steps != nullptr) {
      if (!draft.steps->reads_text()) GrowForText(running);
      drafts_.push_back(draft);
      drafting_.push_back(&running);
      rows -= draft.num_draft_tokens;
    } else {
      draft_steps_.Make({&draft, 1});
      rows -= TakeDraftTokens(running, draft);
    }
  }
  draft_steps_.Make(drafts_);
  for (size_t i = 0; i < drafts_.size(); ++i) TakeDraftTokens(*drafting_[i], drafts_[i]);
}

void Scheduler::GrowForText(Running& running) {
  ActiveRequest& request = *running.request;
  const uint64_t need = request.BytesWith(1, 1), more = need - std::min(need, running.bytes);
  if (!Fits(more) || !request.state().Reserve(1).ok()) return;  // MakeRoom sees to it
  bytes_ += more;
  running.bytes += more;
}

size_t Scheduler::TakeDraftTokens(Running& running, const DraftTask& draft) {
  const ActiveRequest::DraftRows draft_tokens = running.request->TakeDraftTokens(draft);
  const size_t taken =
      draft_tokens.free == draft_tokens.all || GrowsFor(running, draft_tokens) ? draft_tokens.all : draft_tokens.free;
  running.rows += taken;
  return taken;
}

bool Scheduler::GrowsFor(const Running& running, const ActiveRequest::DraftRows& draft_tokens) const {
  if (one_waits_ || !running.request->AreWorthGrowing(draft_tokens)) return false;
  // Every step takes at least one unused row: after so many steps its state would grow anyway.
  const size_t steps = 1 + draft_tokens.free;
  uint64_t bytes = 0;
  for (const Running& other : running_) {
    const ActiveRequest& request = *other.request;
    const size_t rows = &other == &running
                            ? 1 + draft_tokens.all
                            : std::min(request.pending() + steps * request.max_events(), request.max_rows());
    bytes = Sum(bytes, std::max(other.bytes, request.BytesWith(rows, rows)));
  }
  return bytes <= limits_.state_memory;
}

bool Scheduler::MakeRoom(size_t index, std::vector<Event>* events) {
  Running& running = running_[index];
  ActiveRequest& request = *running.request;
  uint64_t need = 0, more = 0;
  const auto fits = [&] {
    need = request.BytesWith(running.rows, running.rows);
    more = need - std::min(need, running.bytes);
    return Fits(more);
  };
  // Drafts take no memory from other requests, and none that is missing.
  const auto drop_drafts = [&] {
    const size_t pending = request.pending(), wanted = running.rows;
    const bool has_free_rows = request.state().GrowthBytes(pending) == 0;
    while (running.rows > pending && (!has_free_rows || request.state().GrowthBytes(running.rows) != 0)) --running.rows;
    return running.rows != wanted;
  };
  if (!fits() && drop_drafts()) (void)fits();
  while (!Fits(more) && running_.size() > index + 1) PreemptYoungest();
  if (!Fits(more) && index == 0 && request.GiveUpFeatures()) {
    UncountFeatures(running);
    (void)fits();
  }
  if (!Fits(more)) {
    if (index != 0) {
      PreemptYoungest();  // itself
    } else if (request.is_sharing()) {
      request.StopSharing();
      PreemptYoungest();  // itself: alone its state may fit
    } else {
      request.Fail(StateTooLarge("grow state", request.tokens().size() + 1, need, 0, limits_.state_memory), events);
    }
    return false;
  }
  Result<void> reserved = request.state().Reserve(running.rows);
  if (!reserved.ok() && drop_drafts()) {
    (void)fits();
    reserved = request.state().Reserve(running.rows);
  }
  bytes_ += more;
  running.bytes += more;
  if (!reserved.ok()) request.Fail(std::move(reserved).error(), events);
  return reserved.ok();
}

void Scheduler::UncountFeatures(Running& running) {
  const uint64_t gone = running.features - std::min(running.features, running.request->feature_bytes());
  running.features -= gone;
  running.bytes -= gone;
  bytes_ -= gone;
}

void Scheduler::PreemptYoungest() {
  bytes_ -= running_.back().bytes;
  running_.back().request->Preempt(limits_.spill_folder);
  running_.pop_back();
}

}  // namespace tidemill
