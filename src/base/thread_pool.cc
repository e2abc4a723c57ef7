#include "base/thread_pool.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cfenv>
#include <cstdio>
#include <fstream>
#include <set>
#include <string>
#include <system_error>
#include <utility>

#include "base/cgroup.h"
#include "base/check.h"

namespace tidemill {
namespace {

constexpr int kChunkBits = 20;
constexpr uint64_t kChunkMask = (uint64_t{1} << kChunkBits) - 1;
constexpr int kGenerationShift = 2 * kChunkBits;
constexpr uint64_t kGenerationMask = (uint64_t{1} << (64 - kGenerationShift)) - 1;

constexpr uint64_t MakeTicket(uint64_t generation, uint64_t next, uint64_t count) {
  return (generation << kGenerationShift) | (count << kChunkBits) | next;
}

// About 20 microseconds: longer than the gap between two operations of a step, far shorter than a scheduler's time slice.
constexpr int kSpins = 2000;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

Result<std::unique_ptr<ThreadPool>> ThreadPool::Create(size_t num_threads) {
  if (num_threads == 0 || num_threads > kMaxThreads) {
    return Error(ErrorCode::kInvalidArgument, "start threads: expected 1 to " + std::to_string(kMaxThreads) + ", got " +
                                                  std::to_string(num_threads));
  }
  std::unique_ptr<ThreadPool> pool(new ThreadPool);
  pool->workers_.reserve(num_threads - 1);
  for (size_t thread = 1; thread < num_threads; ++thread) {
    try {
      pool->workers_.emplace_back([p = pool.get(), thread] { p->WorkerMain(thread); });
    } catch (const std::system_error&) {
      break;  // the system has no more threads: go on with those there are
    }
  }
  pool->Use(num_threads);
  return pool;
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  active_.store(kMaxThreads);
  active_.notify_all();
  wake_.fetch_add(1);
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::Run(size_t first_chunk, size_t num_chunks, Call call, const void* body) {
  const uint64_t generation = ((ticket_.load(std::memory_order_relaxed) >> kGenerationShift) + 1) & kGenerationMask;
  first_chunk_ = first_chunk;
  call_ = call;
  body_ = body;
  done_.store(0, std::memory_order_relaxed);
  ticket_.store(MakeTicket(generation, 0, num_chunks), std::memory_order_release);
  wake_.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) != 0) wake_.notify_all();
  WorkUntilTaken(generation, 0);
  for (int spin = 0; spin < kSpins; ++spin) {
    if (done_.load(std::memory_order_acquire) == num_chunks) return;
    Pause();
  }
  for (size_t done = done_.load(std::memory_order_acquire); done != num_chunks;
       done = done_.load(std::memory_order_acquire)) {
    done_.wait(done, std::memory_order_acquire);
  }
}

void ThreadPool::WorkUntilTaken(uint64_t generation, size_t thread) {
  uint64_t ticket = ticket_.load(std::memory_order_acquire);
  while ((ticket >> kGenerationShift) == generation) {
    const uint64_t next = ticket & kChunkMask;
    const uint64_t count = (ticket >> kChunkBits) & kChunkMask;
    if (next >= count) return;
    if (!ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel, std::memory_order_acquire))
      continue;
    call_(body_, first_chunk_ + static_cast<size_t>(next), thread);
    // After the last increment the caller may start another loop or destroy the body: nothing of this one is used below.
    if (done_.fetch_add(1, std::memory_order_acq_rel) + 1 == count && thread != 0) done_.notify_one();
    ticket = ticket_.load(std::memory_order_acquire);
  }
}

void ThreadPool::WorkerMain(size_t thread) {
  std::fesetenv(FE_DFL_ENV);
  uint32_t seen = 0;
  for (;;) {
    for (uint32_t active = active_.load(); thread >= active; active = active_.load()) active_.wait(active);
    uint32_t now = wake_.load(std::memory_order_seq_cst);
    for (int spin = 0; now == seen && spin < kSpins; ++spin) {
      Pause();
      now = wake_.load(std::memory_order_seq_cst);
    }
    while (now == seen) {
      sleepers_.fetch_add(1, std::memory_order_seq_cst);
      wake_.wait(seen, std::memory_order_seq_cst);
      sleepers_.fetch_sub(1, std::memory_order_seq_cst);
      now = wake_.load(std::memory_order_seq_cst);
    }
    seen = now;
    if (stop_.load()) return;
    const uint64_t ticket = ticket_.load(std::memory_order_acquire);
    // Behind the ticket: a worker that sees a loop sees how many threads are in use for it.
    if (thread < active_.load(std::memory_order_relaxed)) WorkUntilTaken(ticket >> kGenerationShift, thread);
  }
}

namespace {

// Cores, not hardware threads: siblings of one core appear once. Empty where the system does not say.
size_t PhysicalCoresOf(const cpu_set_t& affinity) {
  std::set<std::string> cores;
  size_t cpus = 0;
  for (size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &affinity)) continue;
    ++cpus;
    std::ifstream siblings("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list");
    std::string line;
    if (std::getline(siblings, line)) cores.insert(line);
  }
  return cores.empty() ? cpus : cores.size();
}

}  // namespace

size_t DefaultThreadCount() {
  size_t threads = std::max(1U, std::thread::hardware_concurrency());
  cpu_set_t affinity;
  CPU_ZERO(&affinity);
  if (sched_getaffinity(0, sizeof(affinity), &affinity) == 0) threads = std::max<size_t>(1, PhysicalCoresOf(affinity));
  if (const size_t quota = CgroupCpuQuota(); quota != 0) threads = std::min(threads, quota);
  return std::min(threads, ThreadPool::kMaxThreads);
}

}  // namespace tidemill
