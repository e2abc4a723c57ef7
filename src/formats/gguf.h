// GGUF, versions 2 and 3: the container of llama.cpp and its relatives. Format: ggml-org/ggml docs/gguf.md.
//
//   magic        u8[4]   "GGUF"
//   version      u32     2 or 3 (1 had 32-bit counts; refused by name)
//   num_tensors  u64
//   num_keys     u64
//   keys         num_keys x { key: string, type: u32, value }         string = { length: u64, bytes }
//                value = scalar | string | array = { type: u32, count: u64, elements }
//   tensors      num_tensors x { name: string, num_dims: u32, dims: u64[num_dims], type: u32, offset: u64 }
//                dims innermost first, at most three that are not 1
//   padding      up to the next multiple of general.alignment (32 unless that key says otherwise)
//   data         tensor bytes; `offset` counts from here; each tensor starts at a multiple of the alignment
//
// The file is hostile input. Everything is validated before the first tensor is handed out: counts against the bytes
// that are left, names, types, products, alignment, the range of every tensor, and that no two tensors overlap. Holes
// between tensors and bytes after the last one are allowed.
#ifndef TIDEMILL_FORMATS_GGUF_H_
#define TIDEMILL_FORMATS_GGUF_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/file_tensor.h"
#include "tidemill/result.h"

namespace tidemill {

// What a file may ask for. Real files stay far below; a file above is refused, however large it is.
inline constexpr uint64_t kGgufMaxKeys = 100'000;
inline constexpr uint64_t kGgufMaxTensors = 1'000'000;
inline constexpr uint64_t kGgufMaxKeyBytes = 64 * 1024;            // UTF-8 without control characters, not empty
inline constexpr uint64_t kGgufMaxTensorNameBytes = 256;           // the same
inline constexpr uint64_t kGgufMaxStringBytes = 16 * 1024 * 1024;  // a value, or an element of an array: any bytes
inline constexpr uint64_t kGgufMaxArrayElements = 16 * 1024 * 1024;
inline constexpr uint64_t kGgufMinAlignment = 8;  // powers of two only
inline constexpr uint64_t kGgufMaxAlignment = 1024 * 1024;
inline constexpr uint64_t kGgufDefaultAlignment = 32;

enum class GgufValueType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

// "u32", "string", ...; "unknown" for a number outside the enumeration.
std::string_view GgufValueTypeName(GgufValueType type);

// One metadata value, as views into the file's bytes.
struct GgufValue {
  GgufValueType type = GgufValueType::kUint8;
  GgufValueType element_type = GgufValueType::kUint8;  // of an array
  uint64_t count = 1;                                  // elements of an array
  std::span<const std::byte> bytes;                    // the value, or all elements of the array with their lengths
  mutable uint8_t taken = 0;  // 1: somebody asked for it. Any thread may write it, through an atomic_ref
};

// Borrows the bytes it was parsed from: the mapping must outlive it and every view it returns.
class GgufFile {
 public:
  // kCorruptFile names the section, the byte offset, what was expected and found; kUnsupported for what is well formed
  // but not readable here: version, byte order, tensor type or rank, counts above the limits; kOutOfMemory. The caller
  // adds the file's name. Cost: O(n log n) in the header's entries; memory below 4 x the file's bytes and below 160 MB.
  // Array elements and tensor bytes stay where they are.
  static Result<GgufFile> Parse(std::span<const std::byte> file);

  uint32_t version() const { return version_; }
  std::span<const FileTensor> tensors() const { return tensors_; }
  const FileTensor* FindTensor(std::string_view name) const;  // null when there is none
  std::vector<std::string_view> keys() const;                 // in the order of the file
  const GgufValue* FindValue(std::string_view key) const;     // null when there is none
  std::vector<std::string_view> UnreadKeys() const;           // that nobody has asked for, in the order of the file

  // Typed access. A missing key is kNotFound, a value of another kind or outside the range kCorruptFile; both name the
  // key. Integers of every width and sign answer to GetUint when they are not negative; f32 and f64 to GetFloat.
  Result<uint64_t> GetUint(std::string_view key, uint64_t min, uint64_t max) const;
  Result<double> GetFloat(std::string_view key) const;  // finite
  Result<bool> GetBool(std::string_view key) const;
  Result<std::string_view> GetString(std::string_view key) const;
  Result<std::vector<std::string_view>> GetStrings(std::string_view key) const;
  Result<std::vector<int32_t>> GetInts(std::string_view key) const;  // of any integer width, if the values fit
  Result<std::vector<float>> GetFloats(std::string_view key) const;  // of f32, all finite
  Result<std::vector<bool>> GetBools(std::string_view key) const;

  // `fallback` when the key is missing; an error only when it is there and wrong.
  Result<uint64_t> GetUintOr(std::string_view key, uint64_t fallback, uint64_t min, uint64_t max) const;
  Result<double> GetFloatOr(std::string_view key, double fallback) const;
  Result<bool> GetBoolOr(std::string_view key, bool fallback) const;
  Result<std::string_view> GetStringOr(std::string_view key, std::string_view fallback) const;

 private:
  GgufFile() = default;

  friend class GgufParser;
  friend class GgufJoiner;
  Error ValueError(std::string_view key, const GgufValue& value, const std::string& expected,
                   const std::string& found) const;
  Result<const GgufValue*> RequireValue(std::string_view key) const;
  Result<uint64_t> UintOf(std::string_view key, const GgufValue& value, uint64_t min, uint64_t max) const;
  Result<double> FloatOf(std::string_view key, const GgufValue& value) const;
  Result<bool> BoolOf(std::string_view key, const GgufValue& value) const;
  Result<std::string_view> StringOf(std::string_view key, const GgufValue& value) const;

  std::span<const std::byte> file_;  // borrowed
  uint32_t version_ = 0;
  std::vector<std::pair<std::string_view, GgufValue>> values_;
  std::vector<uint32_t> values_by_key_;  // indices into values_, sorted: unlike a hash table, no set of keys slows it
  std::vector<FileTensor> tensors_;
  std::vector<uint32_t> tensors_by_name_;
};

}  // namespace tidemill

#endif  // TIDEMILL_FORMATS_GGUF_H_
