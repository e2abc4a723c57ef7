// What run and chat do where nobody says how: which tokens are drawn, how many, and how an answer that only repeats itself ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/model_files.h"
#include "tests/cli/process.h"
#include "tests/support/changed_checkpoint.h"
#include "tests/support/eagle_models.h"
#include "tests/support/model_folder.h"

namespace tidemill::testing::generation_defaults_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kRepeats[] =
    "tidemill: warning: the answer was ended because it only repeats itself; --allow-repetition lets it go on\n";

std::vector<std::string> With(std::vector<std::string> arguments, const std::vector<std::string>& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

json Parsed(const ProcessResult& result, const std::string& err = "") {
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, err);
  return json::parse(result.out, nullptr, false);
}

// Counts as long as it is asked to.
ProcessResult Count(const std::vector<std::string>& more) {
  return RunTidemill(With({"run", LongCountingModelFile(), "--raw", "-p", "hello", "--ignore-eos", "--json"}, more));
}

// Says one letter again and again.
std::vector<std::string> Repeating(const std::string& command) {
  return {command, LongCountingModelFile(), "--logit-bias", "70=100"};
}

// How a run with these flags chooses tokens, as --stats says it.
std::string SamplingOf(const std::string& model, const std::vector<std::string>& flags) {
  const ProcessResult result = RunTidemill(With({"run", model, "--raw", "-p", "a", "-n", "1", "--stats"}, flags));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const size_t begin = result.err.find("seed "), end = result.err.find(" threads", begin);
  return begin == std::string::npos ? result.err : result.err.substr(begin, result.err.rfind(", ", end) - begin);
}

TEST(Sampling, Defaults_AreDrawnAndFlagsReplaceThemOneByOne) {
  const std::string& model = CountingModelFile();  // whose file recommends nothing
  EXPECT_EQ(SamplingOf(model, {"--seed", "1"}), "seed 1, temperature 0.8, top-k 40, top-p 0.95, min-p 0.05");
  EXPECT_EQ(SamplingOf(model, {"--seed", "1", "--top-k", "5"}),
            "seed 1, temperature 0.8, top-k 5, top-p 0.95, min-p 0.05");
  EXPECT_EQ(SamplingOf(model, {"--seed", "1", "--temp", "1.5", "--top-p", "1", "--min-p", "0"}),
            "seed 1, temperature 1.5, top-k 40, top-p 1, min-p 0");
  EXPECT_EQ(SamplingOf(model, {"--temperature", "0"}), "seed 0, greedy");
}

TEST(Sampling, ModelsFiles_RecommendHow) {
  ModelFolder folder;
  ChangedCheckpoint("eagle/target").WriteTo(folder);
  folder.Write("tokenizer.json", EagleTokenizer());
  const auto with = [&folder](const std::string& config, const std::vector<std::string>& flags) {
    folder.Write("generation_config.json", config);
    return SamplingOf(folder.path(), flags);
  };
  EXPECT_EQ(with(R"({"temperature": 0.5, "top_k": 7})", {"--seed", "1"}),
            "seed 1, temperature 0.5, top-k 7, top-p 1, min-p 0");
  EXPECT_EQ(with(R"({"temperature": 0.5, "top_k": 7})", {"--seed", "1", "--min-p", "0.1"}),
            "seed 1, temperature 0.5, top-k 7, top-p 1, min-p 0.1");
  EXPECT_EQ(with(R"({"do_sample": false, "temperature": 0.5})", {}), "seed 0, greedy");
  EXPECT_EQ(with(R"({"do_sample": false})", {"--temperature", "0.7", "--seed", "1"}),
            "seed 1, temperature 0.7, top-k 40, top-p 0.95, min-p 0.05");
  EXPECT_EQ(with(R"({"eos_token_id": 1})", {"--seed", "1"}),
            "seed 1, temperature 0.8, top-k 40, top-p 0.95, min-p 0.05");
}

