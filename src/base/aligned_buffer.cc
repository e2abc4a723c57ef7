#include "base/aligned_buffer.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <new>

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
  if (data_ == nullptr) return;
  if (size_ >= kMapFrom) {
    munmap(data_, size_);
  } else {
    ::operator delete (data_, std::align_val_t{kAlignment});
  }
}

}  // namespace tidemill
