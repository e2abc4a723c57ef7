// The instruction-set levels of this machine and their numeric classes.
#ifndef TIDEMILL_TESTS_SUPPORT_BITS_LEVELS_H_
#define TIDEMILL_TESTS_SUPPORT_BITS_LEVELS_H_

#include <optional>
#include <string>
#include <vector>

#include "base/isa.h"

namespace tidemill::testing {

inline std::vector<Isa> RunnableLevels() {
  std::vector<Isa> levels = KnownIsas();
  std::erase_if(levels, [](Isa isa) { return isa > DetectIsa(); });
  return levels;
}

// "levels that ran: baseline, avx2; could not run here: avx512, ..."
inline std::string DescribeLevels() {
  std::string ran, lacking;
  for (const Isa isa : KnownIsas()) {
    std::string& list = isa <= DetectIsa() ? ran : lacking;
    list += (list.empty() ? "" : ", ") + std::string(IsaName(isa));
  }
  return "levels that ran: " + ran + "; could not run here: " + (lacking.empty() ? "none" : lacking);
}

// All levels with FMA give the same bits; the baseline of x86-64 has none.
inline const char* ClassName(bool fma) { return fma ? "fma" : "baseline"; }
inline std::optional<Isa> BestLevelOfClass(bool fma) {
  std::optional<Isa> best;
  for (const Isa isa : RunnableLevels()) {
    if (HasFma(isa) == fma) best = isa;
  }
  return best;
}

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_BITS_LEVELS_H_
