#include "models/registry.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "formats/printable_name.h"
#include "models/families/families.h"
#include "state/sequence_state.h"

namespace tidemill {
namespace {

struct Family {
  std::string_view model_type;    // in config.json; empty: no checkpoint has it
  std::string_view architecture;  // general.architecture of a GGUF file; empty: no GGUF file has it
  SettingsOf* read_settings;
  ModelOf* load;
};

constexpr Family kFamilies[] = {
    {"llama", "llama", ReadLlamaSettings, LoadLlama},
    {"mistral", "", ReadMistralSettings, LoadMistral},
    {"mixtral", "", ReadMixtralSettings, LoadMixtral},
    {"qwen2", "qwen2", ReadQwenSettings, LoadQwen2},
    {"qwen3", "qwen3", ReadQwenSettings, LoadQwen3},
    {"qwen3_moe", "qwen3moe", ReadQwenMoeSettings, LoadQwen3},
    {"gemma3_text", "gemma3", ReadGemma3Settings, LoadGemma3},
    {"gpt2", "gpt2", ReadGpt2Settings, LoadGpt2},
    {"gpt_neox", "gptneox", ReadGptNeoxSettings, LoadGptNeox},
    {"opt", "", ReadOptSettings, LoadOpt},
};

std::string_view NameOf(const Family& family, bool gguf) { return gguf ? family.architecture : family.model_type; }

// The architecture that the files name.
Result<std::string> ArchitectureOf(const ModelFiles& files) {
  const auto stated = files.gguf() != nullptr ? files.gguf()->GetString("general.architecture")
                                              : files.config()->GetString("model_type");
  if (!stated.ok()) return stated.error();
  return std::string(*stated);
}

Result<const Family*> FindFamily(const ModelFiles& files, const std::string& name) {
  const bool gguf = files.gguf() != nullptr;
  std::string known;
  for (const Family& family : kFamilies) {
    if (NameOf(family, gguf).empty()) continue;
    if (NameOf(family, gguf) == name) return &family;
    known += (known.empty() ? "" : ", ") + std::string(NameOf(family, gguf));
  }
  return Error(ErrorCode::kUnsupported,
               std::string(gguf ? "metadata: \"general.architecture\"" : "config.json: \"model_type\"") + ": '" + name +
                   "' is not a family this build has: " + known);
}

// A checkpoint of quantised weights holds numbers that are not the weights.
Result<void> CheckNotQuantised(const ModelFiles& files) {
  if (files.gguf() != nullptr || !files.config()->Has("quantization_config")) return {};
  return Error(ErrorCode::kUnsupported,
               "config.json: \"quantization_config\": quantised checkpoints are not supported; use the original one or "
               "a GGUF file");
}

struct KnownModel {
  const Family* family = nullptr;
  ModelSettings settings;
};
Result<KnownModel> Recognise(const ModelFiles& files) {
  TIDEMILL_TRY(name, ArchitectureOf(files));
  TIDEMILL_TRY(family, FindFamily(files, name));
  TIDEMILL_TRY_VOID(CheckNotQuantised(files));
  TIDEMILL_TRY(settings, family->read_settings(SettingsReader(files, name)));
  return KnownModel{family, std::move(settings)};
}

uint64_t HashBytes(uint64_t hash, std::span<const std::byte> bytes) {
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + i, 8);
    hash = ChainTokenHash(hash, word);
  }
  for (; i < bytes.size(); ++i) hash = ChainTokenHash(hash, std::to_integer<uint64_t>(bytes[i]));
  return hash;
}

// All tensors' names, shapes and types, and the first 256 bytes of each: cheap, and different for different trainings.
uint64_t HashModel(const ModelFiles& files) {
  constexpr size_t kSampleBytes = 256;
  uint64_t hash = 0;
  for (const FileTensor& tensor : files.tensors()) {
    hash = HashBytes(hash, std::as_bytes(std::span(tensor.name)));
    hash = ChainTokenHash(hash, tensor.rows);
    hash = ChainTokenHash(hash, tensor.cols);
    hash = ChainTokenHash(hash, static_cast<uint64_t>(tensor.dtype));
    hash = HashBytes(hash, tensor.bytes.first(std::min(kSampleBytes, tensor.bytes.size())));
  }
  return hash;
}

}  // namespace

Result<ModelSettings> ReadModelSettings(const ModelFiles& files) {
  TIDEMILL_TRY(known, Recognise(files));
  return std::move(known.settings);
}

Result<std::unique_ptr<LanguageModel>> LoadLanguageModel(const ModelFiles& files, const LoadSettings& settings) {
  TIDEMILL_TRY(known, Recognise(files));
  // Each sample maps what the system likes to map around it, up to megabytes: given back before the weights take memory.
  const uint64_t id = HashModel(files);
  files.ReleaseAll();
  WeightLoader weights(files, settings);
  TIDEMILL_TRY(model, known.family->load(known.settings, weights));
  TIDEMILL_TRY_VOID(weights.CheckAllRead());
  model->id = id;
  return model;
}

}  // namespace tidemill
