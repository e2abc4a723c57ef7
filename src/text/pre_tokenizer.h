// Cuts a text into words, the units that a vocabulary encodes, as the pre_tokenizer of a tokenizer.json says: step after step, each on
// the pieces of the one before. The step of most byte-level vocabularies, one known expression, is a WordRule and needs no list of words.
//
// A byte that is not part of valid UTF-8 is a character of its own, neither letter, number, space nor punctuation (a control character).
#ifndef TIDEMILL_TEXT_PRE_TOKENIZER_H_
#define TIDEMILL_TEXT_PRE_TOKENIZER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/regex.h"
#include "text/word_splitter.h"
#include "tidemill/result.h"

namespace tidemill {

// What becomes of the matches of a Split. With `invert`, of what lies between them.
enum class SplitBehavior : uint8_t { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

// Which pieces get a leading U+2581 (a leading space) that do not begin with one: all, the one that begins the input, none.
enum class PrependScheme : uint8_t { kAlways, kFirst, kNever };

enum class PreTokenizerKind : uint8_t {
  kSplit,        // at the matches of `expression`
  kPrefixSpace,  // ByteLevel's add_prefix_space: a space before each piece that does not begin with one
  kMetaspace,    // spaces become `replacement`, one is put in front by `scheme`; with `split` a piece begins at each
  kSpellBytes,   // bytes become characters of the byte alphabet (byte_alphabet.h), where ByteLevel is not the last step
};

struct PreTokenizerStep {
  PreTokenizerKind kind = PreTokenizerKind::kSplit;
  std::string expression = {};  // of the dialect of regex.h
  bool is_literal = false;      // the expression is a text, which is found as it is
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;
  std::string replacement = {};  // not empty
  PrependScheme scheme = PrependScheme::kNever;
  bool split = true;

  static PreTokenizerStep Split(std::string expression, SplitBehavior behavior = SplitBehavior::kIsolated);
  friend bool operator==(const PreTokenizerStep&, const PreTokenizerStep&) = default;
};

// Punctuation as the library `tokenizers` has it: Unicode's, and what else ASCII has.
inline constexpr std::string_view kPunctuationClass = R"([\p{P}$+<=>^`|~])";

// What BERT's tokenizers split at: white space, which goes, and punctuation.
std::vector<PreTokenizerStep> BertWords();

// Words of one text. Their memory is reused.
struct Words {
  std::string text;             // what the words lie in
  std::string masked;           // `text` with a control character for each byte that is not valid; empty: all are
  std::vector<ByteRange> list;  // ascending, none empty
  Regex::Scratch regex;

  std::string_view subject() const { return masked.empty() ? text : masked; }
};

class PreTokenizer {
 public:
  PreTokenizer() = default;  // the text as one word
  // Errors: those of Regex::Compile; kUnsupported for an empty text to split at and for more than kMaxTextSteps (normalizer.h).
  static Result<PreTokenizer> Create(std::vector<PreTokenizerStep> steps);

  // The rule that is all of the steps, if so.
  std::optional<WordRule> rule() const { return rule_; }
  // Whether words come out in the byte alphabet.
  bool spells_bytes() const { return spells_bytes_; }
  bool empty() const { return steps_.empty(); }

  // The words of `text`. `begins_input`: whether it stands at the start of what is encoded. Errors: those of Regex::Find.
  // Cost: linear in the text for each step, as far as its expression is.
  Result<void> Split(std::string_view text, bool begins_input, RegexBudget& budget, Words& words) const;

 private:
  struct Step {
    PreTokenizerStep spec;
    std::optional<Regex> regex;
    std::optional<WordRule> rule;  // what `regex` would do
  };

  std::vector<Step> steps_;
  std::optional<WordRule> rule_;
  bool spells_bytes_ = false;
};

// The steps that a GGUF file means by the name in tokenizer.ggml.pre, and what else such a name says. Nothing for an unknown name.
struct NamedPreTokenizer {
  std::vector<PreTokenizerStep> steps;
  bool ignore_merges = false;
  bool adds_bos = false;      // unless the file says otherwise
  bool is_byte_level = true;  // else characters merge, spaces spelled U+2581
};
std::optional<NamedPreTokenizer> FindPreTokenizer(std::string_view name);

// The names that FindPreTokenizer knows, for messages: "gpt-2, llama-bpe, ...".
std::string KnownPreTokenizers();

}  // namespace tidemill

#endif  // TIDEMILL_TEXT_PRE_TOKENIZER_H_
