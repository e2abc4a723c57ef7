#include "benchmarks/bmc/cell.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

namespace tidemill::bmc::cell_test {
namespace {

Cell CellOf(KvPolicy policy, size_t tokens, size_t increment) {
  Cell cell;
  cell.shape = kModelShapes[0];
  cell.tokens = tokens;
  cell.policy = policy;
  cell.increment = increment;
  if (policy == KvPolicy::kReserve) cell.memory = Memory::kReserved;
  return cell;
}

TEST(Script, EveryPolicy_WritesEveryRowOnceWithinItsCapacity) {
  for (const KvPolicy policy : {KvPolicy::kIterative, KvPolicy::kUpfront, KvPolicy::kBmc, KvPolicy::kGeometric,
                                KvPolicy::kReserve, KvPolicy::kPaged}) {
    size_t rows = 0, capacity = 0;
    for (const Step& step : MakeScript(CellOf(policy, 300, 16))) {
      EXPECT_EQ(step.rows_before, rows);
      EXPECT_EQ(step.capacity_before, capacity);
      EXPECT_LE(rows + step.len, step.capacity);
      EXPECT_LE(step.capacity, 300u);
      rows += step.accepted;
      capacity = step.capacity;
    }
    EXPECT_EQ(rows, 300u) << KvPolicyName(policy);
  }
}

TEST(Script, Allocations_AreTheBlocksThatThePolicyNeeds) {
  EXPECT_EQ(CellOf(KvPolicy::kIterative, 128, 1).Allocations(), 128u);
  EXPECT_EQ(CellOf(KvPolicy::kUpfront, 128, 1).Allocations(), 1u);
  EXPECT_EQ(CellOf(KvPolicy::kBmc, 128, 8).Allocations(), 16u);
  EXPECT_EQ(CellOf(KvPolicy::kBmc, 130, 8).Allocations(), 17u);
  EXPECT_EQ(CellOf(KvPolicy::kGeometric, 512, 1).Allocations(), 4u);  // 64, 128, 256, 512
  EXPECT_EQ(CellOf(KvPolicy::kPaged, 128, 32).Allocations(), 4u);
}

TEST(Script, Drafts_AreCutToTheFreeRowsAndAcceptTheMeanOnAverage) {
  Cell cell = CellOf(KvPolicy::kBmc, 4096, 256);
  cell.draft = 26;
  cell.accept = 4;
  const std::vector<Step> script = MakeScript(cell);
  size_t cut = 0;
  for (const Step& step : script) {
    EXPECT_GE(step.accepted, 1u);
    EXPECT_LE(step.accepted, step.len);
    EXPECT_LE(step.rows_before + step.len, step.capacity);
    cut += step.len < 26;
    if (step.grows()) {
      EXPECT_EQ(step.rows_before, step.capacity_before);
    }
  }
  EXPECT_GT(cut, 0u);
  EXPECT_NEAR(4096.0 / static_cast<double>(script.size()), 4, 0.3);
}

// What a step costs in the paper's model: attention over all rows, and a growth that copies.
double Model(const Step& step) {
  return static_cast<double>(step.capacity) + (step.grows() ? 3.0 * static_cast<double>(step.capacity) + 20 : 0);
}

TEST(Plan, Samples_StandForAllStepsAndIntegrateToTheWhole) {
  for (const size_t tokens : {128u, 512u, 1024u, 4096u}) {
    for (size_t increment = 1; increment <= tokens; increment *= 2) {
      const std::vector<Step> script = MakeScript(CellOf(KvPolicy::kBmc, tokens, increment));
      double whole = 0, weights = 0, integral = 0;
      for (const Step& step : script) whole += Model(step);
      const std::vector<PlannedStep> plan = PlanSteps(script, 32);
      EXPECT_LE(plan.size(), 3 * 32u);
      size_t previous = 0;
      for (const PlannedStep& planned : plan) {
        ASSERT_LT(planned.index, script.size());
        EXPECT_TRUE(planned.index > previous || planned.index == 0);
        previous = planned.index;
        weights += planned.weight;
        integral += planned.weight * Model(script[planned.index]);
      }
      const std::string where = "N " + std::to_string(tokens) + ", r " + std::to_string(increment);
      EXPECT_NEAR(weights, static_cast<double>(script.size()), 1e-6) << where;
      EXPECT_NEAR(integral / whole, 1, 0.03) << where;
    }
  }
}

TEST(Plan, WithoutSamples_IsEveryStep) {
  const std::vector<Step> script = MakeScript(CellOf(KvPolicy::kBmc, 100, 7));
  const std::vector<PlannedStep> plan = PlanSteps(script, 0);
  ASSERT_EQ(plan.size(), script.size());
  for (size_t i = 0; i < plan.size(); ++i) {
    EXPECT_EQ(plan[i].index, i);
    EXPECT_EQ(plan[i].weight, 1);
  }
}

TEST(Cell, Key_NamesWhatTellsCellsApart) {
  Cell cell = CellOf(KvPolicy::kBmc, 128, 8);
  EXPECT_EQ(cell.Key(),
            "opt-2.7b/tokens:128/batch:1/policy:bmc/increment:8/backend:exact/kv:F32/threads:1/pages:default");
  Cell other = CellOf(KvPolicy::kIterative, 128, 1);
  other.memory = Memory::kPool;
  EXPECT_EQ(other.Key(),
            "opt-2.7b/tokens:128/batch:1/policy:iterative, pool/backend:exact/kv:F32/threads:1/pages:default");
}

}  // namespace
}  // namespace tidemill::bmc::cell_test
