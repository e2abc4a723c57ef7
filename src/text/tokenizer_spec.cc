#include "text/tokenizer_spec.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <new>
#include <string_view>
#include <utility>

#include "formats/printable_name.h"
#include "text/byte_alphabet.h"
#include "text/piece_symbols.h"
#include "text/tokenizer_impl.h"
#include "text/utf8.h"

namespace tidemill {
namespace {

constexpr std::string_view kContext = "load tokenizer: ";

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

Error Corrupt(const std::string& message) { return Error(ErrorCode::kCorruptFile, std::string(kContext) + message); }

Error Unsupported(const std::string& message) {
  return Error(ErrorCode::kUnsupported, std::string(kContext) + message);
}

std::string NameToken(size_t id, std::string_view name) {
  return "token " + std::to_string(id) + " " + QuoteName(name);
}

Result<void> CheckId(std::optional<int32_t> id, std::string_view what, size_t num_tokens) {
  if (!id || (*id >= 0 && static_cast<size_t>(*id) < num_tokens)) return {};
  return Corrupt(std::string(what) + ": expected an id below " + std::to_string(num_tokens) + ", found " +
                 std::to_string(*id));
}

Result<void> CheckSettings(const TokenizerSpec& spec) {
  const size_t num_tokens = spec.tokens.size();
  if (num_tokens == 0) return Corrupt("vocabulary: expected tokens, found none");
  if (num_tokens > kMaxEntries || spec.merges.size() > kMaxEntries) {
    return Unsupported("vocabulary: expected fewer than 2^31 tokens and merges, found " + std::to_string(num_tokens) +
                       " and " + std::to_string(spec.merges.size()));
  }
  if (!spec.types.empty() && spec.types.size() != num_tokens) {
    return Corrupt("token types: expected one for each of the " + std::to_string(num_tokens) + " tokens, found " +
                   std::to_string(spec.types.size()));
  }
  TIDEMILL_TRY_VOID(CheckId(spec.bos_id, "beginning-of-sequence token", num_tokens));
  TIDEMILL_TRY_VOID(CheckId(spec.eos_id, "end-of-sequence token", num_tokens));
  for (const int32_t id : spec.end_of_generation_ids)
    TIDEMILL_TRY_VOID(CheckId(id, "end-of-generation token", num_tokens));
  if (spec.add_bos && !spec.bos_id)
    return Corrupt("every text begins with a beginning-of-sequence token, but none is named");
  if (spec.add_eos && !spec.eos_id) return Corrupt("every text ends with an end-of-sequence token, but none is named");
  if (spec.kind == VocabularyKind::kByteLevel) {
    if (spec.add_space_prefix) {
      return Unsupported("add_space_prefix: expected false for a byte-level vocabulary, found true");
    }
    return {};
  }
  if (spec.merges.empty() && spec.scores.size() != num_tokens) {
    return Corrupt("scores: expected one for each of the " + std::to_string(num_tokens) + " tokens, found " +
                   std::to_string(spec.scores.size()));
  }
  if (!std::all_of(spec.scores.begin(), spec.scores.end(), [](float score) { return std::isfinite(score); })) {
    return Corrupt("scores: expected finite numbers, found others");
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

Result<void> TakeTokens(TokenizerSpec& spec, Tokenizer::Impl& impl) {
  impl.tokens.resize(spec.tokens.size());
  impl.id_by_name.reserve(spec.tokens.size());
  std::vector<AddedToken> added;
  for (size_t id = 0; id < impl.tokens.size(); ++id) {
    Tokenizer::Impl::Token& token = impl.tokens[id];
    token.name = std::move(spec.tokens[id]);
    token.type = spec.types.empty() ? TokenType::kNormal : spec.types[id];
    switch (token.type) {
      case TokenType::kNormal:
      case TokenType::kUnused: token.bytes = BytesOf(token.name, token.type, spec.kind); break;
      case TokenType::kUnknown:
      case TokenType::kControl:
      case TokenType::kUserDefined:
        token.bytes = token.special() ? token.name : BytesOf(token.name, token.type, spec.kind);
        if (token.name.size() > kMaxAddedTokenBytes) {
          return Unsupported(NameToken(id, token.name) + ": expected at most " + std::to_string(kMaxAddedTokenBytes) +
                             " bytes in a control or user-defined token, found " + std::to_string(token.name.size()));
        }
        if (!token.name.empty()) {
          added.push_back({.text = token.name, .id = static_cast<int32_t>(id), .special = token.special()});
        }
        break;
      case TokenType::kByte: {
        if (spec.kind == VocabularyKind::kByteLevel) {
          return Unsupported(NameToken(id, token.name) +
                             ": expected a byte-level vocabulary, found a token of type byte");
        }
        const std::optional<uint8_t> byte = ReadByteToken(token.name);
        if (!byte) {
          return Corrupt(NameToken(id, token.name) + ": expected a token of type byte to be spelled like <0x0A>");
        }
        token.bytes.assign(1, static_cast<char>(*byte));
        break;
      }
      default:
        return Corrupt(NameToken(id, token.name) + ": expected a type from 1 to 6, found " +
                       std::to_string(static_cast<int>(token.type)));
    }
    const auto [other, is_new] = impl.id_by_name.emplace(token.name, static_cast<int32_t>(id));
    if (!is_new) {
      return Corrupt(NameToken(id, token.name) + ": expected spellings that differ, found the same in token " +
                     std::to_string(other->second));
    }
  }
  impl.added_tokens = AddedTokens(std::move(added));
  return {};
}

// Whether merging may make a token: never a control token, which only its own spelling in trusted text may.
bool IsMergeable(const Tokenizer::Impl::Token& token, VocabularyKind kind) {
  if (token.type == TokenType::kNormal) return true;
  return token.type == TokenType::kUserDefined &&
         (kind == VocabularyKind::kSentencePiece || ReadSpelledBytes(token.name) == token.bytes);
}

// The token spelled `name`, if merging may make it.
const int32_t* FindMergeable(const Tokenizer::Impl& impl, std::string_view name) {
  const auto found = impl.id_by_name.find(name);
  if (found == impl.id_by_name.end()) return nullptr;
  return IsMergeable(impl.At(found->second), impl.kind) ? &found->second : nullptr;
}

void FindByteTokens(Tokenizer::Impl& impl) {
  for (size_t byte = 0; byte < impl.id_of_byte.size(); ++byte) {
    const char as_char = static_cast<char>(static_cast<uint8_t>(byte));
    const int32_t* const id = FindMergeable(impl, SpellBytes({&as_char, 1}));
    impl.id_of_byte[byte] = id != nullptr ? *id : -1;
    if (id == nullptr) impl.dropped_bytes.push_back(static_cast<uint8_t>(byte));
  }
}

// The tokens of a SentencePiece-style vocabulary that stand for bytes, and what its characters merge from.
Result<void> TakePieces(const TokenizerSpec& spec, Tokenizer::Impl& impl, std::vector<Piece>& pieces) {
  impl.id_of_byte.fill(-1);
  for (size_t id = 0; id < impl.tokens.size(); ++id) {
    const Tokenizer::Impl::Token& token = impl.tokens[id];
    if (token.type == TokenType::kByte) {
      int32_t& of_byte = impl.id_of_byte[static_cast<uint8_t>(token.bytes[0])];
      if (of_byte < 0) of_byte = static_cast<int32_t>(id);  // "<0x0a>" beside "<0x0A>": the first
    }
    // One that is not valid UTF-8 can never come to be, since merging joins characters.
    if (!IsMergeable(token, impl.kind) || token.name.empty() || !IsValidUtf8(token.name)) continue;
    if (token.name.size() > kMaxPieceBytes) {
      return Unsupported(NameToken(id, token.name) + ": expected at most " + std::to_string(kMaxPieceBytes) +
                         " bytes, found " + std::to_string(token.name.size()));
    }
    pieces.push_back({token.name, static_cast<int32_t>(id), spec.scores.empty() ? 0.0f : spec.scores[id]});
  }
  const auto missing = std::find(impl.id_of_byte.begin(), impl.id_of_byte.end(), -1);
  if (missing != impl.id_of_byte.end()) {
    return Unsupported("vocabulary: expected a token of type byte for every byte, found none for byte " +
                       std::to_string(missing - impl.id_of_byte.begin()));
  }
  impl.piece_symbols = PieceSymbols(pieces, impl.tokens.size(), spec.merges.empty());
  const int32_t space = impl.piece_symbols.Find(kPieceSpace);
  if (space < 0 || impl.piece_symbols.IsLoose(space)) {
    return Unsupported("vocabulary: expected a token for U+2581, which spells a space, found none");
  }
  return {};
}

Result<void> TakeMerges(const TokenizerSpec& spec, Tokenizer::Impl& impl) {
  std::vector<MergeRule> rules;
  rules.reserve(spec.merges.size());
  std::string merged;
  for (size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const std::string_view merge = spec.merges[rank];
    const auto name_merge = [&] { return "merge " + std::to_string(rank) + " " + QuoteName(merge); };
    const size_t space = merge.find(' ');
    if (space == std::string_view::npos || space == 0 || space + 1 == merge.size() ||
        merge.find(' ', space + 1) != std::string_view::npos) {
      return Corrupt(name_merge() + ": expected two tokens with one space between them");
    }
    merged = merge.substr(0, space);
    merged += merge.substr(space + 1);
    MergeRule rule;
    for (const auto& [name, id] :
         {std::pair{merge.substr(0, space), &rule.left}, std::pair{merge.substr(space + 1), &rule.right},
          std::pair{std::string_view(merged), &rule.merged}}) {
      const int32_t* const found = FindMergeable(impl, name);
      if (found == nullptr) {
        return Corrupt(name_merge() + ": expected " + QuoteName(name) +
                       " among the tokens that are not control tokens, found none");
      }
      *id = *found;
    }
    rules.push_back(rule);
  }
  impl.merger = BytePairMerger(rules, impl.tokens.size());
  return {};
}

void TakeWholeWords(const TokenizerSpec& spec, Tokenizer::Impl& impl) {
  impl.whole_words_first = spec.ignore_merges;
  if (!spec.ignore_merges) return;
  for (size_t id = 0; id < impl.tokens.size(); ++id) {
    const Tokenizer::Impl::Token& token = impl.tokens[id];
    if (token.type == TokenType::kNormal) impl.id_by_bytes.emplace(token.bytes, static_cast<int32_t>(id));
  }
}

void FindEndOfGeneration(const TokenizerSpec& spec, Tokenizer::Impl& impl) {
  std::vector<int32_t>& ids = impl.end_of_generation_ids;
  ids = spec.end_of_generation_ids;
  if (spec.eos_id) ids.push_back(*spec.eos_id);
  for (const std::string_view name : kEndOfGenerationNames) {
    const auto found = impl.id_by_name.find(name);
    if (found != impl.id_by_name.end() && impl.At(found->second).type == TokenType::kControl)
      ids.push_back(found->second);
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
      return Unsupported("pre-tokenizer " + QuoteName(spec.pre_tokenizer) + ": expected one of " +
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
  try {
    return Create(spec);
  } catch (const std::bad_alloc&) {
    return Error(ErrorCode::kOutOfMemory, std::string(kContext) + std::to_string(spec.tokens.size()) + " tokens and " +
                                              std::to_string(spec.merges.size()) + " merges: not enough memory");
  }
}

}  // namespace tidemill
