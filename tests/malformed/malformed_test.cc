// Every malformed file is refused: by the line that its table gives, soon, and without taking memory for what it claims.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>

#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "tests/malformed/malformed_case.h"
#include "tests/support/allocation_probe.h"
#include "tests/support/cpu_seconds.h"
#include "tests/support/model_folder.h"
#include "tidemill/model.h"

namespace tidemill::testing::malformed_test {
namespace {

constexpr double kMaxSeconds = 0.1;
constexpr double kMaxRenderSeconds = 4;  // of ChatTemplateLimits

// "" when it was answered; the answer is an error line, or that it was none.
std::string Ask(Question question, const std::string& path, ErrorCode* code) {
  const auto line = [&](const auto& result) {
    if (result.ok()) return std::string("no error");
    *code = result.error().code();
    return result.error().message();
  };
  if (question == Question::kInspect) return line(Inspect(path));
  if (question == Question::kText) return line(LoadText(path));
  if (question == Question::kRender) {
    std::ostringstream source;
    source << std::ifstream(path, std::ios::binary).rdbuf();
    const auto parsed = ChatTemplate::Parse(source.str());
    return parsed.ok() ? line(parsed->RenderJson(kOneMessage, {})) : line(parsed);
  }
  LoadOptions options;
  options.threads = 1;
  return line(Model::Load(path, options));
}

bool IsOneCleanLine(std::string_view line) {
  return line.size() <= 1000 &&
         std::none_of(line.begin(), line.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; });
}

// What the limits of the header's readers leave: 4 x what the file has of one, and a constant.
uint64_t MaxBytes(const MalformedCase& c) {
  uint64_t bytes = 0;
  for (const MalformedFile& file : c.files) bytes += file.recipe.Make().size();
  return (32 << 20) + 4 * bytes;
}

class MalformedTest : public ::testing::TestWithParam<size_t> {};  // an index into the groups

TEST_P(MalformedTest, EveryFile_IsRefusedByItsLine) {
  const std::vector<MalformedCase> cases = MalformedGroups()[GetParam()].make();
  std::set<std::string> names;
  for (const MalformedCase& c : cases) {
    EXPECT_TRUE(names.insert(FolderName(c.name)).second) << "two cases of this name: " << c.name;
    const ModelFolder folder;
    const std::string path = WriteFiles(c, folder.path());
    ErrorCode code = ErrorCode::kInternal;
    const HeapWatch heap;
    const double begin = CpuSeconds();
    const std::string line = Ask(c.question, path, &code);
    const double seconds = CpuSeconds() - begin;
    const uint64_t peak = heap.PeakBytes();
    EXPECT_EQ(line, ExpectedLine(c, path)) << c.name;
    EXPECT_EQ(ErrorCodeName(code), ErrorCodeName(c.code)) << c.name;
    EXPECT_TRUE(IsOneCleanLine(line)) << c.name << ": " << line;
    const bool is_template = c.question == Question::kRender;
    EXPECT_LE(peak, is_template ? 2 * ChatTemplateLimits().value_bytes : MaxBytes(c)) << c.name;
    EXPECT_TRUE(seconds <= (is_template ? kMaxRenderSeconds : kMaxSeconds) || !TIDEMILL_FULL_SPEED)
        << c.name << ": " << seconds << " s";
  }
}

// The readers alone, over memory of the file's exact size: a sanitizer sees every read behind it, which it does not in a mapping.
TEST(Malformed, BytesInMemoryOfTheirSize_AreRefusedAlike) {
  size_t refused = 0;
  for (const MalformedGroup& group : MalformedGroups()) {
    const std::string_view name = group.name;
    if (!name.starts_with("gguf") && !name.starts_with("safetensors")) continue;
    for (const MalformedCase& c : group.make()) {
      if (c.files.size() != 1 || c.files[0].recipe.size() != 0) continue;
      const std::string bytes = c.files[0].recipe.Make();
      const auto copy = std::make_unique<std::byte[]>(bytes.size());
      std::transform(bytes.begin(), bytes.end(), copy.get(), [](char byte) { return static_cast<std::byte>(byte); });
      const std::span<const std::byte> file(copy.get(), bytes.size());
      const auto gguf = GgufFile::Parse(file);
      const auto safetensors = SafetensorsFile::Parse(file);
      const bool is_gguf = c.opened.ends_with(".gguf");
      EXPECT_FALSE(is_gguf ? safetensors.ok() : gguf.ok()) << c.name;
      if (bytes.empty() || (is_gguf ? gguf.ok() : safetensors.ok())) continue;
      EXPECT_EQ(is_gguf ? gguf.error().message() : safetensors.error().message(), c.message) << c.name;
      ++refused;
    }
  }
  EXPECT_GE(refused, 180u);
}

TEST(Malformed, Tables_HaveTheNumbersPromised) {
  std::map<std::string, size_t> of_format;
  size_t all = 0;
  for (const MalformedGroup& group : MalformedGroups()) {
    const std::string name = group.name;
    const size_t count = group.make().size();
    of_format[name == "gguf-parts" ? name : name.substr(0, name.find('-'))] += count;
    all += count;
  }
  EXPECT_GE(all, 350u);
  EXPECT_GE(of_format["gguf"], 170u);
  EXPECT_GE(of_format["gguf-parts"], 20u);
  EXPECT_GE(of_format["safetensors"], 80u);
  EXPECT_GE(of_format["config"] + of_format["generation"] + of_format["index"], 130u);
}

INSTANTIATE_TEST_SUITE_P(Files, MalformedTest, ::testing::Range(size_t{0}, MalformedGroups().size()),
                         [](const auto& index) {
                           std::string name = MalformedGroups()[index.param].name;
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace tidemill::testing::malformed_test
