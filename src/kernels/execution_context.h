// Where an operation runs: passed to every operation, owned by an engine.
#ifndef TIDEMILL_KERNELS_EXECUTION_CONTEXT_H_
#define TIDEMILL_KERNELS_EXECUTION_CONTEXT_H_

#include <atomic>
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
  struct Latch {
    const std::atomic<bool>* flag = &kNever;  // changes between operations
    std::atomic<bool> abandoned{false};       // stays true while the Interruptible lives, whatever becomes of the flag
  };
  static inline constinit const std::atomic<bool> kNever{false};

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
  // While it lives, `flag` may abandon the work of the calling thread's operations; it may be null. One at a time; not to be made or to end
  // during an operation.
  class Interruptible {
   public:
    Interruptible(ExecutionContext& ctx, const std::atomic<bool>* flag) : latch_(*ctx.latch_) {
      latch_.abandoned.store(false, std::memory_order_relaxed);
      latch_.flag = flag == nullptr ? &kNever : flag;
    }
    ~Interruptible() {
      latch_.abandoned.store(false, std::memory_order_relaxed);
      latch_.flag = &kNever;
    }
    Interruptible(const Interruptible&) = delete;
    Interruptible& operator=(const Interruptible&) = delete;

   private:
    Latch& latch_;
  };
  // Whether the Interruptible's flag was seen to be true: from then on what operations write is arbitrary. Behind each, it says so to the thread
  // that called it.
  bool IsAbandoned() const { return latch_->abandoned.load(std::memory_order_relaxed); }
  // The same after a look at the flag: for the bodies of long loops, from any thread.
  bool Stops() const {
    if (IsAbandoned()) return true;
    if (!latch_->flag->load(std::memory_order_relaxed)) return false;
    latch_->abandoned.store(true, std::memory_order_relaxed);
    return true;
  }
  // As ThreadPool's, without the chunks that are left once the work is abandoned: for loops that take long, whose results are numbers. What moves a
  // state, or makes indices that are followed, runs as a loop of threads().
  template <typename Body>
  void ParallelFor(size_t num_chunks, const Body& body) const {
    threads_->ParallelFor(num_chunks, [&](size_t chunk, size_t thread) {
      if (!Stops()) body(chunk, thread);
    });
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
  ExecutionContext(Isa isa, Tuning tuning, ThreadPool* threads)
      : isa_(isa), tuning_(tuning), threads_(threads), latch_(std::make_unique<Latch>()) {}

  Isa isa_;
  Tuning tuning_;
  ThreadPool* threads_;           // borrowed; outlives us
  std::unique_ptr<Latch> latch_;  // where it is, whoever moves us
  std::vector<AlignedBuffer> scratch_;
  AlignedBuffer shared_;
  std::unique_ptr<ThreadPool> no_workers_;
  std::unique_ptr<ExecutionContext> alone_;
};

}  // namespace tidemill

#endif  // TIDEMILL_KERNELS_EXECUTION_CONTEXT_H_
