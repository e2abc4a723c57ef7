#include "runtime/scheduler.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/checked_math.h"
#include "base/out_of_memory.h"
#include "decoding/tree_draft.h"
#include "runtime/sparse_stats.h"

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

Scheduler::Scheduler(const SchedulerLimits& limits, StateMemory& memory)
    : limits_(limits), memory_(memory), draft_steps_(limits.max_batch) {
  running_.reserve(limits.max_batch);
  drafts_.reserve(limits.max_batch);
  drafting_.reserve(limits.max_batch);
  step_.reserve(3 * limits.max_batch);
  if (limits.segments != nullptr) memory_rows_.emplace(*limits.segments);
  stepping_.reserve(limits.max_batch);
  wave_.reserve(limits.max_batch);
}

void Scheduler::Plan(std::span<const std::unique_ptr<ActiveRequest>> requests, std::vector<Event>* events) {
  step_.clear();
  stepping_.clear();
  requests_ = requests;
  TakeRunning();
  Admit(events);
  if (PlanWave(events)) return;
  AssignRows();
  for (size_t i = 0; i < running_.size(); ++i) {
    if (running_[i].rows == 0) continue;
    if (!MakeRoom(i, events)) {
      if (i < running_.size()) running_[i].front_rows = running_[i].memory_rows = 0;
      continue;
    }
    ActiveRequest& request = *running_[i].request;
    const ActiveRequest::Next next = request.NextTokens(running_[i].rows);
    step_.push_back({.state = &request.state(),
                     .tokens = next.tokens,
                     .rows = next.wanted,
                     .parents = next.parents,
                     .slot = running_[i].front_rows,
                     .sparse_from = request.sparse_from()});
    stepping_.push_back(&request);
  }
  first_of_requests_ = 0;
  for (const Running& running : running_) {
    first_of_requests_ += running.front_rows != 0 ? 1 : 0;
    if (running.front_rows != 0) step_.insert(step_.begin(), memory_rows_->InFront(running.request->state()));
    if (running.memory_rows != 0)
      step_.push_back(memory_rows_->Behind(running.request->state(), running.front_rows + running.rows));
  }
}

uint64_t Scheduler::NeedToStart(const ActiveRequest& request) const {
  return request.GrowthBytes(request.next_positions() + request.pending() - request.tokens().size(),
                             limits_.prefill_chunk);
}

void Scheduler::Promise(Running& running) {
  memory_.TakeBack(running.promised);
  running.promised = memory_.Promise(running.request->GrowthBytes(running.request->pending(), limits_.prefill_chunk));
}

void Scheduler::PromiseAll() {
  for (Running& running : running_) Promise(running);
}

// Those that ended are gone from requests_, and their memory with them.
void Scheduler::TakeRunning() {
  size_t kept = 0, at = 0;
  memory_.TakeBack(memory_.promised());
  for (const auto& request : requests_) {
    if (!request->running()) continue;
    while (running_[at].id != request->id()) ++at;
    running_[kept] = running_[at++];
    running_[kept].promised = 0;
    Promise(running_[kept++]);
  }
  running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(kept), running_.end());
}

void Scheduler::Admit(std::vector<Event>* events) {
  one_waits_ = false;
  size_t looked_at = 0;
  for (const auto& request : requests_) {
    if (running_.size() == limits_.max_batch || looked_at == 2 * limits_.max_batch) break;
    if (request->running() || request->done()) continue;
    ++looked_at;
    if (!Start(*request, events)) break;
  }
  memory_.KeepFromDrafts(one_waits_);
}

bool Scheduler::Start(ActiveRequest& request, std::vector<Event>* events) {
  // A resumed one is not empty, nor is one that has a prefix.
  const auto alone = [&] {
    return request.BytesWith(request.next_positions() - request.state().length(), limits_.prefill_chunk);
  };
  if (alone() > memory_.limit()) (void)request.GiveUpFeatures();
  if (alone() > memory_.limit()) (void)GiveUpColumns(request.state());
  if (const uint64_t need = alone(); need > memory_.limit()) {
    request.Fail(StateTooLarge("start request", request.next_positions(), need, 0, memory_.limit()), events);
    return true;
  }
  Running* source = nullptr;
  if (!TakePrefix(request, &source)) return true;
  if (!MakeFit(NeedToStart(request), &request) && request.is_sharing()) {  // blocks may be larger than its own
    request.DropPrefix();
    source = nullptr;
    PromiseAll();
  }
  if (!MakeFit(NeedToStart(request), &request) && !running_.empty()) {
    one_waits_ = true;
    return false;
  }
  if (source != nullptr) source->request->Share();
  if (request.is_sharing() && !request.has_started()) memory_.prefix_cache().CountHit();
  request.Start();
  const auto behind =
      std::find_if(running_.begin(), running_.end(), [&](const Running& other) { return other.id > request.id(); });
  Promise(*running_.insert(behind, {request.id(), &request, 0}));
  return true;
}

