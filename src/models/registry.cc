#include "models/registry.h"

#include <algorithm>
#include <cstring>

#include "state/sequence_state.h"

namespace tidemill {
namespace {

struct Family {
  const char* architecture;  // general.architecture of a GGUF file
  FamilyLoader load;
};

constexpr Family kFamilies[] = {
    {"llama", LoadLlama},
};

const Family* FindFamily(const std::string& architecture) {
  const auto* found = std::find_if(std::begin(kFamilies), std::end(kFamilies),
                                   [&](const Family& family) { return architecture == family.architecture; });
  return found == std::end(kFamilies) ? nullptr : found;
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
uint64_t HashModel(const GgufFile& gguf) {
  constexpr size_t kSampleBytes = 256;
  uint64_t hash = 0;
  for (const FileTensor& tensor : gguf.tensors()) {
    hash = HashBytes(hash, std::as_bytes(std::span(tensor.name)));
    hash = ChainTokenHash(hash, tensor.rows);
    hash = ChainTokenHash(hash, tensor.cols);
    hash = ChainTokenHash(hash, static_cast<uint64_t>(tensor.dtype));
    hash = HashBytes(hash, tensor.bytes.first(std::min(kSampleBytes, tensor.bytes.size())));
  }
  return hash;
}

}  // namespace

Result<void> CheckArchitecture(const std::string& architecture) {
  if (FindFamily(architecture) != nullptr) return {};
  std::string known;
  for (const Family& family : kFamilies) known += (known.empty() ? "" : ", ") + std::string(family.architecture);
  return Error(ErrorCode::kUnsupported,
               "metadata: \"general.architecture\": '" + architecture + "' is not a family this build has: " + known);
}

Result<std::unique_ptr<LanguageModel>> LoadLanguageModel(const GgufFile& gguf, const MappedFile& file,
                                                         const LoadSettings& settings) {
  TIDEMILL_TRY(architecture, gguf.GetString("general.architecture"));
  TIDEMILL_TRY_VOID(CheckArchitecture(std::string(architecture)));
  TIDEMILL_TRY(model_settings, ReadGgufSettings(gguf));
  // Each sample maps what the system likes to map around it, up to megabytes: given back before the weights take memory.
  const uint64_t id = HashModel(gguf);
  file.Release(file.bytes());
  WeightLoader weights(gguf, file, settings);
  TIDEMILL_TRY(model, FindFamily(model_settings.architecture)->load(model_settings, weights));
  model->id = id;
  return model;
}

}  // namespace tidemill
