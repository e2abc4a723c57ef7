#include "tidemill/tokenizer.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/check.h"
#include "text/nfc.h"
#include "text/tokenizer_impl.h"
#include "text/utf8.h"

namespace tidemill {
namespace {

constexpr size_t kMaxTextBytes = size_t{64} << 20;

Error Invalid(const std::string& message) { return Error(ErrorCode::kInvalidArgument, message); }

std::string ToString(const ByteRange& range) {
  return "[" + std::to_string(range.begin) + ", " + std::to_string(range.end) + ")";
}

// The ranges that are not empty.
Result<std::vector<ByteRange>> CheckRanges(std::span<const ByteRange> caller, size_t text_size) {
  std::vector<ByteRange> ranges;
  ranges.reserve(caller.size());
  size_t least = 0;
  for (const ByteRange& range : caller) {
    if (range.begin < least || range.end < range.begin || range.end > text_size) {
      return Invalid("tokenize a prompt: caller range " + ToString(range) + ": expected it within [" +
                     std::to_string(least) + ", " + std::to_string(text_size) + ")");
    }
    least = range.end;
    if (range.begin < range.end) ranges.push_back(range);
  }
  return ranges;
}

// Appends the tokens of text to `ids_`. One per call of Encode.
class Encoder {
 public:
  Encoder(const Tokenizer::Impl& impl, std::vector<int32_t>& ids) : impl_(impl), ids_(ids) {}

  void EncodeAll(const AddedTokens::Search& search) {
    size_t done = 0;
    while (const auto match = impl_.added_tokens.FindFirst(search, done)) {
      EncodeStretch(search.text.substr(done, match->begin - done));
      ids_.push_back(match->id);
      done = match->end;
    }
    EncodeStretch(search.text.substr(done));
  }

 private:
  void EncodeStretch(std::string_view text) {
    if (text.empty()) return;
    if (impl_.kind == VocabularyKind::kSentencePiece) return EncodePieces(text);
    std::string normalized;
    if (impl_.normalize_nfc) {
      normalized = ToNfc(text);
      text = normalized;
    }
    WordSplitter splitter(impl_.word_rule, text);
    for (std::string_view word = splitter.Next(); !word.empty(); word = splitter.Next()) EncodeWord(word);
  }

  void EncodeWord(std::string_view word) {
    if (impl_.whole_words_first) {
      if (const int32_t found = impl_.FindWholeWord(word); found >= 0) {
        ids_.push_back(found);
        return;
      }
    }
    symbols_.clear();
    for (const char c : word) {
      const int32_t id = impl_.id_of_byte[static_cast<uint8_t>(c)];
      if (id >= 0) symbols_.push_back(id);
    }
    impl_.merger.AppendMerged(symbols_, scratch_, ids_);
  }

  void EncodePieces(std::string_view text) {
    const PieceSymbols& known = impl_.piece_symbols;
    symbols_.clear();
    bool after_space = false;
    const auto add = [&](char32_t c, std::string_view bytes) {
      const bool is_space = c == kPieceSpace;
      if (is_space && !after_space && known.space_begins_pieces()) MergePieces();
      after_space = is_space;
      if (const int32_t symbol = known.Find(c); symbol >= 0) {
        symbols_.push_back(symbol);
      } else {
        for (const char byte : bytes) symbols_.push_back(impl_.id_of_byte[static_cast<uint8_t>(byte)]);
      }
    };
    if (impl_.add_space_prefix) add(kPieceSpace, kPieceSpaceUtf8);
    while (!text.empty()) {
      const Utf8Char next = DecodeUtf8(text);
      if (next.status != Utf8Status::kValid) {
        after_space = false;
        symbols_.push_back(impl_.id_of_byte[static_cast<uint8_t>(text[0])]);
        text.remove_prefix(1);
        continue;
      }
      if (next.code_point == ' ') {
        add(kPieceSpace, kPieceSpaceUtf8);
      } else {
        add(next.code_point, text.substr(0, next.length));
      }
      text.remove_prefix(next.length);
    }
    MergePieces();
  }

