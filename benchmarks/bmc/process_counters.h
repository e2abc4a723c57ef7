// What the process has cost the memory system so far: page faults, and misses of the address translation where the system counts them.
#ifndef TIDEMILL_BENCHMARKS_BMC_PROCESS_COUNTERS_H_
#define TIDEMILL_BENCHMARKS_BMC_PROCESS_COUNTERS_H_

#include <cstdint>
#include <optional>

namespace tidemill::bmc {

struct MemoryEvents {
  uint64_t minor_faults = 0;
  uint64_t major_faults = 0;
  std::optional<uint64_t> tlb_misses;  // of reads of data, all threads; none: not counted here
};

class ProcessCounters {
 public:
  ProcessCounters();  // before threads are made: those made later are counted, too
  ProcessCounters(const ProcessCounters&) = delete;
  ProcessCounters& operator=(const ProcessCounters&) = delete;
  ~ProcessCounters();

  MemoryEvents Read() const;

 private:
  int tlb_ = -1;
};

}  // namespace tidemill::bmc

#endif  // TIDEMILL_BENCHMARKS_BMC_PROCESS_COUNTERS_H_
