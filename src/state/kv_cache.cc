#include "state/kv_cache.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/checked_math.h"
#include "base/out_of_memory.h"

namespace tidemill {

namespace {

constexpr size_t Less(size_t length, size_t rows) { return length - std::min(length, rows); }

}  // namespace

KvCache::KvCache(const KvShape& shape)
    : shape_(shape), smallest_window_(std::numeric_limits<size_t>::max()), hashes_{0} {
  layers_.reserve(shape.layers.size());
  for (const KvLayerShape& layer : shape.layers) {
    layers_.emplace_back(layer, shape.dtype, shape.max_length, shape.growth, shape.pages);
    if (layer.window != 0) smallest_window_ = std::min(smallest_window_, layer.window);
  }
}

Result<void> KvCache::Reserve(size_t n) {
  try {
    if (n > shape_.max_length - length()) {
      return Error(ErrorCode::kContextFull, "reserve state: " + std::to_string(length()) + " tokens and " +
                                                std::to_string(n) + " more: the context holds " +
                                                std::to_string(shape_.max_length));
    }
    size_t positions = 0;
    if (!CheckedAlignUp(length() + n, KvLayer::kGrowthRows, &positions)) return OutOfMemoryError("reserve state");
    keys_.reserve(std::min(positions, shape_.max_length));
    hashes_.reserve(std::min(positions, shape_.max_length) + 1);
    KvLayer::BlockBytes blocks;
    for (const KvLayer& layer : layers_) blocks.Add(layer.NewBlock(n, layer.shape().FirstSeen(floor_)));
    BufferArena arena(kArenaBytes, blocks.pages());
    for (KvLayer& layer : layers_) {
      TIDEMILL_TRY_VOID(
          layer.Reserve(n, layer.shape().FirstSeen(floor_), blocks.all >= BufferArena::kLargePage ? &arena : nullptr));
    }
    return {};
  } catch (const std::exception&) {  // std::bad_alloc, or std::length_error for more than any memory
    return OutOfMemoryError("reserve state");
  }
}

uint64_t KvCache::GrowthBytes(size_t n, size_t step) const {
  uint64_t bytes = 0;
  for (const KvLayer& layer : layers_) {
    const size_t needed = layer.shape().FirstSeen(floor_);
    const uint64_t growth =
        n <= step ? layer.GrowthBytes(n, needed) : layer.GrowthBytes(n, step, needed, 2 * shape_.draft_rows);
    if (!CheckedAdd(bytes, growth, &bytes)) return UINT64_MAX;
  }
  return bytes;
}

bool KvCache::HasRoom(size_t n) const {
  return std::all_of(layers_.begin(), layers_.end(),
                     [&](const KvLayer& layer) { return layer.HasRoom(n, layer.shape().FirstSeen(floor_)); });
}

void KvCache::Commit(std::span<const RowKey> keys) {
  for (KvLayer& layer : layers_) layer.Commit(keys.size());
  AppendKeys(keys);
}

void KvCache::AppendKeys(std::span<const RowKey> keys) {
  for (const RowKey key : keys) {
    keys_.push_back(key);
    hashes_.push_back(ChainTokenHash(hashes_.back(), key));
  }
  floor_ = std::max(floor_, Less(Less(length(), shape_.draft_rows), shape_.draft_rows));
}

void KvCache::CommitPath(std::span<const uint32_t> path, std::span<const RowKey> keys) {
  TIDEMILL_CHECK(path.size() == keys.size());
  for (size_t i = 1; i < path.size(); ++i) TIDEMILL_CHECK(path[i] > path[i - 1]);
  for (KvLayer& layer : layers_) layer.MovePath(path);
  Commit(keys);
}

Result<void> KvCache::Rollback(size_t to) {
  if (to > length()) {
    return Error(ErrorCode::kInvalidArgument,
                 "roll back state: to " + std::to_string(to) + " tokens: there are only " + std::to_string(length()));
  }
  if (to < earliest_rollback()) {
    return Error(ErrorCode::kUnsupported, "roll back state: to " + std::to_string(to) +
                                              " tokens: what their windows see is no longer kept; the least is " +
                                              std::to_string(earliest_rollback()));
  }
  keys_.resize(to);
  hashes_.resize(to + 1);
  for (KvLayer& layer : layers_) layer.Rollback(to);
  return {};
}

Result<std::unique_ptr<SequenceState>> KvCache::Fork() {
  try {
    // Everything that can fail comes first, so that this sequence changes only when the child is complete.
    auto child = std::make_unique<KvCache>(shape_);
    child->keys_ = keys_;
    child->hashes_ = hashes_;
    child->floor_ = floor_;
    for (size_t i = 0; i < layers_.size(); ++i) layers_[i].PrepareFork(child->layers_[i]);
    for (size_t i = 0; i < layers_.size(); ++i) layers_[i].Fork(child->layers_[i]);
    return std::unique_ptr<SequenceState>(std::move(child));
  } catch (const std::exception&) {
    return OutOfMemoryError("fork state");
  }
}

void KvCache::Compact() {
  try {
    for (KvLayer& layer : layers_) layer.Compact(layer.shape().FirstSeen(floor_));
    keys_.shrink_to_fit();
    hashes_.shrink_to_fit();
  } catch (const std::exception&) {  // as large as before, and still valid
  }
}

void KvCache::Clear() {
  for (KvLayer& layer : layers_) layer.Clear();
  keys_.clear();
  hashes_.resize(1);
  floor_ = 0;
}

size_t KvCache::CheckpointEarliest() const {
  const size_t earliest = std::max(floor_, Less(length(), shape_.draft_rows));
  return earliest < smallest_window_ ? 0 : earliest;
}

GrowthCounts KvCache::growth() const {
  GrowthCounts counts;
  for (const KvLayer& layer : layers_) {
    counts.growths += layer.growth().growths;
    counts.bytes_copied += layer.growth().bytes_copied;
    counts.fell_back = counts.fell_back || layer.growth().fell_back;
  }
  return counts;
}

StateBytes KvCache::bytes() const {
  StateBytes bytes;
  for (const KvLayer& layer : layers_) {
    bytes.reserved += layer.reserved_bytes();
    bytes.committed += layer.PositionBytes() * (length() - layer.shape().FirstSeen(CheckpointEarliest()));
    const size_t window = layer.shape().window;
    bytes.read_per_token += layer.PositionBytes() * (window == 0 ? length() : std::min(length(), window));
  }
  return bytes;
}

}  // namespace tidemill
