// Where an operation runs: passed to every operation, owned by an engine.
#ifndef TIDEMILL_KERNELS_EXECUTION_CONTEXT_H_
#define TIDEMILL_KERNELS_EXECUTION_CONTEXT_H_

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/check.h"
#include "base/isa.h"
#include "base/thread_pool.h"
#include "tidemill/result.h"

namespace tidemill {

class ExecutionContext {
 public:
  // `scratch_bytes_per_thread`: what the operations to come need at most (their ...ScratchBytes functions say).
  static Result<ExecutionContext> Create(Isa isa, ThreadPool* threads, size_t scratch_bytes_per_thread,
                                         Tuning tuning = DetectTuning()) {
    ExecutionContext context(isa, tuning, threads);
    for (size_t i = 0; i < threads->num_all_threads(); ++i) {
      TIDEMILL_TRY(buffer, AlignedBuffer::Create(scratch_bytes_per_thread));
      context.scratch_.push_back(std::move(buffer));
    }
    TIDEMILL_TRY(shared, AlignedBuffer::Create(kSharedScratchBytes));
    context.shared_ = std::move(shared);
    TIDEMILL_TRY(no_workers, ThreadPool::Create(1));
    context.no_workers_ = std::move(no_workers);
    context.alone_.reset(new ExecutionContext(isa, tuning, context.no_workers_.get()));
    return context;
  }

  // For results that one loop of an operation leaves to its next loop.
  static constexpr size_t kSharedScratchBytes = size_t{4} << 20;

  Isa isa() const { return isa_; }
  Tuning tuning() const { return tuning_; }
  ThreadPool& threads() const { return *threads_; }
  // For operations within a loop's body: theirs run in the calling thread, and any number of threads may. It has no scratch: not
  // for MatMul or Attention.
  ExecutionContext& alone() { return alone_ == nullptr ? *this : *alone_; }
  // Uninitialised memory of one thread, 64-byte aligned; valid until that thread's next operation.
  std::span<std::byte> scratch(size_t thread) {
    TIDEMILL_DCHECK(thread < scratch_.size());
    return {scratch_[thread].data(), scratch_[thread].size()};
  }
  // At least `bytes` of shared scratch from now on, never fewer than before. Not to be called during an operation, whose memory it replaces.
  Result<void> ReserveShared(size_t bytes) {
    if (bytes <= shared_.size()) return {};
    TIDEMILL_TRY(larger, AlignedBuffer::Create(bytes));
    shared_ = std::move(larger);
    return {};
  }
  // Uninitialised memory of the operation as a whole, 64-byte aligned; valid until the next operation.
  std::span<std::byte> shared_scratch() { return {shared_.data(), shared_.size()}; }

 private:
  ExecutionContext(Isa isa, Tuning tuning, ThreadPool* threads) : isa_(isa), tuning_(tuning), threads_(threads) {}

  Isa isa_;
  Tuning tuning_;
  ThreadPool* threads_;  // borrowed; outlives us
  std::vector<AlignedBuffer> scratch_;
  AlignedBuffer shared_;
  std::unique_ptr<ThreadPool> no_workers_;
  std::unique_ptr<ExecutionContext> alone_;
};

}  // namespace tidemill

#endif  // TIDEMILL_KERNELS_EXECUTION_CONTEXT_H_
