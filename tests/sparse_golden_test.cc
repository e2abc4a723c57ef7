// Seeded checkpoints whose generated tokens attend sparsely, against transformers with an oracle's attention
// (tests/fixtures/sparse/README.md): logits of whole models, and the kernel alone on queries, keys and values of one layer.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>

#include "base/testing/levels.h"
#include "kernels/sparse_attention.h"
#include "kernels/testing/compare.h"
#include "state/sparse_kv_layer.h"
#include "tests/fixtures_path.h"
#include "tests/support/golden_file.h"
#include "tests/support/model_runner.h"

namespace tidemill::sparse_golden_test {
namespace {

using testing::GoldenFile;
using testing::ModelRunner;

constexpr const char* kFolders[] = {"gemma3_text",  "gpt_neox",     "llama_group4",
                                    "llama_group6", "llama_group7", "mistral"};
constexpr double kTolerance = 1e-4;        // of logits, as family_golden_test.cc has it
constexpr double kKernelTolerance = 1e-5;  // of alpha and of outputs, whose values are of order 1

std::string Fixture(const std::string& name) { return std::string(TIDEMILL_FIXTURES) + "/sparse/" + name; }

SparseForm FormOf(const nlohmann::json& golden) {
  const std::string kind = golden.at("kind"), rule = golden.at("rule");
  SparseForm form;
  form.kind = kind == "sparq"  ? SparseKind::kSparq
              : kind == "topk" ? SparseKind::kTopk
              : kind == "h2o"  ? SparseKind::kH2o
                               : SparseKind::kWindow;
  form.rule = rule == "paper" ? SparseRule::kPaper : SparseRule::kEval;
  form.reallocate = golden.at("reallocate");
  form.r = golden.at("r");
  form.k = golden.at("k");
  form.local = golden.at("local");
  return form;
}

bool OfKernel(const SparseForm& form) { return form.kind == SparseKind::kSparq || form.kind == SparseKind::kTopk; }

struct Fed {
  Isa isa = DetectIsa();             // of the runner
  const SparseForm* form = nullptr;  // null: dense
  std::vector<size_t> layers;        // that are sparse
  bool columns = true;
  size_t rows = 1;  // forced tokens of a step
};

// Logits of the forced tokens behind the prompt, which is dense. Sets `counts` of each sparse layer.
std::vector<float> Follow(ModelRunner& runner, const GoldenFile& golden, const Fed& fed,
                          std::vector<SparseCounts>* counts = nullptr) {
  const std::vector<int32_t> prompt = golden.Ids(0, "input_ids"), forced = golden.Ids(0, "forced_ids");
  std::vector<std::optional<SparseLayer>> sparse;
  if (fed.form != nullptr) {
    sparse.resize(runner.model().layers.size());
    for (const size_t layer : fed.layers) sparse[layer] = SparseLayer{*fed.form, fed.columns};
  }
  const auto state =
      runner.model().MakeState({.kv_dtype = DType::kF32, .max_length = 512, .sparse = sparse, .isa = fed.isa});
  runner.Feed(*state, prompt, 100, true);
  std::vector<float> logits;
  for (size_t first = 0; first < forced.size(); first += fed.rows) {
    const auto rows = std::span(forced).subspan(first, std::min(fed.rows, forced.size() - first));
    EXPECT_TRUE(state->Reserve(rows.size()).ok());
    StepSequence step{.state = state.get(), .tokens = rows, .rows = Wanted::kAll};
    if (fed.form != nullptr) step.sparse_from = prompt.size();
    EXPECT_TRUE(runner.executor().Run(
        {&step, 1}, [&](size_t, size_t, std::span<float> row) { logits.insert(logits.end(), row.begin(), row.end()); },
        nullptr));
    state->Commit(testing::KeysOf(rows));
  }
  for (const size_t layer : counts == nullptr ? std::vector<size_t>() : fed.layers)
    counts->push_back(SparseOf(state->layer(layer))->counts());
  return logits;
}

testing::RunnerOptions Options(Isa isa) { return {.isa = isa, .threads = 2, .f32 = true, .context = 512}; }

TEST(SparseGolden, DenseAttention_MatchesTransformers) {
  for (const std::string folder : kFolders) {
    SCOPED_TRACE(folder);
    const GoldenFile golden(Fixture(folder));
    ModelRunner runner(Fixture(folder), Options(DetectIsa()));
    const std::vector<float> expected = golden.Tensor(0, "dense.logits");
    ASSERT_EQ(expected.size(), golden.Ids(0, "forced_ids").size() * runner.model().settings.vocab_size);
    EXPECT_TRUE(testing::Within(expected, Follow(runner, golden, {}), [](size_t) { return kTolerance; }));
  }
}

// Where a golden is near the dense logits a form that is not in force would pass.
TEST(SparseGolden, EveryForm_IsFarFromDense) {
  for (const std::string folder : kFolders) {
    const GoldenFile golden(Fixture(folder));
    const std::vector<float> dense = golden.Tensor(0, "dense.logits");
    ASSERT_FALSE(golden.json().at("forms").empty());
    for (const auto& form : golden.json().at("forms")) {
      const std::vector<float> sparse = golden.Tensor(0, form.at("name").get<std::string>() + ".logits");
      EXPECT_FALSE(testing::Within(dense, sparse, [](size_t) { return 1000 * kTolerance; }))
          << folder << form.at("name");
    }
  }
}

void ExpectForms(bool of_kernel, std::span<const size_t> rows) {
  size_t forms = 0;
  for (const std::string folder : kFolders) {
    const GoldenFile golden(Fixture(folder));
    for (const Isa isa : testing::LevelsHere()) {
      ModelRunner runner(Fixture(folder), Options(isa));
      for (const auto& about : golden.json().at("forms")) {
        const SparseForm form = FormOf(about);
        if (OfKernel(form) != of_kernel) continue;
        const std::string name = about.at("name");
        const std::vector<float> expected = golden.Tensor(0, name + ".logits");
        for (const bool columns : {true, false}) {
          for (const size_t n : rows) {
            SCOPED_TRACE(folder + " " + name + " level " + std::string(IsaName(isa)) +
                         (columns ? " columns" : " rows") + " by " + std::to_string(n));
            const Fed fed{.isa = isa, .form = &form, .layers = about.at("layers"), .columns = columns, .rows = n};
            EXPECT_TRUE(testing::Within(expected, Follow(runner, golden, fed), [](size_t) { return kTolerance; }));
            ++forms;
          }
        }
      }
    }
  }
  EXPECT_GT(forms, 0U);
}

TEST(SparseGolden, SparqAndTopK_MatchTransformersWithTheOracle) { ExpectForms(true, std::vector<size_t>{1, 5}); }

TEST(SparseGolden, HeavyHittersAndWindow_MatchTransformersWithTheOracle) { ExpectForms(false, std::vector<size_t>{1}); }

// Of every step and layer: what the oracle finds who computes dense attention beside the sparse one, on the same keys and values.
TEST(SparseGolden, Audits_AreADenseRunsOnTheSameState) {
  size_t audits = 0;
  for (const std::string folder : kFolders) {
    const GoldenFile golden(Fixture(folder));
    const size_t steps = golden.Ids(0, "forced_ids").size();
    ModelRunner runner(Fixture(folder), Options(DetectIsa()));
    for (const auto& about : golden.json().at("forms")) {
      SparseForm form = FormOf(about);
      if (!OfKernel(form)) continue;
      form.audit = 1;
      const std::string name = about.at("name");
      const std::vector<float> expected = golden.Tensor(0, name + ".audits");
      for (const size_t rows : {1, 5}) {
        SCOPED_TRACE(folder + " " + name + " by " + std::to_string(rows));
        std::vector<SparseCounts> counts;
        Follow(runner, golden, {.form = &form, .layers = about.at("layers"), .rows = rows}, &counts);
        ASSERT_EQ(expected.size(), 3 * counts.size());
        std::vector<float> found;
        for (const SparseCounts& layer : counts) {
          EXPECT_EQ(layer.audits, steps);
          for (const double sum : {layer.kept_mass, layer.error, layer.agreement})
            found.push_back(static_cast<float>(sum / static_cast<double>(steps)));
          ++audits;
        }
        EXPECT_TRUE(testing::Within(expected, found, [](size_t) { return kKernelTolerance; }));
      }
    }
  }
  EXPECT_GE(audits, 4 * std::size(kFolders));
}

// Keys and values of one layer [kv_heads, positions, head_dim] with the columns of their first positions.
struct Layer {
  DType dtype = DType::kF32;
  size_t kv_heads = 0, head_dim = 0, positions = 0;
  std::vector<std::byte> keys, values, columns;
  std::vector<double> sums;
  ColumnBlock block;

