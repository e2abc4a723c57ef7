#include "text/tokenizer_json.h"

#include <algorithm>
#include <cstdint>
#include <new>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/printable_name.h"
#include "text/piece_symbols.h"
#include "text/token_list.h"
#include "text/tokenizer_document.h"
#include "text/tokenizer_steps.h"

namespace tidemill {
namespace {

constexpr std::string_view kReadTokenizerJson = "read tokenizer.json";

Result<std::vector<AddedEntry>> ReadAddedTokens(const JsonValue& root) {
  std::vector<AddedEntry> added;
  const auto entries = FindPart(root, "added_tokens");
  if (!entries) return added;
  if (!entries->is_array()) return Corrupt("added_tokens: expected a list, found another value");
  for (const JsonValue& entry : entries->Elements()) {
    TIDEMILL_TRY(token, ReadAddedToken(entry, "added_tokens: entry " + std::to_string(added.size())));
    const auto id = entry.GetUint("id", 0, UINT64_MAX);
    if (!id.ok()) return Corrupt("added token " + QuoteName(token.text) + ": id: expected a number, found none");
    token.id = *id;
    added.push_back(std::move(token));
  }
  return added;
}

// The id of model.unk_token, or of `fallback`.
void FindUnknownToken(const JsonValue& model, std::string_view fallback, TokenizerSpec& spec) {
  const auto named = FindPart(model, "unk_token");
  const std::string_view name = named && named->is_string() ? named->text() : fallback;
  const auto found = name.empty() ? spec.tokens.end() : std::find(spec.tokens.begin(), spec.tokens.end(), name);
  if (found != spec.tokens.end()) spec.unk_id = static_cast<int32_t>(found - spec.tokens.begin());
}

// Whether a step of the pre-tokenizer, or the decoder, is ByteLevel: the text is then bytes to the model.
Result<bool> HasByteLevel(const JsonValue& root) {
  TIDEMILL_TRY(steps, ReadStepList(root, "pre_tokenizer", "pretokenizers"));
  TIDEMILL_TRY(decoders, ReadStepList(root, "decoder", "decoders"));
  steps.insert(steps.end(), decoders.begin(), decoders.end());
  return std::any_of(steps.begin(), steps.end(), [](const TokenizerStep& step) { return step.type == "ByteLevel"; });
}

Result<void> ReadBpe(const JsonValue& root, const JsonValue& model, bool byte_fallback, TokenizerSpec& spec) {
  TIDEMILL_TRY(is_byte_level, HasByteLevel(root));
  spec.kind = is_byte_level && !byte_fallback ? VocabularyKind::kByteLevel : VocabularyKind::kSentencePiece;
  for (const char* const key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const auto value = FindPart(model, key);
    if (value && !IsText(*value, "")) {
      return Unsupported(std::string("model: ") + key + " " + DescribeString(*value) + ": expected none");
    }
  }
  if (const auto dropout = FindPart(model, "dropout"); dropout && !IsNumber(*dropout, 0)) {
    return Unsupported("model: dropout: expected none: the same text would get other ids each time");
  }
  TIDEMILL_TRY(ignore_merges, GetBool(model, "ignore_merges", "model", false));
  spec.ignore_merges = ignore_merges;
  TIDEMILL_TRY(fuse_unk, GetBool(model, "fuse_unk", "model", false));
  spec.fuse_unk = fuse_unk;
  return {};
}

Result<void> ReadWordPiece(const JsonValue& model, TokenizerSpec& spec) {
  spec.kind = VocabularyKind::kWordPiece;
  const auto prefix = FindPart(model, "continuing_subword_prefix");
  spec.prefixes.rest = prefix && prefix->is_string() ? std::string(prefix->text()) : "##";
  TIDEMILL_TRY(most, model.GetUintOr("max_input_chars_per_word", 100, 0, kMaxDocumentBytes));
  spec.max_word_characters = most;
  return {};
}

// The model's type: what model.type says, or what only this type has.
Result<std::string> ReadModelType(const JsonValue& model, const TokenizerDocument& document) {
  const auto type = FindPart(model, "type");
  if (!type) return std::string(document.has_scores ? "Unigram" : "BPE");
  for (const std::string_view known : {"BPE", "Unigram", "WordPiece", "WordLevel"}) {
    if (IsText(*type, known)) return std::string(known);
  }
  return Unsupported("model: type " + DescribeString(*type) + ": expected BPE, Unigram, WordPiece or WordLevel");
}

Result<TokenizerSpec> Read(std::string_view text) {
  TIDEMILL_TRY(document, ParseTokenizerDocument(text));
  const JsonValue& root = document.rest;
  const auto model = FindPart(root, "model");
  if (!model || !model->is_object()) return Corrupt("model: expected an object, found none");
  TIDEMILL_TRY(type, ReadModelType(*model, document));
  const bool is_unigram = type == "Unigram";
  const bool is_bpe = type == "BPE";
  TokenizerSpec spec;
  TIDEMILL_TRY(byte_fallback, GetBool(*model, "byte_fallback", "model", false));
  if (is_bpe) TIDEMILL_TRY_VOID(ReadBpe(root, *model, byte_fallback, spec));
  if (type == "WordPiece") TIDEMILL_TRY_VOID(ReadWordPiece(*model, spec));
  if (type == "WordLevel") spec.kind = VocabularyKind::kWordLevel;
  if (is_unigram) spec.kind = VocabularyKind::kUnigram;
  if (!document.has_vocabulary || document.has_scores != is_unigram) {
    return Corrupt(std::string("model.vocab: expected ") +
                   (is_unigram ? "a list of tokens and scores" : "an object of tokens and ids") + ", found none");
  }
  if (is_bpe && !document.has_merges) return Corrupt("model.merges: expected a list, found none");
  if (is_bpe) spec.merges = std::move(document.merges);
  spec.merges_by_rank = is_bpe;
  TIDEMILL_TRY_VOID(ReadNormalizer(root, spec));
  TIDEMILL_TRY_VOID(ReadPreTokenizer(root, spec));
  TIDEMILL_TRY_VOID(ReadPostProcessor(root, spec));
  TIDEMILL_TRY_VOID(ReadDecoder(root, spec));
  TIDEMILL_TRY(added, ReadAddedTokens(root));
  std::vector<double> scores;
  for (const TokenizerDocument::Token& token : document.vocabulary) scores.push_back(token.score);
  const bool has_byte_tokens = byte_fallback && (is_bpe || is_unigram);
  TIDEMILL_TRY_VOID(PlaceTokens(std::move(document.vocabulary), std::move(added), has_byte_tokens, spec));
  if (is_unigram) {
    scores.resize(spec.tokens.size());
    spec.scores = std::move(scores);
    if (const auto unknown = FindPart(*model, "unk_id")) {
      TIDEMILL_TRY(id, model->GetUint("unk_id", 0, INT32_MAX));
      spec.unk_id = static_cast<int32_t>(id);
    }
  } else {
    FindUnknownToken(*model, type == "WordPiece" ? "[UNK]" : type == "WordLevel" ? "<unk>" : "", spec);
  }
  return spec;
}

}  // namespace

Result<TokenizerSpec> ReadTokenizerJson(std::string_view json_text) {
  try {
    return Read(json_text).WithContext(kReadTokenizerJson);
  } catch (const std::bad_alloc&) {
    return Error(ErrorCode::kOutOfMemory, std::string(kReadTokenizerJson) + ": " + std::to_string(json_text.size()) +
                                              " bytes: not enough memory");
  }
}

}  // namespace tidemill
