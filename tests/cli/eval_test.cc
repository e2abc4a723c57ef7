// tidemill eval: its table, its records, and how a run that was stopped goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/model_files.h"
#include "tests/cli/process.h"
#include "tests/support/tiny_model.h"

namespace tidemill::testing::eval_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string& ModelFile() {
  static const std::string path = WriteFile("eval.gguf", BuildTinyLlama({.vocab = 600, .context = 2048}));
  return path;
}

std::vector<std::string> Arguments(const std::vector<std::string>& more, size_t contexts = 2) {
  std::vector<std::string> arguments = {"eval", ModelFile(), "--tasks", "passkey,notes", "--context-tokens",
                                        "400",  "--threads", "1"};
  arguments.insert(arguments.end(), {"--contexts", std::to_string(contexts)});
  if (std::find(more.begin(), more.end(), "--policies") == more.end())
    arguments.insert(arguments.end(), {"--policies", "dense"});
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

std::string Output(const std::vector<std::string>& more, size_t contexts = 2) {
  const ProcessResult result = RunTidemill(Arguments(more, contexts));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  return result.out;
}

void ExpectError(const ProcessResult& result, int exit_code, const std::string& what) {
  EXPECT_EQ(result.exit_code, exit_code) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, StartsWith("tidemill: "));
  EXPECT_THAT(result.err, HasSubstr(what));
}

TEST(Eval, Table_HasARowForEachTaskAndPolicy) {
  const std::string table = Output({});
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 3);
  EXPECT_THAT(table, StartsWith("task      tokens policy"));
  EXPECT_THAT(table, HasSubstr("\npasskey      400 dense            1.00   2"));
  EXPECT_THAT(table, HasSubstr("\nnotes        400 dense            1.00   2"));
  EXPECT_THAT(table, HasSubstr(" 1.000 [1.000, 1.000]\n"));
  for (size_t begin = 0; begin < table.size(); begin = table.find('\n', begin) + 1)
    EXPECT_LE(table.find('\n', begin) - begin, 100U);
  EXPECT_EQ(Output({}), table);
}

