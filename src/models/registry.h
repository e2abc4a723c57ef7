// The model families: from the architecture that a file names to the function that wires its layers.
#ifndef TIDEMILL_MODELS_REGISTRY_H_
#define TIDEMILL_MODELS_REGISTRY_H_

#include <memory>
#include <string>

#include "base/mapped_file.h"
#include "formats/gguf.h"
#include "models/language_model.h"
#include "models/weight_loader.h"
#include "tidemill/result.h"

namespace tidemill {

// Loads the model in `gguf`, the contents of `file`. Mapped weights borrow both. kUnsupported names the architecture and lists the
// known ones; errors of weights name the tensor.
Result<std::unique_ptr<LanguageModel>> LoadLanguageModel(const GgufFile& gguf, const MappedFile& file,
                                                         const LoadSettings& settings);

// kUnsupported unless a family of that name exists.
Result<void> CheckArchitecture(const std::string& architecture);

using FamilyLoader = Result<std::unique_ptr<LanguageModel>> (*)(const ModelSettings& settings, WeightLoader& weights);

Result<std::unique_ptr<LanguageModel>> LoadLlama(const ModelSettings& settings, WeightLoader& weights);

}  // namespace tidemill

#endif  // TIDEMILL_MODELS_REGISTRY_H_
