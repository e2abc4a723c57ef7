#include "runtime/eval_policies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tidemill::eval_policies_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Names(std::string_view list, std::vector<size_t> compressions = {2, 8}) {
  const auto policies = ParseEvalPolicies(list, compressions);
  std::vector<std::string> names;
  if (!policies.ok()) return {policies.error().message()};
  for (const EvalPolicy& policy : *policies) names.push_back(policy.name());
  return names;
}

TEST(EvalPolicies, List_IsReadAndBeginsWithDense) {
  EXPECT_THAT(Names("dense"), ElementsAre("dense"));
  EXPECT_THAT(Names("sparq,window"), ElementsAre("dense", "sparq:1/2", "sparq:1/8", "window:1/2", "window:1/8"));
  EXPECT_THAT(Names("h2o:1/16,dense,topk:k=64,sparq:r=32:k=128,sparq:k=9:r=3"),
              ElementsAre("dense", "h2o:1/16", "topk:k=64", "sparq:r=32:k=128", "sparq:r=3:k=9"));
}

TEST(EvalPolicies, WhatIsNoPolicy_IsNamed) {
  for (const char* bad :
       {"", "auto", "sparq:", "sparq:1/0", "sparq:1/1", "sparq:1/2000", "sparq:8", "sparq:k=128", "sparq:r=4",
        "h2o:r=4:k=3", "h2o:k=4:k=5", "h2o:1/2:k=4", "dense:1/2", "dense:k=4", "window,", "sparq:k="}) {
    const auto policies = ParseEvalPolicies(bad, std::vector<size_t>{2});
    ASSERT_FALSE(policies.ok()) << bad;
    EXPECT_EQ(policies.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(policies.error().message(), HasSubstr("expected dense, or one of sparq topk h2o window")) << bad;
  }
  EXPECT_THAT(Names("sparq,sparq:1/8"), ElementsAre(HasSubstr("'sparq:1/8' is there twice")));
  EXPECT_THAT(Names("dense,dense"), ElementsAre(HasSubstr("'dense' is there twice")));
  EXPECT_THAT(Names("sparq", {2, 2}), ElementsAre(HasSubstr("'sparq:1/2' is there twice")));
  std::vector<size_t> many;
  for (size_t i = 2; i < 40; ++i) many.push_back(i);
  EXPECT_THAT(Names("sparq", many), ElementsAre(HasSubstr("expected at most 32, found 39")));
}

TEST(EvalPolicies, PapersSettings_FollowFromTheirShare) {
  // head_dim 128, k = 128: 2048 positions at 1/8 have r = 16; 4096 at 1/8 have r = 24.
  const EvalPolicy eighth = {.kind = AttentionKind::kSparq, .compression = 8};
  EXPECT_EQ(EvalFormOf(eighth, 128, 2048), (SparseForm{.kind = SparseKind::kSparq, .r = 16, .k = 128, .local = 32}));
  EXPECT_EQ(EvalFormOf(eighth, 128, 4096), (SparseForm{.kind = SparseKind::kSparq, .r = 24, .k = 128, .local = 32}));
  // head_dim 64, 1024 positions at 1/16: 8192 elements. 128 rows are 16384; 32 are 4096, half of them; r = 4096 / 1024.
  EXPECT_EQ(EvalFormOf({.kind = AttentionKind::kSparq, .compression = 16}, 64, 1024),
            (SparseForm{.kind = SparseKind::kSparq, .r = 4, .k = 32, .local = 8}));
}

TEST(EvalPolicies, Shares_AreAtMostThoseAskedFor) {
  for (const size_t head_dim : {16, 64, 80, 128, 256}) {
    for (const size_t positions : {512, 1000, 4096, 100000}) {
      for (const size_t compression : {2, 3, 4, 8, 16, 32}) {
        for (const AttentionKind kind : {AttentionKind::kSparq, AttentionKind::kH2o, AttentionKind::kWindow}) {
          const SparseForm form = EvalFormOf({.kind = kind, .compression = compression}, head_dim, positions);
          const double share = EvalShareOfDense(form, head_dim, positions) * static_cast<double>(compression);
          if (kind == AttentionKind::kSparq && compression >= head_dim / 2) {  // one component alone is more
            EXPECT_GE(form.r, 1U);
            continue;
          }
          EXPECT_LE(share, 1.0) << head_dim << " " << positions << " 1/" << compression;
          EXPECT_GE(share, 0.7) << head_dim << " " << positions << " 1/" << compression;
          EXPECT_EQ(form.local, std::max<size_t>(1, form.k / 4));
        }
      }
    }
  }
}

TEST(EvalPolicies, Topk_ReadsAllKeysAndSparqsRows) {
  const SparseForm sparq = EvalFormOf({.kind = AttentionKind::kSparq, .compression = 8}, 64, 1024);
  const SparseForm topk = EvalFormOf({.kind = AttentionKind::kTopk, .compression = 8}, 64, 1024);
  EXPECT_EQ(topk.k, sparq.k);
  EXPECT_EQ(topk.r, 64U);
  EXPECT_DOUBLE_EQ(EvalShareOfDense(topk, 64, 1024), 0.5 + static_cast<double>(topk.k) / 1024);
}

TEST(EvalPolicies, GivenNumbers_AreTaken) {
  EXPECT_EQ(EvalFormOf({.kind = AttentionKind::kSparq, .r = 200, .k = 10}, 64, 1024),
            (SparseForm{.kind = SparseKind::kSparq, .r = 64, .k = 10, .local = 2}));
  EXPECT_EQ(EvalFormOf({.kind = AttentionKind::kH2o, .k = 3}, 64, 1024),
            (SparseForm{.kind = SparseKind::kH2o, .k = 3, .local = 1}));
  EXPECT_EQ(EvalFormOf(EvalPolicy(), 64, 1024), SparseForm());
  EXPECT_EQ(EvalShareOfDense({.kind = SparseKind::kWindow, .k = 1024}, 64, 1024), 1.0);  // all of it
}

}  // namespace
}  // namespace tidemill::eval_policies_test
