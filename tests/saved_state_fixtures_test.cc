// States and requests that an earlier version saved are read, and written again byte for byte (tests/fixtures/saved/README.md).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/isa.h"
#include "tests/fixtures_path.h"
#include "tests/support/engine_driver.h"
#include "tests/support/resumed_requests.h"
#include "tests/support/state_kinds.h"
#include "tests/support/state_model.h"

namespace tidemill::saved_state_fixtures_test {
namespace {

using testing::EngineDriver;
using testing::Outcome;
using testing::StateKindUnderTest;
using testing::Subject;

std::vector<std::byte> Fixture(const std::string& name) {
  std::ifstream in(std::string(TIDEMILL_FIXTURES) + "/saved/" + name, std::ios::binary);
  const std::vector<char> bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  EXPECT_FALSE(bytes.empty()) << name;
  std::vector<std::byte> fixture(bytes.size());
  std::transform(bytes.begin(), bytes.end(), fixture.begin(), [](char c) { return static_cast<std::byte>(c); });
  return fixture;
}

const StateKindUnderTest& Kind(const std::string& name) {
  for (const auto& kind : testing::AllStateKinds()) {
    if (kind->name() == name) return *kind;
  }
  ADD_FAILURE() << "no kind " << name;
  return *testing::AllStateKinds().front();
}

// A few steps of any kind: prompts, a path of draft rows, a rollback, a fork.
std::vector<RowKey> Keys(size_t n, RowKey first) {
  std::vector<RowKey> keys(n);
  std::iota(keys.begin(), keys.end(), first);
  return keys;
}

class SavedCheckpoint : public ::testing::TestWithParam<const char*> {};

TEST_P(SavedCheckpoint, IsReadAndWrittenAgain) {
  const StateKindUnderTest& kind = Kind(GetParam());
  Subject subject(kind, 400);
  subject.Extend(Keys(70, 1));
  for (RowKey key = 100; key < 130; ++key) subject.Extend(std::vector{key});
  ASSERT_TRUE(subject.state->Rollback(99).ok());
  subject.naive.Truncate(kind, 99);
  ASSERT_TRUE(subject.state->Reserve(9).ok());
  const std::vector<uint32_t> path = {0, 2, 3, 8};
  const std::vector<RowKey> keys = Keys(path.size(), 200);
  subject.WriteRows(path, keys);
  subject.state->CommitPath(path, keys);
  for (const RowKey key : keys) subject.naive.Append(kind, key);
  const auto parent = std::move(subject.state->Fork()).value();
  subject.Extend(Keys(20, 300));
  const std::vector<std::byte> found = testing::CheckpointOf(*subject.state);
  const std::vector<std::byte> fixture = Fixture(std::string(GetParam()) + ".state");
  EXPECT_EQ(found, fixture);
  const auto restored = kind.Make(400);
  ASSERT_TRUE(restored->Restore(fixture).ok());
  EXPECT_EQ(testing::CheckpointOf(*restored), fixture);
}

INSTANTIATE_TEST_SUITE_P(Kinds, SavedCheckpoint,
                         ::testing::Values("KvCacheF16Heads2Dim3Heads1Dim8",
                                           "KvCacheQ80Heads1Dim64Window5Heads1Dim32Draft2"),
                         [](const auto& c) { return std::string(c.param); });

struct SavedCase {
  const char* name;
  KvType kv_type;
  float temperature;
};

class SavedRequestFixture : public ::testing::TestWithParam<SavedCase> {};

// Its numeric class is that of the lowest level of x86-64.
TEST_P(SavedRequestFixture, IsReadAndGoesOnAndIsWrittenAgain) {
  if (HasFma(Isa::kBaseline)) GTEST_SKIP() << "saved at x86-64's lowest level, which has no fused products";
  const SavedCase& c = GetParam();
  EngineDriver driver(testing::ResumedModel(), {.threads = 1, .isa = "baseline", .kv_type = c.kv_type});
  GenerationOptions generation = {.max_new_tokens = 12, .temperature = c.temperature, .ignore_eos = true, .seed = 7};
  const Outcome whole = testing::RunAndSave(driver, testing::ResumedPrompt(), generation);
  const std::vector<std::byte> fixture = Fixture(std::string(c.name) + ".request");
  EXPECT_EQ(*whole.saved, fixture);
  const auto saved = SavedRequest::Read(fixture);
  ASSERT_TRUE(saved.ok()) << saved.error().message();
  generation.max_new_tokens = 40;
  const Outcome longer = testing::RunAndSave(driver, testing::ResumedPrompt(), generation);
  const auto id = driver.engine().Resume(*saved, {.generation = generation, .keep_state = true});
  ASSERT_TRUE(id.ok()) << id.error().message();
  driver.RunUntilIdle();
  EXPECT_EQ(*driver.outcome(*id).saved, *longer.saved);
}

INSTANTIATE_TEST_SUITE_P(Cases, SavedRequestFixture,
                         ::testing::Values(SavedCase{"greedy_f16", KvType::kF16, 0},
                                           SavedCase{"drawn_q8_0", KvType::kQ8_0, 1.0f}),
                         [](const auto& c) { return std::string(c.param.name); });

}  // namespace
}  // namespace tidemill::saved_state_fixtures_test
