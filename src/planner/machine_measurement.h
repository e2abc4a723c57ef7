// Measures what a machine's profile holds beside the limits: copies, fresh memory, attention and products of several rows.
#ifndef TIDEMILL_PLANNER_MACHINE_MEASUREMENT_H_
#define TIDEMILL_PLANNER_MACHINE_MEASUREMENT_H_

#include <functional>

#include "base/isa.h"
#include "base/thread_pool.h"
#include "planner/machine_profile.h"
#include "tidemill/measure.h"
#include "tidemill/result.h"

namespace tidemill {

// A profile without date, source and CPU. Each number is the best of several short measurements, since neighbours only ever take away;
// in all it takes a second or two and 300 MiB. `progress` (may be empty) gets 0..1. kOutOfMemory.
Result<MachineProfile> MeasureMachine(Isa isa, ThreadPool& threads, const MachineLimits& limits,
                                      const std::function<void(double)>& progress);

}  // namespace tidemill

#endif  // TIDEMILL_PLANNER_MACHINE_MEASUREMENT_H_
