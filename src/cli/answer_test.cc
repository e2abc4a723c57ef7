#include "cli/answer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "cli/messages.h"
#include "cli/session.h"

namespace tidemill::cli {
namespace {

RequestStats SparseStatsOf(AttentionKind kind, size_t k, const SparseStats::Counts& counts) {
  RequestStats stats;
  stats.attention = SparseStats{.kind = kind, .r = 3, .k = k, .local = 2, .columns = true, .all = counts};
  return stats;
}

TEST(Answer, SumOfAttention_WeighsMeansByTheirRows) {
  RequestStats sum;
  AddAttention({}, &sum);
  EXPECT_EQ(DescribeAttention(sum), "");
  AddAttention(SparseStatsOf(AttentionKind::kSparq, 8,
                             {.rows = 12,
                              .short_rows = 2,
                              .alpha_estimate = 0.5,
                              .dense_share = 0.1,
                              .bytes = 100,
                              .dense_bytes = 300,
                              .audits = 1,
                              .kept_mass = 0.75,
                              .error = 0.25,
                              .agreement = 1}),
               &sum);
  AddAttention({}, &sum);
  AddAttention(SparseStatsOf(AttentionKind::kSparq, 8,
                             {.rows = 30,
                              .alpha_estimate = 0.9,
                              .dense_share = 0.5,
                              .bytes = 200,
                              .dense_bytes = 300,
                              .audits = 3,
                              .kept_mass = 0.95,
                              .error = 0.05,
                              .agreement = 0.5}),
               &sum);
  EXPECT_EQ(DescribeAttention(sum),
            "attention    sparq r 3, k 8, local 2; rows 42, short 2; bytes 50.0 %; alpha_estimate 0.8000, dense heads "
            "40.0 %; audits 4: kept mass 0.9000, error 0.1000, agreement 0.6250\n");
  AddAttention(SparseStatsOf(AttentionKind::kSparq, 9, {.rows = 1, .short_rows = 1, .bytes = 6, .dense_bytes = 6}),
               &sum);
  EXPECT_TRUE(DescribeAttention(sum).starts_with("attention    several policies; rows 43, short 3; bytes 50.5 %"))
      << DescribeAttention(sum);
}

TEST(Answer, LostColumns_AreWarnedAboutOnce) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  Messages messages(ends[1]);
  RequestStats sum;
  WarnAboutGrowth(sum, messages);
  sum.growth.gave_up_columns = true;
  WarnAboutGrowth(sum, messages);
  close(ends[1]);
  std::string said(1000, '\0');
  said.resize(static_cast<size_t>(read(ends[0], said.data(), said.size())));
  close(ends[0]);
  EXPECT_EQ(
      said,
      "tidemill: warning: --sparq-columns cache: there was no memory for columns of keys; they were read from rows: "
      "more slowly, for the same answer\n");
}

}  // namespace
}  // namespace tidemill::cli
