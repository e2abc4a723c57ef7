// SmolLM2-135M-Instruct (Q4_1): the same bits in every way to run it. As tests/bits_test.cc, with a real model's shapes.
// A run begins where the plain one stood some positions before the end of 2,113, as many as its chunk makes affordable.
// The path of the model comes from TIDEMILL_SMOLLM2; without it every test here fails.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <optional>

#include "tests/support/bits_covering.h"
#include "tests/support/bits_hashes.h"
#include "tests/support/bits_levels.h"
#include "tests/support/bits_run.h"
#include "tests/support/smollm2_path.h"

namespace tidemill::smollm2_bits_test {
namespace {

using testing::BitsPlan;
using testing::BitsReference;
using testing::BitsReport;
using testing::History;
using testing::ModelRunner;

constexpr size_t kPositions = 2113, kContext = 2304, kLargestChunk = 512;

constexpr std::array<size_t, 4> kBatches = {1, 2, 8, 32};
constexpr std::array<size_t, 4> kChunks = {1, 7, 64, kLargestChunk};
// Of a run with that chunk: a mapped weight is packed anew in every step.
constexpr std::array<std::array<size_t, 4>, 2> kRunPositions = {{{24, 70, 200, 600}, {5, 28, 130, 600}}};
constexpr std::array<size_t, 2> kThreads = {1, 2};
constexpr std::array kStorages = {"packed", "mapped"};

enum Factor : size_t { kBatch, kChunk, kThread, kStorage, kLevel, kHistory, kNumFactors };

ModelRunner MakeRunner(Isa isa, size_t threads, bool mapped) {
  return ModelRunner(testing::SmolLm2Path(), {.isa = isa,
                                              .threads = threads,
                                              .mapped = mapped,
                                              .kv_dtype = DType::kF16,
                                              .context = kContext,
                                              .max_rows = kLargestChunk + testing::kBatchMateRows});
}

void RunOneWay(BitsReference& reference, const std::vector<size_t>& row, Isa isa, uint64_t seed) {
  const BitsPlan plan{.batch = kBatches[row[kBatch]],
                      .index = kBatches[row[kBatch]] / 2,
                      .chunk = kChunks[row[kChunk]],
                      .history = static_cast<History>(row[kHistory]),
                      .max_others = row[kStorage] == 0 ? 20U : 3U,
                      .seed = seed};
  const size_t threads = kThreads[row[kThread]], first = kPositions - kRunPositions[row[kStorage]][row[kChunk]];
  SCOPED_TRACE("level " + std::string(IsaName(isa)) + ", batch " + std::to_string(plan.batch) + ", chunk " +
               std::to_string(plan.chunk) + ", threads " + std::to_string(threads) + ", " + kStorages[row[kStorage]] +
               ", history " + std::to_string(row[kHistory]) + ", seed " + std::to_string(seed));
  ModelRunner runner = MakeRunner(isa, threads, row[kStorage] == 1);
  auto state = reference.StateAt(first);
  const BitsReport report = testing::RunWithBatchMates(runner, reference.ids(), plan, state, reference.Comparer());
  EXPECT_EQ(reference.CompareLogits(first, kPositions), "");
  EXPECT_EQ(reference.CompareState(*state), "");
  EXPECT_GE(report.full_steps, 1U);
  EXPECT_EQ(report.rollbacks != 0, plan.history == History::kRolledBack);
  EXPECT_EQ(report.forks != 0, plan.history == History::kForked);
}

TEST(SmolLm2Bits, EveryPairOfWaysToRun_GivesEqualBits) {
  const std::vector<Isa> levels = testing::LevelsHere();
  const std::vector<size_t> sizes = {kBatches.size(),  kChunks.size(), kThreads.size(),
                                     kStorages.size(), levels.size(),  3};
  const auto all = [](const testing::ValuePair&) { return true; };
  const auto rows = testing::CoverPairs(sizes, all, 1);
  ASSERT_TRUE(testing::MissingPairs(rows, sizes, all).empty());
  std::printf("%zu runs; %s\n", rows.size(), testing::DescribeLevels().c_str());
  for (const testing::NumericClass numeric : testing::kNumericClasses) {
    const auto level = testing::BestLevelOfClass(numeric, DType::kQ4_1);
    if (!level.has_value()) continue;
    std::optional<ModelRunner> plain(MakeRunner(*level, 2, false));
    BitsReference reference(*plain, testing::RandomIds(99, kPositions, plain->model().settings.vocab_size));
    plain.reset();
    const std::string entry = std::string("Q4_1, kv f16, ") + testing::ClassName(numeric);
    testing::ExpectStoredHash("smollm2", entry, "logits of 2113", reference.LogitsHash(kPositions));
    testing::ExpectStoredHash("smollm2", entry, "state of 2113", reference.StateHash(kPositions));
    for (size_t r = 0; r < rows.size(); ++r) {
      if (testing::ClassOf(levels[rows[r][kLevel]], DType::kQ4_1) == numeric)
        RunOneWay(reference, rows[r], levels[rows[r][kLevel]], r);
    }
  }
}

// From the first token to the last in one other way than the plain one's.
TEST(SmolLm2Bits, WholeRunInChunksAndBatchMates_EqualsPlain) {
  const Isa isa = DetectIsa();
  std::optional<ModelRunner> plain(MakeRunner(isa, 2, false));
  BitsReference reference(*plain, testing::RandomIds(98, kPositions, plain->model().settings.vocab_size));
  auto state = plain->NewState();
  const BitsPlan plan{.batch = 8, .index = 3, .chunk = 61};
  testing::RunWithBatchMates(*plain, reference.ids(), plan, state, reference.Comparer());
  EXPECT_EQ(reference.CompareLogits(0, kPositions), "");
  EXPECT_EQ(reference.CompareState(*state), "");
}

}  // namespace
}  // namespace tidemill::smollm2_bits_test
