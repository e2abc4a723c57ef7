#include "text/piece_trie.h"

#include <algorithm>

namespace tidemill {

PieceTrie::PieceTrie(std::vector<Piece> pieces) {
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.text < b.text; });
  // Level by level: a node's pieces, all of which begin with its text of `length` bytes.
  struct Open {
    uint32_t node;
    size_t begin, end;
  };
  std::vector<Open> level = {{kRoot, 0, pieces.size()}}, next;
  for (size_t length = 0; !level.empty(); ++length) {
    next.clear();
    for (Open open : level) {
      // The shortest stands first.
      while (open.begin < open.end && pieces[open.begin].text.size() == length)
        nodes_[open.node].id = pieces[open.begin++].id;
      nodes_[open.node].first_child = static_cast<uint32_t>(nodes_.size());
      while (open.begin < open.end) {
        const auto byte = static_cast<uint8_t>(pieces[open.begin].text[length]);
        size_t end = open.begin;
        while (end < open.end && static_cast<uint8_t>(pieces[end].text[length]) == byte) ++end;
        next.push_back({static_cast<uint32_t>(nodes_.size()), open.begin, end});
        nodes_.push_back({.byte = byte});
        ++nodes_[open.node].num_children;
        open.begin = end;
      }
    }
    level.swap(next);
  }
}

uint32_t PieceTrie::Step(uint32_t node, uint8_t byte) const {
  const Node& from = nodes_[node];
  const auto begin = nodes_.begin() + from.first_child;
  const auto end = begin + from.num_children;
  const auto found = std::lower_bound(begin, end, byte, [](const Node& child, uint8_t b) { return child.byte < b; });
  return found != end && found->byte == byte ? static_cast<uint32_t>(found - nodes_.begin()) : kNowhere;
}

}  // namespace tidemill
