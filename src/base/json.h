// A JSON value that is made to be written: members keep the order in which they were added.
//
//   Json json = {{"test", "decode"}, {"depth", 512}, {"samples", Json::array()}};
//   json["samples"].push_back({{"seconds", 0.5}});
//   json.dump();  // {"test":"decode","depth":512,"samples":[{"seconds":0.5}]}
#ifndef TIDEMILL_BASE_JSON_H_
#define TIDEMILL_BASE_JSON_H_

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/json_document.h"

namespace tidemill {

class Json {
 public:
  struct Part;  // what stands between braces

  Json(std::nullptr_t = nullptr) {}
  Json(const Json&);
  Json(Json&&) noexcept;
  Json& operator=(Json other) noexcept;
  ~Json();
  template <std::same_as<bool> T>
  Json(T value) : value_(value) {}
  template <std::signed_integral T>
  Json(T value) : value_(static_cast<int64_t>(value)) {}
  template <std::unsigned_integral T>
  requires(!std::same_as<T, bool>) Json(T value) : value_(static_cast<uint64_t>(value)) {}
  template <std::floating_point T>
  Json(T value) : value_(static_cast<double>(value)) {}
  Json(std::string text) : value_(std::move(text)) {}
  Json(std::string_view text) : value_(std::string(text)) {}
  Json(const char* text) : value_(std::string(text)) {}
  template <typename T>
  Json(const std::vector<T>& values) : Json(array()) {
    for (const T& value : values) push_back(value);
  }
  template <typename T, size_t kSize>
  Json(const std::array<T, kSize>& values) : Json(array()) {
    for (const T& value : values) push_back(value);
  }
  // Pairs that begin with a string, all of them, are the members of an object; anything else the elements of an array.
  Json(std::initializer_list<Part> parts);
  explicit Json(const JsonValue& value);  // recurses as deep as that is

  static Json array(std::initializer_list<Part> parts = {});
  static Json object();

  // A null becomes an object with this member, or an array. Anything else that is no object or no array is a bug (TIDEMILL_CHECK).
  Json& operator[](std::string_view key);  // null where it is new. Cost: linear in the members
  void push_back(Json element);
  void update(Json object);  // its members replace those of the same key, the others come behind

  // On one line; with `indent` blanks a level, each member and element on a line of its own. Bytes of a string that are not UTF-8 become
  // U+FFFD, numbers that are not finite null. A double is the shortest decimal that reads back as itself, with a point or an exponent.
  std::string dump(int indent = -1) const;

 private:
  using Member = std::pair<std::string, Json>;
  using List = std::vector<Json>;
  using Members = std::vector<Member>;

  void Write(int indent, int depth, std::string& out) const;

  std::variant<std::nullptr_t, bool, int64_t, uint64_t, double, std::string, List, Members> value_;
};

struct Json::Part {
  template <typename T>
  requires std::constructible_from<Json, T&&> Part(T&& from) : value(std::forward<T>(from)) {}
  Part(std::initializer_list<Part> parts) : value(parts) {}

  mutable Json value;  // so that what is between braces is moved
};

}  // namespace tidemill

#endif  // TIDEMILL_BASE_JSON_H_