  size_t bytes() const { return InfoOf(dtype).block_bytes; }

  // The first `filled` positions stand in columns; what is not filled holds NaN.
  ContextColumns Fill(size_t filled, bool with_columns) {
    if (filled == 0) return {};
    columns.assign(kv_heads * head_dim * kColumnRows * bytes(), std::byte{0xFF});
    sums.assign(kColumnRows / kSumRows * kv_heads * head_dim, std::numeric_limits<double>::quiet_NaN());
    for (size_t h = 0; h < kv_heads; ++h) {
      for (size_t i = 0; i < head_dim; ++i) {
        double before = 0;
        for (size_t first = 0; first < filled; first += kSumRows) {
          double sum = 0;
          for (size_t j = first; j < first + kSumRows; ++j) {
            const size_t from = (h * positions + j) * head_dim + i;
            sum += Value(from);
            std::memcpy(columns.data() + ((h * head_dim + i) * kColumnRows + j) * bytes(), keys.data() + from * bytes(),
                        bytes());
          }
          before += sum;
          sums[(first / kSumRows * kv_heads + h) * head_dim + i] = before;
        }
      }
    }
    block = {.columns = with_columns ? columns.data() : nullptr, .sums = sums.data()};
    return {.blocks = {&block, 1}, .first = 0, .filled = filled};
  }

