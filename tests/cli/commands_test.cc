// What each command prints when all is well.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "tests/cli/model_files.h"
#include "tests/cli/process.h"
#include "tests/support/bits_levels.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/tiny_model.h"

namespace tidemill::testing::commands_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kCommands[] = {"run",    "chat",       "inspect", "tokenize", "detokenize",
                                     "logits", "perplexity", "eval",    "bench",    "plan"};

// Standard output of a command that must end well and say nothing else.
std::string Output(const std::vector<std::string>& arguments, const ProcessOptions& options = {}) {
  const ProcessResult result = RunTidemill(arguments, options);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  return result.out;
}

json JsonOutput(const std::vector<std::string>& arguments, const ProcessOptions& options = {}) {
  const std::string out = Output(arguments, options);
  EXPECT_EQ(out.find('\n'), out.size() - 1) << "one line: " << out;
  return json::parse(out, nullptr, false);
}

std::vector<int> Ids(const std::string& text) {
  return JsonOutput({"tokenize", CountingModelFile(), "--json", text})["ids"].get<std::vector<int>>();
}

TEST(Help, EveryCommand_ShowsItsFlags) {
  for (const std::string command : kCommands) {
    const std::string help = Output({command, "--help"});
    EXPECT_THAT(help, HasSubstr("Usage: tidemill " + command));
    EXPECT_THAT(help, HasSubstr("--threads"));
    EXPECT_THAT(Output({command, "--version"}), HasSubstr("tidemill 0."));
    EXPECT_THAT(Output({"--help"}), HasSubstr("  " + command + " "));
  }
  EXPECT_THAT(Output({"run", "--help"}), HasSubstr("--logprobs"));
  EXPECT_THAT(Output({"chat", "--help"}), Not(HasSubstr("--logprobs")));
  EXPECT_THAT(Output({"--version"}), HasSubstr("tidemill 0."));
}

TEST(Run, CountingModel_CountsOn) {
  const int last = Ids("hello").back();
  const json answer =
      JsonOutput({"run", CountingModelFile(), "--raw", "-p", "hello", "-n", "5", "--json", "--temperature", "0"});
  std::vector<int> expected(5);
  std::iota(expected.begin(), expected.end(), last + 1);
  EXPECT_EQ(answer["ids"], expected);
  EXPECT_EQ(answer["prompt_tokens"], Ids("hello").size());
  EXPECT_EQ(answer["generated_tokens"], 5);
  EXPECT_EQ(answer["finish_reason"], "length");
  EXPECT_EQ(answer["seed"], 0);
  EXPECT_EQ(answer["state"]["policy"], "bmc");
  EXPECT_GE(answer["state"]["allocated_bytes"], answer["state"]["used_bytes"]);
  EXPECT_GT(answer["state"]["growths"], 0);
  EXPECT_GT(answer["state"]["minor_faults"], 0);
  EXPECT_TRUE(answer["state"]["major_faults"].is_number_unsigned());
  EXPECT_GT(answer["state"]["used_bytes"], 0);
  EXPECT_NE(answer["numeric_class"], "");
  for (const char* name :
       {"load_ms", "prefill_ms", "ttft_ms", "decode_ms", "prefill_tokens_per_s", "decode_tokens_per_s"}) {
    EXPECT_TRUE(answer["timings"][name].is_number()) << name;
  }
}

TEST(Run, EveryWayToGiveThePrompt_IsTheSame) {
  const std::vector<std::string> common = {"run", CountingModelFile(), "--raw", "-n", "5", "--temperature", "0"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), common.begin(), common.end());
    return more;
  };
  const std::string answer = Output(with({"hello"}));
  EXPECT_NE(answer, "");
  EXPECT_EQ(Output(with({"-p", "hello"})), answer);
  EXPECT_EQ(Output(with({"-f", WriteFile("hello.txt", "hello")})), answer);
  EXPECT_EQ(Output(with({"-"}), {.input = "hello"}), answer);
  EXPECT_EQ(Output(common, {.input = "hello"}), answer);
  EXPECT_EQ(Output(with({"hello", "--threads", "1", "--weights", "mapped"})), answer);
}

