// Keys and values of one layer and a batch, stored as a policy of growth has it, with the time of each part of a growth told apart: what
// KvLayer does in one go. Blocks come from the system's allocator as it is, from a pool, or from reserved addresses.
//
//   Block:  K [parts / 2, capacity, head_dim] dtype, then V the same       parts / 2 = sequences of the block * kv_heads
#ifndef TIDEMILL_BENCHMARKS_BMC_KV_STORE_H_
#define TIDEMILL_BENCHMARKS_BMC_KV_STORE_H_

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/reserved_memory.h"
#include "base/thread_pool.h"
#include "benchmarks/bmc/cell.h"

namespace tidemill::bmc {

// Blocks that were given back, by size class (powers of two; what is never touched of a block is not resident). Sizes only grow here: when
// a larger class is first asked for, the free ones are smaller than anything to come and go back to the system.
class BlockPool {
 public:
  BlockPool() = default;
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;
  ~BlockPool() { DropFree(); }

  std::byte* Take(size_t bytes);  // uninitialised; throws std::bad_alloc
  void Give(std::byte* block, size_t bytes);

  static size_t ClassBytes(size_t bytes);

 private:
  void DropFree();

  std::multimap<size_t, std::byte*> free_;
};

struct GrowthSeconds {
  double allocate = 0;  // asking for memory, its page faults, zeros where the policy wants them
  double copy = 0;
};

class KvStore {
 public:
  // `cell` and `threads` are borrowed. Padded: one block for all sequences, whose rows are zeros until they are written. Exact: a block for
  // each sequence, whose unused rows nobody touches.
  KvStore(const Cell& cell, ThreadPool* threads);
  KvStore(const KvStore&) = delete;
  KvStore& operator=(const KvStore&) = delete;
  ~KvStore();

  // Room for `capacity` rows, of which the first `rows` are kept. Throws std::bad_alloc.
  GrowthSeconds Grow(size_t rows, size_t capacity);
  // As if the policy had come to `capacity` with `rows` rows, which are zeros, and were to have `next` soon; what was there is gone.
  void Place(size_t rows, size_t capacity, size_t next);
  // Rows [first, end) become zeros.
  void ZeroRows(size_t first, size_t end);

  struct Span {
    std::byte* k = nullptr;
    std::byte* v = nullptr;
    size_t stride = 0;  // rows from head to head
    size_t first = 0;
    size_t rows = 0;  // that it can hold
  };
  // Of sequence b, oldest first. One unless the policy is paged.
  std::vector<Span> Spans(size_t b) const;
  Span LastSpan(size_t b) const;
  size_t capacity() const { return capacity_; }

 private:
  struct Block {
    std::byte* data = nullptr;
    size_t bytes = 0;
    ReservedMemory reserved;
    size_t first = 0;  // row of the sequence that its row 0 is
    size_t rows = 0;   // stride
    size_t ready = 0;  // of them, those that can be written
  };

  size_t parts() const { return 2 * kv_heads_per_block_; }
  Span SpanOf(const Block& block, size_t b) const;
  Block MakeBlock(size_t first, size_t rows, size_t kept, size_t ready);
  void Commit(Block& block, size_t ready) const;
  void Free(Block& block);
  void Clear();
  void Touch(const Block& block, size_t kept) const;

  const Cell& cell_;
  ThreadPool& threads_;
  bool zero_unused_;
  size_t row_bytes_;
  size_t kv_heads_per_block_;
  BlockPool pool_;
  std::vector<std::vector<Block>> blocks_;  // of each sequence; one list where they share a block
  size_t capacity_ = 0;
};

}  // namespace tidemill::bmc

#endif  // TIDEMILL_BENCHMARKS_BMC_KV_STORE_H_
