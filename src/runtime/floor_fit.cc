#include "runtime/floor_fit.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace tidemill {

float FitFloor(std::vector<AuditedRow> rows, double max_error) {
  constexpr int kSteps = 1000;
  std::sort(rows.begin(), rows.end(), [](const AuditedRow& a, const AuditedRow& b) { return a.alpha > b.alpha; });
  float found = 1;
  double sum = 0;
  size_t above = 0;
  for (int step = kSteps; step >= 0; --step) {
    const auto floor = static_cast<float>(step / static_cast<double>(kSteps));
    for (; above < rows.size() && (step == 0 || rows[above].alpha > static_cast<double>(floor)); ++above)
      sum += rows[above].error;
    if (above != 0 && sum <= max_error * static_cast<double>(above)) found = floor;
  }
  return found;
}

double AlphaCorrelation(std::span<const AuditedRow> rows) {
  double alpha = 0, kept = 0;
  for (const AuditedRow& row : rows) {
    alpha += row.alpha;
    kept += row.kept_mass;
  }
  const auto n = static_cast<double>(std::max<size_t>(1, rows.size()));
  alpha /= n;
  kept /= n;
  double of_alpha = 0, of_kept = 0, of_both = 0;
  for (const AuditedRow& row : rows) {
    of_alpha += (row.alpha - alpha) * (row.alpha - alpha);
    of_kept += (row.kept_mass - kept) * (row.kept_mass - kept);
    of_both += (row.alpha - alpha) * (row.kept_mass - kept);
  }
  return of_alpha > 0 && of_kept > 0 ? of_both / std::sqrt(of_alpha * of_kept) : 0;
}

}  // namespace tidemill
