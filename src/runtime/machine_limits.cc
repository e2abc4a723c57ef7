#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/aligned_buffer.h"
#include "kernels/machine_peak.h"
#include "runtime/engine_impl.h"
#include "tidemill/measure.h"

namespace tidemill {
namespace {

constexpr int kRounds = 5;  // the best counts: neighbours only ever take away

// Best rate of `work` (which returns how much it did) over all threads, per second.
template <typename Work>
double BestRate(ThreadPool& threads, const Work& work) {
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    const size_t chunks = threads.num_threads();
    std::vector<double> done(chunks);
    const auto start = std::chrono::steady_clock::now();
    threads.ParallelFor(chunks, [&](size_t chunk, size_t) { done[chunk] = work(chunk); });
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    double total = 0;
    for (const double d : done) total += d;
    best = std::max(best, total / seconds);
  }
  return best;
}

}  // namespace

Result<MachineLimits> MeasureLimits(Engine& engine) {
  Engine::Impl& impl = engine.impl();
  const Isa isa = impl.isa;
  ThreadPool& threads = *impl.threads;
  // Four times a large last-level cache in all, so that nothing is found there again.
  constexpr size_t kBytesPerThread = size_t{96} << 20;
  BufferArena arena;  // read as weights are: else shares of this limit exceed 100 %
  TIDEMILL_TRY(memory, arena.Allocate(kBytesPerThread * threads.num_threads()));
  std::memset(memory.data(), 1, memory.size());
  const size_t words = kBytesPerThread / sizeof(unsigned long long);
  const auto* data = reinterpret_cast<const unsigned long long*>(memory.data());
  volatile unsigned long long sink = 0;
  MachineLimits limits;
  limits.read_gb_per_s = 1e-9 * BestRate(threads, [&](size_t chunk) {
                           sink = ReadMemory(isa, PeakShape::kFirst, data + chunk * words, words);
                           return static_cast<double>(kBytesPerThread);
                         });
  constexpr size_t kPeakIterations = 1'000'000;
  limits.f32_gflops = 1e-9 * BestRate(threads, [&](size_t) {
                        return RunFloatPeak(isa, PeakShape::kFirst, kPeakIterations).operations;
                      });
  limits.int8_gops =
      1e-9 * BestRate(threads, [&](size_t) { return RunInt8Peak(isa, PeakShape::kFirst, kPeakIterations).operations; });
  return limits;
}

}  // namespace tidemill
