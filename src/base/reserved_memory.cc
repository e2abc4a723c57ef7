#include "base/reserved_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "base/check.h"
#include "base/checked_math.h"
#include "base/out_of_memory.h"

namespace tidemill {
namespace {

constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, of Linux 5.14 and later; older headers lack the name

size_t PageBytes() {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

}  // namespace

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

Result<void> ReservedMemory::Commit(size_t offset, size_t bytes) {
  TIDEMILL_CHECK(offset <= size_ && bytes <= size_ - offset);
  if (bytes == 0) return {};
  const size_t page = PageBytes(), begin = offset / page * page, end = RoundUp(offset + bytes, page);
  if (madvise(data_ + begin, end - begin, kPopulateWrite) == 0 || errno == EINVAL) return {};
  return OutOfMemoryError("commit memory", bytes);
}

void ReservedMemory::Release(size_t offset, size_t bytes) {
  TIDEMILL_CHECK(offset <= size_ && bytes <= size_ - offset);
  const size_t page = PageBytes(), begin = RoundUp(offset, page), end = (offset + bytes) / page * page;
  if (begin < end) madvise(data_ + begin, end - begin, MADV_DONTNEED);
}

}  // namespace tidemill
