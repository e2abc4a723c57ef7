#include "base/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>

#include "base/check.h"

namespace tidemill {
namespace {

template <typename T>
void AppendInteger(T value, std::string& out) {
  char digits[24];
  out.append(digits, std::to_chars(digits, std::end(digits), value).ptr);
}

// 0.001, 1.5, 100.0; from 1e15 on and below 1e-4 with an exponent: 1e+15, 2.5e-07.
void AppendDouble(double value, std::string& out) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  const size_t begin = out.size();
  char text[40];
  const bool fixed = value == 0 || (std::abs(value) >= 1e-4 && std::abs(value) < 1e15);
  out.append(
      text,
      std::to_chars(text, std::end(text), value, fixed ? std::chars_format::fixed : std::chars_format::scientific).ptr);
  if (fixed && out.find('.', begin) == std::string::npos) out += ".0";
}

// Of the character that begins at text[at]: the bytes that belong to it, and whether it is whole and well-formed. At least one.
std::pair<size_t, bool> CharacterAt(std::string_view text, size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  if (lead < 0x80) return {1, true};
  if (lead < 0xC2 || lead > 0xF4) return {1, false};
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  for (size_t i = 1; i < length; ++i) {
    if (at + i == text.size()) return {i, false};
    const auto byte = static_cast<unsigned char>(text[at + i]);
    // No overlong forms, no surrogates, at most U+10FFFF.
    const unsigned char lowest = i > 1 ? 0x80 : lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const unsigned char highest = i > 1 ? 0xBF : lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (byte < lowest || byte > highest) return {i, false};
  }
  return {length, true};
}

void AppendEscape(char c, std::string& out) {
  switch (c) {
    case '"': out += "\\\""; return;
    case '\\': out += "\\\\"; return;
    case '\b': out += "\\b"; return;
    case '\f': out += "\\f"; return;
    case '\n': out += "\\n"; return;
    case '\r': out += "\\r"; return;
    case '\t': out += "\\t"; return;
    default: break;
  }
  constexpr std::string_view kHex = "0123456789abcdef";
  out += "\\u00";
  out += kHex[static_cast<size_t>(c) >> 4];
  out += kHex[static_cast<size_t>(c) & 0xF];
}

void AppendString(std::string_view text, std::string& out) {
  out += '"';
  for (size_t at = 0; at < text.size();) {
    const auto [length, well_formed] = CharacterAt(text, at);
    const char c = text[at];
    if (!well_formed) {
      out += "\xEF\xBF\xBD";
    } else if (length == 1 && (static_cast<unsigned char>(c) < 0x20 || c == '"' || c == '\\')) {
      AppendEscape(c, out);
    } else {
      out += text.substr(at, length);
    }
    at += length;
  }
  out += '"';
}

void NewLine(int indent, int depth, std::string& out) {
  if (indent < 0) return;
  out += '\n';
  out.append(static_cast<size_t>(indent) * static_cast<size_t>(depth), ' ');
}

}  // namespace

Json::Json(const Json&) = default;
Json::Json(Json&&) noexcept = default;
Json& Json::operator=(Json other) noexcept {
  value_ = std::move(other.value_);
  return *this;
}
Json::~Json() = default;

Json::Json(std::initializer_list<Part> parts) {
  const bool is_object = std::all_of(parts.begin(), parts.end(), [](const Part& part) {
    const List* pair = std::get_if<List>(&part.value.value_);
    return pair != nullptr && pair->size() == 2 && std::holds_alternative<std::string>(pair->front().value_);
  });
  if (!is_object) {
    *this = array(parts);
    return;
  }
  Members& members = value_.emplace<Members>();
  members.reserve(parts.size());
  for (const Part& part : parts) {
    List& pair = std::get<List>(part.value.value_);
    members.emplace_back(std::move(std::get<std::string>(pair[0].value_)), std::move(pair[1]));
  }
}

