#include "tests/support/random_requests.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "base/check.h"
#include "tests/fixtures_path.h"
#include "tests/support/model_folder.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_tokenizer_json.h"
#include "tests/support/tiny_vocabulary.h"

namespace tidemill::testing {

std::shared_ptr<const Model> SmallContextModel(DType dtype) {
  return LoadModel(
      "engine_batch",
      BuildTinyLlama({.vocab = WorkSpec().vocab, .context = kSmallContext, .dtype = dtype, .tied = false, .seed = 5}));
}

std::shared_ptr<const Model> WindowedModel(size_t context) {
  const std::string fixture = std::string(TIDEMILL_FIXTURES) + "/families/gemma3_text/";
  const auto read = [&](const char* name) {
    std::ifstream in(fixture + name, std::ios::binary);
    TIDEMILL_CHECK(in.good());
    return std::string((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  };
  auto config = nlohmann::json::parse(read("config.json"));
  config["max_position_embeddings"] = context;
  ModelFolder folder;
  folder.Write("config.json", config.dump())
      .Write("model.safetensors", read("model.safetensors"))
      .Write("tokenizer.json", TinyTokenizerJson(kWindowedWork.vocab));
  LoadOptions options;
  options.threads = 1;
  auto model = Model::Load(folder.path(), options);
  TIDEMILL_CHECK(model.ok());
  return std::move(model).value();
}

std::vector<Work> MakeWork(size_t count, uint64_t seed, const WorkSpec& spec) {
  std::mt19937_64 random(seed);
  const auto below = [&random](size_t n) { return static_cast<size_t>(random() % n); };
  std::vector<Work> work(count);
  for (size_t i = 0; i < count; ++i) {
    Work& w = work[i];
    const size_t lengths[] = {1, 2, below(12) + 1, below(40) + 1, spec.long_prompt + below(24), spec.longest_prompt};
    w.prompt.resize(lengths[i % 6]);
    for (int32_t& id : w.prompt) id = static_cast<int32_t>(3 + below(static_cast<size_t>(spec.vocab) - 3));
    GenerationOptions& g = w.generation;
    if (below(4) != 0) g.max_new_tokens = static_cast<int32_t>(1 + below(16));
    g.ignore_eos = below(2) == 0;
    if (below(3) != 0) g.temperature = 0.5f + static_cast<float>(below(4));
    if (below(3) == 0) g.top_k = 40;
    if (below(3) == 0) g.top_p = 0.9f;
    if (below(3) == 0) g.repetition_penalty = 1.3f;
    if (below(3) == 0) g.stop = {"e", "th", "a", "qz"};
    if (below(3) == 0) {
      g.logit_bias = {{kTinyEosToken, 6.0f}};
      g.ignore_eos = false;
    }
    if (below(2) == 0) g.logprobs = static_cast<int32_t>(below(4));
    g.seed = random();
  }
  return work;
}

std::vector<Outcome> RunUnbatched(const std::shared_ptr<const Model>& model, const std::vector<Work>& work,
                                  EngineOptions options) {
  options.max_batch = 1;
  EngineDriver driver(model, options);
  std::vector<Outcome> outcomes;
  for (const Work& w : work) outcomes.push_back(driver.Run(w.prompt, w.generation));
  return outcomes;
}

void ExpectSame(const Outcome& found, const Outcome& expected, const std::string& where) {
  EXPECT_EQ(found.fault, "") << where;
  EXPECT_EQ(found.last_events, 1U) << where;
  EXPECT_EQ(found.ids, expected.ids) << where;
  EXPECT_EQ(found.text, expected.text) << where;
  EXPECT_EQ(found.logprob_bits, expected.logprob_bits) << where;
  EXPECT_EQ(found.finish, expected.finish) << where;
  EXPECT_EQ(found.error, expected.error) << where << ": " << found.message;
  EXPECT_EQ(found.stats.state_bytes, expected.stats.state_bytes) << where;
}

std::vector<RequestId> RunTogether(EngineDriver& driver, const std::vector<Work>& work, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<RequestId> ids(work.size());
  for (size_t submitted = 0; submitted < work.size() || !driver.engine().idle();) {
    const size_t arrivals = std::min<size_t>(work.size() - submitted, random() % 4);
    for (size_t i = 0; i < arrivals; ++i, ++submitted)
      ids[submitted] = driver.Submit(work[submitted].prompt, work[submitted].generation);
    driver.Step();
  }
  return ids;
}

}  // namespace tidemill::testing
