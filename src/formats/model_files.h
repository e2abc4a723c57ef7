// A model on disk, whatever its form, opened as a whole:
//   x.gguf                        one file, or any part of a set x-00001-of-00003.gguf, ...
//   x.safetensors                 with config.json and its other settings beside it
//   a folder                      with config.json and either model.safetensors or model.safetensors.index.json and its shards;
//                                 or with one .gguf file, or one set of them, and nothing of the others
//
// Every file is opened once, by name in one folder, and everything is checked that can be without the meaning of a tensor: headers,
// ranges, shards, the syntax of settings. The bytes of weights stay where they are mapped.
#ifndef TIDEMILL_FORMATS_MODEL_FILES_H_
#define TIDEMILL_FORMATS_MODEL_FILES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_document.h"
#include "base/mapped_file.h"
#include "formats/file_tensor.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "tidemill/result.h"

namespace tidemill {

inline constexpr size_t kMaxSettingsBytes = 16 << 20;  // config.json and the like
inline constexpr size_t kMaxTokenizerJsonBytes = 64 << 20;

// Tensors, settings and views live as long as this does, also when it moves.
class ModelFiles {
 public:
  enum class Kind { kGguf, kSafetensors };

  // kNotFound: no such path, or a part of the model that is not there. kCorruptFile, kUnsupported, kOutOfMemory as the readers have
  // them; kUnsupported also for weights in another format. Messages name the file inside the model, the caller adds `path`.
  static Result<ModelFiles> Open(const std::string& path);
  // The same for whoever reads no weights: also a folder that has a tokenizer and no weights. Without a config.json config() is null.
  static Result<ModelFiles> OpenText(const std::string& path);

  Kind kind() const { return gguf_ ? Kind::kGguf : Kind::kSafetensors; }
  const std::string& path() const { return path_; }    // as given to Open
  uint64_t file_bytes() const { return file_bytes_; }  // of all files of weights
  size_t num_weight_files() const { return weights_.size(); }

  std::span<const FileTensor> tensors() const { return gguf_ ? gguf_->tensors() : tensors_; }
  const FileTensor* FindTensor(std::string_view name) const;  // null when there is none; of any type

  // Gives back the physical pages that lie wholly inside `bytes`, a part of a tensor or of a file.
  // Reading them again reloads them. Safe from several threads.
  void Release(std::span<const std::byte> bytes) const;
  void ReleaseAll() const;

  const GgufFile* gguf() const {
    return gguf_ ? &*gguf_ : nullptr;
  }  // of a set: the first part's metadata, all parts' tensors

  // Of safetensors; null where there is none. With weights config() always is one then.
  const JsonDocument* config() const { return Get(config_); }
  // The part of config.json that has `key`: the whole, or text_config, where a model that also reads images has its language model's.
  std::optional<JsonValue> ConfigWith(std::string_view key) const;
  const JsonDocument* generation_config() const { return Get(generation_config_); }
  const JsonDocument* tokenizer_config() const { return Get(tokenizer_config_); }
  std::optional<std::string_view> tokenizer_json() const { return Text(tokenizer_json_); }
  // What a tokenizer may be saved as instead of tokenizer.json.
  std::optional<std::string_view> sentencepiece() const {
    return Text(sentencepiece_);
  }  // tokenizer.model, spiece.model
  std::optional<std::string_view> vocab_json() const { return Text(vocab_json_); }
  std::optional<std::string_view> merges_txt() const { return Text(merges_txt_); }
  const JsonDocument* added_tokens() const { return Get(added_tokens_); }  // added_tokens.json
  bool has_tokenizer() const { return tokenizer_json_ || sentencepiece_ || vocab_json_ || merges_txt_; }
  std::optional<std::string_view> chat_template() const { return Text(chat_template_); }  // chat_template.jinja
  // chat_templates/NAME.jinja: NAME and text, in the order of the names.
  std::vector<std::pair<std::string_view, std::string_view>> named_chat_templates() const;

 private:
  friend class ModelOpener;
  ModelFiles() = default;

  static const JsonDocument* Get(const std::optional<JsonDocument>& document) {
    return document ? &*document : nullptr;
  }
  static std::optional<std::string_view> Text(const std::optional<MappedFile>& file);

  std::string path_;
  uint64_t file_bytes_ = 0;
  std::vector<MappedFile> weights_;  // in the order of their addresses
  std::optional<GgufFile> gguf_;
  std::vector<SafetensorsFile> safetensors_;  // hold the names that their headers spell with escapes
  std::vector<FileTensor> tensors_;           // of safetensors: those that the model has, file by file
  std::vector<uint32_t> tensors_by_name_;
  std::optional<JsonDocument> config_, generation_config_, tokenizer_config_, added_tokens_;
  std::optional<MappedFile> tokenizer_json_, sentencepiece_, vocab_json_, merges_txt_, chat_template_;
  std::vector<std::pair<std::string, MappedFile>> named_chat_templates_;
};

}  // namespace tidemill

#endif  // TIDEMILL_FORMATS_MODEL_FILES_H_
