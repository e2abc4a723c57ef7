#include "state/sequence_state.h"

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/checked_math.h"
#include "base/out_of_memory.h"

namespace tidemill {

namespace {

constexpr size_t kGrowthKeys = 256;

}  // namespace

SequenceState::SequenceState(const SequenceOptions& options, Layers layers)
    : options_(options), layers_(std::move(layers)), hashes_{0}, counted_keys_(options.ledger) {
  has_constant_size_ =
      std::all_of(layers_.begin(), layers_.end(), [](const auto& layer) { return layer->has_constant_size(); });
}

Result<void> SequenceState::Reserve(size_t n) {
  try {
    if (n > max_length() - length()) {
      return Error(ErrorCode::kContextFull, "reserve state: " + std::to_string(length()) + " tokens and " +
                                                std::to_string(n) + " more: the context holds " +
                                                std::to_string(max_length()));
    }
    const std::optional<size_t> keys = KeysWith(n);
    if (!keys) return OutOfMemoryError("reserve state");
    keys_.reserve(*keys);
    hashes_.reserve(*keys + 1);
    CountKeys();
    if (path_.capacity() < n) {
      SettleAll();  // who has not settled reads it
      path_.reserve((n / kGrowthKeys + 1) * kGrowthKeys);
    }
    BlockBytes blocks;
    for (const auto& layer : layers_) blocks.Add(layer->NewBlock(n, floor_));
    BufferArena longer(kArenaBytes, blocks.pages()), arena(kArenaBytes, blocks.pages(), &longer);
    for (const auto& layer : layers_)
      TIDEMILL_TRY_VOID(layer->Reserve(n, floor_, blocks.all >= BufferArena::kLargePage ? &arena : nullptr));
    return {};
  } catch (const std::exception&) {  // std::bad_alloc, or std::length_error for more than any memory
    CountKeys();
    return OutOfMemoryError("reserve state");
  }
}

Result<void> SequenceState::ReserveKeys(size_t n) {
  try {
    keys_.reserve(keys_.size() + n);
    hashes_.reserve(hashes_.size() + n);
    CountKeys();
    return {};
  } catch (const std::exception&) {
    CountKeys();
    return OutOfMemoryError("reserve state");
  }
}

uint64_t SequenceState::GrowthBytes(size_t n) const {
  uint64_t bytes = 0;
  for (const auto& layer : layers_) {
    if (!CheckedAdd(bytes, layer->GrowthBytes(n, floor_), &bytes)) return UINT64_MAX;
  }
  return bytes;
}

uint64_t SequenceState::GrowthBytes(size_t n, size_t step) const {
  uint64_t bytes = 0;
  for (const auto& layer : layers_) {
    if (!CheckedAdd(bytes, layer->GrowthBytes(n, step, floor_, 2 * options_.draft_rows), &bytes)) return UINT64_MAX;
  }
  return bytes;
}

std::optional<size_t> SequenceState::KeysWith(size_t n) const {
  size_t keys = 0;
  if (!CheckedAlignUp(keys_.size() + n, kGrowthKeys, &keys)) return std::nullopt;
  return std::min(keys, max_length() - first_key_);
}

uint64_t SequenceState::LedgerGrowth(size_t n, size_t step) const {
  const std::optional<size_t> keys = KeysWith(n);
  uint64_t bytes = 0;
  if (!keys || !CheckedMul<uint64_t>(*keys, sizeof(RowKey) + sizeof(uint64_t), &bytes)) return UINT64_MAX;
  bytes += sizeof(uint64_t);
  bytes -= std::min(bytes, counted_keys_.bytes());
  return CheckedAdd(bytes, GrowthBytes(n, step), &bytes) ? bytes : UINT64_MAX;
}

bool SequenceState::HasRoom(size_t n) const {
  return std::all_of(layers_.begin(), layers_.end(), [&](const auto& layer) { return layer->HasRoom(n, floor_); });
}

size_t SequenceState::UnusedRows(size_t n) const {
  n = std::min(n, max_length() - length());
  for (const auto& layer : layers_) {
    while (n != 0 && !layer->has_constant_size() && layer->GrowthBytes(n, floor_) != 0) --n;
  }
  return n;
}

void SequenceState::Commit(std::span<const RowKey> keys) {
  SettleAll();  // layers that the step did not run
  for (const auto& layer : layers_) layer->Commit(keys.size());
  AppendKeys(keys);
}

void SequenceState::CommitPath(std::span<const uint32_t> path, std::span<const RowKey> keys) {
  TIDEMILL_CHECK(path.size() == keys.size() && path.size() <= path_.capacity());
  for (size_t i = 1; i < path.size(); ++i) TIDEMILL_CHECK(path[i] > path[i - 1]);
  SettleAll();  // layers that the step did not run
  path_.assign(path.begin(), path.end());
  for (const auto& layer : layers_) layer->CommitPath(path_);
  AppendKeys(keys);
}

void SequenceState::SettleAll() {
  for (const auto& layer : layers_) layer->Settle();
}

void SequenceState::AppendKeys(std::span<const RowKey> keys) {
  for (const RowKey key : keys) {
    keys_.push_back(key);
    hashes_.push_back(ChainTokenHash(hashes_.back(), key));
  }
  floor_ = std::max(floor_, length() - std::min(length(), 2 * options_.draft_rows));
  DropKeys();
}

// Now and then, so that a key is moved once on average.
void SequenceState::DropKeys() {
  if (!has_constant_size_) return;
  const size_t unused = std::max(earliest_rollback(), first_key_) - first_key_;
  if (unused < kGrowthKeys || unused < keys_.size() / 2) return;
  keys_.erase(keys_.begin(), keys_.begin() + static_cast<std::ptrdiff_t>(unused));
  hashes_.erase(hashes_.begin(), hashes_.begin() + static_cast<std::ptrdiff_t>(unused));
  first_key_ += unused;
}

size_t SequenceState::EarliestRollback(size_t floor) const {
  size_t earliest = 0;
  for (const auto& layer : layers_) earliest = std::max(earliest, layer->EarliestRollback(floor));
  return earliest;
}

bool SequenceState::may_evict() const {
  return std::any_of(layers_.begin(), layers_.end(), [](const auto& layer) { return layer->may_evict(); });
}

size_t SequenceState::CheckpointEarliest() const {
  return EarliestRollback(std::max(floor_, length() - std::min(length(), options_.draft_rows)));
}

Result<void> SequenceState::CheckRollback(size_t to, std::string_view what) const {
  if (to > length()) {
    return Error(ErrorCode::kInvalidArgument, std::string(what) + " state: to " + std::to_string(to) +
                                                  " tokens: there are only " + std::to_string(length()));
  }
  if (to < earliest_rollback()) {
    return Error(ErrorCode::kUnsupported, std::string(what) + " state: to " + std::to_string(to) +
                                              " tokens: what they would see is no longer kept; the least is " +
                                              std::to_string(earliest_rollback()));
  }
  return {};
}

Result<void> SequenceState::Rollback(size_t to) {
  TIDEMILL_TRY_VOID(CheckRollback(to, "roll back"));
  SettleAll();
  keys_.resize(to - first_key_);
  hashes_.resize(keys_.size() + 1);
  for (const auto& layer : layers_) layer->Rollback(to);
  return {};
}

Result<std::unique_ptr<SequenceState>> SequenceState::Fork() {
  try {
    Layers layers;
    for (const auto& layer : layers_) layers.push_back(layer->MakeEmpty());
    auto child = std::make_unique<SequenceState>(options_, std::move(layers));
    TIDEMILL_TRY_VOID(ForkTo(*child, length()));
    return child;
  } catch (const std::exception&) {
    return OutOfMemoryError("fork state");
  }
}

uint64_t SequenceState::ForkBytes() const {
  uint64_t bytes = keys_.size() * sizeof(RowKey) + hashes_.size() * sizeof(uint64_t);
  for (const auto& layer : layers_) bytes += layer->ForkBytes();
  return bytes;
}

Result<void> SequenceState::ForkTo(SequenceState& child, size_t length) {
  TIDEMILL_CHECK(child.length() == 0 && child.layers_.size() == layers_.size() &&
                 child.options_.model == options_.model && child.options_.numeric_class == options_.numeric_class);
  try {
    TIDEMILL_TRY_VOID(CheckRollback(length, "fork"));
    if (length > child.max_length()) {
      return Error(ErrorCode::kContextFull, "fork state: " + std::to_string(length) + " tokens: the context holds " +
                                                std::to_string(child.max_length()));
    }
    // Everything that can fail comes first, so that this sequence changes only when the child is complete.
    SettleAll();
    const auto kept = static_cast<std::ptrdiff_t>(length - first_key_);
    std::vector<RowKey> keys(keys_.begin(), keys_.begin() + kept);
    std::vector<uint64_t> hashes(hashes_.begin(), hashes_.begin() + kept + 1);
    for (size_t i = 0; i < layers_.size(); ++i) layers_[i]->PrepareFork(*child.layers_[i]);
    for (size_t i = 0; i < layers_.size(); ++i) layers_[i]->Fork(*child.layers_[i]);
    child.first_key_ = first_key_;
    child.keys_ = std::move(keys);
    child.hashes_ = std::move(hashes);
    child.floor_ = floor_;
    child.CountKeys();
    return child.Rollback(length);
  } catch (const std::exception&) {
    child.Clear();
    return OutOfMemoryError("fork state");
  }
}

void SequenceState::Compact() {
  try {
    SettleAll();
    for (const auto& layer : layers_) layer->Compact(floor_);
    keys_.shrink_to_fit();
    hashes_.shrink_to_fit();
    CountKeys();
  } catch (const std::exception&) {  // as large as before, and still valid
  }
}

void SequenceState::Clear() {
  for (const auto& layer : layers_) layer->Clear();
  keys_ = {};
  hashes_.assign(1, 0);
  hashes_.shrink_to_fit();
  floor_ = first_key_ = 0;
  counted_keys_.Set(0);
}

GrowthCounts SequenceState::growth() const {
  GrowthCounts counts;
  for (const auto& layer : layers_) counts += layer->growth();
  return counts;
}

void SequenceState::ForEachBlock(const LayerState::BlockVisitor& visit) const {
  for (const auto& layer : layers_) layer->ForEachBlock(visit);
  visit(this, counted_keys_.bytes());
}

StateBytes SequenceState::bytes() const {
  StateBytes bytes;
  bytes.committed = LayerBytes(length(), CheckpointEarliest());
  bytes.keys = counted_keys_.bytes();
  for (const auto& layer : layers_) {
    bytes.reserved += layer->reserved_bytes();
    bytes.read_per_token += layer->read_bytes_per_token(length());
  }
  return bytes;
}

}  // namespace tidemill
