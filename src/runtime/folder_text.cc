// The text side of a model folder: tokenizer.json, the tokens that config.json and generation_config.json name, the chat template, and
// what generation_config.json recommends.
#include <algorithm>
#include <utility>

#include "runtime/model_impl.h"
#include "text/tokenizer_json.h"
#include "text/tokenizer_spec.h"

namespace tidemill {
namespace {

// The document that has `key`: generation_config.json before config.json, as transformers' generate reads them. Null: neither.
const JsonDocument* DocumentWith(const ModelFiles& files, const char* key) {
  if (files.generation_config() != nullptr && files.generation_config()->Has(key)) return files.generation_config();
  return files.config()->Has(key) ? files.config() : nullptr;
}

Result<std::vector<int32_t>> ReadIds(const ModelFiles& files, const char* key, size_t vocab_size) {
  std::vector<int32_t> ids;
  const JsonDocument* document = DocumentWith(files, key);
  if (document == nullptr) return ids;
  TIDEMILL_TRY(values, document->GetOneOrMoreInts(key));
  for (const int64_t value : values) {
    if (value < 0 || static_cast<uint64_t>(value) >= vocab_size)
      return document->Unexpected(key, "ids below the tokenizer's " + std::to_string(vocab_size));
    ids.push_back(static_cast<int32_t>(value));
  }
  return ids;
}

Result<float> ReadNumber(const JsonDocument& config, const char* key, double fallback, const NumberRange& range) {
  TIDEMILL_TRY(number, config.GetFloatOr(key, fallback));
  if (!(number >= range.low && number <= range.high)) return config.Unexpected(key, range.expected);
  return static_cast<float>(number);
}

}  // namespace

Result<Tokenizer> ReadFolderTokenizer(const ModelFiles& files) {
  if (!files.tokenizer_json().has_value()) {
    return Error(ErrorCode::kNotFound,
                 "tokenizer.json: not in the folder; text needs it (transformers' save_pretrained of a fast tokenizer "
                 "writes it)");
  }
  auto read = ReadTokenizerJson(*files.tokenizer_json());
  if (!read.ok()) return std::move(read).error().WithContext("tokenizer.json");
  TokenizerSpec spec = std::move(read).value();
  TIDEMILL_TRY(bos, ReadIds(files, "bos_token_id", spec.tokens.size()));
  TIDEMILL_TRY(eos, ReadIds(files, "eos_token_id", spec.tokens.size()));
  if (!spec.bos_id.has_value() && !bos.empty()) spec.bos_id = bos.front();
  if (!spec.eos_id.has_value() && !eos.empty()) spec.eos_id = eos.front();
  spec.end_of_generation_ids.insert(spec.end_of_generation_ids.end(), eos.begin(), eos.end());
  return CreateTokenizer(std::move(spec)).WithContext("tokenizer.json");
}

Result<std::optional<std::string>> ReadFolderTemplate(const ModelFiles& files) {
  if (files.chat_template().has_value()) return std::optional(std::string(*files.chat_template()));
  if (files.tokenizer_config() == nullptr || !files.tokenizer_config()->Has("chat_template"))
    return std::optional<std::string>();
  TIDEMILL_TRY(source, files.tokenizer_config()->GetString("chat_template"));
  return std::optional(std::string(source));
}

Result<RecommendedGeneration> ReadFolderRecommendation(const ModelFiles& files) {
  RecommendedGeneration recommended;
  GenerationOptions& options = recommended.options;
  const JsonDocument* config = files.generation_config();
  if (config == nullptr) return recommended;
  TIDEMILL_TRY(penalty, ReadNumber(*config, "repetition_penalty", 1, kRepetitionPenalties));
  options.repetition_penalty = penalty;
  const auto has = [config](const char* key) { return config->Has(key); };
  const bool has_sampling = has("temperature") || has("top_k") || has("top_p") || has("min_p");
  recommended.says_how_to_choose = has_sampling || has("do_sample");
  TIDEMILL_TRY(is_sampled, config->GetBoolOr("do_sample", has_sampling));
  if (!is_sampled) return recommended;
  // transformers' defaults where the file samples and says no more.
  TIDEMILL_TRY(temperature, ReadNumber(*config, "temperature", 1, kTemperatures));
  TIDEMILL_TRY(top_k, config->GetIntOr("top_k", kTransformersTopK, -1, 1 << 24));
  TIDEMILL_TRY(top_p, ReadNumber(*config, "top_p", 1, kTopPs));
  TIDEMILL_TRY(min_p, ReadNumber(*config, "min_p", 0, kMinPs));
  options.temperature = temperature;
  options.top_k = static_cast<int32_t>(std::max<int64_t>(top_k, 0));  // -1, too, is all tokens
  options.top_p = top_p;
  options.min_p = min_p;
  return recommended;
}

}  // namespace tidemill
