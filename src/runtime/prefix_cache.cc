#include "runtime/prefix_cache.h"

#include <algorithm>
#include <exception>
#include <utility>

namespace tidemill {
namespace {

bool IsLonger(const SequenceState* a, const SequenceState* b) {
  return a != nullptr && (b == nullptr || a->length() > b->length());
}

}  // namespace

size_t CommonTokens(std::span<const int32_t> a, std::span<const int32_t> b) {
  const auto most = static_cast<std::ptrdiff_t>(std::min(a.size(), b.size()));
  return static_cast<size_t>(std::mismatch(a.begin(), a.begin() + most, b.begin()).first - a.begin());
}

size_t ReusableTokens(std::span<const int32_t> prompt, std::span<const int32_t> ids) {
  return std::min(CommonTokens(prompt, ids), prompt.size() - 1);
}

size_t SharedPrefix(std::span<const int32_t> prompt, std::span<const int32_t> ids, const SequenceState& state,
                    size_t fewest) {
  const size_t known = std::min(state.length(), ids.size());
  const size_t common = ReusableTokens(prompt, ids.first(known));
  return common < fewest || common < state.earliest_rollback() ? 0 : common;
}

PrefixCache::Found PrefixCache::Find(std::span<const int32_t> prompt, const SharingGroup& group) {
  Found found;
  Leaf* best = nullptr;
  for (Leaf& leaf : leaves_) {
    if (leaf.group() != group) continue;
    const size_t length = SharedPrefix(prompt, leaf.ids, *leaf.state, fewest_tokens_);
    if (length <= found.length) continue;
    found = {leaf.state.get(), length, leaf.draft.get()};
    best = &leaf;
  }
  if (best != nullptr) best->used = ++clock_;
  return found;
}

void PrefixCache::Keep(std::span<const int32_t> ids, std::string_view salt, std::unique_ptr<SequenceState> state,
                       std::unique_ptr<SequenceState> draft) {
  if (ids.size() < fewest_tokens_) return;
  const SharingGroup group{salt, state->identity().numeric_class};
  const auto begins = [](std::span<const int32_t> longer, std::span<const int32_t> shorter) {
    return CommonTokens(longer, shorter) == shorter.size();
  };
  for (Leaf& leaf : leaves_) {
    if (leaf.group() != group || !begins(leaf.ids, ids) || ids.size() < leaf.state->earliest_rollback()) continue;
    leaf.used = ++clock_;
    TakeDraft(leaf, std::move(draft));
    while (bytes_ > limit_ && DropOldest()) {
    }
    return;
  }
  if (const StateBytes bytes = state->bytes(); bytes.committed > limit_ || bytes.keys > limit_ - bytes.committed)
    return;
  leaves_.reserve(leaves_.size() + 1);
  Leaf made{{ids.begin(), ids.end()}, std::string(salt), std::move(state), std::move(draft), ++clock_};
  // First what it replaces goes, so that it alone has its rows: those are compacted.
  std::erase_if(leaves_, [&](Leaf& leaf) {
    const bool goes =
        leaf.group() == group && begins(ids, leaf.ids) && made.state->earliest_rollback() <= leaf.ids.size();
    if (goes) Uncount(leaf);
    if (goes && IsLonger(leaf.draft.get(), made.draft.get())) made.draft = std::move(leaf.draft);
    return goes;
  });
  made.state->Compact();
  if (made.draft != nullptr) made.draft->Compact();
  Count(made);
  leaves_.push_back(std::move(made));
  while (bytes_ > limit_ && DropOldest()) {
  }
}

void PrefixCache::TakeDraft(Leaf& leaf, std::unique_ptr<SequenceState> draft) {
  if (!IsLonger(draft.get(), leaf.draft.get())) return;
  draft->Compact();
  Uncount(leaf);
  std::swap(leaf.draft, draft);
  try {
    Count(leaf);
  } catch (const std::exception&) {  // std::bad_alloc
    leaf.draft = nullptr;
    leaves_.erase(leaves_.begin() + (&leaf - leaves_.data()));
  }
}

void PrefixCache::ForEachBlock(const Leaf& leaf, const LayerState::BlockVisitor& visit) {
  leaf.state->ForEachBlock(visit);
  if (leaf.draft != nullptr) leaf.draft->ForEachBlock(visit);
}

void PrefixCache::Count(const Leaf& leaf) {
  size_t counted = 0;
  try {
    ForEachBlock(leaf, [&](const void* block, uint64_t bytes) {
      Block& one = blocks_[block];
      if (one.states++ == 0) bytes_ += one.bytes = bytes;
      ++counted;
    });
  } catch (const std::exception&) {  // std::bad_alloc
    Uncount(leaf, counted);
    throw;
  }
}

void PrefixCache::Uncount(const Leaf& leaf, size_t first_blocks) {
  ForEachBlock(leaf, [&](const void* block, uint64_t) {
    if (first_blocks == 0) return;
    --first_blocks;
    const auto one = blocks_.find(block);
    if (--one->second.states != 0) return;
    bytes_ -= one->second.bytes;
    blocks_.erase(one);
  });
}

bool PrefixCache::DropOldest() {
  if (leaves_.empty()) return false;
  const auto oldest =
      std::min_element(leaves_.begin(), leaves_.end(), [](const Leaf& a, const Leaf& b) { return a.used < b.used; });
  Uncount(*oldest);
  leaves_.erase(oldest);
  ++evictions_;
  return true;
}

void PrefixCache::Clear() {
  leaves_.clear();
  blocks_.clear();
  bytes_ = 0;
}

void PrefixCache::ForEachBlock(const LayerState::BlockVisitor& visit) const {
  for (const Leaf& leaf : leaves_) ForEachBlock(leaf, visit);
}

}  // namespace tidemill
