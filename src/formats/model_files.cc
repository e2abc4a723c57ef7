#include "formats/model_files.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <new>
#include <numeric>
#include <system_error>
#include <utility>

#include "base/printable_name.h"
#include "formats/file_signature.h"
#include "formats/gguf_split.h"
#include "formats/safetensors_index.h"

namespace tidemill {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kLora =
    "expected a model, found a LoRA adapter; merge it into its base model and give the result";
constexpr const char* kIndexFile = "model.safetensors.index.json";

std::string_view TextOf(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// What a folder holds, as far as the choice of a reader needs it.
struct FolderListing {
  bool has_single = false, has_index = false;
  std::vector<std::string> ggufs;  // sorted
  std::string adapter;             // a file of a LoRA adapter's weights
  std::string foreign;             // a file of weights in a format that is not read
};

Result<FolderListing> ListFolder(const std::string& folder) {
  FolderListing listing;
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const auto ends = [&](std::string_view end) { return name.ends_with(end); };
    if (name == kSingleFile) listing.has_single = true;
    if (name == kIndexFile) listing.has_index = true;
    if (ends(".gguf")) listing.ggufs.push_back(name);
    if (name.starts_with("adapter_model.")) listing.adapter = name;
    const bool foreign = ends(".bin") || ends(".bin.index.json") || ends(".pt") || ends(".pth") || ends(".h5") ||
                         ends(".ckpt") || ends(".msgpack") || ends(".onnx");
    if (foreign && (listing.foreign.empty() || name < listing.foreign)) listing.foreign = name;
  }
  if (error) return Error(ErrorCode::kIoError, "open " + folder + ": " + error.message());
  std::sort(listing.ggufs.begin(), listing.ggufs.end());
  return listing;
}

// The first of the .gguf files, when they are one file or the parts of one set.
Result<std::string> ChooseGguf(const std::string& folder, const std::vector<std::string>& names) {
  const auto set_of = [](const std::string& name) {
    const auto part = ParsePartName(name, ".gguf");
    constexpr size_t kNumberBytes = 5, kCountBytes = 14;  // "00001" and what is behind it: "-of-00003.gguf"
    return part ? name.substr(0, name.size() - kNumberBytes - kCountBytes) + name.substr(name.size() - kCountBytes)
                : name;
  };
  for (const std::string& name : names) {
    if (set_of(name) == set_of(names[0])) continue;
    return Error(ErrorCode::kUnsupported, "open " + folder + ": expected one model, found " + QuoteName(names[0]) +
                                              " and " + QuoteName(name) + "; name the file");
  }
  return names[0];
}

}  // namespace

class ModelOpener {
 public:
  static Result<ModelFiles> Open(const std::string& path, bool needs_weights) {
    ModelOpener opener;
    opener.needs_weights_ = needs_weights;
    opener.files_.path_ = path;
    std::error_code error;
    const bool is_folder =
        fs::is_directory(path, error);  // anything else, and what is not there, is for MappedFile to say
    TIDEMILL_TRY_VOID(is_folder ? opener.OpenFolder(path) : opener.OpenFile(path));
    return std::move(opener.files_);
  }

  // kOutOfMemory in place of std::bad_alloc.
  static Result<ModelFiles> OpenOrFail(const std::string& path, bool needs_weights);

