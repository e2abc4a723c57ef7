// Sparse attention gives one answer whoever else is served: as tests/family_bits_test.cc, for models whose rows are sparse from a position on, as
// those of generated tokens are, in chunks, too.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "state/sparse_kv_layer.h"
#include "tests/fixtures_path.h"
#include "tests/support/bits_covering.h"
#include "tests/support/bits_hashes.h"
#include "tests/support/bits_levels.h"
#include "tests/support/bits_run.h"
#include "tests/support/model_runner.h"

namespace tidemill::sparse_bits_test {
namespace {

using testing::BitsPlan;
using testing::BitsReference;
using testing::BitsReport;
using testing::History;
using testing::ModelRunner;

constexpr size_t kFrom = 40;
// Of columns, five granules, of which one begins a second block.
constexpr size_t kPositions = 329, kContext = 512, kPlainChunk = 512;
constexpr size_t kMaxOthers = 60;

struct TestedModel {
  const char* path;
  size_t positions, context;
  float floor;  // of the last form: met now and then
};
// Groups of 6 query heads, and of 4; a window of one layer; norms of queries and keys.
constexpr std::array kModels = {TestedModel{"sparse/llama_group6", kPositions, kContext, 0.85F},
                                TestedModel{"sparse/mistral", kPositions, kContext, 0.85F},
                                TestedModel{"sparse/gemma3_text", kPositions, kContext, 0.95F},
                                TestedModel{"families/qwen3", 121, 128, 0.55F}};

struct TestedForm {
  const char* name;
  SparseLayer layer;
  bool has_floor = false;
};
const std::array kForms = {
    TestedForm{"sparq", {{.kind = SparseKind::kSparq, .r = 4, .k = 24, .local = 6}, true}},
    TestedForm{"eval", {{.kind = SparseKind::kSparq, .rule = SparseRule::kEval, .r = 5, .k = 17, .local = 3}, false}},
    TestedForm{"topk", {{.kind = SparseKind::kTopk, .r = 16, .k = 20, .local = 5}, true}},
    TestedForm{"floor", {{.kind = SparseKind::kSparq, .r = 4, .k = 24, .local = 6}, true}, true}};

constexpr std::array kKvTypes = {DType::kF32, DType::kF16};
constexpr std::array<size_t, 3> kBatches = {1, 2, 8};
constexpr std::array<size_t, 3> kChunks = {1, 7, kPlainChunk};
constexpr std::array<size_t, 2> kThreads = {1, 3};
constexpr std::array kGrowths = {KvGrowth{.policy = KvPolicy::kBmc, .increment = 48},
                                 KvGrowth{.policy = KvPolicy::kUpfront}, KvGrowth{.policy = KvPolicy::kGeometric},
                                 KvGrowth{.policy = KvPolicy::kPaged, .increment = 16}};

enum Factor : size_t { kForm, kKvFactor, kBatch, kChunk, kThread, kLevel, kHistory, kGrowth };

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

// Weights of the fixtures of tests/fixtures/sparse are in BF16: as F32 there are two classes.
ModelRunner MakeRunner(const TestedModel& model, const TestedForm* form, DType kv, Isa isa, size_t threads = 1,
                       const KvGrowth& growth = {}) {
  testing::RunnerOptions options{.isa = isa,
                                 .threads = threads,
                                 .f32 = true,
                                 .kv_dtype = kv,
                                 .growth = growth,
                                 .context = model.context,
                                 .max_rows = kPlainChunk + testing::kBatchMateRows};
  if (form != nullptr) {
    options.sparse = form->layer;
    if (form->has_floor) options.sparse->form.floor = model.floor;
    options.sparse_from = kFrom;
  }
  return ModelRunner(std::string(TIDEMILL_FIXTURES) + "/" + model.path, options);
}

SparseCounts CountsOf(SequenceState& state) {
  SparseCounts sum;
  for (size_t i = 0; i < state.num_layers(); ++i) {
    if (SparseKvLayer* layer = SparseOf(state.layer(i))) sum += layer->counts();
  }
  return sum;
}

class SparseBits : public ::testing::TestWithParam<TestedModel> {
 protected:
  // The plainest run of each class, its hashes compared with those that are kept.
  std::map<testing::NumericClass, BitsReference> References(const TestedForm& form, DType kv) {
    const TestedModel& model = GetParam();
    std::map<testing::NumericClass, BitsReference> references;
    for (const testing::NumericClass numeric : testing::kNumericClasses) {
      const auto level = testing::BestLevelOfClass(numeric, DType::kF32);
      if (!level.has_value()) continue;
      ModelRunner runner = MakeRunner(model, &form, kv, *level);
      const auto ids = testing::RandomIds(99, model.positions, runner.model().settings.vocab_size);
      const auto& reference = references.try_emplace(numeric, runner, ids).first->second;
      const std::string entry = std::string(model.path) + ", " + form.name + ", kv " + KvName(kv) + ", " +
                                testing::ClassName(numeric),
                        length = std::to_string(model.positions);
      testing::ExpectStoredHash("sparse", entry, "logits of " + length, reference.LogitsHash(model.positions));
      testing::ExpectStoredHash("sparse", entry, "state of " + length, reference.StateHash(model.positions));
    }
    return references;
  }

