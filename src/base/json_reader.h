// Strict JSON as a sequence of events, for bytes that somebody else wrote: UTF-8 without a byte order mark, no comments, no NaN,
// nothing behind the value; nesting and the number of values are limited, and nothing recurses. What the values mean, and which
// keys may repeat, is the caller's. This is the only place of the program that parses JSON; JsonDocument stands on it.
//
// Limits, levels of nesting being 64 everywhere (of a chat, ChatTemplateLimits::input_depth may say less):
//                                            bytes          values
//   config.json and its relatives            16,777,216     200,000
//   what a chat template gets                16,777,216     200,000 in all of its texts (ChatTemplateLimits)
//   machine profile                          65,536         200,000
//   tokenizer.json                           67,108,864     1,048,576, and 2,097,152 tokens and 4,194,304 merges
//   safetensors header, index of shards      100,000,000    no limit but the bytes
//   prompt line, conversation, list of ids   67,108,864     no limit but the bytes
// A zero byte or a byte order mark anywhere outside of strings is an error, as is a key that stands twice in a JsonDocument.
#ifndef TIDEMILL_BASE_JSON_READER_H_
#define TIDEMILL_BASE_JSON_READER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "tidemill/result.h"

namespace tidemill {

enum class JsonKind : uint8_t {
  kNull,
  kBool,
  kInteger,  // of 64 bits, with or without sign
  kFloat,    // any other number; also an integer beyond 64 bits
  kString,
  kKey,
  kBeginObject,
  kEndObject,
  kBeginArray,
  kEndArray,
};

struct JsonEvent {
  JsonKind kind = JsonKind::kNull;
  size_t at = 0;            // byte where it begins, counted from JsonLimits::first_byte
  std::string_view source;  // as written, quotes and escapes included: borrows the text
  bool boolean = false;
  bool negative = false;  // of an integer
  uint64_t integer = 0;   // two's complement when negative
  double number = 0;      // an integer or a float, rounded to a double
  std::string_view text;  // a string or a key without escapes: valid until the handler returns
};

inline constexpr size_t kMaxJsonBytes = size_t{16} << 20;
inline constexpr size_t kMaxJsonDepth = 64;
inline constexpr size_t kMaxJsonValues = 200'000;

struct JsonLimits {
  size_t max_depth = kMaxJsonDepth;
  size_t max_values = kMaxJsonValues;  // scalars, objects and arrays; keys do not count
  size_t first_byte = 0;               // where the text stands in its file, for messages
};

using JsonHandler = std::function<Result<void>(const JsonEvent&)>;

// Hands each event to `handler`, whose first error ends the reading and is returned as it is. Otherwise kCorruptFile "byte 12: ..."
// for what is not JSON, and kUnsupported for a limit. Linear in the text; memory is that of the longest string. Throws bad_alloc.
Result<void> ReadJson(std::string_view text, const JsonLimits& limits, const JsonHandler& handler);

// "null", "true", "4.5", "\"x\"", "an object", "an array": how a message shows a value that should have been another one.
std::string DescribeJson(const JsonEvent& event);

}  // namespace tidemill

#endif  // TIDEMILL_BASE_JSON_READER_H_
