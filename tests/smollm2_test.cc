// SmolLM2-135M-Instruct (Q4_1) against an independent f32 run of the same weights: tests/fixtures/oracle/README.md.
// The path of the model comes from TIDEMILL_SMOLLM2; without it every test here fails.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/fixtures_path.h"
#include "tests/support/model_runner.h"
#include "tests/support/smollm2_path.h"

namespace tidemill::smollm2_test {
namespace {

using nlohmann::json;
using testing::ModelRunner;
using testing::RunnerOptions;

json ReadOracle(const std::string& name) {
  std::ifstream in(std::string(TIDEMILL_FIXTURES) + "/oracle/" + name);
  EXPECT_TRUE(in.good()) << name << " is missing";
  return json::parse(in);
}

TEST(SmolLm2, GreedyInF32_EqualsOracle) {
  ModelRunner runner(testing::SmolLm2Path(), {.threads = 2, .f32 = true, .max_rows = 64});
  const json prompts = ReadOracle("smollm2_greedy.json").at("prompts");
  ASSERT_FALSE(prompts.empty());
  for (const auto& prompt : prompts) {
    const std::vector<int32_t> ids = prompt.at("ids"), expected = prompt.at("greedy_ids");
    ASSERT_EQ(expected.size(), 32U);
    const auto state = runner.NewState();
    const auto logits = runner.Feed(*state, ids, 64, true);
    EXPECT_EQ(runner.Greedy(*state, logits, expected.size()), expected) << prompt.at("name");
    const std::vector<int32_t> top = prompt.at("last_top_ids");
    const std::vector<double> values = prompt.at("last_top_logits");
    ASSERT_FALSE(top.empty());
    ASSERT_EQ(values.size(), top.size());
    for (size_t i = 0; i < top.size(); ++i) {
      EXPECT_NEAR(static_cast<double>(logits[static_cast<size_t>(top[i])]), values[i], 2e-3)
          << prompt.at("name") << " id " << top[i];
    }
  }
}

// Blocks of 34 bytes for 32 keys or values: greedy text leaves the oracle's where two tokens are nearly as likely, and goes on as well.
TEST(SmolLm2, GreedyWithKeysAndValuesInBlocks_BeginsAsTheOracle) {
  const json prompts = ReadOracle("smollm2_greedy.json").at("prompts");
  ModelRunner runner(testing::SmolLm2Path(), {.threads = 2, .f32 = true, .kv_dtype = DType::kQ8_0, .max_rows = 64});
  size_t equal = 0, all = 0;
  for (const auto& prompt : prompts) {
    const std::vector<int32_t> ids = prompt.at("ids"), expected = prompt.at("greedy_ids");
    const auto state = runner.NewState();
    const auto found = runner.Greedy(*state, runner.Feed(*state, ids, 64, true), expected.size());
    const auto differs = std::mismatch(expected.begin(), expected.end(), found.begin()).first;
    equal += static_cast<size_t>(differs - expected.begin());
    all += expected.size();
  }
  std::printf("%zu of %zu ids before the first that differs\n", equal, all);
  EXPECT_GE(2 * equal, all);
}

// KL over the oracle's best ids and one class for all others.
double CoarseKl(const std::vector<int32_t>& ids, const std::vector<double>& logprobs, std::span<const float> logits) {
  double max = -INFINITY, sum = 0;
  for (const float logit : logits) max = std::max(max, static_cast<double>(logit));
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - max);
  double kl = 0, rest_p = 1, rest_q = 1;
  for (size_t i = 0; i < ids.size(); ++i) {
    const double log_q = static_cast<double>(logits[static_cast<size_t>(ids[i])]) - max - std::log(sum);
    const double p = std::exp(logprobs[i]);
    kl += p * (logprobs[i] - log_q);
    rest_p -= p;
    rest_q -= std::exp(log_q);
  }
  return kl + rest_p * std::log(rest_p / rest_q);
}

TEST(SmolLm2, QuantisedLogits_StayWithinPeersDistanceFromOracle) {
  ModelRunner runner(testing::SmolLm2Path(), {.threads = 2, .max_rows = 64});
  const json golden = ReadOracle("smollm2_top.json");
  const size_t vocab = runner.model().settings.vocab_size;
  double kl = 0;
  size_t positions = 0;
  for (const auto& text : golden.at("texts")) {
    const std::vector<int32_t> ids = text.at("ids");
    const auto state = runner.NewState();
    const auto logits = runner.Feed(*state, ids, 64);
    const auto& top_ids = text.at("top_ids");
    for (size_t i = 0; i < top_ids.size(); ++i, ++positions) {
      kl += CoarseKl(top_ids[i], text.at("top_log_probabilities")[i], std::span(logits).subspan(i * vocab, vocab));
    }
  }
  ASSERT_GT(positions, 0U);
  ASSERT_EQ(positions, golden.at("positions").get<size_t>());
  kl /= static_cast<double>(positions);
  RecordProperty("mean_coarse_kl", std::to_string(kl));
  std::printf("mean coarse KL over %zu positions: %.6f (bound %.6f)\n", positions, kl,
              golden.at("coarse_kl_bound").get<double>());
  EXPECT_LE(kl, golden.at("coarse_kl_bound").get<double>());
}

}  // namespace
}  // namespace tidemill::smollm2_test
