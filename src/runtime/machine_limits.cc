#include "tidemill/measure.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <span>
#include <thread>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/available_memory.h"
#include "base/check.h"
#include "base/seconds_of.h"
#include "kernels/machine_peak.h"
#include "runtime/engine_impl.h"

namespace tidemill {
namespace {

// Many times a last-level cache: one of 32 MiB keeps a third of 96 MiB that are read round and round (a Zen 5: 59 GB/s, of 512 MiB 42).
// Little of it is read at once: a short read is disturbed less often.
constexpr size_t kReadBytes = size_t{512} << 20;
constexpr size_t kReadBytesPerThread = size_t{96} << 20;  // at least
constexpr size_t kPartBytes = size_t{16} << 20;           // of a thread, at once

size_t ReadBytes(size_t threads) {
  const size_t wanted = std::max(kReadBytes, kReadBytesPerThread * threads);
  const uint64_t available = AvailableMemory().value_or(4 * wanted) / 4;
  return std::clamp<size_t>(available, kPartBytes * threads, wanted) / threads * threads;
}
// A noisy neighbour takes a core for milliseconds. Short enough also that a clock lowered by wide vectors stays low while it is measured
// after them.
constexpr double kShortestSeconds = 300e-6;
// Of one limit. A noisy neighbour that has a core for a tenth of a second disturbs every round in it.
constexpr double kFewestSeconds = 0.2;
constexpr double kMaxSeconds = 0.8;
constexpr int kFewestRounds = 12;
constexpr size_t kFewestQuiet = 5;
constexpr double kQuiet = 0.95;                          // of the time, each thread was on a core
constexpr double kGoodAgreement = kMaxDisagreement / 2;  // more rounds may still raise the lower of the two

// Smallest power of two for which work(count) takes kShortestSeconds, three times: a noisy neighbour makes anything long once.
template <typename Work>
size_t LongEnough(const Work& work) {
  size_t count = 1;
  const auto seconds = [&] { return SecondsOf([&] { work(count); }); };
  while (std::min({seconds(), seconds(), seconds()}) < kShortestSeconds && count < size_t{1} << 40) count *= 2;
  return count;
}

double ThreadCpuSeconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

struct Sample {
  double rate = 0;
  bool quiet = false;
};

// Raises both rates to the best of some rounds. run(shape): one measurement. after(): called after each round.
template <typename Run, typename After>
void Raise(LimitRate& rate, const Run& run, const After& after) {
  double seconds = 0;
  size_t quiet_first = 0, quiet_second = 0;
  for (int round = 1; seconds < kMaxSeconds || round <= kFewestRounds; ++round) {
    seconds += SecondsOf([&] {
      const Sample first = run(PeakShape::kFirst), second = run(PeakShape::kSecond);
      rate.first = std::max(rate.first, first.rate);
      rate.second = std::max(rate.second, second.rate);
      if (first.quiet) ++quiet_first;
      if (second.quiet) ++quiet_second;
      after();
    });
    if (seconds >= kFewestSeconds && round >= kFewestRounds && std::min(quiet_first, quiet_second) >= kFewestQuiet &&
        rate.disagreement() <= kGoodAgreement) {
      break;
    }
  }
  rate.quiet_rounds += std::min(quiet_first, quiet_second);
}

// `threads` of the pool's threads at work at once.
class Team {
 public:
  Team(ThreadPool& pool, size_t threads)
      : pool_(pool), turns_(threads), patience_(threads <= 2 * DefaultThreadCount() ? 3 : 0) {}

