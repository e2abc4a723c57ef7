// tidemill plan: what it prints, and that it measures a machine once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tests/cli/model_files.h"
#include "tests/cli/process.h"
#include "tests/fixtures_path.h"
#include "tests/support/tiny_model.h"

namespace tidemill::testing::plan_test {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The environment's folder for caches is one of this test's own, with a profile of this machine in it, measured once.
class PlanCommand : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("XDG_CACHE_HOME", Cache().c_str(), 1);
    if (IsEmulated()) return;
    first_ = Run({"--json"});
    measured_ = ReadWholeFile(Profile());
  }
  static void TearDownTestSuite() { UseOwnCache(); }
  void SetUp() override {
    if (IsEmulated()) GTEST_SKIP() << testing::WhyNoMeasurement();
  }
  void TearDown() override {
    if (!IsEmulated()) WriteFile("cache/tidemill/machine.json", measured_);
  }

  static bool IsEmulated() { return !testing::WhyNoMeasurement().empty(); }

  static std::string Cache() { return TestFolder() + "/cache"; }
  static std::string Profile() { return Cache() + "/tidemill/machine.json"; }
  static ProcessResult Run(std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"plan", TinyLlamaFile(), "--threads", "2"});
    ProcessResult result = RunTidemill(flags);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result;
  }
  static json Json(const std::vector<std::string>& flags) { return json::parse(Run(flags).out, nullptr, false); }
  static json Choice(const json& plan, const std::string& name) {
    for (const json& choice : plan["choices"]) {
      if (choice["name"] == name) return choice;
    }
    ADD_FAILURE() << "no choice " << name << " in " << plan;
    return {};
  }

  static ProcessResult first_;
  static std::string measured_;
};
ProcessResult PlanCommand::first_;
std::string PlanCommand::measured_;

TEST_F(PlanCommand, FirstCall_MeasuresAndKeepsTheNumbers) {
  const json plan = json::parse(first_.out, nullptr, false);
  EXPECT_EQ(plan["machine"]["measured"], true);
  EXPECT_EQ(plan["machine"]["threads"], 2);
  EXPECT_EQ(json::parse(measured_, nullptr, false)["version"], 2);
}

TEST_F(PlanCommand, SecondCall_MeasuresNothing) {
  const ProcessResult second = Run({"--json"});
  EXPECT_EQ(second.err, "");
  const json plan = json::parse(second.out, nullptr, false);
  EXPECT_EQ(plan["machine"]["measured"], false);
  EXPECT_EQ(plan["predicted"], json::parse(first_.out, nullptr, false)["predicted"]);
  EXPECT_EQ(ReadWholeFile(Profile()), measured_);
}

