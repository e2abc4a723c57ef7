#include "models/registry.h"

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstring>
#include <string>
#include <vector>

#include "base/float_environment.h"
#include "base/printable_name.h"
#include "models/families/families.h"
#include "models/rope_override.h"
#include "state/sequence_state.h"

namespace tidemill {
namespace {

struct Family {
  std::string_view model_type;    // in config.json; empty: no checkpoint has it
  std::string_view architecture;  // general.architecture of a GGUF file; empty: no GGUF file has it
  SettingsOf* read_settings;
  ModelOf* load;
  OwnHeadOf* load_own_head = nullptr;
  std::string_view language_model =
      {};  // a model that also reads images, with the settings of this model type in text_config
};

constexpr Family kFamilies[] = {
    {"llama", "llama", ReadLlamaSettings, LoadLlama},
    {"mistral", "", ReadMistralSettings, LoadMistral},
    {"mixtral", "", ReadMixtralSettings, LoadMixtral},
    {"qwen2", "qwen2", ReadQwenSettings, LoadQwen2},
    {"qwen3", "qwen3", ReadQwenSettings, LoadQwen3},
    {"qwen3_moe", "qwen3moe", ReadQwenMoeSettings, LoadQwen3},
    {"qwen3_next", "qwen3next", ReadQwen3NextSettings, LoadQwen3Next, LoadQwenMtp},
    {"qwen3_5_text", "qwen35", ReadQwen35Settings, LoadQwen35, LoadQwenMtp},
    {"qwen3_5", "", ReadQwen35Settings, LoadQwen35, LoadQwenMtp, "qwen3_5_text"},
    {"qwen3_5_moe_text", "qwen35moe", ReadQwen35MoeSettings, LoadQwen35, LoadQwenMtp},
    {"qwen3_5_moe", "", ReadQwen35MoeSettings, LoadQwen35, LoadQwenMtp, "qwen3_5_moe_text"},
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
               std::string(gguf ? "metadata: \"general.architecture\"" : "config.json: \"model_type\"") +
                   ": expected a family of this build, " + known + ", found " + QuoteName(name));
}

// A checkpoint of quantised weights holds numbers that are not the weights.
Result<void> CheckNotQuantised(const ModelFiles& files) {
  if (files.gguf() != nullptr ||
      (!files.config()->Has("quantization_config") && !files.config()->Has("text_config.quantization_config")))
    return {};
  return Error(ErrorCode::kUnsupported,
               "config.json: \"quantization_config\": quantised checkpoints are not supported; use the original one or "
               "a GGUF file");
}

// GGUF files that say what they are besides models. Older ones of the second kind only have its architecture.
Result<void> CheckIsModel(const ModelFiles& files, const std::string& architecture) {
  if (files.gguf() == nullptr) return {};
  TIDEMILL_TRY(type, files.gguf()->GetStringOr("general.type", "model"));
  const auto refuse = [is_typed = type != "model"](const std::string& found) {
    return Error(ErrorCode::kUnsupported, std::string("metadata: \"general.") + (is_typed ? "type" : "architecture") +
                                              "\": expected a model, found " + found);
  };
  if (type == "adapter") return refuse("a LoRA adapter; merge it into its base model and give the result");
  if (type == "mmproj" || architecture == "clip")
    return refuse("the part of a model that reads images; give the file of its language model");
  if (type == "imatrix" || architecture == "imatrix")
    return refuse("an importance matrix, which serves to make quantised models");
  if (type == "vocab") return refuse("a vocabulary without weights, which tokenize and detokenize take");
  return {};
}

// A checkpoint of model type "armt" or "rmt" names its base model in `architectures`.
Result<void> NameArmtBase(const ModelFiles& files, std::string* name) {
  constexpr std::pair<std::string_view, std::string_view> kBases[] = {
      {"Llama", "llama"}, {"Qwen2", "qwen2"}, {"GPT2", "gpt2"}};
  TIDEMILL_TRY(architectures, files.config()->GetStrings("architectures"));
  for (const auto& [part, base] : kBases) {
    if (architectures.size() == 1 && architectures.front().find(part) != std::string_view::npos) {
      *name = base;
      return {};
    }
  }
  return Error(ErrorCode::kUnsupported,
               "config.json: \"architectures\": expected one that names Llama, Qwen2 or GPT2 for model type " +
                   QuoteName(*name));
}

struct KnownModel {
  const Family* family = nullptr;
  ModelSettings settings;
};
Result<KnownModel> Recognise(const ModelFiles& files) {
  if (IsDraftHead(files)) {
    return Error(ErrorCode::kUnsupported,
                 "config.json and tensors: expected a model, found a draft head of EAGLE, which needs its target; give "
                 "the model that it drafts for, and this as its --draft");
  }
  TIDEMILL_TRY(name, ArchitectureOf(files));
  const bool has_config = files.gguf() == nullptr;
  const bool is_armt = has_config && files.config()->Has("armt"), is_rmt = has_config && files.config()->Has("rmt");
  if (has_config && ((name == "armt" && !is_armt) || (name == "rmt" && !is_rmt))) {
    return Error(ErrorCode::kCorruptFile, "config.json: model type " + QuoteName(name) + ": expected a block " +
                                              QuoteName(name) + " with the model's segments, found none; " +
                                              "docs/recurrent-memory.md lists what it says");
  }
  if (name == "armt" || name == "rmt") TIDEMILL_TRY_VOID(NameArmtBase(files, &name));
  TIDEMILL_TRY_VOID(CheckIsModel(files, name));
  TIDEMILL_TRY(family, FindFamily(files, name));
  TIDEMILL_TRY_VOID(CheckNotQuantised(files));
  std::string under;
  if (!family->language_model.empty()) {
    under = "text_config";
    TIDEMILL_TRY(inner, files.config()->GetObject(under));
    TIDEMILL_TRY(type, inner.GetStringOr("model_type", family->language_model));
    if (type != family->language_model) return inner.Unexpected("model_type", std::string(family->language_model));
  }
  const SettingsReader reader(files, name, under);
  TIDEMILL_TRY(settings, family->read_settings(reader));
  if (is_armt && is_rmt) {
    return Error(
        ErrorCode::kCorruptFile,
        "config.json: \"armt\" and \"rmt\": expected one of them, found both; leave out the one that the model was "
        "not trained as");
  }
  if (has_config && !is_armt && !is_rmt && files.FindTensor("memory_cell.memory") != nullptr) {
    return Error(ErrorCode::kCorruptFile,
                 "config.json: expected a block \"armt\" or \"rmt\" for tensor \"memory_cell.memory\", found none; "
                 "docs/recurrent-memory.md lists what it says");
  }
  if (is_armt || is_rmt) {
    constexpr std::string_view kBases[] = {"llama", "qwen2", "gpt2"};
    if (std::find(std::begin(kBases), std::end(kBases), name) == std::end(kBases)) {
      return Error(ErrorCode::kUnsupported, std::string("config.json: \"") + (is_armt ? "armt" : "rmt") +
                                                "\": expected around llama, qwen2 or gpt2, found it around " +
                                                QuoteName(name));
    }
    TIDEMILL_TRY_VOID(is_armt ? ReadArmtSettings(reader, settings) : ReadRmtSettings(reader, settings));
  }
  return KnownModel{family, std::move(settings)};
}

// A chain of everything that is added. Values of different lengths never run into each other: each length is in it, too.
class ModelHash {
 public:
  uint64_t value() const { return value_; }

