// Reading everything of a model file but its weights.
#include <exception>
#include <map>
#include <utility>

#include "base/out_of_memory.h"
#include "formats/model_settings.h"
#include "models/registry.h"
#include "runtime/model_impl.h"
#include "text/gguf_tokenizer.h"
#include "text/tokenizer_spec.h"

namespace tidemill {

Result<OpenModelFile> OpenModel(const std::string& path) {
  TIDEMILL_TRY(file, MappedFile::Open(path));
  TIDEMILL_TRY(gguf, GgufFile::Parse(file.bytes()));
  return OpenModelFile{std::move(file), std::move(gguf)};
}

Result<ModelInfo> DescribeModel(const OpenModelFile& opened) {
  const GgufFile& gguf = opened.gguf;
  TIDEMILL_TRY(architecture, gguf.GetString("general.architecture"));
  TIDEMILL_TRY_VOID(CheckArchitecture(std::string(architecture)));
  TIDEMILL_TRY(settings, ReadGgufSettings(gguf));
  ModelInfo info;
  info.path = opened.file.path();
  info.format = "GGUF v" + std::to_string(gguf.version());
  info.family = settings.architecture;
  info.name = settings.name;
  info.file_bytes = opened.file.bytes().size();
  std::map<std::string, size_t> dtypes;
  for (const FileTensor& tensor : gguf.tensors()) {
    const std::string dtype(InfoOf(tensor.dtype).name);
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
  info.rope_theta = settings.rope_theta;
  info.rms_norm_eps = settings.rms_norm_eps;
  info.tie_word_embeddings = settings.tie_word_embeddings;
  TIDEMILL_TRY(tokenizer_model, gguf.GetStringOr("tokenizer.ggml.model", "none"));
  TIDEMILL_TRY(pre_tokenizer, gguf.GetStringOr("tokenizer.ggml.pre", "default"));
  info.tokenizer = std::string(tokenizer_model) + " (" + std::string(pre_tokenizer) + ")";
  if (gguf.FindValue("tokenizer.ggml.bos_token_id") != nullptr) {
    TIDEMILL_TRY(id, gguf.GetUint("tokenizer.ggml.bos_token_id", 0, settings.vocab_size - 1));
    info.bos_token_id = static_cast<int32_t>(id);
  }
  if (gguf.FindValue("tokenizer.ggml.eos_token_id") != nullptr) {
    TIDEMILL_TRY(id, gguf.GetUint("tokenizer.ggml.eos_token_id", 0, settings.vocab_size - 1));
    info.eos_token_id = static_cast<int32_t>(id);
  }
  if (gguf.FindValue("tokenizer.chat_template") != nullptr) {
    TIDEMILL_TRY(source, gguf.GetString("tokenizer.chat_template"));
    info.chat_template = std::string(source);
  }
  info.state_bytes_per_token = 2 * settings.num_hidden_layers * settings.num_key_value_heads * settings.head_dim *
                               InfoOf(DType::kF16).block_bytes;
  return info;
}

Result<ModelText> ReadModelText(const GgufFile& gguf) {
  TIDEMILL_TRY(spec, ReadTokenizerSpec(gguf));
  TIDEMILL_TRY(tokenizer, CreateTokenizer(std::move(spec)));
  ModelText text{std::move(tokenizer), std::nullopt, "", ""};
  const auto spelling = [&](std::optional<int32_t> id) {
    return id.has_value() ? std::string(text.tokenizer.TokenName(*id)) : std::string();
  };
  text.bos_token = spelling(text.tokenizer.bos_id());
  text.eos_token = spelling(text.tokenizer.eos_id());
  if (gguf.FindValue("tokenizer.chat_template") != nullptr) {
    TIDEMILL_TRY(source, gguf.GetString("tokenizer.chat_template"));
    auto chat_template = ChatTemplate::Parse(std::string(source));
    if (!chat_template.ok()) {
      if (chat_template.error().code() == ErrorCode::kOutOfMemory) return std::move(chat_template).error();
      // The caller passed no template: it is the file that is wrong.
      return Error(ErrorCode::kCorruptFile,
                   "metadata: \"tokenizer.chat_template\": " + chat_template.error().message());
    }
    text.chat_template = std::move(chat_template).value();
  }
  return text;
}

Result<GenerationOptions> ReadDefaultGeneration(const GgufFile& gguf) {
  GenerationOptions options;
  TIDEMILL_TRY(temperature, gguf.GetFloatOr("general.sampling.temp", 0));
  TIDEMILL_TRY(top_k, gguf.GetUintOr("general.sampling.top_k", 0, 0, 1 << 24));
  TIDEMILL_TRY(top_p, gguf.GetFloatOr("general.sampling.top_p", 1));
  TIDEMILL_TRY(min_p, gguf.GetFloatOr("general.sampling.min_p", 0));
  options.temperature = static_cast<float>(temperature);
  options.top_k = static_cast<int32_t>(top_k);
  options.top_p = static_cast<float>(top_p);
  options.min_p = static_cast<float>(min_p);
  return options;
}

Result<ModelInfo> Inspect(const std::string& path) {
  try {
    const std::string context = "inspect " + path;
    auto opened = OpenModel(path);
    if (!opened.ok()) return std::move(opened).error().WithContext(context);
    return DescribeModel(*opened).WithContext(context);
  } catch (const std::exception&) {  // std::bad_alloc
    return OutOfMemoryError("inspect model");
  }
}

Result<ModelText> LoadText(const std::string& path) {
  try {
    const std::string context = "load tokenizer of " + path;
    auto opened = OpenModel(path);
    if (!opened.ok()) return std::move(opened).error().WithContext(context);
    return ReadModelText(opened->gguf).WithContext(context);
  } catch (const std::exception&) {  // std::bad_alloc
    return OutOfMemoryError("load tokenizer");
  }
}

}  // namespace tidemill
