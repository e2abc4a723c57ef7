#include "benchmarks/bmc/grid.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <vector>

namespace tidemill::bmc::grid_test {
namespace {

TEST(Grid, WhatIsClaimed_ComesFirst) {
  GridOptions options;
  options.backends = {"exact"};
  const auto groups = MakeGrid(options);
  ASSERT_TRUE(groups.ok());
  std::set<std::string> shapes;
  for (size_t i = 0; i < 4; ++i) {
    const Cell& cell = (*groups)[i].front();
    EXPECT_EQ(cell.tokens, 2048U);
    EXPECT_EQ(cell.batch, 8U);
    shapes.insert(std::string(cell.shape.name));
  }
  EXPECT_EQ(shapes, (std::set<std::string>{"opt-2.7b", "opt-6.7b", "opt-13b", "llama-3-8b"}));
}

TEST(Grid, Periods_AreOfFourRowsAndMore) {
  GridOptions options;
  options.backends = {"exact"};
  for (const bool ci : {false, true}) {
    options.ci = ci;
    const auto groups = MakeGrid(options);
    ASSERT_TRUE(groups.ok());
    for (const Group& group : *groups) {
      for (const Cell& cell : group) {
        EXPECT_TRUE(cell.policy != KvPolicy::kBmc || cell.increment >= 4) << cell.Key();
      }
    }
  }
}

TEST(Grid, Drafts_AreTheTwoTablesFirst) {
  GridOptions options;
  options.backends = {"exact"};
  options.drafts = true;
  const auto groups = MakeGrid(options);
  ASSERT_TRUE(groups.ok());
  ASSERT_EQ(groups->size(), 4U);
  const auto is = [&](size_t group, const char* shape, size_t batch, size_t accept) {
    const Cell& cell = (*groups)[group].front();
    return cell.shape.name == shape && cell.batch == batch && cell.draft == 26 && cell.accept == accept &&
           cell.tokens == 4096;
  };
  EXPECT_TRUE(is(0, "llama-2-7b", 1, 4));
  EXPECT_TRUE(is(1, "opt-13b", 32, 8));
}

TEST(Grid, EveryMode_HasCellsAndNoneTwice) {
  for (const int mode : {0, 1, 2, 3, 4, 5, 6}) {
    GridOptions options;
    options.ci = mode == 1;
    options.latency = mode == 2;
    options.long_contexts = mode == 3;
    if (mode == 4) options.draft = 26, options.accept = 4;
    options.drafts = mode >= 5;
    if (mode == 6) options.shapes = {"opt-2.7b"}, options.batches = {1};  // both tables are the same cells
    const auto groups = MakeGrid(options);
    ASSERT_TRUE(groups.ok());
    std::vector<std::string> keys;
    for (const Group& group : *groups) {
      for (const Cell& cell : group) keys.push_back(cell.Key());
    }
    EXPECT_GT(keys.size(), 5u);
    const size_t all = keys.size();
    std::sort(keys.begin(), keys.end());
    keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
    EXPECT_EQ(keys.size(), all) << "mode " << mode;
  }
}

TEST(Grid, LargePages_AreOfTheAllocatorsBlocks) {
  GridOptions options;
  options.pages = "large";
  options.backends = {"exact", "engine"};
  const auto groups = MakeGrid(options);
  ASSERT_TRUE(groups.ok());
  for (const Group& group : *groups) {
    for (const Cell& cell : group) {
      EXPECT_NE(cell.memory, Memory::kReserved) << cell.Key();
      EXPECT_EQ(cell.backend, Backend::kExact) << cell.Key();
    }
  }
}

TEST(Grid, UnknownNames_AreRefused) {
  GridOptions options;
  options.shapes = {"opt-1b"};
  EXPECT_EQ(MakeGrid(options).error().code(), ErrorCode::kInvalidArgument);
  options = {};
  options.backends = {"blas"};
  EXPECT_EQ(MakeGrid(options).error().code(), ErrorCode::kInvalidArgument);
  options = {};
  options.policies = {"bcm"};
  EXPECT_EQ(MakeGrid(options).error().code(), ErrorCode::kInvalidArgument);
  options = {};
  options.draft = 4;
  options.accept = 5;
  EXPECT_EQ(MakeGrid(options).error().code(), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace tidemill::bmc::grid_test
