// A tokenizer as plain data: what a file says, before anything is checked. Readers of file formats fill it in.
#ifndef TIDEMILL_TEXT_TOKENIZER_SPEC_H_
#define TIDEMILL_TEXT_TOKENIZER_SPEC_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/word_pieces.h"
#include "tidemill/result.h"
#include "tidemill/tokenizer.h"

namespace tidemill {

// How a word becomes tokens.
enum class VocabularyKind : uint8_t {
  kByteLevel,      // its bytes merge
  kSentencePiece,  // its characters merge; what has no token falls back to bytes
  kUnigram,        // the cut of the highest score (unigram.h)
  kWordPiece,      // the longest tokens from the left (word_pieces.h)
  kWordLevel,      // the word is the token
};

// With the numbers of tokenizer.ggml.token_type.
enum class TokenType : uint8_t {
  kNormal = 1,       // stands for what TokenSpelling says
  kUnknown = 2,      // special; stands for its spelling, as the following two do
  kControl = 3,      // special: only a trusted writer may spell it
  kUserDefined = 4,  // recognised in any text. Not byte level: else as a normal one
  kUnused = 5,       // never made from text; may be spelled as another one, or not at all
  kByte = 6,         // "<0x0A>", the byte. No byte-level vocabulary has these
};

// How tokens that are not special spell text.
enum class TokenSpelling : uint8_t {
  kByteAlphabet,  // byte_alphabet.h; one with other characters stands for its own spelling
  kPieceSpaces,   // U+2581 for a space
  kWordPieces,    // a space before all that do not begin with the prefix "##" of the rest of a word, which goes
  kWords,         // a space before each
};

// What DecodeText takes from the start of a text, because Encode has put it there.
enum class LeadingSpace : uint8_t {
  kKept,
  kOneDropped,
  kAllDroppedOfFirstToken,
};

// How a token of type kControl, kUnknown or kUserDefined is recognised (added_tokens.h).
struct AddedTokenFlags {
  int32_t id = 0;
  bool single_word = false;
  bool lstrip = false;
  bool rstrip = false;
  bool normalized = false;  // in the normalised text, after those that are not, and itself normalised
};

struct TokenizerSpec {
  VocabularyKind kind = VocabularyKind::kByteLevel;
  std::vector<std::string> tokens;           // by id; all differ but unused ones
  std::vector<TokenType> types;              // by id; none at all: all are normal
  std::vector<AddedTokenFlags> added_flags;  // of those that have any, in any order
  std::vector<double>
      scores;  // by id, all finite; Unigram; SentencePiece without merges: what merges, the highest first
  std::vector<std::string> merges;  // "LEFT RIGHT" by rank; LEFT, RIGHT and LEFTRIGHT are tokens. A pair may stand
                                    // there twice; then the later rank counts, as in the original implementation
  bool merges_by_rank = false;      // also where there are no merges
  std::vector<NormalizerStep> normalizer;
  std::vector<PreTokenizerStep> pre_tokenizer;
  bool ignore_merges = false;        // a word that is a token becomes it without merging
  bool keeps_line_feeds = false;     // so does a word of line feeds alone
  std::optional<int32_t> unk_id;     // for what no token stands for; none: it is left out
  bool fuse_unk = true;              // one for unknown characters that follow each other. SentencePiece
  WordPieces::Prefixes prefixes;     // WordPiece
  size_t max_word_characters = 100;  // WordPiece: words of more are unknown
  TokenSpelling spelling = TokenSpelling::kByteAlphabet;
  bool cleans_up = false;  // WordPiece's decoder: no space before punctuation and English contractions
  LeadingSpace leading_space = LeadingSpace::kKept;
  std::optional<int32_t> bos_id;
  std::optional<int32_t> eos_id;
  std::vector<int32_t> end_of_generation_ids;  // besides eos_id and the control tokens with well-known names
  bool add_bos = false;                        // needs bos_id
  bool add_eos = false;                        // needs eos_id
  std::vector<int32_t> begin_ids, end_ids;     // else than these two: the tokens before each text, and behind it
};

// What a SentencePiece model does with a text: spaces spelled U+2581, one in front of each stretch if `space_prefix`; with
// `removes_spaces` before that none is left at both ends, nor two together.
std::vector<NormalizerStep> PieceSpaces(bool space_prefix, bool removes_spaces = false);

// Errors: kCorruptFile when the parts contradict each other, kUnsupported for a setting we do not have, those of Normalizer::Create and
// PreTokenizer::Create, kOutOfMemory. Messages name the token or merge. Cost: O(size of the spec), times the length of the longest token
// where scores merge; the spec is taken over, not copied.
Result<Tokenizer> CreateTokenizer(TokenizerSpec spec);

}  // namespace tidemill

#endif  // TIDEMILL_TEXT_TOKENIZER_SPEC_H_
