// Models with linear attention: the flags of its class, and what `run --json` says of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/model_files.h"
#include "tests/cli/process.h"
#include "tests/support/changed_checkpoint.h"
#include "tests/support/model_folder.h"
#include "tests/support/tiny_tokenizer_json.h"

namespace tidemill::testing::linear_attention_test {
namespace {

using nlohmann::json;
using ::testing::EndsWith;

const std::string& HybridFolder() {  // of 3 layers of linear attention and one of attention
  static const std::unique_ptr<ModelFolder> folder = [] {
    auto made = std::make_unique<ModelFolder>();
    ChangedCheckpoint("families/qwen3_next").WriteTo(*made);
    made->Write("tokenizer.json", TinyTokenizerJson(128));
    return made;
  }();
  return folder->path();
}

std::vector<std::string> With(std::vector<std::string> arguments, const std::vector<std::string>& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

json RunJson(const std::vector<std::string>& more) {
  const ProcessResult result =
      RunTidemill(With({"run", HybridFolder(), "--raw", "--ignore-eos", "--temperature", "0", "--json"}, more));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  return json::parse(result.out, nullptr, false);
}

TEST(LinearAttention, RunJson_SaysItsClassAndItsCounts) {
  const std::string text = "The tide comes in.";  // no merges: a token for each byte
  const json plain = RunJson({"-p", text, "-n", "9", "--linear-buffer", "16"});
  const size_t length = plain["prompt_tokens"].get<size_t>() + 8;  // the last token is in no state
  ASSERT_EQ(length, text.size() + 8);
  // 3 layers, 4 heads of [8, 12], whose columns stand in tiles of 32.
  const size_t state_bytes = 3 * 4 * 8 * 32 * sizeof(float);
  EXPECT_EQ(plain["linear"], json({{"form", "buffered"},
                                   {"start", 16},
                                   {"buffer", 16},
                                   {"dtype", "f32"},
                                   {"boundaries", 3},
                                   {"state_writes", 3},
                                   {"state_bytes", state_bytes}}));
  const json every = RunJson({"-p", text, "-n", "9", "--linear-form", "recurrent"})["linear"];
  EXPECT_EQ(every["form"], "recurrent");
  EXPECT_EQ(every["buffer"], 1);
  EXPECT_EQ(every["boundaries"], 3 * (length - 1));
  EXPECT_EQ(every["state_writes"], 3 * 8);  // of the prompt's last token, and of each later one but the last
  const json late =
      RunJson({"-p", text, "-n", "9", "--linear-start", "64", "--linear-buffer", "8", "--linear-buffer-dtype", "bf16"});
  EXPECT_THAT(late["numeric_class"].get<std::string>(), EndsWith("/linear-64-8-bf16"));
  EXPECT_EQ(late["linear"], json({{"form", "kv"},
                                  {"start", 64},
                                  {"buffer", 8},
                                  {"dtype", "bf16"},
                                  {"boundaries", 0},
                                  {"state_writes", 0},
                                  {"state_bytes", 0}}));
  const ProcessResult llama = RunTidemill({"run", TinyLlamaFile(), "--raw", "-p", "a", "-n", "2", "--json"});
  EXPECT_FALSE(json::parse(llama.out).contains("linear"));
}

TEST(LinearAttention, SavedState_GoesOnInItsClassAlone) {
  const std::string path = TestFolder() + "/linear.state";
  const json whole = RunJson({"-p", "The tide", "-n", "40", "--linear-buffer", "8"});
  const json first = RunJson({"-p", "The tide", "-n", "21", "--linear-buffer", "8", "--save-state", path});
  const std::vector<std::string> resume = {"run", HybridFolder(), "--load-state", path, "-n", "40", "--json"};
  const ProcessResult more = RunTidemill(With(resume, {"--linear-buffer", "8", "--threads", "2"}));
  ASSERT_EQ(more.exit_code, 0) << more.err;
  const json rest = json::parse(more.out);
  json ids = first["ids"];
  for (const json& id : rest["ids"]) ids.push_back(id);
  EXPECT_EQ(ids, whole["ids"]);
  const std::string own = whole["numeric_class"], prefix = own.substr(0, own.rfind('/'));
  const auto expect_refused = [&](const std::vector<std::string>& flags, const std::string& found) {
    const ProcessResult result = RunTidemill(With(resume, flags));
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(result.err, "tidemill: resume request: " + path + ": expected numeric class " + own + ", found " +
                              prefix + found +
                              "; choose --kv-dtype, --dtype, --isa, --rope-scaling, --linear-form, --linear-buffer, "
                              "--linear-start and --linear-buffer-dtype as when it was saved\n");
  };
  expect_refused({"--linear-buffer", "16"}, "/linear-16");
  expect_refused({"--linear-buffer", "4"}, "/linear-4");
  expect_refused({"--linear-buffer", "8", "--linear-buffer-dtype", "bf16"}, "/linear-8-bf16");
  expect_refused({"--linear-buffer", "8", "--linear-start", "9"}, "/linear-9-8");
}

}  // namespace
}  // namespace tidemill::testing::linear_attention_test
