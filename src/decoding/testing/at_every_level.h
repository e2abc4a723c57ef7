// For tests of operations that have an implementation for each instruction-set level.
#ifndef TIDEMILL_DECODING_TESTING_AT_EVERY_LEVEL_H_
#define TIDEMILL_DECODING_TESTING_AT_EVERY_LEVEL_H_

#include <gtest/gtest.h>

#include <string>

#include "base/isa.h"

namespace tidemill::testing {

// check(isa) at every level that this CPU runs.
template <typename Check>
void AtEveryLevel(Check check) {
  for (const Isa isa : KnownIsas()) {
    if (isa > DetectIsa()) continue;
    SCOPED_TRACE(std::string(IsaName(isa)));
    check(isa);
  }
}

}  // namespace tidemill::testing

#endif  // TIDEMILL_DECODING_TESTING_AT_EVERY_LEVEL_H_
