// A cell and its measurement as JSON, the lines of a sweep's journal:
//
//   {"machine": {"cpu", "level", "kernel", "large_pages", "onednn"}, "repeats"}      once for each start of the sweep
//   {"shape", "heads", "kv_heads", "head_dim", "tokens", "batch", "policy", "increment", "allocations", "backend", "kv_dtype", "threads",
//    "draft", "accept", "pages", "key", "sampled", "samples",
//    "seconds": {"allocate", "copy", "update", "attention", "create", "total"},     of the whole generation
//    "creations", "steps", "minor_faults", "major_faults", "tlb_misses",             of the whole generation, too; tlb_misses may be null
//    "latency_us": {"p50", "p99", "max", "growth_p50", "between_p50"}, "points": [[position, microseconds, grew], ...],
//    "totals": [...]}                                                                  total of each repetition
//   or "refused": why not
#ifndef TIDEMILL_BENCHMARKS_BMC_CELL_RECORD_H_
#define TIDEMILL_BENCHMARKS_BMC_CELL_RECORD_H_

#include <nlohmann/json.hpp>
#include <vector>

#include "benchmarks/bmc/block_runner.h"
#include "benchmarks/bmc/cell.h"

namespace tidemill::bmc {

nlohmann::ordered_json MachineRecord();
nlohmann::ordered_json DescriptionOf(const Cell& cell);
// points: the time of each sampled step, too.
nlohmann::ordered_json RecordOf(const std::vector<Sample>& samples, bool points);

}  // namespace tidemill::bmc

#endif  // TIDEMILL_BENCHMARKS_BMC_CELL_RECORD_H_
