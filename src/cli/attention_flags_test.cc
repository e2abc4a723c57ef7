#include "cli/attention_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "cli/flags.h"

namespace tidemill::cli::attention_flags_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What a command line makes of them, or why it is refused.
Result<AttentionPolicy> Parse(std::vector<std::string> arguments) {
  AttentionFlags flags;
  FlagSet set("run", "A test");
  flags.AddTo(set);
  SignalWatch signals;
  Output out(STDOUT_FILENO, signals);
  Messages messages(STDERR_FILENO);
  CommandContext context{out, messages, signals, std::move(arguments)};
  TIDEMILL_TRY_VOID(set.Parse(context));
  return flags.policy();
}

std::string ErrorOf(std::vector<std::string> arguments, ErrorCode code = ErrorCode::kInvalidArgument) {
  const auto policy = Parse(std::move(arguments));
  if (policy.ok()) return "";
  EXPECT_EQ(policy.error().code(), code) << policy.error().message();
  return policy.error().message();
}

TEST(AttentionFlags, None_IsDense) {
  EXPECT_EQ(Parse({}).value(), AttentionPolicy());
  EXPECT_EQ(Parse({"--attention", "dense"}).value(), AttentionPolicy());
}

TEST(AttentionFlags, EachFlag_IsRead) {
  using enum AttentionKind;
  for (const AttentionKind kind : {kSparq, kTopk, kH2o, kWindow, kAuto})
    EXPECT_EQ(Parse({"--attention", std::string(AttentionKindName(kind))}).value(), AttentionPolicy{.kind = kind});
  EXPECT_EQ(Parse({"--attention",
                   "sparq",
                   "--sparq-r",
                   "8",
                   "--sparq-k",
                   "100",
                   "--sparq-local",
                   "9",
                   "--sparq-rule",
                   "eval",
                   "--sparq-mean",
                   "off",
                   "--sparq-columns",
                   "none",
                   "--sparq-dense-layers",
                   "0,5-7",
                   "--sparq-from",
                   "0",
                   "--attention-audit",
                   "16",
                   "--attention-floor",
                   "0.75"})
                .value(),
            (AttentionPolicy{.kind = kSparq,
                             .r = 8,
                             .k = 100,
                             .local = 9,
                             .rule = SparqRule::kEval,
                             .reallocate = false,
                             .columns = KeyColumns::kNone,
                             .from = 0,
                             .dense_layers = {0, 5, 6, 7},
                             .audit = 16,
                             .floors = {.alphas = {0.75F}}}));
  EXPECT_EQ(Parse({"--attention", "sparq", "--sparq-rule", "paper", "--sparq-mean", "on", "--sparq-columns", "cache"})
                .value(),
            (AttentionPolicy{.kind = kSparq, .columns = KeyColumns::kCache}));
}

TEST(AttentionFlags, Given_AreNamed) {
  AttentionFlags flags;
  EXPECT_EQ(flags.given(), "");
  flags.kind = "auto";
  EXPECT_EQ(flags.given(), "");
  flags.k = 8;
  flags.dense_layers = {0};
  flags.audit = 3;
  EXPECT_EQ(flags.given(), "--sparq-k, --sparq-dense-layers, --attention-audit");
}

TEST(AttentionFlags, WithoutAKind_TheyAreRefused) {
  const std::pair<const char*, const char*> given[] = {
      {"--sparq-r", "8"},         {"--sparq-k", "8"},          {"--sparq-local", "8"},        {"--sparq-rule", "paper"},
      {"--sparq-mean", "on"},     {"--sparq-columns", "auto"}, {"--sparq-dense-layers", "0"}, {"--sparq-from", "8"},
      {"--attention-audit", "8"}, {"--attention-floor", "0.5"}};
  for (const auto& [flag, value] : given) {
    const std::string name = flag;
    EXPECT_THAT(ErrorOf({flag, value}), HasSubstr(name + " requires --attention"));
    EXPECT_EQ(ErrorOf({"--attention", "dense", flag, value}),
              "read the command line: " + name +
                  ": expected --attention sparq, topk, h2o, window or auto beside it, found dense");
    EXPECT_EQ(ErrorOf({"--attention", "sparq", flag, value}), "") << flag;
  }
}

