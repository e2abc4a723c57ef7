// Addresses without memory behind them, and pages for a part of them when they are wanted: what grows there never moves.
#ifndef TIDEMILL_BASE_RESERVED_MEMORY_H_
#define TIDEMILL_BASE_RESERVED_MEMORY_H_

#include <cstddef>
#include <utility>

#include "tidemill/result.h"

namespace tidemill {

// madvise, or what a test has in its place.
using AdviseCall = int (*)(void* start, size_t bytes, int advice);
int SystemAdvise(void* start, size_t bytes, int advice);

// One mapping each, whatever is committed: protecting the rest would split it, and Linux gives a process 65,530 mappings unless told otherwise.
// In pages of 4 KiB, where MakeLarge does not say otherwise: a large page would make resident what is not committed.
class ReservedMemory {
 public:
  static constexpr size_t kLargePage = size_t{2} << 20;

  ReservedMemory() = default;
  ReservedMemory(ReservedMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  ReservedMemory& operator=(ReservedMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~ReservedMemory();

  // `bytes` of addresses, aligned to a page. kOutOfMemory where the address space is short.
  static Result<ReservedMemory> Create(size_t bytes);

  // Pages for bytes [offset, offset + bytes) and the rest of their pages: zeros where nothing was written before. kOutOfMemory where the
  // system has none. They are there when this returns: writing to them takes no fault (before Linux 5.14 the first one does).
  // Other threads may use other bytes meanwhile, also committed ones of the same pages.
  Result<void> Commit(size_t offset, size_t bytes, AdviseCall advise = &SystemAdvise);
  // Bytes [offset, offset + bytes) are committed and in use, those below offset + done were so at the last call: 2 MiB pages where all of
  // one lies within them, which splits the mapping. A wish: from Linux 6.1 on such pages are there when this returns, before some time
  // later. Other threads may read and write the bytes meanwhile.
  void MakeLarge(size_t offset, size_t done, size_t bytes, AdviseCall advise = &SystemAdvise);
  // The whole pages within these bytes go back; they are not to be touched before the next Commit.
  void Release(size_t offset, size_t bytes);

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace tidemill

#endif  // TIDEMILL_BASE_RESERVED_MEMORY_H_
