#include "state/kv_cache.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/checked_math.h"
#include "base/out_of_memory.h"

namespace tidemill {

DType KvLayer::dtype() const { return cache_->shape_.dtype; }

KvLayer::StepRows KvLayer::View() {
  const size_t row = cache_->tail_rows();
  TIDEMILL_DCHECK(tail_ != nullptr && row <= tail_->capacity);
  return {cache_->RowAt(*tail_, false, 0, row), cache_->RowAt(*tail_, true, 0, row),
          tail_->capacity * cache_->shape_.head_dim};
}

std::span<const KvSpan> KvLayer::Context(size_t step_rows) {
  size_t count = 0, first = 0;
  const auto add = [&](const Block& block, size_t rows) {
    if (rows == 0) return;
    spans_[count++] = {cache_->RowAt(block, false, 0, 0), cache_->RowAt(block, true, 0, 0),
                       block.capacity * cache_->shape_.head_dim, first, rows};
    first += rows;
  };
  for (size_t i = 0; i < prefix_.size(); ++i) add(*prefix_[i], cache_->prefix_rows_[i]);
  if (tail_ != nullptr) add(*tail_, cache_->tail_rows() + step_rows);
  return {spans_.data(), count};
}

KvCache::KvCache(const KvShape& shape) : shape_(shape), layers_(shape.layers), hashes_{0} {
  for (KvLayer& layer : layers_) {
    layer.cache_ = this;
    layer.spans_.resize(1);
  }
}

Result<void> KvCache::SetTailCapacity(size_t capacity) {
  for (KvLayer& layer : layers_) {
    if (layer.tail_ != nullptr && layer.tail_->capacity == capacity) continue;
    size_t bytes = 0;
    if (!CheckedMul<size_t>(capacity, shape_.PositionBytes(), &bytes)) return OutOfMemoryError("reserve state");
    TIDEMILL_TRY(memory, AlignedBuffer::Create(bytes));
    auto block = std::make_shared<Block>();
    block->memory = std::move(memory);
    block->capacity = capacity;
    for (const bool value : {false, true}) {
      for (size_t head = 0; tail_rows() != 0 && head < shape_.kv_heads; ++head) {
        std::memcpy(RowAt(*block, value, head, 0), RowAt(*layer.tail_, value, head, 0),
                    tail_rows() * shape_.RowBytes());
      }
    }
    layer.tail_ = std::move(block);
  }
  return {};
}

Result<void> KvCache::Reserve(size_t n) {
  try {
    if (n > shape_.max_length - length()) {
      return Error(ErrorCode::kContextFull, "reserve state: " + std::to_string(length()) + " positions and " +
                                                std::to_string(n) + " more: the context holds " +
                                                std::to_string(shape_.max_length));
    }
    const size_t rows = tail_rows() + n;
    size_t positions = 0, capacity = 0;
    if (!CheckedAlignUp(length() + n, kGrowthRows, &positions) ||
        !CheckedAlignUp(std::max<size_t>(rows, 1), kGrowthRows, &capacity)) {
      return OutOfMemoryError("reserve state");
    }
    keys_.reserve(std::min(positions, shape_.max_length));
    hashes_.reserve(std::min(positions, shape_.max_length) + 1);
    const bool enough = std::all_of(layers_.begin(), layers_.end(), [rows](const KvLayer& layer) {
      return layer.tail_ != nullptr && layer.tail_->capacity >= rows;
    });
    if (enough) return {};
    return SetTailCapacity(std::min(capacity, shape_.max_length - prefix_end_));
  } catch (const std::exception&) {  // std::bad_alloc, or std::length_error for more than any memory
    return OutOfMemoryError("reserve state");
  }
}

void KvCache::Commit(std::span<const RowKey> keys) {
  for (const KvLayer& layer : layers_) {
    TIDEMILL_CHECK(keys.empty() || (layer.tail_ != nullptr && layer.tail_->capacity >= tail_rows() + keys.size()));
  }
  for (const RowKey key : keys) {
    keys_.push_back(key);
    hashes_.push_back(ChainTokenHash(hashes_.back(), key));
  }
}

void KvCache::CommitPath(std::span<const uint32_t> path, std::span<const RowKey> keys) {
  TIDEMILL_CHECK(path.size() == keys.size());
  for (size_t i = 0; i < path.size(); ++i) {
    TIDEMILL_CHECK(i == 0 || path[i] > path[i - 1]);
    if (path[i] == i) continue;
    for (KvLayer& layer : layers_) {
      TIDEMILL_CHECK(layer.tail_ != nullptr && tail_rows() + path[i] < layer.tail_->capacity);
      for (const bool value : {false, true}) {
        for (size_t head = 0; head < shape_.kv_heads; ++head) {
          std::memcpy(RowAt(*layer.tail_, value, head, tail_rows() + i),
                      RowAt(*layer.tail_, value, head, tail_rows() + path[i]), shape_.RowBytes());
        }
      }
    }
  }
  Commit(keys);
}

Result<void> KvCache::Rollback(size_t to) {
  if (to > length()) {
    return Error(ErrorCode::kInvalidArgument, "roll back state: to " + std::to_string(to) +
                                                  " positions: there are only " + std::to_string(length()));
  }
  keys_.resize(to);
  hashes_.resize(to + 1);
  // Into the shared prefix: use fewer rows of its last blocks. Their rows stay the others'; new ones go to our own tail.
  while (prefix_end_ > to) {
    const size_t drop = std::min(prefix_rows_.back(), prefix_end_ - to);
    prefix_rows_.back() -= drop;
    prefix_end_ -= drop;
    if (prefix_rows_.back() != 0) continue;
    prefix_rows_.pop_back();
    for (KvLayer& layer : layers_) layer.prefix_.pop_back();
  }
  return {};
}

Result<std::unique_ptr<SequenceState>> KvCache::Fork() {
  try {
    // Everything that can fail comes first, so that this sequence changes only when the child is complete.
    auto child = std::make_unique<KvCache>(shape_);
    child->keys_ = keys_;
    child->hashes_ = hashes_;
    prefix_rows_.reserve(prefix_rows_.size() + 1);
    child->prefix_rows_.reserve(prefix_rows_.size() + 1);
    for (size_t i = 0; i < layers_.size(); ++i) {
      KvLayer& ours = layers_[i];
      KvLayer& theirs = child->layers_[i];
      theirs.prefix_.reserve(ours.prefix_.size() + 1);
      theirs.prefix_ = ours.prefix_;
      ours.prefix_.reserve(ours.prefix_.size() + 1);
      theirs.spans_.resize(ours.prefix_.size() + 2);
      ours.spans_.resize(ours.prefix_.size() + 2);
    }
    if (tail_rows() != 0) {
      prefix_rows_.push_back(tail_rows());
      for (size_t i = 0; i < layers_.size(); ++i) {
        child->layers_[i].prefix_.push_back(layers_[i].tail_);
        layers_[i].prefix_.push_back(std::exchange(layers_[i].tail_, nullptr));
      }
    }
    child->prefix_rows_.assign(prefix_rows_.begin(), prefix_rows_.end());
    prefix_end_ = child->prefix_end_ = length();
    return std::unique_ptr<SequenceState>(std::move(child));
  } catch (const std::exception&) {
    return OutOfMemoryError("fork state");
  }
}

void KvCache::Compact() {
  try {
    if (tail_rows() == 0) {
      for (KvLayer& layer : layers_) layer.tail_ = nullptr;
    } else {
      (void)SetTailCapacity(tail_rows());  // one that fails leaves its larger block
    }
    keys_.shrink_to_fit();
    hashes_.shrink_to_fit();
  } catch (const std::exception&) {  // as large as before, and still right
  }
}

StateBytes KvCache::bytes() const {
  StateBytes bytes;
  for (const KvLayer& layer : layers_) {
    for (const auto& block : layer.prefix_) bytes.reserved += block->memory.size();
    if (layer.tail_ != nullptr) bytes.reserved += layer.tail_->memory.size();
  }
  bytes.committed = shape_.layers * shape_.PositionBytes() * length();
  bytes.read_per_token = bytes.committed;
  return bytes;
}

}  // namespace tidemill
