// The numeric classes of the instruction-set levels that tests run at.
#ifndef TIDEMILL_TESTS_SUPPORT_BITS_LEVELS_H_
#define TIDEMILL_TESTS_SUPPORT_BITS_LEVELS_H_

#include <array>
#include <cstddef>
#include <optional>
#include <vector>

#include "base/isa.h"
#include "base/testing/levels.h"
#include "kernels/activations.h"
#include "tensor/dtype.h"

namespace tidemill::testing {

// ThreadSanitizer looks at runs of several threads alone.
#ifdef TIDEMILL_THREAD_SANITIZER
inline bool MayRace(size_t threads) { return threads > 1; }
#else
inline bool MayRace(size_t) { return true; }
#endif

// Levels of one numeric class give the same bits: all with FMA do, the baseline of x86-64 has none, and where weights are in BF16 a level
// with products of that type differs from both.
enum class NumericClass { kBaseline, kFma, kBFloat16 };

inline NumericClass ClassOf(Isa isa, DType weights) {
  if (FormFor(weights, isa) == ActivationForm::kBFloat16) return NumericClass::kBFloat16;
  return HasFma(isa) ? NumericClass::kFma : NumericClass::kBaseline;
}
inline const char* ClassName(NumericClass c) {
  return c == NumericClass::kBaseline ? "baseline" : c == NumericClass::kFma ? "fma" : "fma+bf16";
}
inline std::optional<Isa> BestLevelOfClass(NumericClass c, DType weights) {
  std::optional<Isa> best;
  for (const Isa isa : LevelsHere()) {
    if (ClassOf(isa, weights) == c) best = isa;
  }
  return best;
}
inline constexpr std::array kNumericClasses = {NumericClass::kBaseline, NumericClass::kFma, NumericClass::kBFloat16};

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_BITS_LEVELS_H_