 private:
  Result<void> OpenFolder(const std::string& folder) {
    folder_ = folder;
    TIDEMILL_TRY(listing, ListFolder(folder));
    // An index beside the single file is not read, as transformers does not.
    const bool has_folder = listing.has_single || listing.has_index;
    if (has_folder && !listing.ggufs.empty()) {
      const std::string first = listing.has_single ? kSingleFile : kIndexFile, second = listing.ggufs[0];
      return Error(ErrorCode::kUnsupported, "open " + folder + ": expected one model, found " + QuoteName(first) +
                                                " and " + QuoteName(second) + "; name the file, or move one away");
    }
    if (listing.has_single) return OpenFile(folder + "/" + kSingleFile);
    if (listing.has_index) return OpenShards();
    if (!listing.ggufs.empty()) {
      TIDEMILL_TRY(name, ChooseGguf(folder, listing.ggufs));
      return OpenFile(folder + "/" + name);
    }
    std::error_code error;
    const auto has = [&](const char* name) { return fs::is_regular_file(folder + "/" + name, error); };
    if (!needs_weights_ && (has("tokenizer.json") || has("tokenizer.model") || has("spiece.model") ||
                            (has("vocab.json") && has("merges.txt"))))
      return OpenAllSettings();
    if (!listing.adapter.empty()) {
      return Error(ErrorCode::kUnsupported, "open " + folder + ": " + QuoteName(listing.adapter) + ": " + kLora);
    }
    const std::string expected = std::string(kSingleFile) + ", " + kIndexFile + " or a .gguf file";
    if (listing.foreign.empty()) {
      return Error(ErrorCode::kNotFound, "open " + folder + ": expected " + expected + ", found none");
    }
    return Error(ErrorCode::kUnsupported, "open " + folder + ": expected " + expected + ", found " +
                                              QuoteName(listing.foreign) + "; convert the model to safetensors");
  }

  // A file of weights, which its first bytes say the format of.
  Result<void> OpenFile(const std::string& path) {
    TIDEMILL_TRY(file, MappedFile::Open(path));
    const fs::path split(path);
    folder_ = split.parent_path().string();
    if (folder_.empty()) folder_ = ".";
    const std::string name = split.filename().string();
    const FileSignature signature = RecognizeFile(file.bytes());
    const bool safetensors = signature == FileSignature::kSafetensors ||
                             (signature != FileSignature::kGguf && name.ends_with(".safetensors"));
    if (!safetensors) return OpenGguf(std::move(file), name);
    if (const auto part = ParsePartName(name, ".safetensors"); part && part->count > 1) {
      return Error(ErrorCode::kUnsupported, "open " + path + ": expected a whole model, found part " +
                                                std::to_string(part->number) + " of " + std::to_string(part->count) +
                                                "; name the folder instead");
    }
    TIDEMILL_TRY(parsed, SafetensorsFile::Parse(file.bytes()));
    files_.weights_.push_back(std::move(file));
    files_.tensors_.assign(parsed.tensors().begin(), parsed.tensors().end());
    files_.safetensors_.push_back(std::move(parsed));
    return FinishSafetensors();
  }

  Result<void> OpenGguf(MappedFile file, const std::string& name) {
    TIDEMILL_TRY(parsed, GgufFile::Parse(file.bytes()));
    TIDEMILL_TRY(part, ReadGgufPart(parsed));
    if (!part) {
      files_.weights_.push_back(std::move(file));
      files_.gguf_ = std::move(parsed);
      return Finish();
    }
    TIDEMILL_TRY(names, GgufPartNames(name, *part));
    std::vector<GgufFile> parts;
    for (size_t i = 0; i < names.size(); ++i) {
      if (i + 1 == part->number) {
        files_.weights_.push_back(std::move(file));
        parts.push_back(std::move(parsed));
        continue;
      }
      const std::string context = "GGUF part " + std::to_string(i + 1) + " of " + std::to_string(names.size());
      auto opened = MappedFile::Open(folder_ + "/" + names[i]);
      if (!opened.ok()) return std::move(opened).error().WithContext(context);
      auto read = GgufFile::Parse(opened->bytes());
      if (!read.ok()) return std::move(read).error().WithContext(context);
      files_.weights_.push_back(std::move(opened).value());
      parts.push_back(std::move(read).value());
    }
    TIDEMILL_TRY(joined, JoinGgufParts(std::move(parts)));
    files_.gguf_ = std::move(joined);
    return Finish();
  }

  Result<void> OpenShards() {
    TIDEMILL_TRY(index_file, MappedFile::Open(folder_ + "/" + kIndexFile));
    TIDEMILL_TRY_VOID(CheckIsDownloaded(kIndexFile, index_file.bytes()));
    TIDEMILL_TRY(index, SafetensorsIndex::Parse(TextOf(index_file.bytes())));
    for (const std::string& shard : index.shards()) {
      auto opened = MappedFile::Open(folder_ + "/" + shard);
      if (!opened.ok()) return std::move(opened).error().WithContext("shard " + QuoteName(shard));
      auto read = SafetensorsFile::Parse(opened->bytes());
      if (!read.ok()) return std::move(read).error().WithContext("shard " + QuoteName(shard));
      files_.weights_.push_back(std::move(opened).value());
      files_.safetensors_.push_back(std::move(read).value());
    }
    TIDEMILL_TRY_VOID(index.CheckShards(files_.safetensors_));
    for (const SafetensorsFile& shard : files_.safetensors_) {
      for (const FileTensor& tensor : shard.tensors()) {
        if (index.Find(tensor.name) != nullptr) files_.tensors_.push_back(tensor);
      }
    }
    return FinishSafetensors();
  }

