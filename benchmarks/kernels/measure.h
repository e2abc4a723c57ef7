// What every C++ benchmark shares: the level it runs at, and the Cost formula's numbers as rates.
//
// A loop that reads "from memory" goes round copies of its input that together exceed the last cache. Time is the thread's CPU
// time; on a machine with neighbours the smallest of many repetitions says most, so that it is among the statistics:
//   kernels_benchmark --benchmark_filter=MatMul --benchmark_repetitions=20 --benchmark_report_aggregates_only=true
// TIDEMILL_ISA=avx2 runs a lower level. TIDEMILL_LIMITS="31.5,467,117,234" names this machine's GB/s, then int8, f32 and BF16 Gop/s of one
// thread; the share of the limit that binds is printed then. Without the last, products of BF16 have none.
#ifndef TIDEMILL_BENCHMARKS_KERNELS_MEASURE_H_
#define TIDEMILL_BENCHMARKS_KERNELS_MEASURE_H_

#include <benchmark/benchmark.h>

#include <cstddef>
#include <memory>

#include "base/isa.h"
#include "base/thread_pool.h"
#include "kernels/cost.h"
#include "kernels/execution_context.h"

namespace tidemill::benchmarks {

inline constexpr size_t kColdBytes = size_t{512} << 20;  // a Zen 5 keeps a third of 96 MiB in its last cache of 32

Isa Level();

// One thread at Level().
struct OneThread {
  std::unique_ptr<ThreadPool> threads = ThreadPool::Create(1).value();
  ExecutionContext context = ExecutionContext::Create(Level(), threads.get(), size_t{8} << 20).value();
};

// Rates GB/s and Gop/s of `cost` per iteration, and "limit": the share of the bound that TIDEMILL_LIMITS gives.
// `from_memory`: bytes count as a bound.
void Report(benchmark::State& state, const Cost& cost, bool from_memory);

// The registered benchmark with what all of them want: the minimum among the statistics, microseconds.
void Configure(benchmark::internal::Benchmark* benchmark);

}  // namespace tidemill::benchmarks

#endif  // TIDEMILL_BENCHMARKS_KERNELS_MEASURE_H_
