// What stands behind the public Model: the file's mapping, its parsed header, its text part and its weights.
#ifndef TIDEMILL_RUNTIME_MODEL_IMPL_H_
#define TIDEMILL_RUNTIME_MODEL_IMPL_H_

#include <memory>
#include <optional>
#include <string>

#include "base/mapped_file.h"
#include "formats/gguf.h"
#include "models/language_model.h"
#include "tidemill/model.h"

namespace tidemill {

// A model file, opened and its header validated. The GgufFile borrows the mapping, which does not move with the object.
struct OpenModelFile {
  MappedFile file;
  GgufFile gguf;
};
Result<OpenModelFile> OpenModel(const std::string& path);

Result<ModelInfo> DescribeModel(const OpenModelFile& opened);
Result<ModelText> ReadModelText(const GgufFile& gguf);
Result<GenerationOptions> ReadDefaultGeneration(const GgufFile& gguf);

struct Model::Impl {
  OpenModelFile opened;
  ModelInfo info;
  ModelText text;
  GenerationOptions default_generation;
  std::unique_ptr<LanguageModel> language_model;
  bool f32 = false;
};

}  // namespace tidemill

#endif  // TIDEMILL_RUNTIME_MODEL_IMPL_H_