TEST(AttentionFlags, WrongValues_AreRefused) {
  const auto error = [](const std::string& flag, const std::string& value) {
    return ErrorOf({"--attention", "sparq", flag, value});
  };
  EXPECT_THAT(ErrorOf({"--attention", "sparse"}), HasSubstr("--attention: expected"));
  EXPECT_THAT(ErrorOf({"--attention", "sparse"}), HasSubstr("\"sparse\""));
  for (const char* flag : {"--sparq-r", "--sparq-k", "--sparq-local", "--attention-audit"}) {
    EXPECT_THAT(error(flag, "0"), HasSubstr(std::string(flag) + ": expected a whole number from 1 to"));
    EXPECT_THAT(error(flag, "x"), HasSubstr("a whole number from 1"));
  }
  EXPECT_THAT(error("--sparq-from", "-1"), HasSubstr("--sparq-from: expected a whole number from 0"));
  EXPECT_THAT(error("--sparq-rule", "code"), HasSubstr("--sparq-rule: expected"));
  EXPECT_THAT(error("--sparq-mean", "yes"), HasSubstr("--sparq-mean: expected"));
  EXPECT_THAT(error("--sparq-columns", "rows"), HasSubstr("--sparq-columns: expected"));
  for (const char* list : {"", "a", "1,", ",1", "3-1", "1-", "-1", "1--2", "0-99999999"}) {
    EXPECT_THAT(ErrorOf({"--attention", "sparq", std::string("--sparq-dense-layers=") + list}),
                HasSubstr("--sparq-dense-layers: expected"))
        << list;
  }
  for (const char* floor : {"1.5", "-0.1", "nan"})
    EXPECT_NE(ErrorOf({"--attention", "sparq", std::string("--attention-floor=") + floor},
                      *floor == 'n' ? ErrorCode::kNotFound : ErrorCode::kInvalidArgument),
              "")
        << floor;
}

TEST(AttentionFlags, Layers_AreNumbersAndRanges) {
  EXPECT_THAT(ParseLayerList("0,1,30-31").value(), ElementsAre(0, 1, 30, 31));
  EXPECT_THAT(ParseLayerList("7-7").value(), ElementsAre(7));
  EXPECT_THAT(ParseLayerList("5,3,5").value(), ElementsAre(5, 3, 5)) << "the model says what is wrong with it";
  EXPECT_EQ(ParseLayerList("1.5"), std::nullopt);
}

TEST(AttentionFlags, FloorFile_HasOneForEachLayer) {
  const std::string path = ::testing::TempDir() + "floors_" + std::to_string(getpid()) + ".json";
  const auto error = [&](const std::string& text) {
    std::ofstream(path) << text;
    return ErrorOf({"--attention", "sparq", "--attention-floor", path}, ErrorCode::kCorruptFile);
  };
  std::ofstream(path) << R"({"model": "m.gguf", "attention": {"kind": "sparq", "r": 16}, "floors": [0, 0.5, 1]})";
  EXPECT_THAT(Parse({"--attention", "sparq", "--attention-floor", path}).value().floors.alphas,
              ElementsAre(0, 0.5F, 1));
  const std::string begin = "read the floors of attention: " + path + ": ";
  EXPECT_THAT(error("{"), HasSubstr(begin));
  EXPECT_THAT(error("[]"), HasSubstr(begin));
  EXPECT_EQ(error(R"({"floors": []})"),
            begin + "\"floors\": expected a number from 0 to 1 for each layer, found an array");
  EXPECT_EQ(error(R"({"floors": [0.5, 1.5]})"), begin + "\"floors[1]\": expected a number from 0 to 1, found 1.5");
  EXPECT_THAT(error(R"({"floors": "high"})"), HasSubstr(begin + "\"floors\": expected"));
  EXPECT_EQ(error(R"({"floors": [0.5, "x"]})"), begin + "\"floors[1]\": expected a number from 0 to 1, found \"x\"");
  EXPECT_THAT(ErrorOf({"--attention", "sparq", "--attention-floor", path + ".not"}, ErrorCode::kNotFound),
              HasSubstr(path + ".not"));
  std::ofstream(path) << R"({"model": "m.gguf"})";
  EXPECT_THAT(ErrorOf({"--attention", "sparq", "--attention-floor", path}, ErrorCode::kNotFound), HasSubstr(begin));
  unlink(path.c_str());
}

