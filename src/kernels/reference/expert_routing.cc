#include "kernels/expert_routing.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace tidemill::reference {

void RouteTokens(ConstMatrix<float> logits, Normalise normalise, Matrix<uint32_t> experts, Matrix<float> weights) {
  for (size_t t = 0; t < logits.rows; ++t) {
    const float* row = logits.row(t);
    std::vector<uint32_t> ids(logits.cols);
    std::iota(ids.begin(), ids.end(), 0U);
    std::stable_sort(ids.begin(), ids.end(), [&](uint32_t a, uint32_t b) {
      return std::isnan(row[a]) ? !std::isnan(row[b]) : row[a] > row[b];
    });
    const double m = static_cast<double>(row[ids.front()]);
    if (normalise == Normalise::kOverChosen) ids.resize(experts.cols);
    double sum = 0;
    for (const uint32_t id : ids) sum += std::exp(static_cast<double>(row[id]) - m);
    ids.resize(experts.cols);
    std::sort(ids.begin(), ids.end());
    for (size_t j = 0; j < ids.size(); ++j) {
      experts.row(t)[j] = ids[j];
      weights.row(t)[j] = static_cast<float>(std::exp(static_cast<double>(row[ids[j]]) - m) / sum);
    }
  }
}

void GroupByExpert(ConstMatrix<uint32_t> experts, const ExpertGroups& groups) {
  uint32_t slot = 0;
  for (size_t e = 0; e + 1 < groups.offsets.size(); ++e) {
    groups.offsets[e] = slot;
    for (size_t t = 0; t < experts.rows; ++t) {
      for (size_t j = 0; j < experts.cols; ++j) {
        if (experts.row(t)[j] != e) continue;
        groups.order[slot] = static_cast<uint32_t>(t);
        groups.slots.row(t)[j] = slot++;
      }
    }
  }
  groups.offsets.back() = slot;
}

void GatherRows(ConstMatrix<float> x, std::span<const uint32_t> order, Matrix<float> y) {
  for (size_t s = 0; s < order.size(); ++s) std::copy(x.row(order[s]), x.row(order[s]) + x.cols, y.row(s));
}

void ScatterAddExperts(ConstMatrix<float> out, ConstMatrix<uint32_t> slots, ConstMatrix<float> weights,
                       Matrix<float> y) {
  for (size_t t = 0; t < y.rows; ++t) {
    for (size_t i = 0; i < y.cols; ++i) {
      double sum = static_cast<double>(y.row(t)[i]);
      for (size_t j = 0; j < slots.cols; ++j) {
        sum += static_cast<double>(weights.row(t)[j]) * static_cast<double>(out.row(slots.row(t)[j])[i]);
      }
      y.row(t)[i] = static_cast<float>(sum);
    }
  }
}

}  // namespace tidemill::reference
