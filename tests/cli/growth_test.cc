// What a user hears of a cache that cannot grow as was asked.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/cli/model_files.h"
#include "tests/cli/process.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/tiny_model.h"

namespace tidemill::testing::growth_test {
namespace {

#if !TIDEMILL_SLOWED_DOWN  // a sanitizer or an emulator needs more addresses than there are

constexpr char kNotice[] = "--kv-policy reserve: the system has no addresses";
constexpr uint64_t kFewAddresses = uint64_t{3} << 29;

// A context whose state has 2 GiB of addresses, where a process with few of them has 1.5.
const std::string& LongContextFile() {
  static const std::string path = WriteFile(
      "long_context.gguf",
      BuildTinyLlama(
          {.hidden = 256, .layers = 8, .heads = 8, .kv_heads = 8, .head_dim = 64, .ffn = 64, .context = 131072}));
  return path;
}

ProcessResult RunWith(const std::string& command, std::vector<std::string> flags, const ProcessOptions& options) {
  const std::vector<std::string> first = {command, LongContextFile(), "--threads", "1"};
  flags.insert(flags.begin(), first.begin(), first.end());
  return RunTidemill(flags, options);
}

size_t NoticesIn(const std::string& text) {
  size_t count = 0;
  for (size_t at = text.find(kNotice); at != std::string::npos; at = text.find(kNotice, at + 1)) ++count;
  return count;
}

TEST(ReserveWithoutAddresses, Run_GrowsGeometricallyAndSaysSoOnce) {
  const auto run = [](const std::string& policy, uint64_t address_bytes) {
    return RunWith("run",
                   {"--raw", "-p", "The tide", "-n", "20", "--ignore-eos", "--temperature", "0", "--kv-policy", policy},
                   {.address_bytes = address_bytes});
  };
  const ProcessResult expected = run("geometric", kFewAddresses), fallen_back = run("reserve", kFewAddresses),
                      all = run("reserve", 0);
  EXPECT_EQ(expected.exit_code, 0) << expected.err;
  EXPECT_EQ(fallen_back.exit_code, 0) << fallen_back.err;
  EXPECT_EQ(fallen_back.out, expected.out);
  EXPECT_EQ(all.out, expected.out);
  EXPECT_EQ(NoticesIn(fallen_back.err), 1U) << fallen_back.err;
  EXPECT_EQ(all.err, "");
  EXPECT_EQ(expected.err, "");
}

TEST(ReserveWithoutAddresses, ManyPrompts_AreToldOnce) {
  const std::string prompts =
      "{\"prompt\": \"tide\", \"max_new_tokens\": 3}\n{\"prompt\": \"mill\", \"max_new_tokens\": 3}\n";
  const ProcessResult result = RunWith("run", {"--raw", "--kv-policy", "reserve", "--prompts", "-", "--stats"},
                                       {.input = prompts, .address_bytes = kFewAddresses});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(NoticesIn(result.err), 1U) << result.err;
}

TEST(ReserveWithoutAddresses, Conversation_IsToldOnce) {
  const ProcessResult result = RunWith("chat", {"-n", "3", "--kv-policy", "reserve"},
                                       {.input = "hello\nworld\n", .address_bytes = kFewAddresses});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(NoticesIn(result.err), 1U) << result.err;
}

#endif

}  // namespace
}  // namespace tidemill::testing::growth_test
