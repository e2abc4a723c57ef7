#include "state/kv_layer.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/checked_math.h"
#include "kernels/key_tiles.h"

namespace tidemill {

KvLayer::StepRows KvLayer::View() {
  TIDEMILL_DCHECK(IsReadyFor(0) && num_settle_parts() == 0);
  return {tail_->row(false, 0, tail_rows()), tail_->row(true, 0, tail_rows()), tail_->capacity() * shape_.head_dim};
}

std::span<const KvSpan> KvLayer::Context(size_t step_rows) {
  size_t count = 0;
  for (const SharedRows& shared : shared_)
    spans_[count++] = shared.block->Span(shared.first, shared.end - shared.first);
  if (tail_ != nullptr && tail_rows() + step_rows != 0)
    spans_[count++] = tail_->Span(tail_first_, tail_rows() + step_rows);
  return {spans_.data(), count};
}

uint64_t KvLayer::CheckpointBytes(size_t length, size_t earliest) const {
  uint64_t bytes = 0;
  return CheckedMul<uint64_t>(length - FirstNeeded(earliest), PositionBytes(), &bytes) ? bytes : UINT64_MAX;
}

void KvLayer::ForEachBlock(const BlockVisitor& visit) const {
  for (const SharedRows& shared : shared_) visit(shared.block.get(), shared.block->held_bytes());
  if (tail_ != nullptr) visit(tail_.get(), tail_->held_bytes());
}

uint64_t KvLayer::reserved_bytes() const {
  uint64_t bytes = tail_ == nullptr ? 0 : tail_->held_bytes();
  for (const SharedRows& shared : shared_) bytes += shared.block->held_bytes();
  return bytes;
}

size_t KvLayer::Capacity(size_t first, size_t rows, size_t floor) const {
  const size_t capacity = policy_.Capacity(first, rows, options_.max_length - first);
  return IsSmall(first, rows, floor) ? std::min(capacity, std::bit_ceil(std::max(rows, kFewestRows))) : capacity;
}

// The rows of the tail are shared, or a page of `paged`.
size_t KvLayer::NextCapacity(size_t n) const {
  const size_t capacity = policy_.Capacity(length_, n, options_.max_length - length_);
  const bool small = n < kGrowthRows && seen_rows() != 0;
  return small ? std::min(capacity, std::bit_ceil(std::max(n, kFewestRows))) : capacity;
}

size_t KvLayer::HeldRows(size_t first, size_t held, size_t rows, size_t capacity) const {
  const size_t expected = policy_.expected - std::min(policy_.expected, first);
  const size_t most = policy_.expected != 0 && expected >= rows ? std::min(expected, capacity) : capacity;
  const size_t lead = options_.pages == nullptr ? 0 : (policy_.increment - 1) / 4 + 1;
  if (rows <= held && (held >= most || held - rows >= lead)) return held;
  return policy_.increment < most - rows ? rows + policy_.increment : most;
}

std::optional<size_t> KvLayer::NewCapacity(size_t n, size_t floor) const {
  if (IsReadyFor(n) || FitsLastBlock(n)) return std::nullopt;
  const size_t first = first_kept(floor);
  const size_t rows = length_ - first + n, most = options_.max_length - first;
  const bool drops = first != tail_first_;
  if (drops && tail_ != nullptr && rows <= tail_->capacity() &&
      tail_->capacity() - rows >= std::min(kGrowthRows / 2, most - rows)) {
    return std::nullopt;  // the rows that stay move to the front
  }
  const size_t capacity = Capacity(first, rows, floor);
  return drops && most - capacity > kGrowthRows ? capacity + kGrowthRows : drops ? most : capacity;
}

BlockBytes KvLayer::BytesOf(size_t first, size_t rows, size_t capacity) const {
  if (policy_.policy == KvPolicy::kReserve) return {};  // addresses
  rows = std::max(rows, std::min(capacity, policy_.expected - std::min(policy_.expected, first)));
  BlockBytes bytes{.rows = rows};
  if (!CheckedMul<uint64_t>(capacity, PositionBytes(), &bytes.all)) bytes.all = UINT64_MAX;
  if (!CheckedMul<uint64_t>(rows, PositionBytes(), &bytes.used)) bytes.used = UINT64_MAX;
  return bytes;
}

BlockBytes KvLayer::NewBlock(size_t n, size_t floor) const {
  if (IsReadyFor(n)) return {};
  if (!FitsTail(n) && BlockStays()) return BytesOf(length_, n, NextCapacity(n));
  const std::optional<size_t> capacity = NewCapacity(n, floor);
  return capacity ? BytesOf(first_kept(floor), length_ - first_kept(floor) + n, *capacity) : BlockBytes();
}

uint64_t KvLayer::GrowthBytes(size_t n, size_t floor) const {
  if (IsReadyFor(n) && (n == 0 || tail_->held() == tail_->capacity())) return 0;
  const auto in_place = [&](const KvBlock& block, size_t first) {
    return HeldRows(first, block.held(), length_ - first + n, block.capacity()) - block.held();
  };
  const auto of_new = [&](size_t first, size_t rows, size_t capacity, bool small) {
    return policy_.policy == KvPolicy::kReserve && !small ? HeldRows(first, 0, rows, capacity) : capacity;
  };
  size_t more = 0;  // rows
  if (FitsTail(n)) {
    more = in_place(*tail_, tail_first_);
  } else if (FitsLastBlock(n)) {
    more = in_place(*shared_.back().block, shared_.back().first);
  } else if (BlockStays()) {
    more = of_new(length_, n, NextCapacity(n), n < kGrowthRows && seen_rows() != 0) + MergeableRun(floor).rows;
  } else if (const std::optional<size_t> capacity = NewCapacity(n, floor)) {
    const size_t first = first_kept(floor), rows = length_ - first + n;
    const size_t held = of_new(first, rows, *capacity, IsSmall(first, rows, floor));
    more = held - std::min(held, tail_ == nullptr ? 0 : tail_->held()) + MergeableRun(floor).rows;
  }
  uint64_t bytes = 0;
  return CheckedMul<uint64_t>(more, PositionBytes(), &bytes) ? bytes : UINT64_MAX;
}

uint64_t KvLayer::GrowthBytes(size_t n, size_t step, size_t floor, size_t rollback) const {
  const uint64_t at_once = KvLayer::GrowthBytes(n, floor);  // of rows alone, also where a layer has more
  if (n <= step || shape_.window == 0 || shape_.window >= options_.max_length) return at_once;
  // The most that a tail has.
  const size_t rows = shape_.window - 1 + options_.drop_rows - 1 + rollback + step + 2 * kGrowthRows;
  const size_t more = rows - std::min(rows, tail_ == nullptr || BlockStays() ? 0 : tail_->held());
  uint64_t bytes = 0;
  if (!CheckedMul<uint64_t>(more, PositionBytes(), &bytes)) return at_once;
  return std::min(at_once, std::max(bytes, KvLayer::GrowthBytes(step, floor)));
}

bool KvLayer::HasRoom(size_t n, size_t floor) const {
  return FitsTail(n) || FitsLastBlock(n) || (!BlockStays() && !NewCapacity(n, floor));
}

Result<void> KvLayer::Reserve(size_t n, size_t floor, BufferArena* arena) {
  TIDEMILL_TRY_VOID(ReserveTail(n, floor, arena));
  TakeMerged();
  return {};
}

Result<void> KvLayer::ReserveTail(size_t n, size_t floor, BufferArena* arena) {
  DropShared(FirstNeeded(floor));
  if (FitsLastBlock(n)) TakeLastBlock();
  if (FitsTail(n)) {
    if (n == 0 || !tail_->has_addresses_only()) return {};
    const size_t held = tail_->held();
    TIDEMILL_TRY_VOID(tail_->MakeReady(tail_rows() + n, HeldRows(tail_first_, held, tail_rows() + n, tail_->capacity()),
                                       tail_rows(), options_.pages));
    counts_.growths += tail_->held() != held;
    return {};
  }
  Settle();
  if (BlockStays()) return StartBlock(n, floor, arena);
  const size_t first = first_kept(floor);
  if (const std::optional<size_t> capacity = NewCapacity(n, floor)) {
    const bool small = IsSmall(first, length_ - first + n, floor);
    Merge(floor);
    return SetTail(first, length_ - first + n, *capacity, policy_.policy == KvPolicy::kReserve && !small, arena);
  }
  AlignTiles(first);
  tail_->ForgetMerged();
  tail_->TakeRows(*tail_, first - tail_first_, length_ - first);
  tail_first_ = first;
  return {};
}

Result<void> KvLayer::StartBlock(size_t n, size_t floor, BufferArena* arena) {
  const size_t capacity = NextCapacity(n);
  const bool in_addresses = policy_.policy == KvPolicy::kReserve && (n >= kGrowthRows || seen_rows() == 0);
  Merge(floor);
  shared_.reserve(shared_.size() + 1);
  spans_.resize(shared_.size() + 2);
  tail_->TransposeTiles(tail_rows());
  const std::shared_ptr<KvBlock> stays = tail_;
  const size_t first = tail_first_;
  TIDEMILL_TRY_VOID(SetTail(length_, n, capacity, in_addresses, arena));
  shared_.push_back({stays, first, length_});
  return {};
}

Result<void> KvLayer::SetTail(size_t first, size_t rows, size_t capacity, bool in_addresses, BufferArena* arena) {
  auto block = MakeBlock(capacity);
  if (in_addresses) {
    if (!block->ReserveAddresses().ok()) {
      // No more than GrowthBytes promised: by increments.
      policy_.policy = KvPolicy::kBmc;
      const size_t fewer = policy_.Capacity(first, rows, options_.max_length - first);
      policy_.policy = KvPolicy::kGeometric;
      counts_.fell_back = true;
      return SetTail(first, rows, fewer, false, arena);
    }
    TIDEMILL_TRY_VOID(block->MakeReady(rows, HeldRows(first, 0, rows, capacity), 0, options_.pages));
  } else {
    TIDEMILL_TRY_VOID(block->Allocate(arena));
  }
  ++counts_.growths;
  counts_.bytes_copied += (length_ - first) * PositionBytes();
  if (first != length_) {
    AlignTiles(first);
    block->TakeRows(*tail_, first - tail_first_, length_ - first);
  }
  tail_ = std::move(block);
  tail_first_ = first;
  seen_rows_ = 0;
  return {};
}

void KvLayer::AlignTiles(size_t first) {
  if ((first - tail_first_) % kKeyTileRows != 0) tail_->TransposeBack(0, tail_rows());
}

void KvLayer::DropShared(size_t needed) {
  const auto kept =
      std::find_if(shared_.begin(), shared_.end(), [needed](const SharedRows& rows) { return rows.end > needed; });
  shared_.erase(shared_.begin(), kept);
}

void KvLayer::Commit(size_t n) {
  TIDEMILL_CHECK(n == 0 || IsReadyFor(n));
  length_ += n;
}

void KvLayer::CommitPath(std::span<const uint32_t> path) {
  if (path.empty()) return;
  TIDEMILL_CHECK(IsReadyFor(size_t{path.back()} + 1));
  length_ += path.size();
  if (path.back() + 1 != path.size()) path_ = path;
}

size_t KvLayer::tiles_due() const {
  return tail_ == nullptr || tail_rows() < kRowsApart ? 0 : tail_->TilesLeft(tail_rows() - kRowsApart);
}

uint64_t KvLayer::settle_bytes() const { return 2 * (path_.size() + tiles_due() * kKeyTileRows / 2) * PositionBytes(); }

void KvLayer::SettlePart(size_t head) {
  const size_t first = tail_rows() - path_.size();  // the step's first row
  for (size_t i = 0; i < path_.size(); ++i) {
    if (path_[i] != i) tail_->CopyRow(head, first + path_[i], first + i);
  }
  if (tail_rows() >= kRowsApart) tail_->TransposeTilesOf(head, tail_rows() - kRowsApart);
}

void KvLayer::EndSettle() {
  path_ = {};
  if (tail_rows() >= kRowsApart) tail_->EndTranspose(tail_rows() - kRowsApart);
}

void KvLayer::Rollback(size_t to) {
  length_ = to;
  if (to < tail_first_ + seen_rows()) {                                 // others see what would be written next
    if (to > tail_first_) shared_.push_back({tail_, tail_first_, to});  // PrepareFork made room
    tail_ = nullptr;
    tail_first_ = to;
  }
  // Into shared blocks: use fewer rows of the last ones.
  tail_first_ = std::min(tail_first_, to);
  if (tail_ != nullptr) {
    if (seen_rows() == 0) tail_->ForgetMerged();
    tail_->TransposeBack(tail_rows(), tail_rows());
  }
  while (!shared_.empty() && shared_.back().first >= to) shared_.pop_back();
  if (!shared_.empty()) shared_.back().end = std::min(shared_.back().end, to);
}

void KvLayer::Clear() {
  shared_.clear();
  tail_ = nullptr;
  path_ = {};
  length_ = tail_first_ = 0;
}

void KvLayer::AppendTo(std::vector<std::byte>* out, size_t earliest) const {
  const size_t first = FirstNeeded(earliest);
  for (const bool value : {false, true}) {
    for (size_t head = 0; head < shape_.kv_heads; ++head) {
      const auto append = [&](const KvBlock& block, size_t block_first, size_t end) {
        const size_t from = std::max(first, block_first);
        if (from < end) block.AppendRows(value, head, from - block_first, end - block_first, out);
      };
      for (const SharedRows& shared : shared_) append(*shared.block, shared.first, shared.end);
      if (tail_ != nullptr) append(*tail_, tail_first_, length_);
    }
  }
}

Result<void> KvLayer::ReadFrom(ByteReader& reader, size_t length, size_t earliest, BufferArena* arena) {
  const size_t first = FirstNeeded(earliest), row_bytes = shape_.RowBytes(options_.dtype);
  length_ = tail_first_ = first;
  TIDEMILL_TRY_VOID(Reserve(length - first, earliest, arena));
  for (const bool value : {false, true}) {
    for (size_t head = 0; head < shape_.kv_heads; ++head) {
      TIDEMILL_TRY(bytes, reader.Take((length - first) * row_bytes, "rows"));
      if (!bytes.empty()) std::memcpy(tail_->row(value, head, 0), bytes.data(), bytes.size());
    }
  }
  length_ = length;
  return {};
}

void KvLayer::Take(LayerState&& from) {
  auto& other = static_cast<KvLayer&>(from);
  Clear();
  length_ = other.length_;
  tail_ = std::move(other.tail_);
  tail_first_ = other.tail_first_;
  seen_rows_ = 0;
  counts_ += other.counts_;
}

}  // namespace tidemill
