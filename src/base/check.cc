#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace tidemill {

void StopOnFailedCheck(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "tidemill: internal check failed: %s (%s:%d); please report this\n", condition, file, line);
  std::fflush(stderr);
  std::_Exit(70);
}

}  // namespace tidemill
