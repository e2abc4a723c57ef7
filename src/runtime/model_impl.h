// What stands behind the public Model: the file's mapping, its parsed header, its text part and its weights.
#ifndef TIDEMILL_RUNTIME_MODEL_IMPL_H_
#define TIDEMILL_RUNTIME_MODEL_IMPL_H_

#include <memory>
#include <optional>
#include <string>

#include "formats/model_files.h"
#include "models/language_model.h"
#include "tidemill/model.h"

namespace tidemill {

Result<ModelInfo> DescribeModel(const ModelFiles& files);
Result<ModelText> ReadModelText(const ModelFiles& files);
Result<GenerationOptions> ReadDefaultGeneration(const ModelFiles& files);
// kCorruptFile that names `where` if the options are out of range: the caller chose none of them, the file is wrong.
Result<void> CheckDefault(const GenerationOptions& options, const std::string& where);

// Of a folder in Hugging Face's layout: folder_text.cc.
Result<Tokenizer> ReadFolderTokenizer(const ModelFiles& files);
Result<std::optional<std::string>> ReadFolderTemplate(const ModelFiles& files);  // none: it has none
Result<GenerationOptions> ReadFolderGeneration(const ModelFiles& files);

struct Model::Impl {
  ModelFiles files;
  ModelInfo info;
  ModelText text;
  GenerationOptions default_generation;
  std::unique_ptr<LanguageModel> language_model;
  bool f32 = false;
};

}  // namespace tidemill

#endif  // TIDEMILL_RUNTIME_MODEL_IMPL_H_
