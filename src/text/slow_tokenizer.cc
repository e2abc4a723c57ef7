#include "text/slow_tokenizer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <new>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/printable_name.h"
#include "text/sentencepiece_model.h"
#include "text/token_list.h"
#include "text/tokenizer_steps.h"

namespace tidemill {
namespace {

constexpr std::array kSpecialKeys = {"bos_token", "eos_token", "unk_token", "sep_token",
                                     "pad_token", "cls_token", "mask_token"};

// The token called `key`, a string or an object; `fallback` where the file does not say.
std::string SpecialToken(const SlowTokenizerFiles& files, const char* key, std::string_view fallback) {
  const JsonDocument* const config = files.tokenizer_config;
  const auto token = config == nullptr ? std::nullopt : config->Member(key);
  if (!token) return std::string(fallback);
  const auto content = token->is_object() ? token->Member("content") : token;
  return content && content->is_string() ? std::string(content->text()) : std::string();
}

Result<bool> Flag(const SlowTokenizerFiles& files, const char* key, bool fallback) {
  return files.tokenizer_config == nullptr ? fallback : files.tokenizer_config->GetBoolOr(key, fallback);
}

// tokenizer_class without "Fast"; empty: none is named.
Result<std::string> ReadClass(const SlowTokenizerFiles& files) {
  if (files.tokenizer_config == nullptr) return std::string();
  TIDEMILL_TRY(name, files.tokenizer_config->GetStringOr("tokenizer_class", ""));
  if (name.ends_with("Fast")) name.remove_suffix(4);
  return std::string(name);
}

Error OtherClass(std::string_view name, std::string_view expected) {
  return Unsupported("tokenizer_config.json: \"tokenizer_class\": expected " + std::string(expected) +
                     " for a folder without tokenizer.json, found " + QuoteName(name) +
                     "; save it once with transformers' AutoTokenizer, which writes tokenizer.json");
}

Result<uint64_t> ReadId(std::string_view digits, const std::string& where) {
  uint64_t id = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), id);
  if (error != std::errc() || end != digits.data() + digits.size())
    return Corrupt(where + ": expected an id, found " + QuoteName(digits));
  return id;
}

// added_tokens_decoder: {"0": {"content": ...}}, or else added_tokens.json: {"<token>": 0}.
Result<std::vector<AddedEntry>> ReadAdded(const SlowTokenizerFiles& files) {
  std::vector<AddedEntry> added;
  constexpr const char* kDecoder = "added_tokens_decoder";
  if (files.tokenizer_config != nullptr && files.tokenizer_config->Has(kDecoder)) {
    TIDEMILL_TRY(decoder, files.tokenizer_config->GetObject(kDecoder));
    for (const auto& [digits, value] : decoder.Members()) {
      const std::string where = "tokenizer_config.json: added_tokens_decoder: " + QuoteName(digits);
      TIDEMILL_TRY(entry, ReadAddedToken(value, where));
      TIDEMILL_TRY(id, ReadId(digits, where));
      entry.id = id;
      added.push_back(std::move(entry));
    }
    return added;
  }
  if (files.added_tokens == nullptr) return added;
  for (const auto& [name, value] : files.added_tokens->Members()) {
    AddedEntry entry;
    entry.text = name;
    entry.special = true;  // the file does not say which are: so a caller's text may make none of them
    TIDEMILL_TRY(id, value.GetUint("", 0, std::numeric_limits<int32_t>::max()));
    entry.id = id;
    added.push_back(std::move(entry));
  }
  return added;
}

std::optional<int32_t> FindToken(const TokenizerSpec& spec, std::string_view name) {
  const auto found = name.empty() ? spec.tokens.end() : std::find(spec.tokens.begin(), spec.tokens.end(), name);
  return found == spec.tokens.end() ? std::nullopt : std::optional(static_cast<int32_t>(found - spec.tokens.begin()));
}

// The tokens that tokenizer_config.json names are special.
void MarkSpecial(const SlowTokenizerFiles& files, TokenizerSpec& spec) {
  std::unordered_map<std::string_view, size_t> ids;
  for (size_t id = 0; id < spec.tokens.size(); ++id) ids.emplace(spec.tokens[id], id);
  const auto mark = [&](std::string_view name) {
    const auto found = ids.find(name);
    if (found != ids.end() && !name.empty()) spec.types[found->second] = TokenType::kControl;
  };
  for (const char* key : kSpecialKeys) mark(SpecialToken(files, key, ""));
  const auto more =
      files.tokenizer_config == nullptr ? std::nullopt : files.tokenizer_config->Member("additional_special_tokens");
  for (const JsonValue& token : more ? more->Elements() : std::vector<JsonValue>()) {
    const auto content = token.is_object() ? token.Member("content") : std::optional(token);
    if (content && content->is_string()) mark(content->text());
  }
}

// Adds tokens to a vocabulary that is already there.
Result<void> AddTokens(std::vector<AddedEntry> added, TokenizerSpec& spec) {
  std::vector<TokenizerDocument::Token> vocabulary;
  vocabulary.reserve(spec.tokens.size());
  for (size_t id = 0; id < spec.tokens.size(); ++id) vocabulary.push_back({std::move(spec.tokens[id]), id, 0});
  const std::vector<TokenType> types = std::move(spec.types);
  TIDEMILL_TRY_VOID(PlaceTokens(std::move(vocabulary), std::move(added), false, spec));
  // A model's own types stand, but that it knows less than its folder of which are special.
  for (size_t id = 0; id < types.size(); ++id) {
    const bool was_special = types[id] == TokenType::kControl || types[id] == TokenType::kUnknown;
    if (was_special || spec.types[id] == TokenType::kNormal) spec.types[id] = types[id];
  }
  if (!spec.scores.empty()) spec.scores.resize(spec.tokens.size());
  return {};
}

