// The acceptance rate of draft tokens by depth and rank, from which the best tree is found (draft_tree.h).
#ifndef TIDEMILL_DECODING_ACCEPTANCE_COUNTS_H_
#define TIDEMILL_DECODING_ACCEPTANCE_COUNTS_H_

#include <array>
#include <cstddef>
#include <vector>

namespace tidemill {

// Counts the rank that the drafter gave the sampled token, below accepted parents. Ranks count whether drafted or not.
//   rates[d][r] = (accepted[d][r] + 4 together[r]) / (all[d] + 4)        together[r] = (sum_d accepted[d][r] + 8 assumed[r]) / (sum_d all[d] + 8)
//   assumed[r]   = 0.6 / 4^r, before anything was counted
// Each list sums to less than one. Each Fade takes 2 % of the counts, so that they follow the text.
class AcceptanceCounts {
 public:
  static constexpr size_t kDepths = 8, kRanks = 8;
  static constexpr double kAssumedAcceptance = 0.6;  // of the first rank

  // The token of this rank followed an accepted parent; kRanks or more: none that is counted. depth < kDepths.
  void Count(size_t depth, size_t rank);
  void Fade();
  // [kDepths][kRanks]. Throws std::bad_alloc.
  std::vector<std::vector<double>> Rates() const;

 private:
  std::array<std::array<double, kRanks>, kDepths> accepted_ = {};
  std::array<double, kDepths> all_ = {};
};

// The same if the first rank is accepted with this probability: rates[d][r] = first * (5/8 * (1 - first))^r. For 0.6: what is assumed.
std::vector<std::vector<double>> AssumedAcceptance(double first);

}  // namespace tidemill

#endif  // TIDEMILL_DECODING_ACCEPTANCE_COUNTS_H_
