// --draft: answers are the same with every drafter, and what cannot be a drafter is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/cli/model_files.h"
#include "tests/cli/process.h"
#include "tests/fixtures_path.h"
#include "tests/support/changed_checkpoint.h"
#include "tests/support/eagle_models.h"
#include "tests/support/hybrid_models.h"
#include "tests/support/model_folder.h"
#include "tests/support/tiny_model.h"

namespace tidemill::testing::drafts_test {
namespace {

using nlohmann::json;

// A smaller model with the same 997 tokens.
const std::string& DraftFile() {
  static const std::string path = WriteFile(
      "draft.gguf",
      BuildTinyLlama({.hidden = 32, .layers = 1, .heads = 2, .kv_heads = 1, .ffn = 64, .context = 64, .seed = 4}));
  return path;
}

// Greedy, unless the flags give a temperature.
json Single(std::vector<std::string> flags) {
  if (std::find(flags.begin(), flags.end(), "--temperature") == flags.end())
    flags.insert(flags.end(), {"--temperature", "0"});
  flags.insert(flags.begin(), {"run", TinyLlamaFile(), "--raw", "--json", "--quiet"});
  const ProcessResult result = RunTidemill(flags);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return json::parse(result.out, nullptr, false);
}

TEST(DraftModels, ChangeNoAnswer) {
  for (const char* temperature : {"0", "0.7"}) {
    const std::vector<std::string> flags = {"-p",
                                            "the tide the tide the tide the",
                                            "-n",
                                            "60",
                                            "--ignore-eos",
                                            "--logprobs",
                                            "2",
                                            "--temperature",
                                            temperature,
                                            "--seed",
                                            "1"};
    const json plain = Single(flags);
    EXPECT_FALSE(plain.contains("draft"));
    for (const std::string& drafter : {DraftFile(), TinyLlamaFile(), std::string("layers:1")}) {
      for (const auto& [min_draft_tokens, num_draft_tokens] : {std::pair{"0", "8"}, {"3", "3"}, {"1", "64"}}) {
        auto with = flags;
        with.insert(with.end(), {"--draft", drafter, "--draft-min", min_draft_tokens, "--draft-max", num_draft_tokens});
        const json found = Single(with);
        const std::string where = drafter + ", " + min_draft_tokens + " to " + num_draft_tokens;
        for (const char* name : {"text", "ids", "logprobs", "finish_reason"})
          EXPECT_EQ(found[name], plain[name]) << where;
        if (std::string_view(min_draft_tokens) == "0") continue;
        const json& draft = found["draft"];
        EXPECT_GE(draft.value("drafted", size_t{0}), draft.value("accepted", size_t{1000})) << where;
        size_t steps = 0;
        for (const json& count : draft["steps_by_draft_tokens"]) steps += count.get<size_t>();
        EXPECT_EQ(steps + draft.value("accepted", size_t{0}), 59U) << where;  // all but the prompt's token
        EXPECT_LE(draft["acceptance_rate"].size(), 8U);
        EXPECT_GE(draft["acceptance_rate"].size(), 1U);
      }
    }
  }
}

// Every step has three draft tokens but where blocks of 16 rows end: what was drafted, what was right, and how many tokens came of it.
TEST(DraftStats, SayWhatBecameOfDraftTokens) {
  const std::vector<std::string> flags = {"-p",  "the tide",       "-n", "61",      "--ignore-eos", "--kv-policy",
                                          "bmc", "--kv-increment", "16", "--draft", DraftFile(),    "--draft-min",
                                          "3",   "--draft-max",    "3"};
  const json found = Single(flags), draft = found["draft"];
  const auto count = [&draft](const char* name) { return draft.value(name, size_t{1000}); };
  size_t steps = 0, drafting = 0, draft_tokens = 0;
  for (const auto& [width, number] : draft["steps_by_draft_tokens"].items()) {
    steps += number.get<size_t>();
    drafting += width == "0" ? 0 : number.get<size_t>();
    draft_tokens += static_cast<size_t>(width[0] - '0') * number.get<size_t>();
  }
  EXPECT_EQ(count("drafted"), draft_tokens);
  EXPECT_GT(count("accepted"), 0U);
  EXPECT_LT(count("accepted"), count("drafted"));
  EXPECT_EQ(count("accepted_with_bonus"), count("accepted") + drafting);
  EXPECT_EQ(count("accepted_with_bonus") + (steps - drafting), 60U) << "all but the prompt's token";
  EXPECT_EQ(draft["acceptance_rate"].size(), 3U);
  EXPECT_GT(count("cut"), 2U);
  EXPECT_EQ(count("grown"), 0U) << "a fixed number is cut";
  std::vector<std::string> all = {"run", TinyLlamaFile(), "--raw", "--stats", "--temperature", "0"};
  all.insert(all.end(), flags.begin(), flags.end());
  const std::string said = RunTidemill(all).err;
  const auto says = [&said](const std::string& words) {
    EXPECT_NE(said.find(words), std::string::npos) << words << "\n" << said;
  };
  says("\ndrafts       " + std::to_string(draft_tokens) + " drafted, " + std::to_string(count("accepted")) +
       " accepted (" + std::to_string(count("accepted_with_bonus")) + " with bonus tokens), ");
  says("; steps by number of draft tokens ");
  for (const auto& [width, number] : draft["steps_by_draft_tokens"].items()) says(" " + width + ":" + number.dump());
  says("; " + std::to_string(count("cut")) + " steps cut to unused rows; draft prefill ");
  const double reading = draft.value("draft_prefill_ms", 0.0), decoding = found["timings"].value("decode_ms", 0.0);
  EXPECT_GT(reading, 0);
  EXPECT_LT(reading, decoding);
  for (const char* drafter : {"ngram", "layers:1"}) {
    const json other =
        Single({"-p", "the tide the tide the", "-n", "40", "--ignore-eos", "--draft", drafter, "--draft-min", "1"});
    EXPECT_EQ(other["draft"].value("draft_prefill_ms", -1.0), 0) << drafter;
  }
}

TEST(DraftTrees, ChangeNoAnswer) {
  size_t later = 0;
  for (const char* temperature : {"0", "0.9"}) {
    const std::vector<std::string> flags = {
        "-p", "the tide the tide the", "-n", "40", "--ignore-eos", "--temperature", temperature, "--seed", "3"};
    const json plain = Single(flags);
    for (const char* tree : {"chain", "fixed", "dynamic", "optimal"}) {
      for (const std::string& drafter : {DraftFile(), TinyLlamaFile(), std::string("layers:1")}) {
        auto with = flags;
        with.insert(with.end(), {"--draft", drafter, "--draft-min", "6", "--draft-tree", tree});
        const json found = Single(with);
        const std::string where = drafter + ", " + tree + ", temperature " + temperature;
        for (const char* name : {"text", "ids", "finish_reason"}) EXPECT_EQ(found[name], plain[name]) << where;
        const json& draft = found["draft"];
        const size_t of_tree = draft.value("accepted_later_siblings", size_t{1000});
        EXPECT_LE(of_tree, draft.value("accepted", size_t{0})) << where;
        if (std::string_view(tree) == "chain") {
          EXPECT_EQ(of_tree, 0U) << where;
        }
        later += of_tree;
      }
    }
  }
  EXPECT_GT(later, 0U);
}

// Prompts in a file, with one engine and with two, and a chat: the same texts with each of the drafters as without.
void ExpectServes(const std::string& model, const std::vector<std::string>& drafters) {
  const std::string prompts = WriteFile("draft_prompts.jsonl",
                                        "{\"prompt\": \"the tide\", \"max_new_tokens\": 20}\n{\"prompt\": \"mill\", "
                                        "\"temperature\": 0.8}\n{\"ids\": [5, 6, 7], \"max_new_tokens\": 9}\n");
  const std::vector<std::string> many = {"run", model, "--raw", "-n", "11", "--prompts", prompts};
  const std::vector<std::string> chat = {"chat", model, "-n", "12", "--ignore-eos", "--seed", "1"};
  const auto texts = [](const std::string& lines) {
    std::istringstream in(lines);
    std::string all;
    for (std::string line; std::getline(in, line);) all += json::parse(line, nullptr, false)["text"].dump();
    return all;
  };
  const ProcessResult plain = RunTidemill(many), talk = RunTidemill(chat, {.input = "hello\nthe tide\n"});
  ASSERT_EQ(plain.exit_code, 0) << plain.err;
  ASSERT_EQ(talk.exit_code, 0) << talk.err;
  EXPECT_GT(talk.out.size(), 20U);
  for (const std::string& drafter : drafters) {
    for (const char* instances : {"1", "2"}) {
      auto flags = many;
      flags.insert(flags.end(), {"--draft", drafter, "--draft-min", "2", "--instances", instances, "--stats"});
      const ProcessResult found = RunTidemill(flags);
      EXPECT_EQ(found.exit_code, 0) << found.err;
      EXPECT_EQ(texts(found.out), texts(plain.out)) << drafter;
      EXPECT_NE(found.err.find("\ndrafts       "), std::string::npos) << found.err;
    }
    auto flags = chat;
    flags.insert(flags.end(), {"--draft", drafter, "--draft-min", "2"});
    EXPECT_EQ(RunTidemill(flags, {.input = "hello\nthe tide\n"}).out, talk.out) << drafter;
  }
}

TEST(DraftModels, ServeManyPromptsAndChats) { ExpectServes(TinyLlamaFile(), {DraftFile(), "layers:1"}); }

TEST(DraftThreads, ChangeNoAnswer_AndMoreThanThereAreAreAllAndANotice) {
  const std::vector<std::string> flags = {"run",
                                          TinyLlamaFile(),
                                          "--raw",
                                          "-p",
                                          "the tide the tide",
                                          "-n",
                                          "40",
                                          "--ignore-eos",
                                          "-t",
                                          "2",
                                          "--draft",
                                          DraftFile(),
                                          "--draft-min",
                                          "3",
                                          "--temperature",
                                          "0.7",
                                          "--seed",
                                          "1"};
  const ProcessResult all = RunTidemill(flags);
  EXPECT_EQ(all.exit_code, 0);
  EXPECT_EQ(all.err, "");
  for (const char* threads : {"1", "2", "3"}) {
    auto with = flags;
    with.insert(with.end(), {"--draft-threads", threads});
    const ProcessResult found = RunTidemill(with);
    EXPECT_EQ(found.exit_code, 0) << found.err;
    EXPECT_EQ(found.out, all.out) << threads;
    EXPECT_EQ(found.err, std::string_view(threads) == "3"
                             ? "tidemill: warning: start engine: --draft-threads 3: a draft model's steps share the "
                               "engine's threads, and use all 2; --threads makes more\n"
                             : "")
        << threads;
  }
}

// The draft's 64 positions are full before the answer ends.
TEST(DraftModels, FullContext_IsAWarning) {
  const ProcessResult result =
      RunTidemill({"run", TinyLlamaFile(), "--raw", "-p", "the tide", "-n", "90", "--ignore-eos", "--temperature", "0",
                   "--draft", DraftFile(), "--draft-min", "1"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "tidemill: warning: drafting was disabled for some steps: the draft model's context is full\n");
}

// The target of tests/fixtures/eagle, which can chat.
const std::string& TargetFolder() {
  static const struct Target {
    Target() {
      ChangedCheckpoint("eagle/target").WriteTo(folder);
      folder.Write("tokenizer.json", EagleTokenizer())
          .Write("chat_template.jinja", "{% for message in messages %}{{ message.content }} {% endfor %}");
    }
    ModelFolder folder;
  } target;
  return target.folder.path();
}

std::string HeadFolder(const char* name) { return std::string(TIDEMILL_FIXTURES) + "/eagle/" + name; }

TEST(DraftHeads, ChangeNoAnswer) {
  size_t accepted = 0;
  for (const char* temperature : {"0", "0.8"}) {
    const auto run = [&](const std::vector<std::string>& more) {
      std::vector<std::string> flags = {
          "run", TargetFolder(), "--raw",        "--json",        "--quiet",   "-p",     "tide tide tide",
          "-n",  "60",           "--ignore-eos", "--temperature", temperature, "--seed", "1"};
      flags.insert(flags.end(), more.begin(), more.end());
      const ProcessResult result = RunTidemill(flags);
      EXPECT_EQ(result.exit_code, 0) << result.err;
      EXPECT_EQ(result.err, "");
      return json::parse(result.out, nullptr, false);
    };
    const json plain = run({});
    for (const char* head : {"eagle1", "eagle3"}) {
      for (const char* tree : {"chain", "fixed", "dynamic", "optimal"}) {
        const json found = run({"--draft", HeadFolder(head), "--draft-min", "6", "--draft-tree", tree});
        for (const char* name : {"text", "ids", "finish_reason"}) EXPECT_EQ(found[name], plain[name]) << head << tree;
        EXPECT_GT(found["draft"].value("drafted", size_t{0}), 30U) << head << tree;
        accepted += found["draft"].value("accepted", size_t{0});
      }
    }
  }
  EXPECT_GT(accepted, 100U);
}

TEST(DraftHeads, ServeManyPromptsAndChats) {
  ExpectServes(TargetFolder(), {HeadFolder("eagle1"), HeadFolder("eagle3")});
}

// Built-in numbers serve where the kept ones are damaged, so that nothing is measured.
TEST(DraftHeads, ArePlanned) {
  std::filesystem::create_directories(TestFolder() + "/damaged_cache/tidemill");
  WriteFile("damaged_cache/tidemill/machine.json", "{}");
  setenv("XDG_CACHE_HOME", (TestFolder() + "/damaged_cache").c_str(), 1);
  const std::string with_own_head = std::string(TIDEMILL_FIXTURES) + "/families/gguf/qwen3_5.gguf";
  for (const auto& [model, head] : {std::pair(TargetFolder(), HeadFolder("eagle1")), {with_own_head, "mtp"}}) {
    const ProcessResult result = RunTidemill({"plan", model, "--json", "--draft", head});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const json drafts = json::parse(result.out)["drafts"];
    EXPECT_GT(drafts["draft_seconds"].get<double>(), 0.0) << drafts;
    EXPECT_EQ(drafts["steps"].size(), 17U);
  }
  UseOwnCache();
}

TEST(DraftHeads, OfAnotherModel_AreRefused) {
  const auto refused = [](const std::string& model, const std::string& head, int exit_code, const std::string& what) {
    const ProcessResult result = RunTidemill({"run", model, "--raw", "-p", "x", "--draft", head});
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(result.err, "tidemill: load " + head + ": " + what + "\n");
  };
  refused(TinyLlamaFile(), HeadFolder("eagle1"), 2, "config.json: \"vocab_size\": expected the target's 997, found 96");
  ModelFolder wide;
  ChangedCheckpoint("eagle/eagle1").Replace("\"hidden_size\": 32", "\"hidden_size\": 64").WriteTo(wide);
  refused(TargetFolder(), wide.path(), 2, "config.json: \"hidden_size\": expected the target's 32, found 64");
  ModelFolder without;
  ChangedCheckpoint("eagle/eagle3").Remove("norm.weight").WriteTo(without);
  refused(TargetFolder(), without.path(), 1,
          "tensor \"norm.weight\": expected shape [32], but the file has no such tensor");
  const ProcessResult alone = RunTidemill({"run", HeadFolder("eagle3"), "-p", "x"});
  EXPECT_EQ(alone.exit_code, 1) << alone.err;
  EXPECT_NE(
      alone.err.find("found a draft head of EAGLE, which needs its target; give the model that it drafts for, and "
                     "this as its --draft"),
      std::string::npos)
      << alone.err;
}

// A model with a draft head of its own, and a tokenizer.
const std::string& HybridTarget() {
  static const struct Target {
    Target() {
      ChangedCheckpoint("families/qwen3_5_moe").WriteTo(folder);
      folder.Write("tokenizer.json", HybridTokenizer());
    }
    ModelFolder folder;
  } target;
  return target.folder.path();
}

TEST(DraftHeads, OfTheModelItself_ChangeNoAnswer) {
  for (const char* temperature : {"0", "0.7"}) {
    for (const std::vector<std::string>& form : {std::vector<std::string>{},
                                                 {"--linear-form", "recurrent"},
                                                 {"--linear-form", "kv", "--linear-start", "64"}}) {
      std::vector<std::string> flags = {
          "run", HybridTarget(), "--raw",      "--json", "--quiet",       "-p",        "abcabd", "-n",
          "50",  "--ignore-eos", "--logprobs", "2",      "--temperature", temperature, "--seed", "1"};
      flags.insert(flags.end(), form.begin(), form.end());
      const auto run = [&](const std::vector<std::string>& more) {
        std::vector<std::string> all = flags;
        all.insert(all.end(), more.begin(), more.end());
        const ProcessResult result = RunTidemill(all);
        EXPECT_EQ(result.exit_code, 0) << result.err;
        return json::parse(result.out, nullptr, false);
      };
      const json plain = run({});
      for (const char* drafter : {"mtp", "layers:3", "ngram"}) {
        for (const char* tree : {"chain", "dynamic"}) {
          if (std::string(drafter) == "ngram" && std::string(tree) != "chain") continue;
          const json drafted = run({"--draft", drafter, "--draft-min", "6", "--draft-max", "6", "--draft-tree", tree});
          for (const char* key : {"text", "ids", "logprobs"}) EXPECT_EQ(drafted[key], plain[key]) << drafter << key;
          if (std::string(drafter) != "ngram") {
            EXPECT_GT(drafted["draft"]["drafted"].get<size_t>(), 20U) << drafter;
          }
        }
      }
    }
  }
}

TEST(DraftHeads, OfTheModelItself_AreMissedByName) {
  const auto refused = [](const std::string& model, const std::string& what) {
    const ProcessResult result = RunTidemill({"plan", model, "--draft", "mtp"});
    EXPECT_EQ(result.exit_code, 1) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(result.err, "tidemill: load " + model + ": " + what + "\n");
  };
  const std::string advice = "; take files that have it, or draft with ngram, layers:M or a smaller model";
  const std::string families = std::string(TIDEMILL_FIXTURES) + "/families/";
  refused(families + "qwen3_next", "draft head: expected tensors \"mtp.*\", as \"mtp.fc.weight\", found none" + advice);
  refused(
      families + "gguf/qwen3_next_interval.gguf",
      "draft head: expected tensors \"blk.8.nextn.*\" and \"nextn_predict_layers\" 1, found a file of 8 layers without "
      "a draft head" +
          advice);
  ModelFolder part;
  ChangedCheckpoint("families/qwen3_5").Remove("mtp.fc.weight").WriteTo(part);
  refused(part.path(), "tensor \"mtp.fc.weight\": expected shape [48, 96], but the file has no such tensor");
  const ProcessResult result = RunTidemill({"plan", TinyLlamaFile(), "--draft", "mtp"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find(
                "expected a model of a family with one of its own, qwen3next, qwen35, qwen35moe, found \"llama\""),
            std::string::npos)
      << result.err;
}

TEST(DraftModels, WhatCannotBeOne_IsRefused) {
  // The spellings of two tokens change places.
  std::string gguf = BuildTinyLlama({.layers = 1});
  const size_t a = gguf.find(std::string("\1\0\0\0\0\0\0\0a", 9)), c = gguf.find(std::string("\1\0\0\0\0\0\0\0c", 9));
  ASSERT_NE(a, std::string::npos);
  ASSERT_NE(c, std::string::npos);
  std::swap(gguf[a + 8], gguf[c + 8]);
  const std::string other = WriteFile("other.gguf", gguf);
  const std::vector<std::string> run = {"run", TinyLlamaFile(), "-p", "x"};
  const auto refused = [&run](std::vector<std::string> flags, const std::string& what) {
    flags.insert(flags.begin(), run.begin(), run.end());
    const ProcessResult result = RunTidemill(flags);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_NE(result.err.find(what), std::string::npos) << result.err;
  };
  refused({"--draft", "magic"},
          "--draft: expected ngram, mtp, layers:M, sparq or the path of a model that exists, found \"magic\"");
  refused({"--draft", "layers:0"}, "--draft: expected layers:M with a whole number of at least 1");
  refused({"--draft", "layers:2"}, "--draft: expected layers:M with fewer than the model's 2 layers, found 2");
  refused({"--draft", "ngram", "--draft-min", "9"}, "--draft-min: expected at most --draft-max, which is 8, found 9");
  refused({"--draft", "layers:1", "--draft-p-min", "1.5"}, "--draft-p-min: expected a number from 0 to 1");
  refused({"--draft", "ngram", "--draft-p-min", "0.5"}, "--draft-p-min: expected --draft layers:M, sparq or a model");
  refused({"--draft-min", "1"}, "--draft");
  refused({"--draft-threads", "1"}, "--draft");
  refused({"--draft", "layers:1", "--draft-threads", "0"}, "--draft-threads: expected a whole number from 1 to 256");
  refused({"--draft", "ngram", "--draft-threads", "1"},
          "--draft-threads: expected --draft layers:M, sparq or a model, whose steps use threads, found ngram");
  refused({"--ngram-max", "5"}, "--draft");
  refused({"--draft", "ngram", "--ngram-max", "2"}, "--ngram-max: expected at least --ngram-min, which is 3, found 2");
  refused({"--draft", "ngram", "--ngram-min", "7", "--ngram-max", "6"},
          "--ngram-max: expected at least --ngram-min, which is 7, found 6");
  refused({"--draft", "ngram", "--ngram-max", "0"}, "--ngram-max: expected a whole number from 1 to 1024");
  refused({"--draft", DraftFile(), "--ngram-max", "5"},
          "--ngram-max: expected --draft ngram, which looks tokens up, found the model " + DraftFile());
  refused({"--draft", "layers:1", "--ngram-max", "5", "--ngram-min", "2"},
          "--ngram-min: expected --draft ngram, which looks tokens up, found layers:1");
  refused({"--draft-tree", "fixed"}, "--draft");
  refused({"--draft", "layers:1", "--draft-tree", "wide"},
          "--draft-tree: expected chain|fixed|dynamic|optimal, found \"wide\"");
  refused({"--draft", "ngram", "--draft-tree", "fixed"},
          "--draft-tree: expected chain with --draft ngram, which drafts one way to go on, found fixed; give --draft "
          "layers:M, sparq or a model");
  const std::string removed =
      "--draft-accept: expected no such flag, which was removed: answers with --draft are always those of plain "
      "decoding";
  refused({"--draft", "layers:1", "--draft-accept", "residual"}, removed);
  refused({"--draft-accept=noise"}, removed);
  refused({"--draft-accept"}, removed);
  refused({"--draft", other}, "found 2 of 997 ids that differ: ");
}

}  // namespace
}  // namespace tidemill::testing::drafts_test
