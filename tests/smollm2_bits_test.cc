// SmolLM2 as it is gives the same bits in every way to run it: what tests/bits_test.cc asks of tiny models, on fewer positions.
// The path of the model comes from TIDEMILL_SMOLLM2; without it every test here fails.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/bits_covering.h"
#include "tests/support/bits_hashes.h"
#include "tests/support/bits_levels.h"
#include "tests/support/bits_run.h"
#include "tests/support/model_runner.h"

namespace tidemill {
namespace {

using testing::BitsPlan;
using testing::BitsReference;
using testing::BitsReport;
using testing::History;
using testing::ModelRunner;

constexpr size_t kContext = 2304;
constexpr size_t kPositions = 2113;

// Positions [begin, end) that a run computes after restoring those before them: near the start and deep in the text, across a
// multiple of 128, where attention cuts, and deep ones across the multiple of 256 where the state grows.
struct Stretch {
  size_t begin, end;
};
struct ChunkWork {
  size_t chunk;
  std::array<Stretch, 2> stretches;
};
constexpr std::array kWork = {ChunkWork{1, {Stretch{122, 133}, Stretch{2044, 2053}}},
                              ChunkWork{7, {Stretch{110, 140}, Stretch{2037, 2067}}},
                              ChunkWork{64, {Stretch{0, 150}, Stretch{1985, kPositions}}},
                              ChunkWork{512, {Stretch{0, 521}, Stretch{1850, kPositions}}}};
constexpr std::array kKvTypes = {DType::kF16, DType::kF32};
constexpr std::array<size_t, 4> kBatches = {1, 2, 8, 32};
constexpr std::array kPlaces = {"first", "middle", "last"};
constexpr std::array<size_t, 2> kThreads = {1, 2};
constexpr std::array kStorages = {"packed", "mapped"};
constexpr std::array kHistories = {"straight", "rolled back", "forked"};

enum Factor : size_t { kKv, kBatch, kPlace, kChunk, kThread, kStorage, kLevel, kHistory };

// A batch of one has one place, a batch of two has no middle.
bool CanStandTogether(const testing::ValuePair& pair) {
  return pair.factor_a != kBatch || pair.factor_b != kPlace || pair.value_b == 0 || kBatches[pair.value_a] > 2 ||
         (kBatches[pair.value_a] == 2 && pair.value_b == 2);
}

std::string ModelPath() {
  const char* path = std::getenv("TIDEMILL_SMOLLM2");
  if (path == nullptr) {
    std::fprintf(
        stderr, "TIDEMILL_SMOLLM2 is not set: expected the path of the SmolLM2 file that tools/get_model.py fetches\n");
    std::exit(1);
  }
  return path;
}

// Chat, code and prose, one after another.
std::vector<int32_t> TextIds() {
  std::ifstream in(TIDEMILL_FIXTURES "/oracle/smollm2_ids.json");
  std::vector<int32_t> ids;
  for (const auto& text : nlohmann::json::parse(in)) ids.insert(ids.end(), text.begin(), text.end());
  ids.resize(kPositions);
  return ids;
}

std::string KvName(DType kv) { return kv == DType::kF32 ? "f32" : "f16"; }

ModelRunner MakeRunner(DType kv, Isa isa, size_t threads, bool mapped) {
  return ModelRunner(ModelPath(), {.isa = isa,
                                   .threads = threads,
                                   .mapped = mapped,
                                   .kv_dtype = kv,
                                   .context = kContext,
                                   .max_rows = kWork.back().chunk + testing::kCompanyRows});
}

// Compares one run with the reference of its class.
void ExpectEqualBits(const std::vector<size_t>& row, Isa isa, uint64_t seed, BitsReference& reference) {
  const size_t batch = kBatches[row[kBatch]];
  const std::array places = {size_t{0}, batch / 2, batch - 1};
  const ChunkWork& work = kWork[row[kChunk]];
  const BitsPlan plan{.batch = batch,
                      .index = places[row[kPlace]],
                      .chunk = work.chunk,
                      .history = static_cast<History>(row[kHistory]),
                      .most_others = 12,
                      .seed = seed};
  const DType kv = kKvTypes[row[kKv]];
  SCOPED_TRACE("kv " + KvName(kv) + ", level " + std::string(IsaName(isa)) + ", batch " + std::to_string(batch) +
               ", place " + kPlaces[row[kPlace]] + ", chunk " + std::to_string(work.chunk) + ", threads " +
               std::to_string(kThreads[row[kThread]]) + ", " + kStorages[row[kStorage]] + ", " +
               kHistories[row[kHistory]] + ", seed " + std::to_string(seed));
  ModelRunner runner = MakeRunner(kv, isa, kThreads[row[kThread]], row[kStorage] == 1);
  for (const Stretch& stretch : work.stretches) {
    SCOPED_TRACE("positions " + std::to_string(stretch.begin) + " to " + std::to_string(stretch.end));
    auto state = runner.NewState();
    ASSERT_TRUE(state->Restore(reference.Checkpoint(stretch.begin)).ok());
    const BitsReport report =
        testing::RunInCompany(runner, reference.ids().first(stretch.end), plan, state, reference.Comparer());
    EXPECT_EQ(reference.CompareLogits(stretch.begin, stretch.end), "");
    EXPECT_EQ(reference.CompareState(*state), "");
    EXPECT_GE(report.full_steps, 1U);
    EXPECT_EQ(report.rollbacks != 0, plan.history == History::kRolledBack);
    EXPECT_EQ(report.forks != 0, plan.history == History::kForked);
  }
}

TEST(SmolLm2Bits, EveryPairOfWaysToRun_GivesEqualBits) {
  const std::vector<Isa> levels = testing::RunnableLevels();
  const std::vector<size_t> sizes = {kKvTypes.size(), kBatches.size(),  kPlaces.size(), kWork.size(),
                                     kThreads.size(), kStorages.size(), levels.size(),  kHistories.size()};
  const auto rows = testing::CoverPairs(sizes, CanStandTogether, 1);
  ASSERT_TRUE(testing::MissingPairs(rows, sizes, CanStandTogether).empty());
  std::printf("%zu runs; %s\n", rows.size(), testing::DescribeLevels().c_str());
  const std::vector<int32_t> ids = TextIds();
  for (const bool fma : {true, false}) {
    const auto best = testing::BestLevelOfClass(fma);
    if (!best.has_value()) continue;
    for (size_t kv = 0; kv < kKvTypes.size(); ++kv) {
      ModelRunner plain = MakeRunner(kKvTypes[kv], *best, 1, false);
      BitsReference reference(plain, ids);
      const std::string entry = "kv " + KvName(kKvTypes[kv]) + ", " + testing::ClassName(fma);
      testing::ExpectStoredHash("smollm2", entry, "logits of " + std::to_string(kPositions),
                                reference.LogitsHash(kPositions));
      testing::ExpectStoredHash("smollm2", entry, "state of " + std::to_string(kPositions),
                                reference.StateHash(kPositions));
      for (size_t r = 0; r < rows.size(); ++r) {
        const Isa isa = levels[rows[r][kLevel]];
        if (rows[r][kKv] == kv && HasFma(isa) == fma) ExpectEqualBits(rows[r], isa, r, reference);
      }
    }
  }
}

}  // namespace
}  // namespace tidemill
