// The instruction-set levels of this machine and their numeric classes.
#ifndef TIDEMILL_TESTS_SUPPORT_BITS_LEVELS_H_
#define TIDEMILL_TESTS_SUPPORT_BITS_LEVELS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/isa.h"
#include "kernels/activations.h"
#include "tensor/dtype.h"

namespace tidemill::testing {

// ThreadSanitizer looks at the best level alone, and at runs of several threads: what threads share does not depend on the level.
#ifdef TIDEMILL_THREAD_SANITIZER
inline std::vector<Isa> RunnableLevels() { return {DetectIsa()}; }
inline bool MayRace(size_t threads) { return threads > 1; }
#else
inline bool MayRace(size_t) { return true; }
inline std::vector<Isa> RunnableLevels() {
  std::vector<Isa> levels = KnownIsas();
  std::erase_if(levels, [](Isa isa) { return isa > DetectIsa(); });
  return levels;
}
#endif

// "levels that ran: baseline, avx2; could not run here: avx512, ..."
inline std::string DescribeLevels() {
  const std::vector<Isa> here = RunnableLevels();
  std::string ran, lacking;
  for (const Isa isa : KnownIsas()) {
    std::string& list = std::find(here.begin(), here.end(), isa) != here.end() ? ran : lacking;
    list += (list.empty() ? "" : ", ") + std::string(IsaName(isa));
  }
  return "levels that ran: " + ran + "; could not run here: " + (lacking.empty() ? "none" : lacking);
}

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
  for (const Isa isa : RunnableLevels()) {
    if (ClassOf(isa, weights) == c) best = isa;
  }
  return best;
}
inline constexpr std::array kNumericClasses = {NumericClass::kBaseline, NumericClass::kFma, NumericClass::kBFloat16};

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_BITS_LEVELS_H_
