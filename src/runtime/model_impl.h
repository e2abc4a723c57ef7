// The public Model's implementation: the file's mapping, its parsed header, its text part and its weights.
#ifndef TIDEMILL_RUNTIME_MODEL_IMPL_H_
#define TIDEMILL_RUNTIME_MODEL_IMPL_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "formats/model_files.h"
#include "models/language_model.h"
#include "models/weight_loader.h"
#include "tidemill/model.h"

namespace tidemill {

Result<ModelInfo> DescribeModel(const ModelFiles& files);
Result<ModelText> ReadModelText(const ModelFiles& files);

// Name and source.
using NamedTemplates = std::vector<std::pair<std::string, std::string>>;
Result<NamedTemplates> ReadTemplates(const ModelFiles& files);
// The one named default; none where there are none. kUnsupported where there are others only.
Result<std::optional<std::string>> DefaultTemplate(const NamedTemplates& templates);

// What a model's files recommend.
struct RecommendedGeneration {
  GenerationOptions options = {};
  bool says_how_to_choose = false;  // tokens: drawn, or the likeliest
};
Result<RecommendedGeneration> ReadRecommendation(const ModelFiles& files);

// Validate's ranges, for numbers that a file recommends: an error of Validate would name a flag that nobody gave.
struct NumberRange {
  double low, high;
  const char* expected;
};
inline constexpr NumberRange kTemperatures{0, 100, "a number from 0 to 100"};
inline constexpr NumberRange kTopPs{std::numeric_limits<float>::min(), 1,
                                    "a number above 0, at most 1"};  // above 0 as a float
inline constexpr NumberRange kMinPs{0, 1, "a number from 0 to 1"};
inline constexpr int32_t kTransformersTopK = 50;  // where a generation_config.json samples and says no top_k
inline constexpr NumberRange kRepetitionPenalties{0.01, 100, "a number from 0.01 to 100"};

// `threads` is borrowed.
inline LoadSettings LoadSettingsOf(const LoadOptions& options, ThreadPool& threads) {
  LoadSettings settings;
  settings.f32 = options.f32;
  settings.mapped = options.weights == WeightStorage::kMapped;
  settings.threads = &threads;
  settings.progress = options.progress;
  return settings;
}

// Of a folder in Hugging Face's layout: folder_text.cc.
Result<Tokenizer> ReadFolderTokenizer(const ModelFiles& files);
// What tokenizer_config.json says of the template's special tokens, in place of what the ids say.
Result<void> ReadFolderSpecialTokens(const ModelFiles& files, ModelText* text);
// folder_generation.cc. As transformers' generate does, but that a file which has sampling keys and no do_sample means to sample, as vLLM reads it.
Result<RecommendedGeneration> ReadFolderRecommendation(const ModelFiles& files);

struct Model::Impl {
  ModelFiles files;
  ModelInfo info;
  ModelText text;
  RecommendedGeneration recommended;
  std::unique_ptr<LanguageModel> language_model;
  bool f32 = false;
  std::optional<RopeOverride> rope_scaling = {};
  std::vector<UnreadSettings> unread = {};
};

struct DraftHead::Impl {
  std::optional<ModelFiles> files;  // none: the target's
  std::shared_ptr<const Model> target;
  std::unique_ptr<LanguageModel> head;  // has weights of both
  std::vector<UnreadSettings> unread = {};
};

}  // namespace tidemill

#endif  // TIDEMILL_RUNTIME_MODEL_IMPL_H_
