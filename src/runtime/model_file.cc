// Reading everything of a model file but its weights.
#include <cstdio>
#include <exception>
#include <map>
#include <utility>

#include "base/out_of_memory.h"
#include "formats/model_files.h"
#include "formats/model_settings.h"
#include "models/language_model.h"
#include "models/registry.h"
#include "runtime/model_impl.h"
#include "runtime/unread_settings.h"
#include "text/gguf_tokenizer.h"
#include "text/tokenizer_spec.h"

namespace tidemill {

namespace {

Result<void> DescribeGgufText(const GgufFile& gguf, ModelInfo& info) {
  TIDEMILL_TRY(tokenizer_model, gguf.GetStringOr("tokenizer.ggml.model", "none"));
  TIDEMILL_TRY(pre_tokenizer, gguf.GetStringOr("tokenizer.ggml.pre", "default"));
  info.tokenizer = std::string(tokenizer_model) + " (" + std::string(pre_tokenizer) + ")";
  if (gguf.FindValue("tokenizer.ggml.bos_token_id") != nullptr) {
    TIDEMILL_TRY(id, gguf.GetUint("tokenizer.ggml.bos_token_id", 0, info.vocab_size - 1));
    info.bos_token_id = static_cast<int32_t>(id);
  }
  if (gguf.FindValue("tokenizer.ggml.eos_token_id") != nullptr) {
    TIDEMILL_TRY(id, gguf.GetUint("tokenizer.ggml.eos_token_id", 0, info.vocab_size - 1));
    info.eos_token_id = static_cast<int32_t>(id);
  }
  return {};
}

Result<void> DescribeFolderText(const ModelFiles& files, ModelInfo& info) {
  info.tokenizer = files.tokenizer_json().has_value()  ? "tokenizer.json"
                   : files.sentencepiece().has_value() ? "SentencePiece model"
                   : files.has_tokenizer()             ? "vocab.json and merges.txt"
                                                       : "none";
  const auto last_id = static_cast<int64_t>(info.vocab_size) - 1;
  for (const auto& [key, id] : {std::pair{"bos_token_id", &info.bos_token_id}, {"eos_token_id", &info.eos_token_id}}) {
    const std::optional<JsonValue> config = files.ConfigWith(key);
    if (!config) continue;
    TIDEMILL_TRY(ids, config->GetOneOrMoreInts(key));
    if (ids.empty()) continue;
    if (ids.front() < 0 || ids.front() > last_id)
      return config->Unexpected(key, "an id from 0 to " + std::to_string(last_id));
    *id = static_cast<int32_t>(ids.front());
  }
  return {};
}

}  // namespace

Result<ModelInfo> DescribeModel(const ModelFiles& files) {
  TIDEMILL_TRY(settings, ReadModelSettings(files));
  ModelInfo info;
  info.path = files.path();
  info.format = files.gguf() != nullptr ? "GGUF v" + std::to_string(files.gguf()->version()) : "safetensors";
  if (files.num_weight_files() > 1) info.format += ", " + std::to_string(files.num_weight_files()) + " files";
  info.family = settings.architecture;
  info.name = settings.name;
  info.file_bytes = files.file_bytes();
  std::map<std::string, size_t> dtypes;
  for (const FileTensor& tensor : files.tensors()) {
    const std::string dtype(tensor.type_name);
    info.tensors.push_back({std::string(tensor.name), dtype, tensor.rows, tensor.cols, tensor.bytes.size()});
    info.parameters += tensor.rows * tensor.cols;
    ++dtypes[dtype];
  }
  info.dtypes.assign(dtypes.begin(), dtypes.end());
  info.vocab_size = settings.vocab_size;
  info.hidden_size = settings.hidden_size;
  info.intermediate_size = settings.intermediate_size;
  info.num_hidden_layers = settings.num_hidden_layers;
  info.num_attention_heads = settings.num_attention_heads;
  info.num_key_value_heads = settings.num_key_value_heads;
  info.head_dim = settings.head_dim;
  info.max_position_embeddings = settings.max_position_embeddings;
  info.rope_theta = settings.rope.theta;
  info.rms_norm_eps = settings.norm_eps;
  info.tie_word_embeddings = settings.tie_word_embeddings;
  if (files.gguf() != nullptr) {
    TIDEMILL_TRY_VOID(DescribeGgufText(*files.gguf(), info));
  } else {
    TIDEMILL_TRY_VOID(DescribeFolderText(files, info));
  }
  // What cannot be used is none.
  if (const auto templates = ReadTemplates(files); templates.ok()) {
    if (auto source = DefaultTemplate(*templates); source.ok()) info.chat_template = *std::move(source);
  } else if (files.gguf() != nullptr) {
    return templates.error();
  }
  for (size_t i = 0; i < settings.num_hidden_layers; ++i) info.num_linear_layers += settings.is_linear(i) ? 1U : 0U;
  info.linear_state_bytes = info.num_linear_layers * settings.linear_num_value_heads * settings.linear_key_head_dim *
                            settings.linear_value_head_dim * sizeof(float);
  info.state_bytes_per_token = 2 * (settings.num_hidden_layers - info.num_linear_layers) *
                               settings.num_key_value_heads * settings.head_dim * InfoOf(DType::kF16).block_bytes;
  if (const auto& armt = settings.armt) {
    info.segment_size = armt->segment_size;
    info.num_mem_tokens = armt->num_mem_tokens;
    info.memory_bytes = armt->d_mem == 0 ? armt->num_mem_tokens * settings.hidden_size * sizeof(float)
                                         : settings.num_hidden_layers * MemoryShapeOf(settings).bytes();
  }
  return info;
}

namespace {

Result<Tokenizer> ReadTokenizer(const ModelFiles& files) {
  if (files.gguf() == nullptr) return ReadFolderTokenizer(files);
  TIDEMILL_TRY(spec, ReadTokenizerSpec(*files.gguf()));
  return CreateTokenizer(std::move(spec));
}

// A byte-level GGUF file that does not name its splitting rule.
std::string DoubtTokenizer(const ModelFiles& files) {
  if (files.gguf() == nullptr) return {};
  const auto model = files.gguf()->GetStringOr("tokenizer.ggml.model", "");
  if (!model.ok() || *model != "gpt2") return {};
  const auto rule = files.gguf()->GetStringOr("tokenizer.ggml.pre", "default");
  if (!rule.ok() || *rule != "default") return {};
  return "tokenizer.ggml.pre names no splitting rule: text is split by llama.cpp's default one, and answers may be "
         "worse; convert the "
         "model again";
}

}  // namespace

Result<ModelText> ReadModelText(const ModelFiles& files) {
  TIDEMILL_TRY(tokenizer, ReadTokenizer(files));
  TakeWhatTokenizerDoes(files, tokenizer);
  ModelText text{.tokenizer = std::move(tokenizer), .chat_template = std::nullopt, .bos_token = "", .eos_token = ""};
  const auto spelling = [&](std::optional<int32_t> id) {
    return id.has_value() ? std::string(text.tokenizer.TokenName(*id)) : std::string();
  };
  text.tokenizer_doubt = DoubtTokenizer(files);
  text.bos_token = spelling(text.tokenizer.bos_id());
  text.eos_token = spelling(text.tokenizer.eos_id());
  if (files.gguf() == nullptr) TIDEMILL_TRY_VOID(ReadFolderSpecialTokens(files, &text));
  const auto read = [&]() -> Result<void> {
    TIDEMILL_TRY(templates, ReadTemplates(files));
    text.chat_templates = std::move(templates);
    TIDEMILL_TRY(source, DefaultTemplate(text.chat_templates));
    if (!source.has_value()) return {};
    auto chat_template = ChatTemplate::Parse(*source);
    if (!chat_template.ok()) {
      // The caller passed no template: it is the file that is wrong.
      return std::move(chat_template)
          .error()
          .WithContext(files.gguf() != nullptr ? "metadata: \"tokenizer.chat_template\"" : "chat template");
    }
    text.chat_template = std::move(chat_template).value();
    return {};
  };
  // Plain text needs no template.
  if (const Result<void> done = read(); !done.ok()) {
    if (done.error().code() == ErrorCode::kOutOfMemory) return done.error();
    text.chat_template_trouble = done.error().message();
  }
  return text;
}

namespace {

Result<float> ReadNumber(const GgufFile& gguf, const std::string& key, double fallback, const NumberRange& range) {
  TIDEMILL_TRY(number, gguf.GetFloatOr(key, fallback));
  if (number >= range.low && number <= range.high) return static_cast<float>(number);
  char found[32];
  std::snprintf(found, sizeof found, "%g", number);
  return Error(ErrorCode::kCorruptFile, "metadata: \"" + key + "\": expected " + range.expected + ", found " + found);
}

}  // namespace

Result<RecommendedGeneration> ReadRecommendation(const ModelFiles& files) {
  if (files.gguf() == nullptr) return ReadFolderRecommendation(files);
  constexpr const char* kTemperature = "general.sampling.temp";
  constexpr const char* kTopK = "general.sampling.top_k";
  constexpr const char* kTopP = "general.sampling.top_p";
  constexpr const char* kMinP = "general.sampling.min_p";
  RecommendedGeneration recommended;
  const GgufFile& gguf = *files.gguf();
  for (const char* key : {kTemperature, kTopK, kTopP, kMinP})
    recommended.says_how_to_choose = recommended.says_how_to_choose || gguf.FindValue(key) != nullptr;
  if (!recommended.says_how_to_choose) return recommended;
  // The keys come from a generation_config.json, which need not say transformers' defaults.
  TIDEMILL_TRY(temperature, ReadNumber(gguf, kTemperature, 1, kTemperatures));
  TIDEMILL_TRY(top_k, gguf.GetUintOr(kTopK, kTransformersTopK, 0, 1 << 24));
  TIDEMILL_TRY(top_p, ReadNumber(gguf, kTopP, 1, kTopPs));
  TIDEMILL_TRY(min_p, ReadNumber(gguf, kMinP, 0, kMinPs));
  GenerationOptions& options = recommended.options;
  options.temperature = temperature;
  options.top_k = static_cast<int32_t>(top_k);
  options.top_p = top_p;
  options.min_p = min_p;
  return recommended;
}

Result<ModelInfo> Inspect(const std::string& path) {
  try {
    const std::string context = "inspect " + path;
    auto files = ModelFiles::Open(path);
    if (!files.ok()) return std::move(files).error().WithContext(context);
    return DescribeModel(*files).WithContext(context);
  } catch (const std::exception&) {  // std::bad_alloc
    return OutOfMemoryError("inspect model");
  }
}

Result<ModelText> LoadText(const std::string& path) {
  try {
    const std::string context = "load tokenizer of " + path;
    auto files = ModelFiles::OpenText(path);
    if (!files.ok()) return std::move(files).error().WithContext(context);
    auto text = ReadModelText(*files);
    if (!text.ok()) return std::move(text).error().WithContext(context);
    text->unread_settings = ListUnread(*files, ReadPart::kText);
    return text;
  } catch (const std::exception&) {  // std::bad_alloc
    return OutOfMemoryError("load tokenizer");
  }
}

Result<std::vector<UnreadSettings>> FindUnreadSettings(const std::string& path) {
  try {
    const std::string context = "inspect " + path;
    auto files = ModelFiles::Open(path);
    if (!files.ok()) return std::move(files).error().WithContext(context);
    TIDEMILL_TRY_VOID(DescribeModel(*files).WithContext(context));
    const auto text = ReadModelText(*files);
    if (!text.ok() && text.error().code() == ErrorCode::kOutOfMemory) return text.error();
    if (text.ok()) TIDEMILL_TRY_VOID(ReadRecommendation(*files).WithContext(context));
    return ListUnread(*files, text.ok() ? ReadPart::kAll : ReadPart::kModel);
  } catch (const std::exception&) {  // std::bad_alloc
    return OutOfMemoryError("inspect model");
  }
}

}  // namespace tidemill
