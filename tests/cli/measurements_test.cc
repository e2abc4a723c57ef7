// Logits, perplexity and bench.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cli/model_files.h"
#include "tests/cli/process.h"
#include "tests/fixtures_path.h"
#include "tests/support/model_folder.h"

namespace tidemill::testing::measurements_test {
namespace {

using nlohmann::json;
using ::testing::AnyOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

struct Safetensors {
  json header;
  std::string data;

  std::vector<float> Tensor(const std::string& name) const {
    const size_t begin = header[name]["data_offsets"][0], end = header[name]["data_offsets"][1];
    std::vector<float> values((end - begin) / sizeof(float));
    std::memcpy(values.data(), data.data() + begin, end - begin);
    return values;
  }
};

Safetensors ReadSafetensors(const std::string& path) {
  const std::string bytes = ReadWholeFile(path);
  uint64_t size = 0;
  if (bytes.size() < 8) {
    ADD_FAILURE() << path << " has " << bytes.size() << " bytes";
    return {};
  }
  std::memcpy(&size, bytes.data(), 8);
  EXPECT_EQ(size % 8, 0U);
  return {json::parse(bytes.substr(8, size)), bytes.substr(8 + size)};
}

ProcessResult Logits(const std::string& model, const std::string& ids, const std::string& out,
                     const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = {"logits", model, "--ids", "-", "--out", out};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return RunTidemill(arguments, {.input = ids});
}

size_t Argmax(std::span<const float> row) {
  return static_cast<size_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

TEST(Logits, CountingModel_PointsAtTheNextToken) {
  const std::string out = TestFolder() + "/logits.safetensors";
  const ProcessResult result = Logits(CountingModelFile(), "[10, 500, 3]", out);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out + result.err, "");
  const Safetensors file = ReadSafetensors(out);
  EXPECT_EQ(file.header,
            json({{"logits", {{"dtype", "F32"}, {"shape", {3, 997}}, {"data_offsets", {0, 3 * 997 * 4}}}}}));
  EXPECT_EQ(file.data.size(), 3U * 997 * 4);
  const std::vector<float> logits = file.Tensor("logits");
  const size_t expected[] = {11, 501, 4};
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(Argmax(std::span(logits).subspan(i * 997, 997)), expected[i]);
}

TEST(Logits, ListsAndLastOnly_AreRowsOfTheSame) {
  const std::string out = TestFolder() + "/lists.safetensors", last = TestFolder() + "/last.safetensors";
  ASSERT_EQ(Logits(TinyLlamaFile(), "[[5, 6], [7, 8, 9]]", out).exit_code, 0);
  const Safetensors both = ReadSafetensors(out);
  EXPECT_EQ(both.header["logits.0"]["shape"], json({2, 997}));
  EXPECT_EQ(both.header["logits.1"]["shape"], json({3, 997}));
  EXPECT_EQ(both.data.size(), 5U * 997 * 4);
  ASSERT_EQ(Logits(TinyLlamaFile(), "[7, 8, 9]", last, {"--last-only"}).exit_code, 0);
  const Safetensors one = ReadSafetensors(last);
  EXPECT_EQ(one.header["logits"]["shape"], json({1, 997}));
  const std::vector<float> all = both.Tensor("logits.1");
  EXPECT_EQ(one.Tensor("logits"), std::vector<float>(all.end() - 997, all.end()));
}

TEST(Logits, FileThatIsThere_IsReplacedOnlyByAWholeOne) {
  const std::string out = WriteFile("kept.safetensors", "before");
  EXPECT_EQ(Logits(CountingModelFile(), "[1, 997]", out).exit_code, 2);
  EXPECT_EQ(ReadWholeFile(out), "before");
  EXPECT_EQ(Logits(CountingModelFile(), "[1, 2]", out).exit_code, 0);
  EXPECT_EQ(ReadSafetensors(out).data.size(), 2U * 997 * 4);
  for (const auto& entry : std::filesystem::directory_iterator(TestFolder())) {
    EXPECT_EQ(entry.path().string().find(".part."), std::string::npos) << entry.path();
  }
}

TEST(Perplexity, Text_IsScoredInWindows) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += "the tide mill of water and gate " + std::to_string(i) + " ";
  const std::string file = WriteFile("text.txt", text);
  const auto measure = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"perplexity", TinyLlamaFile(), "-f", file, "--json"});
    const ProcessResult result = RunTidemill(more);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return json::parse(result.out, nullptr, false);
  };
  const json half = measure({"--context", "64"});
  EXPECT_EQ(half["context"], 64);
  EXPECT_EQ(half["scored_tokens"], half["windows"].get<int>() * 31);  // positions 32 to 62 of each
  EXPECT_NEAR(half["perplexity"].get<double>(), std::exp(half["mean_nll"].get<double>()),
              1e-6 * half["perplexity"].get<double>());
  EXPECT_GT(half["perplexity"], 1.0);
  EXPECT_GT(half["standard_error"], 0.0);
  const json all = measure({"--context", "64", "--score", "all"});
  EXPECT_EQ(all["scored_tokens"], all["windows"].get<int>() * 63);
  EXPECT_EQ(measure({})["context"], 256);  // the model has no more
  EXPECT_THAT(RunTidemill({"perplexity", TinyLlamaFile(), "-f", file}).out, HasSubstr("perplexity "));
}

