// Builds GGUF files in memory for tests: correct ones, and ones that are wrong in exactly one place.
//   GgufWriter writer;
//   writer.SetString("general.architecture", "llama").Set<uint32_t>("llama.block_count", 2);
//   writer.AddTensor("output_norm.weight", DType::kF32, {64}, EncodeWeights(DType::kF32, ones));
//   std::string bytes = writer.Build();
//   Patch<uint32_t>(bytes, writer.ValueOffset("llama.block_count") + 4, 9);
#ifndef TIDEMILL_TESTS_SUPPORT_GGUF_WRITER_H_
#define TIDEMILL_TESTS_SUPPORT_GGUF_WRITER_H_

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/check.h"
#include "formats/gguf.h"
#include "tensor/dtype.h"

namespace tidemill::testing {

template <typename T>
concept Arithmetic = std::is_arithmetic_v<T>;

// The bytes of `value` as a GGUF file holds it.
template <Arithmetic T>
std::string LittleEndian(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

// Overwrites sizeof(T) bytes of `bytes`, which must be there.
template <typename T>
void Patch(std::string& bytes, size_t offset, T value) {
  TIDEMILL_CHECK(offset + sizeof(T) <= bytes.size());
  std::memcpy(bytes.data() + offset, &value, sizeof(T));
}

template <typename T>
constexpr GgufValueType GgufTypeOf() {
  if constexpr (std::is_same_v<T, bool>)
    return GgufValueType::kBool;
  else if constexpr (std::is_same_v<T, uint8_t>)
    return GgufValueType::kUint8;
  else if constexpr (std::is_same_v<T, int8_t>)
    return GgufValueType::kInt8;
  else if constexpr (std::is_same_v<T, uint16_t>)
    return GgufValueType::kUint16;
  else if constexpr (std::is_same_v<T, int16_t>)
    return GgufValueType::kInt16;
  else if constexpr (std::is_same_v<T, uint32_t>)
    return GgufValueType::kUint32;
  else if constexpr (std::is_same_v<T, int32_t>)
    return GgufValueType::kInt32;
  else if constexpr (std::is_same_v<T, uint64_t>)
    return GgufValueType::kUint64;
  else if constexpr (std::is_same_v<T, int64_t>)
    return GgufValueType::kInt64;
  else if constexpr (std::is_same_v<T, float>)
    return GgufValueType::kFloat32;
  else
    return GgufValueType::kFloat64;
}

class GgufWriter {
 public:
  // The header's numbers. The counts are what was added, unless a test wants them to lie.
  uint32_t version = 3;
  std::optional<uint64_t> num_tensors;
  std::optional<uint64_t> num_keys;
  uint64_t alignment = kGgufDefaultAlignment;  // of the data; SetAlignment also writes the key

  // Keys may repeat: a test may want that. Order is kept.
  template <Arithmetic T>
  GgufWriter& Set(std::string_view key, T value) {
    return SetRaw(key, static_cast<uint32_t>(GgufTypeOf<T>()), LittleEndian(value));
  }
  template <Arithmetic T>
  GgufWriter& SetArray(std::string_view key, const std::vector<T>& values) {
    std::string elements;
    for (const T value : values) elements += LittleEndian(value);
    return SetRawArray(key, static_cast<uint32_t>(GgufTypeOf<T>()), values.size(), elements);
  }
  GgufWriter& SetString(std::string_view key, std::string_view value);
  GgufWriter& SetStrings(std::string_view key, const std::vector<std::string>& values);
  GgufWriter& SetAlignment(uint32_t value);
  // `payload` stands behind the type number as it is.
  GgufWriter& SetRaw(std::string_view key, uint32_t type, std::string payload);
  GgufWriter& SetRawArray(std::string_view key, uint32_t element_type, uint64_t count, std::string_view elements);

  // dims as the file lists them, innermost first: {cols} or {cols, rows}. `data` is written as it is, at the next
  // multiple of the alignment; CHECKs nothing about its length.
  GgufWriter& AddTensor(std::string_view name, DType dtype, std::vector<uint64_t> dims, std::string data);
  // The same with any type number, and with an offset that may lie. The data is written where it would be anyway.
  GgufWriter& AddRawTensor(std::string_view name, uint32_t type, std::vector<uint64_t> dims, std::string data,
                           std::optional<uint64_t> offset = std::nullopt);

  std::string Build();

  // Places in the file of the last Build(). Of a repeated name: the last one.
  size_t KeyOffset(std::string_view key) const;      // of the key's length; the key's bytes are 8 further
  size_t ValueOffset(std::string_view key) const;    // of the type number; the payload is 4 further
  size_t TensorOffset(std::string_view name) const;  // of the name's length
  size_t DimsOffset(std::string_view name) const;    // of the dimension count; then 8 bytes a dim, type u32, offset u64
  size_t header_bytes() const { return header_bytes_; }  // up to the end of the last tensor entry
  size_t data_begin() const { return data_begin_; }

 private:
  struct Key {
    std::string key;
    uint32_t type;
    std::string payload;
    size_t offset = 0;
  };
  struct Tensor {
    std::string name;
    uint32_t type;
    std::vector<uint64_t> dims;
    std::string data;
    std::optional<uint64_t> offset;
    size_t entry_offset = 0;
  };

  const Key& FindKey(std::string_view key) const;
  const Tensor& FindTensor(std::string_view name) const;

  std::vector<Key> keys_;
  std::vector<Tensor> tensors_;
  size_t header_bytes_ = 0;
  size_t data_begin_ = 0;
};

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_GGUF_WRITER_H_