  template <std::integral T>
  void Add(T number) {
    value_ = ChainTokenHash(value_, static_cast<uint64_t>(number));
  }
  void Add(double number) { Add(std::bit_cast<uint64_t>(number)); }
  void Add(std::span<const std::byte> bytes) {
    Add(bytes.size());
    size_t i = 0;
    for (; i + 8 <= bytes.size(); i += 8) {
      uint64_t word;
      std::memcpy(&word, bytes.data() + i, 8);
      Add(word);
    }
    for (; i < bytes.size(); ++i) Add(std::to_integer<uint64_t>(bytes[i]));
  }
  void Add(std::string_view text) { Add(std::as_bytes(std::span(text))); }
  template <typename T>
  void Add(const std::vector<T>& list) {
    Add(list.size());
    for (const T element : list) Add(element);
  }
  // These name every field, so that a new one does not compile until somebody has decided about it.
  void Add(const RopeSettings& rope) {
    const auto& [theta, scaling, factor, original, low, high, fast, slow, attention_factor, truncate] = rope;
    AddAll(theta, static_cast<int>(scaling), factor, original, low, high, fast, slow, attention_factor, truncate);
  }
  void Add(const ModelSettings& settings) {
    // Not `name`: how a file calls itself changes no result; nor do `pard_token` and `num_mtp`, which only drafters use.
    const auto& [architecture, name, vocab, hidden, ffn, layers, heads, kv_heads, head_dim, rotary_dim, positions, rope,
                 local_rope, rope_override_factor, norm_eps, act, tied, windows, experts, per_token, expert_ffn,
                 shared_ffn, normalised, dense_layers, linear_layers, key_heads, value_heads, key_dim, value_dim,
                 conv_width, num_mtp, attention_scale, attention_cap, final_cap, parallel, norm_before, embedding_width,
                 armt, pard_token] = settings;
    static_cast<void>(pard_token);
    static_cast<void>(num_mtp);
    AddAll(std::string_view(architecture), vocab, hidden, ffn, layers, heads, kv_heads, head_dim, rotary_dim, positions,
           rope, local_rope, rope_override_factor, norm_eps, std::string_view(act), tied, windows, experts, per_token,
           expert_ffn, normalised, dense_layers, attention_scale, attention_cap, final_cap, parallel, norm_before,
           embedding_width);
    // Ids of models without them are older than these.
    if (armt) {
      AddAll(armt->segment_size, armt->num_mem_tokens, armt->d_mem, armt->nu, armt->correction, armt->wrap_pos,
             static_cast<int>(armt->segment_alignment), armt->lora_alpha, static_cast<int>(armt->memory_dtype));
    }
    if (!linear_layers.empty())
      AddAll(shared_ffn, linear_layers, key_heads, value_heads, key_dim, value_dim, conv_width);
  }

