// Each family's functions for the registry: reading its settings and loading its model.
#ifndef TIDEMILL_MODELS_FAMILIES_FAMILIES_H_
#define TIDEMILL_MODELS_FAMILIES_FAMILIES_H_

#include <memory>
#include <string>

#include "models/language_model.h"
#include "models/settings_reader.h"
#include "models/weight_loader.h"
#include "tidemill/result.h"

namespace tidemill {

using SettingsOf = Result<ModelSettings>(const SettingsReader& reader);
using ModelOf = Result<std::unique_ptr<LanguageModel>>(const ModelSettings& settings, WeightLoader& weights);

SettingsOf ReadLlamaSettings, ReadMistralSettings, ReadMixtralSettings, ReadQwenSettings, ReadQwenMoeSettings,
    ReadQwen3NextSettings, ReadQwen35Settings, ReadQwen35MoeSettings, ReadGemma3Settings, ReadGpt2Settings,
    ReadGptNeoxSettings, ReadOptSettings;
ModelOf LoadLlama, LoadMistral, LoadMixtral, LoadQwen2, LoadQwen3, LoadQwen3Next, LoadQwen35, LoadGemma3, LoadGpt2,
    LoadGptNeox, LoadOpt;

// A recurrent-memory transformer around a model of these settings: reads config.json's block "armt" or "rmt"; gives the loaded model its memory.
// ArmtName: how the files spell a tensor's plain name.
Result<void> ReadArmtSettings(const SettingsReader& reader, ModelSettings& settings);
Result<void> ReadRmtSettings(const SettingsReader& reader, ModelSettings& settings);
Result<void> AddArmtMemory(WeightLoader& weights, LanguageModel& model);
std::string ArmtName(const ModelFiles& files, const std::string& plain);

// A draft head for a target of its vocabulary, which may provide the embedding and the head.
using DraftHeadOf = Result<std::unique_ptr<LanguageModel>>(const ModelSettings& settings, const SettingsReader& reader,
                                                           const LanguageModel& target, WeightLoader& weights);

DraftHeadOf LoadEagle, LoadEagle3;

// The draft head that stands in the files of its target. kNotFound: there is none.
using OwnHeadOf = Result<std::unique_ptr<LanguageModel>>(const LanguageModel& target, WeightLoader& weights);

OwnHeadOf LoadQwenMtp;

}  // namespace tidemill

#endif  // TIDEMILL_MODELS_FAMILIES_FAMILIES_H_
