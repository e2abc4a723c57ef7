// Numbers from text, exactly and without a locale.
#ifndef TIDEMILL_CLI_NUMBERS_H_
#define TIDEMILL_CLI_NUMBERS_H_

#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>

namespace tidemill::cli {

// The whole of `text` as a number: no blanks, no plus sign, no infinity. Nothing but T's own range is checked.
template <typename T>
std::optional<T> ParseNumber(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if constexpr (std::is_floating_point_v<T>) {
    if (!std::isfinite(value)) return std::nullopt;
  }
  return value;
}

inline bool AreDigits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// The shortest text that ParseNumber reads as `value`.
template <typename T>
std::string NumberText(T value) {
  char digits[64];
  return std::string(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
}

}  // namespace tidemill::cli

#endif  // TIDEMILL_CLI_NUMBERS_H_
