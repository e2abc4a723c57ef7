// Text to ids, once the rules are made: added tokens are cut out, what lies between is normalised, cut into words, and each word becomes tokens.
#ifndef TIDEMILL_TEXT_ENCODER_H_
#define TIDEMILL_TEXT_ENCODER_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer_impl.h"
#include "tidemill/result.h"

namespace tidemill {

// Appends the tokens of one text to `ids`. One per call of Encode.
class Encoder {
 public:
  Encoder(const Tokenizer::Impl& impl, size_t text_bytes, std::vector<int32_t>& ids)
      : impl_(impl), budget_(text_bytes), normalized_left_(kMaxGrowth * text_bytes + 4096), ids_(ids) {}

  // Errors: those of Normalizer::Normalize and PreTokenizer::Split.
  Result<void> EncodeAll(const AddedTokens::Search& search);

 private:
  // What lies between added tokens that are recognised as the text stands: [begin, end) of it.
  Result<void> EncodeBetween(const AddedTokens::Search& search, size_t begin, size_t end);
  Result<void> EncodeStretch(std::string_view text, bool begins_input);
  void EncodeWord(std::string_view word);
  void EncodeBytes(std::string_view word);
  void EncodePieces(std::string_view word);
  void EncodeUnigram(std::string_view word);
  // Appends to `out` a token for each byte, or else the unknown token, once for a run of `out` where it fuses.
  void AppendUnknown(std::string_view bytes, bool fuses, std::vector<int32_t>& out) const;
  void MergePieces();

  // A normaliser may make a text so much longer, and no more: no published one comes near.
  static constexpr size_t kMaxGrowth = 32;

  const Tokenizer::Impl& impl_;
  RegexBudget budget_;
  size_t normalized_left_;  // bytes that normalised text may still have
  std::vector<int32_t>& ids_;
  Words words_;
  std::string character_;
  std::vector<int32_t> symbols_;
  BytePairMerger::Scratch scratch_;
  Unigram::Scratch unigram_scratch_;
  std::vector<Unigram::Part> parts_;
};

}  // namespace tidemill

#endif  // TIDEMILL_TEXT_ENCODER_H_
