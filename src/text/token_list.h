// The tokens of a vocabulary by id, from a list of names and one of added tokens, as tokenizer.json and older files have them.
#ifndef TIDEMILL_TEXT_TOKEN_LIST_H_
#define TIDEMILL_TEXT_TOKEN_LIST_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_document.h"
#include "text/tokenizer_document.h"
#include "text/tokenizer_spec.h"
#include "tidemill/result.h"

namespace tidemill {

struct AddedEntry {
  std::string text;
  uint64_t id = 0;
  bool special = false;
  AddedTokenFlags flags;
};

// {"content": ..., "special": ..., "lstrip": ..., ...} without its id; `where` stands in front of messages.
Result<AddedEntry> ReadAddedToken(const JsonValue& entry, const std::string& where);

// Sets tokens, types and added_flags of the spec: those of the model, then those added to it; what lies between is unused.
// `has_byte_tokens`: whether "<0x0A>" is a byte. Errors: kCorruptFile for two tokens of one id, kUnsupported for ids far beyond the rest.
Result<void> PlaceTokens(std::vector<TokenizerDocument::Token> vocabulary, std::vector<AddedEntry> added,
                         bool has_byte_tokens, TokenizerSpec& spec);

}  // namespace tidemill

#endif  // TIDEMILL_TEXT_TOKEN_LIST_H_
