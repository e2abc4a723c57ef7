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

// r and k.
std::pair<size_t, size_t> Numbers(const EvalPolicy& policy, size_t head_dim, size_t positions) {
  const AttentionPolicy attention = EvalAttentionOf(policy, head_dim, positions);
  EXPECT_EQ(attention.kind, policy.kind);
  EXPECT_FALSE(attention.local);  // the default
  return {attention.r.value_or(0), attention.k.value_or(0)};
}

double Share(const EvalPolicy& policy, size_t head_dim, size_t positions) {
  return EvalShareOfDense(EvalAttentionOf(policy, head_dim, positions), head_dim, positions);
}

TEST(EvalPolicies, PapersSettings_FollowFromTheirShare) {
  // head_dim 128, k = 128: 2048 positions at 1/8 have r = 16; 4096 at 1/8 have r = 24.
  const EvalPolicy eighth = {.kind = AttentionKind::kSparq, .compression = 8};
  EXPECT_EQ(Numbers(eighth, 128, 2048), std::pair(size_t{16}, size_t{128}));
  EXPECT_EQ(Numbers(eighth, 128, 4096), std::pair(size_t{24}, size_t{128}));
  // head_dim 64, 1024 positions at 1/16: 8192 elements. 128 rows are 16384; 32 are 4096, half of them; r = 4096 / 1024.
  EXPECT_EQ(Numbers({.kind = AttentionKind::kSparq, .compression = 16}, 64, 1024), std::pair(size_t{4}, size_t{32}));
}

TEST(EvalPolicies, Shares_AreAtMostThoseAskedFor) {
  for (const size_t head_dim : {16, 64, 80, 128, 256}) {
    for (const size_t positions : {512, 1000, 4096, 100000}) {
      for (const size_t compression : {2, 3, 4, 8, 16}) {
        for (const AttentionKind kind : {AttentionKind::kSparq, AttentionKind::kH2o, AttentionKind::kWindow}) {
          const EvalPolicy policy = {.kind = kind, .compression = compression};
          const double share = Share(policy, head_dim, positions) * static_cast<double>(compression);
          // A few components that are rounded down leave much of a small share.
          const double least = kind == AttentionKind::kSparq && compression >= head_dim / 2 ? 0.5 : 0.7;
          EXPECT_LE(share, 1.0) << head_dim << " " << positions << " 1/" << compression;
          EXPECT_GE(share, least) << head_dim << " " << positions << " 1/" << compression;
        }
      }
    }
  }
  // A window keeps 16 first positions whatever its share, and one more.
  EXPECT_EQ(Numbers({.kind = AttentionKind::kWindow, .compression = 64}, 64, 512).second, 17U);
}

TEST(EvalPolicies, Topk_ReadsAllKeysAndSparqsRows) {
  const EvalPolicy topk = {.kind = AttentionKind::kTopk, .compression = 8};
  const size_t k = Numbers({.kind = AttentionKind::kSparq, .compression = 8}, 64, 1024).second;
  EXPECT_EQ(Numbers(topk, 64, 1024), std::pair(size_t{0}, k));
  EXPECT_DOUBLE_EQ(Share(topk, 64, 1024), 0.5 + static_cast<double>(k) / 1024);
}

TEST(EvalPolicies, GivenNumbers_AreTaken) {
  EXPECT_EQ(Numbers({.kind = AttentionKind::kSparq, .r = 20, .k = 10}, 64, 1024), std::pair(size_t{20}, size_t{10}));
  EXPECT_EQ(Numbers({.kind = AttentionKind::kH2o, .k = 3}, 64, 1024), std::pair(size_t{0}, size_t{3}));
  EXPECT_EQ(EvalAttentionOf(EvalPolicy(), 64, 1024), AttentionPolicy());
  EXPECT_EQ(Share(EvalPolicy(), 64, 1024), 1.0);
  EXPECT_EQ(Share({.kind = AttentionKind::kWindow, .k = 1024}, 64, 1024), 1.0);  // all of it
}

}  // namespace
}  // namespace tidemill::eval_policies_test
