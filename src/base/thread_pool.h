// A small pool of worker threads for data-parallel loops.
//
// A loop is cut into chunks. Every thread takes the next chunk when it has finished one, and the loop ends when all chunks
// are done, not when all threads have arrived. A worker that the system has taken off its core before it took a chunk is
// not waited for. Waiting spins for a moment (the next loop usually follows within microseconds), then sleeps.
#ifndef TIDEMILL_BASE_THREAD_POOL_H_
#define TIDEMILL_BASE_THREAD_POOL_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "tidemill/result.h"

namespace tidemill {

class ThreadPool {
 public:
  static constexpr size_t kMaxThreads = 256;

  // `num_threads` counts the caller: 1 makes no thread. 1..kMaxThreads. If the system gives fewer threads, the pool has fewer.
  // Workers run in the default floating-point environment, whatever the creator's is (ScopedDefaultFloatEnvironment).
  static Result<std::unique_ptr<ThreadPool>> Create(size_t num_threads);

  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  // Those that take part in loops: all, unless fewer are in use.
  size_t num_threads() const { return active_.load(std::memory_order_relaxed); }

  // From the next loop on, `count` threads take part; at least 1, at most all that there are. Not to be called during a loop.
  // The others sleep until they are in use again.
  void Use(size_t count) {
    active_.store(static_cast<uint32_t>(std::clamp<size_t>(count, 1, num_all_threads())), std::memory_order_relaxed);
    active_.notify_all();
  }

  // All that there are, in use or not.
  size_t num_all_threads() const { return workers_.size() + 1; }

  // Calls body(chunk, thread) for every chunk in [0, num_chunks), from several threads; thread is in [0, num_threads()).
  // Returns when all are done. body must not throw. Allocates nothing. One loop at a time: not to be
  // called from a body or from two threads, but for a pool of one thread, which runs a loop where it is called.
  template <typename Body>
  void ParallelFor(size_t num_chunks, const Body& body) {
    if (num_chunks == 0) return;
    if (num_chunks == 1 || num_threads() == 1) {
      for (size_t chunk = 0; chunk < num_chunks; ++chunk) body(chunk, size_t{0});
      return;
    }
    for (size_t first = 0; first < num_chunks; first += kMaxChunks) {
      Run(
          first, std::min(num_chunks - first, kMaxChunks),
          [](const void* b, size_t chunk, size_t thread) { (*static_cast<const Body*>(b))(chunk, thread); }, &body);
    }
  }

 private:
  using Call = void (*)(const void* body, size_t chunk, size_t thread);

  static constexpr size_t kMaxChunks = (size_t{1} << 20) - 1;  // of one ticket

  ThreadPool() = default;
  void Run(size_t first_chunk, size_t num_chunks, Call call, const void* body);
  void WorkUntilTaken(uint64_t generation, size_t thread);
  void WorkerMain(size_t thread);

  // One word holds the loop's generation, its next free chunk and its number of chunks, so that taking a chunk and checking
  // that the loop is still the same one are a single compare-and-swap. call_, body_ and first_chunk_ are stable while one is taken.
  alignas(64) std::atomic<uint64_t> ticket_{0};
  alignas(64) std::atomic<size_t> done_{0};
  alignas(64) std::atomic<uint32_t> wake_{0};  // workers sleep on it; changes with every loop
  std::atomic<uint32_t> sleepers_{0};
  std::atomic<bool> stop_{false};
  std::atomic<uint32_t> active_{1};  // workers that are not in use sleep on it
  size_t first_chunk_ = 0;
  Call call_ = nullptr;
  const void* body_ = nullptr;
  std::vector<std::thread> workers_;
};

// Physical cores within this process's affinity mask and cgroup CPU quota; at least 1.
size_t DefaultThreadCount();

}  // namespace tidemill

#endif  // TIDEMILL_BASE_THREAD_POOL_H_
