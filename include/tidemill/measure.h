// Measurements: what the machine can do at most, the perplexity of a text, the speed of prefill and decode.
#ifndef TIDEMILL_MEASURE_H_
#define TIDEMILL_MEASURE_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tidemill/engine.h"
#include "tidemill/result.h"

namespace tidemill {

// ---- the limits of the machine, and how far a figure comes to them ----
//
// Each limit is measured by two loops of different shapes, with one thread and with all of the engine's. What counts is the best of
// many short measurements of either: neighbours only ever take away. A limit is known when every thread kept its core in a round of
// them and its two loops agree within kMaxDisagreement. A loop of one kind of instruction must also run a whole number of them in a
// cycle (or one in a whole number of cycles) within the same margin, by a clock that is measured, too. A share of more than
// 100 % says that a limit was measured too low. Limits only rise: measuring again adds to what there is.

// One more for each form of activations that has instructions of its own.
enum class Limit { kRead, kInt8, kBFloat16, kF32 };
inline constexpr std::array kLimits = {Limit::kRead, Limit::kInt8, Limit::kBFloat16, Limit::kF32};
std::string_view LimitName(Limit limit);  // "read", "int8", "bf16", "f32"
std::string_view LimitUnit(Limit limit);  // "GB/s", "Gop/s", "Gflop/s"

inline constexpr double kMaxDisagreement = 0.10;

struct LimitRate {
  double first = 0, second = 0;  // of the two loops, in the limit's unit
  bool absent = false;           // the level has no such instructions, and no kernel uses them
  // 0: not known, with several threads or where the loops have several kinds of instructions.
  double instructions_per_op = 0;
  double clock_ghz = 0;     // right behind the loops
  size_t quiet_rounds = 0;  // in which every thread kept its core; of the loop with fewer

  double best() const { return std::max(first, second); }
  double instructions_per_cycle() const { return clock_ghz > 0 ? best() * instructions_per_op / clock_ghz : 0; }
  // How far the lower one is from the higher one, 0 to 1; 1 where one is missing.
  double disagreement() const { return best() > 0 ? 1 - std::min(first, second) / best() : 1; }
};

struct LimitSet {
  size_t threads = 0;
  double read_bytes = 0;  // what the read limit was measured on, larger than caches
  std::array<LimitRate, kLimits.size()> rates;

  LimitRate& of(Limit limit) { return rates[static_cast<size_t>(limit)]; }
  const LimitRate& of(Limit limit) const { return rates[static_cast<size_t>(limit)]; }
};

struct MachineLimits {
  LimitSet one, all;  // threads
};

enum class WhichLimits { kAll, kUnknown };

// Measures with the engine's threads and level, and raises `limits`, which may be empty; kUnknown: those that CheckLimit refuses. Takes
// a second, up to a few on a busy machine. kOutOfMemory: there is no room for 16 MiB a thread.
Result<void> MeasureLimits(Engine& engine, WhichLimits which, MachineLimits& limits);

// Raises the read limit of `limits` to the rate at which as many bytes are read again and again. For a figure that reads fewer than
// limits.read_bytes, which may find them in a cache.
Result<void> RaiseReadLimit(Engine& engine, double bytes, LimitSet& limits);

// GB/s at which a plain loop of `threads` of the engine's threads reads as many bytes, no more than MeasureLimits does, again and again for a
// fifth of a second. That is what memory gives just then, with noisy neighbours; a limit is what it gives at its best. Of a step's bytes, which
// find as much of a cache, it is what reading alone would come to. threads: 0 or more than there are: all. kOutOfMemory.
Result<double> ReadRateNow(Engine& engine, double bytes, size_t threads);

// kFailedPrecondition names the first limit that is not known, and both numbers.
Result<void> CheckLimit(Limit limit, size_t threads, const LimitRate& rate);
Result<void> CheckLimits(const LimitSet& limits);
Result<void> CheckLimits(const MachineLimits& limits);

// What one step moves and computes, as the kernels' cost formulas have it.
struct StepWork {
  double bytes = 0;  // weights, state and activations
  double int8_ops = 0;
  double bfloat16_ops = 0;
  double flops = 0;

  double operations() const { return int8_ops + bfloat16_ops + flops; }

