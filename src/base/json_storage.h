// The inside of a JsonDocument: one node for each value, in the order of the text, and what they spell.
#ifndef TIDEMILL_BASE_JSON_STORAGE_H_
#define TIDEMILL_BASE_JSON_STORAGE_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_document.h"

namespace tidemill {

struct JsonValue::Storage {
  // What readers have asked for, for JsonValue::Unread. Any thread may write it, through an atomic_ref.
  enum class Taken : uint8_t {
    kNo,
    kValue,  // itself; of an object not yet what is in it
    kAll,    // with all that is in it
  };
  struct Text {  // in `texts`: an offset, since that may move
    uint32_t begin = 0;
    uint32_t size = 0;
  };
  struct Node {
    JsonKind kind = JsonKind::kNull;
    bool flag = false;  // a bool's value; an integer's sign
    mutable Taken taken = Taken::kNo;
    uint32_t parent = 0;  // the root is its own
    uint32_t end = 0;     // the node behind this one's last descendant
    uint32_t key_at = 0;  // byte where the key stands
    Text key;             // in an object
    Text text;            // a string; a float as written; the children of an object or an array, in `children`
    uint64_t bits = 0;    // an integer, in two's complement when negative; or a double's bits
  };

  std::string name;
  std::string texts;
  std::vector<Node> nodes;
  std::vector<uint32_t> children;  // nodes: of an array in order, of an object sorted by key

  std::string_view TextOf(const Text& text) const { return std::string_view(texts).substr(text.begin, text.size); }
  std::string_view KeyOf(uint32_t node) const { return TextOf(nodes[node].key); }
  std::span<const uint32_t> ChildrenOf(uint32_t node) const {
    return std::span(children).subspan(nodes[node].text.begin, nodes[node].text.size);
  }
};

}  // namespace tidemill

#endif  // TIDEMILL_BASE_JSON_STORAGE_H_
