#include "state/weight_sums.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/checked_math.h"
#include "base/out_of_memory.h"

namespace tidemill {

std::span<const float> WeightSums::Committed(size_t head) const {
  return {reinterpret_cast<const float*>(committed_.data()) + head * capacity_, length_};
}

std::span<float> WeightSums::OfStep(size_t head, size_t slot, size_t rows) {
  TIDEMILL_CHECK((slot == 0 || slot == staged_[head]) && slot + rows <= capacity_ - length_);
  float* const sums = Of(step_, head * capacity_);
  if (slot == 0) std::copy_n(Of(committed_, head * capacity_), length_, sums);
  std::fill_n(sums + length_ + slot, rows, 0.0F);
  staged_[head] = slot + rows;
  return {sums, length_ + slot + rows};
}

Result<void> WeightSums::Resize(size_t capacity) {
  if (capacity == capacity_) return {};
  AlignedBuffer committed, step;
  if (capacity != 0) {
    size_t bytes = 0;
    if (!CheckedMul<size_t>(capacity, kv_heads() * sizeof(float), &bytes)) return OutOfMemoryError("reserve state");
    TIDEMILL_TRY(first, AlignedBuffer::Create(bytes));
    TIDEMILL_TRY(second, AlignedBuffer::Create(bytes));
    committed = std::move(first);
    step = std::move(second);
  }
  for (size_t head = 0; head < kv_heads() && length_ != 0; ++head)
    std::copy_n(Of(committed_, head * capacity_), length_, Of(committed, head * capacity));
  committed_ = std::move(committed);
  step_ = std::move(step);
  capacity_ = capacity;
  counted_.Set(2 * capacity * kv_heads() * sizeof(float));
  return {};
}

uint64_t WeightSums::GrowthBytes(size_t n) const {
  size_t capacity = 0;
  uint64_t bytes = 0;
  if (HasRoom(n)) return 0;
  const bool fits = CheckedAdd(length_, n, &capacity) && CheckedAlignUp(capacity, kGrowthRows, &capacity) &&
                    CheckedMul<uint64_t>(capacity - capacity_, 2 * kv_heads() * sizeof(float), &bytes);
  return fits ? bytes : UINT64_MAX;
}

Result<void> WeightSums::Reserve(size_t n) {
  if (!HasRoom(n)) {
    if (GrowthBytes(n) == UINT64_MAX) return OutOfMemoryError("reserve state");
    TIDEMILL_TRY_VOID(Resize(RoundUp(length_ + n, kGrowthRows)));
  }
  std::fill(staged_.begin(), staged_.end(), 0);
  return {};
}

bool WeightSums::Commit(size_t n) {
  const size_t rows = staged_.empty() ? 0 : staged_.front();
  for (const size_t staged : staged_) TIDEMILL_CHECK(staged == rows && (rows == 0 || n == 0 || n == rows));
  const bool ran = rows != 0 && n != 0;
  if (ran) {
    std::swap(committed_, step_);
  } else {
    for (size_t head = 0; head < kv_heads() && n != 0; ++head)
      std::fill_n(Of(committed_, head * capacity_ + length_), n, 0.0F);
  }
  length_ += n;
  std::fill(staged_.begin(), staged_.end(), 0);
  return ran;
}

void WeightSums::Rollback(size_t length) {
  length_ = length;
  std::fill(staged_.begin(), staged_.end(), 0);
}

void WeightSums::Clear() {
  Rollback(0);
  committed_ = AlignedBuffer();
  step_ = AlignedBuffer();
  capacity_ = 0;
  counted_.Set(0);
}

Result<void> WeightSums::Copy(const WeightSums& from) {
  TIDEMILL_CHECK(from.kv_heads() == kv_heads());
  Clear();
  TIDEMILL_TRY_VOID(Resize(from.length_));
  for (size_t head = 0; head < kv_heads() && from.length_ != 0; ++head)
    std::ranges::copy(from.Committed(head), Of(committed_, head * capacity_));
  length_ = from.length_;
  return {};
}

void WeightSums::Take(WeightSums&& from) {
  Clear();
  std::swap(committed_, from.committed_);
  std::swap(step_, from.step_);
  std::swap(capacity_, from.capacity_);
  std::swap(length_, from.length_);
  counted_.Set(from.counted_.bytes());
  from.counted_.Set(0);
}

uint64_t WeightSums::CheckpointBytes(size_t kv_heads, size_t length) {
  uint64_t bytes = 0;
  return CheckedMul<uint64_t>(length, kv_heads * sizeof(float), &bytes) ? bytes : UINT64_MAX;
}

void WeightSums::AppendTo(std::vector<std::byte>* out) const {
  for (size_t head = 0; head < kv_heads(); ++head) {
    const auto bytes = std::as_bytes(Committed(head));
    out->insert(out->end(), bytes.begin(), bytes.end());
  }
}

Result<void> WeightSums::ReadFrom(ByteReader& reader, size_t length) {
  TIDEMILL_TRY_VOID(Reserve(length));
  for (size_t head = 0; head < kv_heads() && length != 0; ++head) {
    TIDEMILL_TRY(bytes, reader.Take(length * sizeof(float), "weight sums"));
    std::memcpy(Of(committed_, head * capacity_), bytes.data(), bytes.size());
  }
  length_ = length;
  return {};
}

}  // namespace tidemill
