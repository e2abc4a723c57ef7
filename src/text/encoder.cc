#include "text/encoder.h"

#include <algorithm>
#include <utility>

#include "text/byte_alphabet.h"
#include "text/utf8.h"

namespace tidemill {
namespace {

// The parts of `ranges` in [begin, end), counted from `begin`.
std::vector<ByteRange> Clip(std::span<const ByteRange> ranges, size_t begin, size_t end) {
  std::vector<ByteRange> clipped;
  auto range =
      std::partition_point(ranges.begin(), ranges.end(), [begin](const ByteRange& r) { return r.end <= begin; });
  for (; range != ranges.end() && range->begin < end; ++range)
    clipped.push_back({std::max(range->begin, begin) - begin, std::min(range->end, end) - begin});
  return clipped;
}

// Marks on the bytes of the ranges, and the ranges of the marks.
std::vector<bool> MarksOf(std::span<const ByteRange> ranges, size_t size) {
  std::vector<bool> marks(size);
  for (const ByteRange& range : ranges) {
    for (size_t i = range.begin; i < range.end; ++i) marks[i] = true;
  }
  return marks;
}
std::vector<ByteRange> RangesOf(const std::vector<bool>& marks) {
  std::vector<ByteRange> ranges;
  for (size_t i = 0; i < marks.size(); ++i) {
    if (!marks[i]) continue;
    if (!ranges.empty() && ranges.back().end == i) {
      ++ranges.back().end;
    } else {
      ranges.push_back({i, i + 1});
    }
  }
  return ranges;
}

}  // namespace

Result<void> Encoder::EncodeAll(const AddedTokens::Search& search) {
  size_t done = 0, from = 0;
  while (const auto match = impl_.added_tokens.FindFirst(search, from, done)) {
    if (done < match->begin) TIDEMILL_TRY_VOID(EncodeBetween(search, done, match->begin));
    ids_.push_back(match->id);
    done = match->end;
    from = match->next;
  }
  return done < search.text.size() ? EncodeBetween(search, done, search.text.size()) : Result<void>();
}

Result<void> Encoder::EncodeBetween(const AddedTokens::Search& search, size_t begin, size_t end) {
  std::string_view text = search.text.substr(begin, end - begin);
  const bool begins_input = begin == 0;
  MarkedText normalized;
  std::vector<ByteRange> caller;
  if (!impl_.normalized_tokens.empty()) caller = Clip(search.caller, begin, end);
  if (!impl_.normalizer.empty()) {
    normalized.text = text;
    if (!caller.empty()) normalized.marks = MarksOf(caller, text.size());
    TIDEMILL_TRY(made, impl_.normalizer.Normalize(std::move(normalized), normalized_left_, words_.regex, budget_));
    normalized = std::move(made);
    normalized_left_ -= normalized.text.size();
    text = normalized.text;
    if (!caller.empty()) caller = RangesOf(normalized.marks);
  }
  const AddedTokens::Search inner = {.text = text, .special = search.special, .caller = caller};
  size_t done = 0, from = 0;
  while (const auto match = impl_.normalized_tokens.FindFirst(inner, from, done)) {
    if (done < match->begin)
      TIDEMILL_TRY_VOID(EncodeStretch(text.substr(done, match->begin - done), begins_input && done == 0));
    ids_.push_back(match->id);
    done = match->end;
    from = match->next;
  }
  return EncodeStretch(text.substr(done), begins_input && done == 0);
}

Result<void> Encoder::EncodeStretch(std::string_view text, bool begins_input) {
  if (text.empty()) return {};
  const PreTokenizer& pre_tokenizer = impl_.pre_tokenizer;
  if (pre_tokenizer.empty()) {
    EncodeWord(text);
    return {};
  }
  if (const auto rule = pre_tokenizer.rule()) {
    WordSplitter splitter(*rule, text);
    for (std::string_view word = splitter.Next(); !word.empty(); word = splitter.Next()) EncodeWord(word);
    return {};
  }
  TIDEMILL_TRY_VOID(pre_tokenizer.Split(text, begins_input, budget_, words_));
  for (const ByteRange& range : words_.list) {
    const std::string_view word = std::string_view(words_.text).substr(range.begin, range.end - range.begin);
    if (pre_tokenizer.spells_bytes()) {
      EncodeWord(ReadSpelledBytes(word).value_or(std::string(word)));
    } else {
      EncodeWord(word);
    }
  }
  return {};
}

void Encoder::EncodeWord(std::string_view word) {
  switch (impl_.kind) {
    case VocabularyKind::kByteLevel: return EncodeBytes(word);
    case VocabularyKind::kSentencePiece: return EncodePieces(word);
    case VocabularyKind::kUnigram: return EncodeUnigram(word);
    case VocabularyKind::kWordPiece:
      if (!impl_.word_pieces.AppendTokens(word, ids_)) AppendUnknown(word, false, ids_);
      return;
    case VocabularyKind::kWordLevel:
      if (const int32_t id = impl_.FindName(word); id >= 0 && impl_.IsOrdinary(id)) {
        ids_.push_back(id);
      } else {
        AppendUnknown(word, false, ids_);
      }
      return;
  }
}

void Encoder::EncodeBytes(std::string_view word) {
  if (impl_.whole_words_first) {
    if (const int32_t found = impl_.FindWholeWord(word); found >= 0) {
      ids_.push_back(found);
      return;
    }
  }
  symbols_.clear();
  for (const char c : word) {
    const int32_t id = impl_.id_of_byte[static_cast<uint8_t>(c)];
    if (id >= 0) {
      symbols_.push_back(id);
    } else {
      AppendUnknown({}, impl_.fuse_unk, symbols_);
    }
  }
  impl_.merger.AppendMerged(symbols_, scratch_, ids_);
}

void Encoder::EncodePieces(std::string_view word) {
  if (impl_.whole_words_first || (impl_.keeps_line_feeds && word.find_first_not_of('\n') == std::string_view::npos)) {
    if (const int32_t found = impl_.FindName(word); found >= 0 && impl_.IsOrdinary(found)) {
      ids_.push_back(found);
      return;
    }
  }
  const PieceSymbols& known = impl_.piece_symbols;
  symbols_.clear();
  // Not where the space itself is unknown, and fuses with what is unknown before it.
  const bool splits_at_spaces = known.space_begins_pieces() && known.Find(kPieceSpace) >= 0;
  bool after_space = false;
  while (!word.empty()) {
    const Utf8Char next = DecodeUtf8(word);
    const bool is_valid = next.status == Utf8Status::kValid;
    const std::string_view bytes = word.substr(0, is_valid ? next.length : 1);
    const bool is_space = is_valid && next.code_point == kPieceSpace;
    if (is_space && !after_space && splits_at_spaces) MergePieces();
    after_space = is_space;
    if (const int32_t symbol = is_valid ? known.Find(next.code_point) : -1; symbol >= 0) {
      symbols_.push_back(symbol);
    } else {
      AppendUnknown(bytes, impl_.fuse_unk, symbols_);
    }
    word.remove_prefix(bytes.size());
  }
  MergePieces();
}

// Symbols that no merge has taken up fall back to bytes.
void Encoder::MergePieces() {
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
    AppendUnknown(character_, impl_.fuse_unk, ids_);
  }
}

void Encoder::EncodeUnigram(std::string_view word) {
  parts_.clear();
  impl_.unigram.Cut(word, unigram_scratch_, parts_);
  for (const Unigram::Part& part : parts_) {
    if (part.id >= 0) {
      ids_.push_back(part.id);
    } else {
      AppendUnknown(part.text, false, ids_);
    }
  }
}

void Encoder::AppendUnknown(std::string_view bytes, bool fuses, std::vector<int32_t>& out) const {
  const auto id_of = [&](char byte) { return impl_.id_of_byte[static_cast<uint8_t>(byte)]; };
  if (!bytes.empty() && std::all_of(bytes.begin(), bytes.end(), [&](char byte) { return id_of(byte) >= 0; })) {
    for (const char byte : bytes) out.push_back(id_of(byte));
    return;
  }
  if (impl_.unk_id < 0 || (fuses && !out.empty() && out.back() == impl_.unk_id)) return;
  out.push_back(impl_.unk_id);
}

}  // namespace tidemill
