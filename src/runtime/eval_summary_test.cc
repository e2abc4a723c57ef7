#include <gtest/gtest.h>

#include <cmath>

#include "tidemill/eval.h"

namespace tidemill::eval_summary_test {
namespace {

EvalRecord Record(size_t context, size_t question, const std::string& policy, double nll) {
  return {.key = {.task = EvalTask::kCodes,
                  .context_tokens = 512,
                  .context = context,
                  .question = question,
                  .policy = policy},
          .bytes = policy == "dense" ? 1 : 0.25,
          .scored_tokens = 8,
          .nll = nll,
          .kl = nll / 4,
          .agreement = 0.5,
          .exact = context == 0,
          .matched_characters = 2 * question};
}

TEST(EvalSummary, Means_AreOverQuestionsAndTheRatioOverContexts) {
  // Context 0 has two questions that cost 1 and 3 more, context 1 has one that costs 0: a mean of 2 and 0.
  const std::vector<EvalRecord> records = {Record(0, 0, "dense", 1), Record(0, 0, "h2o:1/4", 2),
                                           Record(0, 1, "dense", 1), Record(0, 1, "h2o:1/4", 4),
                                           Record(1, 0, "dense", 3), Record(1, 0, "h2o:1/4", 3)};
  const std::vector<EvalRow> rows = SummarizeEval(records, 1);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].policy, "dense");
  EXPECT_EQ(rows[0].ratio, 1.0);
  EXPECT_EQ(rows[0].ratio_high, 1.0);
  EXPECT_DOUBLE_EQ(rows[0].bytes, 1.0);
  const EvalRow& row = rows[1];
  EXPECT_EQ(row.policy, "h2o:1/4");
  EXPECT_EQ(row.contexts, 2U);
  EXPECT_EQ(row.questions, 3U);
  EXPECT_DOUBLE_EQ(row.bytes, 0.25);
  EXPECT_DOUBLE_EQ(row.nll, 3.0);
  EXPECT_DOUBLE_EQ(row.kl, 0.75);
  EXPECT_DOUBLE_EQ(row.agreement, 0.5);
  EXPECT_DOUBLE_EQ(row.exact, 2.0 / 3);
  EXPECT_DOUBLE_EQ(row.matched_characters, 2.0 / 3);
  EXPECT_FALSE(row.rouge_l);
  EXPECT_DOUBLE_EQ(row.ratio, std::exp(1.0));
  EXPECT_DOUBLE_EQ(row.ratio_low, 1.0);  // both draws context 1: a quarter of all
  EXPECT_DOUBLE_EQ(row.ratio_high, std::exp(2.0));
}

TEST(EvalSummary, Audits_CountAlike) {
  std::vector<EvalRecord> records;
  for (size_t question = 0; question < 3; ++question) {
    records.push_back(Record(0, question, "dense", 1));
    records.push_back(Record(0, question, "sparq:1/8", 1));
  }
  records[1].attention = {.alpha_estimate = 0.5, .audits = 1, .kept_mass = 0.4, .error = 0.1, .overlap = 1};
  records[3].attention = {.alpha_estimate = 0.75, .audits = 3, .kept_mass = 0.8, .error = 0.3, .overlap = 0.5};
  const std::vector<EvalRow> rows = SummarizeEval(records, 1);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_FALSE(rows[0].attention.alpha_estimate);
  EXPECT_EQ(rows[0].attention.audits, 0U);
  EXPECT_EQ(rows[0].attention.kept_mass, 0.0);
  const EvalAttention& attention = rows[1].attention;
  EXPECT_DOUBLE_EQ(attention.alpha_estimate.value(), 0.625) << "of those that have one";
  EXPECT_EQ(attention.audits, 4U);
  EXPECT_DOUBLE_EQ(attention.kept_mass, 0.7);
  EXPECT_DOUBLE_EQ(attention.error, 0.25);
  EXPECT_DOUBLE_EQ(attention.overlap, 0.625);
}

TEST(EvalSummary, QuestionWithoutDenseRecord_IsLeftOut) {
  const std::vector<EvalRow> rows =
      SummarizeEval(std::vector{Record(0, 0, "h2o:1/4", 2), Record(0, 1, "h2o:1/4", 5), Record(0, 1, "dense", 4)}, 1);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].questions, 1U);
  EXPECT_DOUBLE_EQ(rows[0].ratio, std::exp(1.0));
  EXPECT_TRUE(SummarizeEval({}, 1).empty());
}

TEST(EvalSummary, TasksAndLengths_HaveRowsOfTheirOwn) {
  EvalRecord longer = Record(0, 0, "dense", 1), bpc = Record(0, 0, "dense", 1);
  longer.key.context_tokens = 1024;
  bpc.key.task = EvalTask::kBpc;
  bpc.bits_per_character = 1.5;
  longer.rouge_l = 0.75;
  const std::vector<EvalRow> rows = SummarizeEval(std::vector{Record(0, 0, "dense", 1), longer, bpc}, 1);
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[1].context_tokens, 1024U);
  EXPECT_DOUBLE_EQ(rows[1].rouge_l.value_or(0), 0.75);
  EXPECT_DOUBLE_EQ(rows[2].bits_per_character.value_or(0), 1.5);
}

}  // namespace
}  // namespace tidemill::eval_summary_test