  // work(i) for each thread, which returns how much it did. In 1e9 a second, of all together, from the first start to the last end.
  template <typename Work>
  Sample Run(const Work& work) {
    std::atomic<size_t> waiting{0};
    pool_.ParallelFor(turns_.size(), [&](size_t i, size_t) {
      // All arrive before one starts: else the first could do the work of both before a sleeper wakes. None waits for ever, since the
      // pool has as many threads and a waiting one takes no second chunk.
      if (waiting.fetch_add(1) + 1 == turns_.size()) waiting.notify_all();
      const auto patience = Clock::now() + patience_;
      for (size_t there = waiting.load(); there < turns_.size(); there = waiting.load()) {
        if (Clock::now() > patience) waiting.wait(there);
      }
      Turn& turn = turns_[i];
      turn.start = Clock::now();
      const double cpu = ThreadCpuSeconds();
      turn.done = work(i);
      turn.cpu_seconds = ThreadCpuSeconds() - cpu;
      turn.end = Clock::now();
    });
    double done = 0;
    Turn all = turns_.front();
    for (const Turn& turn : turns_) {
      done += turn.done;
      all.start = std::min(all.start, turn.start);
      all.end = std::max(all.end, turn.end);
      all.cpu_seconds = std::min(all.cpu_seconds, turn.cpu_seconds);
    }
    const double seconds = std::chrono::duration<double>(all.end - all.start).count();
    return {.rate = done / seconds * 1e-9, .quiet = all.cpu_seconds >= kQuiet * seconds};
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Turn {
    Clock::time_point start, end;
    double done = 0, cpu_seconds = 0;
  };

  ThreadPool& pool_;
  std::vector<Turn> turns_;
  // A thread that yields its core while it waits is late when the others start. With two threads a core, one that keeps it delays the
  // others, and they cannot start together.
  std::chrono::milliseconds patience_;
};

// Reads `memory`, cut into a slice for each thread and each slice into `parts`, one part after the other.
class Reader {
 public:
  Reader(Isa isa, std::span<const std::byte> memory, size_t threads, size_t parts)
      : isa_(isa),
        words_(reinterpret_cast<const unsigned long long*>(memory.data())),
        part_words_(memory.size() / threads / parts / sizeof(unsigned long long)),
        parts_(parts),
        sums_(threads) {}

  Sample Run(Team& team, PeakShape shape) {
    next_ = (next_ + 1) % parts_;
    const size_t times = times_;
    return team.Run([&](size_t thread) {
      for (size_t i = 0; i < times; ++i) {
        const unsigned long long* part = words_ + (thread * parts_ + next_) * part_words_;
        sums_[thread] += ReadMemory(isa_, shape, part, part_words_);
      }
      return static_cast<double>(times * part_words_ * sizeof(unsigned long long));
    });
  }
  // From now on one part, as often as a measurement needs. One of several parts would be read again from a cache: parts of 16 MiB, some
  // read twice, came at 50 to 65 GB/s to one thread of a Zen 5 whose memory gave it 26.
  void Repeat() {
    TIDEMILL_CHECK(parts_ == 1);
    times_ = LongEnough([&](size_t times) {
      for (size_t i = 0; i < times; ++i) sums_[0] += ReadMemory(isa_, PeakShape::kFirst, words_, part_words_);
    });
  }

