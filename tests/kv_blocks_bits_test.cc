// One answer whoever else is served, with keys and values in blocks (kv q8_0): as tests/bits_test.cc, whose models have heads that no
// block divides. Weight types are bits_test's.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <string>

#include "tests/support/bits_covering.h"
#include "tests/support/bits_hashes.h"
#include "tests/support/bits_levels.h"
#include "tests/support/bits_run.h"
#include "tests/support/model_runner.h"
#include "tests/support/tiny_model.h"

namespace tidemill::kv_blocks_bits_test {
namespace {

using testing::BitsPlan;
using testing::BitsReference;
using testing::BitsReport;
using testing::History;
using testing::ModelRunner;

constexpr size_t kPositions = 321, kContext = 512, kLargestChunk = 64, kPlainChunk = 512;
constexpr std::array<size_t, 3> kBatches = {1, 2, 8};
constexpr std::array<size_t, 3> kChunks = {1, 7, kLargestChunk};
constexpr std::array<size_t, 2> kThreads = {1, 2};

constexpr DType kWeights = DType::kQ8_0;

enum Factor : size_t { kBatch, kChunk, kThread, kLevel, kHistory };

// Three query heads to a KV head, two blocks to a row.
const std::string& ModelFile() {
  static const std::string path =
      testing::WriteTemporary("kv_blocks.gguf", testing::BuildTinyLlama({.vocab = 499,
                                                                         .hidden = 96,
                                                                         .layers = 2,
                                                                         .heads = 6,
                                                                         .kv_heads = 2,
                                                                         .head_dim = 64,
                                                                         .ffn = 160,
                                                                         .context = kContext,
                                                                         .dtype = kWeights,
                                                                         .seed = 11}));
  return path;
}

ModelRunner MakeRunner(DType kv, Isa isa, size_t threads = 1, bool f32 = false) {
  return ModelRunner(ModelFile(), {.isa = isa,
                                   .threads = threads,
                                   .f32 = f32,
                                   .kv_dtype = kv,
                                   .context = kContext,
                                   .max_rows = kPlainChunk + testing::kBatchMateRows});
}

TEST(KvBlocksBits, EveryPairOfWaysToRun_GivesEqualBits) {
  const std::vector<Isa> levels = testing::LevelsHere();
  const std::vector<size_t> sizes = {kBatches.size(), kChunks.size(), kThreads.size(), levels.size(), 3};
  const auto all = [](const testing::ValuePair&) { return true; };
  const auto rows = testing::CoverPairs(sizes, all, 1);
  ASSERT_TRUE(testing::MissingPairs(rows, sizes, all).empty());
  std::printf("%zu runs of %zu positions; %s\n", rows.size(), kPositions, testing::DescribeLevels().c_str());
  const auto ids = testing::RandomIds(99, kPositions, 499);
  std::map<testing::NumericClass, BitsReference> references;
  for (const testing::NumericClass numeric : testing::kNumericClasses) {
    const auto level = testing::BestLevelOfClass(numeric, kWeights);
    if (!level.has_value()) continue;
    ModelRunner runner = MakeRunner(DType::kQ8_0, *level);
    const auto& reference = references.try_emplace(numeric, runner, ids).first->second;
    const std::string entry = std::string("heads of 64, kv q8_0, ") + testing::ClassName(numeric);
    testing::ExpectStoredHash("tiny", entry, "logits of 321", reference.LogitsHash(kPositions));
    testing::ExpectStoredHash("tiny", entry, "state of 321", reference.StateHash(kPositions));
  }
  size_t mixed_steps = 0;
  ptrdiff_t runs = 0;
  for (size_t r = 0; r < rows.size(); ++r) {
    const Isa isa = levels[rows[r][kLevel]];
    const size_t batch = kBatches[rows[r][kBatch]], threads = kThreads[rows[r][kThread]];
    if (!testing::MayRace(threads)) continue;
    const BitsPlan plan{.batch = batch,
                        .index = r % batch,
                        .chunk = kChunks[rows[r][kChunk]],
                        .history = static_cast<History>(rows[r][kHistory]),
                        .max_others = 60,
                        .seed = r};
    SCOPED_TRACE("level " + std::string(IsaName(isa)) + ", batch " + std::to_string(batch) + ", place " +
                 std::to_string(plan.index) + ", chunk " + std::to_string(plan.chunk) + ", threads " +
                 std::to_string(threads) + ", history " + std::to_string(rows[r][kHistory]) + ", seed " +
                 std::to_string(r));
    BitsReference& reference = references.at(testing::ClassOf(isa, kWeights));
    ModelRunner runner = MakeRunner(DType::kQ8_0, isa, threads);
    auto state = runner.NewState();
    const BitsReport report = testing::RunWithBatchMates(runner, ids, plan, state, reference.Comparer());
    EXPECT_EQ(reference.CompareLogits(0, kPositions), "");
    EXPECT_EQ(reference.CompareState(*state), "");
    EXPECT_GE(report.full_steps, 1U);
    EXPECT_EQ(report.rollbacks != 0, plan.history == History::kRolledBack);
    EXPECT_EQ(report.forks != 0, plan.history == History::kForked);
    mixed_steps += report.mixed_steps;
    ++runs;
  }
  EXPECT_EQ(runs, std::count_if(rows.begin(), rows.end(),
                                [](const auto& row) { return testing::MayRace(kThreads[row[kThread]]); }));
  EXPECT_GE(mixed_steps, static_cast<size_t>(runs));
}

TEST(KvBlocksBits, RestoreThenContinue_EqualsNeverStored) {
  for (const Isa isa : testing::LevelsHere()) {
    ModelRunner plain = MakeRunner(DType::kQ8_0, isa), runner = MakeRunner(DType::kQ8_0, isa, 2);
    BitsReference reference(plain, testing::RandomIds(5, 200, 499));
    const auto state = runner.NewState();
    ASSERT_TRUE(state->Restore(reference.Checkpoint(133)).ok());
    const auto others = MakeRunner(DType::kF16, isa).NewState()->Restore(reference.Checkpoint(133));
    ASSERT_FALSE(others.ok());
    EXPECT_EQ(others.error().code(), ErrorCode::kFailedPrecondition);
    for (size_t i = 133; i < 200; ++i) {
      const auto id = reference.ids().subspan(i, 1);
      ASSERT_TRUE(state->Reserve(1).ok());
      const StepSequence step{.state = state.get(), .tokens = id, .rows = Wanted::kAll};
      const auto compare = reference.Comparer();
      runner.executor().Run(
          {&step, 1}, [&](size_t, size_t, std::span<float> row) { compare(i, row); }, nullptr);
      state->Commit(testing::KeysOf(id));
    }
    EXPECT_EQ(reference.CompareLogits(133, 200), "") << IsaName(isa);
    EXPECT_EQ(reference.CompareState(*state), "") << IsaName(isa);
  }
}

// Blocks are an approximation, a good one: the root of the mean square of what they change is small beside the logits', and not 0.
TEST(KvBlocksBits, Logits_StayNearThoseOfF32) {
  const auto ids = testing::RandomIds(5, 200, 499);
  for (const Isa isa : testing::LevelsHere()) {
    // Activations in f32, too: where they are rounded to bytes, the least change is as large as this one.
    ModelRunner exact = MakeRunner(DType::kF32, isa, 1, true), blocks = MakeRunner(DType::kQ8_0, isa, 1, true);
    const auto exact_state = exact.NewState(), blocks_state = blocks.NewState();
    const std::vector<float> expected = exact.Feed(*exact_state, ids, 64), found = blocks.Feed(*blocks_state, ids, 64);
    double change = 0, size = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      change += std::pow(static_cast<double>(found[i]) - static_cast<double>(expected[i]), 2);
      size += std::pow(static_cast<double>(expected[i]), 2);
    }
    const double relative = std::sqrt(change / size);
    // A uniform error of up to half a step, 1/254 of a block's greatest, has 1/440 of it as its root mean square. The greatest of 32 is
    // about twice theirs, so that keys and values of two layers each bring 1/220, in random directions.
    EXPECT_LT(relative, std::sqrt(4.0) / 220) << IsaName(isa);
    EXPECT_GT(relative, 1e-5) << IsaName(isa);
    std::printf("%s: relative change of logits %.5f\n", std::string(IsaName(isa)).c_str(), relative);
    EXPECT_EQ(blocks_state->bytes().committed * 64, exact_state->bytes().committed * 17);  // 34 bytes for 128
  }
}

}  // namespace
}  // namespace tidemill::kv_blocks_bits_test