  // Symbols that no merge has taken up fall back to bytes.
  void MergePieces() {
    size_t kept = ids_.size();
    impl_.merger.AppendMerged(symbols_, scratch_, ids_);
    symbols_.clear();
    while (kept < ids_.size() && !impl_.piece_symbols.IsLoose(ids_[kept])) ++kept;
    if (kept == ids_.size()) return;
    const std::vector<int32_t> merged(ids_.begin() + static_cast<std::ptrdiff_t>(kept), ids_.end());
    ids_.resize(kept);
    for (const int32_t symbol : merged) {
      if (!impl_.piece_symbols.IsLoose(symbol)) {
        ids_.push_back(symbol);
        continue;
      }
      character_.clear();
      AppendUtf8(impl_.piece_symbols.LooseCharacter(symbol), character_);
      for (const char byte : character_) ids_.push_back(impl_.id_of_byte[static_cast<uint8_t>(byte)]);
    }
  }

  const Tokenizer::Impl& impl_;
  std::vector<int32_t>& ids_;
  std::string character_;
  std::vector<int32_t> symbols_;
  BytePairMerger::Scratch scratch_;
};

Result<std::vector<int32_t>> EncodeText(const Tokenizer::Impl& impl, std::string_view text,
                                        std::span<const ByteRange> caller, EncodeOptions options) {
  if (text.size() > kMaxTextBytes) {
    return Invalid("tokenize a text: expected at most " + std::to_string(kMaxTextBytes) + " bytes, found " +
                   std::to_string(text.size()) + "; tokenize it in parts");
  }
  try {
    TIDEMILL_TRY(ranges, CheckRanges(caller, text.size()));
    std::vector<int32_t> ids;
    if (options.add_special && impl.add_bos) ids.push_back(*impl.bos_id);
    Encoder(impl, ids).EncodeAll({.text = text, .special = options.parse_special, .caller = ranges});
    if (options.add_special && impl.add_eos) ids.push_back(*impl.eos_id);
    return ids;
  } catch (const std::bad_alloc&) {
    return Error(ErrorCode::kOutOfMemory, "tokenize a text of " + std::to_string(text.size()) +
                                              " bytes: not enough memory; tokenize it in parts");
  }
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) { TIDEMILL_CHECK(impl_ != nullptr); }
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<std::vector<int32_t>> Tokenizer::Encode(std::string_view text, EncodeOptions options) const {
  return EncodeText(*impl_, text, {}, options);
}

Result<std::vector<int32_t>> Tokenizer::Encode(const PromptText& prompt, EncodeOptions options) const {
  return EncodeText(*impl_, prompt.text, prompt.caller, options);
}

Result<std::string> Tokenizer::Decode(std::span<const int32_t> ids, bool keep_special) const {
  try {
    std::string text;
    for (const int32_t id : ids) {
      if (!impl_->InRange(id)) {
        return Invalid("detokenize: token id " + std::to_string(id) + ": expected an id below " +
                       std::to_string(vocab_size()));
      }
      if (keep_special || !impl_->IsSpecial(id)) text += impl_->BytesOf(id);
    }
    return text;
  } catch (const std::bad_alloc&) {
    return Error(ErrorCode::kOutOfMemory, "detokenize " + std::to_string(ids.size()) + " tokens: not enough memory");
  }
}

std::string_view Tokenizer::TokenBytes(int32_t id) const {
  return impl_->InRange(id) ? impl_->BytesOf(id) : std::string_view();
}

std::string_view Tokenizer::TokenName(int32_t id) const {
  return impl_->InRange(id) ? impl_->NameOf(id) : std::string_view();
}

std::optional<int32_t> Tokenizer::FindToken(std::string_view name) const {
  const int32_t found = impl_->FindName(name);
  return found >= 0 ? std::optional(found) : std::nullopt;
}

size_t Tokenizer::vocab_size() const { return impl_->num_tokens(); }
std::optional<int32_t> Tokenizer::bos_id() const { return impl_->bos_id; }
std::optional<int32_t> Tokenizer::eos_id() const { return impl_->eos_id; }
bool Tokenizer::adds_bos() const { return impl_->add_bos; }
bool Tokenizer::adds_eos() const { return impl_->add_eos; }

bool Tokenizer::IsSpecial(int32_t id) const { return impl_->InRange(id) && impl_->IsSpecial(id); }

bool Tokenizer::IsEndOfGeneration(int32_t id) const {
  const auto& ids = impl_->end_of_generation_ids;
  return std::binary_search(ids.begin(), ids.end(), id);
}

std::span<const int32_t> Tokenizer::end_of_generation_ids() const { return impl_->end_of_generation_ids; }
std::span<const uint8_t> Tokenizer::dropped_bytes() const { return impl_->dropped_bytes; }

}  // namespace tidemill