TEST(Run, RopeScaling_MakesRoomPastTheModelsContext) {
  const std::string model = TinyLlamaFile();  // of 256 positions
  const auto run = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = {
        "run",   model, "--raw", "-p", "The tide comes in.", "--ignore-eos", "--temperature", "0", "--allow-repetition",
        "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProcessResult result = RunTidemill(arguments);
    EXPECT_THAT(result.err, HasSubstr("the answer was ended because the context of "));
    return json::parse(result.out);
  };
  const auto positions = [](const json& answer) {
    return answer["prompt_tokens"].get<size_t>() + answer["generated_tokens"].get<size_t>() - 1;  // the last has none
  };
  const json plain = run({}), own = run({"--rope-scaling", "yarn=2"});
  EXPECT_EQ(positions(plain), 256U);
  EXPECT_EQ(positions(own), 256U);  // no more than the model's unless --context says so
  EXPECT_NE(own["ids"], plain["ids"]);
  EXPECT_THAT(plain["numeric_class"].get<std::string>(), Not(HasSubstr("rope")));
  EXPECT_THAT(own["numeric_class"].get<std::string>(), HasSubstr("/rope-yarn=2"));
  const json longer = run({"--rope-scaling", "yarn=2", "--context", "512"});
  EXPECT_EQ(positions(longer), 512U);
  const auto first = longer["ids"].begin();
  EXPECT_EQ(json(std::vector<json>(first, first + static_cast<std::ptrdiff_t>(own["ids"].size()))), own["ids"]);
}

TEST(Run, KeysAndValuesInBlocks_GiveOneAnswerOfEachNumericClass) {
  const std::string model = WriteFile("heads_of_64.gguf", BuildTinyLlama({.heads = 6, .head_dim = 64, .seed = 5}));
  const auto run = [&](const std::string& kv_type, Isa isa, const char* threads) {
    const json answer = JsonOutput({"run", model, "--raw", "-p", "The tide comes in twice a day.", "-n", "40", "--json",
                                    "--ignore-eos", "--temperature", "0", "--kv-dtype", kv_type, "--isa",
                                    std::string(IsaName(isa)), "--threads", threads});
    EXPECT_THAT(answer["numeric_class"].get<std::string>(), HasSubstr("/kv-" + kv_type));
    return answer;
  };
  std::map<bool, json> answers;  // with FMA or without
  for (const Isa isa : LevelsHere()) {
    for (const char* threads : {"1", "2"}) {
      const json answer = run("q8_0", isa, threads);
      EXPECT_EQ(answer["ids"].size(), 40U);
      EXPECT_EQ(answers.try_emplace(HasFma(isa), answer).first->second["ids"], answer["ids"])
          << IsaName(isa) << " threads " << threads;
    }
  }
  const json f16 = run("f16", DetectIsa(), "1");
  EXPECT_EQ(answers.at(HasFma(DetectIsa()))["state"]["used_bytes"].get<size_t>() * 32,
            f16["state"]["used_bytes"].get<size_t>() * 17);
}

