#include "state/entry_ring.h"

#include <cstring>

#include "base/check.h"
#include "base/checked_math.h"

namespace tidemill {

namespace {
constexpr size_t kAlignment = AlignedBuffer::kAlignment;
}  // namespace

uint64_t RowRing::BytesOf(size_t capacity) const {
  uint64_t bytes = 0;
  for (const Part& part : parts_) {
    uint64_t all = 0;
    if (!CheckedMul<uint64_t>(capacity, part.count * part.row_bytes, &all) || !CheckedAdd(all, kAlignment, &all) ||
        !CheckedAdd(bytes, all / kAlignment * kAlignment, &bytes)) {
      return UINT64_MAX;
    }
  }
  return capacity == 0 ? 0 : bytes;
}

size_t RowRing::Offset(size_t part, size_t index, size_t capacity) const {
  size_t at = 0;
  for (size_t i = 0; i < part; ++i) {
    const size_t bytes = capacity * parts_[i].count * parts_[i].row_bytes;
    at += (bytes + kAlignment) / kAlignment * kAlignment;
  }
  return at + index * capacity * parts_[part].row_bytes;
}

void RowRing::Move(size_t part, size_t index, size_t from, size_t to) {
  std::memmove(Row(part, index, to), Row(part, index, from), parts_[part].row_bytes);  // may be one row
}

void RowRing::Move(size_t from, size_t to) {
  for (size_t part = 0; part < parts_.size(); ++part) {
    for (size_t index = 0; index < parts_[part].count; ++index) Move(part, index, from, to);
  }
}

Result<AlignedBuffer> RowRing::Copied(size_t rows, size_t capacity) const {
  TIDEMILL_CHECK(rows <= capacity);
  const uint64_t bytes = BytesOf(capacity);
  if (bytes == UINT64_MAX) return Error(ErrorCode::kOutOfMemory, "more rows than any memory holds");
  if (bytes == 0) return AlignedBuffer();
  TIDEMILL_TRY(memory, AlignedBuffer::Create(bytes));
  for (size_t part = 0; part < parts_.size(); ++part) {
    const size_t row_bytes = parts_[part].row_bytes;
    for (size_t index = 0; index < parts_[part].count; ++index) {
      std::byte* const to = memory.data() + Offset(part, index, capacity);
      for (size_t i = 0; i < rows; ++i) std::memcpy(to + i * row_bytes, Row(part, index, i), row_bytes);
    }
  }
  return memory;
}

Result<void> RowRing::Resize(size_t capacity, size_t rows) { return Copy(*this, rows, capacity); }

Result<void> RowRing::Copy(const RowRing& other, size_t rows, size_t capacity) {
  TIDEMILL_TRY(memory, other.Copied(rows, capacity));
  memory_ = std::move(memory);
  capacity_ = capacity;
  first_ = 0;
  return {};
}

void RowRing::AppendTo(std::vector<std::byte>* out, size_t begin, size_t end) const {
  for (size_t i = begin; i < end; ++i) {
    for (size_t part = 0; part < parts_.size(); ++part) {
      for (size_t index = 0; index < parts_[part].count; ++index) {
        const std::byte* row = Row(part, index, i);
        out->insert(out->end(), row, row + parts_[part].row_bytes);
      }
    }
  }
}

Result<void> RowRing::ReadFrom(ByteReader& reader, size_t rows) {
  for (size_t i = 0; i < rows; ++i) {
    for (size_t part = 0; part < parts_.size(); ++part) {
      for (size_t index = 0; index < parts_[part].count; ++index) {
        TIDEMILL_TRY(row, reader.Take(parts_[part].row_bytes, "rows of a linear layer"));
        std::memcpy(Row(part, index, i), row.data(), row.size());
      }
    }
  }
  return {};
}

}  // namespace tidemill
