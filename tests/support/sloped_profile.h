// A machine whose products and attention take a nanosecond, and `slope` of it more for each row but the first.
#ifndef TIDEMILL_TESTS_SUPPORT_SLOPED_PROFILE_H_
#define TIDEMILL_TESTS_SUPPORT_SLOPED_PROFILE_H_

#include <cstddef>
#include <span>

#include "base/isa.h"
#include "planner/machine_profile.h"

namespace tidemill::testing {

// The built-in numbers of one thread otherwise.
inline MachineProfile SlopedProfile(Isa isa, double slope) {
  MachineProfile profile = NearestBuiltIn(isa, 1, "");
  profile.element = 1e-12;
  const auto bend = [slope](std::span<const size_t> rows, std::span<double> seconds) {
    for (size_t i = 0; i < rows.size(); ++i) seconds[i] = 1e-9 * (1 + slope * static_cast<double>(rows[i] - 1));
  };
  for (OperationSeconds* operations : {&profile.one, &profile.all}) {
    for (ProductSeconds& product : operations->product) bend(kProductRows, product);
    for (auto& by_group : operations->attention) {
      for (AttentionSeconds& attention : by_group) bend(kAttentionRows, attention);
    }
  }
  return profile;
}

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_SLOPED_PROFILE_H_
