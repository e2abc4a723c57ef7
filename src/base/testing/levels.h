// The instruction-set levels that tests run at. The environment's TIDEMILL_TEST_LEVELS says which of those that this CPU has:
//   all    every one; so it is where nothing is said
//   ends   the lowest, the best, and the one that is taken where none is asked for
//   best   the best alone: what threads share, or what is read out of bounds, rarely depends on the level
#ifndef TIDEMILL_BASE_TESTING_LEVELS_H_
#define TIDEMILL_BASE_TESTING_LEVELS_H_

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/isa.h"

namespace tidemill::testing {

inline std::string_view ChosenLevels() {
  const char* chosen = std::getenv("TIDEMILL_TEST_LEVELS");
  return chosen == nullptr || *chosen == '\0' ? "all" : chosen;
}

// Lowest first; never empty.
inline std::vector<Isa> LevelsHere() {
  const std::string_view chosen = ChosenLevels();
  TIDEMILL_CHECK(chosen == "all" || chosen == "ends" || chosen == "best");
  if (chosen == "best") return {DetectIsa()};
  std::vector<Isa> levels = KnownIsas();
  std::erase_if(levels, [&](Isa isa) {
    if (isa > DetectIsa()) return true;
    return chosen == "ends" && isa != KnownIsas().front() && isa != DefaultIsa() && isa != DetectIsa();
  });
  return levels;
}

// "levels that ran: baseline, avx2; left out by TIDEMILL_TEST_LEVELS=all: none; could not run here: avx512, ..."
inline std::string DescribeLevels() {
  const std::vector<Isa> here = LevelsHere();
  std::string ran, left_out, lacking;
  for (const Isa isa : KnownIsas()) {
    const bool runs = std::find(here.begin(), here.end(), isa) != here.end();
    std::string& list = runs ? ran : isa <= DetectIsa() ? left_out : lacking;
    list += (list.empty() ? "" : ", ") + std::string(IsaName(isa));
  }
  const auto or_none = [](const std::string& list) { return list.empty() ? "none" : list; };
  return "levels that ran: " + ran + "; left out by TIDEMILL_TEST_LEVELS=" + std::string(ChosenLevels()) + ": " +
         or_none(left_out) + "; could not run here: " + or_none(lacking);
}

}  // namespace tidemill::testing

#endif  // TIDEMILL_BASE_TESTING_LEVELS_H_
