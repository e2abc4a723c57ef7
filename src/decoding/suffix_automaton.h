// Every part of a growing sequence of ids, for one question: which end of it was there before, and what followed.
// Blumer et al., "The smallest automaton recognizing the subwords of a text", 1985: states are classes of parts that end at the same
// positions, at most two for each id; each id costs constant time on average. Memory is taken by doubling.
#ifndef TIDEMILL_DECODING_SUFFIX_AUTOMATON_H_
#define TIDEMILL_DECODING_SUFFIX_AUTOMATON_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tidemill {

class SuffixAutomaton {
 public:
  // Of nothing. longest: ids of a repeat, at most; at least 1. Throws std::bad_alloc, like Append.
  explicit SuffixAutomaton(size_t longest = ~size_t{0});

  void Append(int32_t id);
  size_t size() const { return size_; }
  // Edges that were looked up so far: what time goes by.
  uint64_t lookups() const { return lookups_; }

  // The longest end of the sequence that also ends earlier, of `longest` ids where it is longer, and where: `end` ids in front of what
  // followed it. Of several places one of the latest, of `longest` ids the latest. length 0: its last id is new.
  struct Repeat {
    size_t length = 0;
    size_t end = 0;  // < size()
  };
  Repeat LongestRepeat() const { return repeat_; }

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};

  struct State {
    uint32_t length = 0;          // of the longest part in it
    uint32_t link = kNone;        // the state of the longest end of its parts that is in another one
    uint32_t end = 0;             // a position at which its parts end
    uint32_t first_edge = kNone;  // in edges_
  };
  struct Edge {
    uint32_t from = 0;
    int32_t id = 0;
    uint32_t to = 0;
    uint32_t next = kNone;  // of the same state
  };

  uint32_t* Find(uint32_t state, int32_t id);  // where the edge leads; null without one
  void AddEdge(uint32_t from, int32_t id, uint32_t to);
  void Rehash(size_t slots);
  size_t SlotOf(uint32_t state, int32_t id) const;
  void FollowRepeat(int32_t id);

  std::vector<State> states_;
  std::vector<Edge> edges_;
  std::vector<uint32_t> slots_;  // open addressing: edges, kNone; a power of two, at most half full
  uint32_t last_ = 0;            // the state of the whole
  size_t size_ = 0;
  uint64_t lookups_ = 0;
  size_t longest_;
  uint32_t repeat_state_ = 0;  // whose parts the repeat is one of
  Repeat repeat_;
};

}  // namespace tidemill

#endif  // TIDEMILL_DECODING_SUFFIX_AUTOMATON_H_
