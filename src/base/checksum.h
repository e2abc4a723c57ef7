// A checksum of bytes in files of our own. It finds damage; it does not guard against forgery.
//   words of 8 bytes, little-endian, the last one filled up with zeros; word i in lane i % 4, lanes starting at 1, 2, 3, 4:
//     lane = rotl((lane ^ word) * kOdd, 29);   sum = 0, then for each lane in turn: sum = rotl((sum ^ lane) * kOdd, 29)
// Each step is one-to-one in the word and in the lane, so that no change within one word goes unseen. The length is not in it:
// whoever may meet bytes that end in zeros keeps the length beside it. Part of file formats: it never changes.
#ifndef TIDEMILL_BASE_CHECKSUM_H_
#define TIDEMILL_BASE_CHECKSUM_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace tidemill {

uint64_t Checksum(std::span<const std::byte> bytes);

}  // namespace tidemill

#endif  // TIDEMILL_BASE_CHECKSUM_H_