  Result<void> FinishSafetensors() {
    const std::vector<FileTensor>& tensors = files_.tensors_;
    std::vector<uint32_t>& order = files_.tensors_by_name_;
    order.resize(tensors.size());
    std::iota(order.begin(), order.end(), 0U);
    std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return tensors[a].name < tensors[b].name; });
    for (const FileTensor& tensor : tensors) {
      if (!tensor.name.ends_with(".lora_A.weight")) continue;
      return Error(ErrorCode::kUnsupported, "tensor " + QuoteName(tensor.name) + ": " + kLora);
    }
    TIDEMILL_TRY_VOID(OpenAllSettings());
    if (!files_.config_) {
      return Error(ErrorCode::kNotFound, "open " + folder_ + ": expected config.json beside the weights, found none");
    }
    return Finish();
  }

  Result<void> OpenAllSettings() {
    TIDEMILL_TRY_VOID(OpenSettings("config.json", &files_.config_));
    TIDEMILL_TRY_VOID(OpenSettings("generation_config.json", &files_.generation_config_));
    TIDEMILL_TRY_VOID(OpenSettings("tokenizer_config.json", &files_.tokenizer_config_));
    TIDEMILL_TRY_VOID(OpenText("tokenizer.json", kMaxTokenizerJsonBytes, &files_.tokenizer_json_));
    if (!files_.tokenizer_json_) TIDEMILL_TRY_VOID(OpenSlowTokenizer());
    TIDEMILL_TRY_VOID(OpenText("chat_template.jinja", kMaxSettingsBytes, &files_.chat_template_));
    return OpenNamedTemplates();
  }

  Result<void> OpenNamedTemplates() {
    constexpr std::string_view kFolder = "chat_templates", kEnd = ".jinja";
    constexpr size_t kMaxTemplates = 100;
    std::vector<std::string> names;
    std::error_code error;
    for (std::filesystem::directory_iterator entry(std::filesystem::path(folder_) / kFolder, error), end;
         !error && entry != end; entry.increment(error)) {
      const std::string name = entry->path().filename().string();
      if (name.size() <= kEnd.size() || !name.ends_with(kEnd)) continue;
      names.push_back(name.substr(0, name.size() - kEnd.size()));
      if (names.size() > kMaxTemplates)
        return Error(ErrorCode::kUnsupported, std::string(kFolder) + ": expected at most " +
                                                  std::to_string(kMaxTemplates) + " templates, found more");
    }
    std::sort(names.begin(), names.end());
    for (std::string& name : names) {
      std::optional<MappedFile> file;
      TIDEMILL_TRY_VOID(OpenText(std::string(kFolder) + "/" + name + std::string(kEnd), kMaxSettingsBytes, &file));
      if (file) files_.named_chat_templates_.emplace_back(std::move(name), std::move(*file));
    }
    return {};
  }

  Result<void> OpenSlowTokenizer() {
    for (const char* const name : {"tokenizer.model", "spiece.model"}) {
      if (!files_.sentencepiece_) TIDEMILL_TRY_VOID(OpenText(name, kMaxTokenizerJsonBytes, &files_.sentencepiece_));
    }
    TIDEMILL_TRY_VOID(OpenText("vocab.json", kMaxTokenizerJsonBytes, &files_.vocab_json_));
    TIDEMILL_TRY_VOID(OpenText("merges.txt", kMaxTokenizerJsonBytes, &files_.merges_txt_));
    return OpenSettings("added_tokens.json", &files_.added_tokens_);
  }

  Result<void> OpenSettings(const std::string& name, std::optional<JsonDocument>* document) {
    std::optional<MappedFile> file;
    TIDEMILL_TRY_VOID(OpenText(name, kMaxSettingsBytes, &file));
    if (!file) return {};
    TIDEMILL_TRY(parsed, JsonDocument::Parse(name, TextOf(file->bytes()), {.max_bytes = kMaxSettingsBytes}));
    *document = std::move(parsed);
    return {};
  }

  // Leaves `file` empty when there is none of that name.
  Result<void> OpenText(const std::string& name, size_t max_bytes, std::optional<MappedFile>* file) {
    auto opened = MappedFile::Open(folder_ + "/" + name);
    if (!opened.ok() && opened.error().code() == ErrorCode::kNotFound) return {};
    if (!opened.ok()) return std::move(opened).error();
    if (const size_t bytes = opened->bytes().size(); bytes > max_bytes) {
      return Error(ErrorCode::kUnsupported,
                   name + ": expected at most " + std::to_string(max_bytes) + " bytes, found " + std::to_string(bytes));
    }
    TIDEMILL_TRY_VOID(CheckIsDownloaded(name, opened->bytes()));
    *file = std::move(opened).value();
    return {};
  }

  Result<void> Finish() {
    std::sort(files_.weights_.begin(), files_.weights_.end(), [](const MappedFile& a, const MappedFile& b) {
      return std::less<>()(a.bytes().data(), b.bytes().data());
    });
    for (const MappedFile& file : files_.weights_) files_.file_bytes_ += file.bytes().size();
    return {};
  }

  ModelFiles files_;
  std::string folder_;
  bool needs_weights_ = true;
};

