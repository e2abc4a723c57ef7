// Random numbers without a state: each is a function of its place, so that a sequence draws the same numbers whoever
// else is being served, in whatever order positions are computed, and after a restore.
//   block = Philox4x32-10 of counter {position, 0, sequence low, sequence high}, key {seed low, seed high}
// J. K. Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011, section 3.3. Integers only: the same bits
// on every machine.
#ifndef TIDEMILL_DECODING_RANDOM_H_
#define TIDEMILL_DECODING_RANDOM_H_

#include <array>
#include <cstdint>

namespace tidemill {

using PhiloxBlock = std::array<uint32_t, 4>;

constexpr PhiloxBlock Philox4x32_10(PhiloxBlock counter, std::array<uint32_t, 2> key) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53;
  constexpr uint64_t kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kKeyStep0 = 0x9E3779B9;  // golden ratio
  constexpr uint32_t kKeyStep1 = 0xBB67AE85;  // sqrt(3) - 1
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultiplier0 * counter[0];
    const uint64_t product1 = kMultiplier1 * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(product0)};
    key = {key[0] + kKeyStep0, key[1] + kKeyStep1};
  }
  return counter;
}

struct RandomStream {
  uint64_t seed = 0;      // of the request
  uint64_t sequence = 0;  // which of the request's sequences; never a slot or a place in a batch
};

// In [0, 1), a multiple of 2^-53. position: of the token in its sequence.
constexpr double UniformAt(const RandomStream& stream, uint32_t position) {
  const PhiloxBlock block =
      Philox4x32_10({position, 0, static_cast<uint32_t>(stream.sequence), static_cast<uint32_t>(stream.sequence >> 32)},
                    {static_cast<uint32_t>(stream.seed), static_cast<uint32_t>(stream.seed >> 32)});
  const uint64_t bits = (uint64_t{block[0]} << 32 | block[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

}  // namespace tidemill

#endif  // TIDEMILL_DECODING_RANDOM_H_
