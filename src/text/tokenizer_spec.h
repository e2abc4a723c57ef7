// A tokenizer as plain data: what a file says, before anything is checked. Readers of file formats fill it in.
#ifndef TIDEMILL_TEXT_TOKENIZER_SPEC_H_
#define TIDEMILL_TEXT_TOKENIZER_SPEC_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tidemill/result.h"
#include "tidemill/tokenizer.h"

namespace tidemill {

// With the numbers of tokenizer.ggml.token_type.
enum class TokenType : uint8_t {
  kNormal = 1,  // spelled in the byte alphabet (byte_alphabet.h); one with other characters stands for its own spelling
  kUnknown = 2,      // special; stands for its spelling, as the following two do
  kControl = 3,      // special: only a trusted writer may spell it
  kUserDefined = 4,  // recognised in any text
  kUnused = 5,       // never made from text
  kByte = 6,         // no byte-level vocabulary has these
};

struct TokenizerSpec {
  std::vector<std::string> tokens;  // by id; all differ
  std::vector<TokenType> types;     // by id; none at all: all are normal
  std::vector<std::string> merges;  // "LEFT RIGHT" by rank; LEFT, RIGHT and LEFTRIGHT are tokens. A pair may stand
                                    // there twice; then the later rank counts, as in the original implementation
  std::string pre_tokenizer;        // the name of the splitting rule: see FindWordRule
  std::optional<int32_t> bos_id;
  std::optional<int32_t> eos_id;
  std::vector<int32_t> end_of_generation_ids;  // besides eos_id and the control tokens with well-known names
  bool add_bos = false;                        // needs bos_id
  bool add_eos = false;                        // needs eos_id
  bool add_space_prefix = false;               // true is refused: no byte-level model we know has it
};

// Errors: kCorruptFile when the parts contradict each other, kUnsupported for a splitting rule or a setting we do not have,
// kOutOfMemory. Messages name the token or merge. Cost: O(size of the spec); the spec is taken over, not copied.
Result<Tokenizer> CreateTokenizer(TokenizerSpec spec);

}  // namespace tidemill

#endif  // TIDEMILL_TEXT_TOKENIZER_SPEC_H_
