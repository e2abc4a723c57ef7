// How often a guess is right by its depth and rank: what the best shape of a tree is found from (draft_tree.h).
#ifndef TIDEMILL_DECODING_ACCEPTANCE_COUNTS_H_
#define TIDEMILL_DECODING_ACCEPTANCE_COUNTS_H_

#include <array>
#include <cstddef>
#include <vector>

namespace tidemill {

// Counts where the token that came stood in the drafter's ranking, behind tokens that had come, too. Ranks are counted whether they were
// guessed or not, so that no rank is forgotten because it was never tried.
//   shares[d][r] = (right[d][r] + 4 together[r]) / (all[d] + 4)        together[r] = (sum_d right[d][r] + 8 assumed[r]) / (sum_d all[d] + 8)
//   assumed[r]   = 0.6 / 4^r, before anything was counted
// Each list adds up to less than one. Counts lose 2 % with each Fade, so that they follow the text.
class AcceptanceCounts {
 public:
  static constexpr size_t kDepths = 8, kRanks = 8;
  static constexpr double kAssumedShare = 0.6;  // of the first rank

  // Behind a parent that was right came the token of this rank; kRanks or more: none that is counted. depth < kDepths.
  void Count(size_t depth, size_t rank);
  void Fade();
  // [kDepths][kRanks]. Throws std::bad_alloc.
  std::vector<std::vector<double>> Shares() const;

 private:
  std::array<std::array<double, kRanks>, kDepths> right_ = {};
  std::array<double, kDepths> all_ = {};
};

// The same, where the first rank is right with this probability: shares[d][r] = first * (5/8 * (1 - first))^r. Of 0.6, what is assumed.
std::vector<std::vector<double>> AssumedShares(double first);

}  // namespace tidemill

#endif  // TIDEMILL_DECODING_ACCEPTANCE_COUNTS_H_
