// How much each position of a context was attended to so far, of one layer: what eviction by weight keeps and drops by.    arXiv:2306.14048
//
//   sums : [kv_heads, positions] f32      kEvicted of kernels/heavy_hitters.h: the position was evicted
//
// They depend on queries, so they are saved and copied, and cannot go back. A step works on a copy, so that it may be repeated or abandoned.
#ifndef TIDEMILL_STATE_WEIGHT_SUMS_H_
#define TIDEMILL_STATE_WEIGHT_SUMS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/byte_reader.h"
#include "kernels/heavy_hitters.h"
#include "state/state_ledger.h"
#include "tidemill/result.h"

namespace tidemill {

class WeightSums {
 public:
  static constexpr size_t kGrowthRows = 256;

  WeightSums(size_t kv_heads, StateLedger* ledger) : staged_(kv_heads), counted_(ledger) {}

  size_t kv_heads() const { return staged_.size(); }
  size_t length() const { return length_; }             // committed positions
  std::span<const float> Committed(size_t head) const;  // [length]

  // For a cell of the step's rows [slot, slot + rows): sums of positions [0, length + slot + rows), to be changed. New positions begin at 0.
  // Slot 0 begins the step, again too; other cells go on from the one before. Heads may run at the same time.
  std::span<float> OfStep(size_t head, size_t slot, size_t rows);

  bool HasRoom(size_t n) const { return n <= capacity_ - length_; }
  // Room for a step of n rows, which begins. kOutOfMemory; then nothing has changed.
  Result<void> Reserve(size_t n);
  uint64_t GrowthBytes(size_t n) const;  // what Reserve adds; UINT64_MAX: overflow
  uint64_t bytes() const { return counted_.bytes(); }
  // What the step made of its first n rows, all that cells ran or none: then new positions have 0. Returns whether cells ran.
  bool Commit(size_t n);

  void Rollback(size_t length);  // of what no cell ran
  void Clear();
  Result<void> Compact() { return Resize(length_); }
  Result<void> Copy(const WeightSums& from);  // of as many heads. kOutOfMemory
  void Take(WeightSums&& from);               // the same; `from` is empty then

  static uint64_t CheckpointBytes(size_t kv_heads, size_t length);  // UINT64_MAX: overflow
  void AppendTo(std::vector<std::byte>* out) const;                 // [kv_heads, length]
  Result<void> ReadFrom(ByteReader& reader, size_t length);         // into an empty one

 private:
  Result<void> Resize(size_t capacity);
  static float* Of(AlignedBuffer& sums, size_t at) { return reinterpret_cast<float*>(sums.data()) + at; }

  AlignedBuffer committed_, step_;  // [kv_heads, capacity]
  size_t capacity_ = 0, length_ = 0;
  std::vector<size_t> staged_;  // [kv_heads] the step's rows that cells ran
  LedgerEntry counted_;
};

}  // namespace tidemill

#endif  // TIDEMILL_STATE_WEIGHT_SUMS_H_
