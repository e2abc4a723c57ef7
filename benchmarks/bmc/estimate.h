// About how long a cell takes, before it is run: what it has to read, make and create, at the rates of a short cell on the same machine.
#ifndef TIDEMILL_BENCHMARKS_BMC_ESTIMATE_H_
#define TIDEMILL_BENCHMARKS_BMC_ESTIMATE_H_

#include <cstddef>

#include "benchmarks/bmc/block_runner.h"
#include "benchmarks/bmc/cell.h"

namespace tidemill::bmc {

// Of one run of a cell, the steps that are timed and what is put in place for them.
struct CellWork {
  double read_bytes = 0;   // that attention goes over, whatever the rows of a step
  double grown_bytes = 0;  // of blocks and pages that are made
  double creations = 0;    // shapes that the library sees for the first time
};
CellWork WorkOf(const Cell& cell, size_t samples);

struct CellRates {
  double read_s = 0, grown_s = 0, creation_s = 0;  // a byte, a byte, a shape
};
// `seconds`: what all steps of `cell` took.
CellRates RatesOf(const Cell& cell, const StepSeconds& seconds);

double EstimatedSeconds(const CellWork& work, const CellRates& rates);

// A cell of the same back end, shape and drafts that is over in a second or two, and has work of each sort.
Cell ShortCell(Cell like);

}  // namespace tidemill::bmc

#endif  // TIDEMILL_BENCHMARKS_BMC_ESTIMATE_H_
