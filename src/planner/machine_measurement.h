// Measures a machine's profile: copies, fresh memory, products, attention, loops over threads.
#ifndef TIDEMILL_PLANNER_MACHINE_MEASUREMENT_H_
#define TIDEMILL_PLANNER_MACHINE_MEASUREMENT_H_

#include <cstddef>
#include <functional>

#include "base/isa.h"
#include "base/thread_pool.h"
#include "planner/machine_profile.h"
#include "tidemill/result.h"

namespace tidemill {

struct MeasureOptions {
  static constexpr size_t kFewestBytes = size_t{4} << 20;
  // Read from memory; three times as much is allocated. Less leaves too much in a cache: on a Zen 5 with 32 MiB of it a decode step of
  // 27.9 ms was predicted as 17.4 ms from 64 MiB, and as 26.6 to 33.0 ms in six of seven measurements from 256 MiB.
  size_t bytes = size_t{256} << 20;
  std::function<void(double)> progress = {};  // gets 0..1; may be empty
};

// A profile without date, source and CPU, in about ten seconds. Each number is the best of several short measurements.
// options.bytes: at least kFewestBytes. kOutOfMemory.
Result<MachineProfile> MeasureMachine(Isa isa, ThreadPool& threads, const MeasureOptions& options);

}  // namespace tidemill

#endif  // TIDEMILL_PLANNER_MACHINE_MEASUREMENT_H_
