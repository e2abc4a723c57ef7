#include "text/tokenizer_spec.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <new>
#include <string_view>
#include <utility>

#include "base/printable_name.h"
#include "text/byte_alphabet.h"
#include "text/piece_symbols.h"
#include "text/tokenizer_impl.h"
#include "text/utf8.h"

namespace tidemill {
namespace {

constexpr std::string_view kLoadTokenizer = "load tokenizer: ";

// Ids are int32_t, and rank + 1 fits a uint32_t.
constexpr size_t kMaxEntries = std::numeric_limits<int32_t>::max();

// Control tokens with which published models end a text, a turn or a message.
constexpr auto kEndOfGenerationNames = std::to_array<std::string_view>({
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|eot|>",
    "<|eom|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<end_of_turn>",
    "<end_of_utterance>",
    "<EOT>",
    "<|end_of_turn|>",
    "</s>",
});

Error CorruptSpec(const std::string& message) {
  return Error(ErrorCode::kCorruptFile, std::string(kLoadTokenizer) + message);
}

Error UnsupportedSpec(const std::string& message) {
  return Error(ErrorCode::kUnsupported, std::string(kLoadTokenizer) + message);
}

std::string NameToken(size_t id, std::string_view name) {
  return "token " + std::to_string(id) + " " + QuoteName(name);
}

Result<void> CheckId(std::optional<int32_t> id, std::string_view what, size_t num_tokens) {
  if (!id || (*id >= 0 && static_cast<size_t>(*id) < num_tokens)) return {};
  return CorruptSpec(std::string(what) + ": expected an id below " + std::to_string(num_tokens) + ", found " +
                     std::to_string(*id));
}

Result<void> CheckSettings(const TokenizerSpec& spec) {
  const size_t num_tokens = spec.tokens.size();
  if (num_tokens == 0) return CorruptSpec("vocabulary: expected tokens, found none");
  if (num_tokens > kMaxEntries || spec.merges.size() > kMaxEntries) {
    return UnsupportedSpec("vocabulary: expected fewer than 2^31 tokens and merges, found " +
                           std::to_string(num_tokens) + " and " + std::to_string(spec.merges.size()));
  }
  if (!spec.types.empty() && spec.types.size() != num_tokens) {
    return CorruptSpec("token types: expected one for each of the " + std::to_string(num_tokens) + " tokens, found " +
                       std::to_string(spec.types.size()));
  }
  TIDEMILL_TRY_VOID(CheckId(spec.bos_id, "beginning-of-sequence token", num_tokens));
  TIDEMILL_TRY_VOID(CheckId(spec.eos_id, "end-of-sequence token", num_tokens));
  for (const int32_t id : spec.end_of_generation_ids)
    TIDEMILL_TRY_VOID(CheckId(id, "end-of-generation token", num_tokens));
  if (spec.add_bos && !spec.bos_id)
    return CorruptSpec("every text begins with a beginning-of-sequence token, but none is named");
  if (spec.add_eos && !spec.eos_id)
    return CorruptSpec("every text ends with an end-of-sequence token, but none is named");
  if (spec.kind == VocabularyKind::kByteLevel) {
    if (spec.add_space_prefix) {
      return UnsupportedSpec("add_space_prefix: expected false for a byte-level vocabulary, found true");
    }
    return {};
  }
  if (spec.merges.empty() && spec.scores.size() != num_tokens) {
    return CorruptSpec("scores: expected one for each of the " + std::to_string(num_tokens) + " tokens, found " +
                       std::to_string(spec.scores.size()));
  }
  if (!std::all_of(spec.scores.begin(), spec.scores.end(), [](float score) { return std::isfinite(score); })) {
    return CorruptSpec("scores: expected finite numbers, found others");
  }
  return {};
}

std::string SpacesForPieceSpaces(std::string_view piece) {
  std::string text;
  text.reserve(piece.size());
  for (size_t at = 0; at < piece.size();) {
    const size_t found = std::min(piece.find(kPieceSpaceUtf8, at), piece.size());
    text += piece.substr(at, found - at);
    if (found < piece.size()) text += ' ';
    at = found + kPieceSpaceUtf8.size();
  }
  return text;
}

// What a token stands for that is not special.
std::string BytesOf(std::string_view name, TokenType type, VocabularyKind kind) {
  if (kind == VocabularyKind::kSentencePiece) return SpacesForPieceSpaces(name);
  return type == TokenType::kUserDefined ? std::string(name) : ReadSpelledBytes(name).value_or(std::string(name));
}

// The memory of a part that is no longer needed, back to the system before the next one needs its own.
template <typename T>
void Free(std::vector<T>& part) {
  std::vector<T>().swap(part);
}

void TakeNames(TokenizerSpec& spec, Tokenizer::Impl& impl) {
  size_t num_bytes = 0;
  for (const std::string& name : spec.tokens) num_bytes += name.size();
  impl.names.Reserve(spec.tokens.size(), num_bytes);
  for (const std::string& name : spec.tokens) impl.names.Add(name);
  impl.types = std::move(spec.types);
  impl.types.resize(spec.tokens.size(), TokenType::kNormal);
  Free(spec.tokens);
}

Result<void> TakeTokens(TokenizerSpec& spec, Tokenizer::Impl& impl) {
  TakeNames(spec, impl);
  impl.bytes.Reserve(impl.num_tokens(), impl.names.num_bytes());  // none stands for more bytes than it is spelled with
  impl.id_by_name = TextTable(impl.num_tokens());
  std::vector<AddedToken> added;
  for (size_t i = 0; i < impl.num_tokens(); ++i) {
    const auto id = static_cast<int32_t>(i);
    const std::string_view name = impl.NameOf(id);
    const bool special = impl.IsSpecial(id);
    switch (impl.TypeOf(id)) {
      case TokenType::kNormal:
      case TokenType::kUnused: impl.bytes.Add(BytesOf(name, impl.TypeOf(id), spec.kind)); break;
      case TokenType::kUnknown:
      case TokenType::kControl:
      case TokenType::kUserDefined:
        impl.bytes.Add(special ? std::string(name) : BytesOf(name, impl.TypeOf(id), spec.kind));
        if (name.size() > kMaxAddedTokenBytes) {
          return UnsupportedSpec(NameToken(i, name) + ": expected at most " + std::to_string(kMaxAddedTokenBytes) +
                                 " bytes in a control or user-defined token, found " + std::to_string(name.size()));
        }
        if (!name.empty()) added.push_back({.text = name, .id = id, .special = special});
        break;
      case TokenType::kByte: {
        if (spec.kind == VocabularyKind::kByteLevel) {
          return UnsupportedSpec(NameToken(i, name) + ": expected a byte-level vocabulary, found a token of type byte");
        }
        const std::optional<uint8_t> byte = ReadByteToken(name);
        if (!byte) {
          return CorruptSpec(NameToken(i, name) + ": expected a token of type byte to be spelled like <0x0A>");
        }
        const char as_char = static_cast<char>(*byte);
        impl.bytes.Add({&as_char, 1});
        break;
      }
      default:
        return CorruptSpec(NameToken(i, name) + ": expected a type from 1 to 6, found " +
                           std::to_string(static_cast<int>(impl.TypeOf(id))));
    }
    const int32_t other = impl.id_by_name.Add(id, [&impl](int32_t known) { return impl.NameOf(known); });
    if (other != id) {
      return CorruptSpec(NameToken(i, name) + ": expected spellings that differ, found the same in token " +
                         std::to_string(other));
    }
  }
  impl.added_tokens = AddedTokens(std::move(added));
  return {};
}

// Whether merging may make a token: never a control token, which only its own spelling in trusted text may.
bool IsMergeable(const Tokenizer::Impl& impl, int32_t id) {
  if (impl.TypeOf(id) == TokenType::kNormal) return true;
  return impl.TypeOf(id) == TokenType::kUserDefined &&
         (impl.kind == VocabularyKind::kSentencePiece || ReadSpelledBytes(impl.NameOf(id)) == impl.BytesOf(id));
}

// The token spelled `name`, if merging may make it; -1: none.
int32_t FindMergeable(const Tokenizer::Impl& impl, std::string_view name) {
  const int32_t id = impl.FindName(name);
  return id >= 0 && IsMergeable(impl, id) ? id : -1;
}

void FindByteTokens(Tokenizer::Impl& impl) {
  for (size_t byte = 0; byte < impl.id_of_byte.size(); ++byte) {
    const char as_char = static_cast<char>(static_cast<uint8_t>(byte));
    impl.id_of_byte[byte] = FindMergeable(impl, SpellBytes({&as_char, 1}));
    if (impl.id_of_byte[byte] < 0) impl.dropped_bytes.push_back(static_cast<uint8_t>(byte));
  }
}

// The tokens of a SentencePiece-style vocabulary that stand for bytes, and what its characters merge from.
Result<void> TakePieces(TokenizerSpec& spec, Tokenizer::Impl& impl, std::vector<Piece>& pieces) {
  impl.id_of_byte.fill(-1);
  pieces.reserve(impl.num_tokens());
  for (size_t i = 0; i < impl.num_tokens(); ++i) {
    const auto id = static_cast<int32_t>(i);
    const std::string_view name = impl.NameOf(id);
    if (impl.TypeOf(id) == TokenType::kByte) {
      int32_t& of_byte = impl.id_of_byte[static_cast<uint8_t>(impl.BytesOf(id)[0])];
      if (of_byte < 0) of_byte = id;  // "<0x0a>" beside "<0x0A>": the first
    }
    // One that is not valid UTF-8 can never come to be, since merging joins characters.
    if (!IsMergeable(impl, id) || name.empty() || !IsValidUtf8(name)) continue;
    if (name.size() > kMaxPieceBytes) {
      return UnsupportedSpec(NameToken(i, name) + ": expected at most " + std::to_string(kMaxPieceBytes) +
                             " bytes, found " + std::to_string(name.size()));
    }
    pieces.push_back({name, id, spec.scores.empty() ? 0.0f : spec.scores[i]});
  }
  Free(spec.scores);
  const auto missing = std::find(impl.id_of_byte.begin(), impl.id_of_byte.end(), -1);
  if (missing != impl.id_of_byte.end()) {
    return UnsupportedSpec("vocabulary: expected a token of type byte for every byte, found none for byte " +
                           std::to_string(missing - impl.id_of_byte.begin()));
  }
  impl.piece_symbols = PieceSymbols(pieces, impl.num_tokens(), spec.merges.empty());
  const int32_t space = impl.piece_symbols.Find(kPieceSpace);
  if (space < 0 || impl.piece_symbols.IsLoose(space)) {
    return UnsupportedSpec("vocabulary: expected a token for U+2581, which spells a space, found none");
  }
  return {};
}

Result<void> TakeMerges(TokenizerSpec& spec, Tokenizer::Impl& impl) {
  std::vector<MergeRule> rules;
  rules.reserve(spec.merges.size());
  std::string merged;
  for (size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const std::string_view merge = spec.merges[rank];
    const auto name_merge = [&] { return "merge " + std::to_string(rank) + " " + QuoteName(merge); };
    const size_t space = merge.find(' ');
    if (space == std::string_view::npos || space == 0 || space + 1 == merge.size() ||
        merge.find(' ', space + 1) != std::string_view::npos) {
      return CorruptSpec(name_merge() + ": expected two tokens with one space between them");
    }
    merged = merge.substr(0, space);
    merged += merge.substr(space + 1);
    MergeRule rule;
    for (const auto& [name, id] :
         {std::pair{merge.substr(0, space), &rule.left}, std::pair{merge.substr(space + 1), &rule.right},
          std::pair{std::string_view(merged), &rule.merged}}) {
      *id = FindMergeable(impl, name);
      if (*id < 0) {
        return CorruptSpec(name_merge() + ": expected " + QuoteName(name) +
                           " among the tokens that are not control tokens, found none");
      }
    }
    rules.push_back(rule);
  }
  Free(spec.merges);
  impl.merger = BytePairMerger(rules, impl.num_tokens());
  return {};
}

void TakeWholeWords(const TokenizerSpec& spec, Tokenizer::Impl& impl) {
  impl.whole_words_first = spec.ignore_merges;
  if (!spec.ignore_merges) return;
  const auto num_normal = std::count(impl.types.begin(), impl.types.end(), TokenType::kNormal);
  impl.id_by_bytes = TextTable(static_cast<size_t>(num_normal));
  for (size_t i = 0; i < impl.num_tokens(); ++i) {
    if (impl.types[i] != TokenType::kNormal) continue;
    impl.id_by_bytes.Add(static_cast<int32_t>(i),
                         [&impl](int32_t id) { return impl.BytesOf(id); });  // of equals the first
  }
}

void FindEndOfGeneration(const TokenizerSpec& spec, Tokenizer::Impl& impl) {
  std::vector<int32_t>& ids = impl.end_of_generation_ids;
  ids = spec.end_of_generation_ids;
  if (spec.eos_id) ids.push_back(*spec.eos_id);
  for (const std::string_view name : kEndOfGenerationNames) {
    const int32_t id = impl.FindName(name);
    if (id >= 0 && impl.TypeOf(id) == TokenType::kControl) ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
}

Result<Tokenizer> Create(TokenizerSpec& spec) {
  TIDEMILL_TRY_VOID(CheckSettings(spec));
  auto impl = std::make_unique<Tokenizer::Impl>();
  impl->kind = spec.kind;
  if (spec.kind == VocabularyKind::kByteLevel) {
    const std::optional<WordRule> rule = FindWordRule(spec.pre_tokenizer);
    if (!rule) {
      return UnsupportedSpec("pre-tokenizer " + QuoteName(spec.pre_tokenizer) + ": expected one of " +
                             KnownPreTokenizers());
    }
    impl->word_rule = *rule;
    impl->normalize_nfc = spec.normalize_nfc;
  }
  TIDEMILL_TRY_VOID(TakeTokens(spec, *impl));
  if (spec.kind == VocabularyKind::kByteLevel) {
    FindByteTokens(*impl);
    TIDEMILL_TRY_VOID(TakeMerges(spec, *impl));
    TakeWholeWords(spec, *impl);
  } else {
    std::vector<Piece> pieces;
    TIDEMILL_TRY_VOID(TakePieces(spec, *impl, pieces));
    if (!spec.merges.empty()) {
      TIDEMILL_TRY_VOID(TakeMerges(spec, *impl));
    } else {
      const ScoredMerges merges = MakeScoredMerges(pieces, impl->piece_symbols);
      Free(pieces);
      impl->merger = BytePairMerger(merges.rules, impl->piece_symbols.num_symbols(), merges.ranks);
    }
    impl->add_space_prefix = spec.add_space_prefix;
  }
  FindEndOfGeneration(spec, *impl);
  impl->bos_id = spec.bos_id;
  impl->eos_id = spec.eos_id;
  impl->add_bos = spec.add_bos;
  impl->add_eos = spec.add_eos;
  return Tokenizer(std::unique_ptr<const Tokenizer::Impl>(std::move(impl)));
}

}  // namespace

Result<Tokenizer> CreateTokenizer(TokenizerSpec spec) {
  const size_t num_tokens = spec.tokens.size(), num_merges = spec.merges.size();
  try {
    return Create(spec);
  } catch (const std::bad_alloc&) {
    return Error(ErrorCode::kOutOfMemory, std::string(kLoadTokenizer) + std::to_string(num_tokens) + " tokens and " +
                                              std::to_string(num_merges) + " merges: not enough memory");
  }
}

}  // namespace tidemill
