// Counts the allocations of a test program, and makes chosen ones fail. Linking allocation_probe.cc replaces every operator new
// of the program; AlignedBuffer takes its blocks below 1 MiB from there, larger ones are mappings that are not seen here.
#ifndef TIDEMILL_TESTS_SUPPORT_ALLOCATION_PROBE_H_
#define TIDEMILL_TESTS_SUPPORT_ALLOCATION_PROBE_H_

#include <cstddef>

namespace tidemill::testing {

// Calls of operator new since the program began, in all threads.
size_t NumAllocations();

// How much more the program held at most than when the watch began. One at a time.
class HeapWatch {
 public:
  HeapWatch();
  size_t PeakBytes() const;

 private:
  size_t live_;
};

// While it lives, allocations [first, first + count) of the thread that made it fail, counted from 0 at the construction: throwing
// forms throw std::bad_alloc, the others return null. One at a time.
class FailAllocations {
 public:
  static constexpr size_t kAllFurther = static_cast<size_t>(-1);

  explicit FailAllocations(size_t first, size_t count = 1);
  ~FailAllocations() { Stop(); }
  FailAllocations(const FailAllocations&) = delete;
  FailAllocations& operator=(const FailAllocations&) = delete;

  // Ends it early; returns whether any allocation has failed.
  bool Stop();
};

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_ALLOCATION_PROBE_H_
