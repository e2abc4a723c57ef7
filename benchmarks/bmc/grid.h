// Which cells a sweep has, in the order in which they are worth measuring when time is short.
#ifndef TIDEMILL_BENCHMARKS_BMC_GRID_H_
#define TIDEMILL_BENCHMARKS_BMC_GRID_H_

#include <cstddef>
#include <string>
#include <vector>

#include "benchmarks/bmc/cell.h"
#include "tidemill/result.h"

namespace tidemill::bmc {

struct GridOptions {
  std::vector<std::string> shapes;    // empty: those of the mode
  std::vector<size_t> tokens;         // N; empty: those of the mode
  std::vector<size_t> batches;        // B; empty: those of the mode
  std::vector<std::string> backends;  // empty: padded where it is built, exact
  std::vector<std::string> policies;  // by PolicyName; empty: all
  std::string kv_dtype = "f32";       // or bf16
  std::string pages = "default";
  size_t threads = 1;
  size_t draft = 1, accept = 1;
  bool drafts = false;         // 26 rows of 4096 tokens: Tables I and VIII
  bool latency = false;        // the paper's Fig. 16: one shape, few policies
  bool long_contexts = false;  // Table X
  bool ci = false;             // two minutes
};

// A group differs in its policies only; they are run in turns.
using Group = std::vector<Cell>;

// kInvalidArgument: a name that is none, a number out of range.
Result<std::vector<Group>> MakeGrid(const GridOptions& options);

// How many samples a cell is timed at; 0: every step. All where attention reads up to 10 GB in the whole generation. Else 32, and fewer
// where the cache is so large that placing it as often would take minutes; between growths time is a straight line in the number of rows.
size_t SamplesOf(const Cell& cell);

}  // namespace tidemill::bmc

#endif  // TIDEMILL_BENCHMARKS_BMC_GRID_H_