TEST(Sampling, RandomSeed_IsShownAndRepeatsTheAnswer) {
  const std::vector<std::string> run = {"run", TinyLlamaFile(), "--raw",  "-p", "hello", "-n",
                                        "20",  "--ignore-eos",  "--temp", "2",  "--json"};
  const json one = Parsed(RunTidemill(run)), other = Parsed(RunTidemill(run));
  EXPECT_NE(one["seed"], other["seed"]);
  EXPECT_NE(one["ids"], other["ids"]);
  EXPECT_LT(one["seed"].get<uint64_t>(), uint64_t{1} << 32);
  const json again = Parsed(RunTidemill(With(run, {"--seed", one["seed"].dump()})));
  EXPECT_EQ(again["ids"], one["ids"]);
}

TEST(Sampling, ManyPrompts_AreGreedyWithSeedZero) {
  const std::vector<std::string> run = {"run", TinyLlamaFile(), "--raw", "--prompts", "-"};
  const auto line = [&run](const std::string& members) {
    const ProcessResult result = RunTidemill(
        run, {.input = "{\"prompt\": \"hello\", \"max_new_tokens\": 20, \"ignore_eos\": true" + members + "}\n"});
    return Parsed(result);
  };
  const json greedy = line("");
  EXPECT_EQ(greedy["seed"], 0);
  EXPECT_EQ(greedy["ids"], line(", \"temperature\": 0")["ids"]);
  EXPECT_EQ(line(", \"temperature\": 1.5")["seed"], 0);
}

TEST(Sampling, FlagsWithoutEffect_AreNamedInOneLine) {
  const auto said = [](const std::vector<std::string>& flags) {
    const ProcessResult result = RunTidemill(With({"run", CountingModelFile(), "--raw", "-p", "a", "-n", "1"}, flags));
    EXPECT_EQ(result.exit_code, 0);
    return result.err;
  };
  EXPECT_EQ(said({"--temperature", "0"}), "");
  EXPECT_EQ(said({"--top-k", "3", "--seed", "1"}), "");
  EXPECT_EQ(said({"--temperature", "0", "--seed", "1"}), "tidemill: warning: --seed has no effect at temperature 0\n");
  EXPECT_EQ(said({"--temperature", "0", "--seed", "1", "--min-p", "0.1", "--top-p", "0.5", "--top-k", "3"}),
            "tidemill: warning: --top-k, --top-p, --min-p and --seed have no effect at temperature 0\n");
  const ProcessResult chat =
      RunTidemill({"chat", CountingModelFile(), "--temp", "0", "--top-k", "3", "-n", "1"}, {.input = "a\nb\n"});
  EXPECT_EQ(chat.err, "tidemill: warning: --top-k has no effect at temperature 0\n");
  const ProcessResult many = RunTidemill({"run", CountingModelFile(), "--top-k", "3", "-n", "1", "--prompts", "-"},
                                         {.input = "{\"prompt\": \"a\"}\n"});
  EXPECT_EQ(many.err, "tidemill: warning: --top-k has no effect at temperature 0 but in lines that give another one\n");
}

TEST(Bound, AnswersHave2048Tokens_UnlessMoreAreAskedFor) {
  const json answer =
      Parsed(Count({}), "tidemill: warning: the answer was ended at 2048 tokens; --max-new-tokens N allows more\n");
  EXPECT_EQ(answer["generated_tokens"], 2048);
  EXPECT_EQ(answer["finish_reason"], "length");
  EXPECT_EQ(Parsed(Count({"-n", "2100"}))["generated_tokens"], 2100);
  const json longer =
      Parsed(Count({"--min-new-tokens", "3000"}),
             "tidemill: warning: the answer was ended at 3000 tokens; --max-new-tokens N allows more\n");
  EXPECT_EQ(longer["generated_tokens"], 3000);
  const ProcessResult many = RunTidemill({"run", LongCountingModelFile(), "--raw", "--ignore-eos", "--prompts", "-"},
                                         {.input = "{\"prompt\": \"a\"}\n"});
  EXPECT_EQ(Parsed(many)["generated_tokens"], 2048);
}

// It is a limit, and no promise: an answer that would not fit if it were that long is begun.
TEST(Bound, MemoryForFewerTokens_RefusesNothing) {
  const std::vector<std::string> few = {"--state-memory", "100K", "--kv-policy", "iterative"};
  const json answer = Parsed(
      RunTidemill(With({"run", LongCountingModelFile(), "--raw", "-p", "<|im_start|>", "--json"}, few)));  // 2 ends it
  EXPECT_EQ(answer["finish_reason"], "eos");
  const ProcessResult refused = Count(With(few, {"-n", "2048"}));
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr("submit request: "));
}

