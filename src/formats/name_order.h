// Sorting the names of a header: up to a million, which somebody else chose.
#ifndef TIDEMILL_FORMATS_NAME_ORDER_H_
#define TIDEMILL_FORMATS_NAME_ORDER_H_

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace tidemill {

struct NameOrder {
  std::vector<uint32_t> order;                         // indices, by the bytes of their names; of one name, by index
  std::optional<std::pair<uint32_t, uint32_t>> twins;  // the first two of one name, if there are any
};

// name(i) for i below `count` : std::string_view without zero bytes. Eight bytes of each name are compared at a time, as one number beside
// the index; names that agree in them are sorted by the next eight. Introsort at each level: no set of names makes it quadratic, as one can
// a hash table. Time: O(count log count) for each eight bytes that names share. Memory: below 64 bytes a name.
template <typename NameOf>
NameOrder OrderByName(size_t count, NameOf name) {
  struct Entry {
    uint64_t word;  // the eight bytes, the first one highest; zero behind the end
    uint32_t index;
  };
  struct Run {
    size_t begin, end, depth;  // entries that agree in their first `depth` bytes
  };
  std::vector<Entry> entries(count);
  for (size_t i = 0; i < count; ++i) entries[i] = {0, static_cast<uint32_t>(i)};
  std::vector<Run> runs;
  if (count > 1) runs.push_back({0, count, 0});
  NameOrder result;
  size_t twin_at = count;
  while (!runs.empty()) {
    const Run run = runs.back();
    runs.pop_back();
    const auto begin = entries.begin() + static_cast<std::ptrdiff_t>(run.begin);
    const auto end = entries.begin() + static_cast<std::ptrdiff_t>(run.end);
    for (auto entry = begin; entry != end; ++entry) {
      const std::string_view text = name(entry->index);
      const size_t left = text.size() - std::min(text.size(), run.depth);
      uint64_t bytes = 0;
      if (left != 0) std::memcpy(&bytes, text.data() + run.depth, std::min<size_t>(left, sizeof(bytes)));
      static_assert(std::endian::native == std::endian::little);
      entry->word = __builtin_bswap64(bytes);
    }
    const auto less = [](const Entry& a, const Entry& b) {
      return a.word != b.word ? a.word < b.word : a.index < b.index;
    };
    if (!std::is_sorted(begin, end, less)) std::sort(begin, end, less);
    for (auto from = begin; from != end;) {
      const auto to = std::find_if(from, end, [&](const Entry& entry) { return entry.word != from->word; });
      const auto at = static_cast<size_t>(from - entries.begin());
      if (to - from > 1) {
        if ((from->word & 0xFF) != 0) {  // none of them has ended
          runs.push_back({at, static_cast<size_t>(to - entries.begin()), run.depth + sizeof(uint64_t)});
        } else if (at < twin_at) {
          twin_at = at;
        }
      }
      from = to;
    }
  }
  result.order.resize(count);
  for (size_t i = 0; i < count; ++i) result.order[i] = entries[i].index;
  if (twin_at != count) result.twins = {result.order[twin_at], result.order[twin_at + 1]};
  return result;
}

}  // namespace tidemill

#endif  // TIDEMILL_FORMATS_NAME_ORDER_H_
