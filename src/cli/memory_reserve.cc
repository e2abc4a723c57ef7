#include "cli/memory_reserve.h"

#include <sys/mman.h>

#include <atomic>
#include <new>

namespace tidemill::cli {
namespace {

std::atomic<void*> g_reserve = nullptr;  // a new-handler has no argument

void GiveBack() {
  if (void* reserve = g_reserve.exchange(nullptr)) munmap(reserve, MemoryReserve::kBytes);
}

[[noreturn]] void GiveBackAndThrow() {
  GiveBack();
  throw std::bad_alloc();
}

}  // namespace

MemoryReserve::MemoryReserve() {
  Refill();
  std::set_new_handler(GiveBackAndThrow);
}

MemoryReserve::~MemoryReserve() {
  std::set_new_handler(nullptr);
  GiveBack();
}

void MemoryReserve::Refill() {
  if (g_reserve.load() != nullptr) return;
  void* reserve = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserve == MAP_FAILED) return;
  void* none = nullptr;
  if (!g_reserve.compare_exchange_strong(none, reserve)) munmap(reserve, kBytes);
}

}  // namespace tidemill::cli
