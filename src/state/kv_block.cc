#include "state/kv_block.h"

#include <cstring>
#include <utility>

#include "base/checked_math.h"
#include "base/out_of_memory.h"
#include "kernels/key_tiles.h"

namespace tidemill {

Result<void> KvBlock::Allocate(BufferArena* arena) {
  size_t bytes = 0;
  if (!CheckedMul<size_t>(capacity_, PositionBytes(), &bytes)) return OutOfMemoryError("reserve state");
  TIDEMILL_TRY(memory, arena != nullptr ? arena->Allocate(bytes) : AlignedBuffer::Create(bytes));
  memory_ = std::move(memory);
  ready_ = capacity_;
  Hold(capacity_);
  return {};
}

Result<void> KvBlock::ReserveAddresses() {
  size_t bytes = 0;
  if (!CheckedMul<size_t>(capacity_, PositionBytes(), &bytes)) return OutOfMemoryError("reserve addresses");
  TIDEMILL_TRY(reserved, ReservedMemory::Create(bytes));
  reserved_ = std::move(reserved);
  return {};
}

PageCommitter::Work KvBlock::RowsOf(size_t begin, size_t end, size_t used) {
  return {.memory = &reserved_,
          .parts = 2 * kv_heads_,
          .stride = capacity_ * RowBytes(),
          .begin = begin * RowBytes(),
          .end = end * RowBytes(),
          .used = used * RowBytes()};
}

Result<void> KvBlock::MakeReady(size_t rows, size_t held, size_t used, PageCommitter* pages) {
  if (rows <= ready_ && held == held_) return {};
  if (ready_ != held_) {
    if (pages->Finish(job_)) {
      ready_ = held_;
    } else {
      Hold(ready_);  // requested again when needed, which is then an error
    }
  }
  const size_t now = pages == nullptr ? held : rows;
  if (now > ready_) {
    const PageCommitter::Work work = RowsOf(ready_, now, used);
    if (pages != nullptr) {
      TIDEMILL_TRY_VOID(pages->Commit(work));
    } else {
      for (size_t part = 0; part < work.parts; ++part)
        TIDEMILL_TRY_VOID(reserved_.Commit(part * work.stride + work.begin, work.end - work.begin));
    }
    ready_ = now;
    Hold(now);
  }
  if (held > held_) {
    pages_ = pages;
    pages->Start(job_, RowsOf(ready_, held, used));
    Hold(held);
  }
  return {};
}

size_t KvBlock::TilesLeft(size_t rows) const {
  return key_tiles_ && HasKeyTiles(dtype_) && rows > transposed_ ? (rows - transposed_) / kKeyTileRows : 0;
}

void KvBlock::TransposeTiles(size_t rows) {
  for (size_t head = 0; head < kv_heads_; ++head) TransposeTilesOf(head, rows);
  EndTranspose(rows);
}

void KvBlock::TransposeTilesOf(size_t head, size_t rows) {
  for (size_t i = 0; i < TilesLeft(rows); ++i)
    TransposeKeys(dtype_, head_dim_, row(false, head, transposed_ + i * kKeyTileRows));
}

void KvBlock::EndTranspose(size_t rows) { transposed_ += TilesLeft(rows) * kKeyTileRows; }

void KvBlock::TransposeBack(size_t rows, size_t used) {
  const size_t stay = rows / kKeyTileRows * kKeyTileRows;
  while (transposed_ > stay) {
    transposed_ -= kKeyTileRows;
    if (transposed_ >= used) continue;  // nothing of it is left
    for (size_t head = 0; head < kv_heads_; ++head) TransposeKeysBack(dtype_, head_dim_, row(false, head, transposed_));
  }
}

void KvBlock::TakeRows(const KvBlock& from, size_t first, size_t rows) {
  transposed_ = from.transposed_ - std::min(from.transposed_, first);
  if (rows == 0) return;
  ForEachHead([&](bool value, size_t head) {
    std::memmove(row(value, head, 0), from.row(value, head, first), rows * RowBytes());
  });
}

void KvBlock::CopyRow(size_t head, size_t from, size_t to) {
  for (const bool value : {false, true}) std::memcpy(row(value, head, to), row(value, head, from), RowBytes());
}

void KvBlock::CopyRows(const KvBlock& from, size_t first, size_t end, size_t to) {
  ForEachHead([&](bool value, size_t head) { (void)from.WriteRows(value, head, first, end, row(value, head, to)); });
}

void KvBlock::AppendRows(bool value, size_t head, size_t first, size_t end, std::vector<std::byte>* out) const {
  const size_t before = out->size();
  out->resize(before + (end - first) * RowBytes());
  (void)WriteRows(value, head, first, end, out->data() + before);
}

std::byte* KvBlock::WriteRows(bool value, size_t head, size_t first, size_t end, std::byte* out) const {
  const auto write = [&](const std::byte* rows, size_t count) {
    std::memcpy(out, rows, count * RowBytes());
    out += count * RowBytes();
  };
  const size_t plain = value ? first : std::clamp(transposed_, first, end);  // from here on none is transposed
  std::vector<std::byte> tile;
  for (size_t at = first; at < plain;) {
    const size_t skip = at % kKeyTileRows, last = std::min(plain, at - skip + kKeyTileRows);
    const std::byte* keys = row(false, head, at - skip);
    tile.assign(keys, keys + kKeyTileRows * RowBytes());
    TransposeKeysBack(dtype_, head_dim_, tile.data());
    write(tile.data() + skip * RowBytes(), last - at);
    at = last;
  }
  if (plain < end) write(row(value, head, plain), end - plain);
  return out;
}

}  // namespace tidemill
