#include "base/reserved_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "base/check.h"
#include "base/checked_math.h"
#include "base/out_of_memory.h"

namespace tidemill {
namespace {

// Older headers lack the names.
constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, of Linux 5.14
constexpr int kCollapse = 25;       // MADV_COLLAPSE, of Linux 6.1

size_t PageBytes() {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

}  // namespace

int SystemAdvise(void* start, size_t bytes, int advice) { return madvise(start, bytes, advice); }

ReservedMemory::~ReservedMemory() {
  if (data_ != nullptr) munmap(data_, size_);
}

Result<ReservedMemory> ReservedMemory::Create(size_t bytes) {
  ReservedMemory memory;
  if (bytes == 0) return memory;
  size_t size = 0;
  if (!CheckedAlignUp(bytes, PageBytes(), &size)) return OutOfMemoryError("reserve addresses", bytes);
  void* start = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) return OutOfMemoryError("reserve addresses", bytes);
  madvise(start, size, MADV_NOHUGEPAGE);  // a wish: without it more is resident
  memory.data_ = static_cast<std::byte*>(start);
  memory.size_ = size;
  return memory;
}

Result<void> ReservedMemory::Commit(size_t offset, size_t bytes, AdviseCall advise) {
  TIDEMILL_CHECK(offset <= size_ && bytes <= size_ - offset);
  if (bytes == 0) return {};
  const size_t page = PageBytes(), begin = offset / page * page, end = RoundUp(offset + bytes, page);
  if (advise(data_ + begin, end - begin, kPopulateWrite) == 0 || errno == EINVAL) return {};
  return OutOfMemoryError("commit memory", bytes);
}

void ReservedMemory::MakeLarge(size_t offset, size_t done, size_t bytes, AdviseCall advise) {
  TIDEMILL_CHECK(offset <= size_ && bytes <= size_ - offset && done <= bytes);
  const auto base = reinterpret_cast<uintptr_t>(data_);
  const uintptr_t first = RoundUp<uintptr_t>(base + offset, kLargePage);
  const uintptr_t begin = std::max(first, (base + offset + done) / kLargePage * kLargePage);
  const uintptr_t end = (base + offset + bytes) / kLargePage * kLargePage;
  if (begin >= end) return;
  std::byte* const start = data_ + (begin - base);
  if (advise(start, end - begin, MADV_HUGEPAGE) == 0) advise(start, end - begin, kCollapse);
}

void ReservedMemory::Release(size_t offset, size_t bytes) {
  TIDEMILL_CHECK(offset <= size_ && bytes <= size_ - offset);
  const size_t page = PageBytes(), begin = RoundUp(offset, page), end = (offset + bytes) / page * page;
  if (begin >= end) return;
  madvise(data_ + begin, end - begin, MADV_DONTNEED);
  madvise(data_ + begin, end - begin, MADV_NOHUGEPAGE);  // also where a large page was
}

}  // namespace tidemill
