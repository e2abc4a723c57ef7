// What may draft for a model, over arbitrary bytes of its folder: a draft head of EAGLE or EAGLE-3, or a draft model, also PARD's. The
// settings are those up to the first zero byte, what follows are the tensors. A clean error; or an engine that drafts with it, in trees
// and in chains, and gives the ids that it gives without.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fuzz/tiny_draft_heads.h"
#include "tests/support/inspect_safetensors.h"
#include "tests/support/model_folder.h"
#include "tidemill/engine.h"

namespace tidemill {
namespace {

void Require(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what.c_str());
  std::abort();
}

void RequireClean(const Error& error, const std::string& prefix) {
  const std::string problem = testing::FindErrorProblem(error, {prefix});
  Require(problem.empty(), problem);
}

std::vector<int32_t> Answer(const std::shared_ptr<const Model>& target, EngineOptions options,
                            const DraftOptions& draft) {
  options.threads = 1;
  options.state_memory = 1 << 20;
  auto engine = Engine::Create(target, options);
  if (!engine.ok()) {
    RequireClean(engine.error(), "start engine");
    return {};
  }
  const auto id = (*engine)->Submit(
      {.prompt = {3, 4, 5, 4, 5}, .generation = {.max_new_tokens = 12, .ignore_eos = true}, .draft = draft});
  if (!id.ok()) {
    RequireClean(id.error(), "submit request");
    return {};
  }
  std::vector<int32_t> ids;
  while (!(*engine)->idle()) {
    for (const Event& event : (*engine)->Step()) {
      Require(!event.error, "no error where draft tokens are all that can be wrong");
      if (event.token) ids.push_back(*event.token);
    }
  }
  Require(ids.size() == 12, "an answer of 12 tokens");
  return ids;
}

class World {
 public:
  World() {
    const testing::TinyCheckpoint target = testing::TinyModel(testing::kTinyLayers);
    target_folder_.Write("config.json", target.config).Write("model.safetensors", target.tensors);
    for (testing::ModelFolder* folder : {&target_folder_, &folder_})
      folder->Write("tokenizer.json", testing::TinyTokenizer());
    auto model = Model::Load(target_folder_.path(), {.threads = 1, .progress = {}});
    Require(model.ok(), "the target loads");
    target_ = std::move(model).value();
    expected_ = Answer(target_, {}, {});
    Require(!expected_.empty(), "the target answers");
    // So that seeds reach what lies behind the readers.
    for (const testing::TinyCheckpoint& seed : {testing::TinyEagle(), testing::TinyEagle3(), testing::TinyPard()})
      Require(Use(seed.config, seed.tensors), "a good seed draft tokens");
  }

  // Whether it may draft.
  bool Use(std::string_view config, std::string_view tensors) {
    folder_.Write("config.json", config).Write("model.safetensors", tensors);
    EngineOptions options;
    auto head = DraftHead::IsAt(folder_.path());
    if (!head.ok()) return Refused(head.error());
    if (*head) {
      auto loaded = DraftHead::Load(folder_.path(), target_, {.threads = 1, .progress = {}});
      if (!loaded.ok()) return Refused(loaded.error());
      options.draft_head = std::move(loaded).value();
    } else {
      auto loaded = Model::Load(folder_.path(), {.threads = 1, .progress = {}});
      if (!loaded.ok()) return Refused(loaded.error());
      options.draft_model = std::move(loaded).value();
    }
    for (const DraftTreeKind tree : {DraftTreeKind::kChain, DraftTreeKind::kFixed, DraftTreeKind::kDynamic}) {
      const auto found =
          Answer(target_, options,
                 {.num_draft_tokens = 4, .min_draft_tokens = 4, .source = DraftSource::kModel, .tree = tree});
      Require(found.empty() || found == expected_, "the ids are those without draft tokens");
      if (found.empty()) return false;
    }
    return true;
  }

 private:
  bool Refused(const Error& error) const {
    RequireClean(error, "load " + folder_.path() + ": ");
    return false;
  }

  testing::ModelFolder target_folder_, folder_;
  std::shared_ptr<const Model> target_;
  std::vector<int32_t> expected_;
};

}  // namespace
}  // namespace tidemill

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static tidemill::World world;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(input.find('\0'), size);
  (void)world.Use(input.substr(0, end), input.substr(std::min(end + 1, size)));
  return 0;
}
