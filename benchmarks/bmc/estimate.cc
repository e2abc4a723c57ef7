#include "benchmarks/bmc/estimate.h"

#include <algorithm>
#include <set>
#include <vector>

namespace tidemill::bmc {

CellWork WorkOf(const Cell& cell, size_t samples) {
  const auto position_bytes = static_cast<double>(cell.PositionBytes());
  const bool in_place = cell.policy == KvPolicy::kReserve || cell.policy == KvPolicy::kPaged;
  const bool is_padded = cell.backend == Backend::kPadded;
  const std::vector<Step> script = MakeScript(cell);
  CellWork work;
  std::set<size_t> shapes;
  size_t next = 0, placed = 0;
  for (const PlannedStep& planned : PlanSteps(script, samples)) {
    const Step& step = script[planned.index];
    const size_t rows = is_padded ? step.capacity : step.rows_before + step.len;
    if (planned.index != next) {  // rows are put in place, and attended to once
      if (placed != step.capacity_before)
        work.grown_bytes += position_bytes * static_cast<double>(step.capacity_before);
      work.read_bytes += position_bytes * static_cast<double>(rows);
    }
    if (step.grows()) {
      const size_t made = in_place ? step.capacity - step.capacity_before : step.capacity;
      work.grown_bytes += position_bytes * static_cast<double>(made);
    }
    work.read_bytes += position_bytes * static_cast<double>(rows);
    if (UsesLibrary(cell.backend)) shapes.insert(rows);
    placed = step.capacity;
    next = planned.index + 1;
  }
  work.creations = static_cast<double>(shapes.size());
  return work;
}

CellRates RatesOf(const Cell& cell, const StepSeconds& seconds) {
  const CellWork work = WorkOf(cell, 0);
  const auto rate = [](double took, double of) { return of == 0 ? 0 : took / of; };
  return {.read_s = rate(seconds.attention + seconds.update, work.read_bytes),
          .grown_s = rate(seconds.allocate + seconds.copy, work.grown_bytes),
          .creation_s = rate(seconds.create, work.creations)};
}

double EstimatedSeconds(const CellWork& work, const CellRates& rates) {
  return work.read_bytes * rates.read_s + work.grown_bytes * rates.grown_s + work.creations * rates.creation_s;
}

Cell ShortCell(Cell like) {
  like.policy = KvPolicy::kIterative;
  like.memory = Memory::kSystem;
  like.increment = 1;
  like.tokens = std::max<size_t>(128, 4 * like.draft);
  like.batch = 4;
  return like;
}

}  // namespace tidemill::bmc
