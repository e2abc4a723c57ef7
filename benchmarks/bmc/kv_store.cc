#include "benchmarks/bmc/kv_store.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <utility>

#include "base/check.h"
#include "benchmarks/bmc/stopwatch.h"

namespace tidemill::bmc {
namespace {

constexpr std::align_val_t kAlignment{64};
constexpr size_t kPage = 4096, kLargePage = size_t{2} << 20;

std::byte* FromSystem(size_t bytes) { return static_cast<std::byte*>(::operator new(bytes, kAlignment)); }
void ToSystem(std::byte* block) { ::operator delete(block, kAlignment); }

// A write to each page takes its fault here and not in the copy.
void TouchPages(std::byte* begin, size_t bytes) {
  for (size_t at = 0; at < bytes; at += kPage) *const_cast<volatile std::byte*>(begin + at) = std::byte{0};
  if (bytes != 0) *const_cast<volatile std::byte*>(begin + bytes - 1) = std::byte{0};
}

}  // namespace

size_t BlockPool::ClassBytes(size_t bytes) { return std::bit_ceil(std::max<size_t>(bytes, kPage)); }

std::byte* BlockPool::Take(size_t bytes) {
  const size_t size = ClassBytes(bytes);
  const auto found = free_.find(size);
  if (found == free_.end()) {
    DropFree();
    return FromSystem(size);
  }
  std::byte* block = found->second;
  free_.erase(found);
  return block;
}

void BlockPool::Give(std::byte* block, size_t bytes) { free_.emplace(ClassBytes(bytes), block); }

void BlockPool::DropFree() {
  for (const auto& [size, block] : free_) ToSystem(block);
  free_.clear();
}

KvStore::KvStore(const Cell& cell, ThreadPool* threads)
    : cell_(cell),
      threads_(*threads),
      zero_unused_(UsesLibrary(cell.backend)),
      row_bytes_(RowBytes(cell.dtype, cell.shape.head_dim)),
      kv_heads_per_block_(zero_unused_ ? cell.KvHeadsOfBatch() : cell.shape.kv_heads),
      blocks_(zero_unused_ ? 1 : cell.batch) {}

KvStore::~KvStore() { Clear(); }

void KvStore::Clear() {
  for (std::vector<Block>& list : blocks_) {
    for (Block& block : list) Free(block);
    list.clear();
  }
  capacity_ = 0;
}

void KvStore::Free(Block& block) {
  if (block.data == nullptr) return;
  if (cell_.memory == Memory::kPool) {
    pool_.Give(block.data, block.bytes);
  } else {
    ToSystem(block.data);
  }
  block.data = nullptr;
}

void KvStore::Commit(Block& block, size_t ready) const {
  for (size_t part = 0; part < parts(); ++part) {
    const size_t offset = (part * block.rows + block.ready) * row_bytes_;
    if (!block.reserved.Commit(offset, (ready - block.ready) * row_bytes_).ok()) throw std::bad_alloc();
  }
  block.ready = ready;
}

// Of a padded block all rows, and unused ones become zeros; else the rows that are about to be copied.
void KvStore::Touch(const Block& block, size_t kept) const {
  threads_.ParallelFor(parts(), [&](size_t part, size_t /*thread*/) {
    std::byte* rows = block.data + part * block.rows * row_bytes_;
    TouchPages(rows, (zero_unused_ ? block.rows : kept) * row_bytes_);
    if (zero_unused_) std::memset(rows + kept * row_bytes_, 0, (block.rows - kept) * row_bytes_);
  });
}

KvStore::Block KvStore::MakeBlock(size_t first, size_t rows, size_t kept, size_t ready) {
  Block block;
  block.first = first;
  block.rows = rows;
  block.bytes = parts() * rows * row_bytes_;
  if (cell_.memory == Memory::kReserved) {
    auto reserved = ReservedMemory::Create(block.bytes);
    if (!reserved.ok()) throw std::bad_alloc();
    block.reserved = std::move(reserved).value();
    Commit(block, ready);
    return block;
  }
  block.data = cell_.memory == Memory::kPool ? pool_.Take(block.bytes) : FromSystem(block.bytes);
  block.ready = rows;
  if (cell_.pages == "large") {
    std::byte* begin = block.data + (kLargePage - reinterpret_cast<uintptr_t>(block.data) % kLargePage) % kLargePage;
    std::byte* end = block.data + block.bytes;
    if (begin < end) madvise(begin, static_cast<size_t>(end - begin) / kLargePage * kLargePage, MADV_HUGEPAGE);
  }
  Touch(block, kept);
  return block;
}

GrowthSeconds KvStore::Grow(size_t rows, size_t capacity) {
  GrowthSeconds seconds;
  for (std::vector<Block>& list : blocks_) {
    Stopwatch watch;
    if (cell_.memory == Memory::kReserved) {
      if (list.empty()) {
        list.push_back(MakeBlock(0, cell_.tokens, 0, capacity));
      } else {
        Commit(list.back(), capacity);
      }
      seconds.allocate += watch.Lap();
      continue;
    }
    if (cell_.policy == KvPolicy::kPaged) {
      list.push_back(MakeBlock(capacity_, capacity - capacity_, 0, capacity - capacity_));
      seconds.allocate += watch.Lap();
      continue;
    }
    Block block = MakeBlock(0, capacity, rows, capacity);
    seconds.allocate += watch.Lap();
    if (!list.empty()) {
      const Block& old = list.back();
      threads_.ParallelFor(parts(), [&](size_t part, size_t /*thread*/) {
        std::memcpy(block.data + part * block.rows * row_bytes_, old.data + part * old.rows * row_bytes_,
                    rows * row_bytes_);
      });
      seconds.copy += watch.Lap();
      Free(list.back());
      list.clear();
      seconds.allocate += watch.Lap();
    }
    list.push_back(std::move(block));
  }
  capacity_ = capacity;
  return seconds;
}

void KvStore::Place(size_t rows, size_t capacity, size_t next) {
  Clear();
  if (capacity == 0) return;
  for (std::vector<Block>& list : blocks_) {
    if (cell_.policy == KvPolicy::kPaged) {
      for (size_t first = 0; first < capacity; first += cell_.increment) {
        const size_t size = std::min(cell_.increment, capacity - first);
        list.push_back(MakeBlock(first, size, std::min(size, rows - std::min(rows, first)), size));
      }
    } else {
      list.push_back(MakeBlock(0, cell_.memory == Memory::kReserved ? cell_.tokens : capacity, rows, capacity));
    }
  }
  ZeroRows(0, rows);  // what a recycled block holds may be no number
  // The pool has the block of the step before last. A new class of sizes is rare: a sample is to miss it.
  if (cell_.memory == Memory::kPool) {
    std::vector<Block> unused;
    for (size_t i = 0; i < blocks_.size(); ++i) unused.push_back(MakeBlock(0, next, next, next));
    for (Block& block : unused) Free(block);
  }
  capacity_ = capacity;
}

void KvStore::ZeroRows(size_t first, size_t end) {
  for (std::vector<Block>& list : blocks_) {
    for (Block& block : list) {
      const size_t from = std::max(first, block.first), to = std::min(end, block.first + block.rows);
      if (from >= to) continue;
      std::byte* data = block.data != nullptr ? block.data : block.reserved.data();
      threads_.ParallelFor(parts(), [&](size_t part, size_t /*thread*/) {
        std::memset(data + (part * block.rows + from - block.first) * row_bytes_, 0, (to - from) * row_bytes_);
      });
    }
  }
}

KvStore::Span KvStore::SpanOf(const Block& block, size_t b) const {
  const size_t head = zero_unused_ ? b * cell_.shape.kv_heads : 0;
  std::byte* data = block.data != nullptr ? block.data : const_cast<std::byte*>(block.reserved.data());
  return {.k = data + head * block.rows * row_bytes_,
          .v = data + (kv_heads_per_block_ + head) * block.rows * row_bytes_,
          .stride = block.rows,
          .first = block.first,
          .rows = block.ready};
}

std::vector<KvStore::Span> KvStore::Spans(size_t b) const {
  std::vector<Span> spans;
  for (const Block& block : blocks_[zero_unused_ ? 0 : b]) spans.push_back(SpanOf(block, b));
  return spans;
}

KvStore::Span KvStore::LastSpan(size_t b) const { return SpanOf(blocks_[zero_unused_ ? 0 : b].back(), b); }

}  // namespace tidemill::bmc
