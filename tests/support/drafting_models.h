// Models with everything that can draft for them by steps of its own, all small.
#ifndef TIDEMILL_TESTS_SUPPORT_DRAFTING_MODELS_H_
#define TIDEMILL_TESTS_SUPPORT_DRAFTING_MODELS_H_

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "tests/support/changed_checkpoint.h"
#include "tests/support/eagle_models.h"
#include "tests/support/engine_driver.h"
#include "tests/support/model_folder.h"
#include "tests/support/random_requests.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_tokenizer_json.h"

namespace tidemill::testing {

// A model, and what draft tokens for it.
struct DraftingModel {
  std::string name;
  std::shared_ptr<const Model> model;
  std::shared_ptr<const Model> draft_model = {};
  std::shared_ptr<const DraftHead> draft_head = {};
  size_t layers = 0;
  bool at_once = false;
  int vocab = WorkSpec().vocab;

  EngineOptions Options(size_t max_batch) const {
    return {.threads = 2,
            .kv_policy = KvPolicy::kUpfront,
            .max_batch = max_batch,
            .draft_model = draft_model,
            .draft_head = draft_head};
  }
  DraftOptions Draft(size_t num_draft_tokens, DraftTreeKind tree = DraftTreeKind::kChain) const {
    return {.num_draft_tokens = num_draft_tokens,
            .min_draft_tokens = num_draft_tokens,
            .source = layers == 0 ? DraftSource::kModel : DraftSource::kLayers,
            .layers = layers,
            .tree = tree};
  }
};

inline std::shared_ptr<const Model> LoadFolder(const ChangedCheckpoint& checkpoint, const std::string& tokenizer) {
  ModelFolder folder;
  checkpoint.WriteTo(folder);
  folder.Write("tokenizer.json", tokenizer);
  LoadOptions options;
  options.threads = 1;
  auto model = Model::Load(folder.path(), options);
  TIDEMILL_CHECK(model.ok());
  return std::move(model).value();
}

inline std::vector<DraftingModel> AllDraftingModels() {
  const auto model = SmallContextModel(DType::kQ8_0);
  const auto smaller = LoadModel("batched_draft", BuildTinyLlama({.vocab = WorkSpec().vocab,
                                                                  .hidden = 32,
                                                                  .layers = 1,
                                                                  .heads = 2,
                                                                  .kv_heads = 1,
                                                                  .ffn = 64,
                                                                  .context = 96,
                                                                  .dtype = DType::kQ8_0,
                                                                  .seed = 9}));
  std::vector<DraftingModel> sources = {
      {.name = "another model", .model = model, .draft_model = smaller},
      {.name = "the model itself", .model = model, .draft_model = model},
      {.name = "the first layer", .model = model, .layers = 1},
      {.name = "masks",
       .model = model,
       .draft_model = LoadFolder(ChangedCheckpoint("pard"), TinyTokenizerJson(WorkSpec().vocab)),
       .at_once = true}};
  const auto target = LoadFolder(ChangedCheckpoint("eagle/target"), EagleTokenizer());
  for (const char* name : {"eagle1", "eagle3"}) {
    ModelFolder folder;
    ChangedCheckpoint(std::string("eagle/") + name).WriteTo(folder);
    LoadOptions options;
    options.threads = 1;
    auto head = DraftHead::Load(folder.path(), target, options);
    TIDEMILL_CHECK(head.ok());
    sources.push_back({.name = name, .model = target, .draft_head = std::move(head).value(), .vocab = kEagleVocab});
  }
  return sources;
}

inline const std::vector<DraftingModel>& DraftingModels() {
  static const std::vector<DraftingModel> sources = AllDraftingModels();
  return sources;
}

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_DRAFTING_MODELS_H_