Result<TokenizerSpec> ReadPieces(const SlowTokenizerFiles& files) {
  TIDEMILL_TRY(spec, ReadSentencePieceModel(*files.sentencepiece));
  TIDEMILL_TRY(name, ReadClass(files));
  const bool is_t5 = name == "T5Tokenizer" || (name.empty() && spec.kind == VocabularyKind::kUnigram);
  if (!name.empty() && !is_t5 && name != "LlamaTokenizer" && name != "GemmaTokenizer" && name != "CodeLlamaTokenizer")
    return OtherClass(name, "LlamaTokenizer, CodeLlamaTokenizer, GemmaTokenizer or T5Tokenizer");
  TIDEMILL_TRY(added, ReadAdded(files));
  TIDEMILL_TRY_VOID(AddTokens(std::move(added), spec));
  MarkSpecial(files, spec);
  // transformers puts none where tokenizer_config.json does not say so; a model file alone is as its maker used it.
  TIDEMILL_TRY(add_bos, Flag(files, "add_bos_token", !is_t5 && files.tokenizer_config == nullptr));
  TIDEMILL_TRY(add_eos, Flag(files, "add_eos_token", is_t5));
  spec.add_bos = add_bos && spec.bos_id.has_value();
  spec.add_eos = add_eos && spec.eos_id.has_value();
  return spec;
}

Result<std::vector<TokenizerDocument::Token>> ReadVocabulary(std::string_view text) {
  const JsonDocumentLimits limits = {.max_bytes = kMaxDocumentBytes, .max_values = kMaxDocumentTokens + 1};
  TIDEMILL_TRY(document, JsonDocument::Parse("vocab.json", text, limits));
  std::vector<TokenizerDocument::Token> vocabulary;
  for (const auto& [name, value] : document.Members()) {
    TIDEMILL_TRY(id, value.GetUint("", 0, std::numeric_limits<int32_t>::max()));
    vocabulary.push_back({std::string(name), id, 0});
  }
  return vocabulary;
}

// A line is a merge; one that begins with "#version" says which form it is.
Result<std::vector<std::string>> ReadMerges(std::string_view text) {
  std::vector<std::string> merges;
  for (bool is_first = true; !text.empty(); is_first = false) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || (is_first && line.starts_with("#version"))) continue;
    if (merges.size() == kMaxDocumentMerges)
      return Unsupported("merges.txt: expected at most " + std::to_string(kMaxDocumentMerges) + " merges");
    merges.emplace_back(line);
  }
  return merges;
}

Result<TokenizerSpec> ReadByteLevel(const SlowTokenizerFiles& files) {
  if (!files.vocab_json || !files.merges_txt) {
    return Error(ErrorCode::kNotFound, std::string(files.vocab_json ? "merges.txt" : "vocab.json") +
                                           ": not in the folder, which has its other half; a byte-level vocabulary "
                                           "needs both");
  }
  TIDEMILL_TRY(name, ReadClass(files));
  const bool is_qwen = name == "Qwen2Tokenizer";
  const bool is_roberta = name == "RobertaTokenizer" || name == "BartTokenizer";
  if (!name.empty() && !is_qwen && !is_roberta && name != "GPT2Tokenizer")
    return OtherClass(name, "GPT2Tokenizer, Qwen2Tokenizer, RobertaTokenizer or BartTokenizer");
  TokenizerSpec spec;
  TIDEMILL_TRY(vocabulary, ReadVocabulary(*files.vocab_json));
  TIDEMILL_TRY(merges, ReadMerges(*files.merges_txt));
  spec.merges = std::move(merges);
  TIDEMILL_TRY(added, ReadAdded(files));
  TIDEMILL_TRY_VOID(PlaceTokens(std::move(vocabulary), std::move(added), false, spec));
  MarkSpecial(files, spec);
  TIDEMILL_TRY(prefix_space, Flag(files, "add_prefix_space", false));
  if (prefix_space) spec.pre_tokenizer.push_back({.kind = PreTokenizerKind::kPrefixSpace});
  const WordRule rule = is_qwen ? WordRule::kQwen2 : WordRule::kGpt2;
  spec.pre_tokenizer.push_back(PreTokenizerStep::Split(std::string(ExpressionOf(rule))));
  if (is_qwen) spec.normalizer.push_back({.kind = NormalizerKind::kNfc});
  spec.bos_id = FindToken(spec, SpecialToken(files, "bos_token", is_roberta ? "<s>" : is_qwen ? "" : "<|endoftext|>"));
  spec.eos_id = FindToken(spec, SpecialToken(files, "eos_token", is_roberta ? "</s>" : "<|endoftext|>"));
  for (const auto id : {spec.bos_id, spec.eos_id})
    if (id) spec.types[static_cast<size_t>(*id)] = TokenType::kControl;
  TIDEMILL_TRY(add_bos, Flag(files, "add_bos_token", is_roberta));
  spec.add_bos = add_bos && spec.bos_id.has_value();
  spec.add_eos = is_roberta && spec.eos_id.has_value();
  return spec;
}

}  // namespace

Result<TokenizerSpec> ReadSlowTokenizer(const SlowTokenizerFiles& files) {
  try {
    return files.sentencepiece ? ReadPieces(files) : ReadByteLevel(files);
  } catch (const std::bad_alloc&) {
    return Error(ErrorCode::kOutOfMemory, "read tokenizer: not enough memory");
  }
}

}  // namespace tidemill
