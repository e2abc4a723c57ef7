#include "runtime/request_record.h"

#include <cstring>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/byte_reader.h"
#include "base/check.h"
#include "base/checked_math.h"
#include "base/checksum.h"
#include "text/utf8.h"
#include "tidemill/tokenizer.h"

namespace tidemill {
namespace {

constexpr char kMagic[8] = {'T', 'M', 'I', 'L', 'L', 'R', 'E', 'Q'};
constexpr size_t kSizeOffset = 16, kChecksumOffset = 24;
static_assert(kRequestRecordHeaderBytes == kChecksumOffset + sizeof(uint64_t));
constexpr auto kLastFinish = static_cast<uint32_t>(FinishReason::kRepetition);
constexpr uint32_t kMaxStops = 16;

class Writer {
 public:
  explicit Writer(std::vector<std::byte>* out) : out_(out) {}

  void Bytes(std::span<const std::byte> bytes) {  // not insert, in which gcc 12 sees an overflow
    if (bytes.empty()) return;
    const size_t at = out_->size();
    out_->resize(at + bytes.size());
    std::memcpy(out_->data() + at, bytes.data(), bytes.size());
  }
  template <typename T>
  requires std::is_arithmetic_v<T>
  void Put(T value) { Bytes(std::as_bytes(std::span(&value, 1))); }
  void Text(std::string_view text) {
    Put(static_cast<uint32_t>(text.size()));
    Bytes(std::as_bytes(std::span(text)));
  }

 private:
  std::vector<std::byte>* out_;
};

void PutIds(std::span<const int32_t> ids, Writer& writer) {
  writer.Put(static_cast<uint32_t>(ids.size()));
  writer.Bytes(std::as_bytes(ids));
}

bool HasFileOptions(const GenerationOptions& options) {
  return options.max_length || !options.bad_words_ids.empty() || options.forced_bos_token_id ||
         !options.forced_eos_token_id.empty() || !options.suppress_tokens.empty() ||
         !options.begin_suppress_tokens.empty();
}

void PutFileOptions(const GenerationOptions& options, Writer& writer) {
  writer.Put(options.max_length.value_or(0));
  writer.Put(static_cast<uint32_t>(options.bad_words_ids.size()));
  for (const std::vector<int32_t>& word : options.bad_words_ids) PutIds(word, writer);
  writer.Put(options.forced_bos_token_id.value_or(-1));
  for (const std::vector<int32_t>* ids :
       {&options.forced_eos_token_id, &options.suppress_tokens, &options.begin_suppress_tokens})
    PutIds(*ids, writer);
}

void PutGeneration(const GenerationOptions& options, Writer& writer) {
  // Names every field, so that a new one does not compile until somebody has decided about it.
  const auto& [max_new_tokens, max_length, min_new_tokens, temperature, top_k, top_p, min_p, repetition_penalty,
               presence_penalty, frequency_penalty, no_repeat_ngram_size, logit_bias, bad_words_ids,
               forced_bos_token_id, forced_eos_token_id, suppress_tokens, begin_suppress_tokens, stop, ignore_eos,
               stop_at_repetition, seed, logprobs] = options;
  writer.Put(max_new_tokens.value_or(0));
  writer.Put(min_new_tokens);
  writer.Put(temperature);
  writer.Put(top_k);
  for (const float value : {top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty}) writer.Put(value);
  writer.Put(no_repeat_ngram_size);
  writer.Put(static_cast<uint32_t>(logit_bias.size()));
  for (const auto& [id, bias] : logit_bias) {
    writer.Put(id);
    writer.Put(bias);
  }
  writer.Put(static_cast<uint32_t>(stop.size()));
  for (const std::string& text : stop) writer.Text(text);
  writer.Put(static_cast<uint32_t>(ignore_eos));
  writer.Put(static_cast<uint32_t>(stop_at_repetition));
  writer.Put(seed);
  writer.Put(logprobs);
  static_cast<void>(max_length), static_cast<void>(bad_words_ids), static_cast<void>(forced_bos_token_id);
  static_cast<void>(forced_eos_token_id), static_cast<void>(suppress_tokens), static_cast<void>(begin_suppress_tokens);
  if (HasFileOptions(options)) PutFileOptions(options, writer);
}

Error Corrupt(const ByteReader& reader, std::string_view what, const std::string& found) {
  return Error(ErrorCode::kCorruptFile, "before byte " + std::to_string(reader.position()) + ": " + std::string(what) +
                                            ": " + found + "; the file is damaged");
}

// Reads one field after another; what comes after one that is wrong is of no importance.
class FieldReader {
 public:
  explicit FieldReader(ByteReader* reader) : reader_(reader) {}