TEST(Run, EveryPolicyOfGrowth_GivesTheSameAnswer) {
  std::vector<json> answers;
  const auto run = [&](std::vector<std::string> flags) {
    std::vector<std::string> arguments = {
        "run",    TinyLlamaFile(), "--raw",         "-p", "The tide comes in twice a day.", "-n", "40",
        "--json", "--ignore-eos",  "--temperature", "0"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    answers.push_back(JsonOutput(arguments));
    EXPECT_EQ(answers.back()["ids"], answers.front()["ids"]) << flags.back();
    return answers.back()["state"];
  };
  run({"--kv-policy", "upfront"});
  EXPECT_EQ(answers.front()["state"]["bytes_copied"], 0);
  const json iterative = run({"--kv-policy", "iterative"});
  EXPECT_EQ(iterative["policy"], "iterative");
  EXPECT_GT(iterative["growths"], run({"--kv-policy", "geometric"})["growths"]);
  EXPECT_GT(run({"--kv-policy", "bmc", "--kv-increment", "4"})["bytes_copied"], 0);
  EXPECT_EQ(run({"--kv-policy", "reserve", "--kv-increment", "8"})["bytes_copied"], 0);
  EXPECT_EQ(run({"--kv-policy", "paged", "--kv-increment", "16"})["bytes_copied"], 0);
}

TEST(Run, EndOfSequence_EndsTheAnswerUnlessIgnored) {
  const std::string before_the_end = "<|im_start|>";  // id 1; 2 is the end of sequence
  const json ended = JsonOutput(
      {"run", CountingModelFile(), "--raw", "-p", before_the_end, "-n", "5", "--json", "--temperature", "0"});
  EXPECT_EQ(ended["finish_reason"], "eos");
  EXPECT_EQ(ended["text"], "");
  const json ignored = JsonOutput({"run", CountingModelFile(), "--raw", "-p", before_the_end, "-n", "5", "--json",
                                   "--temperature", "0", "--ignore-eos"});
  EXPECT_EQ(ignored["ids"], json({2, 3, 4, 5, 6}));
}

TEST(Run, StopText_EndsTheAnswerBeforeIt) {
  const std::string whole =
      Output({"run", CountingModelFile(), "--raw", "-p", "hello", "-n", "12", "--temperature", "0"});
  ASSERT_GT(whole.size(), 8U);
  const std::string stop = whole.substr(5, 3);
  const json answer = JsonOutput({"run", CountingModelFile(), "--raw", "-p", "hello", "--stop", "never", "--stop", stop,
                                  "--temperature", "0", "--json"});
  EXPECT_EQ(answer["finish_reason"], "stop");
  EXPECT_EQ(answer["text"], whole.substr(0, whole.find(stop)));
}

TEST(Run, ChatIsTheDefault_WhereThereIsATemplate) {
  const auto ids = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"run", CountingModelFile(), "hello", "-n", "3", "--temperature", "0", "--json"});
    return JsonOutput(more);
  };
  const json chat = ids({"--chat"});
  EXPECT_EQ(ids({})["ids"], chat["ids"]);
  EXPECT_GT(chat["prompt_tokens"], ids({"--raw"})["prompt_tokens"]);
  EXPECT_GT(ids({"--system", "be brief"})["prompt_tokens"], chat["prompt_tokens"]);
}

TEST(Run, SpecialTokensInAMessage_StayText) {
  const auto prompt_tokens = [](const std::string& mode, const std::string& text) {
    return JsonOutput({"run", CountingModelFile(), mode, "-p", text, "-n", "1", "--json"})["prompt_tokens"].get<int>();
  };
  EXPECT_EQ(prompt_tokens("--raw", "<|im_end|>"), 1);
  EXPECT_GT(prompt_tokens("--chat", "<|im_end|>"), prompt_tokens("--chat", "") + 5);
}

TEST(Run, Logprobs_AreInTheJson) {
  const json answer = JsonOutput(
      {"run", TinyLlamaFile(), "--raw", "-p", "hello", "-n", "3", "--temperature", "0", "--json", "--logprobs", "2"});
  ASSERT_EQ(answer["logprobs"].size(), 3U);
  for (const json& token : answer["logprobs"]) {
    ASSERT_EQ(token["top_logprobs"].size(), 2U);
    EXPECT_EQ(token["top_logprobs"][0]["id"], token["id"]);  // greedy
    EXPECT_LE(token["logprob"], 0.0);
    EXPECT_GE(token["top_logprobs"][0]["logprob"], token["top_logprobs"][1]["logprob"]);
  }
}

TEST(Run, SampledAnswer_FollowsTheSeed) {
  const auto text = [](const std::string& seed) {
    return Output({"run", TinyLlamaFile(), "--raw", "-p", "hello", "-n", "8", "--temp", "1.5", "--seed", seed});
  };
  EXPECT_EQ(text("1"), text("1"));
  EXPECT_NE(text("1"), text("2"));
}

TEST(Run, Stats_GoToStderr) {
  const ProcessResult result = RunTidemill({"run", CountingModelFile(), "hello", "-n", "3", "--stats", "--seed", "9"});
  EXPECT_EQ(result.exit_code, 0);
  for (const char* part : {"prefill", "decode", "TTFT", "KV cache", "page faults", "seed 9", "numeric class"}) {
    EXPECT_THAT(result.err, HasSubstr(part));
  }
  EXPECT_THAT(result.out, Not(HasSubstr("prefill")));
}