TEST(Eval, Policies_AreComparedWithDense) {
  const ProcessResult result = RunTidemill({"eval", ModelFile(), "--tasks", "passkey", "--context-tokens", "400",
                                            "--contexts", "2", "--compression", "1/4", "--json", "--quick"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json rows = json::parse(result.out, nullptr, false)["rows"];
  ASSERT_EQ(rows.size(), 5U);
  const char* names[] = {"dense", "sparq:1/4", "topk:1/4", "h2o:1/4", "window:1/4"};
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(rows[i]["policy"], names[i]);
    EXPECT_EQ(rows[i]["kl"].get<double>() > 0, i > 0) << rows[i];
    EXPECT_LE(rows[i]["ratio_interval"][0], rows[i]["ratio"]);
  }
}

TEST(Eval, Audits_AreInRecordsAndTables) {
  const std::string file = TestFolder() + "/audits.jsonl";
  const std::vector<std::string> more = {"--policies", "sparq:r=4:k=32,window:k=32", "--audit", "4", "--out", file};
  const std::string table = Output(more);
  EXPECT_THAT(table, HasSubstr("\ntask      tokens policy             audits  alpha   kept  error overlap\n"));
  EXPECT_THAT(table, HasSubstr("\npasskey      400 sparq:r=4:k=32 "));
  for (size_t begin = 0; begin < table.size(); begin = table.find('\n', begin) + 1)
    EXPECT_LE(table.find('\n', begin) - begin, 100U);
  std::vector<std::string> as_json = more;
  as_json.push_back("--json");
  const json summary = json::parse(Output(as_json), nullptr, false);  // from the file alone
  EXPECT_EQ(summary["audit"], 4);
  ASSERT_EQ(summary["rows"].size(), 6U);
  for (size_t i = 0; i < 6; ++i) {
    const bool is_sparq = i % 3 == 1;
    EXPECT_EQ(summary["rows"][i].contains("alpha_estimate"), is_sparq) << i;
    EXPECT_EQ(summary["rows"][i].contains("audits"), is_sparq) << i;
    if (!is_sparq) continue;
    EXPECT_GT(summary["rows"][i]["audits"], 0);
    for (const char* key : {"alpha_estimate", "kept_mass", "error", "overlap"}) {
      EXPECT_GT(summary["rows"][i][key].get<double>(), 0.0) << key;
      EXPECT_LT(summary["rows"][i][key].get<double>(), 2.0) << key;
    }
  }
  EXPECT_THAT(ReadWholeFile(file), HasSubstr("\"overlap\":"));
  ExpectError(RunTidemill(Arguments({"--policies", "sparq:r=4:k=32", "--out", file})), 1, "choose another --out");
}

TEST(Eval, Calibration_IsAFileThatRunReadsForThisModelAndForm) {
  const std::string file = TestFolder() + "/floors.json";
  // Two evaluations of two contexts for each of two tasks.
  const std::string work =
      "tidemill: note: calibrating reads 8 contexts of 3200 tokens together, and at most 32 answers of 64 tokens, each "
      "compared with dense attention; fewer --tasks, --contexts or --context-tokens take less time\n";
  const auto calibrated = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--calibrate", file, "--policies", "sparq:r=4:k=32", "--max-error", "0.5"});
    const ProcessResult result = RunTidemill(Arguments(more));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.err, StartsWith(work));  // more of it where that takes long
    return result.out;
  };
  const std::string bytes = calibrated({"--json"});
  EXPECT_EQ(ReadWholeFile(file), bytes);
  const json made = json::parse(bytes, nullptr, false);
  EXPECT_EQ(made["model"], "eval.gguf");
  EXPECT_EQ(made["attention"],
            json({{"kind", "sparq"}, {"r", 4}, {"k", 32}, {"local", 8}, {"rule", "paper"}, {"mean", true}}));
  for (const char* key : {"floors", "dense_share", "error", "rows", "correlation"})
    EXPECT_EQ(made[key].size(), 2U) << key;
  EXPECT_THAT(calibrated({}), StartsWith("layer    rows  floor  dense  error  correlation\n    0"));
  EXPECT_EQ(ReadWholeFile(file), bytes) << "the same contexts, the same floors";

  const auto run = [&](const std::string& model, const std::string& floors, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"run",  model,    "a b c", "-n",          "8",     "--threads",
                                          "1",    "--temp", "0",     "--attention", "sparq", "--attention-floor",
                                          floors, "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunTidemill(arguments);
  };
  const ProcessResult answer = run(ModelFile(), file);
  ASSERT_EQ(answer.exit_code, 0) << answer.err;
  EXPECT_THAT(answer.out, HasSubstr("/sparq-r4-k32-l8"));
  ExpectError(run(ModelFile(), file, {"--sparq-k", "40"}), 2,
              "expected r 4, k 32, local 8, rule paper, mean on, for which the floors were fitted, found r 4, k 40");
  const std::string other = WriteFile("other.gguf", BuildTinyLlama({.vocab = 600, .context = 2048, .seed = 77}));
  ExpectError(run(other, file), 2, "expected floors of this model");
  const std::string deeper = WriteFile("deeper.gguf", BuildTinyLlama({.vocab = 600, .layers = 3, .context = 2048}));
  ExpectError(run(deeper, file), 2, "expected floors of this model");
  ExpectError(RunTidemill(Arguments({"--calibrate", "/nowhere/floors.json"})), 1, "/nowhere/floors.json");
  for (const char* policies : {"h2o", "sparq"}) {
    ExpectError(RunTidemill(Arguments({"--calibrate", file, "--policies", policies})), 2,
                "calibrate: the policies: expected one sparq policy, found " + std::string(policies) + ":1/2, " +
                    policies + ":1/8\n");
  }
}

