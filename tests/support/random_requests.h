// Requests of every sort for one small model, run unbatched and batched.
#ifndef TIDEMILL_TESTS_SUPPORT_RANDOM_REQUESTS_H_
#define TIDEMILL_TESTS_SUPPORT_RANDOM_REQUESTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tensor/dtype.h"
#include "tests/support/engine_driver.h"
#include "tidemill/engine.h"

namespace tidemill::testing {

inline constexpr size_t kSmallContext = 96;  // of SmallContextModel

std::shared_ptr<const Model> SmallContextModel(DType dtype);

inline constexpr size_t kWindowedContext = 704;  // of WindowedModel

// Three layers that see the last 8 positions, and one that sees all. Its longest sequences are past the point where the others forget rows
// inside their block.
std::shared_ptr<const Model> WindowedModel(size_t context = kWindowedContext);

struct Work {
  std::vector<int32_t> prompt;
  GenerationOptions generation;
};

// What requests are for. Of six prompts four are short, one is long and one is the longest.
struct WorkSpec {
  int vocab = 300;
  size_t long_prompt = 70;  // and up to 23 more
  size_t longest_prompt = kSmallContext;
};
inline constexpr WorkSpec kWindowedWork = {.vocab = 128, .long_prompt = 250, .longest_prompt = 660};

// Greedy and drawn, with and without penalties, stops and log-probabilities, ending in every way.
std::vector<Work> MakeWork(size_t count, uint64_t seed, const WorkSpec& spec = {});

// `options`: how, but for max_batch, which is 1.
std::vector<Outcome> RunUnbatched(const std::shared_ptr<const Model>& model, const std::vector<Work>& work,
                                  EngineOptions options = {.threads = 1, .prefill_chunk = 512});

// Submits everything at random moments and runs to the end.
std::vector<RequestId> RunTogether(EngineDriver& driver, const std::vector<Work>& work, uint64_t seed);

// As GoogleTest expectations.
void ExpectSame(const Outcome& found, const Outcome& expected, const std::string& where);

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_RANDOM_REQUESTS_H_
