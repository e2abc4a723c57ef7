// The attention of requests: what is refused, which class they are of, which rows of theirs are sparse, and what is said of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/engine_impl.h"
#include "tests/support/allocation_probe.h"
#include "tests/support/engine_driver.h"
#include "tests/support/resumed_requests.h"
#include "tests/support/sparse_requests.h"
#include "tidemill/measure.h"

namespace tidemill::sparse_requests_test {
namespace {

using ::testing::EndsWith;
using testing::EngineDriver;
using testing::ExpectSame;
using ::testing::HasSubstr;
using testing::NamedPolicy;
using ::testing::Not;
using testing::Outcome;
using testing::SparseAlone;
using testing::SparseGreedy;
using testing::SparseModel;
using testing::SparsePolicies;
using testing::SparsePrompt;

constexpr size_t kLayers = 3;
const AttentionPolicy kSparq{.kind = AttentionKind::kSparq, .r = 4, .k = 24};

// With room for what kAuto takes for long.
std::shared_ptr<const Model> LongModel() {
  static const auto model = testing::LoadModel(
      "long_sparse_requests", testing::BuildTinyLlama({.vocab = testing::kSparseVocab, .context = 8192}));
  return model;
}

TEST(SparseRequests, WrongPolicies_AreRefusedByName) {
  EngineDriver driver(SparseModel(), {.threads = 1});
  const auto refusal = [&](const AttentionPolicy& policy) {
    const auto id = driver.engine().Submit({.prompt = {5, 6}, .generation = SparseGreedy(2), .attention = policy});
    EXPECT_FALSE(id.ok());
    EXPECT_EQ(id.error().code(), ErrorCode::kInvalidArgument);
    return id.error().message();
  };
  EXPECT_EQ(refusal({.kind = AttentionKind::kSparq, .r = 17}),
            "submit request: attention: --sparq-r 17: expected at most the model's head_dim, which is 16");
  EXPECT_EQ(refusal({.kind = AttentionKind::kTopk, .dense_layers = {3}}),
            "submit request: attention: --sparq-dense-layers 3: expected a layer from 0 to 2");
  EXPECT_EQ(refusal({.k = 3}),
            "submit request: attention: --sparq-k and its like: expected --attention sparq, topk, h2o, window or auto, "
            "found dense; leave it out");
  const auto drafting = driver.engine().Submit({.prompt = {5, 6},
                                                .generation = SparseGreedy(2),
                                                .draft = {.num_draft_tokens = 2,
                                                          .source = DraftSource::kSparq,
                                                          .sparq = {.kind = AttentionKind::kSparq, .r = 800, .k = 8}}});
  ASSERT_FALSE(drafting.ok());
  EXPECT_EQ(drafting.error().message(),
            "submit request: draft: sparq: r 800: expected at most the model's head_dim, which is 16");
  EXPECT_TRUE(driver.engine().idle());
  const auto engine =
      Engine::Create(SparseModel(), {.threads = 1, .attention = {.kind = AttentionKind::kWindow, .k = 16}});
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.error().message(),
            "start engine: --sparq-k 16: expected more than 16 with --attention window, which keeps so many first "
            "positions");
}

TEST(SparseRequests, NumericClass_IsTheRequests) {
  EngineDriver driver(SparseModel(), {.threads = 1, .attention = kSparq});
  EXPECT_THAT(driver.engine().numeric_class(), EndsWith("/kv-f16/sparq-r4-k24-l6"));
  for (const NamedPolicy& policy : SparsePolicies()) {
    EngineDriver another(SparseModel(), {.threads = 1, .attention = policy.policy});
    const RequestId id = driver.Submit({.prompt = {5, 6}, .generation = SparseGreedy(3), .attention = policy.policy});
    driver.RunUntilIdle();
    EXPECT_EQ(driver.outcome(id).stats.numeric_class, another.engine().numeric_class()) << policy.name;
  }
  const RequestId dense =
      driver.Submit({.prompt = {5, 6}, .generation = SparseGreedy(3), .attention = AttentionPolicy()});
  driver.RunUntilIdle();
  EXPECT_THAT(std::string(driver.outcome(dense).stats.numeric_class), EndsWith("/kv-f16"));
  EXPECT_FALSE(driver.outcome(dense).stats.attention.has_value());
}

TEST(SparseRequests, Auto_GoesByPromptAndAnswer) {
  EngineDriver driver(LongModel(), {.threads = 1, .attention = {.kind = AttentionKind::kAuto}});
  EXPECT_THAT(driver.engine().numeric_class(), EndsWith("/sparq-r2-k128-l32"));
  const auto name = [&](int32_t tokens, const AttentionPolicy& policy) {
    const RequestId id = driver.Submit({.prompt = SparsePrompt(96, 3),
                                        .generation = SparseGreedy(tokens),
                                        .needs_room_for_all = false,
                                        .attention = policy});
    driver.Step();
    driver.engine().Cancel(id);
    driver.RunUntilIdle();
    return std::string(driver.outcome(id).stats.numeric_class);
  };
  EXPECT_THAT(name(3999, {.kind = AttentionKind::kAuto}), EndsWith("/kv-f16"));
  EXPECT_THAT(name(4000, {.kind = AttentionKind::kAuto}), EndsWith("/sparq-r2-k128-l32"));
  EXPECT_THAT(name(4000, {.kind = AttentionKind::kAuto, .columns = KeyColumns::kNone}), EndsWith("/kv-f16"));
}

TEST(SparseRequests, SavedRequest_OfAutoKeepsItsKind) {
  const AttentionPolicy automatic{.kind = AttentionKind::kAuto};
  const std::vector<int32_t> prompt = SparsePrompt(150, 4);
  for (const AttentionKind kind : {AttentionKind::kDense, AttentionKind::kSparq}) {
    EngineDriver driver(LongModel(), {.threads = 1, .attention = {.kind = kind}});
    const Outcome saved = testing::RunAndSave(driver, prompt, SparseGreedy(9));
    ASSERT_NE(saved.saved, nullptr);
    EngineDriver elsewhere(LongModel(), {.threads = 1, .attention = automatic});
    const Outcome whole = driver.Run(prompt, SparseGreedy(30)),
                  more = testing::ResumeSaved(elsewhere, saved, {.generation = SparseGreedy(30)});
    testing::ExpectJoined(saved, more, whole, std::string(AttentionKindName(kind)));
    EXPECT_EQ(more.stats.numeric_class, whole.stats.numeric_class);
    const Outcome longer =
        testing::ResumeSaved(elsewhere, saved, {.generation = SparseGreedy(5), .more_prompt = {7, 8}});
    EXPECT_EQ(longer.stats.numeric_class, whole.stats.numeric_class);
  }
}

TEST(SparseRequests, Score_OfAnAnswerIsItsOwnFromThePromptsEndOn) {
  const std::vector<int32_t> prompt = SparsePrompt(60, 8);
  for (const NamedPolicy& policy : SparsePolicies()) {
    if (policy.policy.from) continue;
    const Outcome answer = SparseAlone(policy.policy, prompt, SparseGreedy(70));
    std::vector<int32_t> ids = prompt;
    ids.insert(ids.end(), answer.ids.begin(), answer.ids.end());
    AttentionPolicy from = policy.policy;
    from.from = prompt.size();
    const auto logits = [&](const AttentionPolicy& attention, size_t chunk) {
      EngineDriver driver(SparseModel(), {.threads = 1, .attention = attention, .prefill_chunk = chunk});
      std::vector<std::vector<float>> rows;
      const auto scored = driver.engine().Score(ids, false, [&](size_t, std::span<const float> row) -> Result<void> {
        rows.emplace_back(row.begin(), row.end());
        return {};
      });
      EXPECT_TRUE(scored.ok());
      return rows;
    };
    const auto rows = logits(from, 1), dense = logits({}, 50);
    ASSERT_EQ(rows.size(), ids.size());
    for (size_t i = 0; i < answer.ids.size(); ++i) {
      const std::vector<float>& row = rows[prompt.size() + i - 1];
      EXPECT_EQ(std::max_element(row.begin(), row.end()) - row.begin(), answer.ids[i]) << policy.name << ", " << i;
    }
    EXPECT_EQ(logits(from, 50), rows) << policy.name;
    EXPECT_NE(rows, dense) << policy.name;
    for (size_t i = 0; i < prompt.size(); ++i) ASSERT_EQ(rows[i], dense[i]) << policy.name << ", " << i;
    EXPECT_EQ(logits(policy.policy, 50), dense) << policy.name << ": without `from` all are rows of a prompt";
  }
}

TEST(SparseRequests, Stats_CountTheRowsOfGeneratedTokens) {
  const std::vector<int32_t> prompt = SparsePrompt(10, 9);
  constexpr int32_t kTokens = 91;
  for (const NamedPolicy& policy : SparsePolicies()) {
    const RequestStats stats = SparseAlone(policy.policy, prompt, SparseGreedy(kTokens)).stats;
    ASSERT_TRUE(stats.attention.has_value()) << policy.name;
    const SparseStats& found = *stats.attention;
    const AttentionPolicy& given = policy.policy;
    EXPECT_EQ(found.kind, given.kind) << policy.name;
    EXPECT_EQ(found.r, given.r.value_or(0)) << policy.name;
    EXPECT_EQ(found.k, *given.k) << policy.name;
    EXPECT_EQ(found.rule, given.rule) << policy.name;
    EXPECT_EQ(found.reallocate, given.kind == AttentionKind::kSparq && given.reallocate) << policy.name;
    EXPECT_EQ(found.columns, given.kind == AttentionKind::kSparq && given.columns != KeyColumns::kNone) << policy.name;
    const size_t layers = kLayers - given.dense_layers.size();
    ASSERT_EQ(found.layers.size(), layers) << policy.name;
    // Positions 10 to 99 have rows: the last token is in no state.
    const size_t first = given.from.value_or(prompt.size()), rows = 100 - first,
                 own = given.kind == AttentionKind::kH2o ? 1 : 0,  // beside k that were kept
        shorter = *given.k > first ? *given.k - first + own : 0;
    SparseStats::Counts sum;
    size_t last = 0;
    for (const SparseStats::Layer& layer : found.layers) {
      const std::string where = policy.name + ", layer " + std::to_string(layer.layer);
      EXPECT_TRUE(&layer == found.layers.data() || layer.layer > last) << where;
      last = layer.layer;
      EXPECT_EQ(std::count(given.dense_layers.begin(), given.dense_layers.end(), layer.layer), 0) << where;
      EXPECT_EQ(layer.counts.rows, rows) << where;
      EXPECT_EQ(layer.counts.short_rows, shorter) << where;
      EXPECT_EQ(layer.counts.audits, given.audit == 0 ? 0U : (99 / given.audit) - (23 / given.audit)) << where;
      sum.rows += layer.counts.rows;
      sum.short_rows += layer.counts.short_rows;
      sum.audits += layer.counts.audits;
      sum.bytes += layer.counts.bytes;
      sum.dense_bytes += layer.counts.dense_bytes;
    }
    EXPECT_EQ(found.all.rows, sum.rows) << policy.name;
    EXPECT_EQ(found.all.short_rows, sum.short_rows) << policy.name;
    EXPECT_EQ(found.all.audits, sum.audits) << policy.name;
    EXPECT_EQ(found.all.bytes, sum.bytes) << policy.name;
    EXPECT_EQ(found.all.dense_bytes, sum.dense_bytes) << policy.name;
    EXPECT_GT(found.all.dense_bytes, 0U) << policy.name;
    if (given.kind == AttentionKind::kSparq) {
      EXPECT_GT(found.all.alpha_estimate, 0) << policy.name;
      EXPECT_LE(found.all.alpha_estimate, 1.001) << policy.name;
    }
    if (given.floors.alphas.empty()) {
      EXPECT_EQ(found.all.dense_share, 0) << policy.name;
    }
    if (found.all.audits != 0) {
      EXPECT_GT(found.all.kept_mass, 0) << policy.name;
      EXPECT_GT(found.all.error, 0) << policy.name;
      EXPECT_GT(found.all.agreement, 0) << policy.name;
    }
  }
}

// One allocation of the prompt's step fails at a time: some of them are those of columns.
TEST(SparseRequests, ColumnsWithoutMemory_AreTold) {
  const std::vector<int32_t> prompt = SparsePrompt(200, 12);
  const Outcome whole = SparseAlone(kSparq, prompt, SparseGreedy(9));
  ASSERT_TRUE(whole.stats.attention->columns);
  EXPECT_FALSE(whole.stats.growth.gave_up_columns);
  AttentionPolicy none = kSparq;
  none.columns = KeyColumns::kNone;
  EXPECT_FALSE(SparseAlone(none, prompt, SparseGreedy(9)).stats.growth.gave_up_columns) << "they were not wanted";
  size_t lost = 0, failures = 0;
  for (size_t n = 0; n < 400; ++n) {
    EngineDriver driver(SparseModel(), {.threads = 1, .attention = kSparq, .prefill_chunk = 256});
    const RequestId id = driver.Submit({.prompt = prompt, .generation = SparseGreedy(9)});
    testing::FailAllocations failure(n);
    const auto events = driver.engine().Step();
    if (!failure.Stop()) break;
    driver.Consume(events);
    ++failures;
    driver.RunUntilIdle();
    const Outcome& found = driver.outcome(id);
    if (!found.message.empty() || !found.stats.attention) continue;
    EXPECT_NE(found.stats.attention->columns, found.stats.growth.gave_up_columns) << n;
    if (!found.stats.growth.gave_up_columns) continue;
    ExpectSame(found, whole, "allocation " + std::to_string(n));
    ++lost;
  }
  EXPECT_GT(failures, 10U);
  EXPECT_GE(lost, kLayers);
}

TEST(SparseRequests, FloorOfOne_IsDenseAttention) {
  const std::vector<int32_t> prompt = SparsePrompt(60, 11);
  AttentionPolicy policy = kSparq;
  policy.floors.alphas = {0, 1, 1};
  const Outcome some = SparseAlone(policy, prompt, SparseGreedy(40)),
                sparse = SparseAlone(kSparq, prompt, SparseGreedy(40));
  EXPECT_EQ(some.stats.attention->layers[0].counts.dense_share, 0);
  EXPECT_EQ(some.stats.attention->layers[2].counts.dense_share, 1);
  EXPECT_NEAR(some.stats.attention->all.dense_share, 2.0 / 3, 1e-9);
  EXPECT_NE(some.logprob_bits, sparse.logprob_bits);
  policy.floors.alphas = {1};
  const Outcome all = SparseAlone(policy, prompt, SparseGreedy(40));
  ExpectSame(all, SparseAlone({}, prompt, SparseGreedy(40)), "a floor of 1");
  EXPECT_EQ(all.stats.attention->all.dense_share, 1);
}

// What a step is said to read beside weights, by the formulas of kernels and by what its states say.
TEST(SparseRequests, Bench_CountsWhatTheyRead) {
  const auto bench = [](const AttentionPolicy& policy) {
    EngineDriver driver(SparseModel(), {.threads = 1, .attention = policy});
    const BenchTest test{.test = "decode", .depth = 500, .gen_tokens = 4, .prompts = {}, .repeat = 1};
    const auto result = RunBench(driver.engine(), test, nullptr);
    EXPECT_TRUE(result.ok());
    return *result;
  };
  // Of 3 layers with 2 KV heads of 16 elements in F16; 6 query heads.
  constexpr double kRow = 3 * 2 * 16 * 2, kQuery = 3 * 8.0 * 6 * 16;
  const auto near = [](double expected, double found) { EXPECT_NEAR(found / expected, 1, 0.02) << expected; };
  const BenchResult dense = bench({});
  near(2 * 502 * kRow + kQuery, dense.attention.bytes);
  near(2 * 502 * kRow, dense.state_bytes_per_token);
  using Kind = AttentionKind;
  for (
      const auto& [policy, rows] : std::vector<std::pair<AttentionPolicy, double>>{
          // 448 positions of a quarter's components, keys and values of 54 others, sums of 8 bytes an element; 24 kept ones.
          {{.kind = Kind::kSparq, .r = 4, .k = 24}, 448 * 0.25 + 2 * 54 + 4 + 2 * 24},
          {{.kind = Kind::kSparq, .r = 4, .k = 24, .columns = KeyColumns::kNone}, 502 + 54 + 4 + 2 * 24},
          {{.kind = Kind::kTopk, .k = 20}, 502 + 2 * 20},
          {{.kind = Kind::kWindow, .k = 28}, 2 * 28}}) {
    const BenchResult found = bench(policy);
    near(rows * kRow + kQuery, found.attention.bytes);
    near(rows * kRow, found.state_bytes_per_token);
    EXPECT_LT(found.attention.flops, dense.attention.flops) << rows;
  }
}

TEST(SparseRequests, DraftRows_AreSparseWhereTheyStand) {
  const std::vector<int32_t> prompt = SparsePrompt(40, 10);
  EngineDriver driver(SparseModel(), {.threads = 1, .attention = kSparq});
  const RequestId id = driver.Submit({.prompt = prompt,
                                      .generation = testing::SparseFewIds(60),
                                      .draft = {.num_draft_tokens = 6, .min_draft_tokens = 6, .ngram_min = 1}});
  driver.RunUntilIdle();
  const Outcome& found = driver.outcome(id);
  ASSERT_GT(found.stats.drafted_tokens, 0U);
  // The rows of accepted and of rejected tokens, and of the sampled ones before them.
  const uint64_t rows = 59 - found.stats.accepted_tokens + found.stats.drafted_tokens;
  EXPECT_EQ(found.stats.attention->all.rows, kLayers * rows);
}

}  // namespace
}  // namespace tidemill::sparse_requests_test
