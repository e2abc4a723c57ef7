#include "tests/support/allocation_probe.h"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<size_t> num_allocations{0}, live_bytes{0}, peak_bytes{0};
thread_local bool failing = false;
thread_local size_t seen = 0, first_failure = 0, num_failures = 0, failed = 0;

// Sure not to be there; a sanitizer's malloc stops the program there instead of returning null.
constexpr size_t kTooManyBytes = size_t{1} << 40;

bool Fails(size_t bytes) noexcept {
  num_allocations.fetch_add(1, std::memory_order_relaxed);
  if (bytes >= kTooManyBytes) return true;
  if (!failing) return false;
  const size_t index = seen++;
  if (index < first_failure || index - first_failure >= num_failures) return false;
  ++failed;
  return true;
}

// Blocks as large as malloc makes them, since a sized delete need not know what was asked for.
void* Counted(void* memory) noexcept {
  const size_t bytes = malloc_usable_size(memory);
  const size_t live = live_bytes.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  size_t peak = peak_bytes.load(std::memory_order_relaxed);
  while (live > peak && !peak_bytes.compare_exchange_weak(peak, live, std::memory_order_relaxed)) {
  }
  return memory;
}

void* Allocate(size_t bytes) noexcept { return Fails(bytes) ? nullptr : Counted(std::malloc(bytes == 0 ? 1 : bytes)); }

void* Allocate(size_t bytes, std::align_val_t alignment) noexcept {
  void* memory = nullptr;
  const bool made = !Fails(bytes) && posix_memalign(&memory, static_cast<size_t>(alignment), bytes) == 0;
  return made ? Counted(memory) : nullptr;
}

void Free(void* memory) noexcept {
  live_bytes.fetch_sub(malloc_usable_size(memory), std::memory_order_relaxed);
  std::free(memory);
}

void* OrThrow(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(size_t bytes) { return OrThrow(Allocate(bytes)); }
void* operator new[](size_t bytes) { return OrThrow(Allocate(bytes)); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return Allocate(bytes); }
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept { return Allocate(bytes); }
void* operator new(size_t bytes, std::align_val_t alignment) { return OrThrow(Allocate(bytes, alignment)); }
void* operator new[](size_t bytes, std::align_val_t alignment) { return OrThrow(Allocate(bytes, alignment)); }
void* operator new(size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return Allocate(bytes, alignment);
}
void* operator new[](size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return Allocate(bytes, alignment);
}
void operator delete(void* memory) noexcept { Free(memory); }
void operator delete[](void* memory) noexcept { Free(memory); }
void operator delete(void* memory, size_t) noexcept { Free(memory); }
void operator delete[](void* memory, size_t) noexcept { Free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { Free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { Free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { Free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { Free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { Free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { Free(memory); }
void operator delete(void* memory, std::align_val_t, const std::nothrow_t&) noexcept { Free(memory); }
void operator delete[](void* memory, std::align_val_t, const std::nothrow_t&) noexcept { Free(memory); }

namespace tidemill::testing {

size_t NumAllocations() { return num_allocations.load(); }

HeapWatch::HeapWatch() : live_(live_bytes.load()) { peak_bytes.store(live_); }

size_t HeapWatch::PeakBytes() const { return peak_bytes.load() - live_; }

FailAllocations::FailAllocations(size_t first, size_t count) {
  seen = failed = 0;
  first_failure = first;
  num_failures = count;
  failing = true;
}

bool FailAllocations::Stop() {
  failing = false;
  return failed != 0;
}

}  // namespace tidemill::testing
