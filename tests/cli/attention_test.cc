// --attention and what belongs to it: what is refused, where nothing changes, and what a run says of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/model_files.h"
#include "tests/cli/process.h"

namespace tidemill::testing::attention_test {
namespace {

using nlohmann::json;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::vector<std::string> With(std::vector<std::string> arguments, const std::vector<std::string>& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

std::vector<std::string> RunOf(const std::vector<std::string>& more) {
  return With({"run", TinyLlamaFile(), "--raw", "--ignore-eos", "--temperature", "0"}, more);
}

json RunJson(const std::vector<std::string>& more) {
  const ProcessResult result = RunTidemill(With(RunOf({"--json"}), more));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return json::parse(result.out, nullptr, false);
}

void ExpectRefused(const std::vector<std::string>& arguments, int exit_code, const std::string& message) {
  const ProcessResult result = RunTidemill(arguments);
  EXPECT_EQ(result.exit_code, exit_code) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.err, "tidemill: " + message + "\n");
}

TEST(Attention, DenseAndShortAuto_AreThePlainAnswer) {
  const json plain = RunJson({"-p", "The tide", "-n", "9"});
  EXPECT_FALSE(plain.contains("attention"));
  for (const char* kind : {"dense", "auto"}) {
    const json same = RunJson({"-p", "The tide", "-n", "9", "--attention", kind});
    EXPECT_EQ(same["ids"], plain["ids"]) << kind;
    EXPECT_EQ(same["numeric_class"], plain["numeric_class"]) << kind;
    EXPECT_EQ(same.contains("attention"), kind == std::string("auto"));
    if (same.contains("attention")) {
      EXPECT_EQ(same["attention"],
                json({{"kind", "dense"}, {"chosen_by", "--attention auto: fewer than 4096 positions"}}));
    }
  }
  const std::vector<std::string> any = {"-p", "The tide", "-n", "9", "--attention", "auto"};
  EXPECT_EQ(RunTidemill(RunOf(any)).err, "") << "nothing is approximate";
  EXPECT_THAT(RunTidemill(With(RunOf(any), {"--stats"})).err,
              HasSubstr("\nattention    dense; chosen by --attention auto: fewer than 4096 positions\n"));
  EXPECT_EQ(
      RunTidemill(With(RunOf(any), {"--sparq-k", "7", "--attention-audit", "2"})).err,
      "tidemill: note: dense attention was chosen by --attention auto: fewer than 4096 positions; without effect: "
      "--sparq-k, --attention-audit\n");
}

TEST(Attention, SparseFromBehindTheRequest_IsNoticed) {
  const ProcessResult result =
      RunTidemill(RunOf({"-p", "The tide", "-n", "9", "--attention", "sparq", "--sparq-from", "200", "--stats"}));
  EXPECT_THAT(result.err,
              StartsWith("tidemill: note: --sparq-from 200: no token attended sparsely, since the request ended before "
                         "that position\n"));
  EXPECT_THAT(result.err, HasSubstr("\nattention    sparq r 2, k 128, local 32; no row was sparse\n"));
}

TEST(Attention, FloorOfOne_IsNotApproximate) {
  const std::vector<std::string> sparq = {"-p",    "The tide",  "-n", "20",        "--attention",
                                          "sparq", "--sparq-k", "4",  "--sparq-r", "2"};
  EXPECT_THAT(RunTidemill(RunOf(sparq)).err, HasSubstr("is approximate"));
  const ProcessResult always = RunTidemill(With(RunOf(sparq), {"--attention-floor", "1"}));
  EXPECT_EQ(always.err, "");
  EXPECT_EQ(always.out, RunTidemill(RunOf({"-p", "The tide", "-n", "20"})).out);
}

TEST(Attention, SparseRun_SaysItsClassItsCountsAndThatItIsApproximate) {
  const std::vector<std::string> sparq = {
      "-p", "The tide comes in.", "-n", "40", "--attention", "sparq", "--sparq-r", "3", "--sparq-k",
      "8",  "--attention-audit",  "5"};
  const ProcessResult result = RunTidemill(With(RunOf({"--json"}), sparq));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(
      result.err,
      "tidemill: note: sparq attention is approximate: the answer may be another than with --attention dense, which "
      "reads all\n");
  const json answer = json::parse(result.out), found = answer["attention"];
  EXPECT_THAT(answer["numeric_class"].get<std::string>(), EndsWith("/sparq-r3-k8-l2"));
  EXPECT_EQ(found["kind"], "sparq");
  EXPECT_EQ(found["r"], 3);
  EXPECT_EQ(found["k"], 8);
  EXPECT_EQ(found["local"], 2);
  EXPECT_EQ(found["rule"], "paper");
  EXPECT_EQ(found["mean"], true);
  EXPECT_EQ(found["columns"], true);
  ASSERT_EQ(found["layers"].size(), 2U);
  const uint64_t rows = 39;  // the last token is in no state
  EXPECT_EQ(found["rows"], 2 * rows);
  EXPECT_EQ(found["short_rows"], 0);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(found["layers"][i]["layer"], i);
    EXPECT_EQ(found["layers"][i]["rows"], rows);
    EXPECT_GT(found["layers"][i]["audits"], 0);
    EXPECT_GT(found["layers"][i]["kept_mass"], 0);
  }
  EXPECT_GT(found["alpha_estimate"], 0);
  EXPECT_EQ(found["dense_share"], 0);
  EXPECT_GT(found["dense_bytes"], 0);
  const ProcessResult text = RunTidemill(With(RunOf({"--stats", "--quiet"}), sparq));
  EXPECT_THAT(text.err, HasSubstr("attention    sparq r 3, k 8, local 2; rows 78, short 0; bytes "));
  EXPECT_THAT(text.err, HasSubstr("; alpha_estimate "));
  EXPECT_THAT(text.err, HasSubstr("; audits "));
  EXPECT_THAT(text.err, HasSubstr("/sparq-r3-k8-l2\n"));
  EXPECT_THAT(text.err, Not(HasSubstr("note")));
}

TEST(Attention, StatsOfManyPrompts_AreSums) {
  const std::string line = R"({"prompt": "The tide is high tonight", "max_new_tokens": 20, "ignore_eos": true)";
  const auto said = [&](const std::string& lines) {
    return RunTidemill({"run", TinyLlamaFile(), "--raw", "--stats", "--prompts", "-"}, {.input = lines}).err;
  };
  const std::string sparq = R"(, "attention": "sparq", "sparq_r": 3, "sparq_k": 4)";
  EXPECT_THAT(said(line + "}\n"), Not(HasSubstr("attention    ")));
  // Of two layers; the last token of each is in no state.
  EXPECT_THAT(said(line + "}\n" + line + sparq + "}\n" + line + sparq + "}\n"),
              HasSubstr("attention    sparq r 3, k 4, local 1; rows 76, short 0; "));
  EXPECT_THAT(said(line + sparq + "}\n" + line + R"(, "attention": "topk", "sparq_k": 4})" + "\n"),
              HasSubstr("attention    several policies; rows 76, short 0; "));
}

TEST(Attention, SavedState_GoesOnUnderItsFlagsAlone) {
  const std::string path = TestFolder() + "/sparse.state";
  const std::vector<std::string> topk = {"--attention", "topk", "--sparq-k", "9"};
  const json whole = RunJson(With({"-p", "The tide", "-n", "60"}, topk));
  const json first = RunJson(With({"-p", "The tide", "-n", "21", "--save-state", path}, topk));
  const std::vector<std::string> resume = {"run", TinyLlamaFile(), "--load-state", path, "-n", "60", "--json"};
  const ProcessResult more = RunTidemill(With(resume, topk));
  ASSERT_EQ(more.exit_code, 0) << more.err;
  const json rest = json::parse(more.out);
  json ids = first["ids"];
  for (const json& id : rest["ids"]) ids.push_back(id);
  EXPECT_EQ(ids, whole["ids"]);
  const std::string own = whole["numeric_class"], dense = own.substr(0, own.rfind('/'));
  ExpectRefused(resume, 1,
                "resume request: " + path + ": expected numeric class " + own + ", found " + dense +
                    "; choose --attention, its --sparq flags and --attention-floor as when it was saved");
}

TEST(Attention, Plan_SaysWhatWasChosen) {
  if (!testing::WhyNoMeasurement().empty()) GTEST_SKIP() << testing::WhyNoMeasurement();
  const ProcessResult result =
      RunTidemill({"plan", TinyLlamaFile(), "--json", "--attention", "topk", "--sparq-k", "9"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json plan = json::parse(result.out);
  const auto choice = std::find_if(plan["choices"].begin(), plan["choices"].end(),
                                   [](const json& one) { return one["name"] == "attention"; });
  ASSERT_NE(choice, plan["choices"].end());
  EXPECT_EQ((*choice)["chosen"]["value"], "topk k 9");
  EXPECT_EQ((*choice)["alternative"]["value"], "dense");
}

TEST(Attention, EstimatesAreSaid_WhereThereAreSome) {
  for (const char* kind : {"sparq", "topk"}) {
    const json attention = RunJson({"-p", "The tide", "-n", "9", "--attention", kind, "--sparq-k", "4"})["attention"];
    EXPECT_GT(attention["alpha_estimate"], 0) << kind;
    EXPECT_EQ(attention["dense_share"], 0) << kind;
  }
  for (const char* kind : {"sparq", "h2o", "window"}) {  // sparq: of a context that is short
    const json attention = RunJson({"-p", "The tide", "-n", "9", "--attention", kind})["attention"];
    EXPECT_GT(attention["rows"], 0) << kind;
    EXPECT_FALSE(attention.contains("alpha_estimate")) << kind;
    EXPECT_FALSE(attention.contains("dense_share")) << kind;
  }
}

TEST(Attention, WrongFlags_AreRefused) {
  const auto refused = [](const std::vector<std::string>& more, int exit_code, const std::string& message) {
    ExpectRefused(With(RunOf({"-p", "a", "-n", "3"}), more), exit_code, message);
  };
  const std::string line = "read the command line: ";
  refused({"--sparq-k", "8"}, 2, line + "--sparq-k requires --attention; see tidemill run --help");
  refused({"--attention", "dense", "--sparq-k", "8"}, 2,
          line + "--sparq-k: expected --attention sparq, topk, h2o, window or auto beside it, found dense");
  refused({"--attention", "sparq", "--sparq-r", "41"}, 2,
          "start engine: --sparq-r 41: expected at most the model's head_dim, which is 16");
  refused({"--attention", "sparq", "--sparq-local", "129"}, 2,
          "start engine: --sparq-local 129: expected at most --sparq-k, which is 128");
  refused(
      {"--attention", "window", "--sparq-k", "16"}, 2,
      "start engine: --sparq-k 16: expected more than 16 with --attention window, which keeps so many first positions");
  refused({"--attention", "topk", "--sparq-r", "4"}, 2,
          "start engine: --sparq-r: expected --attention sparq or auto, found topk; leave it out");
  for (const char* kind : {"h2o", "window"}) {
    const std::string name = std::string(kind) + (*kind == 'h' ? "-k128-l32" : "-k128");
    refused({"--attention", kind, "--draft", "ngram"}, 2,
            "submit request: draft: expected attention that keeps all positions, found " + name +
                ", whose draft tokens cannot be taken back; draft nothing, or choose --attention sparq or topk");
  }
  for (const char* command : {"logits", "perplexity"}) {
    std::vector<std::string> arguments = {command, TinyLlamaFile(), "--attention", "topk"};
    if (std::string(command) == "logits") arguments = With(arguments, {"--ids", "ids.json", "-o", "out.safetensors"});
    ExpectRefused(arguments, 2,
                  line +
                      "--attention topk: expected --sparq-from beside it, since this command reads prompts, which are "
                      "dense; add it");
  }
}

TEST(Attention, FloorFiles_AreReadBeforeTheModel) {
  const std::string path = WriteFile("floors.json", R"({"model": "m", "attention": {}, "floors": [0.5, 0.5, 0.5]})");
  const auto refused = [&](const std::string& file, int exit_code, const std::string& message) {
    ExpectRefused(RunOf({"-p", "a", "-n", "3", "--attention", "sparq", "--attention-floor", file}), exit_code, message);
  };
  refused(path, 2,
          "start engine: --attention-floor: expected 1 number or one for each of the model's 2 layers, found 3");
  const std::string wrong = WriteFile("no_floors.json", R"({"floors": [0.5, 2]})");
  refused(wrong, 1,
          "read the floors of attention: " + wrong + ": \"floors[1]\": expected a number from 0 to 1, found 2");
  refused(TestFolder() + "/none.json", 1,
          "read the floors of attention: " + TestFolder() + "/none.json: No such file or directory; check the path");
}

TEST(Attention, WrongLines_CostTheirOwnResult) {
  const std::string path = WriteFile("attention.jsonl",
                                     R"({"prompt": "a", "attention": "sparse"}
{"prompt": "a", "attention": "sparq", "sparq_r": 99}
{"prompt": "a", "sparq_k": 9}
{"prompt": "a", "attention": "dense"}
)");
  const ProcessResult result =
      RunTidemill({"run", TinyLlamaFile(), "--raw", "-n", "3", "--ignore-eos", "--prompts", path});
  EXPECT_EQ(result.exit_code, 5) << result.err;
  std::vector<json> lines;
  for (size_t begin = 0; begin < result.out.size(); begin = result.out.find('\n', begin) + 1)
    lines.push_back(json::parse(result.out.substr(begin, result.out.find('\n', begin) - begin), nullptr, false));
  ASSERT_EQ(lines.size(), 4U);
  const auto message = [&](size_t line) { return lines[line]["error"]["message"].get<std::string>(); };
  EXPECT_THAT(message(0), HasSubstr("read the line: \"attention\": expected one of \"dense\", \"sparq\""));
  EXPECT_EQ(message(1), "submit request: attention: --sparq-r 99: expected at most the model's head_dim, which is 16");
  EXPECT_EQ(message(2),
            "submit request: attention: --sparq-k and its like: expected --attention sparq, topk, h2o, "
            "window or auto, found dense; leave it out");
  EXPECT_EQ(lines[3]["generated_tokens"], 3);
}

}  // namespace
}  // namespace tidemill::testing::attention_test
