// The inside of a JsonDocument: its text and one node for each value, in the order of the text.
#ifndef TIDEMILL_FORMATS_JSON_STORAGE_H_
#define TIDEMILL_FORMATS_JSON_STORAGE_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/json_document.h"

namespace tidemill {

struct JsonValue::Storage {
  // Where text stands: in `source`, or, because it had escapes, in `unescaped`. Offsets, since both strings may move.
  struct Text {
    uint32_t begin = 0;
    uint32_t size = 0;
    bool escaped = false;
  };
  struct Node {
    JsonKind kind = JsonKind::kNull;
    bool flag = false;          // a bool's value; an integer's sign
    uint32_t parent = 0;        // the root is its own
    uint32_t end = 0;           // the node behind this one's last descendant
    uint32_t source_begin = 0;  // the value as written; of an object or an array its first byte
    uint32_t source_size = 0;
    uint32_t key_at = 0;          // byte where the key stands
    uint32_t children_begin = 0;  // of an object or an array: in `children`
    uint32_t num_children = 0;
    Text key;           // in an object
    Text text;          // of a string
    uint64_t bits = 0;  // an integer, in two's complement when negative; or a double's bits
  };

  std::string name;
  std::string source;
  std::string unescaped;
  std::vector<Node> nodes;
  std::vector<uint32_t> children;  // nodes: of an array in order, of an object sorted by key

  std::string_view TextOf(const Text& text) const {
    return std::string_view(text.escaped ? unescaped : source).substr(text.begin, text.size);
  }
  std::string_view KeyOf(uint32_t node) const { return TextOf(nodes[node].key); }
  std::span<const uint32_t> ChildrenOf(uint32_t node) const {
    return std::span(children).subspan(nodes[node].children_begin, nodes[node].num_children);
  }
};

}  // namespace tidemill

#endif  // TIDEMILL_FORMATS_JSON_STORAGE_H_
