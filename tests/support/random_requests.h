// Requests of every sort for one small model, run alone and together.
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

struct Work {
  std::vector<int32_t> prompt;
  GenerationOptions generation;
};

// Greedy and drawn, with and without penalties, stops and log-probabilities, ending in every way.
// Prompts have ids from 3 to vocab - 1.
std::vector<Work> MakeWork(size_t count, uint64_t seed, size_t vocab = 300);

std::vector<Outcome> RunAlone(const std::shared_ptr<const Model>& model, const std::vector<Work>& work);

// Submits everything at random moments and runs to the end.
std::vector<RequestId> RunTogether(EngineDriver& driver, const std::vector<Work>& work, uint64_t seed);

// As GoogleTest expectations.
void ExpectSame(const Outcome& found, const Outcome& expected, const std::string& where);

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_RANDOM_REQUESTS_H_