 private:
  template <typename... T>
  void AddAll(const T&... values) {
    (Add(values), ...);
  }

  uint64_t value_ = 0;
};

// What a checkpoint of a sequence's state is bound to (StateIdentity): keys and values of one model mean nothing to another. So all
// that changes results is in it: every setting, all tensors' names, shapes and types. Of the weights only the first 256 bytes of each
// tensor: different trainings differ everywhere, and reading all bytes would double the time of a load. A file that was changed by
// hand behind them keeps its id; this tells models apart, it does not guard against forgery.
uint64_t IdentifyModel(const ModelFiles& files, const ModelSettings& settings) {
  constexpr size_t kSampleBytes = 256;
  ModelHash hash;
  hash.Add(settings);
  for (const FileTensor& tensor : files.tensors()) {
    hash.Add(tensor.name);
    hash.Add(tensor.rows);
    hash.Add(tensor.cols);
    hash.Add(static_cast<int>(tensor.dtype));
    hash.Add(static_cast<int>(tensor.encoding));
    hash.Add(tensor.bytes.first(std::min(kSampleBytes, tensor.bytes.size())));
  }
  return hash.value();
}

constexpr std::string_view kDraftVocabSize = "draft_vocab_size";

// Draft heads read the unscaled embedding, hidden states after an RMS norm and logits as their head gives them; positions are their
// own.
Result<void> CheckTarget(const SettingsReader& reader, const ModelSettings& settings, const LanguageModel& target) {
  if (target.segments.present()) {
    return Error(ErrorCode::kUnsupported,
                 "draft head: expected a target that reads its text whole, found one that reads it in segments; draft "
                 "with ngram or layers:M");
  }
  if (target.embedding_scale != 1 || target.project_in.present() || target.project_out.present() ||
      target.position_embedding.rows() != 0 || target.logit_soft_cap != 0 ||
      target.final_norm.kind != Norm::Kind::kRms) {
    return Error(ErrorCode::kUnsupported,
                 "draft head: expected a target with embedding, norms and logits like Llama's, found one of family " +
                     QuoteName(target.settings.architecture));
  }
  if (settings.vocab_size == target.settings.vocab_size) return {};
  return reader.Wrong({"vocab_size", ""}, "the target's " + std::to_string(target.settings.vocab_size),
                      std::to_string(settings.vocab_size), ErrorCode::kInvalidArgument);
}

}  // namespace

Result<ModelSettings> ReadModelSettings(const ModelFiles& files) {
  TIDEMILL_TRY(known, Recognise(files));
  return std::move(known.settings);
}

