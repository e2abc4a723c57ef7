#include "decoding/acceptance_counts.h"

#include "base/check.h"

namespace tidemill {
namespace {

constexpr double kFade = 0.98;
constexpr double kRatioToMissed = 0.625;                          // of a rank to the one before it
constexpr double kWeightOfAssumed = 8, kWeightOfOtherDepths = 4;  // as so many counted tokens

}  // namespace

void AcceptanceCounts::Count(size_t depth, size_t rank) {
  TIDEMILL_DCHECK(depth < kDepths);
  all_[depth] += 1;
  if (rank < kRanks) accepted_[depth][rank] += 1;
}

void AcceptanceCounts::Fade() {
  for (size_t depth = 0; depth < kDepths; ++depth) {
    all_[depth] *= kFade;
    for (double& count : accepted_[depth]) count *= kFade;
  }
}

std::vector<std::vector<double>> AcceptanceCounts::Rates() const {
  std::vector<std::vector<double>> rates(kDepths, std::vector<double>(kRanks));
  const std::vector<std::vector<double>> assumed = AssumedAcceptance(kAssumedAcceptance);
  double all = kWeightOfAssumed;
  for (const double count : all_) all += count;
  for (size_t rank = 0; rank < kRanks; ++rank) {
    double together = assumed[0][rank] * kWeightOfAssumed;
    for (const auto& counts : accepted_) together += counts[rank];
    together /= all;
    for (size_t depth = 0; depth < kDepths; ++depth) {
      rates[depth][rank] =
          (accepted_[depth][rank] + together * kWeightOfOtherDepths) / (all_[depth] + kWeightOfOtherDepths);
    }
  }
  return rates;
}

std::vector<std::vector<double>> AssumedAcceptance(double first) {
  std::vector<double> rates(AcceptanceCounts::kRanks, first);
  for (size_t rank = 1; rank < rates.size(); ++rank) rates[rank] = rates[rank - 1] * kRatioToMissed * (1 - first);
  return std::vector(AcceptanceCounts::kDepths, rates);
}

}  // namespace tidemill
