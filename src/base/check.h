// Checks of our own invariants. A failing one is a bug of ours: the process stops with one line. No input may reach one.
#ifndef TIDEMILL_BASE_CHECK_H_
#define TIDEMILL_BASE_CHECK_H_

namespace tidemill {

// Prints "tidemill: internal check failed: CONDITION (FILE:LINE)" to stderr and stops with exit code 70.
[[noreturn]] void StopOnFailedCheck(const char* condition, const char* file, int line);

}  // namespace tidemill

#define TIDEMILL_CHECK(condition)                                    \
  do {                                                               \
    if (!(condition)) [[unlikely]]                                   \
      ::tidemill::StopOnFailedCheck(#condition, __FILE__, __LINE__); \
  } while (false)

// In kernels and inner loops: only in builds with internal checks (every preset but release).
#ifdef TIDEMILL_DEBUG_CHECKS
#define TIDEMILL_DCHECK(condition) TIDEMILL_CHECK(condition)
#else
#define TIDEMILL_DCHECK(condition) \
  do {                             \
  } while (false)
#endif

#endif  // TIDEMILL_BASE_CHECK_H_