TEST(Eval, Json_HasTheSameNumbersAsTheRecords) {
  const std::string file = TestFolder() + "/records.jsonl";
  const json summary = json::parse(Output({"--json", "--out", file, "--seed", "4"}), nullptr, false);
  ASSERT_EQ(summary["rows"].size(), 2U);
  EXPECT_EQ(summary["seed"], 4);
  const std::string bytes = ReadWholeFile(file);
  EXPECT_EQ(std::count(bytes.begin(), bytes.end(), '\n'), 5);  // a header, and two questions of each task
  double nll = 0;
  std::vector<json> records;
  for (size_t begin = bytes.find('\n') + 1; begin < bytes.size(); begin = bytes.find('\n', begin) + 1) {
    records.push_back(json::parse(bytes.substr(begin, bytes.find('\n', begin) - begin), nullptr, false));
    if (records.back()["task"] == "passkey") nll += records.back()["nll"].get<double>() / 2;
  }
  EXPECT_GT(nll, 0.0);
  EXPECT_DOUBLE_EQ(summary["rows"][0]["nll"].get<double>(), nll);
  EXPECT_EQ(summary["rows"][0]["questions"], 2);
  EXPECT_EQ(records[3]["task"], "notes");
  EXPECT_EQ(records[3]["context"], 1);
  EXPECT_TRUE(records[3].contains("rouge_l"));
}

TEST(Eval, FileThatEndsAnywhere_IsCompletedToTheSameBytes) {
  const std::string whole_file = TestFolder() + "/whole.jsonl";
  const std::string table = Output({"--out", whole_file}), whole = ReadWholeFile(whole_file);
  const size_t second = whole.find('\n', whole.find('\n') + 1) + 1;
  // Nothing, a torn header, the header, a record, a torn record, all but the last byte, all.
  for (const size_t bytes :
       {size_t{0}, size_t{20}, whole.find('\n') + 1, second, second + 30, whole.size() - 1, whole.size()}) {
    const std::string part = WriteFile("part.jsonl", whole.substr(0, bytes));
    EXPECT_EQ(Output({"--out", part}), table) << bytes;
    EXPECT_EQ(ReadWholeFile(part), whole) << bytes;
  }
  // What is there is not computed again: a record that was changed stays.
  std::string changed = whole;
  const size_t number = changed.find("\"nll\":") + 6;
  changed[number] = changed[number] == '9' ? '8' : '9';
  const std::string kept = WriteFile("changed.jsonl", changed);
  EXPECT_NE(Output({"--out", kept}), table);
  EXPECT_EQ(ReadWholeFile(kept), changed);
  // More contexts go on where the file ends; its table has those only that were asked for.
  Output({"--out", whole_file}, 3);
  EXPECT_THAT(ReadWholeFile(whole_file), StartsWith(whole));
  EXPECT_EQ(Output({"--out", whole_file}), table);
}

TEST(Eval, RunThatWasStopped_GoesOn) {
  const std::string file = TestFolder() + "/stopped.jsonl";
  for (const int signal : {SIGINT, SIGKILL}) {
    std::remove(file.c_str());
    Process process(Arguments({"--out", file}, 2000));
    const auto lines = [&] {
      if (std::FILE* opened = std::fopen(file.c_str(), "rb"); opened != nullptr) {
        std::fclose(opened);
      } else {
        return std::ptrdiff_t{0};
      }
      const std::string bytes = ReadWholeFile(file);
      return std::count(bytes.begin(), bytes.end(), '\n');
    };
    process.WaitUntil([&] { return lines() >= 3; });
    process.Signal(signal);
    const ProcessResult result = process.Wait();
    EXPECT_EQ(result.exit_code, 128 + signal) << result.err;
    EXPECT_EQ(result.out + result.err, "");
    EXPECT_GE(lines(), 3);
    EXPECT_LT(lines(), 2001);
    const std::string before = ReadWholeFile(file).substr(0, ReadWholeFile(file).rfind('\n') + 1);
    Output({"--out", file});
    EXPECT_THAT(ReadWholeFile(file), StartsWith(before));
  }
}

