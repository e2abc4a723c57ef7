#include "base/json_reader.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/printable_name.h"

namespace tidemill {
namespace {

// Walks the text for nlohmann's parser and tells how far it has come, which its events do not say.
class WatchedIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  WatchedIterator(const char* at, const char** reached) : at_(at), reached_(reached) {}
  reference operator*() const { return *at_; }
  WatchedIterator& operator++() {
    *reached_ = ++at_;
    return *this;
  }
  WatchedIterator operator++(int) {
    WatchedIterator before = *this;
    ++*this;
    return before;
  }
  friend bool operator==(const WatchedIterator& a, const WatchedIterator& b) { return a.at_ == b.at_; }

 private:
  const char* at_;
  const char** reached_;
};

// What Python's json module writes and JSON does not have.
std::string_view PythonLiteral(std::string_view text) {
  for (const std::string_view literal : {"NaN", "Infinity", "-Infinity"}) {
    if (text.starts_with(literal)) return literal;
  }
  return {};
}

class EventSource final : public nlohmann::json_sax<nlohmann::json> {
 public:
  EventSource(std::string_view text, const JsonLimits& limits, const JsonHandler& handler)
      : text_(text), limits_(limits), handler_(handler), reached_(text.data()) {}

  Result<void> Read() {
    // Its parser takes a zero byte for the end of the text, and skips a byte order mark.
    if (const size_t zero = text_.find('\0'); zero != std::string_view::npos) {
      return At(ErrorCode::kCorruptFile, zero, "expected JSON, found a zero byte");
    }
    if (text_.starts_with("\xEF\xBB\xBF")) {
      return At(ErrorCode::kCorruptFile, 0, "expected JSON, found a byte order mark; save the file without it");
    }
    const char* end = text_.data() + text_.size();
    const bool read =
        nlohmann::json::sax_parse(WatchedIterator(text_.data(), &reached_), WatchedIterator(end, &reached_), this);
    if (error_) return *std::move(error_);
    if (!read) return At(ErrorCode::kCorruptFile, 0, "expected JSON");
    return {};
  }

  bool null() override { return Value(Event(JsonKind::kNull)); }
  bool boolean(bool value) override {
    JsonEvent event = Event(JsonKind::kBool);
    event.boolean = value;
    return Value(event);
  }
  bool number_integer(number_integer_t value) override {
    JsonEvent event = Event(JsonKind::kInteger);
    event.negative = value < 0;
    event.integer = static_cast<uint64_t>(value);
    event.number = static_cast<double>(value);
    return Value(event);
  }
  bool number_unsigned(number_unsigned_t value) override {
    JsonEvent event = Event(JsonKind::kInteger);
    event.integer = value;
    event.number = static_cast<double>(value);
    return Value(event);
  }
  bool number_float(number_float_t value, const string_t&) override {
    JsonEvent event = Event(JsonKind::kFloat);
    event.number = value;
    return Value(event);
  }
  bool string(string_t& value) override {
    JsonEvent event = Event(JsonKind::kString);
    event.text = value;
    return Value(event);
  }
  bool binary(binary_t&) override { return false; }  // not in text
  bool key(string_t& value) override {
    JsonEvent event = Event(JsonKind::kKey);
    event.text = value;
    return Send(event);
  }
  bool start_object(size_t) override { return Begin(JsonKind::kBeginObject); }
  bool start_array(size_t) override { return Begin(JsonKind::kBeginArray); }
  bool end_object() override { return End(JsonKind::kEndObject); }
  bool end_array() override { return End(JsonKind::kEndArray); }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    const size_t begin = NextToken();
    if (const std::string_view literal = PythonLiteral(text_.substr(begin)); !literal.empty()) {
      error_ =
          At(ErrorCode::kCorruptFile, begin,
             "expected JSON, found " + std::string(literal) + ", which only Python writes; replace it by a number");
      return false;
    }
    constexpr int kNumberOverflow = 406;
    if (error.id == kNumberOverflow) {
      error_ = At(ErrorCode::kCorruptFile, begin, "expected a number within the range of a double, found a larger one");
      return false;
    }
    // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error while parsing value - invalid literal;
    // last read: '...'": only the middle, since the last part may hold any bytes.
    std::string_view what = error.what();
    if (const size_t colon = what.find(": "); colon != std::string_view::npos) what.remove_prefix(colon + 2);
    what = what.substr(0, what.find("; last read"));
    error_ = At(ErrorCode::kCorruptFile, std::min(position == 0 ? 0 : position - 1, text_.size()),
                "expected JSON, found a " + std::string(what));
    return false;
  }

