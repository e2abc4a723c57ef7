#include "text/sentencepiece_model.h"

#include <cstdint>
#include <cstring>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "text/tokenizer_document.h"
#include "text/tokenizer_steps.h"

namespace tidemill {
namespace {

constexpr uint64_t kUnigramModel = 1;
constexpr uint64_t kBpeModel = 2;

// One field of a message; of its value what the wire type has.
struct Field {
  uint64_t number = 0;
  std::optional<uint64_t> integer;
  std::optional<float> real;
  std::optional<std::string_view> bytes;
};

// The fields of a message, one after another.
class Fields {
 public:
  Fields(std::string_view message, size_t first_byte) : message_(message), first_byte_(first_byte) {}

  bool done() const { return at_ == message_.size(); }
  size_t at() const { return first_byte_ + at_; }

  Result<Field> Next() {
    TIDEMILL_TRY(tag, Varint());
    Field field{.number = tag >> 3, .integer = {}, .real = {}, .bytes = {}};
    switch (tag & 7) {
      case 0: {
        TIDEMILL_TRY(value, Varint());
        field.integer = value;
        return field;
      }
      case 1: {
        TIDEMILL_TRY(skipped, Take(8));
        static_cast<void>(skipped);
        return field;
      }
      case 2: {
        TIDEMILL_TRY(size, Varint());
        TIDEMILL_TRY(bytes, Take(size));
        field.bytes = bytes;
        return field;
      }
      case 5: {
        TIDEMILL_TRY(bytes, Take(4));
        float value = 0;
        std::memcpy(&value, bytes.data(), sizeof(value));
        field.real = value;
        return field;
      }
      default:
        return Corrupt("byte " + std::to_string(at()) + ": expected a field, found wire type " +
                       std::to_string(tag & 7));
    }
  }

 private:
  Result<uint64_t> Varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      TIDEMILL_TRY(byte, Take(1));
      const auto bits = static_cast<uint8_t>(byte[0]);
      value |= uint64_t{bits & 0x7Fu} << shift;
      if ((bits & 0x80) == 0) return value;
    }
    return Corrupt("byte " + std::to_string(at()) + ": expected an integer of at most 10 bytes, found a longer one");
  }

  Result<std::string_view> Take(uint64_t size) {
    if (size > message_.size() - at_) {
      return Corrupt("byte " + std::to_string(at()) + ": expected " + std::to_string(size) + " bytes, found " +
                     std::to_string(message_.size() - at_));
    }
    const std::string_view bytes = message_.substr(at_, size);
    at_ += size;
    return bytes;
  }

  std::string_view message_;
  size_t first_byte_;
  size_t at_ = 0;
};

// Calls take(field) for each field of a message that lies in `file`.
template <typename Take>
Result<void> ForEachField(std::string_view message, std::string_view file, const Take& take) {
  Fields fields(message, static_cast<size_t>(message.data() - file.data()));
  while (!fields.done()) {
    TIDEMILL_TRY(field, fields.Next());
    TIDEMILL_TRY_VOID(take(field));
  }
  return {};
}

struct Settings {
  uint64_t model_type = kUnigramModel;
  bool spaces_end_pieces = false;
  bool byte_fallback = false;
  int64_t unk_id = 0, bos_id = 1, eos_id = 2;
  std::string chars_map;
  bool space_prefix = true;
  bool removes_spaces = true;
  bool escapes_spaces = true;
};

Result<void> ReadTraining(std::string_view message, std::string_view file, Settings& settings) {
  return ForEachField(message, file, [&](const Field& field) -> Result<void> {
    if (!field.integer) return {};
    const auto id = static_cast<int64_t>(*field.integer);
    switch (field.number) {
      case 3: settings.model_type = *field.integer; break;
      case 24: settings.spaces_end_pieces = *field.integer != 0; break;
      case 35: settings.byte_fallback = *field.integer != 0; break;
      case 40: settings.unk_id = id; break;
      case 41: settings.bos_id = id; break;
      case 42: settings.eos_id = id; break;
      default: break;
    }
    return {};
  });
}

Result<void> ReadNormalizing(std::string_view message, std::string_view file, Settings& settings) {
  return ForEachField(message, file, [&](const Field& field) -> Result<void> {
    if (field.number == 2 && field.bytes) settings.chars_map = *field.bytes;
    if (field.number == 3 && field.integer) settings.space_prefix = *field.integer != 0;
    if (field.number == 4 && field.integer) settings.removes_spaces = *field.integer != 0;
    if (field.number == 5 && field.integer) settings.escapes_spaces = *field.integer != 0;
    return {};
  });
}

