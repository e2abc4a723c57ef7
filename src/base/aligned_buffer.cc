#include "base/aligned_buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "base/checked_math.h"
#include "base/out_of_memory.h"

namespace tidemill {
namespace {
// From here on a buffer is its own mapping: its pages go back to the system at once, and large pages may back it.
constexpr size_t kMapFrom = size_t{1} << 20;
}  // namespace

Result<AlignedBuffer> AlignedBuffer::Create(size_t bytes) {
  AlignedBuffer buffer;
  if (bytes == 0) return buffer;
  void* memory = nullptr;
  if (bytes >= kMapFrom) {
    memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) memory = nullptr;
  } else {
    memory = ::operator new (bytes, std::align_val_t{kAlignment}, std::nothrow);
    if (memory != nullptr) std::memset(memory, 0, bytes);
  }
  if (memory == nullptr) {
    return OutOfMemoryError("allocate memory", bytes);
  }
  buffer.data_ = static_cast<std::byte*>(memory);
  buffer.size_ = bytes;
  return buffer;
}

AlignedBuffer::~AlignedBuffer() {
  if (data_ == nullptr || arena_ != nullptr) return;
  if (size_ >= kMapFrom) {
    munmap(data_, size_);
  } else {
    ::operator delete (data_, std::align_val_t{kAlignment});
  }
}

namespace {

struct Mapping {
  void* memory = MAP_FAILED;
  size_t bytes = 0;

  Mapping() = default;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (memory != MAP_FAILED) munmap(memory, bytes);
  }
};

}  // namespace

Result<AlignedBuffer> BufferArena::Allocate(size_t bytes) {
  AlignedBuffer buffer;
  if (bytes == 0) return buffer;
  size_t taken = 0;
  if (!CheckedAlignUp(bytes, AlignedBuffer::kAlignment, &taken)) return OutOfMemoryError("allocate memory", bytes);
  if (kSeparateBuffers) return AlignedBuffer::Create(bytes);
  if (taken > left_) {
    size_t block = 0, mapped = 0;
    if (!CheckedAlignUp(std::max(taken, block_bytes_), kLargePage, &block) || !CheckedAdd(block, kLargePage, &mapped)) {
      return OutOfMemoryError("allocate memory", bytes);
    }
    auto mapping = std::make_shared<Mapping>();
    mapping->memory = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    mapping->bytes = mapped;
    if (mapping->memory == MAP_FAILED)
      return AlignedBuffer::Create(bytes);  // address space is short: just what is asked for
    size_t space = mapped;
    void* start = mapping->memory;
    next_ = static_cast<std::byte*>(std::align(kLargePage, block, start, space));
    left_ = block;
    // A wish: without it the memory is as good, only slower, or more of it is resident.
    madvise(next_, block, pages_ == Pages::kLarge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    mapping_ = std::move(mapping);
  }
  buffer.data_ = std::exchange(next_, next_ + taken);
  buffer.size_ = bytes;
  buffer.arena_ = mapping_;
  left_ -= taken;
  return buffer;
}

}  // namespace tidemill