TEST(Perplexity, TextOfSegments_IsOneWindow) {
  const std::string fixture = std::string(TIDEMILL_FIXTURES) + "/armt/recall/", bos = "<|endoftext|>";
  ModelFolder with_bos;
  for (const char* name : {"config.json", "model.safetensors", "tokenizer_config.json"})
    with_bos.Write(name, ReadWholeFile(fixture + name));
  json tokenizer = json::parse(ReadWholeFile(fixture + "tokenizer.json"));
  json& added = tokenizer["post_processor"];
  added["single"] = {{{"SpecialToken", {{"id", bos}, {"type_id", 0}}}}, added["single"][0]};
  added["special_tokens"][bos] = {{"id", bos}, {"ids", {0}}, {"tokens", {bos}}};
  with_bos.Write("tokenizer.json", tokenizer.dump());
  std::string text = "k1";
  for (int i = 1; i < 700; ++i) text += " k" + std::to_string(i * i % 128);
  const std::string file = WriteFile("segments.txt", text);
  for (const bool has_bos : {false, true}) {  // which takes a place of the window
    const ProcessResult result =
        RunTidemill({"perplexity", has_bos ? with_bos.path() : fixture, "-f", file, "--json", "--score", "all"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const json found = json::parse(result.out, nullptr, false);
    EXPECT_EQ(found["windows"], 1);
    EXPECT_EQ(found["context"], has_bos ? 701 : 700);
    EXPECT_EQ(found["scored_tokens"], has_bos ? 700 : 699);
  }
}

// A run of bench is complete, whatever the neighbours do: they may keep it from knowing a limit, and then it says so at the end.
// Where loops are instrumented or emulated, a share above 100 % is no fault of ours (limit_rules_test has the rule).
ProcessResult Bench(std::vector<std::string> flags) {
  flags.insert(flags.begin(), {"bench", TinyLlamaFile()});
  const ProcessResult result = RunTidemill(flags);
  if (result.exit_code == 0) {
    EXPECT_EQ(result.err, "");
  } else {
    EXPECT_EQ(result.exit_code, 1);
    if (TIDEMILL_SLOWED_DOWN) {
      EXPECT_THAT(result.err,
                  AnyOf(HasSubstr("bench: measure the machine's limits: "), HasSubstr("at most 100 % of the ")));
    } else {
      EXPECT_THAT(result.err, StartsWith("tidemill: bench: measure the machine's limits: "));
    }
    EXPECT_THAT(result.err, EndsWith("run it again when the machine is less busy\n"));
  }
  return result;
}

TEST(Bench, SegmentModel_ReadsEightSegments) {
  const std::string model = std::string(TIDEMILL_FIXTURES) + "/armt/llama";
  const ProcessResult result = RunTidemill(
      {"bench", model, "--gen-tokens", "4", "--depth", "0,30", "--repeat", "1", "--threads", "2", "--json"});
  EXPECT_TRUE(result.exit_code == 0 || result.exit_code == 1) << result.err;  // limits that neighbours keep from it
  const json results = json::parse(result.out)["results"];
  ASSERT_EQ(results.size(), 3U);
  EXPECT_EQ(results[0]["prompt_tokens"], 56);
  for (const json& one : results) EXPECT_GT(one["tokens_per_s"]["median"], 0.0);
  EXPECT_EQ(results[2]["depth"], 30);
  EXPECT_EQ(results[2]["beyond_context"], false);
}

TEST(Bench, Json_HasEveryTestAndEveryMember) {
  const ProcessResult result = Bench({"--prompt-tokens", "16,32", "--gen-tokens", "4", "--depth", "0,300", "--batch",
                                      "1,2", "--repeat", "2", "--threads", "1", "--json"});
  const json report = json::parse(result.out);
  EXPECT_EQ(report["machine"]["threads"], 1);
  EXPECT_GT(report["machine"]["read_gb_per_s"], 0.0);
  ASSERT_EQ(report["machine"]["limits"].size(), 1U);
  for (const char* limit : {"read", "int8", "f32"}) {
    const json& loops = report["machine"]["limits"][0][limit]["loops"];
    ASSERT_EQ(loops.size(), 2U) << limit;
    EXPECT_GT(loops[0], 0.0);
    EXPECT_GT(loops[1], 0.0);
    EXPECT_EQ(report["machine"]["limits"][0][limit]["best"], std::max(loops[0], loops[1]));
  }
  EXPECT_EQ(report["model"]["family"], "llama");
  const json& results = report["results"];
  ASSERT_EQ(results.size(), 6U);  // two prefills; two batches at two depths
  for (const json& one : results) {
    for (const char* name : {"test",
                             "threads",
                             "batch",
                             "depth",
                             "prompt_tokens",
                             "gen_tokens",
                             "tokens_per_s",
                             "weight_bytes_per_token",
                             "state_bytes_per_token",
                             "bytes_per_token",
                             "int8_ops_per_token",
                             "bf16_ops_per_token",
                             "flops_per_token",
                             "gb_per_s",
                             "gop_per_s",
                             "read_limit_gb_per_s",
                             "bandwidth_share",
                             "arithmetic_share",
                             "limit",
                             "peak_rss_bytes"}) {
      EXPECT_TRUE(one.contains(name)) << name;
    }
    EXPECT_GT(one["tokens_per_s"]["min"], 0.0);
    EXPECT_LE(one["tokens_per_s"]["min"], one["tokens_per_s"]["median"]);
    EXPECT_LE(one["tokens_per_s"]["median"], one["tokens_per_s"]["max"]);
    EXPECT_GT(one["peak_rss_bytes"], 0);
    const double rate = one["tokens_per_s"]["median"], bytes = one["bytes_per_token"], moved = one["gb_per_s"];
    EXPECT_GT(bytes, one["weight_bytes_per_token"]);
    EXPECT_NEAR(moved, bytes * rate * 1e-9, 1e-6 * moved);
    const double done = one["gop_per_s"], limit = one["read_limit_gb_per_s"], share = one["bandwidth_share"];
    EXPECT_NEAR(done, (one["int8_ops_per_token"].get<double>() + one["flops_per_token"].get<double>()) * rate * 1e-9,
                1e-6 * done);
    EXPECT_NEAR(share, moved / limit, 1e-6 * share);
    EXPECT_GT(one["arithmetic_share"], 0.0);
    if (!TIDEMILL_SLOWED_DOWN || result.exit_code == 0) {
      EXPECT_LE(one["arithmetic_share"], 1.0);
      EXPECT_LE(share, 1.0);
    }
    EXPECT_THAT(one["limit"], AnyOf("read", "int8", "bf16", "f32"));
    EXPECT_EQ(one.contains("read_loop_share"), one["test"] == "decode");
    if (one["test"] != "decode") continue;
    // Both are medians of two samples, each with a loop of its own.
    const double loop = one["read_loop_gb_per_s"], least = one["tokens_per_s"]["min"],
                 most = one["tokens_per_s"]["max"];
    EXPECT_GT(loop, 0.05 * limit);  // beside neighbours, where the limit is memory at its best
    EXPECT_LT(loop, 3 * limit);
    EXPECT_GT(one["read_loop_share"], 0.5 * bytes * least * 1e-9 / loop);
    EXPECT_LT(one["read_loop_share"], 10 * bytes * most * 1e-9 / loop);
  }
  EXPECT_EQ(results[1]["test"], "prefill");
  EXPECT_EQ(results[1]["prompt_tokens"], 32);
  EXPECT_EQ(results[5]["test"], "decode");
  EXPECT_EQ(results[5]["batch"], 2);
  EXPECT_EQ(results[5]["depth"], 300);
  EXPECT_EQ(results[4]["beyond_context"], false);
  EXPECT_EQ(results[5]["beyond_context"], true);
}

// Medians of one sample are the sample itself.
TEST(Bench, ShareOfTheLoop_IsWhatADecodeReadsOfItsRate) {
  const ProcessResult result = Bench(
      {"--prompt-tokens", "4", "--gen-tokens", "4", "--batch", "1,3", "--repeat", "1", "--threads", "1", "--json"});
  const json results = json::parse(result.out)["results"];
  ASSERT_EQ(results.size(), 3U);
  for (size_t i = 1; i < 3; ++i) {
    const double moved = results[i]["gb_per_s"], loop = results[i]["read_loop_gb_per_s"];
    EXPECT_NEAR(results[i]["read_loop_share"], moved / loop, 1e-6 * moved / loop);
  }
}

TEST(Bench, Table_FitsIn100ColumnsAndMarksWhatIsPastTheContext) {
  const std::vector<std::string> flags = {"--prompt-tokens", "8",   "--gen-tokens", "2", "--depth",   "0,256",
                                          "--batch",         "1,8", "--repeat",     "1", "--threads", "2"};
  const ProcessResult result = Bench(flags);
  for (const char* part :
       {"machine  ", "model    ", "limits   1 thread:  read ", "         2 threads: read ", "prefill ", "decode  ",
        "tokens/s       min       max    GB/s  % of limit  limit  peak MiB\n", " 256* ",
        "\n* past the model's context size\n"})
    EXPECT_THAT(result.out, HasSubstr(part));
  EXPECT_THAT(result.out, Not(HasSubstr("loop")));
  std::istringstream lines(result.out.substr(result.out.find("limits ")));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100U) << line;
}

TEST(Bench, Verbose_HasTheWorkOfEachTest) {
  const ProcessResult result =
      Bench({"--prompt-tokens", "8", "--gen-tokens", "2", "--repeat", "1", "--threads", "1", "--verbose"});
  for (const char* part : {" GB/s (", "a token: ", " Gop/s; bandwidth ", ", arithmetic ", "; loop "})
    EXPECT_THAT(result.out, HasSubstr(part));
}

}  // namespace
}  // namespace tidemill::testing::measurements_test
