// One answer whoever else is served, for every family: as tests/bits_test.cc, over the seeded checkpoints of tests/fixtures/families.
// What a family has of its own is in these runs: windows that rows leave, mixtures whose experts get rows of several sequences,
// learned and scaled positions. Places in the batch, weight types and long contexts are bits_test's.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fixtures_path.h"
#include "tests/support/bits_covering.h"
#include "tests/support/bits_hashes.h"
#include "tests/support/bits_levels.h"
#include "tests/support/bits_run.h"
#include "tests/support/model_runner.h"

namespace tidemill::family_bits_test {
namespace {

using testing::BitsPlan;
using testing::BitsReference;
using testing::BitsReport;
using testing::History;
using testing::ModelRunner;

struct Family {
  const char* name;
  size_t positions;  // of the run
  size_t context;

  friend void PrintTo(const Family& family, std::ostream* out) { *out << family.name; }
};
constexpr Family Rotary(const char* name) { return {name, 321, 512}; }
// Rows leave a layer by way of a larger block after 256 positions, and inside their block after 633.
constexpr Family Windowed(const char* name) { return {name, 713, 1024}; }
constexpr Family Learned(const char* name) { return {name, 121, 128}; }  // the table of positions has 128
constexpr Family kFamilies[] = {Windowed("gemma3_text"), Learned("gpt2"),      Rotary("gpt_neox"),
                                Rotary("llama3_rope"),   Rotary("llama_yarn"), Windowed("mistral"),
                                Rotary("mixtral"),       Learned("opt"),       Learned("opt_post_norm"),
                                Rotary("qwen2"),         Rotary("qwen3"),      Rotary("qwen3_moe")};

constexpr std::array kKvTypes = {DType::kF32, DType::kF16};
constexpr std::array<size_t, 3> kBatches = {1, 2, 8};
constexpr size_t kLargestChunk = 64, kPlainChunk = 512;
constexpr std::array<size_t, 3> kChunks = {1, 7, kLargestChunk};
constexpr std::array<size_t, 2> kThreads = {1, 2};
constexpr std::array kStorages = {"packed", "mapped"};
// Other tokens and the rollback behind them (up to 40) stay within what a window allows, twice KvShape::draft_rows, and no more than
// draft_rows of them come, so that the bytes of a checkpoint are those of a sequence that never had them.
constexpr size_t kMaxOthers = 60;

enum Factor : size_t { kKvFactor, kBatch, kChunk, kThread, kStorage, kLevel, kHistory };

std::string KvName(DType kv) { return kv == DType::kF32 ? "f32" : "f16"; }

// All of the machine; where every instruction costs tens of them (emulated, sanitized), one of each class.
std::vector<Isa> Levels() {
#if defined(TIDEMILL_FEW_POSITIONS)
  std::vector<Isa> levels;
  for (const testing::NumericClass numeric : testing::kNumericClasses) {
    if (const auto level = testing::BestLevelOfClass(numeric, DType::kF32)) levels.push_back(*level);
  }
  return levels;
#else
  return testing::LevelsHere();
#endif
}

ModelRunner MakeRunner(const Family& family, DType kv, Isa isa, size_t threads = 1, bool mapped = false) {
  return ModelRunner(std::string(TIDEMILL_FIXTURES) + "/families/" + family.name,
                     {.isa = isa,
                      .threads = threads,
                      .mapped = mapped,
                      .kv_dtype = kv,
                      .context = family.context,
                      .max_rows = kPlainChunk + testing::kBatchMateRows});
}

// Every window is crossed three times at least, also behind the widest chunk; and where there is one, rows were forgotten.
void ExpectWindowsCrossed(const Family& family, const ModelRunner& runner, const SequenceState& state) {
  const auto& windows = runner.model().settings.windows;
  const size_t widest = windows.empty() ? 0 : *std::max_element(windows.begin(), windows.end());
  EXPECT_GT(family.positions, 3 * widest + kLargestChunk);
  EXPECT_EQ(state.earliest_rollback() != 0, widest != 0);
}

class FamilyBits : public ::testing::TestWithParam<Family> {
 protected:
  // The plainest run of each class, its hashes compared with those that are kept.
  std::map<testing::NumericClass, BitsReference> References(DType kv) {
    const Family& family = GetParam();
    std::map<testing::NumericClass, BitsReference> references;
    for (const testing::NumericClass numeric : testing::kNumericClasses) {
      const auto level = testing::BestLevelOfClass(numeric, DType::kF32);
      if (!level.has_value()) continue;
      ModelRunner runner = MakeRunner(family, kv, *level);
      const auto ids = testing::RandomIds(99, family.positions, runner.model().settings.vocab_size);
      const auto& reference = references.try_emplace(numeric, runner, ids).first->second;
      const std::string entry = std::string(family.name) + ", kv " + KvName(kv) + ", " + testing::ClassName(numeric);
      const std::string length = std::to_string(family.positions);
      testing::ExpectStoredHash("families", entry, "logits of " + length, reference.LogitsHash(family.positions));
      testing::ExpectStoredHash("families", entry, "state of " + length, reference.StateHash(family.positions));
    }
    return references;
  }

