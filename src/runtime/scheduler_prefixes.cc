// What requests begin with that others have computed, and what they leave to others.
#include <algorithm>
#include <exception>
#include <utility>

#include "base/checked_math.h"
#include "runtime/scheduler.h"

namespace tidemill {

bool Scheduler::TakePrefix(ActiveRequest& request, Running** from) {
  if (!limits_.prefix_cache || !request.is_cold() || !request.shares()) return true;
  const std::span<const int32_t> tokens = request.shared_tokens();
  const size_t fewest = memory_.prefix_cache().fewest_tokens();
  PrefixCache::Found found = memory_.prefix_cache().Find(tokens, request.sharing_group());
  Running* source = nullptr;  // of `found`, if it runs
  size_t coming = 0;
  for (Running& running : running_) {
    ActiveRequest& other = *running.request;
    if (!other.stores() || !other.shares() || other.sharing_group() != request.sharing_group()) continue;
    SequenceState& state = other.state();
    if (const size_t length = SharedPrefix(tokens, other.shared_tokens(), state, fewest); length > found.length) {
      found = {&state, length, nullptr};
      source = &running;
    }
    const size_t common = ReusableTokens(tokens, other.shared_tokens());
    if (other.id() < request.id() && common > state.length()) coming = std::max(coming, common);
  }
  if (coming >= found.length + fewest) return false;
  if (found.length == 0) return true;
  if (source != nullptr) found.draft = source->request->DraftStateForOthers();
  request.Continue(*found.state, found.length, found.draft);
  if (!request.is_sharing() || source == nullptr) return true;
  Promise(*source);  // it cannot move rows any more that the other sees
  *from = source;
  return true;
}

void Scheduler::Keep(ActiveRequest& request) noexcept {
  for (Running& running : running_) {
    if (running.id == request.id()) memory_.TakeBack(std::exchange(running.promised, 0));
  }
  if (!limits_.prefix_cache) return;
  try {
    std::unique_ptr<SequenceState> draft = request.TakeDraftState(), state = request.TakeState();
    if (state == nullptr) return;
    const std::span<const int32_t> shared = request.shared_tokens();
    const std::span<const int32_t> ids = shared.first(std::min(shared.size(), state->length()));
    if (ids.size() != state->length() && !state->Rollback(ids.size()).ok()) return;
    memory_.prefix_cache().Keep(ids, request.cache_salt(), std::move(state), std::move(draft));
  } catch (const std::exception&) {  // std::bad_alloc
  }
}

size_t Scheduler::NextSnapshot(const ActiveRequest& request) const {
  const std::span<const int32_t> tokens = request.shared_tokens();
  const size_t length = request.tokens().size() - request.pending();
  // A snapshot between two segments has a memory of its own, as large as a state.
  size_t next =
      limits_.segments != nullptr ? tokens.size() : std::min(tokens.size(), RoundUp(length + 1, kSnapshotTokens));
  size_t looked_at = 0;
  for (const auto& other : requests_) {
    if (looked_at == limits_.max_batch) break;
    looked_at += other->running() || other->done() ? 0U : 1U;
    if (!other->is_cold() || other->running() || other->done() || other->sharing_group() != request.sharing_group())
      continue;
    const size_t common = ReusableTokens(other->shared_tokens(), tokens);
    if (common > length && common >= memory_.prefix_cache().fewest_tokens()) next = std::min(next, common);
  }
  return next;
}

void Scheduler::LimitToSnapshot(Running& running) {
  ActiveRequest& request = *running.request;
  if (!limits_.prefix_cache || running.rows == 0 || !request.stores() || !request.shares() ||
      request.state().keeps_all() || request.state().length() >= request.shared_tokens().size()) {
    return;
  }
  const size_t next = NextSnapshot(request), length = request.state().length();
  running.rows = std::min(running.rows, next - length);
  if (length + running.rows == next) running.snapshot = next;
}

void Scheduler::KeepSnapshots() noexcept {
  if (!limits_.prefix_cache) return;
  try {
    for (const Running& running : running_) {
      ActiveRequest& request = *running.request;
      SequenceState& state = request.state();
      if (running.snapshot == 0 || request.done() || state.length() != running.snapshot) continue;
      if (!memory_.Fits(state.ForkBytes())) continue;
      Result<std::unique_ptr<SequenceState>> fork = state.Fork();
      if (!fork.ok()) continue;
      request.Share();
      memory_.prefix_cache().Keep(request.tokens().first(state.length()), request.cache_salt(), std::move(*fork));
    }
  } catch (const std::exception&) {  // std::bad_alloc
  }
}

}  // namespace tidemill
