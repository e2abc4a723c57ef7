#include "text/tokenizer_spec.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <new>
#include <string_view>
#include <unordered_map>
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

bool MergesByScore(const TokenizerSpec& spec) { return spec.merges.empty() && !spec.merges_by_rank; }

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
  TIDEMILL_TRY_VOID(CheckId(spec.unk_id, "unknown token", num_tokens));
  for (const auto* ids : {&spec.begin_ids, &spec.end_ids}) {
    for (const int32_t id : *ids) TIDEMILL_TRY_VOID(CheckId(id, "token before or behind each text", num_tokens));
  }
  for (const AddedTokenFlags& flags : spec.added_flags) TIDEMILL_TRY_VOID(CheckId(flags.id, "added token", num_tokens));
  const bool has_scores =
      spec.kind == VocabularyKind::kUnigram || (spec.kind == VocabularyKind::kSentencePiece && spec.merges.empty());
  if (!has_scores) return {};
  if (spec.scores.size() != num_tokens) {
    return CorruptSpec("scores: expected one for each of the " + std::to_string(num_tokens) + " tokens, found " +
                       std::to_string(spec.scores.size()));
  }
  if (!std::all_of(spec.scores.begin(), spec.scores.end(), [](double score) { return std::isfinite(score); })) {
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

// What WordPiece's decoder makes of a token with the space before it.
std::string CleanUp(std::string text) {
  constexpr auto kPairs = std::to_array<std::pair<std::string_view, std::string_view>>({
      {" .", "."},
      {" ?", "?"},
      {" !", "!"},
      {" ,", ","},
      {" ' ", "'"},
      {" n't", "n't"},
      {" 'm", "'m"},
      {" do not", " don't"},
      {" 's", "'s"},
      {" 've", "'ve"},
      {" 're", "'re"},
  });
  for (const auto& [dirty, clean] : kPairs) {
    for (size_t at = text.find(dirty); at != std::string::npos; at = text.find(dirty, at + clean.size()))
      text.replace(at, dirty.size(), clean);
  }
  return text;
}

// What a token stands for.
std::string BytesOf(std::string_view name, TokenType type, const TokenizerSpec& spec) {
  const bool special = type == TokenType::kUnknown || type == TokenType::kControl;
  switch (spec.spelling) {
    case TokenSpelling::kByteAlphabet:
      if (special || type == TokenType::kUserDefined) return std::string(name);
      return ReadSpelledBytes(name).value_or(std::string(name));
    case TokenSpelling::kPieceSpaces: return SpacesForPieceSpaces(name);
    case TokenSpelling::kWordPieces: {
      const std::string& rest = spec.prefixes.rest;
      const bool goes_on = !special && !rest.empty() && name.starts_with(rest);
      std::string text = goes_on ? std::string(name.substr(rest.size())) : " " + std::string(name);
      return spec.cleans_up ? CleanUp(std::move(text)) : text;
    }
    case TokenSpelling::kWords: return " " + std::string(name);
  }
  return {};
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

// Added tokens that are recognised in normalised text, as they are then, by id.
using NormalizedTexts = std::unordered_map<int32_t, std::string>;

Result<NormalizedTexts> NormalizeAddedTokens(const TokenizerSpec& spec, const Normalizer& normalizer) {
  NormalizedTexts texts;
  Regex::Scratch scratch;
  RegexBudget budget(0);
  for (const AddedTokenFlags& flags : spec.added_flags) {
    if (!flags.normalized) continue;
    const std::string& name = spec.tokens[static_cast<size_t>(flags.id)];
    auto text = normalizer.Normalize(name, kMaxAddedTokenBytes, scratch, budget);
    if (!text.ok())
      return UnsupportedSpec(NameToken(static_cast<size_t>(flags.id), name) + ": " + text.error().message());
    texts.emplace(flags.id, std::move(text).value());
  }
  return texts;
}

Result<void> TakeAddedTokens(const TokenizerSpec& spec, const NormalizedTexts& texts, Tokenizer::Impl& impl) {
  std::vector<AddedToken> raw, normalized;
  std::vector<const AddedTokenFlags*> flags_of(impl.num_tokens());
  for (const AddedTokenFlags& flags : spec.added_flags) flags_of[static_cast<size_t>(flags.id)] = &flags;
  for (size_t i = 0; i < impl.num_tokens(); ++i) {
    const auto id = static_cast<int32_t>(i);
    const std::string_view name = impl.NameOf(id);
    if ((!impl.IsSpecial(id) && impl.TypeOf(id) != TokenType::kUserDefined) || name.empty()) continue;
    if (name.size() > kMaxAddedTokenBytes) {
      return UnsupportedSpec(NameToken(i, name) + ": expected at most " + std::to_string(kMaxAddedTokenBytes) +
                             " bytes in a control or user-defined token, found " + std::to_string(name.size()));
    }
    AddedToken added = {.text = name, .id = id, .special = impl.IsSpecial(id)};
    if (const AddedTokenFlags* const flags = flags_of[i]; flags != nullptr) {
      added.single_word = flags->single_word;
      added.lstrip = flags->lstrip;
      added.rstrip = flags->rstrip;
    }
    const auto text = texts.find(id);
    if (text == texts.end()) {
      raw.push_back(added);
    } else if (!text->second.empty()) {  // else nothing is left that could be recognised
      normalized.push_back(added);
      impl.normalized_names.push_back(text->second);
    }
  }
  for (size_t i = 0; i < normalized.size(); ++i) normalized[i].text = impl.normalized_names[i];
  // Of two that have become the same the first is recognised.
  std::stable_sort(normalized.begin(), normalized.end(),
                   [](const AddedToken& a, const AddedToken& b) { return a.text < b.text; });
  normalized.erase(std::unique(normalized.begin(), normalized.end(),
                               [](const AddedToken& a, const AddedToken& b) { return a.text == b.text; }),
                   normalized.end());
  impl.added_tokens = AddedTokens(std::move(raw));
  impl.normalized_tokens = AddedTokens(std::move(normalized));
  return {};
}

// Bounds the work of looking for tokens at each place of a text.
Result<void> CheckPieceSize(size_t id, std::string_view name) {
  if (name.size() <= kMaxPieceBytes) return {};
  return UnsupportedSpec(NameToken(id, name) + ": expected at most " + std::to_string(kMaxPieceBytes) +
                         " bytes, found " + std::to_string(name.size()));
}

Result<void> TakeTokens(TokenizerSpec& spec, const NormalizedTexts& texts, Tokenizer::Impl& impl) {
  TakeNames(spec, impl);
  impl.bytes.Reserve(impl.num_tokens(), impl.names.num_bytes() + impl.num_tokens());
  impl.id_by_name = TextTable(impl.num_tokens());
  for (size_t i = 0; i < impl.num_tokens(); ++i) {
    const auto id = static_cast<int32_t>(i);
    const std::string_view name = impl.NameOf(id);
    const TokenType type = impl.TypeOf(id);
    if (type < TokenType::kNormal || type > TokenType::kByte) {
      return CorruptSpec(NameToken(i, name) + ": expected a type from 1 to 6, found " +
                         std::to_string(static_cast<int>(type)));
    }
    if (spec.cleans_up) TIDEMILL_TRY_VOID(CheckPieceSize(i, name));
    if (type == TokenType::kByte) {
      if (spec.kind == VocabularyKind::kByteLevel) {
        return UnsupportedSpec(NameToken(i, name) + ": expected a byte-level vocabulary, found a token of type byte");
      }
      const std::optional<uint8_t> byte = ReadByteToken(name);
      if (!byte) {
        return CorruptSpec(NameToken(i, name) + ": expected a token of type byte to be spelled like <0x0A>");
      }
      const char as_char = static_cast<char>(*byte);
      impl.bytes.Add({&as_char, 1});
    } else {
      const auto text = texts.find(id);
      impl.bytes.Add(BytesOf(text == texts.end() ? name : std::string_view(text->second), type, spec));
    }
    const int32_t other = impl.id_by_name.Add(id, [&impl](int32_t known) { return impl.NameOf(known); });
    if (other != id && type != TokenType::kUnused) {
      return CorruptSpec(NameToken(i, name) + ": expected spellings that differ, found the same in token " +
                         std::to_string(other));
    }
  }
  return {};
}

// Whether merging may make a token: never a control token, which only its own spelling in trusted text may.
bool IsMergeable(const Tokenizer::Impl& impl, int32_t id) {
  if (impl.TypeOf(id) == TokenType::kNormal) return true;
  return impl.TypeOf(id) == TokenType::kUserDefined &&
         (impl.kind != VocabularyKind::kByteLevel || ReadSpelledBytes(impl.NameOf(id)) == impl.BytesOf(id));
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
  }
}

// The first token of type byte for each: "<0x0a>" beside "<0x0A>".
void FindByteFallbacks(Tokenizer::Impl& impl) {
  for (size_t i = 0; i < impl.num_tokens(); ++i) {
    const auto id = static_cast<int32_t>(i);
    if (impl.TypeOf(id) != TokenType::kByte) continue;
    int32_t& of_byte = impl.id_of_byte[static_cast<uint8_t>(impl.BytesOf(id)[0])];
    if (of_byte < 0) of_byte = id;
  }
}

// What the characters of a SentencePiece-style vocabulary merge from.
Result<void> TakePieces(TokenizerSpec& spec, Tokenizer::Impl& impl, std::vector<Piece>& pieces) {
  pieces.reserve(impl.num_tokens());
  for (size_t i = 0; i < impl.num_tokens(); ++i) {
    const auto id = static_cast<int32_t>(i);
    const std::string_view name = impl.NameOf(id);
    // One that is not valid UTF-8 can never come to be, since merging joins characters.
    if (!IsMergeable(impl, id) || name.empty() || !IsValidUtf8(name)) continue;
    TIDEMILL_TRY_VOID(CheckPieceSize(i, name));
    pieces.push_back({name, id, spec.scores.empty() ? 0.0f : static_cast<float>(spec.scores[i])});
  }
  Free(spec.scores);
  impl.piece_symbols = PieceSymbols(pieces, impl.num_tokens(), MergesByScore(spec));
  return {};
}

// What Unigram and WordPiece look up: the tokens that text may become.
Result<std::vector<PieceTrie::Piece>> TriePieces(const Tokenizer::Impl& impl) {
  std::vector<PieceTrie::Piece> pieces;
  for (size_t i = 0; i < impl.num_tokens(); ++i) {
    const auto id = static_cast<int32_t>(i);
    const std::string_view name = impl.NameOf(id);
    if (impl.TypeOf(id) != TokenType::kNormal || name.empty()) continue;
    TIDEMILL_TRY_VOID(CheckPieceSize(i, name));
    pieces.push_back({name, id});
  }
  return pieces;
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
  spec.merges_by_rank = true;
  Free(spec.merges);
  impl.merger = BytePairMerger(rules, impl.num_tokens());
  return {};
}

// Bytes that Encode would leave out.
void FindDroppedBytes(Tokenizer::Impl& impl) {
  if (impl.unk_id >= 0) return;
  for (size_t byte = 0; byte < impl.id_of_byte.size(); ++byte) {
    if (impl.id_of_byte[byte] < 0) impl.dropped_bytes.push_back(static_cast<uint8_t>(byte));
  }
}

void TakeWholeWords(const TokenizerSpec& spec, Tokenizer::Impl& impl) {
  impl.whole_words_first = spec.ignore_merges;
  impl.keeps_line_feeds = spec.keeps_line_feeds;
  if (!spec.ignore_merges || impl.kind != VocabularyKind::kByteLevel) return;
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

Result<void> TakeModel(TokenizerSpec& spec, Tokenizer::Impl& impl) {
  impl.id_of_byte.fill(-1);
  switch (spec.kind) {
    case VocabularyKind::kByteLevel:
      FindByteTokens(impl);
      FindDroppedBytes(impl);
      TIDEMILL_TRY_VOID(TakeMerges(spec, impl));
      break;
    case VocabularyKind::kSentencePiece: {
      FindByteFallbacks(impl);
      FindDroppedBytes(impl);
      std::vector<Piece> pieces;
      TIDEMILL_TRY_VOID(TakePieces(spec, impl, pieces));
      if (!MergesByScore(spec)) {
        TIDEMILL_TRY_VOID(TakeMerges(spec, impl));
        break;
      }
      const ScoredMerges merges = MakeScoredMerges(pieces, impl.piece_symbols);
      Free(pieces);
      impl.merger = BytePairMerger(merges.rules, impl.piece_symbols.num_symbols(), merges.ranks);
      break;
    }
    case VocabularyKind::kUnigram: FindByteFallbacks(impl); [[fallthrough]];
    case VocabularyKind::kWordPiece: {
      TIDEMILL_TRY(pieces, TriePieces(impl));
      if (spec.kind == VocabularyKind::kUnigram) {
        impl.unigram = Unigram(std::move(pieces), std::move(spec.scores));
      } else {
        impl.word_pieces = WordPieces(std::move(pieces), spec.prefixes, spec.max_word_characters);
      }
      break;
    }
    case VocabularyKind::kWordLevel: break;
  }
  TakeWholeWords(spec, impl);
  return {};
}

Result<Tokenizer> Create(TokenizerSpec& spec) {
  TIDEMILL_TRY_VOID(CheckSettings(spec));
  auto impl = std::make_unique<Tokenizer::Impl>();
  impl->kind = spec.kind;
  impl->unk_id = spec.unk_id.value_or(-1);
  impl->fuse_unk = spec.fuse_unk;
  impl->leading_space = spec.leading_space;
  TIDEMILL_TRY(normalizer, Normalizer::Create(std::move(spec.normalizer)).WithContext("load tokenizer"));
  impl->normalizer = std::move(normalizer);
  TIDEMILL_TRY(pre_tokenizer, PreTokenizer::Create(std::move(spec.pre_tokenizer)).WithContext("load tokenizer"));
  impl->pre_tokenizer = std::move(pre_tokenizer);
  TIDEMILL_TRY(texts, NormalizeAddedTokens(spec, impl->normalizer));
  TIDEMILL_TRY_VOID(TakeTokens(spec, texts, *impl));
  TIDEMILL_TRY_VOID(TakeAddedTokens(spec, texts, *impl));
  TIDEMILL_TRY_VOID(TakeModel(spec, *impl));
  FindEndOfGeneration(spec, *impl);
  impl->bos_id = spec.bos_id;
  impl->eos_id = spec.eos_id;
  impl->add_bos = spec.add_bos;
  impl->add_eos = spec.add_eos;
  impl->begin_ids = std::move(spec.begin_ids);
  if (spec.add_bos) impl->begin_ids.push_back(*spec.bos_id);
  impl->end_ids = std::move(spec.end_ids);
  if (spec.add_eos) impl->end_ids.push_back(*spec.eos_id);
  return Tokenizer(std::unique_ptr<const Tokenizer::Impl>(std::move(impl)));
}

}  // namespace

std::vector<NormalizerStep> PieceSpaces(bool space_prefix, bool removes_spaces) {
  std::vector<NormalizerStep> steps;
  if (removes_spaces) {
    steps.push_back({.kind = NormalizerKind::kReplace, .pattern = R"(\A +)"});
    steps.push_back({.kind = NormalizerKind::kReplace, .pattern = " {2,}", .content = " "});
  }
  if (space_prefix) steps.push_back({.kind = NormalizerKind::kPrepend, .content = std::string(kPieceSpaceUtf8)});
  steps.push_back(
      {.kind = NormalizerKind::kReplace, .pattern = " ", .is_literal = true, .content = std::string(kPieceSpaceUtf8)});
  if (removes_spaces)
    steps.push_back({.kind = NormalizerKind::kReplace, .pattern = std::string(kPieceSpaceUtf8) + R"(+\z)"});
  return steps;
}

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
