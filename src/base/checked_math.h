// Arithmetic on lengths and offsets that come from outside: overflow is an answer (false), not a wrapped number.
#ifndef TIDEMILL_BASE_CHECKED_MATH_H_
#define TIDEMILL_BASE_CHECKED_MATH_H_

#include <bit>
#include <concepts>
#include <limits>

namespace tidemill {

// *out = a + b; false, with *out untouched, when it does not fit T.
template <std::unsigned_integral T>
[[nodiscard]] constexpr bool CheckedAdd(T a, T b, T* out) {
  if (b > std::numeric_limits<T>::max() - a) return false;
  *out = static_cast<T>(a + b);
  return true;
}

// *out = a * b; false, with *out untouched, when it does not fit T.
template <std::unsigned_integral T>
[[nodiscard]] constexpr bool CheckedMul(T a, T b, T* out) {
  if (a != 0 && b > std::numeric_limits<T>::max() / a) return false;
  *out = static_cast<T>(a * b);
  return true;
}

// *out = the smallest multiple of `alignment` (a power of two) that is >= x; false when it does not fit T.
template <std::unsigned_integral T>
[[nodiscard]] constexpr bool CheckedAlignUp(T x, T alignment, T* out) {
  if (!std::has_single_bit(alignment)) return false;
  T sum = 0;
  if (!CheckedAdd<T>(x, static_cast<T>(alignment - 1), &sum)) return false;
  *out = static_cast<T>(sum & ~static_cast<T>(alignment - 1));
  return true;
}

// For sizes of our own making, which cannot overflow.
template <std::integral T>
constexpr T DivideRoundUp(T a, T b) {
  return static_cast<T>((a + b - 1) / b);
}
template <std::integral T>
constexpr T RoundUp(T a, T b) {
  return static_cast<T>(DivideRoundUp(a, b) * b);
}
// The fewest parts of at most `most` that `all` can be cut into, as equal as can be: the size of the largest. 0 of 0.
template <std::integral T>
constexpr T EqualPart(T all, T most) {
  return all == 0 ? all : DivideRoundUp(all, DivideRoundUp(all, most));
}

}  // namespace tidemill

#endif  // TIDEMILL_BASE_CHECKED_MATH_H_