  template <typename T>
  T Read(std::string_view what) {
    return Value(error_ ? Result<T>(T{}) : reader_->Read<T>(what));
  }
  std::span<const std::byte> Take(uint64_t count, std::string_view what) {
    return Value(error_ ? Result<std::span<const std::byte>>(std::span<const std::byte>())
                        : reader_->Take(count, what));
  }
  uint32_t ReadUpTo(uint32_t most, std::string_view what) {
    const auto value = Read<uint32_t>(what);
    if (value <= most) return value;
    Refuse(what, "expected at most " + std::to_string(most) + ", found " + std::to_string(value));
    return 0;
  }
  std::string Text(uint32_t most, std::string_view what) {
    const std::span<const std::byte> bytes = Take(ReadUpTo(most, what), what);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  void Refuse(std::string_view what, const std::string& found) {
    if (!error_) error_ = Corrupt(*reader_, what, found);
  }
  bool ok() const { return !error_.has_value(); }
  const std::optional<Error>& error() const { return error_; }

 private:
  template <typename T>
  T Value(Result<T> result) {
    if (result.ok()) return std::move(result).value();
    error_ = std::move(result).error();
    return T{};
  }

  ByteReader* reader_;
  std::optional<Error> error_;
};

std::vector<int32_t> ReadIds(FieldReader& fields, std::string_view what) {
  const auto count = fields.Read<uint32_t>(what);
  const std::span<const std::byte> bytes = fields.Take(uint64_t{count} * sizeof(int32_t), what);
  std::vector<int32_t> ids(bytes.size() / sizeof(int32_t));
  if (!ids.empty()) std::memcpy(ids.data(), bytes.data(), bytes.size());
  return ids;
}

void ReadFileOptions(FieldReader& fields, GenerationOptions& options) {
  const auto max_length = fields.Read<int32_t>("max_length");
  if (max_length != 0) options.max_length = max_length;
  const auto words = fields.Read<uint32_t>("bad_words_ids");
  for (uint32_t i = 0; i < words && fields.ok(); ++i) options.bad_words_ids.push_back(ReadIds(fields, "bad_words_ids"));
  const auto bos = fields.Read<int32_t>("forced_bos_token_id");
  if (bos != -1) options.forced_bos_token_id = bos;
  options.forced_eos_token_id = ReadIds(fields, "forced_eos_token_id");
  options.suppress_tokens = ReadIds(fields, "suppress_tokens");
  options.begin_suppress_tokens = ReadIds(fields, "begin_suppress_tokens");
  if (!HasFileOptions(options)) fields.Refuse("options", "expected some that version 2 lacks, found none");
}

GenerationOptions ReadGeneration(FieldReader& fields, uint64_t version) {
  GenerationOptions options;
  const auto max_new_tokens = fields.Read<int32_t>("max_new_tokens");
  if (max_new_tokens != 0) options.max_new_tokens = max_new_tokens;
  options.min_new_tokens = fields.Read<int32_t>("min_new_tokens");
  options.temperature = fields.Read<float>("temperature");
  options.top_k = fields.Read<int32_t>("top_k");
  options.top_p = fields.Read<float>("top_p");
  options.min_p = fields.Read<float>("min_p");
  options.repetition_penalty = fields.Read<float>("repetition_penalty");
  options.presence_penalty = fields.Read<float>("presence_penalty");
  options.frequency_penalty = fields.Read<float>("frequency_penalty");
  options.no_repeat_ngram_size = fields.Read<int32_t>("no_repeat_ngram_size");
  const auto biases = fields.Read<uint32_t>("biases");
  for (uint32_t i = 0; i < biases && fields.ok(); ++i) {
    const auto id = fields.Read<int32_t>("biases");
    options.logit_bias.emplace_back(id, fields.Read<float>("biases"));
  }
  const uint32_t stops = fields.ReadUpTo(kMaxStops, "stops");
  for (uint32_t i = 0; i < stops && fields.ok(); ++i) {
    options.stop.push_back(fields.Text(RequestRecord::kMaxHeldBytes, "stops"));
  }
  options.ignore_eos = fields.ReadUpTo(1, "ignore_eos") == 1;
  options.stop_at_repetition = fields.ReadUpTo(1, "stop_at_repetition") == 1;
  options.seed = fields.Read<uint64_t>("seed");
  options.logprobs = fields.Read<int32_t>("logprobs");
  if (version == kRequestRecordVersion) ReadFileOptions(fields, options);
  return options;
}

// Magic to checksum; the version.
Result<uint64_t> ReadHeader(std::span<const std::byte> bytes, ByteReader& reader) {
  TIDEMILL_TRY(magic, reader.Take(sizeof(kMagic), "magic"));
  if (std::memcmp(magic.data(), kMagic, sizeof(kMagic)) != 0) {
    return Error(ErrorCode::kCorruptFile, "byte 0: magic: expected TMILLREQ; this is no saved request");
  }
  TIDEMILL_TRY(version, reader.Read<uint64_t>("version"));
  if (version != kRequestRecordVersion && version != kPlainRequestRecordVersion) {
    return Error(ErrorCode::kFailedPrecondition,
                 "byte 8: version: expected " + std::to_string(kPlainRequestRecordVersion) + " or " +
                     std::to_string(kRequestRecordVersion) + ", found " + std::to_string(version) +
                     "; go on with the version of tidemill that saved it");
  }
  TIDEMILL_TRY(size, reader.Read<uint64_t>("size"));
  if (size != bytes.size()) {
    return Error(ErrorCode::kCorruptFile, "byte 16: size: expected " + std::to_string(size) + " bytes, found " +
                                              std::to_string(bytes.size()) + "; the file is truncated or damaged");
  }
  TIDEMILL_TRY(checksum, reader.Read<uint64_t>("checksum"));
  if (Checksum(bytes.subspan(reader.position())) != checksum) {
    return Error(ErrorCode::kCorruptFile, "byte 24: the checksum does not match the bytes; the file is damaged");
  }
  return version;
}

void ReadIds(FieldReader& fields, RequestRecord* record) {
  record->prompt_tokens = fields.Read<uint64_t>("prompt tokens");
  const auto tokens = fields.Read<uint64_t>("tokens");
  if (record->prompt_tokens == 0 || record->prompt_tokens > tokens) {
    fields.Refuse("prompt tokens",
                  "expected 1 to " + std::to_string(tokens) + ", found " + std::to_string(record->prompt_tokens));
  }
  uint64_t id_bytes = 0;
  if (!CheckedMul<uint64_t>(tokens, sizeof(int32_t), &id_bytes)) fields.Refuse("tokens", "found more than 2^62");
  const std::span<const std::byte> ids = fields.Take(id_bytes, "ids");
  if (ids.empty()) return;
  record->ids.resize(ids.size() / sizeof(int32_t));
  std::memcpy(record->ids.data(), ids.data(), ids.size());
}

}  // namespace

std::vector<std::byte> EncodeRequest(const RequestRecord& record) {
  TIDEMILL_CHECK(record.numeric_class.size() <= RequestRecord::kMaxClassBytes &&
                 record.held_text.size() < RequestRecord::kMaxHeldBytes &&
                 record.partial_character.size() <= StreamDecoder::kMaxPending);
  constexpr size_t kOptionBytes = 512;  // without biases and stops
  std::vector<std::byte> out;
  out.reserve(kOptionBytes + record.ids.size() * sizeof(int32_t) + record.state.size());
  Writer writer(&out);
  writer.Bytes(std::as_bytes(std::span(kMagic)));
  writer.Put(HasFileOptions(record.generation) ? kRequestRecordVersion : kPlainRequestRecordVersion);
  for (int field = 0; field < 2; ++field) writer.Put(uint64_t{0});  // size and checksum: filled in below
  writer.Put(record.model);
  writer.Put(record.vocabulary);
  writer.Text(record.numeric_class);
  writer.Put(static_cast<uint32_t>(record.finish));
  writer.Put(record.prompt_tokens);
  writer.Put(uint64_t{record.ids.size()});
  writer.Bytes(std::as_bytes(std::span(record.ids)));
  writer.Text(record.held_text);
  writer.Text(record.partial_character);
  PutGeneration(record.generation, writer);
  writer.Bytes(record.state);
  SealRequest(out);
  return out;
}

void SealRequest(std::span<std::byte> bytes) {
  TIDEMILL_CHECK(bytes.size() >= kRequestRecordHeaderBytes);
  const uint64_t size = bytes.size(), checksum = Checksum(bytes.subspan(kRequestRecordHeaderBytes));
  std::memcpy(bytes.data() + kSizeOffset, &size, sizeof(size));
  std::memcpy(bytes.data() + kChecksumOffset, &checksum, sizeof(checksum));
}

Result<RequestRecord> DecodeRequest(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  TIDEMILL_TRY(version, ReadHeader(bytes, reader));
  FieldReader fields(&reader);
  RequestRecord record;
  record.model = fields.Read<uint64_t>("model");
  record.vocabulary = fields.Read<uint64_t>("vocabulary");
  record.numeric_class = fields.Text(RequestRecord::kMaxClassBytes, "numeric class");
  record.finish = static_cast<FinishReason>(fields.ReadUpTo(kLastFinish, "finish"));
  ReadIds(fields, &record);
  record.held_text = fields.Text(RequestRecord::kMaxHeldBytes - 1, "held text");
  if (!IsValidUtf8(record.held_text)) fields.Refuse("held text", "expected UTF-8");
  record.partial_character = fields.Text(StreamDecoder::kMaxPending, "partial character");
  record.generation = ReadGeneration(fields, version);
  if (fields.error()) return *fields.error();
  const Result<void> valid = Validate(record.generation, size_t{1} << 31);
  if (!valid.ok()) return Corrupt(reader, "options", valid.error().message());
  record.state = bytes.subspan(reader.position());
  return record;
}

}  // namespace tidemill
