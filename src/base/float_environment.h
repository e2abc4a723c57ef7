// Rounding and denormals as every thread of a step must have them, so that equal inputs give equal bits.
#ifndef TIDEMILL_BASE_FLOAT_ENVIRONMENT_H_
#define TIDEMILL_BASE_FLOAT_ENVIRONMENT_H_

#include <cfenv>

namespace tidemill {

// Round to nearest, no trap, denormals kept; the caller's environment comes back at the end of the scope.
class ScopedDefaultFloatEnvironment {
 public:
  ScopedDefaultFloatEnvironment() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~ScopedDefaultFloatEnvironment() { std::fesetenv(&saved_); }
  ScopedDefaultFloatEnvironment(const ScopedDefaultFloatEnvironment&) = delete;
  ScopedDefaultFloatEnvironment& operator=(const ScopedDefaultFloatEnvironment&) = delete;

 private:
  std::fenv_t saved_;
};

}  // namespace tidemill

#endif  // TIDEMILL_BASE_FLOAT_ENVIRONMENT_H_