 private:
  Isa isa_;
  const unsigned long long* words_;
  size_t part_words_, parts_;
  size_t next_ = 0, times_ = 1;
  std::vector<unsigned long long> sums_;
};

void RaiseArithmetic(Isa isa, Team& team, bool alone, PeakRun (*peak)(Isa, PeakShape, size_t), LimitRate& rate) {
  std::array<size_t, 2> rounds;
  for (const PeakShape shape : {PeakShape::kFirst, PeakShape::kSecond}) {
    rounds[static_cast<size_t>(shape)] = LongEnough([&](size_t count) { peak(isa, shape, count); });
  }
  if (alone) {
    const PeakRun one = peak(isa, PeakShape::kFirst, 1);  // both shapes consist of the same instruction
    rate.instructions_per_op = one.instructions / one.operations;
  }
  const size_t clock_rounds = LongEnough([](size_t count) { RunClock(count); });
  Raise(
      rate,
      [&](PeakShape shape) {
        const size_t count = rounds[static_cast<size_t>(shape)];
        return team.Run([&](size_t) { return peak(isa, shape, count).operations; });
      },
      [&] {
        if (rate.instructions_per_op == 0) return;
        double cycles = 0;
        const double seconds = SecondsOf([&] { cycles = RunClock(clock_rounds); });
        rate.clock_ghz = std::max(rate.clock_ghz, cycles / seconds * 1e-9);
      });
}

void RaiseSet(Isa isa, ThreadPool& pool, std::span<const std::byte> memory, size_t threads, WhichLimits which,
              LimitSet& limits) {
  limits.threads = threads;
  limits.read_bytes = static_cast<double>(memory.size());
  Team team(pool, threads);
  for (const Limit limit : kLimits) {
    LimitRate& rate = limits.of(limit);
    if (which == WhichLimits::kUnknown && CheckLimit(limit, threads, rate).ok()) continue;
    if (limit == Limit::kRead) {
      Reader reader(isa, memory, threads, std::max<size_t>(1, memory.size() / threads / kPartBytes));
      Raise(
          rate, [&](PeakShape shape) { return reader.Run(team, shape); }, [] {});
    } else {
      const auto peak = limit == Limit::kInt8       ? RunInt8Peak
                        : limit == Limit::kBFloat16 ? RunBFloat16Peak
                                                    : RunFloatPeak;
      rate.absent = limit == Limit::kBFloat16 && !HasBFloat16Products(isa);
      if (!rate.absent) RaiseArithmetic(isa, team, threads == 1, peak, rate);
    }
  }
}

// About `bytes` in equal shares, none so small that the calls count.
size_t ThreadsBytes(double bytes, size_t threads) {
  constexpr size_t kFewestBytes = size_t{64} << 10;
  return std::max(static_cast<size_t>(bytes / static_cast<double>(threads)), kFewestBytes) * threads;
}

Result<AlignedBuffer> Filled(size_t bytes) {
  BufferArena arena;  // read as weights are: else rates exceed 100 % of this limit
  Result<AlignedBuffer> memory = arena.Allocate(bytes);
  if (!memory.ok()) return std::move(memory).error().WithContext("measure the machine's limits");
  std::memset(memory->data(), 1, memory->size());
  return memory;
}

}  // namespace

Result<void> MeasureLimits(Engine& engine, WhichLimits which, MachineLimits& limits) {
  Engine::Impl& impl = engine.impl();
  const size_t threads = impl.threads->num_threads();
  TIDEMILL_TRY(memory, Filled(ReadBytes(threads)));
  const std::span<const std::byte> bytes(memory.data(), memory.size());
  RaiseSet(impl.isa, *impl.threads, bytes, 1, which, limits.one);
  if (threads == 1) {
    limits.all = limits.one;
  } else {
    RaiseSet(impl.isa, *impl.threads, bytes, threads, which, limits.all);
  }
  return {};
}

Result<void> RaiseReadLimit(Engine& engine, double bytes, LimitSet& limits) {
  Engine::Impl& impl = engine.impl();
  TIDEMILL_TRY(memory, Filled(ThreadsBytes(bytes, limits.threads)));
  Team team(*impl.threads, limits.threads);
  Reader reader(impl.isa, {memory.data(), memory.size()}, limits.threads, 1);
  reader.Repeat();
  LimitRate rate;
  Raise(
      rate, [&](PeakShape shape) { return reader.Run(team, shape); }, [] {});
  LimitRate& read = limits.of(Limit::kRead);
  if (rate.best() > read.best()) read = rate;
  return {};
}

Result<double> ReadRateNow(Engine& engine, double bytes, size_t threads) {
  Engine::Impl& impl = engine.impl();
  const size_t most = impl.threads->num_threads();
  threads = threads == 0 ? most : std::min(threads, most);
  TIDEMILL_TRY(memory, Filled(std::min(ThreadsBytes(bytes, threads), ReadBytes(threads))));
  Team team(*impl.threads, threads);
  // The first shape only: a loop that turns round at the end finds its last reads in a cache. In parts, since two streams 256 MiB apart
  // come at 21 GB/s and those of 16 MiB at 31 (a Zen 4, one thread).
  const size_t parts = std::max<size_t>(1, memory.size() / threads / kPartBytes);
  Reader reader(impl.isa, {memory.data(), memory.size()}, threads, parts);
  if (parts == 1) reader.Repeat();
  double sum = 0, seconds = 0;  // each round reads as much
  size_t rounds = 0;
  for (; seconds < kFewestSeconds; ++rounds) {
    seconds += SecondsOf([&] { sum += 1 / reader.Run(team, PeakShape::kFirst).rate; });
  }
  return static_cast<double>(rounds) / sum;
}

}  // namespace tidemill
