#include "text/gguf_tokenizer.h"

#include <limits>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/printable_name.h"
#include "text/word_splitter.h"

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

Result<TokenizerSpec> Read(const GgufFile& file) {
  TIDEMILL_TRY(model, file.GetString("tokenizer.ggml.model"));
  const bool is_byte_level = model == "gpt2";
  if (!is_byte_level && model != "llama") {
    return Error(ErrorCode::kUnsupported, "tokenizer.ggml.model " + QuoteName(model) +
                                              ": expected \"gpt2\" (byte-level BPE) or \"llama\" (SentencePiece BPE)");
  }
  TokenizerSpec spec;
  spec.kind = is_byte_level ? VocabularyKind::kByteLevel : VocabularyKind::kSentencePiece;
  bool adds_bos_unless_said = !is_byte_level;
  if (is_byte_level) {
    TIDEMILL_TRY(pre_tokenizer, file.GetString("tokenizer.ggml.pre"));
    spec.pre_tokenizer = pre_tokenizer;
    spec.ignore_merges = FindWordRule(pre_tokenizer) == WordRule::kLlama3;  // what its models' tokenizer.json say
    adds_bos_unless_said = spec.ignore_merges;
  }
  TIDEMILL_TRY(tokens, ReadStrings(file, "tokenizer.ggml.tokens"));
  spec.tokens = std::move(tokens);
  const size_t num_tokens = spec.tokens.size();
  if (num_tokens == 0 || num_tokens > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    return Error(ErrorCode::kCorruptFile,
                 "tokenizer.ggml.tokens: expected 1 to 2^31 - 1 tokens, found " + std::to_string(num_tokens));
  }
  TIDEMILL_TRY_VOID(ReadTypes(file, spec));
  if (is_byte_level) {
    TIDEMILL_TRY(merges, ReadStrings(file, "tokenizer.ggml.merges"));
    spec.merges = std::move(merges);
  } else {
    TIDEMILL_TRY(scores, file.GetFloats("tokenizer.ggml.scores"));
    spec.scores = std::move(scores);
  }
  TIDEMILL_TRY(bos_id, ReadId(file, "tokenizer.ggml.bos_token_id", num_tokens));
  spec.bos_id = bos_id;
  TIDEMILL_TRY(eos_id, ReadId(file, "tokenizer.ggml.eos_token_id", num_tokens));
  spec.eos_id = eos_id;
  for (const std::string_view key : {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    TIDEMILL_TRY(id, ReadId(file, key, num_tokens));
    if (id) spec.end_of_generation_ids.push_back(*id);
  }
  TIDEMILL_TRY(add_bos,
               file.GetBoolOr("tokenizer.ggml.add_bos_token", adds_bos_unless_said && spec.bos_id.has_value()));
  spec.add_bos = add_bos;
  TIDEMILL_TRY(add_eos, file.GetBoolOr("tokenizer.ggml.add_eos_token", false));
  spec.add_eos = add_eos;
  TIDEMILL_TRY(add_space_prefix, file.GetBoolOr("tokenizer.ggml.add_space_prefix", !is_byte_level));
  spec.add_space_prefix = add_space_prefix;
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
