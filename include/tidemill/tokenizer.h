// Text to token ids and back: byte-pair encoding, over bytes as GPT-2 made it and its relatives use it, or over characters as
// SentencePiece does (Llama 2, Gemma); SentencePiece's Unigram (T5), WordPiece (BERT), whole words.
//
// Encoding has four steps. (1) Added tokens ("<|im_start|>") are cut out: at each position from left to right the longest
// one that may be recognised there. (2) Each stretch between them is normalised, if the vocabulary asks for it; added tokens that are normalised
// themselves are cut out now. (3) What is left is split into words by the vocabulary's splitting rule. (4) Each word becomes tokens. BPE: its bytes
// (characters) are merged pair by pair: always the pair of lowest rank, the leftmost of equals. A character that is then no token becomes a token
// for each of its bytes, or the unknown token.
//
// Any bytes are text. Bytes that are not valid UTF-8 are never dropped or replaced: for the splitting rule each one is a
// character that is neither letter, number nor space. In a byte-level vocabulary Decode(Encode(s)) == s for every s, with these exceptions, which are
// the vocabulary's own. One that lacks some byte (SmolLM2's lacks 21 that hardly occur) has no way to say it: Encode leaves
// that byte out, as the original implementation does, and `dropped_bytes()` names it. One that normalises (Qwen's tokenizer.json wants NFC) gives
// back each stretch as it is then; one whose splitting rule removes text does not give it back. SentencePiece gives back U+2581 as a space, and
// where it puts a space before each stretch (Llama 2) gives back that space, too: Decode cannot know whether ids begin a text; DecodeText does.
//
// Special tokens are those a user must not be able to write: control tokens of the vocabulary. Added tokens that are not
// special ("<tool_call>" in some vocabularies) are ordinary text and are recognised everywhere.
#ifndef TIDEMILL_TOKENIZER_H_
#define TIDEMILL_TOKENIZER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tidemill/result.h"

namespace tidemill {

// The bytes [begin, end) of a text.
struct ByteRange {
  size_t begin = 0;
  size_t end = 0;

  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};

// A text of which some bytes came from somebody who is not trusted to write special tokens: a user's message inside a
// rendered chat template. `caller` is sorted and its ranges do not overlap.
struct PromptText {
  std::string text;
  std::vector<ByteRange> caller = {};
};

struct EncodeOptions {
  bool add_special = true;    // put the beginning-of-sequence (end-of-sequence) token where the vocabulary asks for one
  bool parse_special = true;  // text that spells a special token becomes that token
};

// Immutable: any number of threads may call it at once. Movable, not copyable. Ids are [0, vocab_size()).
class Tokenizer {
 public:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<const Impl> impl);  // models make them; `impl` is not null
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Errors: kInvalidArgument for more than 64 MiB of text, and where a splitting rule's expression takes more work than its text may (regex.h);
  // kOutOfMemory. Cost: O(n log n), memory O(n).
  Result<std::vector<int32_t>> Encode(std::string_view text, EncodeOptions options = {}) const;
  // The same, but a special token is recognised only where none of its bytes lies in a range of `prompt.caller`. Where no
  // special token is recognised the text is split as one text, whatever the ranges are. Also kInvalidArgument when the
  // ranges are not sorted, overlap or leave the text.
  Result<std::vector<int32_t>> Encode(const PromptText& prompt, EncodeOptions options = {}) const;

  // The bytes that the tokens stand for, one after another: not always valid UTF-8. Special tokens are left out unless
  // `keep_special`. kInvalidArgument names the first id that is out of range.
  Result<std::string> Decode(std::span<const int32_t> ids, bool keep_special) const;

  // The text whose ids these are, from its start: what Decode gives, less the space that Encode has put in front of it (SentencePiece).
  Result<std::string> DecodeText(std::span<const int32_t> ids, bool keep_special) const;

  // What a token stands for: the bytes that Decode writes. Empty for an id out of range. Lives as long as the tokenizer.
  std::string_view TokenBytes(int32_t id) const;
  // The token as the vocabulary spells it ("Ġthe"). Empty for an id out of range. Lives as long as the tokenizer.
  std::string_view TokenName(int32_t id) const;
  // The id of the token that the vocabulary spells so.
  std::optional<int32_t> FindToken(std::string_view name) const;

  size_t vocab_size() const;
  std::optional<int32_t> bos_id() const;
  std::optional<int32_t> eos_id() const;
  bool adds_bos() const;
  bool adds_eos() const;
  bool IsSpecial(int32_t id) const;          // false for an id out of range
  bool IsEndOfGeneration(int32_t id) const;  // end of text, of turn or of message: a model that says it has finished
  std::span<const int32_t> end_of_generation_ids() const;  // ascending

  // Bytes that no token stands for, ascending: Encode leaves them out.
  std::span<const uint8_t> dropped_bytes() const;

 private:
  std::unique_ptr<const Impl> impl_;
};

// Turns ids into text while they arrive. Everything it returns is valid UTF-8: an incomplete character is held back until
// it is whole; bytes that can no longer become one come out as U+FFFD, one for each maximal subpart (Unicode 15.0, 3.9,
// U+FFFD Substitution of Maximal Subparts). What Push and Finish return, joined, is the text that the same rule makes of
// Decode(ids, keep_special); an id out of range stands for nothing here.
class StreamDecoder {
 public:
  // `pending`: of another one, whose text goes on here.
  explicit StreamDecoder(const Tokenizer& tokenizer, bool keep_special = false, std::string pending = {})
      : tokenizer_(&tokenizer), keep_special_(keep_special), pending_(std::move(pending)) {}

  // The longest stretch of new text that no later token can change. At most 3 bytes are held back.
  std::string Push(int32_t id);
  // What was held back, as U+FFFD; then ready for a new text.
  std::string Finish();

  std::string_view pending() const { return pending_; }  // held back: at most kMaxPending bytes
  static constexpr size_t kMaxPending = 3;

 private:
  const Tokenizer* tokenizer_;  // borrowed; outlives us
  bool keep_special_;
  std::string pending_;  // an incomplete character
};

}  // namespace tidemill

#endif  // TIDEMILL_TOKENIZER_H_