  double Value(size_t element) const {
    if (dtype == DType::kF32) {
      float value = 0;
      std::memcpy(&value, values.data() + element * sizeof(value), sizeof(value));
      return static_cast<double>(value);
    }
    uint16_t bits = 0;
    std::memcpy(&bits, values.data() + element * sizeof(bits), sizeof(bits));
    return static_cast<double>(BFloat16ToFloat(bits));
  }
};

Layer ReadLayer(const GoldenFile& golden, DType dtype) {
  const FileTensor stored = golden.Stored(0, "kernel.keys");
  Layer layer;
  layer.dtype = dtype;
  layer.head_dim = stored.cols;
  layer.positions = golden.Ids(0, "input_ids").size() + golden.Ids(0, "forced_ids").size();
  layer.kv_heads = stored.rows / layer.positions;
  EXPECT_EQ(layer.kv_heads * layer.positions, stored.rows);
  const auto read = [&](const char* name) {
    const FileTensor tensor = golden.Stored(0, name);
    if (dtype == DType::kBF16) return std::vector<std::byte>(tensor.bytes.begin(), tensor.bytes.end());
    const std::vector<float> values = golden.Tensor(0, name);
    const auto bytes = std::as_bytes(std::span(values));
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  };
  layer.keys = read("kernel.keys");
  layer.values = read("kernel.values");
  return layer;
}

using RunTasks = std::function<void(const AttentionShape& shape, std::span<const SparseTask> tasks)>;

// Runs the golden's rows of one form by `attention`, as one call, and compares what it keeps, its alpha and its outputs.
void ExpectRows(const GoldenFile& golden, const nlohmann::json& about, Layer& layer, ContextColumns columns,
                const RunTasks& attention) {
  const std::string name = "kernel." + about.at("name").get<std::string>();
  const SparseForm form = FormOf(about);
  const FileTensor stored = golden.Stored(0, "kernel.q");
  const std::vector<float> q = golden.Tensor(0, "kernel.q"), kept = golden.Tensor(0, name + ".kept"),
                           alpha = golden.Tensor(0, name + ".alpha"), out = golden.Tensor(0, name + ".out");
  const std::vector<size_t> steps = golden.json().at("kernel_steps");
  const size_t prompt = golden.Ids(0, "input_ids").size(), width = stored.cols, heads = width / layer.head_dim;
  AttentionShape shape;
  shape.heads = heads;
  shape.kv_heads = layer.kv_heads;
  shape.head_dim = layer.head_dim;
  shape.scale = golden.json().at("kernel_scale");
  shape.kv_dtype = layer.dtype;
  ASSERT_EQ(stored.rows, steps.size());
  ASSERT_EQ(kept.size(), steps.size() * layer.kv_heads * form.k);
  ASSERT_EQ(alpha.size(), steps.size() * heads);
  ASSERT_EQ(out.size(), q.size());

  std::vector<KvSpan> spans(steps.size());
  std::vector<SparseTask> tasks(steps.size());
  std::vector<float> my_alpha(alpha.size()), my_out(out.size());
  std::vector<uint32_t> my_kept(kept.size());
  for (size_t s = 0; s < steps.size(); ++s) {
    spans[s] = {.k = layer.keys.data(),
                .v = layer.values.data(),
                .head_stride = layer.positions * layer.head_dim,
                .first = 0,
                .rows = prompt + steps[s] + 1};
    tasks[s] = {.form = &form,
                .context = {&spans[s], 1},
                .columns = columns,
                .first_position = prompt + steps[s],
                .q = q.data() + s * width,
                .out = my_out.data() + s * width,
                .result = {.alpha = std::span(my_alpha).subspan(s * heads, heads),
                           .kept = std::span(my_kept).subspan(s * layer.kv_heads * form.k, layer.kv_heads * form.k)}};
  }
  attention(shape, std::span<const SparseTask>(tasks));
  // No cut of these goldens is as near as 1e-6: see tools/make_sparse_goldens.py.
  const std::vector<uint32_t> expected(kept.begin(), kept.end());
  EXPECT_EQ(my_kept, expected);
  EXPECT_TRUE(testing::Within(alpha, my_alpha, [](size_t) { return kKernelTolerance; }));
  EXPECT_TRUE(testing::Within(out, my_out, [](size_t) { return kKernelTolerance; }));
}

// Every form of every golden, from rows and from columns, of F32 and BF16.
void ExpectAllRows(const RunTasks& attention) {
  size_t forms = 0;
  for (const std::string folder : kFolders) {
    const GoldenFile golden(Fixture(folder));
    for (const auto& about : golden.json().at("forms")) {
      if (!OfKernel(FormOf(about))) continue;
      ++forms;
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        Layer layer = ReadLayer(golden, dtype);
        for (const size_t filled : {size_t{0}, 3 * kSumRows, kColumnRows}) {
          for (const bool with_columns : {true, false}) {
            SCOPED_TRACE(folder + " " + about.at("name").get<std::string>() + " " + std::string(InfoOf(dtype).name) +
                         " filled " + std::to_string(filled) + (with_columns ? " columns" : " sums only"));
            ExpectRows(golden, about, layer, layer.Fill(filled, with_columns), attention);
          }
        }
      }
    }
  }
  EXPECT_GE(forms, 2 * std::size(kFolders));
}

TEST(SparseGoldenKernel, EveryLevel_SelectsAndReturnsWhatTheOracleDoes) {
  for (const Isa isa : testing::LevelsHere()) {
    for (const size_t threads : {1, 3}) {
      SCOPED_TRACE("level " + std::string(IsaName(isa)) + ", threads " + std::to_string(threads));
      const auto pool = ThreadPool::Create(threads).value();
      ExpectAllRows([&](const AttentionShape& shape, std::span<const SparseTask> tasks) {
        ExecutionContext ctx = ExecutionContext::Create(isa, pool.get(), SparseScratchBytes(shape)).value();
        ASSERT_LE(SparseSharedBytes(shape, 512), ExecutionContext::kSharedScratchBytes);
        SparseAttention(ctx, shape, tasks);
      });
    }
  }
}

TEST(SparseGoldenKernel, Reference_SelectsAndReturnsWhatTheOracleDoes) {
  ExpectAllRows(
      [](const AttentionShape& shape, std::span<const SparseTask> tasks) { reference::SparseAttention(shape, tasks); });
}

}  // namespace
}  // namespace tidemill::sparse_golden_test
