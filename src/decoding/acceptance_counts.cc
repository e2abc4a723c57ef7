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
    for (double& right : accepted_[depth]) right *= kFade;
  }
}

std::vector<std::vector<double>> AcceptanceCounts::Shares() const {
  std::vector<std::vector<double>> shares(kDepths, std::vector<double>(kRanks));
  const std::vector<std::vector<double>> assumed = AssumedShares(kAssumedShare);
  double all = kWeightOfAssumed;
  for (const double count : all_) all += count;
  for (size_t rank = 0; rank < kRanks; ++rank) {
    double together = assumed[0][rank] * kWeightOfAssumed;
    for (const auto& right : accepted_) together += right[rank];
    together /= all;
    for (size_t depth = 0; depth < kDepths; ++depth) {
      shares[depth][rank] =
          (accepted_[depth][rank] + together * kWeightOfOtherDepths) / (all_[depth] + kWeightOfOtherDepths);
    }
  }
  return shares;
}

std::vector<std::vector<double>> AssumedShares(double first) {
  std::vector<double> shares(AcceptanceCounts::kRanks, first);
  for (size_t rank = 1; rank < shares.size(); ++rank) shares[rank] = shares[rank - 1] * kRatioToMissed * (1 - first);
  return std::vector(AcceptanceCounts::kDepths, shares);
}

}  // namespace tidemill