TEST_F(PlanCommand, Json_HasEveryMember) {
  const json plan = Json({"--json", "--context", "200", "--batch", "3", "--state-memory", "1000000000"});
  EXPECT_EQ(plan["context_size"], 200);
  EXPECT_EQ(plan["batch"], 3);
  EXPECT_EQ(plan["state_memory_bytes"], 1000000000);
  EXPECT_GT(plan["state_bytes_per_token"], 0);
  EXPECT_EQ(plan["model"]["family"], "llama");
  EXPECT_EQ(plan["warnings"], json::array());
  std::vector<std::string> names;
  for (const json& choice : plan["choices"]) {
    names.push_back(choice["name"]);
    EXPECT_GE(choice["chosen"]["cost"], 0.0);
    EXPECT_EQ(choice["unit"], "seconds");
    for (const char* member : {"alternative", "option", "of", "reason"}) EXPECT_TRUE(choice.contains(member)) << member;
  }
  const json& memory = plan["memory"];
  EXPECT_GE(memory["kv_cache_bytes"], 3 * 200 * plan["state_bytes_per_token"].get<uint64_t>());
  EXPECT_LT(memory["unused_capacity_bytes"], memory["kv_cache_bytes"]);
  EXPECT_GT(memory["weight_bytes"], 0);
  EXPECT_EQ(memory["total_bytes"].get<uint64_t>(), memory["weight_bytes"].get<uint64_t>() +
                                                       memory["kv_cache_bytes"].get<uint64_t>() +
                                                       memory["work_bytes"].get<uint64_t>());
  EXPECT_EQ(memory["fits"], memory["total_bytes"] <= memory["free_bytes"]);
  EXPECT_THAT(names, ElementsAre("growth increment", "kv policy", "prefill chunk", "threads", "attention"));
  EXPECT_EQ(Choice(plan, "growth increment")["chosen"]["value"], "200 tokens");
  EXPECT_EQ(Choice(plan, "kv policy")["chosen"]["value"], "bmc");
  EXPECT_EQ(Choice(plan, "threads")["chosen"]["value"], "2");
  EXPECT_EQ(Choice(plan, "attention")["chosen"]["value"], "dense");
  EXPECT_EQ(Choice(plan, "attention")["alternative"]["value"], "sparq r 2 k 128");
  ASSERT_EQ(plan["predicted"]["decode"].size(), 3U);
  EXPECT_GT(plan["predicted"]["decode"][2]["tokens_per_s"], 0.0);
  EXPECT_GT(plan["predicted"]["prefill"]["seconds"], 0.0);
}

TEST_F(PlanCommand, Drafts_ArePlanned) {
  const json plain = Json({"--json"});
  EXPECT_EQ(plain["drafts"]["planned"], false);
  ASSERT_EQ(plain["drafts"]["steps"].size(), 17U);
  EXPECT_TRUE(plain["drafts"]["steps"][0]["break_even_acceptance_rate"].is_null());
  for (const char* drafter : {"ngram", "layers:1", "model"}) {
    const std::string named = drafter == std::string("model") ? TinyLlamaFile() : drafter;
    const json plan = Json({"--json", "--draft", named, "--draft-max", "4"});
    const json width = Choice(plan, "draft tokens");
    EXPECT_EQ(plan["drafts"]["planned"], true);
    EXPECT_EQ(plan["drafts"]["draft_seconds"].get<double>() == 0, named == "ngram") << drafter;
    EXPECT_LE(width["chosen"]["cost"], width["alternative"]["cost"]) << drafter;
    EXPECT_EQ(plan["drafts"]["best"].size(), 5U);
    for (const json& best : plan["drafts"]["best"]) EXPECT_LE(best["num_draft_tokens"], 4);
  }
  EXPECT_THAT(Run({"--draft", "ngram"}).out, HasSubstr("\ndraft tokens      "));
}

