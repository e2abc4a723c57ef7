// A floor for a layer's estimates of the attention that it keeps.
#ifndef TIDEMILL_RUNTIME_FLOOR_FIT_H_
#define TIDEMILL_RUNTIME_FLOOR_FIT_H_

#include <span>
#include <vector>

namespace tidemill {

struct AuditedRow {
  double alpha = 0;  // mean over query heads
  double error = 0;  // relative
  double kept_mass = 0;
};

// The smallest of 0, 0.001, ..., 1 for which rows of greater alpha, of which there is one at least, have a mean error of at most `max_error`; 0 is below
// all. 1: there is none. Errors that are no numbers are above any.
// Cost: sorts the rows.
float FitFloor(std::vector<AuditedRow> rows, double max_error);

// Pearson's, of alpha with kept_mass; 0 where one of them does not vary.
double AlphaCorrelation(std::span<const AuditedRow> rows);

}  // namespace tidemill

#endif  // TIDEMILL_RUNTIME_FLOOR_FIT_H_
