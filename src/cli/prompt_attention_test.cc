#include "cli/prompt_attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "cli/prompt_line.h"

namespace tidemill::cli::prompt_attention_test {
namespace {

using ::testing::HasSubstr;

// Of a line with these members, over what the command line says.
std::optional<AttentionPolicy> Over(const AttentionPolicy& flags, const std::string& members) {
  Json id;
  const auto line = ParsePromptLine("{\"prompt\": \"a\"" + members + "}", &id);
  EXPECT_TRUE(line.ok()) << line.error().message();
  return line.ok() ? line->attention.Over(flags) : std::nullopt;
}

std::string ErrorOf(const std::string& member) {
  Json id;
  const auto line = ParsePromptLine("{\"prompt\": \"a\", " + member + "}", &id);
  EXPECT_FALSE(line.ok()) << member;
  return line.ok() ? "" : line.error().message();
}

TEST(PromptAttention, LineWithoutIt_LeavesTheCommandLines) {
  EXPECT_EQ(Over({.kind = AttentionKind::kSparq}, ""), std::nullopt);
  EXPECT_EQ(Over({}, ", \"max_new_tokens\": 3"), std::nullopt);
}

TEST(PromptAttention, KindOfALine_ReplacesAllOfTheCommandLines) {
  const AttentionPolicy flags{.kind = AttentionKind::kSparq, .r = 8, .k = 64, .audit = 3, .floors = {.alphas = {0.5F}}};
  EXPECT_EQ(Over(flags, R"(, "attention": "dense")"), AttentionPolicy());
  EXPECT_EQ(Over(flags, R"(, "sparq_k": 9, "attention": "topk")"),
            (AttentionPolicy{.kind = AttentionKind::kTopk, .k = 9}));
}

TEST(PromptAttention, OtherMembers_ReplaceOneFlagEach) {
  const AttentionPolicy flags{
      .kind = AttentionKind::kSparq, .r = 8, .k = 64, .rule = SparqRule::kEval, .from = 5, .dense_layers = {1}};
  AttentionPolicy expected = flags;
  expected.k = 9;
  EXPECT_EQ(Over(flags, R"(, "sparq_k": 9)"), expected);
  EXPECT_EQ(Over(flags, R"(, "sparq_r": 1, "sparq_local": 2, "sparq_rule": "paper", "sparq_mean": false,
                              "sparq_columns": "cache", "sparq_dense_layers": [], "sparq_from": 0, "attention_audit": 7,
                              "attention_floor": [0.5, 1])"),
            (AttentionPolicy{.kind = AttentionKind::kSparq,
                             .r = 1,
                             .k = 64,
                             .local = 2,
                             .reallocate = false,
                             .columns = KeyColumns::kCache,
                             .from = 0,
                             .audit = 7,
                             .floors = {.alphas = {0.5F, 1}}}));
  EXPECT_EQ(Over(flags, R"(, "attention_floor": 0.25)")->floors.alphas, std::vector<float>{0.25F});
}

TEST(PromptAttention, FloorsOfALine_AreOfNoFile) {
  const AttentionPolicy flags{
      .kind = AttentionKind::kSparq,
      .floors = {.alphas = {0.5F, 0.25F}, .dense_shares = {0, 1}, .origin = FloorOrigin{.model = 3}}};
  EXPECT_EQ(Over(flags, R"(, "attention_floor": 0.75)"),
            (AttentionPolicy{.kind = AttentionKind::kSparq, .floors = {.alphas = {0.75F}}}));
  EXPECT_EQ(Over(flags, R"(, "sparq_mean": true)"), flags);
}

TEST(PromptAttention, WrongMembers_AreNamed) {
  EXPECT_EQ(ErrorOf(R"("attention": "sparse")"),
            "read the line: \"attention\": expected one of \"dense\", \"sparq\", \"topk\", \"h2o\", \"window\", "
            "\"auto\", found \"sparse\"");
  EXPECT_THAT(ErrorOf(R"("attention": 3)"), HasSubstr("\"attention\": expected one of"));
  for (const char* name : {"sparq_r", "sparq_k", "sparq_local"}) {
    EXPECT_EQ(ErrorOf("\"" + std::string(name) + "\": 0"),
              "read the line: \"" + std::string(name) + "\": expected a whole number from 1 to 1073741824, found 0");
  }
  EXPECT_THAT(ErrorOf(R"("sparq_from": -1)"), HasSubstr("expected a whole number from 0"));
  EXPECT_THAT(ErrorOf(R"("attention_audit": 1.5)"), HasSubstr("expected a whole number from 0"));
  EXPECT_THAT(ErrorOf(R"("sparq_rule": "code")"), HasSubstr("expected one of \"paper\", \"eval\", found \"code\""));
  EXPECT_THAT(ErrorOf(R"("sparq_columns": true)"), HasSubstr("expected one of \"auto\", \"none\", \"cache\""));
  EXPECT_THAT(ErrorOf(R"("sparq_mean": "on")"), HasSubstr("expected true or false, found \"on\""));
  EXPECT_THAT(ErrorOf(R"("sparq_dense_layers": [1, -1])"), HasSubstr("expected a list of layers from 0"));
  EXPECT_THAT(ErrorOf(R"("sparq_dense_layers": "0-3")"), HasSubstr("expected a list of layers from 0"));
  EXPECT_THAT(ErrorOf(R"("attention_floor": "f.json")"),
              HasSubstr("expected a number, or a list of one for each layer"));
  EXPECT_THAT(ErrorOf(R"("sparq_kk": 5)"), HasSubstr("did you mean \"sparq_k\"?"));
}

}  // namespace
}  // namespace tidemill::cli::prompt_attention_test