bool Scheduler::MakeFit(uint64_t more, const ActiveRequest* keeps) {
  if (memory_.Fits(more)) return true;
  uint64_t given = 0;
  for (const Running& running : running_) given += running.request->draft_state_bytes();
  for (const auto& request : requests_) given += request.get() == keeps ? 0 : request->waiting_bytes();
  if (!memory_.MayFit(more, given)) return false;
  for (size_t i = running_.size(); i-- > 0;) {
    if (running_[i].request->ReleaseDraftState() && memory_.Fits(more)) return true;
  }
  for (size_t i = requests_.size(); i-- > 0;) {
    if (requests_[i].get() != keeps && requests_[i]->DropWaitingState() && memory_.Fits(more)) return true;
  }
  return memory_.Fits(more);
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
    running.snapshot = running.front_rows = running.memory_rows = 0;
    if (running.rows == 1) {
      if (running.request->reads_prompt()) {
        LimitToSnapshot(running);
        CutToSegment(running, rows + running.rows);
        rows -= running.front_rows + running.memory_rows;
      }
      continue;
    }
    running.rows = std::min({prompt_rows, rows, running.request->pending()});
    LimitToSnapshot(running);
    CutToSegment(running, rows);
    prompt_rows -= running.rows;
    rows -= running.front_rows + running.rows + running.memory_rows;
  }
  AddDraftTokens(rows);
}

bool Scheduler::ShareWave() {
  size_t left = limits_.wave_tokens, segments = 0;
  for (Running& running : running_) {
    running.snapshot = 0;
    running.rows = std::max(limits_.wave_tokens, limits_.segments->segments.shape.segment_tokens);
    LimitToSnapshot(running);
    if (running.request->NextSegments(running.rows).tokens == 0) return false;
    running.wave = running.request->NextSegments(std::min(running.rows, left));
    left = running.wave.tokens == 0 ? 0 : left - running.wave.tokens;  // none overtakes one that has no room
    segments += running.wave.count;
  }
  return segments >= limits_.wave_segments;
}

bool Scheduler::PlanWave(std::vector<Event>* events) {
  wave_.clear();
  if (limits_.segments == nullptr || limits_.wave_tokens == 0 || running_.empty() || !ShareWave()) return false;
  for (size_t i = 0; i < running_.size() && running_[i].wave.tokens != 0; ++i) {
    running_[i].rows = limits_.segments->segments.shape.segment_tokens;
    running_[i].memory_rows = memory_rows_->count();
    if (!MakeRoom(i, events)) break;
    const ActiveRequest::WholeSegments whole = running_[i].wave;
    ActiveRequest& request = *running_[i].request;
    if (!request.state().ReserveKeys(whole.tokens).ok()) {
      if (i == 0) return false;
      break;
    }
    Promise(running_[i]);  // without the keys, which are held now
    request.StartWave();
    wave_.push_back({.request = &request, .tokens = whole.tokens, .segments = whole.count});
  }
  return true;
}

void Scheduler::CutToSegment(Running& running, size_t rows) {
  if (limits_.segments == nullptr) return;
  const ActiveRequest::SegmentPart part = running.request->CutToSegment(running.rows);
  const size_t front = MemoryRows::CountInFront(running.request->state());
  const size_t room = rows - std::min(rows, front);
  running.rows = std::min(part.rows, room);
  if (part.ends && running.rows == part.rows) {
    if (part.rows + memory_rows_->count() <= room) {
      running.memory_rows = memory_rows_->count();
    } else {
      --running.rows;  // the next step ends it
    }
  }
  running.front_rows = running.rows == 0 ? 0 : front;
}

