#include "text/token_list.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/printable_name.h"
#include "text/piece_symbols.h"
#include "text/tokenizer_steps.h"

namespace tidemill {
namespace {

// So many ids may be without a token.
constexpr uint64_t kMaxGaps = 65536;

}  // namespace

Result<AddedEntry> ReadAddedToken(const JsonValue& entry, const std::string& where) {
  if (!entry.is_object()) return Corrupt(where + ": expected an object, found another value");
  AddedEntry added;
  TIDEMILL_TRY(text, GetString(entry, "content", where));
  if (text.empty()) return Corrupt(where + ": expected some content, found none");
  added.text = std::move(text);
  const std::string name = "added token " + QuoteName(added.text);
  TIDEMILL_TRY(special, GetBool(entry, "special", name, false));
  added.special = special;
  for (const auto& [key, flag, fallback] : {std::tuple{"single_word", &added.flags.single_word, false},
                                            {"lstrip", &added.flags.lstrip, false},
                                            {"rstrip", &added.flags.rstrip, false},
                                            {"normalized", &added.flags.normalized, !special}}) {
    TIDEMILL_TRY(is_set, GetBool(entry, key, name, fallback));
    *flag = is_set;
  }
  return added;
}

Result<void> PlaceTokens(std::vector<TokenizerDocument::Token> vocabulary, std::vector<AddedEntry> added,
                         bool has_byte_tokens, TokenizerSpec& spec) {
  const size_t most = vocabulary.size() + added.size() + kMaxGaps;
  spec.tokens.resize(most);
  spec.types.resize(most, TokenType::kUnused);
  std::vector<bool> is_there(most, false);
  size_t num_tokens = 0;  // up to the last that is there
  const auto check_id = [&](uint64_t id, const std::string& name) -> Result<void> {
    if (id < most) return {};
    return Unsupported("token " + QuoteName(name) + ": expected an id below " + std::to_string(most) + ", as many as " +
                       "there are tokens and " + std::to_string(kMaxGaps) + " gaps, found " + std::to_string(id));
  };
  const auto twice = [&](uint64_t id, const std::string& name) {
    return Corrupt("token " + QuoteName(name) + ": id " + std::to_string(id) + ": expected one token, found also " +
                   QuoteName(spec.tokens[id]));
  };
  for (TokenizerDocument::Token& token : vocabulary) {
    TIDEMILL_TRY_VOID(check_id(token.id, token.name));
    if (is_there[token.id]) return twice(token.id, token.name);
    is_there[token.id] = true;
    num_tokens = std::max<size_t>(num_tokens, token.id + 1);
    spec.types[token.id] = has_byte_tokens && ReadByteToken(token.name) ? TokenType::kByte : TokenType::kNormal;
    spec.tokens[token.id] = std::move(token.name);
  }
  for (AddedEntry& entry : added) {
    TIDEMILL_TRY_VOID(check_id(entry.id, entry.text));
    if (is_there[entry.id] && spec.tokens[entry.id] != entry.text) return twice(entry.id, entry.text);
    num_tokens = std::max<size_t>(num_tokens, entry.id + 1);
    is_there[entry.id] = true;
    spec.tokens[entry.id] = std::move(entry.text);
    spec.types[entry.id] = entry.special ? TokenType::kControl : TokenType::kUserDefined;
    entry.flags.id = static_cast<int32_t>(entry.id);
    if (entry.flags.single_word || entry.flags.lstrip || entry.flags.rstrip || entry.flags.normalized)
      spec.added_flags.push_back(entry.flags);
  }
  spec.tokens.resize(num_tokens);
  spec.types.resize(num_tokens);
  return {};
}

}  // namespace tidemill
