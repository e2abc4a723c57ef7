// One answer whoever else is served: tiny models of odd shapes give the same bits in every way to run them.
//
// Ways: weights, KV type, batch and place in it, chunk, threads, storage, level, history of the state, its growth. Every pair of values of two of
// them occurs in some run (a pairwise covering array); each run is compared with the plainest one of its numeric class, whose hashes
// are kept in tests/fixtures/bits/hashes.json.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cfenv>
#include <cstdio>
#include <map>

#include "tests/support/bits_covering.h"
#include "tests/support/bits_hashes.h"
#include "tests/support/bits_levels.h"
#include "tests/support/bits_run.h"
#include "tests/support/model_runner.h"
#include "tests/support/tiny_model.h"

namespace tidemill::bits_test {
namespace {

using testing::BitsPlan;
using testing::BitsReference;
using testing::BitsReport;
using testing::History;
using testing::ModelRunner;
using testing::RunnerOptions;

// 16 chunks of attention and a bit, 8 growth steps, an odd number. Where every instruction costs tens of them (emulated, sanitized)
// a seventh of it, which still has edges of both kinds.
constexpr size_t kAllPositions = 2113, kFewPositions = 321;
#if defined(TIDEMILL_FEW_POSITIONS)
constexpr size_t kPositions = kFewPositions;
#else
constexpr size_t kPositions = kAllPositions;
#endif
constexpr size_t kContext = 2304;
constexpr size_t kLargestChunk = 512;

struct Weights {
  const char* name;
  DType dtype;
  bool f32;  // run dequantised
};
constexpr std::array kWeights = {Weights{"F32", DType::kF32, false},        Weights{"F16", DType::kF16, false},
                                 Weights{"BF16", DType::kBF16, false},      Weights{"Q8_0", DType::kQ8_0, false},
                                 Weights{"Q4_0", DType::kQ4_0, false},      Weights{"Q4_1", DType::kQ4_1, false},
                                 Weights{"Q4_1 as F32", DType::kQ4_1, true}};
constexpr std::array kKvTypes = {DType::kF32, DType::kF16, DType::kBF16};
constexpr std::array<size_t, 4> kBatches = {1, 2, 8, 32};
constexpr std::array kPlaces = {"first", "middle", "last"};
constexpr std::array<size_t, 4> kChunks = {1, 7, 64, kLargestChunk};
constexpr std::array<size_t, 2> kThreads = {1, 2};
constexpr std::array kStorages = {"packed", "mapped"};
constexpr std::array kGrowths = {KvGrowth{.policy = KvPolicy::kBmc, .increment = 256},
                                 KvGrowth{.policy = KvPolicy::kIterative},
                                 KvGrowth{.policy = KvPolicy::kUpfront},
                                 KvGrowth{.policy = KvPolicy::kBmc, .increment = 3},
                                 KvGrowth{.policy = KvPolicy::kGeometric},
                                 KvGrowth{.policy = KvPolicy::kReserve, .increment = 100},
                                 KvGrowth{.policy = KvPolicy::kPaged, .increment = 16}};
constexpr std::array kHistories = {"straight", "rolled back", "forked"};

enum Factor : size_t {
  kWeightsFactor,
  kKvFactor,
  kBatch,
  kPlace,
  kChunk,
  kThread,
  kStorage,
  kLevel,
  kHistory,
  kGrowth,
  kNumFactors
};

std::vector<size_t> FactorSizes(size_t levels) {
  return {kWeights.size(), kKvTypes.size(),  kBatches.size(), kPlaces.size(),    kChunks.size(),
          kThreads.size(), kStorages.size(), levels,          kHistories.size(), kGrowths.size()};
}

// A batch of one has one place, a batch of two has no middle.
bool CanStandTogether(const testing::ValuePair& pair) {
  return pair.factor_a != kBatch || pair.factor_b != kPlace || pair.value_b == 0 || kBatches[pair.value_a] > 2 ||
         (kBatches[pair.value_a] == 2 && pair.value_b == 2);
}

// The model of one kind of weights, as a file.
std::string ModelBytes(DType dtype) {
  return testing::BuildTinyLlama({.vocab = 997,
                                  .hidden = 96,
                                  .layers = 2,
                                  .heads = 4,
                                  .kv_heads = 2,
                                  .head_dim = 40,
                                  .ffn = 224,
                                  .context = kContext,
                                  .dtype = dtype,
                                  .seed = 7});
}
const std::string& ModelFile(const Weights& weights) {
  static std::map<std::string, std::string> paths;
  std::string& path = paths[weights.name];
  if (path.empty())
    path = testing::WriteTemporary(std::string("bits_") + weights.name + ".gguf", ModelBytes(weights.dtype));
  return path;
}

std::string KvName(DType kv) { return kv == DType::kF32 ? "f32" : kv == DType::kF16 ? "f16" : "bf16"; }

ModelRunner MakeRunner(const Weights& weights, DType kv, Isa isa, size_t threads = 1, bool mapped = false,
                       const KvGrowth& growth = {}) {
  return ModelRunner(ModelFile(weights), {.isa = isa,
                                          .threads = threads,
                                          .f32 = weights.f32,
                                          .mapped = mapped,
                                          .kv_dtype = kv,
                                          .growth = growth,
                                          .context = kContext,
                                          .max_rows = kLargestChunk + testing::kBatchMateRows});
}

struct Way {
  Isa isa;
  size_t threads;
  bool mapped;
  KvGrowth growth;
  BitsPlan plan;
  std::string description;
};

Way MakeWay(const std::vector<size_t>& row, std::span<const Isa> levels, uint64_t seed) {
  const size_t batch = kBatches[row[kBatch]];
  const std::array places = {size_t{0}, batch / 2, batch - 1};
  Way run{.isa = levels[row[kLevel]],
          .threads = kThreads[row[kThread]],
          .mapped = row[kStorage] == 1,
          .growth = kGrowths[row[kGrowth]],
          .plan = {.batch = batch,
                   .index = places[row[kPlace]],
                   .chunk = kChunks[row[kChunk]],
                   .history = static_cast<History>(row[kHistory]),
                   .seed = seed},
          .description = {}};
  run.description = std::string("weights ") + kWeights[row[kWeightsFactor]].name + ", kv " +
                    KvName(kKvTypes[row[kKvFactor]]) + ", level " + std::string(IsaName(run.isa)) + ", batch " +
                    std::to_string(batch) + ", place " + kPlaces[row[kPlace]] + ", chunk " +
                    std::to_string(run.plan.chunk) + ", threads " + std::to_string(run.threads) + ", " +
                    kStorages[row[kStorage]] + ", " + kHistories[row[kHistory]] + ", growth " +
                    std::to_string(row[kGrowth]) + ", seed " + std::to_string(seed);
  return run;
}

// What has to have happened for a run to mean anything.
void ExpectForced(const BitsPlan& plan, const BitsReport& report) {
  EXPECT_GE(report.steps, (kPositions + plan.chunk - 1) / plan.chunk);
  EXPECT_GE(report.full_steps, 1U);
  if (plan.batch > 1) {
    EXPECT_GE(report.joins, plan.batch - 1);
    // A run that is no longer than one chunk may end all its prompts in one step.
    if (kPositions > plan.chunk) {
      EXPECT_GE(report.mixed_steps, 1U);
    }
  }
  EXPECT_EQ(report.rollbacks != 0, plan.history == History::kRolledBack);
  EXPECT_EQ(report.forks != 0, plan.history == History::kForked);
}

TEST(TinyModelBits, CoveringArray_HasEveryPair) {
  for (const size_t levels : {1, 2, 5}) {
    const std::vector<size_t> sizes = FactorSizes(levels);
    auto rows = testing::CoverPairs(sizes, CanStandTogether, 1);
    EXPECT_TRUE(testing::MissingPairs(rows, sizes, CanStandTogether).empty());
    EXPECT_LE(rows.size(), 60U) << "of " << levels << " levels";
    for (const auto& row : rows) {
      ASSERT_EQ(row.size(), kNumFactors);
      EXPECT_TRUE(CanStandTogether({kBatch, row[kBatch], kPlace, row[kPlace]}));
    }
    rows.pop_back();  // each row is there for a pair that no row before it has
    EXPECT_FALSE(testing::MissingPairs(rows, sizes, CanStandTogether).empty());
  }
}

TEST(TinyModelBits, EveryPairOfWaysToRun_GivesEqualBits) {
  const std::vector<Isa> levels = testing::LevelsHere();
  const std::vector<size_t> sizes = FactorSizes(levels.size());
  const auto rows = testing::CoverPairs(sizes, CanStandTogether, 1);
  ASSERT_TRUE(testing::MissingPairs(rows, sizes, CanStandTogether).empty());
  std::printf("%zu runs of %zu positions; %s\n", rows.size(), kPositions, testing::DescribeLevels().c_str());
  const auto ids = testing::RandomIds(99, kPositions, 997);
  BitsReport total;
  ptrdiff_t runs = 0;
  for (size_t w = 0; w < kWeights.size(); ++w) {
    testing::FnvHash model_hash;
    const std::string bytes = ModelBytes(kWeights[w].dtype);
    model_hash.Add(std::as_bytes(std::span(bytes)));
    testing::ExpectStoredHash("tiny", kWeights[w].name, "model", model_hash.value());
    for (size_t kv = 0; kv < kKvTypes.size(); ++kv) {
      std::map<testing::NumericClass, BitsReference> references;
      for (const testing::NumericClass numeric : testing::kNumericClasses) {
        const auto level = testing::BestLevelOfClass(numeric, kWeights[w].dtype);
        if (!level.has_value()) continue;
        ModelRunner runner = MakeRunner(kWeights[w], kKvTypes[kv], *level);
        const auto& reference = references.try_emplace(numeric, runner, ids).first->second;
        const std::string entry =
            std::string(kWeights[w].name) + ", kv " + KvName(kKvTypes[kv]) + ", " + testing::ClassName(numeric);
        for (const size_t length : {kFewPositions, kAllPositions}) {
          if (length > kPositions) continue;
          testing::ExpectStoredHash("tiny", entry, "logits of " + std::to_string(length), reference.LogitsHash(length));
          testing::ExpectStoredHash("tiny", entry, "state of " + std::to_string(length), reference.StateHash(length));
        }
      }
      for (size_t r = 0; r < rows.size(); ++r) {
        if (rows[r][kWeightsFactor] != w || rows[r][kKvFactor] != kv) continue;
        if (!testing::MayRace(kThreads[rows[r][kThread]])) continue;
        Way run = MakeWay(rows[r], levels, r);
        SCOPED_TRACE(run.description);
        BitsReference& reference = references.at(testing::ClassOf(run.isa, kWeights[w].dtype));
        ModelRunner runner = MakeRunner(kWeights[w], kKvTypes[kv], run.isa, run.threads, run.mapped, run.growth);
        auto state = runner.NewState();
        BitsReport report = testing::RunWithBatchMates(runner, ids, run.plan, state, reference.Comparer());
        // By chance two prompts may end in one step; another seed then, once.
        if (run.plan.batch > 1 && kPositions > run.plan.chunk && report.mixed_steps == 0) {
          run.plan.seed += rows.size();
          state = runner.NewState();
          report = testing::RunWithBatchMates(runner, ids, run.plan, state, reference.Comparer());
        }
        EXPECT_EQ(reference.CompareLogits(0, kPositions), "");
        EXPECT_EQ(reference.CompareState(*state), "");
        ExpectForced(run.plan, report);
        ++runs;
        total.leaves += report.leaves;
        total.mixed_steps += report.mixed_steps;
      }
    }
  }
  EXPECT_EQ(runs, std::count_if(rows.begin(), rows.end(),
                                [](const auto& row) { return testing::MayRace(kThreads[row[kThread]]); }));
  EXPECT_GE(total.leaves, static_cast<size_t>(runs));
  EXPECT_GE(total.mixed_steps, 10 * static_cast<size_t>(runs));
}

// The three below say by name what the histories above mix with everything else.
constexpr size_t kShort = 400;

// Calls body(runner, reference of its class) on every level.
template <typename Body>
void ForEachLevel(const Weights& weights, DType kv, Body body) {
  const auto ids = testing::RandomIds(5, kShort, 997);
  for (const Isa isa : testing::LevelsHere()) {
    SCOPED_TRACE(std::string("level ") + std::string(IsaName(isa)) + ", weights " + weights.name + ", kv " +
                 KvName(kv));
    ModelRunner plain =
        MakeRunner(weights, kv, *testing::BestLevelOfClass(testing::ClassOf(isa, weights.dtype), weights.dtype));
    BitsReference reference(plain, ids);
    ModelRunner runner = MakeRunner(weights, kv, isa, 2);
    body(runner, reference);
  }
}

void Feed(ModelRunner& runner, SequenceState& state, std::span<const int32_t> ids, size_t chunk,
          const testing::PositionSink& sink) {
  for (size_t first = 0; first < ids.size(); first += chunk) {
    const auto part = ids.subspan(first, std::min(chunk, ids.size() - first));
    const size_t length = state.length();
    ASSERT_TRUE(state.Reserve(part.size()).ok());
    const StepSequence step{.state = &state, .tokens = part, .rows = Wanted::kAll};
    runner.executor().Run(
        {&step, 1}, [&](size_t, size_t token, std::span<float> row) { sink(length + token, row); }, nullptr);
    state.Commit(testing::KeysOf(part));
  }
}

TEST(TinyModelBits, RollbackThenReplay_EqualsNeverRolledBack) {
  ForEachLevel(kWeights[3], DType::kF16, [](ModelRunner& runner, BitsReference& reference) {
    const auto ids = reference.ids();
    const auto state = runner.NewState();
    Feed(runner, *state, ids, 64, reference.Comparer());
    ASSERT_TRUE(state->Rollback(333).ok());
    EXPECT_EQ(reference.CompareState(*state), "");
    const auto others = testing::RandomIds(6, 90, 997);
    Feed(runner, *state, others, 50, [](size_t, std::span<const float>) {});
    ASSERT_TRUE(state->Rollback(200).ok());
    EXPECT_EQ(reference.CompareLogits(0, kShort), "");
    Feed(runner, *state, ids.subspan(200), 33, reference.Comparer());
    EXPECT_EQ(reference.CompareLogits(200, kShort), "");
    EXPECT_EQ(reference.CompareState(*state), "");
  });
}

TEST(TinyModelBits, ForkThenContinueTogether_EqualsUnforked) {
  ForEachLevel(kWeights[5], DType::kF32, [](ModelRunner& runner, BitsReference& reference) {
    const auto ids = reference.ids();
    const auto parent = runner.NewState();
    Feed(runner, *parent, ids.first(333), 100, reference.Comparer());
    auto forked = parent->Fork();
    ASSERT_TRUE(forked.ok());
    const auto child = std::move(forked).value();
    const auto compare = reference.Comparer();
    for (size_t first = 333; first < kShort; first += 19) {  // both in one step, at the same positions
      const auto part = ids.subspan(first, std::min<size_t>(19, kShort - first));
      ASSERT_TRUE(parent->Reserve(part.size()).ok() && child->Reserve(part.size()).ok());
      const std::array step = {StepSequence{.state = child.get(), .tokens = part, .rows = Wanted::kAll},
                               StepSequence{.state = parent.get(), .tokens = part, .rows = Wanted::kAll}};
      runner.executor().Run(
          step, [&](size_t, size_t token, std::span<float> row) { compare(first + token, row); }, nullptr);
      child->Commit(testing::KeysOf(part));
      parent->Commit(testing::KeysOf(part));
    }
    EXPECT_EQ(reference.CompareLogits(0, kShort), "");
    EXPECT_EQ(reference.CompareState(*child), "");
    EXPECT_EQ(reference.CompareState(*parent), "");
  });
}

TEST(TinyModelBits, RestoreThenContinue_EqualsNeverStored) {
  ForEachLevel(kWeights[0], DType::kBF16, [](ModelRunner& runner, BitsReference& reference) {
    const auto state = runner.NewState();
    ASSERT_TRUE(state->Restore(reference.Checkpoint(333)).ok());
    Feed(runner, *state, reference.ids().subspan(333), 1, reference.Comparer());
    EXPECT_EQ(reference.CompareLogits(333, kShort), "");
    EXPECT_EQ(reference.CompareState(*state), "");
  });
}

// A caller that rounds upwards and flushes denormals gets the same bits, and has its own settings afterwards. Q8_0: sums of its products
// may be denormals (kernels/cpu/biased_block_avx2-inl.h).
void RunInAnotherFloatEnvironment(const Weights& weights) {
  ForEachLevel(weights, DType::kF16, [](ModelRunner& runner, BitsReference& reference) {
    const auto state = runner.NewState();
    std::fenv_t before;
    ASSERT_EQ(std::fegetenv(&before), 0);
    std::fesetround(FE_UPWARD);
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040);  // flush to zero, denormals are zero
    const unsigned csr = __builtin_ia32_stmxcsr();
#endif
    Feed(runner, *state, reference.ids(), 128, reference.Comparer());
#if defined(__x86_64__)
    const unsigned csr_after = __builtin_ia32_stmxcsr();
#endif
    const int rounding_after = std::fegetround();
    std::fesetenv(&before);
#if defined(__x86_64__)
    EXPECT_EQ(csr_after & 0xFFC0U, csr & 0xFFC0U);
#endif
    EXPECT_EQ(rounding_after, FE_UPWARD);
    EXPECT_EQ(reference.CompareLogits(0, kShort), "");
    EXPECT_EQ(reference.CompareState(*state), "");
  });
}

TEST(TinyModelBits, FloatEnvironmentOfTheCaller_ChangesNothing) { RunInAnotherFloatEnvironment(kWeights[4]); }
TEST(TinyModelBits, FloatEnvironmentOfTheCaller_ChangesNoSumsOfQ8) { RunInAnotherFloatEnvironment(kWeights[3]); }

// Weights that are unpacked while they are loaded round.
TEST(TinyModelBits, FloatEnvironmentOfWhoLoads_ChangesNothing) {
  constexpr const Weights& kUnpacked = kWeights[6];
  const std::vector<int32_t> ids = {1, 500, 3, 996, 77};
  std::vector<float> logits[2];
  for (const int rounding : {FE_TONEAREST, FE_UPWARD}) {
    std::fenv_t before;
    ASSERT_EQ(std::fegetenv(&before), 0);
    std::fesetround(rounding);
    ModelRunner runner(ModelFile(kUnpacked), {.f32 = kUnpacked.f32, .max_rows = 8});
    std::fesetenv(&before);
    const auto state = runner.NewState();
    logits[rounding == FE_UPWARD] = runner.Feed(*state, ids, ids.size());
  }
  EXPECT_EQ(logits[0], logits[1]);
}

}  // namespace
}  // namespace tidemill::bits_test
