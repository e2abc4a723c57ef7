#include "benchmarks/bmc/process_counters.h"

#include <linux/perf_event.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tidemill::bmc {

ProcessCounters::ProcessCounters() {
  perf_event_attr attributes = {};
  attributes.size = sizeof(attributes);
  attributes.type = PERF_TYPE_HW_CACHE;
  attributes.config =
      PERF_COUNT_HW_CACHE_DTLB | (PERF_COUNT_HW_CACHE_OP_READ << 8) | (PERF_COUNT_HW_CACHE_RESULT_MISS << 16);
  attributes.inherit = 1;
  attributes.exclude_kernel = 1;  // its own misses are for privileged users
  attributes.exclude_hv = 1;
  tlb_ = static_cast<int>(syscall(SYS_perf_event_open, &attributes, 0, -1, -1, 0UL));
}

ProcessCounters::~ProcessCounters() {
  if (tlb_ >= 0) close(tlb_);
}

MemoryEvents ProcessCounters::Read() const {
  MemoryEvents events;
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  events.minor_faults = static_cast<uint64_t>(usage.ru_minflt);
  events.major_faults = static_cast<uint64_t>(usage.ru_majflt);
  uint64_t misses = 0;
  if (tlb_ >= 0 && read(tlb_, &misses, sizeof(misses)) == sizeof(misses)) events.tlb_misses = misses;
  return events;
}

}  // namespace tidemill::bmc
