// Dense shares of floors: which layers of a request are dense from its admission on, by its length, and what eval fits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/engine_driver.h"
#include "tests/support/resumed_requests.h"
#include "tests/support/sparse_requests.h"
#include "tidemill/eval.h"

namespace tidemill::attention_floor_test {
namespace {

using testing::EngineDriver;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::SparseGreedy;
using testing::SparseModel;
using testing::SparsePrompt;

// Of heads of 16 elements sparq reads 4n + 2 * 24 * 16 of dense attention's 32n: a layer with a share above 7/8 - 24/n is dense.
AttentionPolicy Policy(std::vector<float> shares, std::vector<size_t> dense_layers = {}) {
  return {.kind = AttentionKind::kSparq,
          .r = 4,
          .k = 24,
          .dense_layers = std::move(dense_layers),
          .floors = {.alphas = {0.12F}, .dense_shares = std::move(shares)}};
}

struct Answered : Outcome {
  std::string form;  // with which the engine's numeric class ends; empty: dense
};

Answered Answer(const AttentionPolicy& policy, size_t prompt, int32_t tokens, bool of_engine = false) {
  EngineDriver driver(SparseModel(), {.threads = 1, .attention = of_engine ? policy : AttentionPolicy()});
  const RequestId id = driver.Submit({.prompt = SparsePrompt(prompt, 9),
                                      .generation = SparseGreedy(tokens),
                                      .attention = of_engine ? std::nullopt : std::optional(policy)});
  driver.RunUntilIdle();
  Answered answer{driver.outcome(id), ""};
  EXPECT_EQ(answer.message, "");
  const std::string name(answer.stats.numeric_class);
  answer.form = name.substr(std::min(name.size(), name.find("/sparq")));
  return answer;
}

TEST(DenseShares, LayersThatWouldReadMore_AreDenseByTheRequestsLength) {
  const AttentionPolicy policy = Policy({0.5F, 0.8F, 0});
  const struct {
    size_t prompt;
    int32_t tokens;
    std::vector<size_t> dense;
    std::string name;
  } lengths[] = {{75, 90, {1}, "-dense1"}, {40, 20, {0, 1}, "-dense0,1"}, {500, 20, {}, ""}};
  for (const auto& length : lengths) {
    const Answered expected = Answer(Policy({}, length.dense), length.prompt, length.tokens);
    EXPECT_EQ(expected.form, "/sparq-r4-k24-l6" + length.name + "-floor0.12");
    for (const bool of_engine : {false, true}) {
      const Answered found = Answer(policy, length.prompt, length.tokens, of_engine);
      EXPECT_EQ(found.form, expected.form) << of_engine;
      EXPECT_EQ(found.ids, expected.ids);
      EXPECT_EQ(found.logprob_bits, expected.logprob_bits);
      ASSERT_TRUE(found.stats.attention.has_value());
      EXPECT_EQ(found.stats.attention->layers.size(), 3 - length.dense.size());
    }
  }
}

TEST(DenseShares, AllLayersThatWouldReadMore_AreDenseAttention) {
  const Answered dense = Answer({}, 75, 60), found = Answer(Policy({1, 0.9F, 0.9F}), 75, 60);
  EXPECT_EQ(found.form, "");
  EXPECT_EQ(found.logprob_bits, dense.logprob_bits);
  EXPECT_FALSE(found.stats.attention.has_value());
  // A floor of 1 alone has dense attention's bits, in layers that are sparse by name.
  AttentionPolicy always = Policy({});
  always.floors.alphas = {1};
  const Answered by_floor = Answer(always, 75, 60);
  EXPECT_EQ(by_floor.logprob_bits, dense.logprob_bits);
  EXPECT_EQ(by_floor.stats.attention->all.dense_share, 1.0);
}

// In an engine of any context, whose length would choose otherwise.
TEST(DenseShares, SavedRequest_GoesOnWithTheLayersThatItHad) {
  for (const auto& shares : {std::vector<float>{0.5F, 0.8F, 0}, {0.9F, 0.9F, 1}}) {
    const AttentionPolicy policy = Policy(shares);
    const Answered whole = Answer(policy, 75, 60);
    EngineDriver driver(SparseModel(), {.threads = 1, .attention = policy});
    const Outcome saved = testing::RunAndSave(driver, SparsePrompt(75, 9), SparseGreedy(30));
    ASSERT_NE(saved.saved, nullptr);
    EngineDriver elsewhere(SparseModel(), {.threads = 1, .attention = policy});
    const Outcome rest = testing::ResumeSaved(elsewhere, saved, {.generation = SparseGreedy(60)});
    testing::ExpectJoined(saved, rest, whole, std::to_string(shares[0]));
  }
}

// Contexts of the model above, whose vocabulary is bytes.
EvalOptions CalibrationOptions() {
  return {.tasks = {EvalTask::kPasskey},
          .context_tokens = {400},
          .contexts = 2,
          .questions = 1,
          .answer_tokens = 24,
          .policies = {EvalPolicy(), EvalPolicy{.kind = AttentionKind::kSparq, .r = 4, .k = 24}}};
}

TEST(CalibrateFloors, Floors_FollowTheErrorThatIsAllowed) {
  EngineDriver driver(SparseModel(), {.threads = 1});
  double last_share = 2;
  for (const double allowed : {0.0, 0.2, 1.0}) {
    const auto made = CalibrateFloors(driver.engine(), *SparseModel(), CalibrationOptions(), allowed);
    ASSERT_TRUE(made.ok()) << made.error().message();
    EXPECT_EQ(made->floors.origin->r, 4U);
    EXPECT_EQ(made->floors.origin->k, 24U);
    EXPECT_EQ(made->floors.origin->local, 6U);
    ASSERT_EQ(made->floors.alphas.size(), 3U);
    double share = 0;
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(made->rows[i], 2 * 23U) << "an answer of 24 tokens has so many sparse rows";
      if (allowed == 0.0) {
        EXPECT_EQ(made->floors.alphas[i], 1.0F);
        EXPECT_EQ(made->floors.dense_shares[i], 1.0F);
        EXPECT_EQ(made->errors[i], 0.0);
      } else if (allowed == 1.0) {
        EXPECT_LT(made->floors.alphas[i], 1.0F);
        EXPECT_GT(made->errors[i], 0.0);
      }
      share += static_cast<double>(made->floors.dense_shares[i]) / 3;
    }
    EXPECT_LE(share, last_share);
    last_share = share;
    // The engine takes what was made.
    const AttentionPolicy policy{.kind = AttentionKind::kSparq, .r = 4, .k = 24, .floors = made->floors};
    EXPECT_EQ(Answer(policy, 75, 10).ids.size(), 10U);
    EngineDriver own(SparseModel(), {.threads = 1});
    AttentionPolicy wider = policy;
    wider.k = 25;
    const auto refused = own.engine().Submit({.prompt = {5, 6}, .attention = wider});
    ASSERT_FALSE(refused.ok());
    EXPECT_THAT(refused.error().message(), HasSubstr("--attention-floor: expected r 4, k 24, local 6"));
  }
  EXPECT_LT(last_share, 1.0);
}

TEST(CalibrateFloors, WhatCannotBeDone_IsNamed) {
  EngineDriver driver(SparseModel(), {.threads = 1});
  const auto error = [&](const EvalOptions& options, double allowed = 0.1) {
    const auto made = CalibrateFloors(driver.engine(), *SparseModel(), options, allowed);
    EXPECT_FALSE(made.ok());
    return made.ok() ? "" : made.error().message();
  };
  EXPECT_EQ(error(CalibrationOptions(), 1.5), "calibrate: the largest error: expected 0 to 1");
  EvalOptions bad = CalibrationOptions();
  bad.policies[1] = {.kind = AttentionKind::kTopk, .k = 24};
  EXPECT_EQ(error(bad), "calibrate: the policies: expected one sparq policy, found topk:k=24");
  bad.policies[1] = {.kind = AttentionKind::kSparq, .compression = 2};
  bad.policies.push_back({.kind = AttentionKind::kSparq, .compression = 8});
  EXPECT_EQ(error(bad), "calibrate: the policies: expected one sparq policy, found sparq:1/2, sparq:1/8");
  bad.policies.clear();
  EXPECT_EQ(error(bad), "calibrate: the policies: expected one sparq policy, found none");
  bad = CalibrationOptions();
  bad.policies[1].k = 600;
  EXPECT_THAT(error(bad), HasSubstr("expected contexts of more than 600 positions"));
}

}  // namespace
}  // namespace tidemill::attention_floor_test
