// Finds a text among many. Keeps only their numbers and parts of their hashes: 12 bytes a text, where an unordered_map of views
// takes 56. What each number stands for, `text_of(number)`, is asked of the caller, the same in every call.
#ifndef TIDEMILL_TEXT_TEXT_TABLE_H_
#define TIDEMILL_TEXT_TEXT_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "base/check.h"

namespace tidemill {

class TextTable {
 public:
  TextTable() = default;  // with room for none
  // Empty, with room for so many texts, fewer than 2^31.
  explicit TextTable(size_t num_texts) : slots_(num_texts + num_texts / 2 + 1), room_(num_texts) {}

  // The number of the text that equals `text`; -1: none. Cost: O(1) and a comparison or two, unless the hashes collide.
  template <typename TextOf>
  int32_t Find(std::string_view text, const TextOf& text_of) const {
    return slots_.empty() ? -1 : slots_[FindSlot(text, text_of)].number;
  }

  // Adds text `number` (not negative) unless an equal one is there. Returns the number of the one that is there now.
  template <typename TextOf>
  int32_t Add(int32_t number, const TextOf& text_of) {
    const std::string_view text = text_of(number);
    TIDEMILL_CHECK(room_ > 0);
    Slot& slot = slots_[FindSlot(text, text_of)];
    if (slot.number >= 0) return slot.number;
    --room_;
    slot = {.tag = static_cast<uint32_t>(Hash(text)), .number = number};
    return number;
  }

 private:
  struct Slot {
    uint32_t tag = 0;  // the low half of the hash: texts are compared where it agrees
    int32_t number = -1;
  };

  static uint64_t Hash(std::string_view text) { return std::hash<std::string_view>()(text); }

  // The slot that holds `text`, or the empty one where it belongs. A third of the slots is empty, so the search ends.
  template <typename TextOf>
  size_t FindSlot(std::string_view text, const TextOf& text_of) const {
    const uint64_t hash = Hash(text);
    const auto tag = static_cast<uint32_t>(hash);
    auto at = static_cast<size_t>(((hash >> 32) * slots_.size()) >> 32);
    while (slots_[at].number >= 0 && (slots_[at].tag != tag || text_of(slots_[at].number) != text)) {
      at = at + 1 == slots_.size() ? 0 : at + 1;
    }
    return at;
  }

  std::vector<Slot> slots_;
  size_t room_ = 0;
};

}  // namespace tidemill

#endif  // TIDEMILL_TEXT_TEXT_TABLE_H_
