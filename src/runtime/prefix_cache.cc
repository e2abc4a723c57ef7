#include "runtime/prefix_cache.h"

#include <algorithm>
#include <utility>

namespace tidemill {
size_t CommonTokens(std::span<const int32_t> a, std::span<const int32_t> b) {
  const auto most = static_cast<std::ptrdiff_t>(std::min(a.size(), b.size()));
  return static_cast<size_t>(std::mismatch(a.begin(), a.begin() + most, b.begin()).first - a.begin());
}

size_t SharedPrefix(std::span<const int32_t> prompt, std::span<const int32_t> ids, const SequenceState& state) {
  const size_t known = std::min(state.length(), ids.size());
  const size_t common = std::min(CommonTokens(prompt, ids.first(known)), prompt.size() - 1);
  return common < PrefixCache::kFewestTokens || common < state.earliest_rollback() ? 0 : common;
}

PrefixCache::Found PrefixCache::Find(std::span<const int32_t> prompt, std::string_view salt) {
  Found found;
  Leaf* best = nullptr;
  for (Leaf& leaf : leaves_) {
    if (leaf.salt != salt) continue;
    const size_t length = SharedPrefix(prompt, leaf.ids, *leaf.state);
    if (length <= found.length) continue;
    found = {leaf.state.get(), length};
    best = &leaf;
  }
  if (best != nullptr) best->used = ++clock_;
  return found;
}

void PrefixCache::Keep(std::span<const int32_t> ids, std::string_view salt, std::unique_ptr<SequenceState> state) {
  if (ids.size() < kFewestTokens) return;
  const auto begins = [](std::span<const int32_t> longer, std::span<const int32_t> shorter) {
    return CommonTokens(longer, shorter) == shorter.size();
  };
  for (Leaf& leaf : leaves_) {
    if (leaf.salt != salt || !begins(leaf.ids, ids) || ids.size() < leaf.state->earliest_rollback()) continue;
    leaf.used = ++clock_;
    return;
  }
  state->Compact();
  const uint64_t bytes = state->bytes().reserved;
  if (bytes > limit_) return;
  leaves_.reserve(leaves_.size() + 1);
  Leaf made{{ids.begin(), ids.end()}, std::string(salt), std::move(state), bytes, ++clock_};  // what can fail is done
  std::erase_if(leaves_, [&](const Leaf& leaf) {
    const bool goes = leaf.salt == salt && begins(ids, leaf.ids) && made.state->earliest_rollback() <= leaf.ids.size();
    if (goes) bytes_ -= leaf.bytes;
    return goes;
  });
  while (bytes_ > limit_ - bytes) DropOldest();
  leaves_.push_back(std::move(made));
  bytes_ += bytes;
}

bool PrefixCache::DropOldest() {
  if (leaves_.empty()) return false;
  const auto oldest =
      std::min_element(leaves_.begin(), leaves_.end(), [](const Leaf& a, const Leaf& b) { return a.used < b.used; });
  bytes_ -= oldest->bytes;
  leaves_.erase(oldest);
  return true;
}

}  // namespace tidemill
