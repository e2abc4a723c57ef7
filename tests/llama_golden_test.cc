// Tiny seeded llama checkpoints against transformers' logits (tests/fixtures/llama/README.md), on every level.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/testing/levels.h"
#include "kernels/testing/compare.h"
#include "tests/fixtures_path.h"
#include "tests/support/model_runner.h"

namespace tidemill::llama_golden_test {
namespace {

using testing::ModelRunner;
using testing::RunnerOptions;

constexpr double kTolerance = 1e-4;  // tests/fixtures/llama/README.md says where it comes from

std::string Fixture(const std::string& name) { return std::string(TIDEMILL_FIXTURES) + "/llama/" + name; }

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  EXPECT_FALSE(bytes.empty()) << path << " is missing";
  return bytes;
}

// Tensor `name` of a golden safetensors file: 8 bytes header length, JSON, data.
std::vector<float> GoldenTensor(const std::string& bytes, const std::string& name) {
  uint64_t header = 0;
  if (bytes.size() < sizeof(header)) return {};  // ReadFile has said so
  std::memcpy(&header, bytes.data(), 8);
  const auto entry = nlohmann::json::parse(bytes.substr(8, header)).at(name);
  const size_t begin = entry.at("data_offsets")[0], end = entry.at("data_offsets")[1];
  std::vector<float> values((end - begin) / sizeof(float));
  std::memcpy(values.data(), bytes.data() + 8 + header + begin, end - begin);
  return values;
}

void ExpectGolden(const std::string& name, const RunnerOptions& options, size_t chunk) {
  SCOPED_TRACE(name + " " + std::string(IsaName(options.isa)) + " chunk " + std::to_string(chunk));
  ModelRunner runner(Fixture(name + ".gguf"), options);
  const auto golden = nlohmann::json::parse(ReadFile(Fixture(name + ".json")));
  const std::string tensors = ReadFile(Fixture(name + ".safetensors"));
  ASSERT_FALSE(golden.at("prompts").empty());
  for (size_t p = 0; p < golden.at("prompts").size(); ++p) {
    const auto& prompt = golden.at("prompts")[p];
    const std::vector<int32_t> ids = prompt.at("ids");
    const std::vector<float> expected = GoldenTensor(tensors, "logits." + std::to_string(p));
    const auto state = runner.NewState();
    const std::vector<float> logits = runner.Feed(*state, ids, chunk);
    ASSERT_FALSE(expected.empty());
    ASSERT_LE(expected.size(), logits.size());
    const float* last = logits.data() + (logits.size() - expected.size());  // long prompts: the last position only
    EXPECT_TRUE(testing::Within(expected, {last, expected.size()}, [](size_t) { return kTolerance; }))
        << "prompt " << p;
    const std::vector<int32_t> greedy = prompt.at("greedy_ids");
    ASSERT_FALSE(greedy.empty());
    EXPECT_EQ(runner.Greedy(*state, logits, greedy.size()), greedy) << "prompt " << p;
  }
}

TEST(LlamaGolden, EveryCheckpointAndLevel_MatchesTransformers) {
  for (const char* name : {"tied", "untied", "theta_1e5"}) {
    for (const Isa isa : testing::LevelsHere()) {
      ExpectGolden(name, {.isa = isa, .threads = 2}, 512);
    }
  }
}

TEST(LlamaGolden, MappedAndInSmallChunks_MatchesTransformers) {
  for (const char* name : {"tied", "untied", "theta_1e5"}) ExpectGolden(name, {.mapped = true}, 7);
}

}  // namespace
}  // namespace tidemill::llama_golden_test
