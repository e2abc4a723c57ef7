#include "cli/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "cli/flag_groups.h"

namespace tidemill::cli::flags_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Flags of each kind, and what came of one command line.
struct Parsed {
  std::string model;
  std::optional<std::string> text, stop_words;
  std::optional<std::string> level;
  std::optional<int32_t> number;
  std::optional<float> real;
  std::vector<size_t> list = {7};
  std::vector<std::string> stops;
  bool chat = false, raw = false;
  std::string error;
};

Parsed Parse(std::vector<std::string> arguments) {
  Parsed parsed;
  FlagSet set("run", "A test");
  set.Positional("MODEL", parsed.model, "A model");
  set.OptionalPositional("TEXT", parsed.text, "A text");
  set.Number<int32_t>("-n,--max-new-tokens", parsed.number, -5, 100, "A number");
  set.Number<float>("--temperature,--temp", parsed.real, -2.0f, 2.0f, "A real number");
  set.Numbers("--depth", parsed.list, 0, 4096, "A list");
  set.Choice("--isa", parsed.level, {"avx2", "avx512"}, "A choice");
  set.Texts("--stop", parsed.stops, "TEXT", "Texts");
  set.Switch("--chat", parsed.chat, "A switch");
  set.Switch("--raw", parsed.raw, "Another");
  set.Excludes("--chat", "--raw");
  set.Removed("--old-flag", "give --isa");
  SignalWatch signals;
  Output out(STDOUT_FILENO, signals);
  Messages messages(STDERR_FILENO);
  CommandContext context{out, messages, signals, std::move(arguments)};
  const auto result = set.Parse(context);
  if (!result.ok()) {
    EXPECT_EQ(result.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_TRUE(result.error().message().starts_with("read the command line: ")) << result.error().message();
    parsed.error = result.error().message();
  }
  return parsed;
}

TEST(FlagSet, EveryKind_IsRead) {
  const Parsed parsed =
      Parse({"m.gguf", "a text", "-n", "-3", "--temp=0.5", "--depth", "0,2048", "--isa", "avx2", "--chat"});
  EXPECT_EQ(parsed.error, "");
  EXPECT_EQ(parsed.model, "m.gguf");
  EXPECT_EQ(parsed.text, "a text");
  EXPECT_EQ(parsed.number, -3);
  EXPECT_EQ(parsed.real, 0.5f);
  EXPECT_THAT(parsed.list, ElementsAre(0, 2048));
  EXPECT_EQ(parsed.level, "avx2");
  EXPECT_TRUE(parsed.chat);
}

TEST(FlagSet, TextsThatLookLikeSomethingElse_AreTaken) {
  const Parsed parsed = Parse({"m.gguf", "--stop", "[a,b]", "--stop", "--chat", "--stop", "", "--", "-p"});
  EXPECT_EQ(parsed.error, "");
  EXPECT_THAT(parsed.stops, ElementsAre("[a,b]", "--chat", ""));
  EXPECT_EQ(parsed.text, "-p");
  EXPECT_FALSE(parsed.chat);
  EXPECT_EQ(Parse({"m.gguf", "[x,y]"}).text, "[x,y]");
  EXPECT_EQ(Parse({"m.gguf", ""}).text, "");
  EXPECT_EQ(Parse({"m.gguf", "-"}).text, "-");
}

TEST(FlagSet, WrongNumbers_NameFlagRangeAndValue) {
  for (const std::string text : {"abc", "", "1.5", " 1", "+1", "1x", "101", "-6", "99999999999999999999", "0x10"}) {
    EXPECT_EQ(Parse({"m.gguf", "-n", text}).error,
              "read the command line: --max-new-tokens: expected a whole number from -5 to "
              "100, found \"" +
                  text + "\"; see tidemill run --help");
  }
  for (const std::string text : {"nan", "inf", "2.5", "1,5", "", "."}) {
    EXPECT_THAT(Parse({"m.gguf", "--temp", text}).error,
                HasSubstr("--temperature: expected a number from -2 to 2, found"));
  }
  for (const std::string text : {"", "1,", ",1", "1 2", "-1", "4097", "1;2"}) {
    EXPECT_THAT(Parse({"m.gguf", "--depth", text}).error, HasSubstr("--depth: expected whole numbers")) << text;
  }
  EXPECT_THAT(Parse({"m.gguf", "--isa", "sse"}).error, HasSubstr("--isa: expected avx2|avx512, found \"sse\""));
}

TEST(FlagSet, UnknownFlag_SuggestsTheNearest) {
  EXPECT_THAT(Parse({"m.gguf", "--temprature", "0.5"}).error,
              HasSubstr("\"--temprature\": no such flag of tidemill run; did you mean --temperature?"));
  EXPECT_THAT(Parse({"--max-new=3", "m.gguf"}).error, HasSubstr("did you mean --max-new-tokens?"));
  EXPECT_THAT(Parse({"--sotp"}).error, HasSubstr("did you mean --stop?"));
  EXPECT_THAT(Parse({"m.gguf", "--something-else"}).error, HasSubstr("tidemill run --help lists them"));
  EXPECT_THAT(Parse({"m.gguf", "one", "two"}).error, HasSubstr("\"two\": expected no further argument"));
}

TEST(FlagSet, NameOfAnotherProgram_IsAnsweredWithOurs) {
  EXPECT_THAT(Parse({"m.gguf", "-ngl", "99"}).error,
              HasSubstr("\"-ngl\": no such flag of tidemill run; it runs on no GPU"));
  EXPECT_THAT(Parse({"m.gguf", "-np", "4"}).error,
              HasSubstr("\"-np\": no such flag of tidemill run; tidemill run --help"))
      << "this command has no --max-batch";
  EXPECT_THAT(Parse({"m.gguf", "--reverse-prompt=x"}).error, HasSubstr("give --stop"));
  EXPECT_THAT(Parse({"m.gguf", "--max-tokens", "3"}).error, HasSubstr("give --max-new-tokens"));
  EXPECT_THAT(Parse({"m.gguf", "-z"}).error, HasSubstr("tidemill run --help lists them"));
}

TEST(FlagSet, RemovedFlag_SaysWhatToDoInstead) {
  for (const std::vector<std::string>& given :
       {std::vector<std::string>{"--old-flag"}, {"--old-flag", "x"}, {"--old-flag=x"}}) {
    std::vector<std::string> arguments = {"m.gguf"};
    arguments.insert(arguments.end(), given.begin(), given.end());
    EXPECT_THAT(Parse(arguments).error, HasSubstr("--old-flag: expected no such flag, which was removed: give --isa"));
  }
  EXPECT_THAT(Parse({"m.gguf", "--old-flax"}).error, Not(HasSubstr("--old-flag"))) << "it is not suggested";
}

TEST(FlagSet, FlagsThatContradict_AreRefused) {
  EXPECT_THAT(Parse({"m.gguf", "--chat", "--raw"}).error, HasSubstr("--chat excludes --raw"));
  EXPECT_THAT(Parse({"m.gguf", "-n", "1", "-n", "2"}).error,
              HasSubstr("--max-new-tokens: expected it once, found it again; see"));
  EXPECT_THAT(Parse({}).error, HasSubstr("MODEL is required"));
  EXPECT_THAT(Parse({"m.gguf", "--stop"}).error, HasSubstr("--stop"));
}

TEST(Nearest, OnlySlipsAreSuggested) {
  EXPECT_EQ(Nearest("rnu", {"run", "chat"}), "run");
  EXPECT_EQ(Nearest("inspcet", {"run", "inspect"}), "inspect");
  EXPECT_EQ(Nearest("serve", {"run", "chat"}), std::nullopt);
  EXPECT_EQ(Nearest("", {"run"}), std::nullopt);
  EXPECT_EQ(Nearest(std::string(100000, 'a'), {"run"}), std::nullopt);
}

TEST(GenerationFlags, OnlyWhatWasGiven_ReplacesTheModelsOwn) {
  GenerationFlags flags;
  GenerationOptions recommended;
  recommended.temperature = 0.6f;
  recommended.top_p = 0.9f;
  recommended.stop = {"###"};
  flags.top_p = 0.5f;
  flags.seed = 42;
  const GenerationOptions options = flags.ApplyTo(recommended);
  EXPECT_EQ(options.temperature, 0.6f);
  EXPECT_EQ(options.top_p, 0.5f);
  EXPECT_EQ(options.seed, 42U);
  EXPECT_THAT(options.stop, ElementsAre("###"));
}

// What the machine flags make of `--rope-scaling TEXT`; an error's message behind "error: ".
std::string RopeScalingOf(const std::string& text) {
  MachineFlags flags;
  FlagSet set("run", "A test");
  flags.AddTo(set);
  SignalWatch signals;
  Output out(STDOUT_FILENO, signals);
  Messages messages(STDERR_FILENO);
  CommandContext context{out, messages, signals, {"--rope-scaling", text}};
  if (const auto result = set.Parse(context); !result.ok()) return "error: " + result.error().message();
  const std::optional<RopeOverride> rope = flags.load_options().rope_scaling;
  if (!rope) return "none";
  return (rope->kind == RopeKind::kYarn ? "yarn by " : "linear by ") + NumberText(rope->factor);
}

TEST(MachineFlags, RopeScaling_IsAKindAndAFactor) {
  EXPECT_FALSE(MachineFlags().load_options().rope_scaling.has_value());
  EXPECT_EQ(RopeScalingOf("yarn=4"), "yarn by 4");
  EXPECT_EQ(RopeScalingOf("linear=1.5"), "linear by 1.5");
  EXPECT_EQ(RopeScalingOf("linear=1024"), "linear by 1024");
  EXPECT_EQ(RopeScalingOf("yarn=1.0000001"), "yarn by 1.0000001");
  for (const std::string text :
       {"", "yarn", "yarn=", "=4", "ntk=4", "Yarn=4", "yarn=1", "yarn=0.5", "yarn=-4", "yarn=1024.001", "yarn=1e400",
        "yarn=nan", "yarn=inf", "yarn=4x", "yarn= 4", "yarn=+4", "yarn==4", "yarn=4,8"}) {
    EXPECT_EQ(
        RopeScalingOf(text),
        "error: read the command line: --rope-scaling: expected linear=FACTOR or yarn=FACTOR with a factor above 1 "
        "and at most 1024, found \"" +
            text + "\"; see tidemill run --help");
  }
}

TEST(MachineFlags, KvPolicy_IsGivenByName) {
  MachineFlags flags;
  EXPECT_EQ(flags.engine_options().value().kv_policy, KvPolicy::kBmc);
  EXPECT_EQ(flags.engine_options().value().kv_increment, 0U);
  flags.kv_increment = 7;
  for (const char* name : {"iterative", "upfront", "bmc", "geometric", "reserve", "paged"}) {
    flags.kv_policy = name;
    EXPECT_EQ(KvPolicyName(flags.engine_options().value().kv_policy), name);
    EXPECT_EQ(flags.engine_options().value().kv_increment, 7U);
  }
  flags.kv_policy = "none";
  EXPECT_EQ(flags.engine_options().error().code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(flags.engine_options().error().message(), HasSubstr("reserve or paged"));
}

TEST(MachineFlags, KvType_IsGivenByName) {
  MachineFlags flags;
  EXPECT_FALSE(flags.engine_options().value().kv_type.has_value());
  flags.kv_dtype = "bf16";
  EXPECT_EQ(flags.engine_options().value().kv_type, KvType::kBF16);
  flags.kv_dtype = "q8_0";
  EXPECT_EQ(flags.engine_options().value().kv_type, KvType::kQ8_0);
  flags.kv_dtype = "q8_1";
  EXPECT_EQ(flags.engine_options().error().code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(flags.engine_options().error().message(), HasSubstr("f32, f16, bf16 or q8_0"));
}

}  // namespace
}  // namespace tidemill::cli::flags_test
