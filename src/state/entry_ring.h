// Rings of rows that a linear layer keeps: the entries after its state, and the inputs of its convolution.
#ifndef TIDEMILL_STATE_ENTRY_RING_H_
#define TIDEMILL_STATE_ENTRY_RING_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/byte_reader.h"
#include "tidemill/result.h"

namespace tidemill {

// Row i stands in place (first() + i) % capacity(), of each of some parts: a head's u, say. Rows of a part stand side by side.
class RowRing {
 public:
  struct Part {
    size_t count = 0;  // of such parts: heads
    size_t row_bytes = 0;
  };

  explicit RowRing(std::vector<Part> parts) : parts_(std::move(parts)) {}

  size_t capacity() const { return capacity_; }
  size_t first() const { return first_; }
  uint64_t row_bytes() const {
    uint64_t bytes = 0;
    for (const Part& part : parts_) bytes += part.count * part.row_bytes;
    return bytes;
  }
  uint64_t bytes() const { return memory_.size(); }
  // Of a ring of so many rows; UINT64_MAX: overflow.
  uint64_t BytesOf(size_t capacity) const;

  // Row i of member `index` of part number `part`.
  std::byte* Row(size_t part, size_t index, size_t i) { return Part0(part, index) + Place(i) * parts_[part].row_bytes; }
  const std::byte* Row(size_t part, size_t index, size_t i) const {
    return const_cast<RowRing*>(this)->Row(part, index, i);
  }
  std::byte* Part0(size_t part, size_t index) {  // the row in place 0
    return memory_.data() + Offset(part, index, capacity_);
  }
  size_t Place(size_t i) const { return (first_ + i) % capacity_; }

  void Drop(size_t rows) { first_ = capacity_ == 0 ? 0 : (first_ + rows) % capacity_; }
  // Row `from` goes where row `to` stands, in all parts or in one member.
  void Move(size_t part, size_t index, size_t from, size_t to);
  void Move(size_t from, size_t to);

  // Another capacity; the first `rows` rows stay. kOutOfMemory leaves it unchanged.
  Result<void> Resize(size_t capacity, size_t rows);
  // The first `rows` rows of another one of the same parts. kOutOfMemory leaves it unchanged.
  Result<void> Copy(const RowRing& other, size_t rows, size_t capacity);
  void Clear() {
    memory_ = {};
    capacity_ = first_ = 0;
  }

  // Rows [begin, end): of each row all parts.
  void AppendTo(std::vector<std::byte>* out, size_t begin, size_t end) const;
  Result<void> ReadFrom(ByteReader& reader, size_t rows);  // into rows [0, rows)

 private:
  size_t Offset(size_t part, size_t index, size_t capacity) const;  // of a member's place 0
  // Memory of `capacity` places, of which the first have the first `rows` rows.
  Result<AlignedBuffer> Copied(size_t rows, size_t capacity) const;

  std::vector<Part> parts_;
  AlignedBuffer memory_;
  size_t capacity_ = 0, first_ = 0;
};

}  // namespace tidemill

#endif  // TIDEMILL_STATE_ENTRY_RING_H_
