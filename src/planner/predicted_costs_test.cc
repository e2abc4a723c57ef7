#include "planner/predicted_costs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <tuple>
#include <vector>

#include "planner/testing/round_numbers.h"

namespace tidemill::predicted_costs_test {
namespace {

using testing::RoundModel;
using testing::RoundProfile;

TEST(StraightAt, IsStraightBetweenNeighboursStaysBelowAndGoesOn) {
  const std::array<size_t, 4> at = {1, 2, 4, 32};
  const std::array<double, 4> numbers = {1, 2, 6, 20};
  EXPECT_DOUBLE_EQ(StraightAt(at, numbers, 0), 1);
  EXPECT_DOUBLE_EQ(StraightAt(at, numbers, 0.5), 1);
  EXPECT_DOUBLE_EQ(StraightAt(at, numbers, 1), 1);
  EXPECT_DOUBLE_EQ(StraightAt(at, numbers, 2), 2);
  EXPECT_DOUBLE_EQ(StraightAt(at, numbers, 2.5), 3);
  EXPECT_DOUBLE_EQ(StraightAt(at, numbers, 18), 13);
  EXPECT_DOUBLE_EQ(StraightAt(at, numbers, 32), 20);
  EXPECT_DOUBLE_EQ(StraightAt(at, numbers, 60), 34);
  const std::array<double, 4> falling = {4, 3, 2, 1};
  EXPECT_DOUBLE_EQ(StraightAt(at, falling, 18), 1.5);
  EXPECT_DOUBLE_EQ(StraightAt(at, falling, 1000), 1);  // never further than what was measured
}

// The numbers below are computed by hand from testing/round_numbers.h. A step of one row: 1.2 ms of products, 0.1 ms of loops, 0.1 ms of
// elements, and 2 us of attention a position.
TEST(PredictedCosts, DecodeStep_IsProductsLoopsElementsAndAttention) {
  const MachineProfile profile = RoundProfile();
  const ModelNumbers model = RoundModel();
  const PredictedCosts costs(profile, model);
  EXPECT_NEAR(costs.DecodeStep(999, 1), 1.4e-3 + 2e-3, 1e-12);
  // 32 rows: products take twice as long; two blocks of elements, of which each thread has one, and a loop for them.
  EXPECT_NEAR(costs.DecodeStep(999, 32), 2.4e-3 + 0.1e-3 + 1.6e-3 + 1e-6 + 32 * 2e-3, 1e-12);
  // 63: three times; four blocks.
  EXPECT_NEAR(costs.DecodeStep(0, 63), 3.6e-3 + 0.1e-3 + 3.15e-3 + 1e-6 + 63 * 2e-6, 1e-12);
  const PredictedCosts one(profile, model, ThreadUse::kOne);
  EXPECT_NEAR(one.DecodeStep(999, 1), 2.4e-3 + 0.2e-3 + 0.1e-3 + 4e-3, 1e-12);
  EXPECT_NEAR(one.DecodeStep(999, 32), 4.8e-3 + 0.2e-3 + 3.2e-3 + 2e-6 + 32 * 4e-3, 1e-12);
}

TEST(PredictedCosts, CheckStep_IsOneStepOfMoreRowsOverOneContext) {
  const MachineProfile profile = RoundProfile();
  ModelNumbers model = RoundModel();
  const PredictedCosts costs(profile, model);
  // 9 rows see 1008 positions: products take 8 / 31 longer, elements nine times as long.
  EXPECT_NEAR(costs.CheckStep(999, 9, 0), 1.2e-3 * 39 / 31 + 0.1e-3 + 0.9e-3 + 2 * 9 * 1008e-6, 1e-12);
  // Four more of other sequences, that see 1000 each; 13 rows are a block still, 17 are two.
  EXPECT_NEAR(costs.CheckStep(999, 9, 4), 1.2e-3 * 43 / 31 + 0.1e-3 + 1.3e-3 + 2 * 9 * 1008e-6 + 4 * 2e-3, 1e-12);
  EXPECT_NEAR(costs.CheckStep(0, 17, 0), 1.2e-3 * 47 / 31 + 0.1e-3 + 0.85e-3 + 1e-6 + 2 * 17 * 17e-6, 1e-12);
  for (const size_t batch : {1, 5, 40}) EXPECT_EQ(costs.CheckStep(77, 1, batch - 1), costs.DecodeStep(77, batch));
  model.attention.front().shape.window = 100;  // nine rows see 108 positions together
  EXPECT_NEAR(costs.CheckStep(999, 9, 0), 1.2e-3 * 39 / 31 + 0.1e-3 + 0.9e-3 + 2 * 9 * 108e-6, 1e-12);
}

TEST(PredictedCosts, Outputs_AreOfRowsThatAreRead) {
  const MachineProfile profile = RoundProfile();
  ModelNumbers model = RoundModel(), with = model;
  with.outputs = {{.dtype = DType::kQ8_0, .bytes = 31e6}};  // 3.1 ms for one row, and 0.1 ms for each more
  const PredictedCosts costs(profile, model), more(profile, with);
  EXPECT_NEAR(more.DecodeStep(9, 5) - costs.DecodeStep(9, 5), 3.5e-3, 1e-12);
  EXPECT_NEAR(more.BatchStep(9, 8, 2, 3) - costs.BatchStep(9, 8, 2, 3), 3.6e-3, 1e-12);
  EXPECT_NEAR(more.Prefill(640, 64) - costs.Prefill(640, 64), 3.1e-3, 1e-12);  // of the last token alone
  EXPECT_NEAR(more.Segment(64, 4, 1).total() - costs.Segment(64, 4, 1).total(), 3.4e-3, 1e-12);
  EXPECT_EQ(more.layer_bytes() - costs.layer_bytes(), 31e6);
}

TEST(PredictedCosts, Weights_TakeWhatTheirTypeTakes) {
  MachineProfile profile = RoundProfile();
  const ModelNumbers model = RoundModel();
  profile.all.product[static_cast<size_t>(DType::kQ4_K)].fill(5e-10);
  EXPECT_NEAR(PredictedCosts(profile, model).DecodeStep(999, 1), 0.6e-3 + 2e-3 + 0.2e-3 + 0.2e-3 + 2e-3, 1e-12);
}

TEST(PredictedCosts, Experts_AreReadAsTheyGetRows) {
  const MachineProfile profile = RoundProfile();
  ModelNumbers model;
  model.weights = {{.dtype = DType::kQ8_0, .bytes = 1e6, .experts = 8, .per_token = 2}};
  const PredictedCosts costs(profile, model);
  const double loop = 1e-6;                                           // the head's, which has no weights here
  EXPECT_NEAR(costs.DecodeStep(0, 1), 2 * 1e-4 + loop, 1e-12);        // two experts, a row each
  EXPECT_NEAR(costs.DecodeStep(0, 4), 8 * 1e-4 + loop, 1e-12);        // all of them
  EXPECT_NEAR(costs.DecodeStep(0, 128), 8 * 1e-4 * 2 + loop, 1e-12);  // 32 rows each
  EXPECT_NEAR(costs.DecodeStep(0, 6), 8 * 1e-4 * (1 + 0.5 / 31) + loop, 1e-12);  // 1.5 on average
}

TEST(PredictedCosts, Attention_GoesByShape) {
  const MachineProfile profile = RoundProfile();
  ModelNumbers model = RoundModel();
  const double rest = 1.4e-3;
  for (const auto& [heads, kv_heads, head_dim, us] : {std::tuple{32, 8, 64, 0.5},
                                                      {8, 8, 128, 0.25},
                                                      {32, 1, 128, 1.0},
                                                      {16, 2, 192, 0.75},
                                                      {8, 1, 512, 1.0},
                                                      {32, 8, 32, 0.5}}) {
    AttentionShape& shape = model.attention.front().shape;
    shape.heads = static_cast<size_t>(heads);
    shape.kv_heads = static_cast<size_t>(kv_heads);
    shape.head_dim = static_cast<size_t>(head_dim);
    EXPECT_NEAR(PredictedCosts(profile, model).DecodeStep(999, 1), rest + 2e-3 * us, 1e-12)
        << heads << "/" << kv_heads << " x " << head_dim;
  }
}

TEST(PredictedCosts, Prefill_ReadsWeightsOnceAChunkAndTheHeadOnce) {
  const MachineProfile profile = RoundProfile();
  const ModelNumbers model = RoundModel();
  const PredictedCosts costs(profile, model);
  // A chunk of 32: 2 ms of products, 99 loops, 1.6 ms of elements and their loop. The head: 0.2 ms and a loop.
  const double chunk = 2e-3 + 99e-6 + 1.6e-3 + 1e-6, head = 0.2e-3 + 1e-6;
  // Two chunks; 64 * 65 / 2 = 2080 positions seen, 65 a chunk's row, 32 us each and layer.
  EXPECT_NEAR(costs.Prefill(64, 32), 2 * chunk + head + 2 * 65 * 32e-6, 1e-12);
  EXPECT_NEAR(costs.Prefill(32, 512), chunk + head + 2 * 16.5 * 32e-6, 1e-12);
  // 17 rows, two blocks of elements, and 16, one: products of 1 ms and 31 / 31 of it for the rows more.
  EXPECT_NEAR(costs.Prefill(33, 32), 3e-3 + 2 * 99e-6 + 0.85e-3 + 1e-6 + 1.6e-3 + head + 2 * 33 * 17e-6, 1e-12);
  EXPECT_EQ(costs.Prefill(0, 32), 0);
  EXPECT_LT(costs.Prefill(4096, 512), costs.Prefill(4096, 32));
}

TEST(PredictedCosts, Window_BoundsWhatIsSeen) {
  const MachineProfile profile = RoundProfile();
  ModelNumbers model = RoundModel();
  const PredictedCosts without(profile, model);
  ModelNumbers windowed = model;
  windowed.attention.front().shape.window = 100;
  const PredictedCosts costs(profile, windowed);
  EXPECT_NEAR(costs.DecodeStep(49, 1), 1.4e-3 + 2 * 50e-6, 1e-12);
  EXPECT_NEAR(costs.DecodeStep(999, 1), 1.4e-3 + 2 * 100e-6, 1e-12);
  // 256 * 257 / 2 positions; with the window 100 * 101 / 2 and 100 for each of the other 156.
  EXPECT_NEAR(without.Prefill(256, 32) - costs.Prefill(256, 32), 2 * (32896 - 5050 - 15600) * 1e-6, 1e-12);
}

// A state of 8192 bytes and entries of 392, at 0.1 ns a byte for one row and 1/31 more for each other. Copying takes five times as long as
// one thread reads: more than a write can cost beside the read.
TEST(PredictedCosts, Linear_ReadsStatesAndEntriesAndWritesNowAndThen) {
  MachineProfile profile = RoundProfile();
  ModelNumbers model = RoundModel();
  const PredictedCosts costs(profile, model);
  EXPECT_EQ(costs.Linear({}, 1), 0);
  const double before = costs.DecodeStep(999, 3), prefill = costs.Prefill(1024, 512);
  model.linear = {
      .layers = 3,
      .shape = {.key_heads = 1, .value_heads = 2, .key_dim = 32, .value_dim = 32, .form = {.start = 4, .period = 4}}};
  EXPECT_EQ(costs.WriteFactor(), 1);
  const double two = 1e-10 * 32 / 31, recurrent = 3 * (8192 * two + 1e-10 * (8192 + 392)),
               buffered = 3 * (8192 * two + 1e-10 * (8192.0 / 4 + 392 * 2.5));
  EXPECT_NEAR(costs.Linear({}, 1), recurrent, 1e-15);
  EXPECT_NEAR(costs.Linear({.start = 4, .period = 4}, 1), buffered, 1e-15);
  EXPECT_NEAR(costs.Linear({.start = 4, .period = 4, .dtype = DType::kBF16}, 1), buffered - 3e-10 * 2.5 * (392 - 200),
              1e-15);
  EXPECT_NEAR(costs.Linear({.start = 4, .period = 4}, 9),
              3 * (8192 * 1e-10 * 48 / 31 + 9e-10 * (8192.0 / 4 + 392 * 2.5)), 1e-15);
  EXPECT_NEAR(costs.LinearStart(DType::kF32, 10), 3 * 392e-9, 1e-15);
  EXPECT_NEAR(costs.DecodeStep(999, 3), before + 3 * buffered, 1e-12);
  EXPECT_NEAR(costs.Prefill(1024, 512), prefill + 2 * costs.Linear(model.linear.shape.form, 512), 1e-12);
  profile.copy = 2e9;  // half a nanosecond: two reads and half of one
  EXPECT_NEAR(costs.WriteFactor(), 0.5, 1e-12);
  profile.copy = 1e10;
  EXPECT_EQ(costs.WriteFactor(), 0.05);
}

// 2 ms a step at 1000 positions; a row reads as large a part of them as the formulas of both kernels say, and each reads its own. A byte of a key that
// is gathered from its row counts five times.
TEST(PredictedCosts, SparseAttention_TakesThePartThatItReads) {
  const MachineProfile profile = RoundProfile();
  ModelNumbers model = RoundModel();
  const PredictedCosts costs(profile, model);
  const SparseForm form{.kind = SparseKind::kSparq, .r = 16, .k = 128, .local = 32};
  const AttentionShape shape = testing::RoundAttention();
  const auto part = [&](bool columns) {
    const double gathered = (columns ? 40 : 1000) * 8 * 256;
    return (SparseCost(shape, form, 1000, 960, columns).bytes + 4 * gathered) /
           AttentionCost(shape, 1, 1000, 1000).bytes;
  };
  std::vector<AttentionLayers> layers = {{.layers = 2, .shape = shape}};
  const auto attention = [&](size_t depth, size_t rows) { return costs.Attention(layers, depth, rows); };
  EXPECT_NEAR(attention(999, 1), 2e-3, 1e-12);
  layers.front().sparse = form;
  EXPECT_LT(part(true), 0.5);
  EXPECT_NEAR(attention(999, 1), 2e-3 * part(true), 1e-12);
  EXPECT_NEAR(attention(996, 4), 4 * 2e-3 * part(true), 1e-12);
  EXPECT_NEAR(attention(127, 1), 2 * 128e-6, 1e-12);  // no more than k positions
  const double dense = costs.DecodeStep(999, 3), prefill = costs.Prefill(1024, 512);
  model.attention = layers;
  EXPECT_NEAR(costs.DecodeStep(999, 3), dense - 3 * 2e-3 * (1 - part(true)), 1e-12);
  EXPECT_EQ(costs.Prefill(1024, 512), prefill);
  layers.front().has_columns = false;
  EXPECT_NEAR(attention(999, 1), 2e-3 * part(false), 1e-12);
  // A layer that is dense, and one whose window hides what is in front of it.
  layers.push_back({.layers = 1, .shape = shape});
  EXPECT_NEAR(attention(999, 1), 2e-3 * part(false) + 1e-3, 1e-12);
  layers.front().shape.window = 1000;
  EXPECT_NEAR(attention(4999, 1), 2e-3 * part(false) + 5e-3, 1e-12);
}

// What was measured at 16384 positions without columns: 2.4 to 2.6 times dense attention. Exact scores read keys as dense attention does.
TEST(PredictedCosts, KeysThatAreGatheredFromRows_PromiseNoGain) {
  const MachineProfile profile = RoundProfile();
  const ModelNumbers model = RoundModel();
  const PredictedCosts costs(profile, model);
  std::vector<AttentionLayers> layers = {{.layers = 2, .shape = testing::RoundAttention()}};
  for (const DType dtype : {DType::kF16, DType::kQ8_0}) {
    layers.front().shape.kv_dtype = dtype;
    layers.front().sparse = {};
    const double dense = costs.Attention(layers, 16383, 1);
    layers.front().sparse = {.kind = SparseKind::kSparq, .r = 16, .k = 128, .local = 32};
    layers.front().has_columns = false;
    EXPECT_GT(costs.Attention(layers, 16383, 1), 2.4 * dense);
    EXPECT_LT(costs.Attention(layers, 16383, 1), 2.6 * dense);
    EXPECT_GT(costs.Attention(layers, 999, 1), 2e-3);
    layers.front().sparse = {.kind = SparseKind::kTopk, .r = 128, .k = 128, .local = 32};
    EXPECT_LT(costs.Attention(layers, 16383, 1), 0.6 * dense);
  }
}

TEST(PredictedCosts, SparseFrom_DividesDenseRowsFromSparseOnes) {
  const MachineProfile profile = RoundProfile();
  ModelNumbers model = RoundModel();
  const PredictedCosts costs(profile, model);
  const double dense = costs.DecodeStep(2999, 2), prompt = costs.Prefill(4096, 512);
  model.attention.front().sparse = {.kind = SparseKind::kSparq, .r = 16, .k = 128, .local = 32};
  const double sparse = costs.DecodeStep(2999, 2);
  model.sparse_from = 3000;
  EXPECT_EQ(costs.DecodeStep(2999, 2), dense);
  EXPECT_LT(costs.DecodeStep(3000, 2), dense);
  model.sparse_from = 2999;
  EXPECT_EQ(costs.DecodeStep(2999, 2), sparse);
  // 4096 * 4097 / 2 positions that a prompt sees, 1 us each and layer; of those that the last rows see, as many as a row at the middle takes.
  model.sparse_from = 4096;
  EXPECT_EQ(costs.Prefill(4096, 512), prompt);
  model.sparse_from = 4000;
  EXPECT_NEAR(costs.Prefill(4096, 512),
              prompt - 2e-6 * (4096 * 4097 / 2 - 4000 * 4001 / 2) + 96 * costs.Attention(model.attention, 4048, 1),
              1e-9);
}

TEST(PredictedCosts, Growing_CopiesAndTouches) {
  const MachineProfile profile = RoundProfile();
  const ModelNumbers model = RoundModel();
  const PredictedCosts costs(profile, model);
  // 256 + 512 + 768 rows copied, 1024 more touched; 8192 bytes a row and sequence; 1 GB/s for either.
  EXPECT_NEAR(costs.Growing(KvPolicy::kBmc, 256, 1024, 2), 16384 * (1536 + 1536 + 1024) * 1e-9, 1e-12);
  EXPECT_NEAR(costs.Growing(KvPolicy::kReserve, 256, 1024, 1), 8192 * 1024 * 1e-9, 1e-12);
  EXPECT_NEAR(costs.GrowOneRow(), 8192 * 2e-9, 1e-15);
}

TEST(PredictedCosts, MoreOfDepthOrBatch_TakesNoLess) {
  const ModelNumbers model = RoundModel();
  for (const std::string_view text : BuiltInProfiles()) {
    const MachineProfile profile = ParseProfile("a profile", text).value();
    const PredictedCosts costs(profile, model), one(profile, model, ThreadUse::kOne);
    for (const size_t batch : {1, 2, 3, 5, 8, 31, 32, 33, 100, 1000}) {
      for (const size_t depth : {0, 1, 100, 5000}) {
        EXPECT_LE(costs.DecodeStep(depth, batch), costs.DecodeStep(depth + 1, batch)) << profile.cpu;
        EXPECT_LE(costs.DecodeStep(depth, batch), costs.DecodeStep(depth, batch + 1)) << profile.cpu;
        // Their loops may take longer.
        const double loops = static_cast<double>(model.loops + 1) * std::max(0.0, profile.all.loop - profile.one.loop);
        EXPECT_LE(costs.DecodeStep(depth, batch), one.DecodeStep(depth, batch) + loops) << profile.cpu;
        if (depth < batch) {
          EXPECT_LE(costs.Prefill(depth, batch), costs.Prefill(depth + 1, batch)) << profile.cpu;
        }
        // One token more may cut the prompt into parts whose elements two threads share more evenly.
        EXPECT_LE(costs.Prefill(depth, batch), costs.Prefill(2 * depth + 1, batch)) << profile.cpu;
      }
    }
  }
}

}  // namespace
}  // namespace tidemill::predicted_costs_test