  StepWork& operator+=(const StepWork& other) {
    bytes += other.bytes;
    int8_ops += other.int8_ops;
    bfloat16_ops += other.bfloat16_ops;
    flops += other.flops;
    return *this;
  }
};

struct LimitShares {
  double bandwidth = 0;          // bytes: least seconds by the limit / seconds
  double arithmetic = 0;         // operations, likewise
  Limit binding = Limit::kRead;  // the limit that leaves the least room
  double share() const { return std::max(bandwidth, arithmetic); }
};

// Products and attention follow each other, so that the least times of their operations add up; within either, forms of operations may
// run side by side, so that the longest counts. All zero where a limit or `seconds` is not known.
LimitShares SharesOf(const StepWork& products, const StepWork& attention, double seconds, const LimitSet& limits);

// kFailedPrecondition for a share of more than 100 %: names the figure, the limit, and both rates.
Result<void> CheckShare(std::string_view figure, const LimitShares& shares, const LimitSet& limits);

// ---- perplexity ----

struct PerplexityOptions {
  // Tokens of a window; windows do not overlap; a rest shorter than a window is left out unless it is all there is.
  size_t context = 512;
  bool score_all = false;  // every position but a window's first; else the second half
};

struct PerplexityResult {
  double perplexity = 0;      // exp(mean negative log-likelihood)
  double mean_nll = 0;        // nats per scored token
  double standard_error = 0;  // of mean_nll
  size_t scored_tokens = 0;
  size_t windows = 0;
};

// `ids`: the text, without BOS, at least 2; each window starts with BOS where the model asks for one. kInvalidArgument for fewer
// ids and for a window that is not 4 to the engine's context; kNumericalError names the position of a logit that is not finite. `progress` (may be empty) gets (windows done, windows).
Result<PerplexityResult> Perplexity(Engine& engine, const Model& model, std::span<const int32_t> ids,
                                    const PerplexityOptions& options,
                                    const std::function<void(size_t, size_t)>& progress);

// ---- speed ----

struct BenchSample {
  double seconds = 0;
  double tokens_per_s = 0;
  double tokens_per_cpu_s = 0;  // tokens per second of this process's CPU time
  double others_cores = 0;      // what other processes used meanwhile
};

struct BenchResult {
  std::string test;  // "prefill", "decode" or "batch"
  size_t batch = 1;
  size_t depth = 0;  // positions before the timed ones; of a batch: the longest prompt
  size_t prompt_tokens = 0;
  size_t gen_tokens = 0;
  std::vector<BenchSample> samples;
  double weight_bytes_per_token = 0;
  double state_bytes_per_token = 0;
  StepWork products, attention;  // of one step; a prefill is one
  uint64_t peak_rss_bytes = 0;
  uint64_t anonymous_rss_bytes = 0;
  bool kept = false;            // went on from caches that an earlier test had filled
  bool beyond_context = false;  // longer than the model's own context: the speed is real, the text would not be
};

struct BenchTest {
  std::string test = "prefill";
  size_t prompt_tokens = 512;   // prefill: rows timed
  size_t depth = 0;             // decode: positions filled before the clock starts
  size_t gen_tokens = 64;       // decode and batch: steps timed
  std::vector<size_t> prompts;  // batch: positions filled for each sequence; equal numbers are copies of one
  bool shares = false;          // batch: they share its rows instead
  size_t repeat = 3;
  size_t threads = 0;  // what is timed runs with so many of the engine's, caches are filled with all; 0: all
  uint64_t seed = 0;   // of the random token ids
};

// The filled caches of one test, kept for when the same test is asked for again. They borrow the engine, which outlives them.
class BenchCaches {
 public:
  BenchCaches();
  ~BenchCaches();
  BenchCaches(const BenchCaches&) = delete;
  BenchCaches& operator=(const BenchCaches&) = delete;

  void Drop();

  struct Impl;
  Impl& impl() { return *impl_; }  // for RunBench

 private:
  std::unique_ptr<Impl> impl_;
};

// Of a prefill, where the caller does not say: 512, or eight segments of a model that reads those.
size_t DefaultPromptTokens(Engine& engine);

// Prefill: logits of the last token only. Decode and batch: one token a step, logits of all vocabulary after each, nothing sampled.
// With `caches`, a test that is the same but for `repeat` and `threads` fills nothing and warms up for 2 steps at most. A decode test at
// a greater depth fills the rest. Another test takes the place of what is there. Null: filled and warmed up each time.
// kFailedPrecondition: requests are in flight. kInvalidArgument: no such test, or a count out of range. kOutOfMemory.
Result<BenchResult> RunBench(Engine& engine, const BenchTest& test, BenchCaches* caches = nullptr);

}  // namespace tidemill

#endif  // TIDEMILL_MEASURE_H_