  void RunOneWay(BitsReference& reference, const std::vector<size_t>& row, Isa isa, uint64_t seed) {
    const TestedModel& model = GetParam();
    const size_t batch = kBatches[row[kBatch]];
    const BitsPlan plan{.batch = batch,
                        .index = seed % batch,
                        .chunk = kChunks[row[kChunk]],
                        .history = static_cast<History>(row[kHistory]),
                        .max_others = kMaxOthers,
                        .seed = seed};
    const size_t threads = kThreads[row[kThread]];
    SCOPED_TRACE(std::string("level ") + std::string(IsaName(isa)) + ", " + kForms[row[kForm]].name + ", kv " +
                 KvName(kKvTypes[row[kKvFactor]]) + ", batch " + std::to_string(batch) + ", place " +
                 std::to_string(plan.index) + ", chunk " + std::to_string(plan.chunk) + ", threads " +
                 std::to_string(threads) + ", history " + std::to_string(row[kHistory]) + ", growth " +
                 std::to_string(row[kGrowth]) + ", seed " + std::to_string(seed));
    ModelRunner runner =
        MakeRunner(model, &kForms[row[kForm]], kKvTypes[row[kKvFactor]], isa, threads, kGrowths[row[kGrowth]]);
    auto state = runner.NewState();
    const BitsReport report = testing::RunWithBatchMates(runner, reference.ids(), plan, state, reference.Comparer());
    EXPECT_EQ(reference.CompareLogits(0, model.positions), "");
    EXPECT_EQ(reference.CompareState(*state), "");
    EXPECT_GE(report.full_steps, 1U);
    EXPECT_EQ(report.rollbacks != 0, plan.history == History::kRolledBack);
    EXPECT_EQ(report.forks != 0, plan.history == History::kForked);
    mixed_steps_ += report.mixed_steps;
  }

