// What the generation_config.json of a model folder recommends.
#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/model_impl.h"

namespace tidemill {
namespace {

constexpr int32_t kMaxInt = std::numeric_limits<int32_t>::max();

Result<float> ReadNumber(const JsonDocument& config, const char* key, double fallback, const NumberRange& range) {
  TIDEMILL_TRY(number, config.GetFloatOr(key, fallback));
  if (!(number >= range.low && number <= range.high)) return config.Unexpected(key, range.expected);
  return static_cast<float>(number);
}

// Of a key that is there: an id, or a list of them.
Result<std::vector<int32_t>> ReadIds(const JsonValue& config, const std::string& key) {
  std::vector<int32_t> ids;
  TIDEMILL_TRY(values, config.GetOneOrMoreInts(key));
  for (const int64_t id : values) {
    if (id < 0 || id > kMaxInt) return config.Unexpected(key, "ids of tokens");
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

Result<void> ReadLengths(const JsonDocument& config, GenerationOptions& options) {
  for (const auto& [key, limit] :
       {std::pair{"max_new_tokens", &options.max_new_tokens}, {"max_length", &options.max_length}}) {
    if (!config.Has(key)) continue;
    TIDEMILL_TRY(tokens, config.GetInt(key, 1, kMaxInt));
    *limit = static_cast<int32_t>(tokens);
  }
  TIDEMILL_TRY(min_new, config.GetIntOr("min_new_tokens", 0, 0, options.max_new_tokens.value_or(kMaxInt)));
  options.min_new_tokens = static_cast<int32_t>(min_new);
  return {};
}

// As transformers has it, a list that is an end-of-sequence token alone is left out.
Result<void> ReadBadWords(const ModelFiles& files, GenerationOptions& options) {
  const JsonDocument& config = *files.generation_config();
  if (!config.Has("bad_words_ids")) return {};
  std::vector<int32_t> eos;
  std::optional<JsonValue> named = files.ConfigWith("eos_token_id");
  if (config.Has("eos_token_id")) named = config;
  if (named) {
    TIDEMILL_TRY(ids, ReadIds(*named, "eos_token_id"));
    eos = std::move(ids);
  }
  TIDEMILL_TRY(words, config.GetArray("bad_words_ids"));
  for (const JsonValue& word : words.Elements()) {
    if (!word.is_array() || word.size() == 0) return config.Unexpected("bad_words_ids", "lists of at least one id");
    TIDEMILL_TRY(ids, ReadIds(word, ""));
    const bool is_end = ids.size() == 1 && std::find(eos.begin(), eos.end(), ids[0]) != eos.end();
    if (!is_end) options.bad_words_ids.push_back(std::move(ids));
  }
  return {};
}

Result<void> ReadForcedAndSuppressed(const JsonDocument& config, GenerationOptions& options) {
  if (config.Has("forced_bos_token_id")) {
    TIDEMILL_TRY(id, config.GetInt("forced_bos_token_id", 0, kMaxInt));
    options.forced_bos_token_id = static_cast<int32_t>(id);
  }
  if (config.Has("forced_eos_token_id")) {
    TIDEMILL_TRY(ids, ReadIds(config, "forced_eos_token_id"));
    options.forced_eos_token_id = std::move(ids);
  }
  for (const auto& [key, ids] : {std::pair{"suppress_tokens", &options.suppress_tokens},
                                 {"begin_suppress_tokens", &options.begin_suppress_tokens}}) {
    if (!config.Has(key)) continue;
    TIDEMILL_TRY_VOID(config.GetArray(key));
    TIDEMILL_TRY(read, ReadIds(config, key));
    *ids = std::move(read);
  }
  return {};
}

Result<void> ReadStops(const JsonDocument& config, GenerationOptions& options) {
  constexpr const char* kKey = "stop_strings";
  if (!config.Has(kKey)) return {};
  if (config.Peek(kKey)->is_string()) {
    TIDEMILL_TRY(stop, config.GetString(kKey));
    options.stop.emplace_back(stop);
  } else {
    TIDEMILL_TRY(stops, config.GetStrings(kKey));
    options.stop.assign(stops.begin(), stops.end());
  }
  return {};
}

Result<void> ReadChoice(const JsonDocument& config, RecommendedGeneration& recommended) {
  GenerationOptions& options = recommended.options;
  const auto has = [&](const char* key) { return config.Has(key); };
  const bool has_sampling = has("temperature") || has("top_k") || has("top_p") || has("min_p");
  recommended.says_how_to_choose = has_sampling || has("do_sample");
  TIDEMILL_TRY(is_sampled, config.GetBoolOr("do_sample", has_sampling));
  if (!is_sampled) {  // do_sample says so, whatever these say
    for (const char* key : {"temperature", "top_k", "top_p", "min_p"}) static_cast<void>(config.Find(key));
    return {};
  }
  // transformers' defaults where the file samples and says no more.
  TIDEMILL_TRY(temperature, ReadNumber(config, "temperature", 1, kTemperatures));
  TIDEMILL_TRY(top_k, config.GetIntOr("top_k", kTransformersTopK, -1, 1 << 24));
  TIDEMILL_TRY(top_p, ReadNumber(config, "top_p", 1, kTopPs));
  TIDEMILL_TRY(min_p, ReadNumber(config, "min_p", 0, kMinPs));
  options.temperature = temperature;
  options.top_k = static_cast<int32_t>(std::max<int64_t>(top_k, 0));  // -1, too, is all tokens
  options.top_p = top_p;
  options.min_p = min_p;
  return {};
}

}  // namespace

Result<RecommendedGeneration> ReadFolderRecommendation(const ModelFiles& files) {
  RecommendedGeneration recommended;
  GenerationOptions& options = recommended.options;
  if (files.generation_config() == nullptr) return recommended;
  const JsonDocument& config = *files.generation_config();
  TIDEMILL_TRY(penalty, ReadNumber(config, "repetition_penalty", 1, kRepetitionPenalties));
  options.repetition_penalty = penalty;
  TIDEMILL_TRY(no_repeat, config.GetIntOr("no_repeat_ngram_size", 0, 0, kMaxInt));
  options.no_repeat_ngram_size = static_cast<int32_t>(no_repeat);
  TIDEMILL_TRY_VOID(ReadLengths(config, options));
  TIDEMILL_TRY_VOID(ReadBadWords(files, options));
  TIDEMILL_TRY_VOID(ReadForcedAndSuppressed(config, options));
  TIDEMILL_TRY_VOID(ReadStops(config, options));
  TIDEMILL_TRY_VOID(ReadChoice(config, recommended));
  return recommended;
}

}  // namespace tidemill