TEST(AttentionFlags, FloorFile_SaysWhatItWasFittedFor) {
  const std::string path = ::testing::TempDir() + "fitted_" + std::to_string(getpid()) + ".json";
  const std::string form =
      R"("attention": {"kind": "sparq", "r": 4, "k": 24, "local": 6, "rule": "eval", "mean": false})";
  const auto file = [](const std::string& hash, const std::string& attention, const std::string& share) {
    return R"({"model": "m.gguf", "model_hash": )" + hash + ", " + attention +
           R"(, "floors": [0, 0.5], "dense_share": )" + share + "}";
  };
  std::ofstream(path) << file("\"00ff00ff00ff00ff\"", form, "[0.25, 1]");
  const FloorOrigin origin{
      .model = 0x00FF00FF00FF00FF, .r = 4, .k = 24, .local = 6, .rule = SparqRule::kEval, .reallocate = false};
  AttentionPolicy expected{.kind = AttentionKind::kAuto,
                           .r = 4,
                           .k = 24,
                           .local = 6,
                           .rule = SparqRule::kEval,
                           .reallocate = false,
                           .floors = {.alphas = {0, 0.5F}, .dense_shares = {0.25F, 1}, .origin = origin}};
  EXPECT_EQ(Parse({"--attention", "auto", "--attention-floor", path}).value(), expected);
  // Flags stay what they are; with the model they are refused.
  expected.k = 7;
  expected.rule = SparqRule::kPaper;
  EXPECT_EQ(
      Parse({"--attention", "auto", "--attention-floor", path, "--sparq-k", "7", "--sparq-rule", "paper"}).value(),
      expected);
  const auto error = [&](const std::string& text, ErrorCode code = ErrorCode::kCorruptFile) {
    std::ofstream(path) << text;
    return ErrorOf({"--attention", "sparq", "--attention-floor", path}, code);
  };
  for (const char* hash : {"\"\"", "\"xy\"", "\"12 \"", "\"-1\"", "\"11112222333344445\"", "7"})
    EXPECT_THAT(error(file(hash, form, "[0, 0]")), HasSubstr("\"model_hash\": expected")) << hash;
  EXPECT_THAT(error(file("\"1\"", form, "[0, 2]")),
              HasSubstr("\"dense_share[1]\": expected a number from 0 to 1, found 2"));
  EXPECT_THAT(error(file("\"1\"", R"("attention": {"r": 0})", "[0, 0]")), HasSubstr("attention.r"));
  EXPECT_THAT(error(file("\"1\"", R"("attention": {"r": 1, "k": 1, "local": 1, "rule": "x"})", "[0, 0]")),
              HasSubstr("\"attention.rule\": expected paper or eval"));
  EXPECT_THAT(error(file("\"1\"", R"("attention": {"r": 1})", "[0, 0]"), ErrorCode::kNotFound),
              HasSubstr("attention.k"));
  unlink(path.c_str());
}

TEST(AttentionFlags, CommandsThatReadPrompts_NeedTheFirstSparsePosition) {
  AttentionFlags flags;
  EXPECT_TRUE(CheckReadsPrompts(flags).ok());
  flags.kind = "dense";
  EXPECT_TRUE(CheckReadsPrompts(flags).ok());
  flags.kind = "topk";
  EXPECT_EQ(
      CheckReadsPrompts(flags).error().message(),
      "read the command line: --attention topk: expected --sparq-from beside it, since this command reads prompts, "
      "which are dense; add it");
  flags.from = 0;
  EXPECT_TRUE(CheckReadsPrompts(flags).ok());
}

}  // namespace
}  // namespace tidemill::cli::attention_flags_test