  size_t mixed_steps_ = 0;  // of all runs
};

TEST_P(SparseBits, EveryPairOfWaysToRun_GivesEqualBits) {
  const std::vector<Isa> levels = Levels();
  const std::vector<size_t> sizes = {
      kForms.size(),  kKvTypes.size(), kBatches.size(), kChunks.size(), kThreads.size(), levels.size(), 3,
      kGrowths.size()};
  const auto all = [](const testing::ValuePair&) { return true; };
  const auto rows = testing::CoverPairs(sizes, all, 1 + GetParam().path[8]);
  ASSERT_TRUE(testing::MissingPairs(rows, sizes, all).empty());
  std::printf("%zu runs of %zu positions\n", rows.size(), GetParam().positions);
  ptrdiff_t runs = 0;
  for (size_t form = 0; form < kForms.size(); ++form) {
    for (size_t kv = 0; kv < kKvTypes.size(); ++kv) {
      auto references = References(kForms[form], kKvTypes[kv]);
      for (size_t r = 0; r < rows.size(); ++r) {
        if (rows[r][kForm] != form || rows[r][kKvFactor] != kv || !testing::MayRace(kThreads[rows[r][kThread]]))
          continue;
        const Isa isa = levels[rows[r][kLevel]];
        RunOneWay(references.at(testing::ClassOf(isa, DType::kF32)), rows[r], isa, r);
        ++runs;
      }
    }
  }
  EXPECT_EQ(runs, std::count_if(rows.begin(), rows.end(),
                                [](const auto& row) { return testing::MayRace(kThreads[row[kThread]]); }));
  EXPECT_GE(mixed_steps_, static_cast<size_t>(runs));
}

// Else nothing above would be of sparse attention.
TEST_P(SparseBits, Forms_ChangeRowsFromTheirPositionOn) {
  ModelRunner plain = MakeRunner(GetParam(), nullptr, DType::kF16, DetectIsa());
  const auto ids = testing::RandomIds(99, GetParam().positions, plain.model().settings.vocab_size);
  const BitsReference dense(plain, ids);
  std::vector<uint64_t> hashes = {dense.LogitsHash(ids.size())};
  for (const TestedForm& form : kForms) {
    ModelRunner runner = MakeRunner(GetParam(), &form, DType::kF16, DetectIsa());
    const BitsReference sparse(runner, ids);
    EXPECT_EQ(sparse.LogitsHash(kFrom), dense.LogitsHash(kFrom)) << form.name;
    hashes.push_back(sparse.LogitsHash(ids.size()));
    const auto state = runner.NewState();
    (void)runner.Feed(*state, ids, kPlainChunk);
    const SparseCounts counts = CountsOf(*state);
    EXPECT_GE(counts.rows, ids.size() - kFrom) << form.name;
    EXPECT_EQ(counts.dense_groups != 0, form.has_floor) << form.name;
    EXPECT_LT(counts.dense_groups, counts.groups) << form.name;
  }
  std::sort(hashes.begin(), hashes.end());
  EXPECT_EQ(std::unique(hashes.begin(), hashes.end()), hashes.end()) << "two forms are one";
}

TEST_P(SparseBits, RestoreThenContinue_EqualsNeverStored) {
  for (const TestedForm& form : kForms) {
    for (const testing::NumericClass numeric : testing::kNumericClasses) {
      const auto level = testing::BestLevelOfClass(numeric, DType::kF32);
      if (!level.has_value()) continue;
      ModelRunner runner = MakeRunner(GetParam(), &form, DType::kF16, *level);
      const auto ids = testing::RandomIds(99, GetParam().positions, runner.model().settings.vocab_size);
      const size_t vocab = runner.model().settings.vocab_size;
      const auto whole = runner.NewState(), part = runner.NewState();
      const std::vector<float> logits = runner.Feed(*whole, ids, kPlainChunk);
      for (const auto& [from, to] : {std::pair<size_t, size_t>{0, 30}, {30, 64}, {64, 100}}) {
        (void)runner.Feed(*part, std::span(ids).subspan(from, to - from), 9);
        const auto restored = runner.NewState();
        ASSERT_TRUE(restored->Restore(part->Checkpoint().value()).ok());
        const std::vector<float> more = runner.Feed(*restored, std::span(ids).subspan(to), to == 30 ? 1 : 40);
        EXPECT_TRUE(std::equal(more.begin(), more.end(), logits.begin() + static_cast<ptrdiff_t>(to * vocab)))
            << form.name << ", " << IsaName(*level) << ", from " << to;
        EXPECT_EQ(restored->Checkpoint().value(), whole->Checkpoint().value()) << form.name << ", from " << to;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, SparseBits, ::testing::ValuesIn(kModels), [](const auto& test) {
  std::string name = test.param.path;
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
});

}  // namespace
}  // namespace tidemill::sparse_bits_test
