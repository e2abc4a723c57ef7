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

TEST(Answer, AttentionByLength_SaysWhatDecided) {
  RequestStats stats;
  stats.attention_reason = "--attention auto: why";
  EXPECT_EQ(DescribeAttention(stats), "attention    dense; chosen by --attention auto: why\n");
  stats.attention = SparseStatsOf(AttentionKind::kSparq, 8, {.rows = 2, .short_rows = 2}).attention;
  EXPECT_EQ(DescribeAttention(stats),
            "attention    sparq r 3, k 8, local 2; rows 2, short 2; bytes 100.0 %; chosen by --attention auto: why\n");
}

TEST(Answer, AttentionWithoutSparseRows_SaysSo) {
  EXPECT_EQ(DescribeAttention(SparseStatsOf(AttentionKind::kTopk, 8, {})),
            "attention    topk k 8, local 2; no row was sparse\n");
}

// What `say` writes.
template <typename Say>
std::string Said(const Say& say) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  Messages messages(ends[1]);
  say(messages);
  close(ends[1]);
  std::string said(1000, '\0');
  said.resize(static_cast<size_t>(read(ends[0], said.data(), said.size())));
  close(ends[0]);
  return said;
}

TEST(Answer, NoteOnAttention_SaysWhatWasGivenUpOrDidNothing) {
  AttentionFlags flags;
  const auto note = [&](const RequestStats& stats) {
    return Said([&](Messages& messages) { NoteAttention(stats, flags, messages); });
  };
  const auto sparq = [](const SparseStats::Counts& counts) { return SparseStatsOf(AttentionKind::kSparq, 8, counts); };
  const std::string approximate =
      "tidemill: note: sparq attention is approximate: the answer may be another than with --attention dense, which "
      "reads all\n";
  EXPECT_EQ(note({}), "");
  EXPECT_EQ(note(sparq({.rows = 3})), approximate);
  EXPECT_EQ(note(sparq({.rows = 3, .dense_share = 0.75})), approximate);
  EXPECT_EQ(note(sparq({.rows = 3, .dense_share = 1})), "") << "dense attention's bits";
  EXPECT_EQ(note(sparq({.rows = 3, .short_rows = 3})), "");
  EXPECT_EQ(note(sparq({})), "");
  flags.from = 9000;
  EXPECT_EQ(note(sparq({})),
            "tidemill: note: --sparq-from 9000: no token attended sparsely, since the request ended before that "
            "position\n");
  EXPECT_EQ(note(sparq({.rows = 3})), approximate);
  RequestStats dense;
  dense.attention_reason = "--attention auto: why";
  flags.audit = 3;
  EXPECT_EQ(note(dense),
            "tidemill: note: dense attention was chosen by --attention auto: why; without effect: --sparq-from, "
            "--attention-audit\n");
  dense.attention_reason = "--attention-floor: why";
  EXPECT_EQ(note(dense), "tidemill: note: dense attention was chosen by --attention-floor: why\n");
  flags = {};
  EXPECT_EQ(note(dense), "");
}

TEST(Answer, LostColumns_AreWarnedAboutOnce) {
  RequestStats sum;
  EXPECT_EQ(
      Said([&](Messages& messages) {
        WarnAboutGrowth(sum, messages);
        sum.growth.gave_up_columns = true;
        WarnAboutGrowth(sum, messages);
      }),
      "tidemill: warning: --sparq-columns cache: there was no memory for columns of keys; they were read from rows: "
      "more slowly, for the same answer\n");
}

}  // namespace
}  // namespace tidemill::cli