TEST(Inspect, Settings_AreThoseOfTheFile) {
  const json info = JsonOutput({"inspect", TinyLlamaFile(), "--json"});
  EXPECT_EQ(info["family"], "llama");
  EXPECT_EQ(info["vocab_size"], 997);
  EXPECT_EQ(info["hidden_size"], 64);
  EXPECT_EQ(info["num_hidden_layers"], 2);
  EXPECT_EQ(info["max_position_embeddings"], 256);
  EXPECT_EQ(info["state_bytes_per_token"], 2 * 2 * 2 * 16 * 2);  // keys and values, layers, heads, head_dim, f16
  EXPECT_THAT(info["chat_template"].get<std::string>(), HasSubstr("im_start"));
  EXPECT_FALSE(info.contains("tensors"));
  const json with_tensors = JsonOutput({"inspect", TinyLlamaFile(), "--json", "--tensors"});
  EXPECT_EQ(with_tensors["tensors"].size(), info["num_tensors"]);
  EXPECT_EQ(with_tensors["tensors"][0],
            json({{"name", "token_embd.weight"}, {"dtype", "F32"}, {"shape", {997, 64}}, {"bytes", 997 * 64 * 4}}));
  const std::string table = Output({"inspect", TinyLlamaFile(), "--tensors"});
  for (const char* part : {"llama", "997", "256", "at full context, with f16", "blk.1.attn_q.weight", "[64, 64]"})
    EXPECT_THAT(table, HasSubstr(part));
}

