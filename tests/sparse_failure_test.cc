// Requests with sparse attention that fail: memory that is not there, rows that are no numbers. Each ends with one error; whoever it does not
// concern goes on as if alone.
#include <gtest/gtest.h>

#include <cstdint>
#include <exception>
#include <limits>
#include <string>
#include <vector>

#include "formats/gguf.h"
#include "tensor/dtype.h"
#include "tensor/half.h"
#include "tests/support/allocation_probe.h"
#include "tests/support/engine_driver.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/sparse_requests.h"

namespace tidemill::sparse_failure_test {
namespace {

using testing::EngineDriver;
using testing::FailAllocations;
using testing::NamedPolicy;
using testing::Outcome;
using testing::SparseAlone;
using testing::SparseGreedy;
using testing::SparseModel;
using testing::SparsePolicies;
using testing::SparsePrompt;

#ifdef TIDEMILL_FEW_POSITIONS  // emulated or sanitized
constexpr size_t kEvery = 5;
#else
constexpr size_t kEvery = 1;
#endif

// Of the steps that allocate, every kEvery-th allocation in turn fails: of one request that is sparse and of a dense one beside it.
TEST(SparseFailure, StepWithoutMemory_FailsOnlyRequestsThatNeededIt) {
  constexpr int32_t kTokens = 70;
  const std::vector<int32_t> prompt = SparsePrompt(61, 1), beside = SparsePrompt(30, 2);
  const Outcome dense = SparseAlone({}, beside, SparseGreedy(kTokens));
  size_t failures = 0, survivals = 0, without_columns = 0;
  for (const NamedPolicy& policy : SparsePolicies()) {
    const Outcome alone = SparseAlone(policy.policy, prompt, SparseGreedy(kTokens));
    std::vector<size_t> allocations;  // of each step
    for (size_t at = 0; at == 0 || at <= allocations.size(); ++at) {
      for (size_t n = at % kEvery; at == 0 || n < allocations[at - 1]; n += kEvery) {
        EngineDriver driver(SparseModel(), {.threads = 1, .prefill_chunk = 512, .prefix_cache = false});
        const RequestId one =
            driver.Submit({.prompt = prompt, .generation = SparseGreedy(kTokens), .attention = policy.policy});
        const RequestId other = driver.Submit({.prompt = beside, .generation = SparseGreedy(kTokens)});
        const std::string where = policy.name + ", step " + std::to_string(at) + ", allocation " + std::to_string(n);
        for (size_t step = 1; !driver.engine().idle(); ++step) {
          const size_t before = testing::NumAllocations();
          FailAllocations failure(n, step == at ? 1 : 0);
          std::span<const Event> events;
          try {
            events = driver.engine().Step();
          } catch (const std::exception& error) {
            FAIL() << where << ": " << error.what();
          }
          (void)failure.Stop();
          if (at == 0) allocations.push_back(testing::NumAllocations() - before);
          driver.Consume(events);
        }
        for (const RequestId id : {one, other}) {
          const Outcome &found = driver.outcome(id), &expected = id == one ? alone : dense;
          EXPECT_EQ(found.fault, "") << where;
          EXPECT_EQ(found.last_events, 1U) << where;
          if (found.error.has_value()) {
            EXPECT_EQ(found.error, ErrorCode::kOutOfMemory) << where;
            ++failures;
          } else {
            testing::ExpectSame(found, expected, where);
            ++survivals;
            if (found.stats.growth.gave_up_columns) {
              EXPECT_FALSE(found.stats.attention->columns) << where;
              ++without_columns;
            }
          }
        }
        if (at == 0) break;
      }
      ASSERT_FALSE(HasFailure());
    }
  }
  EXPECT_GT(failures, 0U);
  EXPECT_GT(survivals, 0U);
  EXPECT_GT(without_columns, 0U);
}

// Where a state has room for rows but not for columns as well, keys are read from rows, whether that is seen at once or on the way.
TEST(SparseFailure, StateMemoryForRowsAlone_IsEnough) {
  const std::vector<int32_t> prompt = SparsePrompt(250, 4);
  AttentionPolicy policy{.kind = AttentionKind::kSparq, .r = 4, .k = 24};
  const Outcome whole = SparseAlone(policy, prompt, SparseGreedy(200));
  policy.columns = KeyColumns::kNone;
  const Outcome rows = SparseAlone(policy, prompt, SparseGreedy(200));
  policy.columns = KeyColumns::kAuto;
  ASSERT_LT(rows.stats.growth.allocated_bytes, whole.stats.growth.allocated_bytes);
  for (const bool needs_room_for_all : {true, false}) {
    const std::string where = needs_room_for_all ? "seen at once" : "seen on the way";
    EngineDriver driver(SparseModel(),
                        {.threads = 1,
                         .kv_policy = KvPolicy::kPaged,
                         .kv_increment = 16,
                         .prefill_chunk = 64,
                         .state_memory = (rows.stats.growth.allocated_bytes + whole.stats.growth.allocated_bytes) / 2});
    const RequestId id = driver.Submit({.prompt = prompt,
                                        .generation = SparseGreedy(200),
                                        .needs_room_for_all = needs_room_for_all,
                                        .attention = policy});
    driver.RunUntilIdle();
    testing::ExpectSame(driver.outcome(id), whole, where);
    EXPECT_TRUE(driver.outcome(id).stats.growth.gave_up_columns) << where;
    EXPECT_FALSE(driver.outcome(id).stats.attention->columns) << where;
  }
}

// A generated token whose embedding is no number, or huge, spoils a sparse row; neighbours have the same policy, or none.
TEST(SparseFailure, TokenThatIsNoNumber_SpoilsOnlyItsOwnSequence) {
  constexpr int32_t kBad = 77;
  for (const float value : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 6e4F}) {
    std::string gguf = testing::BuildTinyLlama({.vocab = testing::kSparseVocab,
                                                .layers = 3,
                                                .heads = 6,
                                                .kv_heads = 2,
                                                .context = 256,
                                                .dtype = DType::kQ8_0,
                                                .tied = false,
                                                .seed = 21});
    const auto healthy = testing::LoadModel("sparse_failure_healthy", gguf);
    const auto file = std::as_bytes(std::span(gguf));
    const auto parsed = GgufFile::Parse(file);
    ASSERT_TRUE(parsed.ok());
    const FileTensor* tensor = parsed->FindTensor("token_embd.weight");
    ASSERT_NE(tensor, nullptr);
    const auto begin = static_cast<size_t>(tensor->bytes.data() - file.data());
    testing::Patch(gguf, begin + kBad * RowBytes(DType::kQ8_0, tensor->cols), FloatToHalf(value));
    const auto spoiled = testing::LoadModel("sparse_failure", gguf);
    for (const NamedPolicy& policy : SparsePolicies()) {
      const std::string where = policy.name + ", " + std::to_string(value);
      GenerationOptions good = SparseGreedy(80), bad = SparseGreedy(80);
      good.logit_bias = {{kBad, -100.0F}};
      bad.logit_bias = {{kBad, 100.0F}};
      const std::vector<int32_t> prompt = SparsePrompt(70, 3);
      std::vector<int32_t> clean = prompt;
      for (int32_t& id : clean) id = id == kBad ? id + 1 : id;
      EngineDriver alone(healthy, {.threads = 1, .prefix_cache = false});
      const RequestId expected_sparse = alone.Submit({.prompt = clean, .generation = good, .attention = policy.policy});
      alone.RunUntilIdle();
      EngineDriver driver(spoiled, {.threads = 2, .prefill_chunk = 16});
      const RequestId a = driver.Submit({.prompt = clean, .generation = good, .attention = policy.policy});
      const RequestId b = driver.Submit({.prompt = clean, .generation = bad, .attention = policy.policy});
      const RequestId c = driver.Submit({.prompt = clean, .generation = good, .attention = policy.policy});
      driver.RunUntilIdle();
      for (const RequestId id : {a, c}) testing::ExpectSame(driver.outcome(id), alone.outcome(expected_sparse), where);
      if (value < 1e5F) continue;  // some number comes of it
      EXPECT_EQ(driver.outcome(b).error, ErrorCode::kNumericalError) << where;
      EXPECT_EQ(driver.outcome(b).ids.size(), 1U) << where;
    }
  }
}

}  // namespace
}  // namespace tidemill::sparse_failure_test
