// Runs the attention block of one layer through the steps of a cell: growth, new rows, attention, and what stays of a draft.
#ifndef TIDEMILL_BENCHMARKS_BMC_BLOCK_RUNNER_H_
#define TIDEMILL_BENCHMARKS_BMC_BLOCK_RUNNER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "benchmarks/bmc/cell.h"
#include "benchmarks/bmc/process_counters.h"
#include "kernels/execution_context.h"
#include "tidemill/result.h"

namespace tidemill::bmc {

struct StepSeconds {
  double allocate = 0;   // with page faults and zeros; in the engine's caches the copies, too
  double copy = 0;       // of rows from a block into the next
  double update = 0;     // new rows, mask, rows of a draft that stay
  double attention = 0;  // without `create`
  double create = 0;     // of primitives for a new shape: of the library only. In a model all layers share them
  uint64_t creations = 0;

  double total() const { return allocate + copy + update + attention + create; }
};

class BlockRunner {
 public:
  virtual ~BlockRunner() = default;
  // As if all steps before `step` had been run, the last of them just now.
  virtual Result<void> Place(const Step& step) = 0;
  virtual Result<StepSeconds> Run(const Step& step) = 0;
  // What the rows of the last step got: [batch, len, heads * head_dim], of the library [batch, heads, len, head_dim].
  virtual std::span<const float> Out() const = 0;
};

// kUnsupported: a back end that this build or this CPU lacks. `cell` and `context` are borrowed.
Result<std::unique_ptr<BlockRunner>> MakeBlockRunner(const Cell& cell, ExecutionContext& context);

struct Sample {
  Step step;
  double weight = 1;
  StepSeconds seconds;
  MemoryEvents events;  // during the step
};

// All of it in this process: what an earlier cell left in the allocator is there, too. samples as in PlanSteps. kOutOfMemory.
Result<std::vector<Sample>> RunCell(const Cell& cell, size_t samples);

}  // namespace tidemill::bmc

#endif  // TIDEMILL_BENCHMARKS_BMC_BLOCK_RUNNER_H_
