// A model file: what is in it, and a model ready to run.
#ifndef TIDEMILL_MODEL_H_
#define TIDEMILL_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tidemill/chat.h"
#include "tidemill/generation.h"
#include "tidemill/policies.h"
#include "tidemill/result.h"
#include "tidemill/tokenizer.h"

namespace tidemill {

// ---- what is in a file, without reading the weights ----

struct TensorInfo {
  std::string name;
  std::string dtype;  // "Q4_1"
  size_t rows = 0;    // out_features; 1 for a vector
  size_t cols = 0;    // in_features
  uint64_t bytes = 0;
};

struct ModelInfo {
  std::string path;
  std::string format;  // "GGUF v3"
  std::string family;  // "llama"
  std::string name;    // as the file calls itself; may be empty
  uint64_t file_bytes = 0;
  uint64_t parameters = 0;
  std::vector<TensorInfo> tensors;
  std::vector<std::pair<std::string, size_t>> dtypes;  // dtype -> number of tensors, by name
  // Settings, with the names of config.json.
  size_t vocab_size = 0;
  size_t hidden_size = 0;
  size_t intermediate_size = 0;
  size_t num_hidden_layers = 0;
  size_t num_attention_heads = 0;
  size_t num_key_value_heads = 0;
  size_t head_dim = 0;
  size_t max_position_embeddings = 0;  // the file's, whatever LoadOptions::rope_scaling
  double rope_theta = 0;
  double rms_norm_eps = 0;
  bool tie_word_embeddings = false;
  // Text.
  std::string tokenizer;  // "gpt2 (smollm)"
  std::optional<int32_t> bos_token_id, eos_token_id;
  std::optional<std::string> chat_template;  // its source
  // State of one sequence at KV dtype f16: what each token adds, and what layers of linear attention hold whatever the length.
  uint64_t state_bytes_per_token = 0, linear_state_bytes = 0;
  size_t num_linear_layers = 0;
  // Of a model that reads its text in segments: tokens and memory tokens of one, and bytes of the memories of all layers, or of what RMT carries. 0: of others.
  size_t segment_size = 0, num_mem_tokens = 0;
  uint64_t memory_bytes = 0;
};

// Errors name `path`: kNotFound, kIoError, kCorruptFile, kUnsupported, kOutOfMemory. Cost: the file's header only.
Result<ModelInfo> Inspect(const std::string& path);

// Keys of one settings file that are obeyed by nobody and not known to leave the text alone.
struct UnreadSettings {
  std::string file;               // "config.json"; "metadata" of a GGUF file
  std::vector<std::string> keys;  // "rope_scaling.beta_fast", as the file spells them
};

// Those of a model file, without its weights; files that have none are left out. Without a tokenizer that can be read: of config.json or
// the model's metadata. Errors as those of Inspect. Cost: that of Inspect and LoadText.
Result<std::vector<UnreadSettings>> FindUnreadSettings(const std::string& path);

// ---- text only ----

struct ModelText {
  Tokenizer tokenizer;
  std::optional<ChatTemplate> chat_template;
  std::string bos_token, eos_token;  // spellings, for the template; empty when there is none
  std::vector<std::pair<std::string, std::string>> special_tokens = {};  // further ones: {"pad_token", "<pad>"}
  std::string tokenizer_doubt = {};  // why its ids may not be what the model was made for; empty: no doubt
  // All that the file has, by name and source; chat_template is the one named default.
  std::vector<std::pair<std::string, std::string>> chat_templates = {};
  std::string chat_template_trouble = {};  // why the file's template cannot be used; empty: it can, or there is none
  std::vector<UnreadSettings> unread_settings = {};  // of LoadText; those of a Model are its own
};

// Tokenizer and chat template of a model file, without its weights. Errors as Inspect's; a missing tokenizer is kNotFound. A
// template that cannot be used is none, and chat_template_trouble says why.
Result<ModelText> LoadText(const std::string& path);

// ---- a model ready to run ----

enum class WeightStorage {
  kPacked,  // re-packed for this machine's kernels when loaded
  kMapped,  // read from the file's shared mapping: slower, same bits, no memory of its own
};

struct LoadOptions {
  bool f32 = false;  // --dtype f32: weights dequantised to f32, activations f32
  WeightStorage weights = WeightStorage::kPacked;
  size_t threads = 0;                             // for loading; 0: physical cores
  std::function<void(double)> progress;           // called with 0..1 from the loading thread; may be empty
  std::optional<RopeOverride> rope_scaling = {};  // for a context past the model's own; changes answers of any length
  // false: neither tokenizer nor template is read, and the files need not have them. Scores, speeds and plans need none (Engine::Score,
  // Engine::Bench, MakePlan); requests are refused, and the text's tokenizer has no tokens.
  bool text = true;
};

// Immutable once loaded: any number of engines, in any threads, may share it.
class Model {
 public:
  struct Impl;
  explicit Model(std::unique_ptr<Impl> impl);  // Load makes it
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  // Errors as LoadText's; those of a tensor name it. rope_scaling: kInvalidArgument for its factor, kUnsupported where positions are
  // not rotary. Cost: reads the file once; where weights are mapped, its header.
  static Result<std::shared_ptr<const Model>> Load(const std::string& path, LoadOptions options);

  const ModelInfo& info() const;
  const ModelText& text() const;
  GenerationOptions default_generation() const;  // what the file recommends, else greedy
  bool has_sampling_defaults() const;            // the file says whether tokens are drawn, and how
  const std::vector<UnreadSettings>& unread_settings()
      const;  // as FindUnreadSettings; without text, of config.json or the model's metadata
  uint64_t resident_weight_bytes() const;  // memory of the packed weights

  Impl& impl() const { return *impl_; }  // for engines

 private:
  std::unique_ptr<Impl> impl_;
};

// A draft head of EAGLE or EAGLE-3, or the one that a model's own files have (multi-token prediction, MTP): it drafts what one model, its
// target, says next, from what the target's layers make of the text. A folder has no tokenizer; embedding and head are the target's where
// it has none. Immutable once loaded, as Model.
class DraftHead {
 public:
  struct Impl;
  explicit DraftHead(std::unique_ptr<Impl> impl);  // Load or LoadOwn makes it
  ~DraftHead();
  DraftHead(const DraftHead&) = delete;
  DraftHead& operator=(const DraftHead&) = delete;

  // Whether `path` is the folder of a draft head rather than a model. Errors as those of a file that cannot be opened.
  static Result<bool> IsAt(const std::string& path);
  // Keeps `target`. Errors as Model::Load's; kInvalidArgument: for another target, by what differs, or no draft head; kUnsupported: for a
  // target of a family that has no such heads. Positions are scaled as the head's own file says, whatever rope_scaling.
  static Result<std::shared_ptr<const DraftHead>> Load(const std::string& path, std::shared_ptr<const Model> target,
                                                       LoadOptions options);
  // The head in the files of `target`, which it keeps; positions are scaled as the target's. kUnsupported: the family has none; kNotFound:
  // the files have none; kCorruptFile: they have a part of it, by what is missing; others as Model::Load's of weights.
  static Result<std::shared_ptr<const DraftHead>> LoadOwn(std::shared_ptr<const Model> target, LoadOptions options);

  const Model& target() const;
  const std::vector<UnreadSettings>& unread_settings() const;  // of its config.json; none of LoadOwn's
  uint64_t resident_weight_bytes() const;                      // memory of the packed weights, but for the target's

  Impl& impl() const { return *impl_; }  // for engines

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace tidemill

#endif  // TIDEMILL_MODEL_H_