Result<ModelFiles> ModelFiles::Open(const std::string& path) { return ModelOpener::OpenOrFail(path, true); }
Result<ModelFiles> ModelFiles::OpenText(const std::string& path) { return ModelOpener::OpenOrFail(path, false); }

Result<ModelFiles> ModelOpener::OpenOrFail(const std::string& path, bool needs_weights) {
  try {
    return Open(path, needs_weights);
  } catch (const std::exception&) {  // std::bad_alloc, and what std::filesystem makes of it
    return Error(ErrorCode::kOutOfMemory, "open " + path + ": no memory for the list of its tensors");
  }
}

const FileTensor* ModelFiles::FindTensor(std::string_view name) const {
  if (gguf_) return gguf_->FindTensor(name);
  const auto less = [&](uint32_t i, std::string_view wanted) { return tensors_[i].name < wanted; };
  const auto found = std::lower_bound(tensors_by_name_.begin(), tensors_by_name_.end(), name, less);
  return found != tensors_by_name_.end() && tensors_[*found].name == name ? &tensors_[*found] : nullptr;
}

std::optional<JsonValue> ModelFiles::ConfigWith(std::string_view key) const {
  if (!config_) return std::nullopt;
  if (config_->Has(key)) return *config_;
  const std::optional<JsonValue> inner = config_->Find("text_config");
  return inner && inner->Has(key) ? inner : std::nullopt;
}

void ModelFiles::Release(std::span<const std::byte> bytes) const {
  const auto behind = std::upper_bound(
      weights_.begin(), weights_.end(), bytes.data(),
      [](const std::byte* at, const MappedFile& file) { return std::less<>()(at, file.bytes().data()); });
  if (behind == weights_.begin()) return;
  const std::span<const std::byte> file = std::prev(behind)->bytes();
  if (std::less<>()(file.data() + file.size(), bytes.data() + bytes.size())) return;
  std::prev(behind)->Release(bytes);
}

void ModelFiles::ReleaseAll() const {
  for (const MappedFile& file : weights_) file.Release(file.bytes());
}

std::vector<std::pair<std::string_view, std::string_view>> ModelFiles::named_chat_templates() const {
  std::vector<std::pair<std::string_view, std::string_view>> templates;
  for (const auto& [name, file] : named_chat_templates_) templates.emplace_back(name, TextOf(file.bytes()));
  return templates;
}

std::optional<std::string_view> ModelFiles::Text(const std::optional<MappedFile>& file) {
  if (!file) return std::nullopt;
  return TextOf(file->bytes());
}

}  // namespace tidemill