 private:
  Error At(ErrorCode code, size_t offset, const std::string& what) const {
    return Error(code, "byte " + std::to_string(limits_.first_byte + offset) + ": " + what);
  }

  // Between two events stand only blanks, commas and colons.
  size_t NextToken() const {
    const auto between = [](char c) { return c == ' ' || c == '\n' || c == ',' || c == ':' || c == '\t' || c == '\r'; };
    size_t at = last_end_;
    while (at < text_.size() && between(text_[at])) ++at;
    return at;
  }

  JsonEvent Event(JsonKind kind) {
    const size_t begin = NextToken();
    auto end = static_cast<size_t>(reached_ - text_.data());
    // Only behind a number the parser has to read one character more to know that it has ended.
    const bool number = kind == JsonKind::kInteger || kind == JsonKind::kFloat;
    if (number && (text_[end - 1] < '0' || text_[end - 1] > '9')) --end;
    last_end_ = end;
    JsonEvent event;
    event.kind = kind;
    event.at = limits_.first_byte + begin;
    event.source = text_.substr(begin, end - begin);
    return event;
  }

  bool Send(const JsonEvent& event) {
    Result<void> sent = handler_(event);
    if (sent.ok()) return true;
    error_ = std::move(sent).error();
    return false;
  }
  bool Value(const JsonEvent& event) {
    if (values_++ == limits_.max_values) {
      error_ = Error(ErrorCode::kUnsupported, "byte " + std::to_string(event.at) + ": expected at most " +
                                                  std::to_string(limits_.max_values) + " values, found more");
      return false;
    }
    return Send(event);
  }
  bool Begin(JsonKind kind) {
    const JsonEvent event = Event(kind);
    if (depth_ == limits_.max_depth) {
      error_ = Error(ErrorCode::kUnsupported, "byte " + std::to_string(event.at) + ": expected at most " +
                                                  std::to_string(limits_.max_depth) + " levels of nesting, found more");
      return false;
    }
    ++depth_;
    return Value(event);
  }
  bool End(JsonKind kind) {
    --depth_;
    return Send(Event(kind));
  }

  std::string_view text_;
  const JsonLimits& limits_;
  const JsonHandler& handler_;
  const char* reached_;  // behind the last character that the parser has taken
  size_t last_end_ = 0;  // of the event before
  size_t depth_ = 0;
  size_t values_ = 0;
  std::optional<Error> error_;
};

}  // namespace

Result<void> ReadJson(std::string_view text, const JsonLimits& limits, const JsonHandler& handler) {
  return EventSource(text, limits, handler).Read();
}

std::string DescribeJson(const JsonEvent& event) {
  constexpr size_t kMaxShown = 40;
  switch (event.kind) {
    case JsonKind::kNull:
    case JsonKind::kBool: return std::string(event.source);
    case JsonKind::kInteger:
    case JsonKind::kFloat:
      return std::string(event.source.substr(0, kMaxShown)) + (event.source.size() > kMaxShown ? "..." : "");
    case JsonKind::kString:
    case JsonKind::kKey: return QuoteName(event.text);
    case JsonKind::kBeginObject: return "an object";
    case JsonKind::kBeginArray: return "an array";
    case JsonKind::kEndObject: return "the end of the object";
    case JsonKind::kEndArray: return "the end of the array";
  }
  return "nothing";
}

}  // namespace tidemill
