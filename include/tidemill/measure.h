// Measurements on a model: perplexity of a text, speed of prefill and decode.
#ifndef TIDEMILL_MEASURE_H_
#define TIDEMILL_MEASURE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tidemill/engine.h"
#include "tidemill/machine_limits.h"
#include "tidemill/result.h"

namespace tidemill {

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
  std::vector<size_t> prompts;  // batch: prompt length of each sequence, filled before the clock starts
  size_t repeat = 3;
  uint64_t seed = 0;  // of the random token ids
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

// Prefill: logits of the last token only. Decode and batch: one token a step, logits of all vocabulary after each, nothing sampled.
// With `caches`, a test that is the same but for `repeat` fills nothing and warms up for 2 steps at most; another test takes
// the place of what is there. Null: filled and warmed up each time.
Result<BenchResult> RunBench(Engine& engine, const BenchTest& test, BenchCaches* caches = nullptr);

}  // namespace tidemill

#endif  // TIDEMILL_MEASURE_H_
