// Measures what a machine's profile holds: copies, fresh memory, products, attention, loops over threads.
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
  // Of what is read from memory. A last cache of 32 MiB keeps a third of 96 MiB that are read round and round: decode of a 1B model on a
  // Zen 5, 27.9 ms, was predicted to take 17.4 and 17.5 ms from 64 MiB, and of seven times from these once 18.1, else 26.6 to 33.0.
  // Three times as much is allocated in all.
  size_t bytes = size_t{256} << 20;
  std::function<void(double)> progress = {};  // gets 0..1; may be empty
};

// A profile without date, source and CPU. Each number is the best of several short measurements, since neighbours only ever take away;
// in all it takes some seconds. options.bytes: at least kFewestBytes. kOutOfMemory.
Result<MachineProfile> MeasureMachine(Isa isa, ThreadPool& threads, const MeasureOptions& options);

}  // namespace tidemill

#endif  // TIDEMILL_PLANNER_MACHINE_MEASUREMENT_H_
