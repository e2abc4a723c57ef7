// Once its state has grown, a step whose rows attend sparsely allocates nothing.
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "engine/step_executor.h"
#include "tests/support/allocation_probe.h"
#include "tests/support/model_runner.h"
#include "tests/support/tiny_model.h"

namespace tidemill::sparse_steps_test {
namespace {

using testing::KeysOf;
using testing::ModelRunner;
using testing::NumAllocations;

struct Named {
  const char* name;
  SparseLayer layer;
};

std::vector<Named> Layers() {
  return {{"sparq", {{.kind = SparseKind::kSparq, .r = 4, .k = 24, .local = 6, .audit = 7}, true}},
          {"sparq, from rows", {{.kind = SparseKind::kSparq, .r = 4, .k = 24, .local = 6}, false}},
          {"sparq, a floor", {{.kind = SparseKind::kSparq, .r = 4, .k = 24, .local = 6, .floor = 0.2F}, true}},
          {"top-k", {{.kind = SparseKind::kTopk, .r = 16, .k = 20, .local = 5}, true}},
          {"window", {{.kind = SparseKind::kWindow, .k = 28, .local = 12}, true}},
          {"h2o", {{.kind = SparseKind::kH2o, .k = 24, .local = 6}, false}}};
}

std::string ModelFile() {
  static const std::string path = testing::WriteTemporary(
      "sparse_steps.gguf",
      testing::BuildTinyLlama({.vocab = 300, .heads = 6, .kv_heads = 2, .head_dim = 16, .context = 512}));
  return path;
}

// Two sequences for each form, rows of one token or prompts' chunks, from position 100 to 250: granules of columns are filled, no block begins.
// Weights of H2O have room for as many rows.
TEST(SparseSteps, Tokens_AllocateNothing) {
  for (const size_t threads : {1, 3}) {
    for (const size_t rows : {1, 5}) {
      for (const Named& named : Layers()) {
        if (rows != 1 && named.layer.form.kind == SparseKind::kH2o) continue;
        ModelRunner runner(ModelFile(), {.threads = threads,
                                         .kv_dtype = DType::kF16,
                                         .context = 512,
                                         .max_rows = 128,
                                         .sparse = named.layer,
                                         .sparse_from = 90});
        std::vector<int32_t> ids(100), next(rows);
        std::iota(ids.begin(), ids.end(), 3);
        std::iota(next.begin(), next.end(), 7);
        std::vector<std::unique_ptr<SequenceState>> states;
        std::vector<StepSequence> step;
        for (int i = 0; i < 2; ++i) {
          states.push_back(runner.NewState());
          (void)runner.Feed(*states.back(), ids, 50);
          step.push_back({.state = states.back().get(), .tokens = next, .rows = Wanted::kAll, .sparse_from = 90});
        }
        const std::vector<RowKey> keys = KeysOf(next);
        float sum = 0;
        const StepExecutor::RowSink sink = [&sum](size_t, size_t, std::span<float> logits) { sum += logits[0]; };
        size_t before = 0;
        for (size_t i = 0; i < 150 / rows; ++i) {
          if (i == 2) before = NumAllocations();  // the first steps size what steps keep
          for (const auto& state : states) ASSERT_TRUE(state->Reserve(rows).ok());
          ASSERT_TRUE(runner.executor().Run(step, sink, nullptr));
          for (const auto& state : states) state->Commit(keys);
        }
        EXPECT_EQ(NumAllocations() - before, 0U)
            << named.name << ", " << threads << " threads, " << rows << " rows a step";
        EXPECT_NE(sum, 0.0F);
      }
    }
  }
}

// What --draft sparq does: sparse rows one by one in what the state has reserved, then dense rows in their place, some of which are committed.
TEST(SparseSteps, DraftChainsOfTheModelItself_AllocateNothing) {
  constexpr size_t kDraft = 4;
  const SparseLayer layer = Layers()[0].layer;
  ModelRunner runner(ModelFile(),
                     {.threads = 2, .kv_dtype = DType::kF16, .context = 512, .max_rows = 128, .sparse = layer});
  const auto state = runner.NewState();
  std::vector<int32_t> ids(100);
  std::iota(ids.begin(), ids.end(), 3);
  (void)runner.Feed(*state, ids, 50);
  const std::span<const int32_t> rows = std::span(ids).first(kDraft + 1);
  const std::vector<RowKey> keys = KeysOf(rows);
  float sum = 0;
  const StepExecutor::RowSink sink = [&sum](size_t, size_t, std::span<float> logits) { sum += logits[0]; };
  size_t before = 0;
  for (size_t i = 0; i < 45; ++i) {
    if (i == 2) before = NumAllocations();
    ASSERT_TRUE(state->Reserve(rows.size()).ok());
    for (size_t slot = 0; slot < kDraft; ++slot) {
      const StepSequence draft{
          .state = state.get(), .tokens = rows.subspan(slot, 1), .rows = Wanted::kLast, .slot = slot, .sparse_from = 0};
      ASSERT_TRUE(runner.executor().Run({&draft, 1}, sink, nullptr));
    }
    const StepSequence verify{.state = state.get(), .tokens = rows, .rows = Wanted::kAll};
    ASSERT_TRUE(runner.executor().Run({&verify, 1}, sink, nullptr));
    state->Commit(std::span(keys).first(3));
  }
  EXPECT_EQ(NumAllocations() - before, 0U);
  EXPECT_NE(sum, 0.0F);
}

}  // namespace
}  // namespace tidemill::sparse_steps_test