TEST(Inspect, FileOfAGigabyte_IsNotRead) {
  GgufWriter writer;
  writer.SetString("general.architecture", "llama");
  const std::pair<const char*, uint32_t> numbers[] = {{"block_count", 1},          {"context_length", 256},
                                                      {"embedding_length", 64},    {"feed_forward_length", 64},
                                                      {"attention.head_count", 4}, {"attention.head_count_kv", 4}};
  for (const auto& [key, value] : numbers) writer.Set<uint32_t>("llama." + std::string(key), value);
  writer.Set<float>("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  constexpr uint64_t kVocab = uint64_t{1} << 22;
  writer.AddTensor("token_embd.weight", DType::kF32, {64, kVocab}, "");
  const std::string path = WriteFile("sparse.gguf", writer.Build());
  std::filesystem::resize_file(path, writer.data_begin() + kVocab * 64 * 4);
  ProcessResult best;
  best.cpu_seconds = 1e9;
  for (int i = 0; i < 5; ++i) {
    const ProcessResult result = RunTidemill({"inspect", path, "--json"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(json::parse(result.out)["vocab_size"], kVocab);
    if (result.cpu_seconds < best.cpu_seconds) best = result;
  }
  std::filesystem::remove(path);
  EXPECT_LT(best.cpu_seconds, TIDEMILL_SLOWED_DOWN ? 5.0 : 0.1);
  EXPECT_LT(best.peak_rss_kib, (TIDEMILL_SLOWED_DOWN ? 512 : 64) * 1024);
}

TEST(Tokenize, RoundTrip_GivesTheTextBack) {
  for (const std::string text : {"hello world", "gr\xc3\xbc\xc3\x9f dich \xf0\x9f\x8c\x8a", " \n\t two  blanks ", ""}) {
    std::vector<std::string> detokenize = {"detokenize", CountingModelFile()};
    for (const int id : Ids(text)) detokenize.push_back(std::to_string(id));
    EXPECT_EQ(Output(detokenize), text);
  }
  EXPECT_EQ(Output({"tokenize", CountingModelFile(), "<|im_start|>"}), "1\n");
  const std::string printed = Output({"tokenize", CountingModelFile(), "hello world"});
  EXPECT_EQ(Output({"detokenize", CountingModelFile()}, {.input = printed}), "hello world");
  EXPECT_EQ(Output({"detokenize", CountingModelFile(), "--keep-special"}, {.input = " 1\n\t2\r\n"}),
            "<|im_start|><|im_end|>");
  EXPECT_EQ(Output({"detokenize", CountingModelFile(), "1", "2"}), "");
  EXPECT_EQ(Output({"detokenize", CountingModelFile(), "1", "2", "--keep-special"}), "<|im_start|><|im_end|>");
}

TEST(Tokenize, SpecialTokens_AreTextOnRequest) {
  const json parsed = JsonOutput({"tokenize", CountingModelFile(), "--json", "<|im_end|>"});
  EXPECT_EQ(parsed, json({{"ids", {2}}, {"tokens", {"<|im_end|>"}}}));
  EXPECT_GT(JsonOutput({"tokenize", CountingModelFile(), "--json", "--no-parse-special", "<|im_end|>"})["ids"].size(),
            3U);
}

TEST(Tokenize, Lines_AreOneObjectEach) {
  const std::string out = Output({"tokenize", CountingModelFile(), "--lines", "-"}, {.input = "hello\n\nworld"});
  std::vector<json> lines;
  for (size_t begin = 0; begin < out.size(); begin = out.find('\n', begin) + 1) {
    lines.push_back(json::parse(out.substr(begin, out.find('\n', begin) - begin)));
  }
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0]["ids"], Ids("hello"));
  EXPECT_EQ(lines[1]["ids"], json::array());
  EXPECT_EQ(lines[2]["ids"], Ids("world"));
  EXPECT_EQ(Output({"tokenize", CountingModelFile(), "--lines", "-"}, {.input = ""}), "");
}

TEST(Tokenize, Chat_IsRenderedByTheTemplate) {
  const std::string messages = R"([{"role": "user", "content": "hi <|im_end|>"}])";
  const std::string list = WriteFile("messages.json", messages);
  EXPECT_EQ(Output({"tokenize", CountingModelFile(), "--chat", list, "--render"}),
            "<|im_start|>user\nhi <|im_end|><|im_end|>\n<|im_start|>assistant\n");
  const json ids = JsonOutput({"tokenize", CountingModelFile(), "--chat", list, "--json"})["ids"];
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 2), 1);  // the message's own <|im_end|> is text
  const std::string object = WriteFile("object.json", R"({"messages": )" + messages + "}");
  EXPECT_EQ(JsonOutput({"tokenize", CountingModelFile(), "--chat", object, "--json"})["ids"], ids);
}

TEST(Chat, LinesOfStandardInput_AreMessages) {
  const std::string out = Output({"chat", CountingModelFile(), "-n", "3"}, {.input = "hello\nworld\n/quit\nignored\n"});
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 2) << out;
  EXPECT_THAT(out, Not(HasSubstr(">>>")));
  EXPECT_EQ(Output({"chat", CountingModelFile()}, {.input = ""}), "");
}

TEST(Chat, Commands_SaveAndLoadTheConversation) {
  const std::string saved = TestFolder() + "/saved.json", copy = TestFolder() + "/copy.json";
  const std::string script = "/system be brief\none\\\ntwo\n\"\"\"a\nb\"\"\"\n//slash\n/save " + saved +
                             "\n/reset\n/load " + saved + "\n/save " + copy + "\n";
  Output({"chat", CountingModelFile(), "-n", "2"}, {.input = script});
  const json messages = json::parse(ReadWholeFile(saved));
  ASSERT_EQ(messages.size(), 7U);
  EXPECT_EQ(messages[0], json({{"role", "system"}, {"content", "be brief"}}));
  EXPECT_EQ(messages[1]["content"], "one\ntwo");
  EXPECT_EQ(messages[2]["role"], "assistant");
  EXPECT_EQ(messages[3]["content"], "a\nb");
  EXPECT_EQ(messages[5]["content"], "/slash");
  EXPECT_EQ(ReadWholeFile(copy), ReadWholeFile(saved));
  EXPECT_EQ(Output({"tokenize", CountingModelFile(), "--chat", saved, "--render"}).substr(0, 29),
            "<|im_start|>system\nbe brief<|");
}

}  // namespace
}  // namespace tidemill::testing::commands_test
