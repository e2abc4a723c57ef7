// The tokens of a vocabulary as a trie: which of them a text begins with.
#ifndef TIDEMILL_TEXT_PIECE_TRIE_H_
#define TIDEMILL_TEXT_PIECE_TRIE_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tidemill {

class PieceTrie {
 public:
  struct Piece {
    std::string_view text;  // not empty
    int32_t id = 0;
  };

  PieceTrie() = default;
  // The texts differ. Cost: O(n log n) in their bytes; memory 12 bytes for each byte that no other text shares.
  explicit PieceTrie(std::vector<Piece> pieces);

  static constexpr uint32_t kRoot = 0;
  static constexpr uint32_t kNowhere = UINT32_MAX;

  // The node that `byte` leads to, or kNowhere.
  uint32_t Step(uint32_t node, uint8_t byte) const;
  // The piece that ends at the node; -1: none.
  int32_t IdAt(uint32_t node) const { return nodes_[node].id; }

 private:
  struct Node {
    uint32_t first_child = 0;  // the children stand together, ascending by their byte
    uint16_t num_children = 0;
    uint8_t byte = 0;  // that leads here
    int32_t id = -1;
  };
  static_assert(sizeof(Node) == 12);

  std::vector<Node> nodes_ = std::vector<Node>(1);
};

}  // namespace tidemill

#endif  // TIDEMILL_TEXT_PIECE_TRIE_H_
