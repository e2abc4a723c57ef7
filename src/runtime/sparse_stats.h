// What became of a request's sparse attention.
#ifndef TIDEMILL_RUNTIME_SPARSE_STATS_H_
#define TIDEMILL_RUNTIME_SPARSE_STATS_H_

#include <optional>

#include "state/sequence_state.h"
#include "tidemill/engine.h"

namespace tidemill {

// Of a state's sparse layers so far; none: all are dense. A layer's number is its state's.
std::optional<SparseStats> SparseStatsOf(SequenceState& state);

// Gives back the memory of a state's columns of keys, which answers do not need. false: it has none.
bool GiveUpColumns(SequenceState& state);

}  // namespace tidemill

#endif  // TIDEMILL_RUNTIME_SPARSE_STATS_H_