TEST_F(PlanCommand, SegmentModel_HasOrders) {
  const std::string model = std::string(TIDEMILL_FIXTURES) + "/armt/llama";
  const ProcessResult result = RunTidemill({"plan", model, "--threads", "2", "--context", "1000", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json plan = json::parse(result.out, nullptr, false), &segments = plan["segments"];
  EXPECT_EQ(plan["context_size"], 1000);
  EXPECT_EQ(segments["segment_tokens"], 7);
  EXPECT_EQ(segments["memory_tokens"], 3);
  EXPECT_EQ(segments["prompt_tokens"], 1000);
  EXPECT_EQ(segments["whole_segments"], 142);
  EXPECT_EQ(segments["orders"][0]["name"], "sequential");
  EXPECT_GT(segments["orders"].size(), 1U);
  double chosen = 0, least = 1e9;
  for (const json& order : segments["orders"]) {
    const double seconds = order["prompt_seconds"];
    if (order["name"] == segments["chosen"]) chosen = seconds;
    least = std::min(least, seconds);
    EXPECT_NEAR(order["tokens_per_s"].get<double>() * seconds, 1000, 1e-6);
    EXPECT_GT(order["buffer_bytes"], 0);
  }
  EXPECT_LE(chosen, 1.02 * least);
  EXPECT_EQ(plan["predicted"]["prefill"]["seconds"], chosen);
  EXPECT_EQ(Choice(plan, "segment order")["reason"], segments["reason"]);
  EXPECT_THAT(segments["note"], HasSubstr("all orders read the same bytes"));
  const std::string text = RunTidemill({"plan", model, "--threads", "2", "--context", "1000"}).out;
  EXPECT_THAT(text, HasSubstr("\nsegments          7 + 3 memory tokens; a state keeps at any length "));
  EXPECT_THAT(text, HasSubstr(segments["note"].get<std::string>()));
  EXPECT_TRUE(Json({"--json"})["segments"].is_null());
}

TEST_F(PlanCommand, SparseAttention_IsPredictedAsItReads) {
  const std::string model = WriteFile(
      "long.gguf", BuildTinyLlama({.hidden = 128, .heads = 4, .kv_heads = 2, .head_dim = 32, .context = 8192}));
  const auto plan = [&](const std::vector<std::string>& flags) {
    std::vector<std::string> arguments = {"plan", model, "--threads", "2", "--json"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    return json::parse(RunTidemill(arguments).out, nullptr, false);
  };
  const auto cost = [&](const std::vector<std::string>& flags, const char* which = "chosen") {
    return Choice(plan(flags), "attention")[which]["cost"].get<double>();
  };
  const double dense = cost({}), sparq = cost({"--attention", "sparq"});
  EXPECT_LT(sparq, dense);
  EXPECT_EQ(cost({}, "alternative"), sparq);
  EXPECT_NEAR(cost({"--attention", "sparq", "--sparq-dense-layers", "0"}), (dense + sparq) / 2, 1e-6 * dense);
  const std::string floors = WriteFile("plan_floors.json", R"({"floors": [0.5, 0.5], "dense_share": [1, 0]})");
  EXPECT_NEAR(cost({"--attention", "sparq", "--attention-floor", floors}), (dense + sparq) / 2, 1e-6 * dense);
  const json late = plan({"--attention", "sparq", "--sparq-from", "9000"});
  EXPECT_EQ(Choice(late, "attention")["chosen"]["cost"], dense);
  EXPECT_EQ(late["predicted"], plan({})["predicted"]);
  // Keys that are read from rows.
  for (const std::vector<std::string>& rows :
       {std::vector<std::string>{"--sparq-columns", "none"}, {"--kv-dtype", "q8_0"}}) {
    EXPECT_GT(cost({"--attention", "sparq", rows[0], rows[1]}), 2 * dense) << rows[0];
  }
  EXPECT_EQ(cost({"--kv-dtype", "q8_0"}, "alternative"), cost({"--kv-dtype", "q8_0", "--attention", "sparq"}));
}

TEST_F(PlanCommand, Flags_AreObeyed) {
  const auto increment = [](const std::vector<std::string>& flags) {
    return Choice(Json(flags), "growth increment")["chosen"]["value"];
  };
  EXPECT_EQ(increment({"--json"}), "256 tokens");  // the model's context
  EXPECT_EQ(increment({"--json", "--kv-increment", "64"}), "64 tokens");
  EXPECT_EQ(increment({"--json", "--state-memory", "1"}), "1 token");
  EXPECT_EQ(Choice(Json({"--json", "--kv-policy", "reserve"}), "kv policy")["chosen"]["value"], "reserve");
}

TEST_F(PlanCommand, Text_HasAtMost20LinesAndVerboseMore) {
  const ProcessResult brief = Run({"--draft", "ngram"}), verbose = Run({"--draft", "ngram", "--verbose"});
  EXPECT_EQ(brief.err, "");
  EXPECT_LE(std::count(brief.out.begin(), brief.out.end(), '\n'), 20) << brief.out;
  for (const char* part :
       {"machine  ", "request  ", "memory            weights ", "; fits in ", "decode  ", "prefill  ",
        "growth increment  ", "kv policy  ", "prefill chunk  ", "threads  ", "draft tokens  "})
    EXPECT_THAT(brief.out, HasSubstr(part));
  for (const char* part : {"numbers  ", "state memory  ", "KV cache  ", "break-even acceptance rate"})
    EXPECT_THAT(verbose.out, HasSubstr(part));
}

TEST_F(PlanCommand, DamagedProfile_IsAWarningAndStays) {
  for (const char* lacking : {"{}", "{\"version\": 2}"}) {  // as if there were no file, but there is one
    WriteFile("cache/tidemill/machine.json", lacking);
    EXPECT_THAT(Run({}).err, HasSubstr("read the machine's profile: " + Profile()));
    EXPECT_EQ(ReadWholeFile(Profile()), lacking);
  }
  WriteFile("cache/tidemill/machine.json", measured_.substr(0, measured_.size() / 2));
  const ProcessResult result = Run({"--json"});
  EXPECT_THAT(result.err, HasSubstr("read the machine's profile: " + Profile()));
  EXPECT_THAT(result.err, HasSubstr("built-in numbers serve, --recalibrate writes a new one"));
  EXPECT_EQ(json::parse(result.out)["machine"]["measured"], false);
  EXPECT_EQ(json::parse(result.out)["warnings"].size(), 1U);
  EXPECT_EQ(ReadWholeFile(Profile()).size(), measured_.size() / 2);
}

TEST_F(PlanCommand, ProfileOfAnEarlierVersion_IsAWarning) {
  json old = json::parse(measured_);
  old["version"] = 1;
  WriteFile("cache/tidemill/machine.json", old.dump());
  const ProcessResult result = Run({"--json"});
  EXPECT_THAT(result.err, HasSubstr("\"version\": expected 2, found 1; built-in numbers serve"));
  EXPECT_EQ(json::parse(result.out)["machine"]["measured"], false);
}

TEST_F(PlanCommand, ProfileOfAnotherMachine_IsAWarning) {
  json other = json::parse(measured_);
  other["cpu"] = "another \x1b[31m CPU";
  WriteFile("cache/tidemill/machine.json", other.dump());
  const ProcessResult result = Run({});
  EXPECT_THAT(result.err, HasSubstr("use the machine's profile: "));
  EXPECT_EQ(result.err.find('\x1b'), std::string::npos);
}

// A folder stands where the file should be.
TEST_F(PlanCommand, Recalibrate_MeasuresWhateverIsThere) {
  const std::string cache = TestFolder() + "/folder_cache";
  std::filesystem::create_directories(cache + "/tidemill/machine.json");
  setenv("XDG_CACHE_HOME", cache.c_str(), 1);
  const ProcessResult without = Run({"--json"}), with = Run({"--json", "--recalibrate"});
  setenv("XDG_CACHE_HOME", Cache().c_str(), 1);
  EXPECT_THAT(without.err, HasSubstr("expected a regular file; built-in numbers serve"));
  EXPECT_EQ(json::parse(without.out)["machine"]["measured"], false);
  EXPECT_THAT(with.err, HasSubstr("keep the machine's profile: "));
  EXPECT_EQ(json::parse(with.out)["machine"]["measured"], true);
}

TEST_F(PlanCommand, BadFlags_AreWrongUsage) {
  for (const std::vector<std::string>& flags : {std::vector<std::string>{"--batch", "0"},
                                                {"--state-memory", "0"},
                                                {"--state-memory", "1GB"},
                                                {"--context", "257"},
                                                {"--draft", "magic"},
                                                {"--draft-tree", "fixed"},
                                                {"--draft-max", "3"}}) {
    std::vector<std::string> arguments = {"plan", TinyLlamaFile()};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    EXPECT_EQ(RunTidemill(arguments).exit_code, 2) << flags[0] << " " << flags[1];
  }
}

}  // namespace
}  // namespace tidemill::testing::plan_test
