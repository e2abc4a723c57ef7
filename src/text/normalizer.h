// Brings a text into the form that a vocabulary was made for, as the normalizer of a tokenizer.json says: step after step.
// Bytes that are not part of valid UTF-8 stay as they are; expressions match in the stretches between them.
#ifndef TIDEMILL_TEXT_NORMALIZER_H_
#define TIDEMILL_TEXT_NORMALIZER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/chars_map.h"
#include "text/regex.h"
#include "tidemill/result.h"

namespace tidemill {

enum class NormalizerKind : uint8_t {
  kNfc,
  kNfd,
  kLowercase,       // character by character
  kReplace,         // each match of `pattern` by `content`
  kPrepend,         // `content` before a text that is not empty
  kStripLeft,       // white space
  kStripRight,      // white space
  kSpacesForWhite,  // a space for each white character
  kIsolateHan,      // a space before and after each character that BERT takes for Chinese
  kCharsMap,        // a SentencePiece model's character map, in `content`
};

struct NormalizerStep {
  NormalizerKind kind = NormalizerKind::kNfc;
  std::string pattern = {};  // of the dialect of regex.h, or not empty and
  bool is_literal = false;   // a text, which is found as it is
  std::string content = {};
  CharsMapSearch search = CharsMapSearch::kGraphemes;

  friend bool operator==(const NormalizerStep&, const NormalizerStep&) = default;
};

// What BERT's clean_text removes: control and format characters and those of private use.
inline constexpr std::string_view kBertRemoves = R"((?![\t\n\r])[\p{Cc}\p{Cf}\p{Co}]|\x{FFFD})";

// What BERT's tokenizers do to a text before they split it.
struct BertNormalizing {
  bool clean_text = true;
  bool isolate_han = true;
  bool strip_accents = true;
  bool lowercase = true;
};
std::vector<NormalizerStep> BertSteps(const BertNormalizing& settings);

// A text and, for each of its bytes, whether it is marked; no marks at all: nobody asks.
struct MarkedText {
  std::string text;
  std::vector<bool> marks;
};

// Of Normalizer and PreTokenizer: each is a pass over each text.
inline constexpr size_t kMaxTextSteps = 64;

class Normalizer {
 public:
  Normalizer() = default;  // leaves the text
  // Errors: those of Regex::Compile and CharsMap::Create; kUnsupported for an empty pattern and for more than kMaxTextSteps.
  static Result<Normalizer> Create(std::vector<NormalizerStep> steps);

  bool empty() const { return steps_.empty(); }

  // Errors: those of Regex::Find, and kInvalidArgument when the text grows to more than `max_bytes`. Cost: linear in the text for each step.
  Result<std::string> Normalize(std::string_view text, size_t max_bytes, Regex::Scratch& scratch,
                                RegexBudget& budget) const;
  // The same, with a mark for each byte: what a step makes of marked bytes is marked; what it makes of both, too.
  Result<MarkedText> Normalize(MarkedText text, size_t max_bytes, Regex::Scratch& scratch, RegexBudget& budget) const;

 private:
  struct Step {
    NormalizerStep spec;
    std::optional<Regex> regex;
    CharsMap map;
  };

  std::vector<Step> steps_;
};

}  // namespace tidemill

#endif  // TIDEMILL_TEXT_NORMALIZER_H_
