// Cuts a template into tokens by the rules of Jinja 3.1 with trim_blocks and lstrip_blocks on, as Hugging Face
// transformers sets them. The newline after a block or comment tag goes away, and so does white space between the start of
// a line and such a tag. "-" beside a delimiter strips all white space on that side, "+" keeps it.
#ifndef TIDEMILL_TEXT_JINJA_LEXER_H_
#define TIDEMILL_TEXT_JINJA_LEXER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja_heap.h"

namespace tidemill::jinja {

enum class TokenType : uint8_t {
  kData,           // text to be printed as it is
  kVariableBegin,  // {{
  kVariableEnd,
  kBlockBegin,  // {%
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,  // text is the operator
  kEnd,
};

struct Token {
  TokenType type = TokenType::kEnd;
  uint32_t offset = 0;    // into the normalised source
  std::string_view text;  // data, name, operator, or the string with its escapes resolved; in the source or the heap
  int64_t integer = 0;
  double real = 0;
};

// Line ends become "\n" and one at the very end goes away: what Tokenize expects and what offsets refer to.
std::string NormalizeSource(std::string_view source);

// The last token is kEnd. `source` outlives the tokens.
std::vector<Token> Tokenize(Heap& heap, std::string_view source);

}  // namespace tidemill::jinja

#endif  // TIDEMILL_TEXT_JINJA_LEXER_H_