bool IsDraftHead(const ModelFiles& files) {
  return files.gguf() == nullptr && (files.FindTensor("fc.weight") != nullptr || files.config()->Has(kDraftVocabSize));
}

Result<std::unique_ptr<LanguageModel>> LoadDraftHead(const ModelFiles& files, const LanguageModel& target,
                                                     const LoadSettings& load) {
  const ScopedDefaultFloatEnvironment float_environment;  // weights are unpacked, RoPE's frequencies computed
  if (files.gguf() != nullptr) {
    return Error(ErrorCode::kUnsupported,
                 "draft head: expected a folder with config.json and safetensors, found a GGUF file");
  }
  TIDEMILL_TRY(name, ArchitectureOf(files));
  const SettingsReader reader(files, name);
  if (name != "llama") {
    return reader.Wrong({"model_type", ""}, "\"llama\", as draft heads have it", QuoteName(name),
                        ErrorCode::kUnsupported);
  }
  TIDEMILL_TRY_VOID(CheckNotQuantised(files));
  TIDEMILL_TRY(settings, ReadDecoderSettings(reader, {}));
  TIDEMILL_TRY_VOID(CheckTarget(reader, settings, target));
  for (const char* key : {"attention_bias", "mlp_bias"}) reader.Take(key);  // a head's tensors say so
  const uint64_t id = ChainTokenHash(IdentifyModel(files, settings), target.id);
  files.ReleaseAll();
  WeightLoader weights(files, load);
  const bool third = files.config()->Has(kDraftVocabSize) || files.FindTensor("midlayer.hidden_norm.weight") != nullptr;
  TIDEMILL_TRY(head, (third ? LoadEagle3 : LoadEagle)(settings, reader, target, weights));
  TIDEMILL_TRY_VOID(weights.CheckAllRead());
  head->id = id;
  head->target = &target;
  return head;
}

Result<std::unique_ptr<LanguageModel>> LoadOwnDraftHead(const ModelFiles& files, const LanguageModel& target,
                                                        const LoadSettings& load) {
  const ScopedDefaultFloatEnvironment float_environment;
  TIDEMILL_TRY(family, FindFamily(files, target.settings.architecture));
  if (family->load_own_head == nullptr) {
    std::string known;
    for (const Family& other : kFamilies) {
      const std::string_view name = NameOf(other, files.gguf() != nullptr);
      if (other.load_own_head != nullptr && !name.empty()) known += (known.empty() ? "" : ", ") + std::string(name);
    }
    return Error(ErrorCode::kUnsupported, "draft head: expected a model of a family with one of its own, " + known +
                                              ", found " + QuoteName(target.settings.architecture) +
                                              "; draft with ngram, layers:M, a smaller model or a head for it");
  }
  WeightLoader weights(files, load);
  TIDEMILL_TRY(head, family->load_own_head(target, weights));
  head->id = ChainTokenHash(target.id, target.layers.size());
  head->target = &target;
  return head;
}

Result<std::unique_ptr<LanguageModel>> LoadLanguageModel(const ModelFiles& files, const LoadSettings& settings,
                                                         const std::optional<RopeOverride>& rope) {
  const ScopedDefaultFloatEnvironment float_environment;
  TIDEMILL_TRY(known, Recognise(files));
  if (rope && known.settings.armt) {
    return Error(ErrorCode::kUnsupported, "--rope-scaling " + RopeOverrideName(*rope) +
                                              ": expected a model whose positions go on through the text, found one "
                                              "whose segments begin at position 0, at any length; leave the flag out");
  }
  if (rope) TIDEMILL_TRY_VOID(OverrideRope(*rope, known.settings));
  // Each sample maps what the system likes to map around it, up to megabytes: given back before the weights take memory.
  const uint64_t id = IdentifyModel(files, known.settings);
  files.ReleaseAll();
  WeightLoader weights(files, settings);
  if (known.settings.armt) {
    weights.SetSpelling([&files](const std::string& plain) { return ArmtName(files, plain); });
    weights.SetLoraAlpha(known.settings.armt->lora_alpha);
  }
  TIDEMILL_TRY(model, known.family->load(known.settings, weights));
  if (known.settings.armt) TIDEMILL_TRY_VOID(AddArmtMemory(weights, *model));
  TIDEMILL_TRY_VOID(weights.CheckAllRead());
  model->id = id;
  return model;
}

}  // namespace tidemill
