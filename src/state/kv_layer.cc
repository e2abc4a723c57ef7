#include "state/kv_layer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/checked_math.h"
#include "base/out_of_memory.h"
#include "kernels/key_tiles.h"

namespace tidemill {

KvLayer::StepRows KvLayer::View() {
  TIDEMILL_DCHECK(IsReadyFor(0));
  return {RowAt(*tail_, false, 0, tail_rows()), RowAt(*tail_, true, 0, tail_rows()), tail_->capacity * shape_.head_dim};
}

std::span<const KvSpan> KvLayer::Context(size_t step_rows) {
  size_t count = 0;
  const auto add = [&](const Block& block, size_t first, size_t rows) {
    if (rows == 0) return;
    spans_[count++] = {.k = RowAt(block, false, 0, 0),
                       .v = RowAt(block, true, 0, 0),
                       .head_stride = block.capacity * shape_.head_dim,
                       .first = first,
                       .rows = rows,
                       .transposed = block.transposed};
  };
  for (const SharedRows& shared : shared_) add(*shared.block, shared.first, shared.end - shared.first);
  if (tail_ != nullptr) add(*tail_, tail_first_, tail_rows() + step_rows);
  return {spans_.data(), count};
}

uint64_t KvLayer::reserved_bytes() const {
  const auto held = [this](const Block& block) { return block.held * PositionBytes(); };
  uint64_t bytes = tail_ == nullptr ? 0 : held(*tail_);
  for (const SharedRows& shared : shared_) bytes += held(*shared.block);
  return bytes;
}

Result<void> KvLayer::MakeReady(Block& block, size_t first, size_t rows) {
  const size_t held = HeldRows(first, block.held, rows, block.capacity);
  if (rows <= block.ready && held == block.held) return {};
  const auto rows_of = [&](size_t begin, size_t end) {
    return PageCommitter::Work{.memory = &block.reserved,
                               .parts = 2 * shape_.kv_heads,
                               .stride = block.capacity * RowBytes(),
                               .begin = begin * RowBytes(),
                               .end = end * RowBytes(),
                               .used = &block == tail_.get() ? tail_rows() * RowBytes() : 0};
  };
  if (block.ready != block.held) {
    if (pages_->Finish(block.job)) {
      block.ready = block.held;
    } else {
      block.held = block.ready;  // requested again when needed, which is then an error
    }
  }
  const size_t now = pages_ == nullptr ? held : rows;
  if (now > block.ready) {
    const PageCommitter::Work work = rows_of(block.ready, now);
    if (pages_ != nullptr) {
      TIDEMILL_TRY_VOID(pages_->Commit(work));
    } else {
      for (size_t part = 0; part < work.parts; ++part)
        TIDEMILL_TRY_VOID(block.reserved.Commit(part * work.stride + work.begin, work.end - work.begin));
    }
    block.ready = block.held = now;
  }
  if (held > block.held) {
    block.pages = pages_;
    pages_->Start(block.job, rows_of(block.ready, held));
    block.held = held;
  }
  return {};
}

Result<void> KvLayer::StartPage(size_t n, BufferArena* arena) {
  shared_.reserve(shared_.size() + 1);
  spans_.resize(shared_.size() + 2);
  TransposeKeyTiles(0);  // it is read-only from now on
  const std::shared_ptr<Block> page = tail_;
  const size_t first = tail_first_;
  TIDEMILL_TRY_VOID(SetTail(length_, n, policy_.Capacity(length_, n, max_length_ - length_), arena));
  shared_.push_back({page, first, length_});
  return {};
}

Result<void> KvLayer::SetTail(size_t first, size_t rows, size_t capacity, BufferArena* arena) {
  size_t bytes = 0;
  const bool countable = CheckedMul<size_t>(capacity, PositionBytes(), &bytes);
  auto block = std::make_shared<Block>();
  block->capacity = capacity;
  if (policy_.policy == KvPolicy::kReserve) {
    auto reserved = countable ? ReservedMemory::Create(bytes) : OutOfMemoryError("reserve addresses");
    if (!reserved.ok()) {
      // No more than GrowthBytes promised: by increments.
      policy_.policy = KvPolicy::kBmc;
      const size_t fewer = policy_.Capacity(first, rows, max_length_ - first);
      policy_.policy = KvPolicy::kGeometric;
      counts_.fell_back = true;
      return SetTail(first, rows, fewer, arena);
    }
    block->reserved = std::move(reserved).value();
    TIDEMILL_TRY_VOID(MakeReady(*block, first, rows));
  } else {
    if (!countable) return OutOfMemoryError("reserve state");
    TIDEMILL_TRY(memory, arena != nullptr ? arena->Allocate(bytes) : AlignedBuffer::Create(bytes));
    block->memory = std::move(memory);
    block->ready = block->held = capacity;
  }
  ++counts_.growths;
  counts_.bytes_copied += (length_ - first) * PositionBytes();
  block->transposed = KeepTiles(first);
  for (const bool value : {false, true}) {
    for (size_t head = 0; first != length_ && head < shape_.kv_heads; ++head) {
      std::memcpy(RowAt(*block, value, head, 0), RowAt(*tail_, value, head, first - tail_first_),
                  (length_ - first) * RowBytes());
    }
  }
  tail_ = std::move(block);
  tail_first_ = first;
  return {};
}

size_t KvLayer::KeepTiles(size_t first) {
  if (first == length_ || tail_ == nullptr) return 0;
  const size_t dropped = first - tail_first_;
  if (dropped % kKeyTileRows != 0) TransposeBack(0);
  return tail_->transposed - std::min(tail_->transposed, dropped);
}

void KvLayer::TransposeKeyTiles(size_t apart) {
  if (!HasKeyTiles(dtype_) || tail_ == nullptr) return;
  for (; tail_->transposed + kKeyTileRows + apart <= tail_rows(); tail_->transposed += kKeyTileRows) {
    for (size_t head = 0; head < shape_.kv_heads; ++head)
      TransposeKeys(dtype_, shape_.head_dim, RowAt(*tail_, false, head, tail_->transposed));
  }
}

void KvLayer::TransposeBack(size_t rows) {
  const size_t stay = rows / kKeyTileRows * kKeyTileRows;
  while (tail_ != nullptr && tail_->transposed > stay) {
    tail_->transposed -= kKeyTileRows;
    if (tail_->transposed >= tail_rows()) continue;  // nothing of it is left
    for (size_t head = 0; head < shape_.kv_heads; ++head)
      TransposeKeysBack(dtype_, shape_.head_dim, RowAt(*tail_, false, head, tail_->transposed));
  }
}

void KvLayer::MoveTail(size_t first) {
  tail_->transposed = KeepTiles(first);
  for (const bool value : {false, true}) {
    for (size_t head = 0; head < shape_.kv_heads; ++head) {
      std::memmove(RowAt(*tail_, value, head, 0), RowAt(*tail_, value, head, first - tail_first_),
                   (length_ - first) * RowBytes());
    }
  }
  tail_first_ = first;
}

void KvLayer::DropShared(size_t needed) {
  const auto kept =
      std::find_if(shared_.begin(), shared_.end(), [needed](const SharedRows& rows) { return rows.end > needed; });
  shared_.erase(shared_.begin(), kept);
}

std::optional<size_t> KvLayer::NewCapacity(size_t n, size_t needed) const {
  if (IsReadyFor(n)) return std::nullopt;
  const size_t first = std::max(tail_first_, needed);
  const size_t rows = length_ - first + n, most = max_length_ - first;
  const bool drops = first != tail_first_;
  if (drops && tail_ != nullptr && rows <= tail_->capacity &&
      tail_->capacity - rows >= std::min(kGrowthRows / 2, most - rows)) {
    return std::nullopt;  // the rows that stay move to the front
  }
  const size_t capacity = policy_.Capacity(first, rows, most);
  return drops && most - capacity > kGrowthRows ? capacity + kGrowthRows : drops ? most : capacity;
}

KvLayer::BlockBytes KvLayer::BytesOf(size_t first, size_t rows, size_t capacity) const {
  if (policy_.policy == KvPolicy::kReserve) return {};  // addresses
  rows = std::max(rows, std::min(capacity, policy_.expected - std::min(policy_.expected, first)));
  BlockBytes bytes{.rows = rows};
  if (!CheckedMul<uint64_t>(capacity, PositionBytes(), &bytes.all)) bytes.all = UINT64_MAX;
  if (!CheckedMul<uint64_t>(rows, PositionBytes(), &bytes.used)) bytes.used = UINT64_MAX;
  return bytes;
}

KvLayer::BlockBytes KvLayer::NewBlock(size_t n, size_t needed) const {
  if (IsReadyFor(n)) return {};
  if (PagesStay()) return BytesOf(length_, n, policy_.Capacity(length_, n, max_length_ - length_));
  const size_t first = std::max(tail_first_, needed);
  const std::optional<size_t> capacity = NewCapacity(n, needed);
  return capacity ? BytesOf(first, length_ - first + n, *capacity) : BlockBytes();
}

uint64_t KvLayer::GrowthBytes(size_t n, size_t needed) const {
  if (IsReadyFor(n) && (n == 0 || tail_->held == tail_->capacity)) return 0;
  size_t more = 0;  // rows
  if (tail_ != nullptr && n <= tail_->capacity - tail_rows()) {
    more = HeldRows(tail_first_, tail_->held, tail_rows() + n, tail_->capacity) - tail_->held;
  } else if (PagesStay()) {
    more = policy_.Capacity(length_, n, max_length_ - length_);
  } else if (const std::optional<size_t> capacity = NewCapacity(n, needed)) {
    const size_t first = std::max(tail_first_, needed), rows = length_ - first + n;
    const size_t held = policy_.policy == KvPolicy::kReserve ? HeldRows(first, 0, rows, *capacity) : *capacity;
    more = held - std::min(held, tail_ == nullptr ? 0 : tail_->held);
  }
  uint64_t bytes = 0;
  return CheckedMul<uint64_t>(more, PositionBytes(), &bytes) ? bytes : UINT64_MAX;
}

uint64_t KvLayer::GrowthBytes(size_t n, size_t step, size_t needed, size_t rollback) const {
  const uint64_t at_once = GrowthBytes(n, needed);
  if (shape_.window == 0 || shape_.window >= max_length_) return at_once;
  // The most that a tail has.
  const size_t rows = shape_.window - 1 + rollback + step + 2 * kGrowthRows;
  const size_t more = rows - std::min(rows, tail_ == nullptr ? 0 : tail_->held);
  uint64_t bytes = 0;
  if (!CheckedMul<uint64_t>(more, PositionBytes(), &bytes)) return at_once;
  return std::min(at_once, std::max(bytes, GrowthBytes(step, needed)));
}

bool KvLayer::HasRoom(size_t n, size_t needed) const {
  if (tail_ != nullptr && n <= tail_->capacity - tail_rows()) return true;
  return !PagesStay() && !NewCapacity(n, needed);
}

Result<void> KvLayer::Reserve(size_t n, size_t needed, BufferArena* arena) {
  DropShared(needed);
  if (tail_ != nullptr && n <= tail_->capacity - tail_rows()) {
    if (n == 0) return {};
    const size_t held = tail_->held;
    TIDEMILL_TRY_VOID(MakeReady(*tail_, tail_first_, tail_rows() + n));
    counts_.growths += tail_->held != held;
    return {};
  }
  if (PagesStay()) return StartPage(n, arena);
  const size_t first = std::max(tail_first_, needed);
  const std::optional<size_t> capacity = NewCapacity(n, needed);
  if (!capacity) {
    MoveTail(first);
    return {};
  }
  return SetTail(first, length_ - first + n, *capacity, arena);
}

void KvLayer::Commit(size_t n) {
  TIDEMILL_CHECK(n == 0 || IsReadyFor(n));
  length_ += n;
  TransposeKeyTiles(kRowsApart);
}

void KvLayer::MovePath(std::span<const uint32_t> path) {
  for (size_t i = 0; i < path.size(); ++i) {
    if (path[i] == i) continue;
    TIDEMILL_CHECK(IsReadyFor(size_t{path[i]} + 1));
    for (const bool value : {false, true}) {
      for (size_t head = 0; head < shape_.kv_heads; ++head) {
        std::memcpy(RowAt(*tail_, value, head, tail_rows() + i), RowAt(*tail_, value, head, tail_rows() + path[i]),
                    RowBytes());
      }
    }
  }
}

void KvLayer::Rollback(size_t to) {
  length_ = to;
  // Into shared blocks: use fewer rows of the last ones. Their rows stay the others'; new ones go to our own tail.
  tail_first_ = std::min(tail_first_, to);
  TransposeBack(tail_rows());
  while (!shared_.empty() && shared_.back().first >= to) shared_.pop_back();
  if (!shared_.empty()) shared_.back().end = std::min(shared_.back().end, to);
}

void KvLayer::Clear() {
  shared_.clear();
  tail_ = nullptr;
  length_ = tail_first_ = 0;
}

void KvLayer::Compact(size_t needed) {
  DropShared(needed);
  const size_t first = std::max(tail_first_, needed), rows = length_ - first;
  if (rows == 0) {
    tail_ = nullptr;
    tail_first_ = length_;
  } else if (tail_->reserved.size() != 0 && first == tail_first_) {
    if (tail_->ready != tail_->held) pages_->Cancel(tail_->job);
    tail_->ready = tail_->held = rows;
    for (size_t part = 0; part < 2 * shape_.kv_heads; ++part) {
      tail_->reserved.Release((part * tail_->capacity + rows) * RowBytes(), (tail_->capacity - rows) * RowBytes());
    }
  } else if (tail_->capacity != rows) {
    (void)SetTail(first, rows, rows, nullptr);
  }
}

void KvLayer::PrepareFork(KvLayer& child) {
  const size_t blocks = shared_.size() + 1;
  for (KvLayer* layer : {this, &child}) {
    layer->shared_.reserve(blocks);
    layer->spans_.resize(blocks + 1);
  }
}

void KvLayer::Fork(KvLayer& child) {
  TransposeKeyTiles(0);
  if (tail_rows() != 0) shared_.push_back({std::exchange(tail_, nullptr), tail_first_, length_});
  child.shared_.assign(shared_.begin(), shared_.end());
  child.length_ = child.tail_first_ = tail_first_ = length_;
}

void KvLayer::Take(KvLayer&& other) {
  length_ = other.length_;
  shared_.clear();
  tail_ = std::move(other.tail_);
  tail_first_ = other.tail_first_;
  counts_.growths += other.counts_.growths;
  counts_.bytes_copied += other.counts_.bytes_copied;
  counts_.fell_back = counts_.fell_back || other.counts_.fell_back;
}

void KvLayer::AppendRows(size_t first, std::vector<std::byte>* out) const {
  for (const bool value : {false, true}) {
    for (size_t head = 0; head < shape_.kv_heads; ++head) {
      const auto append = [&](const Block& block, size_t block_first, size_t end) {
        const size_t from = std::max(first, block_first);
        if (from >= end) return;
        const size_t turn = value ? from : std::clamp(block_first + block.transposed, from, end);
        for (size_t row = from; row < turn;) {
          const size_t skip = (row - block_first) % kKeyTileRows, last = std::min(turn, row - skip + kKeyTileRows);
          const std::byte* keys = RowAt(block, false, head, row - skip - block_first);
          std::vector<std::byte> tile(keys, keys + kKeyTileRows * RowBytes());
          TransposeKeysBack(dtype_, shape_.head_dim, tile.data());
          out->insert(out->end(), tile.data() + skip * RowBytes(), tile.data() + (skip + last - row) * RowBytes());
          row = last;
        }
        const std::byte* begin = RowAt(block, value, head, turn - block_first);
        out->insert(out->end(), begin, begin + (end - turn) * RowBytes());
      };
      for (const SharedRows& shared : shared_) append(*shared.block, shared.first, shared.end);
      if (tail_ != nullptr) append(*tail_, tail_first_, length_);
    }
  }
}

Result<void> KvLayer::ReadRows(ByteReader& reader, size_t first, size_t length, BufferArena* arena) {
  length_ = tail_first_ = first;
  TIDEMILL_TRY_VOID(Reserve(length - first, first, arena));
  for (const bool value : {false, true}) {
    for (size_t head = 0; head < shape_.kv_heads; ++head) {
      TIDEMILL_TRY(bytes, reader.Take((length - first) * RowBytes(), "rows"));
      if (!bytes.empty()) std::memcpy(RowAt(*tail_, value, head, 0), bytes.data(), bytes.size());
    }
  }
  length_ = length;
  return {};
}

}  // namespace tidemill