Result<void> ReadPiece(std::string_view message, std::string_view file, TokenizerSpec& spec) {
  std::string text;
  float score = 0;
  uint64_t type = 1;
  TIDEMILL_TRY_VOID(ForEachField(message, file, [&](const Field& field) -> Result<void> {
    if (field.number == 1 && field.bytes) text = *field.bytes;
    if (field.number == 2 && field.real) score = *field.real;
    if (field.number == 3 && field.integer) type = *field.integer;
    return {};
  }));
  const std::string name = "piece " + std::to_string(spec.tokens.size());
  if (type < 1 || type > 6) return Corrupt(name + ": type: expected 1 to 6, found " + std::to_string(type));
  if (spec.tokens.size() == kMaxDocumentTokens)
    return Unsupported("pieces: expected at most " + std::to_string(kMaxDocumentTokens));
  spec.tokens.push_back(std::move(text));
  spec.scores.push_back(static_cast<double>(score));
  spec.types.push_back(static_cast<TokenType>(type));
  return {};
}

Result<std::optional<int32_t>> CheckPieceId(int64_t id, std::string_view what, size_t num_pieces) {
  if (id < 0) return std::optional<int32_t>();
  if (static_cast<uint64_t>(id) >= num_pieces) {
    return Corrupt(std::string(what) + ": expected an id below " + std::to_string(num_pieces) + ", found " +
                   std::to_string(id));
  }
  return std::optional(static_cast<int32_t>(id));
}

Result<TokenizerSpec> ReadModelProto(std::string_view file) {
  TokenizerSpec spec;
  Settings settings;
  TIDEMILL_TRY_VOID(ForEachField(file, file, [&](const Field& field) -> Result<void> {
    if (!field.bytes) return {};
    if (field.number == 1) return ReadPiece(*field.bytes, file, spec);
    if (field.number == 2) return ReadTraining(*field.bytes, file, settings);
    if (field.number == 3) return ReadNormalizing(*field.bytes, file, settings);
    return {};
  }));
  if (settings.model_type != kUnigramModel && settings.model_type != kBpeModel) {
    return Unsupported("model type: expected 1 (Unigram) or 2 (BPE), found " + std::to_string(settings.model_type));
  }
  if (settings.spaces_end_pieces) return Unsupported("treat_whitespace_as_suffix: expected false, found true");
  if (!settings.escapes_spaces) return Unsupported("escape_whitespaces: expected true, found false");
  spec.kind = settings.model_type == kBpeModel ? VocabularyKind::kSentencePiece : VocabularyKind::kUnigram;
  spec.spelling = TokenSpelling::kPieceSpaces;
  for (TokenType& type : spec.types) {
    if (type == TokenType::kByte && !settings.byte_fallback) type = TokenType::kUnused;
  }
  if (!settings.chars_map.empty()) {
    spec.normalizer.push_back({.kind = NormalizerKind::kCharsMap,
                               .content = std::move(settings.chars_map),
                               .search = CharsMapSearch::kLongest});
  }
  for (NormalizerStep& step : PieceSpaces(settings.space_prefix, settings.removes_spaces))
    spec.normalizer.push_back(std::move(step));
  spec.leading_space = settings.space_prefix ? LeadingSpace::kOneDropped : LeadingSpace::kKept;
  TIDEMILL_TRY(unk_id, CheckPieceId(settings.unk_id, "unk_id", spec.tokens.size()));
  spec.unk_id = unk_id;
  TIDEMILL_TRY(bos_id, CheckPieceId(settings.bos_id, "bos_id", spec.tokens.size()));
  spec.bos_id = bos_id;
  TIDEMILL_TRY(eos_id, CheckPieceId(settings.eos_id, "eos_id", spec.tokens.size()));
  spec.eos_id = eos_id;
  return spec;
}

}  // namespace

Result<TokenizerSpec> ReadSentencePieceModel(std::string_view bytes) {
  constexpr std::string_view kRead = "read SentencePiece model";
  try {
    return ReadModelProto(bytes).WithContext(kRead);
  } catch (const std::bad_alloc&) {
    return Error(ErrorCode::kOutOfMemory,
                 std::string(kRead) + ": " + std::to_string(bytes.size()) + " bytes: not enough memory");
  }
}

}  // namespace tidemill