  void RunOneWay(BitsReference& reference, const std::vector<size_t>& row, Isa isa, uint64_t seed) {
    const Family& family = GetParam();
    const size_t batch = kBatches[row[kBatch]];
    const BitsPlan plan{.batch = batch,
                        .index = seed % batch,
                        .chunk = kChunks[row[kChunk]],
                        .history = static_cast<History>(row[kHistory]),
                        .max_others = kMaxOthers,
                        .seed = seed};
    const size_t threads = kThreads[row[kThread]];
    SCOPED_TRACE(std::string("level ") + std::string(IsaName(isa)) + ", kv " + KvName(kKvTypes[row[kKvFactor]]) +
                 ", batch " + std::to_string(batch) + ", place " + std::to_string(plan.index) + ", chunk " +
                 std::to_string(plan.chunk) + ", threads " + std::to_string(threads) + ", " + kStorages[row[kStorage]] +
                 ", history " + std::to_string(row[kHistory]) + ", seed " + std::to_string(seed));
    ModelRunner runner = MakeRunner(family, kKvTypes[row[kKvFactor]], isa, threads, row[kStorage] == 1);
    auto state = runner.NewState();
    const BitsReport report = testing::RunWithBatchMates(runner, reference.ids(), plan, state, reference.Comparer());
    EXPECT_EQ(reference.CompareLogits(0, family.positions), "");
    EXPECT_EQ(reference.CompareState(*state), "");
    ExpectWindowsCrossed(family, runner, *state);
    EXPECT_GE(report.full_steps, 1U);
    mixed_steps_ += report.mixed_steps;
    EXPECT_EQ(report.rollbacks != 0, plan.history == History::kRolledBack);
    EXPECT_EQ(report.forks != 0, plan.history == History::kForked);
  }

  size_t mixed_steps_ = 0;  // of all runs
};

TEST_P(FamilyBits, EveryPairOfWaysToRun_GivesEqualBits) {
  const std::vector<Isa> levels = Levels();
  const std::vector<size_t> sizes = {
      kKvTypes.size(), kBatches.size(), kChunks.size(), kThreads.size(), kStorages.size(), levels.size(), 3};
  const auto all = [](const testing::ValuePair&) { return true; };
  testing::FnvHash seed;  // another array for each family, so that together they cover more than pairs
  seed.Add(std::as_bytes(std::span(std::string_view(GetParam().name))));
  const auto rows = testing::CoverPairs(sizes, all, seed.value());
  ASSERT_TRUE(testing::MissingPairs(rows, sizes, all).empty());
  std::printf("%zu runs of %zu positions, levels:", rows.size(), GetParam().positions);
  for (const Isa isa : levels) std::printf(" %s", std::string(IsaName(isa)).c_str());
  std::printf("\n");
  ptrdiff_t runs = 0;
  for (size_t kv = 0; kv < kKvTypes.size(); ++kv) {
    auto references = References(kKvTypes[kv]);
    for (size_t r = 0; r < rows.size(); ++r) {
      const Isa isa = levels[rows[r][kLevel]];
      if (rows[r][kKvFactor] != kv || !testing::MayRace(kThreads[rows[r][kThread]])) continue;
      RunOneWay(references.at(testing::ClassOf(isa, DType::kF32)), rows[r], isa, r);
      ++runs;
    }
  }
  EXPECT_EQ(runs, std::count_if(rows.begin(), rows.end(),
                                [](const auto& row) { return testing::MayRace(kThreads[row[kThread]]); }));
  EXPECT_GE(mixed_steps_, static_cast<size_t>(runs));
}

INSTANTIATE_TEST_SUITE_P(All, FamilyBits, ::testing::ValuesIn(kFamilies),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace tidemill::family_bits_test
