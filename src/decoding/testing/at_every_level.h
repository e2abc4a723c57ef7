// For tests of operations that have an implementation for each instruction-set level.
#ifndef TIDEMILL_DECODING_TESTING_AT_EVERY_LEVEL_H_
#define TIDEMILL_DECODING_TESTING_AT_EVERY_LEVEL_H_

#include <gtest/gtest.h>

#include <string>

#include "base/isa.h"
#include "base/testing/levels.h"

namespace tidemill::testing {

// check(isa) at every level that tests run at.
template <typename Check>
void AtEveryLevel(Check check) {
  for (const Isa isa : LevelsHere()) {
    SCOPED_TRACE(std::string(IsaName(isa)));
    check(isa);
  }
}

}  // namespace tidemill::testing

#endif  // TIDEMILL_DECODING_TESTING_AT_EVERY_LEVEL_H_
