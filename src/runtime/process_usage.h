// What this process and the machine have used, as the system counts it.
#ifndef TIDEMILL_RUNTIME_PROCESS_USAGE_H_
#define TIDEMILL_RUNTIME_PROCESS_USAGE_H_

#include <cstdint>

#include "tidemill/engine.h"

namespace tidemill {

double ProcessCpuSeconds();   // user and system time of all threads
double MachineBusySeconds();  // of all cores, since boot; 0: unknown

PageFaults ProcessPageFaults();     // of all threads, since its start
uint64_t PeakResidentBytes();       // since start or the last ResetPeakResident
uint64_t AnonymousResidentBytes();  // without file mappings
void ResetPeakResident();           // where the system allows it

}  // namespace tidemill

#endif  // TIDEMILL_RUNTIME_PROCESS_USAGE_H_