TEST(Eval, RecordsOfSomethingElse_AreRefused) {
  const std::string file = TestFolder() + "/other.jsonl";
  Output({"--out", file});
  const std::string before = ReadWholeFile(file);
  ExpectError(RunTidemill(Arguments({"--out", file, "--seed", "9"})), 1,
              "other.jsonl: \"seed\": expected 9, found 0; choose another --out\n");
  ExpectError(RunTidemill(Arguments({"--out", file, "--sparse-from", "question"})), 1,
              "\"sparse_from\": expected \"question\", found \"answer\"; choose another --out\n");
  const std::string lacking = WriteFile("lacking.jsonl", "{\"eval\":1}\n");
  ExpectError(RunTidemill(Arguments({"--out", lacking})), 1, "\"family\": expected \"llama\", found none; choose");
  EXPECT_EQ(ReadWholeFile(file), before);
  const std::string damaged =
      WriteFile("damaged.jsonl", before.substr(0, before.find('\n') + 1) + "{\"task\":\"notes\"}\n");
  ExpectError(RunTidemill(Arguments({"--out", damaged})), 1, "damaged.jsonl: line 2: \"policy\"");
  const std::string foreign = WriteFile("foreign.txt", "a letter\n");
  ExpectError(RunTidemill(Arguments({"--out", foreign})), 1, "found \"a letter");
  EXPECT_EQ(ReadWholeFile(foreign), "a letter\n");
  ExpectError(RunTidemill(Arguments({"--out", "/nowhere/records.jsonl"})), 1, "/nowhere/records.jsonl");
}

TEST(Eval, WrongFlags_AreNamed) {
  ExpectError(RunTidemill({"eval", ModelFile(), "--tasks", "codes,recall"}), 2,
              "names with commas between, each once, of repetition passkey");
  ExpectError(RunTidemill({"eval", ModelFile(), "--tasks", "codes,codes"}), 2, "each once");
  ExpectError(RunTidemill({"eval", ModelFile(), "--policies", "flash"}), 2,
              "'flash': expected dense, or one of sparq topk h2o window");
  ExpectError(RunTidemill({"eval", ModelFile(), "--attention", "sparq"}), 2, "--attention");
  ExpectError(RunTidemill({"eval", ModelFile(), "--audit", "0"}), 2, "--audit: expected a whole number from 1");
  ExpectError(RunTidemill({"eval", ModelFile(), "--max-error", "0.5"}), 2, "--max-error requires --calibrate");
  for (const char* flag : {"--out", "--audit"})
    ExpectError(RunTidemill({"eval", ModelFile(), "--calibrate", "floors.json", flag, "7"}), 2, flag);
  ExpectError(RunTidemill({"eval", ModelFile(), "--compression", "1/8,8"}), 2, "shares from 1/2 to 1/1024");
  ExpectError(RunTidemill({"eval", ModelFile(), "--tasks", "bpc", "--policies", "dense"}), 2,
              "expected a text, found none");
  ExpectError(RunTidemill({"eval", ModelFile(), "--tasks", "codes", "--policies", "dense", "--context-tokens", "50"}),
              2, "larger --context-tokens");
  ExpectError(RunTidemill({"eval", ModelFile(), "--tasks", "codes", "--policies", "dense", "--context-tokens", "2040"}),
              1, "smaller --context-tokens");
}

TEST(Eval, TextOfAFile_IsRepeatedAndGoesOn) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += "line " + std::to_string(i * 7919 % 1000) + " of the mill\n";
  const std::string file = WriteFile("eval.txt", text);
  const ProcessResult result =
      RunTidemill({"eval", ModelFile(), "--tasks", "repetition,bpc", "--policies", "dense", "--context-tokens", "400",
                   "--contexts", "1", "--questions", "2", "--answer-tokens", "16", "-f", file, "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json rows = json::parse(result.out, nullptr, false)["rows"];
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0]["task"], "repetition");
  EXPECT_EQ(rows[0]["questions"], 2);
  EXPECT_EQ(rows[1]["task"], "bpc");
  EXPECT_GT(rows[1]["bits_per_character"], 0.0);
}

}  // namespace
}  // namespace tidemill::testing::eval_test
