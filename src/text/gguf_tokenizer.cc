#include "text/gguf_tokenizer.h"

#include <limits>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/printable_name.h"
#include "text/piece_symbols.h"
#include "text/pre_tokenizer.h"

namespace tidemill {
namespace {

constexpr std::string_view kReadTokenizer = "read tokenizer";

Result<std::optional<int32_t>> ReadId(const GgufFile& file, std::string_view key, size_t num_tokens) {
  if (file.FindValue(key) == nullptr) return std::optional<int32_t>();
  TIDEMILL_TRY(id, file.GetUint(key, 0, num_tokens - 1));
  return std::optional<int32_t>(static_cast<int32_t>(id));
}

Result<std::vector<std::string>> ReadStrings(const GgufFile& file, std::string_view key) {
  TIDEMILL_TRY(views, file.GetStrings(key));
  return std::vector<std::string>(views.begin(), views.end());
}

Result<void> ReadTypes(const GgufFile& file, TokenizerSpec& spec) {
  constexpr std::string_view kKey = "tokenizer.ggml.token_type";
  if (file.FindValue(kKey) == nullptr) return {};
  TIDEMILL_TRY(types, file.GetInts(kKey));
  if (types.size() != spec.tokens.size()) {
    return Error(ErrorCode::kCorruptFile, std::string(kKey) + ": expected one value for each of the " +
                                              std::to_string(spec.tokens.size()) + " tokens, found " +
                                              std::to_string(types.size()));
  }
  spec.types.reserve(types.size());
  for (size_t id = 0; id < types.size(); ++id) {
    if (types[id] < static_cast<int32_t>(TokenType::kNormal) || types[id] > static_cast<int32_t>(TokenType::kByte)) {
      return Error(ErrorCode::kCorruptFile, std::string(kKey) + ": token " + std::to_string(id) + " " +
                                                QuoteName(spec.tokens[id]) + ": expected a type from 1 to 6, found " +
                                                std::to_string(types[id]));
    }
    spec.types.push_back(static_cast<TokenType>(types[id]));
  }
  return {};
}

// What tokenizer.ggml.model says, with what its files mean if they do not say.
struct ModelDefaults {
  VocabularyKind kind = VocabularyKind::kByteLevel;
  bool adds_bos = false;
  bool adds_eos = false;
  bool space_prefix = false;
  bool merges_by_rank = false;  // else by score
};

Result<ModelDefaults> ReadModel(const GgufFile& file) {
  TIDEMILL_TRY(model, file.GetString("tokenizer.ggml.model"));
  if (model == "gpt2") return ModelDefaults{.merges_by_rank = true};
  if (model == "llama")
    return ModelDefaults{.kind = VocabularyKind::kSentencePiece, .adds_bos = true, .space_prefix = true};
  if (model == "gemma4")
    return ModelDefaults{.kind = VocabularyKind::kSentencePiece, .adds_bos = true, .merges_by_rank = true};
  if (model == "t5") return ModelDefaults{.kind = VocabularyKind::kUnigram, .adds_eos = true};
  if (model == "bert") return ModelDefaults{.kind = VocabularyKind::kWordPiece, .adds_bos = true, .adds_eos = true};
  return Error(
      ErrorCode::kUnsupported,
      "tokenizer.ggml.model " + QuoteName(model) +
          ": expected \"gpt2\" (byte-level BPE), \"llama\" (SentencePiece BPE), \"gemma4\", \"t5\" (Unigram) or "
          "\"bert\" (WordPiece)");
}

// The rule by which text is split before merging.
Result<void> ReadSplit(const GgufFile& file, ModelDefaults& defaults, TokenizerSpec& spec) {
  constexpr std::string_view kKey = "tokenizer.ggml.pre";
  const bool is_gemma4 = spec.kind == VocabularyKind::kSentencePiece;
  TIDEMILL_TRY(name, file.GetStringOr(kKey, is_gemma4 ? "gemma4" : "default"));
  const std::optional<NamedPreTokenizer> named = FindPreTokenizer(is_gemma4 ? "gemma4" : name);
  if (!named) {
    return Error(ErrorCode::kUnsupported, std::string(kKey) + " " + QuoteName(name) +
                                              ": expected a name of docs/models.md, such as gpt-2, llama-bpe or qwen2");
  }
  spec.pre_tokenizer = named->steps;
  spec.ignore_merges = named->ignore_merges;
  defaults.adds_bos = defaults.adds_bos || named->adds_bos;
  if (named->is_byte_level) return {};
  spec.kind = VocabularyKind::kSentencePiece;
  spec.keeps_line_feeds = true;
  return {};
}

// The character map, then white space as SentencePiece leaves it.
Result<void> ReadUnigramSteps(const GgufFile& file, bool space_prefix, TokenizerSpec& spec) {
  constexpr std::string_view kMap = "tokenizer.ggml.precompiled_charsmap";
  if (file.FindValue(kMap) != nullptr) {
    TIDEMILL_TRY(values, file.GetInts(kMap));
    std::string bytes;
    for (const int32_t value : values) {
      if (value < -128 || value > 255)
        return Error(ErrorCode::kCorruptFile, std::string(kMap) + ": expected bytes, found " + std::to_string(value));
      bytes += static_cast<char>(static_cast<uint8_t>(value));
    }
    spec.normalizer.push_back(
        {.kind = NormalizerKind::kCharsMap, .content = std::move(bytes), .search = CharsMapSearch::kLongest});
  }
  TIDEMILL_TRY(removes_spaces, file.GetBoolOr("tokenizer.ggml.remove_extra_whitespaces", false));
  for (NormalizerStep& step : PieceSpaces(space_prefix, removes_spaces)) spec.normalizer.push_back(std::move(step));
  return {};
}

// Once tokens and types are there.
Result<void> ReadWords(const GgufFile& file, ModelDefaults& defaults, TokenizerSpec& spec) {
  if (defaults.merges_by_rank) {
    TIDEMILL_TRY_VOID(ReadSplit(file, defaults, spec));
    TIDEMILL_TRY(merges, ReadStrings(file, "tokenizer.ggml.merges"));
    spec.merges = std::move(merges);
  } else if (spec.kind != VocabularyKind::kWordPiece) {
    TIDEMILL_TRY(scores, file.GetFloats("tokenizer.ggml.scores"));
    spec.scores.assign(scores.begin(), scores.end());
  }
  TIDEMILL_TRY(space_prefix, file.GetBoolOr("tokenizer.ggml.add_space_prefix", defaults.space_prefix));
  if (spec.kind == VocabularyKind::kByteLevel) {
    if (space_prefix) spec.pre_tokenizer.insert(spec.pre_tokenizer.begin(), {.kind = PreTokenizerKind::kPrefixSpace});
    return {};
  }
  spec.spelling = TokenSpelling::kPieceSpaces;
  spec.leading_space = space_prefix ? LeadingSpace::kOneDropped : LeadingSpace::kKept;
  if (spec.kind == VocabularyKind::kUnigram) return ReadUnigramSteps(file, space_prefix, spec);
  if (spec.kind == VocabularyKind::kSentencePiece) {
    spec.normalizer = PieceSpaces(space_prefix);
    return {};
  }
  spec.max_word_characters = std::numeric_limits<size_t>::max();
  spec.prefixes = {.first = std::string(kPieceSpaceUtf8), .rest = ""};
  spec.leading_space = LeadingSpace::kOneDropped;
  TIDEMILL_TRY(lowercase, file.GetBoolOr("tokenizer.ggml.normalizer.lowercase", true));
  TIDEMILL_TRY(strip_accents, file.GetBoolOr("tokenizer.ggml.normalizer.strip_accents", lowercase));
  spec.normalizer = BertSteps({.strip_accents = strip_accents, .lowercase = lowercase});
  spec.pre_tokenizer = BertWords();
  return {};
}

Result<TokenizerSpec> Read(const GgufFile& file) {
  TIDEMILL_TRY(defaults, ReadModel(file));
  TokenizerSpec spec;
  spec.kind = defaults.kind;
  TIDEMILL_TRY(tokens, ReadStrings(file, "tokenizer.ggml.tokens"));
  spec.tokens = std::move(tokens);
  const size_t num_tokens = spec.tokens.size();
  if (num_tokens == 0 || num_tokens > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    return Error(ErrorCode::kCorruptFile,
                 "tokenizer.ggml.tokens: expected 1 to 2^31 - 1 tokens, found " + std::to_string(num_tokens));
  }
  TIDEMILL_TRY_VOID(ReadTypes(file, spec));
  TIDEMILL_TRY_VOID(ReadWords(file, defaults, spec));
  const bool is_word_piece = spec.kind == VocabularyKind::kWordPiece;
  // BERT's classification token begins a text, its separator ends it.
  for (const std::string_view key : {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.cls_token_id"}) {
    TIDEMILL_TRY(id, ReadId(file, key, num_tokens));
    if (!spec.bos_id && (is_word_piece || key.find("bos") != std::string_view::npos)) spec.bos_id = id;
  }
  // "seperator" is how the key is spelled.
  for (const std::string_view key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.seperator_token_id"}) {
    TIDEMILL_TRY(id, ReadId(file, key, num_tokens));
    if (!spec.eos_id && (is_word_piece || key.find("eos") != std::string_view::npos)) spec.eos_id = id;
  }
  if (is_word_piece || spec.kind == VocabularyKind::kUnigram) {
    TIDEMILL_TRY(unk_id, ReadId(file, "tokenizer.ggml.unknown_token_id", num_tokens));
    spec.unk_id = unk_id;
  }
  // The ids of the first models of these kinds, where a file does not say.
  const auto fall_back = [&](std::optional<int32_t>& id, int32_t other) {
    if (!id && static_cast<size_t>(other) < num_tokens) id = other;
  };
  if (is_word_piece) {
    fall_back(spec.bos_id, 101);
    fall_back(spec.eos_id, 102);
    fall_back(spec.unk_id, 100);
  } else if (spec.kind == VocabularyKind::kUnigram) {
    fall_back(spec.eos_id, 1);
    fall_back(spec.unk_id, 2);
  }
  for (const std::string_view key : {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    TIDEMILL_TRY(id, ReadId(file, key, num_tokens));
    if (id) spec.end_of_generation_ids.push_back(*id);
  }
  TIDEMILL_TRY(add_bos, file.GetBoolOr("tokenizer.ggml.add_bos_token", defaults.adds_bos && spec.bos_id.has_value()));
  spec.add_bos = add_bos;
  TIDEMILL_TRY(add_eos, file.GetBoolOr("tokenizer.ggml.add_eos_token", defaults.adds_eos && spec.eos_id.has_value()));
  spec.add_eos = add_eos;
  return spec;
}

}  // namespace

Result<TokenizerSpec> ReadTokenizerSpec(const GgufFile& file) {
  try {
    return Read(file).WithContext(kReadTokenizer);
  } catch (const std::bad_alloc&) {
    return Error(ErrorCode::kOutOfMemory, std::string(kReadTokenizer) + ": vocabulary: not enough memory");
  }
}

}  // namespace tidemill
