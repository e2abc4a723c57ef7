// Reads little-endian values from a range of bytes that somebody else wrote. Every read is compared with what is left
// before a byte is touched; a read past the end returns kCorruptFile that says where, how much was wanted, how much is there.
#ifndef TIDEMILL_BASE_BYTE_READER_H_
#define TIDEMILL_BASE_BYTE_READER_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "tidemill/result.h"

namespace tidemill {

static_assert(std::endian::native == std::endian::little,
              "file formats here are little-endian, and so is every host we support");

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}  // borrows `bytes`

  size_t position() const { return position_; }
  size_t remaining() const { return bytes_.size() - position_; }

  // `what` names the field in the error: "tensor count".
  template <typename T>
  requires std::is_arithmetic_v<T> Result<T> Read(std::string_view what) {
    TIDEMILL_TRY(bytes, Take(sizeof(T), what));
    T value;
    std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }

  // A view of the next `count` bytes, which are consumed. Borrows the bytes given to the constructor.
  Result<std::span<const std::byte>> Take(uint64_t count, std::string_view what) {
    if (count > remaining()) {
      return Error(ErrorCode::kCorruptFile, "byte " + std::to_string(position_) + ": " + std::string(what) +
                                                ": expected " + std::to_string(count) + " bytes, found " +
                                                std::to_string(remaining()) + "; the file is truncated or damaged");
    }
    const auto taken = bytes_.subspan(position_, static_cast<size_t>(count));
    position_ += static_cast<size_t>(count);
    return taken;
  }

 private:
  std::span<const std::byte> bytes_;
  size_t position_ = 0;
};

}  // namespace tidemill

#endif  // TIDEMILL_BASE_BYTE_READER_H_
