// Requests that fail: weights that are no numbers, memory that is not there. Each ends with one error; whoever it does not concern
// goes on as if alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "formats/gguf.h"
#include "tensor/half.h"
#include "tests/support/allocation_probe.h"
#include "tests/support/engine_driver.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/model_runner.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_vocabulary.h"
#include "tidemill/model.h"

namespace tidemill::engine_failure_test {
namespace {

using testing::BuildCountingModel;
using testing::BuildTinyLlama;
using testing::EngineDriver;
using testing::FailAllocations;
using testing::LoadModel;
using testing::Outcome;
using testing::TinyLlamaSpec;

constexpr int kVocab = 300;

std::vector<int32_t> Range(int32_t first, size_t count) {
  std::vector<int32_t> ids(count);
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

// Overwrites element (row, col) of a tensor; of a Q8_0 one, the scale of that element's block.
void SetWeight(std::string& gguf, const std::string& tensor_name, size_t row, size_t col, float value) {
  const auto file = std::as_bytes(std::span(gguf));
  const auto parsed = GgufFile::Parse(file);
  ASSERT_TRUE(parsed.ok());
  const FileTensor* tensor = parsed->FindTensor(tensor_name);
  ASSERT_NE(tensor, nullptr) << tensor_name;
  const auto begin = static_cast<size_t>(tensor->bytes.data() - file.data());
  if (tensor->dtype == DType::kF32) {
    testing::Patch(gguf, begin + (row * tensor->cols + col) * 4, value);
  } else {
    ASSERT_EQ(tensor->dtype, DType::kQ8_0);
    testing::Patch(gguf, begin + row * RowBytes(DType::kQ8_0, tensor->cols) + col / 32 * 34, FloatToHalf(value));
  }
}

struct Damage {
  DType dtype;
  bool f32;  // run in f32
  std::string tensor;
  float value;
};

std::vector<Damage> AllDamages() {
  std::vector<Damage> all;
  for (const char* tensor :
       {"blk.0.attn_norm.weight", "blk.1.ffn_norm.weight", "output_norm.weight", "blk.0.attn_q.weight",
        "blk.0.attn_k.weight", "blk.0.attn_v.weight", "blk.1.attn_output.weight", "blk.1.ffn_gate.weight",
        "blk.1.ffn_up.weight", "blk.1.ffn_down.weight", "output.weight"}) {
    for (const float value : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      // Minus infinity is a mask to the sampler: such a row of the head is an error only where it makes plus infinity.
      if (std::isinf(value) && std::string_view(tensor) == "output.weight") continue;
      all.push_back({DType::kF32, true, tensor, value});
      all.push_back({DType::kF32, false, tensor, value});
      all.push_back({DType::kQ8_0, false, tensor, value});
      all.push_back({DType::kQ8_0, true, tensor, value});
    }
  }
  return all;
}

TEST(EngineFailure, WeightThatIsNoNumber_GivesAnErrorAndNoToken) {
  for (const Damage& damage : AllDamages()) {
    const std::string where = std::string(InfoOf(damage.dtype).name) + (damage.f32 ? " in f32, " : ", ") +
                              damage.tensor + " = " + std::to_string(damage.value);
    std::string gguf = BuildTinyLlama({.vocab = kVocab, .context = 64, .dtype = damage.dtype, .tied = false});
    SetWeight(gguf, damage.tensor, 0, 5, damage.value);
    ASSERT_FALSE(HasFatalFailure());
    EngineDriver driver(LoadModel("engine_failure", gguf, damage.f32), {.threads = 1});
    std::vector<RequestId> ids;
    for (const auto& prompt : {Range(30, 1), Range(40, 9), Range(50, 30)})
      ids.push_back(driver.Submit(prompt, {.max_new_tokens = 5}));
    driver.RunUntilIdle();
    for (const RequestId id : ids) {
      const Outcome& outcome = driver.outcome(id);
      EXPECT_EQ(outcome.fault, "") << where;
      EXPECT_EQ(outcome.error, ErrorCode::kNumericalError) << where;
      EXPECT_EQ(outcome.last_events, 1U) << where;
      EXPECT_TRUE(outcome.ids.empty()) << where;
      EXPECT_THAT(outcome.message, ::testing::StartsWith("generate token 1: ")) << where;
    }
  }
}

// A token whose embedding is no number spoils the sequences that hold it, from there on, and no other row of any step.
TEST(EngineFailure, TokenThatIsNoNumber_SpoilsOnlyItsOwnSequence) {
  constexpr int32_t kBad = 77;
  for (const DType dtype : {DType::kF32, DType::kQ8_0}) {
    const TinyLlamaSpec spec = {.vocab = kVocab, .context = 64, .dtype = dtype, .tied = false};
    std::string gguf = BuildTinyLlama(spec);
    const GenerationOptions generation = {
        .max_new_tokens = 8, .logit_bias = {{kBad, -100.0f}}, .ignore_eos = true, .logprobs = 3};
    EngineDriver healthy(LoadModel("engine_healthy", gguf), {.threads = 1});
    SetWeight(gguf, "token_embd.weight", kBad, 3, std::numeric_limits<float>::quiet_NaN());
    ASSERT_FALSE(HasFatalFailure());
    EngineDriver driver(LoadModel("engine_failure", gguf), {.threads = 2, .prefill_chunk = 16});
    const auto good_a = Range(10, 20), good_b = Range(100, 3);
    const RequestId a = driver.Submit(good_a, generation);
    const RequestId bad = driver.Submit({20, kBad, 21}, generation);
    const RequestId b = driver.Submit(good_b, generation);
    driver.RunUntilIdle();
    EXPECT_EQ(driver.outcome(bad).error, ErrorCode::kNumericalError);
    EXPECT_TRUE(driver.outcome(bad).ids.empty());
    for (const auto& [id, prompt] : {std::pair(a, good_a), std::pair(b, good_b)}) {
      const Outcome expected = healthy.Run(prompt, generation);
      EXPECT_EQ(driver.outcome(id).ids, expected.ids);
      EXPECT_EQ(driver.outcome(id).logprob_bits, expected.logprob_bits);
      EXPECT_EQ(driver.outcome(id).finish, FinishReason::kLength);
    }
  }
}

// One request makes its first step while each allocation in turn fails; one is in the middle of its answer. Whoever fails says so
// once; whoever does not has all of its tokens.
TEST(EngineFailure, StepWithoutMemory_FailsOnlyRequestsThatNeededIt) {
  const auto model = LoadModel("engine_failure", BuildCountingModel({.vocab = 400, .context = 64, .eos_token = 399}));
  size_t failures[2] = {}, survivals[2] = {};
  for (const size_t count : {size_t{1}, FailAllocations::kAllFurther}) {
    for (size_t n = 0;; ++n) {
      ASSERT_LT(n, 1000U);
      EngineDriver driver(model, {.threads = 1});
      const RequestId old = driver.Submit({20}, {.max_new_tokens = 10, .logprobs = 2});
      driver.Step();
      driver.Step();
      const RequestId fresh = driver.Submit({50, 51}, {.max_new_tokens = 5});
      FailAllocations failure(n, count);
      const auto events = driver.engine().Step();
      const bool reached = failure.Stop();
      driver.Consume(events);
      driver.RunUntilIdle();
      for (const RequestId id : {old, fresh}) {
        const Outcome& outcome = driver.outcome(id);
        EXPECT_EQ(outcome.fault, "") << "allocation " << n;
        EXPECT_EQ(outcome.last_events, 1U) << "allocation " << n;
        if (outcome.error.has_value()) {
          EXPECT_EQ(outcome.error, ErrorCode::kOutOfMemory) << "allocation " << n;
          EXPECT_EQ(outcome.ids, Range(id == old ? 21 : 52, outcome.ids.size())) << "allocation " << n;
          ++failures[id == old ? 0 : 1];
        } else {
          EXPECT_EQ(outcome.ids, id == old ? Range(21, 10) : Range(52, 5)) << "allocation " << n;
          ++survivals[id == old ? 0 : 1];
        }
      }
      if (!reached) break;
    }
  }
  for (const size_t i : {0, 1}) {
    EXPECT_GT(failures[i], 0U) << i;
    EXPECT_GT(survivals[i], 1U) << i;
  }
}

// Letters that might begin a stop text are held back until the last token, in whose step each allocation in turn fails: the text is that
// of the tokens that somebody was told of, whether the answer ends by its length or by a token that ends it.
TEST(EngineFailure, LastTokenWithoutMemory_LosesNoTextBeforeIt) {
  const std::string letters = "ABCDEFGHIJKLMNOPQRST";
  const auto token_of = [](char letter) { return testing::kTinyFirstByteToken + letter; };
  const auto model =
      LoadModel("engine_failure", BuildCountingModel({.vocab = 400, .context = 64, .eos_token = token_of('U')}));
  for (const int length : {20, 30}) {
    size_t failures = 0;
    for (const size_t count : {size_t{1}, FailAllocations::kAllFurther}) {
      for (size_t n = 0;; ++n) {
        ASSERT_LT(n, 1000U);
        EngineDriver driver(model, {.threads = 1});
        const RequestId id = driver.Submit({token_of('@')}, {.max_new_tokens = length, .stop = {letters + "?"}});
        for (size_t step = 1; step < static_cast<size_t>(std::min(length, 21)); ++step) driver.Step();
        const Outcome& outcome = driver.outcome(id);
        ASSERT_EQ(outcome.text, "");
        FailAllocations failure(n, count);
        const auto events = driver.engine().Step();
        const bool reached = failure.Stop();
        driver.Consume(events);
        ASSERT_EQ(outcome.last_events, 1U) << "allocation " << n;
        EXPECT_EQ(outcome.fault, "") << "allocation " << n;
        failures += outcome.error.has_value();
        EXPECT_EQ(outcome.text, letters.substr(0, std::min<size_t>(outcome.ids.size(), 20)))
            << "allocation " << n << " of " << length;
        if (!reached) break;
      }
    }
    EXPECT_GE(failures, 2U) << length;
  }
}

TEST(EngineFailure, SubmitWithoutMemory_IsOutOfMemory) {
  const auto model = LoadModel("engine_failure", BuildCountingModel({.vocab = 400, .context = 64, .eos_token = 399}));
  EngineDriver driver(model, {.threads = 1});
  const RequestId old = driver.Submit({20}, {.max_new_tokens = 10});
  driver.Step();
  size_t refusals = 0;
  for (const size_t count : {size_t{1}, FailAllocations::kAllFurther}) {
    for (size_t n = 0;; ++n) {
      ASSERT_LT(n, 1000U);
      Request request = {.prompt = {50}, .generation = {.max_new_tokens = 2, .stop = {"a", "b"}}};
      FailAllocations failure(n, count);
      const auto id = driver.engine().Submit(std::move(request));
      if (!failure.Stop()) {
        ASSERT_TRUE(id.ok());
        break;
      }
      ASSERT_FALSE(id.ok());
      ASSERT_EQ(id.error().code(), ErrorCode::kOutOfMemory);
      ++refusals;
    }
  }
  EXPECT_GT(refusals, 10U);
  driver.RunUntilIdle();
  EXPECT_EQ(driver.outcome(old).ids, Range(21, 10));
}

// Each allocation of opening a model in turn fails: only it, or all that follow, too.
TEST(EngineFailure, OpeningWithoutMemory_IsOutOfMemory) {
  const std::string path =
      testing::WriteTemporary("engine_open.gguf", BuildTinyLlama({.vocab = kVocab, .context = 64}));
  const auto code = [](const auto& result) {
    return result.ok() ? std::nullopt : std::optional(result.error().code());
  };
  const std::function<std::optional<ErrorCode>()> operations[] = {[&] { return code(Inspect(path)); },
                                                                  [&] { return code(LoadText(path)); },
                                                                  [&] {
                                                                    LoadOptions options;
                                                                    options.threads = 1;
                                                                    return code(Model::Load(path, options));
                                                                  }};
  for (const auto& open : operations) {
    for (const size_t count : {size_t{1}, FailAllocations::kAllFurther}) {
      size_t refusals = 0;
      for (size_t n = 0;; n += 1 + n / 16) {  // every one of the first, then fewer
        FailAllocations failure(n, count);
        const auto refused = open();
        if (!failure.Stop()) {
          EXPECT_EQ(refused, std::nullopt);
          break;
        }
        ASSERT_EQ(refused, ErrorCode::kOutOfMemory) << "allocation " << n;
        ++refusals;
      }
      EXPECT_GT(refusals, 20U);
    }
  }
}

// An interrupted run counts for nothing: made again, it has the bits that it would have had.
TEST(EngineFailure, InterruptedRun_CanBeMadeAgain) {
  const std::string path =
      testing::WriteTemporary("engine_interrupt.gguf", BuildTinyLlama({.vocab = kVocab, .context = 64}));
  testing::ModelRunner runner(path, {.context = 64, .max_rows = 64});
  const auto ids = Range(20, 40);
  auto plain = runner.NewState();
  const auto expected = runner.Feed(*plain, ids, 64);
  auto state = runner.NewState();
  ASSERT_TRUE(state->Reserve(ids.size()).ok());
  const StepSequence step{.state = state.get(), .tokens = ids, .rows = Wanted::kAll};
  size_t rows = 0;
  std::atomic<bool> interrupt{true};
  EXPECT_FALSE(runner.executor().Run(
      {&step, 1}, [&](size_t, size_t, std::span<float>) { ++rows; }, &interrupt));
  EXPECT_EQ(rows, 0U);
  interrupt = false;  // and now after the first rows of logits
  EXPECT_FALSE(runner.executor().Run(
      {&step, 1},
      [&](size_t, size_t, std::span<float>) {
        ++rows;
        interrupt = true;
      },
      &interrupt));
  EXPECT_EQ(rows, StepRows::kHeadRows);
  EXPECT_EQ(state->length(), 0U);
  EXPECT_EQ(runner.Feed(*state, ids, 64), expected);
}

}  // namespace
}  // namespace tidemill::engine_failure_test
