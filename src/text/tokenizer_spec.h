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

enum class VocabularyKind : uint8_t {
  kByteLevel,      // text is split into words, and the bytes of each word merge
  kSentencePiece,  // the characters of whole stretches merge, spaces spelled U+2581; what has no token falls back to bytes
};

// With the numbers of tokenizer.ggml.token_type.
enum class TokenType : uint8_t {
  // Byte level: spelled in the byte alphabet (byte_alphabet.h); one with other characters stands for its own spelling.
  // SentencePiece: stands for its spelling with spaces for U+2581.
  kNormal = 1,
  kUnknown = 2,      // special; stands for its spelling, as the following two do
  kControl = 3,      // special: only a trusted writer may spell it
  kUserDefined = 4,  // recognised in any text. SentencePiece: else as a normal one
  kUnused = 5,       // never made from text
  kByte = 6,         // SentencePiece: "<0x0A>", the byte. No byte-level vocabulary has these
};

struct TokenizerSpec {
  VocabularyKind kind = VocabularyKind::kByteLevel;
  std::vector<std::string> tokens;  // by id; all differ
  std::vector<TokenType> types;     // by id; none at all: all are normal
  std::vector<float> scores;        // by id, all finite; SentencePiece without merges: what merges, the highest first
  std::vector<std::string> merges;  // "LEFT RIGHT" by rank; LEFT, RIGHT and LEFTRIGHT are tokens. A pair may stand
                                    // there twice; then the later rank counts, as in the original implementation
  std::string pre_tokenizer;        // byte level: the name of the splitting rule, see FindWordRule
  bool ignore_merges = false;       // byte level: a word that is a token becomes it without merging
  bool normalize_nfc = false;       // byte level: each stretch of text is first brought into Unicode's NFC
  std::optional<int32_t> bos_id;
  std::optional<int32_t> eos_id;
  std::vector<int32_t> end_of_generation_ids;  // besides eos_id and the control tokens with well-known names
  bool add_bos = false;                        // needs bos_id
  bool add_eos = false;                        // needs eos_id
  bool add_space_prefix = false;  // SentencePiece: a space before each stretch of text. Byte level: refused
};

// Errors: kCorruptFile when the parts contradict each other, kUnsupported for a splitting rule or a setting we do not have,
// kOutOfMemory. Messages name the token or merge. Cost: O(size of the spec), times the length of the longest token where scores
// merge; the spec is taken over, not copied.
Result<Tokenizer> CreateTokenizer(TokenizerSpec spec);

}  // namespace tidemill

#endif  // TIDEMILL_TEXT_TOKENIZER_SPEC_H_
