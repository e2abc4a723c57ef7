// Byte-pair merging: a row of tokens becomes a shorter one, by the rules of a vocabulary.
//   While some neighbours (left, right) have a rule: replace them, for the rule of lowest rank, at its leftmost place, by
//   the rule's token.                                                            arXiv:1508.07909, algorithm 1
#ifndef TIDEMILL_TEXT_BYTE_PAIR_MERGER_H_
#define TIDEMILL_TEXT_BYTE_PAIR_MERGER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tidemill {

// The tokens left, right become `merged`. All are ids in [0, num_tokens).
struct MergeRule {
  int32_t left = 0;
  int32_t right = 0;
  int32_t merged = 0;
};

class BytePairMerger {
 public:
  // Memory that calls reuse: one per thread, grows to the longest row, at most 60 bytes per token.
  class Scratch {
    friend class BytePairMerger;
    struct Symbol {
      int32_t id;      // -1: merged into the symbol before it
      int32_t before;  // index of the neighbour, -1 at the edges
      int32_t after;
    };
    struct Candidate {
      uint64_t rank_and_place;  // rank << 32 | index of the left symbol: the order of merging
      int32_t left;             // ids when it was found: if they have changed since, it is void
      int32_t right;
    };
    std::vector<Symbol> symbols_;
    std::vector<Candidate> heap_;
  };

  BytePairMerger() = default;
  // `ranks`: one per rule, below 2^32 - 1; none at all: rules[rank]. Of two rules for one pair the later one counts, as in
  // the original.
  BytePairMerger(std::span<const MergeRule> rules, size_t num_tokens, std::span<const uint32_t> ranks = {});

  // Appends what `tokens` (fewer than 2^31, all in range) become to `out`. Cost: O(n log n log r), where r is the number of
  // rules with one left side.
  void AppendMerged(std::span<const int32_t> tokens, Scratch& scratch, std::vector<int32_t>& out) const;

 private:
  struct Entry {
    int32_t right = 0;
    int32_t merged = 0;
    uint32_t rank = 0;
  };

  const Entry* Find(int32_t left, int32_t right) const;  // null without a rule
  void Push(Scratch& scratch, int32_t place) const;      // the pair that begins at `place`, if it has a rule

  // Rules by left side: those of token t are entries_[begin_[t], begin_[t + 1]), ascending by right side. Binary search keeps
  // the worst case of a hostile vocabulary at a logarithm, where hashing would not.
  std::vector<uint32_t> begin_;
  std::vector<Entry> entries_;
};

}  // namespace tidemill

#endif  // TIDEMILL_TEXT_BYTE_PAIR_MERGER_H_
