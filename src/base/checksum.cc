#include "base/checksum.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace tidemill {

static_assert(std::endian::native == std::endian::little);

uint64_t Checksum(std::span<const std::byte> bytes) {
  constexpr uint64_t kOdd = 0x9FB21C651E98DF25ULL;
  uint64_t lanes[4] = {1, 2, 3, 4};  // four: the latency of one multiplication is hidden
  for (size_t i = 0; i < bytes.size(); i += sizeof(lanes)) {
    uint64_t words[4] = {};
    std::memcpy(words, bytes.data() + i, std::min(sizeof(words), bytes.size() - i));
    for (size_t lane = 0; lane < 4; ++lane) lanes[lane] = std::rotl((lanes[lane] ^ words[lane]) * kOdd, 29);
  }
  uint64_t sum = 0;
  for (const uint64_t lane : lanes) sum = std::rotl((sum ^ lane) * kOdd, 29);
  return sum;
}

}  // namespace tidemill