void Scheduler::AddDraftTokens(size_t rows) {
  drafts_.clear();
  drafting_.clear();
  for (Running& running : running_) {
    if (running.rows != 1 || running.front_rows != 0) continue;
    DraftTask draft = running.request->AskForDraftTokens(rows);
    if (draft.num_draft_tokens == 0) continue;
    if (draft.steps != nullptr) {
      if (!draft.steps->reads_text()) GrowForText(running, draft);
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

void Scheduler::GrowForText(Running& running, const DraftTask& draft) {
  ActiveRequest& request = *running.request;
  SequenceState& state = request.state();
  memory_.TakeBack(std::exchange(running.promised, 0));
  if (memory_.Fits(request.GrowthBytes(1, 1))) (void)state.Reserve(1);  // else MakeRoom sees to it
  const bool is_tree = draft.steps->draft_order() == DraftOrder::kTree;
  const size_t rows = state.UnusedRows(1 + (is_tree ? TreeDraft::kMaxAsked : draft.num_draft_tokens));
  if (rows > 1 && state.GrowthBytes(rows) != 0 && memory_.Fits(request.GrowthBytes(rows, rows)))
    (void)state.Reserve(rows);
  Promise(running);
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
    bytes = Sum(bytes, std::max(other.promised, request.GrowthBytes(rows, rows)));
  }
  const uint64_t more = bytes - std::min(bytes, memory_.promised());
  return memory_.MayFit(more);
}

bool Scheduler::MakeRoom(size_t index, std::vector<Event>* events) {
  Running& running = running_[index];
  ActiveRequest& request = *running.request;
  // What others give may change what the step needs: blocks are its own again.
  uint64_t more = 0;
  const auto growth = [&] {
    const size_t rows = running.rows + running.memory_rows;  // GrowthBytes counts those in front itself
    return request.GrowthBytes(rows, rows);
  };
  const auto fits = [&](bool others_give) {
    memory_.TakeBack(std::exchange(running.promised, 0));
    do {
      more = growth();
      if (!(others_give ? MakeFit(more) : memory_.Fits(more))) return false;
    } while (growth() > more);
    return true;
  };
  // Drafts take no memory from other requests, and none that is missing.
  const auto drop_drafts = [&] {
    const size_t pending = request.pending(), wanted = running.rows;
    const bool has_free_rows = request.state().GrowthBytes(pending) == 0;
    while (running.rows > pending && (!has_free_rows || request.state().GrowthBytes(running.rows) != 0)) --running.rows;
    return running.rows != wanted;
  };
  if (!fits(false) && drop_drafts()) (void)fits(false);
  while (!fits(true) && running_.size() > index + 1) PreemptYoungest();
  if (!fits(true) && index == 0) {
    memory_.prefix_cache().Clear();
    if (!fits(true) && request.GiveUpFeatures()) (void)fits(true);
    if (!fits(true) && GiveUpColumns(request.state())) (void)fits(true);
  }
  if (!fits(true)) {
    if (index != 0) {
      PreemptYoungest();  // itself
    } else if (request.is_sharing()) {
      request.StopSharing();
      PreemptYoungest();  // itself: alone its state may fit
    } else {
      const uint64_t need = request.BytesWith(running.rows + running.memory_rows, running.rows + running.memory_rows);
      request.Fail(StateTooLarge("grow state", request.tokens().size() + 1, need, 0, memory_.limit()), events);
    }
    return false;
  }
  const auto reserve = [&] { return request.state().Reserve(running.front_rows + running.rows + running.memory_rows); };
  Result<void> reserved = reserve();
  if (!reserved.ok() && drop_drafts()) reserved = reserve();
  if (!reserved.ok() && memory_.prefix_cache().size() != 0) {  // the system has less memory than the bound
    memory_.prefix_cache().Clear();
    reserved = reserve();
  }
  if (!reserved.ok() && GiveUpColumns(request.state())) reserved = reserve();
  request.HoldFeatures();
  Promise(running);
  if (!reserved.ok()) request.Fail(std::move(reserved).error(), events);
  return reserved.ok();
}

void Scheduler::PreemptYoungest() {
  memory_.TakeBack(running_.back().promised);
  running_.back().request->Preempt(limits_.spill_folder);
  running_.pop_back();
}

}  // namespace tidemill
