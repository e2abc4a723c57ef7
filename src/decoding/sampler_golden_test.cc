// Survivors and probabilities of transformers' own chain of logits processors: tests/fixtures/sampler/README.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "decoding/sampler.h"
#include "tests/fixtures_path.h"

namespace tidemill::sampler_golden_test {
namespace {

GenerationOptions OptionsOf(const nlohmann::json& json) {
  GenerationOptions options;
  options.temperature = 1.0f;
  size_t known = 0;
  const auto read = [&](const char* name, auto* field) {
    if (!json.contains(name)) return;
    json.at(name).get_to(*field);
    ++known;
  };
  read("temperature", &options.temperature);
  read("top_k", &options.top_k);
  read("top_p", &options.top_p);
  read("min_p", &options.min_p);
  read("repetition_penalty", &options.repetition_penalty);
  read("no_repeat_ngram_size", &options.no_repeat_ngram_size);
  read("min_new_tokens", &options.min_new_tokens);
  read("logit_bias", &options.logit_bias);
  read("suppress_tokens", &options.suppress_tokens);
  read("begin_suppress_tokens", &options.begin_suppress_tokens);
  read("bad_words_ids", &options.bad_words_ids);
  const auto read_some = [&](const char* name, const auto& read_one) {
    if (!json.contains(name)) return;
    read_one(json.at(name));
    ++known;
  };
  read_some("max_new_tokens", [&](const auto& value) { options.max_new_tokens = value.template get<int32_t>(); });
  read_some("forced_bos_token_id",
            [&](const auto& value) { options.forced_bos_token_id = value.template get<int32_t>(); });
  read_some("forced_eos_token_id", [&](const auto& value) {
    options.forced_eos_token_id = value.is_array() ? value.template get<std::vector<int32_t>>()
                                                   : std::vector<int32_t>{value.template get<int32_t>()};
  });
  EXPECT_EQ(known, json.size()) << "an option this test does not read: " << json;
  return options;
}

TEST(SamplerGolden, TransformersChain_LeavesTheSameTokensAndProbabilities) {
  const std::string path = TIDEMILL_FIXTURES "/sampler/transformers.json";
  std::ifstream file(path);
  ASSERT_TRUE(file.is_open()) << path;
  const auto golden = nlohmann::json::parse(file, nullptr, false);
  ASSERT_TRUE(golden.is_object()) << path;
  const std::vector<int32_t> eos = {golden.at("eos").get<int32_t>()};
  const auto& cases = golden.at("cases");
  ASSERT_EQ(cases.size(), 114U);
  for (const auto& c : cases) {
    SCOPED_TRACE(c.at("options").dump());
    auto logits = c.at("logits").get<std::vector<float>>();
    GenerationOptions options = OptionsOf(c.at("options"));
    std::erase(options.bad_words_ids, eos);  // where the file is read
    auto sampler = Sampler::Create(options, {.vocab_size = logits.size(), .eos_ids = eos});
    ASSERT_TRUE(sampler.ok()) << sampler.error().message();
    sampler->Prime(c.at("prompt").get<std::vector<int32_t>>());
    for (const int32_t id : c.at("answer").get<std::vector<int32_t>>()) sampler->Accept(id);
    auto distribution = sampler->Distribution(logits);
    ASSERT_TRUE(distribution.ok()) << distribution.error().message();
    std::sort(distribution->begin(), distribution->end(), [](const auto& a, const auto& b) { return a.id < b.id; });
    const auto ids = c.at("ids").get<std::vector<int32_t>>();
    const auto probabilities = c.at("probabilities").get<std::vector<double>>();
    ASSERT_EQ(distribution->size(), ids.size());
    for (size_t i = 0; i < ids.size(); ++i) {
      ASSERT_EQ((*distribution)[i].id, ids[i]);
      ASSERT_NEAR((*distribution)[i].probability, probabilities[i], 1e-6) << "token " << ids[i];
    }
  }
}

}  // namespace
}  // namespace tidemill::sampler_golden_test