Json::Json(const JsonValue& value) {
  switch (value.kind()) {
    case JsonKind::kBool: value_ = value.GetBool("").value(); break;
    case JsonKind::kInteger:
      if (const auto whole = value.GetUint("", 0, UINT64_MAX); whole.ok())
        value_ = *whole;
      else
        value_ = value.GetInt("", INT64_MIN, INT64_MAX).value();
      break;
    case JsonKind::kFloat: value_ = value.GetFloat("").value(); break;
    case JsonKind::kString: value_ = std::string(value.text()); break;
    case JsonKind::kBeginArray: {
      List& list = value_.emplace<List>();
      list.reserve(value.size());
      for (const JsonValue& element : value.Elements()) list.push_back(Json(element));
      break;
    }
    case JsonKind::kBeginObject: {
      Members& members = value_.emplace<Members>();
      members.reserve(value.size());
      for (const auto& [key, member] : value.Members()) members.emplace_back(std::string(key), Json(member));
      break;
    }
    default: break;
  }
}

Json Json::array(std::initializer_list<Part> parts) {
  Json json;
  List& list = json.value_.emplace<List>();
  list.reserve(parts.size());
  for (const Part& part : parts) list.push_back(std::move(part.value));
  return json;
}

Json Json::object() {
  Json json;
  json.value_.emplace<Members>();
  return json;
}

Json& Json::operator[](std::string_view key) {
  if (std::holds_alternative<std::nullptr_t>(value_)) value_.emplace<Members>();
  Members* members = std::get_if<Members>(&value_);
  TIDEMILL_CHECK(members != nullptr);
  const auto found = std::find_if(members->begin(), members->end(), [&](const Member& m) { return m.first == key; });
  return found != members->end() ? found->second : members->emplace_back(std::string(key), Json()).second;
}

void Json::push_back(Json element) {
  if (std::holds_alternative<std::nullptr_t>(value_)) value_.emplace<List>();
  List* list = std::get_if<List>(&value_);
  TIDEMILL_CHECK(list != nullptr);
  list->push_back(std::move(element));
}

void Json::update(Json object) {
  if (std::holds_alternative<std::nullptr_t>(object.value_)) return;
  Members* members = std::get_if<Members>(&object.value_);
  TIDEMILL_CHECK(members != nullptr);
  for (Member& member : *members) (*this)[member.first] = std::move(member.second);
}

std::string Json::dump(int indent) const {
  std::string out;
  Write(indent, 0, out);
  return out;
}

void Json::Write(int indent, int depth, std::string& out) const {
  const auto begin_element = [&](bool is_first) {
    if (!is_first) out += ',';
    NewLine(indent, depth + 1, out);
  };
  if (const auto* list = std::get_if<List>(&value_)) {
    out += '[';
    for (const Json& element : *list) {
      begin_element(&element == list->data());
      element.Write(indent, depth + 1, out);
    }
    if (!list->empty()) NewLine(indent, depth, out);
    out += ']';
  } else if (const auto* members = std::get_if<Members>(&value_)) {
    out += '{';
    for (const Member& member : *members) {
      begin_element(&member == members->data());
      AppendString(member.first, out);
      out += indent < 0 ? ":" : ": ";
      member.second.Write(indent, depth + 1, out);
    }
    if (!members->empty()) NewLine(indent, depth, out);
    out += '}';
  } else if (const auto* text = std::get_if<std::string>(&value_)) {
    AppendString(*text, out);
  } else if (const auto* number = std::get_if<double>(&value_)) {
    AppendDouble(*number, out);
  } else if (const auto* integer = std::get_if<int64_t>(&value_)) {
    AppendInteger(*integer, out);
  } else if (const auto* whole = std::get_if<uint64_t>(&value_)) {
    AppendInteger(*whole, out);
  } else if (const auto* flag = std::get_if<bool>(&value_)) {
    out += *flag ? "true" : "false";
  } else {
    out += "null";
  }
}

}  // namespace tidemill
