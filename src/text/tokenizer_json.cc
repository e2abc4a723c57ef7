#include "text/tokenizer_json.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/printable_name.h"
#include "text/byte_alphabet.h"
#include "text/piece_symbols.h"
#include "text/tokenizer_document.h"
#include "text/tokenizer_steps.h"

namespace tidemill {
namespace {

constexpr std::string_view kReadTokenizerJson = "read tokenizer.json";

struct AddedEntry {
  std::string text;
  uint64_t id = 0;
  bool special = false;
  bool normalized = false;
};

Result<AddedEntry> ReadAddedToken(const JsonValue& entry, size_t index) {
  const std::string where = "added_tokens: entry " + std::to_string(index);
  if (!entry.is_object()) return Corrupt(where + ": expected an object, found another value");
  AddedEntry added;
  TIDEMILL_TRY(text, GetString(entry, "content", where));
  if (text.empty()) return Corrupt(where + ": expected some content, found none");
  added.text = std::move(text);
  const std::string name = "added token " + QuoteName(added.text);
  const auto id = entry.GetUint("id", 0, UINT64_MAX);
  if (!id.ok()) return Corrupt(name + ": id: expected a number, found none");
  added.id = *id;
  for (const char* const flag : {"single_word", "lstrip", "rstrip"}) {
    TIDEMILL_TRY(is_set, GetBool(entry, flag, name, false));
    if (is_set) return Unsupported(name + ": " + flag + ": expected false, found true");
  }
  TIDEMILL_TRY(special, GetBool(entry, "special", name, false));
  added.special = special;
  TIDEMILL_TRY(normalized, GetBool(entry, "normalized", name, !special));
  added.normalized = normalized;
  return added;
}

// The original cuts out tokens that are not normalised first, from all of the text, and then the others from what is left.
// That is one search for both where no token of one sort can overlap one of the other.
Result<void> CheckNormalized(const std::vector<AddedEntry>& added, bool has_normalizer) {
  std::array<std::array<bool, 256>, 2> holds{};
  for (const AddedEntry& entry : added) {
    if (entry.normalized && has_normalizer) {
      return Unsupported("added token " + QuoteName(entry.text) +
                         ": normalized: expected false where there is a normalizer, found true");
    }
    for (const char c : entry.text) holds[entry.normalized ? 1 : 0][static_cast<uint8_t>(c)] = true;
  }
  for (size_t byte = 0; byte < 256; ++byte) {
    if (holds[0][byte] && holds[1][byte]) {
      return Unsupported("added_tokens: expected all of them normalized or none, found both, which share byte " +
                         std::to_string(byte));
    }
  }
  return {};
}

Result<std::vector<AddedEntry>> ReadAddedTokens(const JsonValue& root, bool has_normalizer) {
  std::vector<AddedEntry> added;
  const auto entries = FindPart(root, "added_tokens");
  if (!entries) return added;
  if (!entries->is_array()) return Corrupt("added_tokens: expected a list, found another value");
  for (const JsonValue& entry : entries->Elements()) {
    TIDEMILL_TRY(token, ReadAddedToken(entry, added.size()));
    added.push_back(std::move(token));
  }
  TIDEMILL_TRY_VOID(CheckNormalized(added, has_normalizer));
  return added;
}

// The tokens by id: those of the model, then those added to it.
Result<void> PlaceTokens(std::vector<TokenizerDocument::Token> vocabulary, std::vector<AddedEntry> added,
                         TokenizerSpec& spec) {
  const size_t most = vocabulary.size() + added.size();
  spec.tokens.resize(most);
  spec.types.resize(most, TokenType::kNormal);
  std::vector<bool> is_there(most, false);
  size_t num_tokens = 0;
  const auto check_id = [&](uint64_t id, const std::string& name) -> Result<void> {
    if (id < most) return {};
    return Unsupported("token " + QuoteName(name) + ": expected ids without gaps below " + std::to_string(most) +
                       ", found " + std::to_string(id));
  };
  const auto twice = [&](uint64_t id, const std::string& name) {
    return Corrupt("token " + QuoteName(name) + ": id " + std::to_string(id) + ": expected one token, found also " +
                   QuoteName(spec.tokens[id]));
  };
  for (TokenizerDocument::Token& token : vocabulary) {
    TIDEMILL_TRY_VOID(check_id(token.id, token.name));
    if (is_there[token.id]) return twice(token.id, token.name);
    is_there[token.id] = true;
    ++num_tokens;
    if (spec.kind == VocabularyKind::kSentencePiece && ReadByteToken(token.name))
      spec.types[token.id] = TokenType::kByte;
    spec.tokens[token.id] = std::move(token.name);
  }
  for (AddedEntry& entry : added) {
    TIDEMILL_TRY_VOID(check_id(entry.id, entry.text));
    if (is_there[entry.id] && spec.tokens[entry.id] != entry.text) return twice(entry.id, entry.text);
    if (!is_there[entry.id]) ++num_tokens;
    is_there[entry.id] = true;
    spec.tokens[entry.id] = std::move(entry.text);
    spec.types[entry.id] = entry.special ? TokenType::kControl : TokenType::kUserDefined;
  }
  if (const size_t gap = static_cast<size_t>(std::find(is_there.begin(), is_there.end(), false) - is_there.begin());
      gap < num_tokens) {
    return Unsupported("vocabulary: expected ids without gaps, found none for id " + std::to_string(gap));
  }
  spec.tokens.resize(num_tokens);
  spec.types.resize(num_tokens);
  return {};
}

// A vocabulary without some byte would need the unknown token, which a byte-level tokenizer here never makes.
Result<void> CheckUnknownToken(const JsonValue& model, const TokenizerSpec& spec) {
  const auto unknown = FindPart(model, "unk_token");
  if (!unknown || spec.kind == VocabularyKind::kSentencePiece) return {};
  size_t num_bytes = 0;
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    const std::string& name = spec.tokens[id];
    if (spec.types[id] != TokenType::kControl && name.size() <= 2) {
      const auto bytes = ReadSpelledBytes(name);
      if (bytes && bytes->size() == 1) ++num_bytes;
    }
  }
  if (num_bytes == 256) return {};
  return Unsupported("model: unk_token: expected none, or a vocabulary with all 256 bytes, found " +
                     std::to_string(num_bytes));
}

Result<void> ReadModel(const JsonValue& model, TokenizerSpec& spec) {
  if (const auto type = FindPart(model, "type"); type && !IsText(*type, "BPE")) {
    return Unsupported("model: type " + DescribeString(*type) + ": expected BPE");
  }
  for (const char* const key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const auto value = FindPart(model, key);
    if (value && !IsText(*value, "")) {
      return Unsupported(std::string("model: ") + key + " " + DescribeString(*value) + ": expected none");
    }
  }
  if (const auto dropout = FindPart(model, "dropout"); dropout && !IsNumber(*dropout, 0)) {
    return Unsupported("model: dropout: expected none: the same text would get other ids each time");
  }
  TIDEMILL_TRY(byte_fallback, GetBool(model, "byte_fallback", "model", false));
  spec.kind = byte_fallback ? VocabularyKind::kSentencePiece : VocabularyKind::kByteLevel;
  TIDEMILL_TRY(ignore_merges, GetBool(model, "ignore_merges", "model", false));
  if (ignore_merges && byte_fallback) {
    return Unsupported("model: ignore_merges: expected false with byte_fallback, found true");
  }
  spec.ignore_merges = ignore_merges;
  return {};
}

Result<TokenizerSpec> Read(std::string_view text) {
  TIDEMILL_TRY(document, ParseTokenizerDocument(text));
  const JsonValue& root = document.rest;
  const auto model = FindPart(root, "model");
  if (!model || !model->is_object()) return Corrupt("model: expected an object, found none");
  TokenizerSpec spec;
  TIDEMILL_TRY_VOID(ReadModel(*model, spec));
  if (!document.has_vocabulary) return Corrupt("model.vocab: expected an object of tokens and ids, found none");
  if (!document.has_merges) return Corrupt("model.merges: expected a list, found none");
  spec.merges = std::move(document.merges);
  TIDEMILL_TRY_VOID(ReadSteps(root, spec));
  const bool has_normalizer = spec.kind == VocabularyKind::kSentencePiece || spec.normalize_nfc;
  TIDEMILL_TRY(added, ReadAddedTokens(root, has_normalizer));
  TIDEMILL_TRY_VOID(PlaceTokens(std::move(document.vocabulary), std::move(added), spec));
  TIDEMILL_TRY_VOID(CheckUnknownToken(*model, spec));
  return spec;
}

}  // namespace

Result<TokenizerSpec> ReadTokenizerJson(std::string_view json_text) {
  try {
    return Read(json_text).WithContext(kReadTokenizerJson);
  } catch (const std::bad_alloc&) {
    return Error(ErrorCode::kOutOfMemory, std::string(kReadTokenizerJson) + ": " + std::to_string(json_text.size()) +
                                              " bytes: not enough memory");
  }
}

}  // namespace tidemill
