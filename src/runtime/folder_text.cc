// The text side of a model folder: tokenizer.json and what stands for it, the tokens that config.json and generation_config.json name. The
// chat templates: model_templates.cc.
#include <optional>
#include <utility>

#include "runtime/model_impl.h"
#include "text/slow_tokenizer.h"
#include "text/tokenizer_json.h"
#include "text/tokenizer_spec.h"

namespace tidemill {
namespace {

// What has `key`: generation_config.json before config.json, as transformers' generate reads them. Null: neither.
std::optional<JsonValue> SettingsWith(const ModelFiles& files, const char* key) {
  if (files.generation_config() != nullptr && files.generation_config()->Has(key)) return *files.generation_config();
  return files.ConfigWith(key);
}

Result<std::vector<int32_t>> ReadIds(const ModelFiles& files, const char* key, size_t vocab_size) {
  std::vector<int32_t> ids;
  const std::optional<JsonValue> settings = SettingsWith(files, key);
  if (!settings) return ids;
  TIDEMILL_TRY(values, settings->GetOneOrMoreInts(key));
  for (const int64_t value : values) {
    if (value < 0 || static_cast<uint64_t>(value) >= vocab_size)
      return settings->Unexpected(key, "ids below the tokenizer's " + std::to_string(vocab_size));
    ids.push_back(static_cast<int32_t>(value));
  }
  return ids;
}

}  // namespace

Result<Tokenizer> ReadFolderTokenizer(const ModelFiles& files) {
  if (!files.has_tokenizer()) {
    return Error(ErrorCode::kNotFound,
                 "tokenizer.json: not in the folder; text needs it (transformers' save_pretrained of a fast tokenizer "
                 "writes it), or tokenizer.model, or vocab.json and merges.txt");
  }
  const char* const name = files.tokenizer_json()  ? "tokenizer.json"
                           : files.sentencepiece() ? "tokenizer.model"
                                                   : "vocab.json and merges.txt";
  auto read = files.tokenizer_json() ? ReadTokenizerJson(*files.tokenizer_json())
                                     : ReadSlowTokenizer({.sentencepiece = files.sentencepiece(),
                                                          .vocab_json = files.vocab_json(),
                                                          .merges_txt = files.merges_txt(),
                                                          .tokenizer_config = files.tokenizer_config(),
                                                          .added_tokens = files.added_tokens()});
  if (!read.ok()) return std::move(read).error().WithContext(name);
  TokenizerSpec spec = std::move(read).value();
  TIDEMILL_TRY(bos, ReadIds(files, "bos_token_id", spec.tokens.size()));
  TIDEMILL_TRY(eos, ReadIds(files, "eos_token_id", spec.tokens.size()));
  if (!spec.bos_id.has_value() && !bos.empty()) spec.bos_id = bos.front();
  if (!spec.eos_id.has_value() && !eos.empty()) spec.eos_id = eos.front();
  spec.end_of_generation_ids.insert(spec.end_of_generation_ids.end(), eos.begin(), eos.end());
  return CreateTokenizer(std::move(spec)).WithContext(name);
}

Result<void> ReadFolderSpecialTokens(const ModelFiles& files, ModelText* text) {
  const JsonDocument* config = files.tokenizer_config();
  if (config == nullptr) return {};
  // A string, or an object as an added token is written; null: there is none.
  const auto read = [&](std::string_view key) -> Result<std::string> {
    if (config->IsNull(key)) return std::string();
    const std::string path = std::string(key) + (config->Find(key)->is_object() ? ".content" : "");
    TIDEMILL_TRY(token, config->GetString(path));
    return std::string(token);
  };
  for (const auto& [key, token] : {std::pair{"bos_token", &text->bos_token}, {"eos_token", &text->eos_token}}) {
    if (!config->Find(key)) continue;
    TIDEMILL_TRY(spelling, read(key));
    *token = std::move(spelling);
  }
  for (const char* key : {"unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
    if (!config->Find(key)) continue;
    TIDEMILL_TRY(spelling, read(key));
    if (!spelling.empty()) text->special_tokens.emplace_back(key, std::move(spelling));
  }
  // Named ones of a model's own: {"image_token": "<image>"}.
  if (config->Has("extra_special_tokens") && config->Find("extra_special_tokens")->is_object()) {
    TIDEMILL_TRY(extra, config->GetObject("extra_special_tokens"));
    for (const auto& [name, value] : extra.Members()) {
      const auto content = value.is_object() ? value.Member("content") : std::optional(value);
      if (!content || !content->is_string()) {
        return config->Unexpected("extra_special_tokens." + std::string(name), "a token");
      }
      text->special_tokens.emplace_back(std::string(name), std::string(content->text()));
    }
  }
  return {};
}

}  // namespace tidemill
