// The model families: from a file's architecture name to the functions that read its settings and wire its layers.
#ifndef TIDEMILL_MODELS_REGISTRY_H_
#define TIDEMILL_MODELS_REGISTRY_H_

#include <memory>
#include <optional>

#include "formats/model_files.h"
#include "formats/model_settings.h"
#include "models/language_model.h"
#include "models/weight_loader.h"
#include "tidemill/policies.h"
#include "tidemill/result.h"

namespace tidemill {

// The settings of the model in `files`. kUnsupported names the architecture and the known ones, or says that the files are a draft head;
// errors of settings name the key.
Result<ModelSettings> ReadModelSettings(const ModelFiles& files);

// Loads the model, with the scaling of `rope`, if any, in place of the file's own (OverrideRope). Mapped weights borrow `files`. Errors of
// weights name the tensor.
Result<std::unique_ptr<LanguageModel>> LoadLanguageModel(const ModelFiles& files, const LoadSettings& settings,
                                                         const std::optional<RopeOverride>& rope = std::nullopt);

// Whether the files are a draft head of EAGLE or EAGLE-3 rather than a model; their config.json may be the same.
bool IsDraftHead(const ModelFiles& files);

// Loads a draft head for `target`, which outlives it. Mapped weights borrow `files`. kUnsupported also if the target's family has no such
// heads; errors as of LoadLanguageModel.
Result<std::unique_ptr<LanguageModel>> LoadDraftHead(const ModelFiles& files, const LanguageModel& target,
                                                     const LoadSettings& settings);

// Loads the draft head that stands in the files of `target`, its model, which outlives it; positions are the target's, a caller's scaling
// included. Mapped weights borrow `files`. kUnsupported: the family has none; kNotFound: the files have none; kCorruptFile: a part of it,
// by what is missing.
Result<std::unique_ptr<LanguageModel>> LoadOwnDraftHead(const ModelFiles& files, const LanguageModel& target,
                                                        const LoadSettings& settings);

}  // namespace tidemill

#endif  // TIDEMILL_MODELS_REGISTRY_H_