TEST(Bound, MemoryThatEnds_LeavesTheTextInTheJson) {
  const ProcessResult result = RunTidemill({"run", LongCountingModelFile(), "--raw", "-p", "hello", "--ignore-eos",
                                            "--json", "--state-memory", "100K", "--kv-policy", "iterative"});
  EXPECT_EQ(result.exit_code, 1);
  const json failed = json::parse(result.out);
  EXPECT_EQ(failed["error"]["code"], "OutOfMemory") << result.out;
  EXPECT_THAT(failed["text"].get<std::string>(), Not(IsEmpty()));
  EXPECT_THAT(result.err, HasSubstr(failed["error"]["message"].get<std::string>().substr(0, 20)));
}

TEST(Bound, FullContext_IsNotTakenForIt) {
  const ProcessResult result =
      RunTidemill({"run", CountingModelFile(), "--raw", "-p", "hello", "--ignore-eos", "--json"});
  const std::string why = "tidemill: warning: the answer was ended because the context of 256 tokens is full\n";
  EXPECT_EQ(Parsed(result, why)["finish_reason"], "length");
  const ProcessResult chat = RunTidemill({"chat", CountingModelFile(), "--ignore-eos"}, {.input = "hello\n"});
  EXPECT_THAT(chat.err, HasSubstr("the context of 256 tokens is full"));
  EXPECT_THAT(chat.err, Not(HasSubstr("2048")));
}

TEST(Repetitions, EndAnAnswerWithAWarning) {
  const auto run = With(Repeating("run"), {"--raw", "-p", "hello", "--json"});
  const json ended = Parsed(RunTidemill(run), kRepeats);
  EXPECT_EQ(ended["finish_reason"], "repetition");
  EXPECT_EQ(ended["generated_tokens"], 256);
  const json whole = Parsed(RunTidemill(With(run, {"--allow-repetition", "-n", "300"})));
  EXPECT_EQ(whole["finish_reason"], "length");
  EXPECT_EQ(whole["generated_tokens"], 300);
  EXPECT_EQ(Parsed(RunTidemill(With(run, {"--draft", "ngram", "--draft-min", "5"})), kRepeats)["ids"], ended["ids"]);
}

TEST(Repetitions, EndAnAnswerInAChat) {
  const auto chat = With(Repeating("chat"), {"-n", "300"});
  const ProcessResult ended = RunTidemill(chat, {.input = "hello\n"});
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_EQ(ended.err, kRepeats);
  const ProcessResult whole = RunTidemill(With(chat, {"--allow-repetition"}), {.input = "hello\n"});
  EXPECT_EQ(whole.err, "");
  EXPECT_GT(whole.out.size(), ended.out.size());
}

TEST(Repetitions, EndNoLineOfManyPrompts) {
  const ProcessResult result =
      RunTidemill(With(Repeating("run"), {"-n", "300", "--prompts", "-"}), {.input = "{\"prompt\": \"hello\"}\n"});
  EXPECT_EQ(Parsed(result)["generated_tokens"], 300);
}

TEST(Repetitions, SavedAnswer_GoesOnWhereTheyAreAllowed) {
  const std::string path = TestFolder() + "/repetition.state";
  const auto run = With(Repeating("run"), {"--raw", "-p", "hello", "--json"});
  const json ended = Parsed(RunTidemill(With(run, {"--save-state", path})), kRepeats);
  const std::vector<std::string> load = {"run", LongCountingModelFile(), "--load-state", path, "--json"};
  const ProcessResult refused = RunTidemill(load);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_EQ(refused.err, "tidemill: resume request: " + path +
                             ": the answer has ended: by a repetition; give --allow-repetition or a prompt\n");
  const json more = Parsed(RunTidemill(With(load, {"--allow-repetition", "-n", "300"})));
  EXPECT_EQ(more["generated_tokens"], 44);
  EXPECT_EQ(more["finish_reason"], "length");
}

}  // namespace
}  // namespace tidemill::testing::generation_defaults_test
