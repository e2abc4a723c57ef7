// Typed access to GGUF metadata.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>

#include "base/byte_reader.h"
#include "base/printable_name.h"
#include "formats/gguf.h"

namespace tidemill {
namespace {

// An integer of any width and sign: 65 bits, so that nothing wraps.
struct WideInt {
  bool negative = false;
  uint64_t bits = 0;  // two's complement when negative
};

template <typename T>
T Load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <typename T>
WideInt LoadInt(const std::byte* from) {
  const T value = Load<T>(from);
  return {value < 0, static_cast<uint64_t>(value)};
}

// Bytes of one integer of this type; 0 when the type is not an integer.
size_t IntBytes(GgufValueType type) {
  switch (type) {
    case GgufValueType::kUint8:
    case GgufValueType::kInt8: return 1;
    case GgufValueType::kUint16:
    case GgufValueType::kInt16: return 2;
    case GgufValueType::kUint32:
    case GgufValueType::kInt32: return 4;
    case GgufValueType::kUint64:
    case GgufValueType::kInt64: return 8;
    default: return 0;
  }
}

WideInt LoadIntOf(GgufValueType type, const std::byte* from) {
  switch (type) {
    case GgufValueType::kUint8: return {false, Load<uint8_t>(from)};
    case GgufValueType::kInt8: return LoadInt<int8_t>(from);
    case GgufValueType::kUint16: return {false, Load<uint16_t>(from)};
    case GgufValueType::kInt16: return LoadInt<int16_t>(from);
    case GgufValueType::kUint32: return {false, Load<uint32_t>(from)};
    case GgufValueType::kInt32: return LoadInt<int32_t>(from);
    case GgufValueType::kInt64: return LoadInt<int64_t>(from);
    default: return {false, Load<uint64_t>(from)};
  }
}

std::string Describe(WideInt value) {
  return value.negative ? std::to_string(static_cast<int64_t>(value.bits)) : std::to_string(value.bits);
}

std::string Describe(const GgufValue& value) {
  if (value.type != GgufValueType::kArray) return std::string(GgufValueTypeName(value.type));
  return "array of " + std::to_string(value.count) + " " + std::string(GgufValueTypeName(value.element_type));
}

bool IsArrayOf(const GgufValue& value, GgufValueType element) {
  return value.type == GgufValueType::kArray && value.element_type == element;
}

Error OutOfMemory(std::string_view key) {
  return Error(ErrorCode::kOutOfMemory, "GGUF metadata key " + QuoteName(key) + ": no memory for its elements");
}

}  // namespace

std::string_view GgufValueTypeName(GgufValueType type) {
  switch (type) {
    case GgufValueType::kUint8: return "u8";
    case GgufValueType::kInt8: return "i8";
    case GgufValueType::kUint16: return "u16";
    case GgufValueType::kInt16: return "i16";
    case GgufValueType::kUint32: return "u32";
    case GgufValueType::kInt32: return "i32";
    case GgufValueType::kFloat32: return "f32";
    case GgufValueType::kBool: return "bool";
    case GgufValueType::kString: return "string";
    case GgufValueType::kArray: return "array";
    case GgufValueType::kUint64: return "u64";
    case GgufValueType::kInt64: return "i64";
    case GgufValueType::kFloat64: return "f64";
  }
  return "unknown";
}

const FileTensor* GgufFile::FindTensor(std::string_view name) const {
  const auto less = [&](uint32_t i, std::string_view wanted) { return tensors_[i].name < wanted; };
  const auto found = std::lower_bound(tensors_by_name_.begin(), tensors_by_name_.end(), name, less);
  return found != tensors_by_name_.end() && tensors_[*found].name == name ? &tensors_[*found] : nullptr;
}

const GgufValue* GgufFile::FindValue(std::string_view key) const {
  const auto less = [&](uint32_t i, std::string_view wanted) { return values_[i].first < wanted; };
  const auto found = std::lower_bound(values_by_key_.begin(), values_by_key_.end(), key, less);
  if (found == values_by_key_.end() || values_[*found].first != key) return nullptr;
  const GgufValue& value = values_[*found].second;
  std::atomic_ref<uint8_t>(value.taken).store(1, std::memory_order_relaxed);
  return &value;
}

std::vector<std::string_view> GgufFile::UnreadKeys() const {
  std::vector<std::string_view> keys;
  for (const auto& [key, value] : values_) {
    if (value.taken == 0) keys.push_back(key);
  }
  return keys;
}

std::vector<std::string_view> GgufFile::keys() const {
  std::vector<std::string_view> keys;
  keys.reserve(values_.size());
  for (const auto& [key, value] : values_) keys.push_back(key);
  return keys;
}

Error GgufFile::ValueError(std::string_view key, const GgufValue& value, const std::string& expected,
                           const std::string& found) const {
  return Error(ErrorCode::kCorruptFile, "GGUF metadata key " + QuoteName(key) + ": byte " +
                                            std::to_string(value.bytes.data() - file_.data()) + ": value: expected " +
                                            expected + ", found " + found);
}

Result<const GgufValue*> GgufFile::RequireValue(std::string_view key) const {
  const GgufValue* value = FindValue(key);
  if (value != nullptr) return value;
  return Error(ErrorCode::kNotFound, "GGUF metadata key " + QuoteName(key) + ": expected in the file, found none");
}

Result<uint64_t> GgufFile::UintOf(std::string_view key, const GgufValue& value, uint64_t min, uint64_t max) const {
  const auto expected = [&] { return "an integer from " + std::to_string(min) + " to " + std::to_string(max); };
  if (IntBytes(value.type) == 0) return ValueError(key, value, expected(), Describe(value));
  const WideInt number = LoadIntOf(value.type, value.bytes.data());
  if (number.negative || number.bits < min || number.bits > max)
    return ValueError(key, value, expected(), Describe(number));
  return number.bits;
}

Result<double> GgufFile::FloatOf(std::string_view key, const GgufValue& value) const {
  double number = 0;
  if (value.type == GgufValueType::kFloat32) {
    number = static_cast<double>(Load<float>(value.bytes.data()));
  } else if (value.type == GgufValueType::kFloat64) {
    number = Load<double>(value.bytes.data());
  } else {
    return ValueError(key, value, "a finite f32 or f64", Describe(value));
  }
  if (!std::isfinite(number)) {
    return ValueError(key, value, "a finite f32 or f64", std::isnan(number) ? "NaN" : "infinity");
  }
  return number;
}

Result<bool> GgufFile::BoolOf(std::string_view key, const GgufValue& value) const {
  if (value.type != GgufValueType::kBool) return ValueError(key, value, "a bool", Describe(value));
  return value.bytes[0] != std::byte{0};
}

Result<std::string_view> GgufFile::StringOf(std::string_view key, const GgufValue& value) const {
  if (value.type != GgufValueType::kString) return ValueError(key, value, "a string", Describe(value));
  const auto text = value.bytes.subspan(sizeof(uint64_t));  // behind its length, which Parse has checked
  return std::string_view(reinterpret_cast<const char*>(text.data()), text.size());
}

Result<uint64_t> GgufFile::GetUint(std::string_view key, uint64_t min, uint64_t max) const {
  TIDEMILL_TRY(value, RequireValue(key));
  return UintOf(key, *value, min, max);
}

Result<double> GgufFile::GetFloat(std::string_view key) const {
  TIDEMILL_TRY(value, RequireValue(key));
  return FloatOf(key, *value);
}

Result<bool> GgufFile::GetBool(std::string_view key) const {
  TIDEMILL_TRY(value, RequireValue(key));
  return BoolOf(key, *value);
}

Result<std::string_view> GgufFile::GetString(std::string_view key) const {
  TIDEMILL_TRY(value, RequireValue(key));
  return StringOf(key, *value);
}

Result<uint64_t> GgufFile::GetUintOr(std::string_view key, uint64_t fallback, uint64_t min, uint64_t max) const {
  const GgufValue* value = FindValue(key);
  if (value == nullptr) return fallback;
  return UintOf(key, *value, min, max);
}

Result<double> GgufFile::GetFloatOr(std::string_view key, double fallback) const {
  const GgufValue* value = FindValue(key);
  if (value == nullptr) return fallback;
  return FloatOf(key, *value);
}

Result<bool> GgufFile::GetBoolOr(std::string_view key, bool fallback) const {
  const GgufValue* value = FindValue(key);
  if (value == nullptr) return fallback;
  return BoolOf(key, *value);
}

Result<std::string_view> GgufFile::GetStringOr(std::string_view key, std::string_view fallback) const {
  const GgufValue* value = FindValue(key);
  if (value == nullptr) return fallback;
  return StringOf(key, *value);
}

Result<std::vector<std::string_view>> GgufFile::GetStrings(std::string_view key) const try {
  TIDEMILL_TRY(value, RequireValue(key));
  if (!IsArrayOf(*value, GgufValueType::kString))
    return ValueError(key, *value, "an array of strings", Describe(*value));
  std::vector<std::string_view> strings;
  strings.reserve(static_cast<size_t>(value->count));
  ByteReader reader(value->bytes);
  for (uint64_t i = 0; i < value->count; ++i) {  // Parse has walked the same lengths, so neither read can fail
    TIDEMILL_TRY(length, reader.Read<uint64_t>("string length"));
    TIDEMILL_TRY(bytes, reader.Take(length, "string"));
    strings.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return strings;
} catch (const std::bad_alloc&) {
  return OutOfMemory(key);
}

Result<std::vector<int32_t>> GgufFile::GetInts(std::string_view key) const try {
  TIDEMILL_TRY(value, RequireValue(key));
  const size_t width = IntBytes(value->element_type);
  if (value->type != GgufValueType::kArray || width == 0) {
    return ValueError(key, *value, "an array of integers", Describe(*value));
  }
  std::vector<int32_t> numbers;
  numbers.reserve(static_cast<size_t>(value->count));
  for (size_t i = 0; i < value->count; ++i) {
    const WideInt number = LoadIntOf(value->element_type, value->bytes.data() + i * width);
    const bool fits = number.negative ? static_cast<int64_t>(number.bits) >= std::numeric_limits<int32_t>::min()
                                      : number.bits <= static_cast<uint64_t>(std::numeric_limits<int32_t>::max());
    if (!fits) {
      return ValueError(key, *value, "integers of 32 bits", Describe(number) + " at element " + std::to_string(i));
    }
    numbers.push_back(static_cast<int32_t>(static_cast<int64_t>(number.bits)));
  }
  return numbers;
} catch (const std::bad_alloc&) {
  return OutOfMemory(key);
}

Result<std::vector<float>> GgufFile::GetFloats(std::string_view key) const try {
  TIDEMILL_TRY(value, RequireValue(key));
  if (!IsArrayOf(*value, GgufValueType::kFloat32)) return ValueError(key, *value, "an array of f32", Describe(*value));
  std::vector<float> numbers(static_cast<size_t>(value->count));
  for (size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = Load<float>(value->bytes.data() + i * sizeof(float));
    if (!std::isfinite(numbers[i])) {
      return ValueError(key, *value, "finite numbers",
                        (std::isnan(numbers[i]) ? "NaN at element " : "infinity at element ") + std::to_string(i));
    }
  }
  return numbers;
} catch (const std::bad_alloc&) {
  return OutOfMemory(key);
}

Result<std::vector<bool>> GgufFile::GetBools(std::string_view key) const try {
  TIDEMILL_TRY(value, RequireValue(key));
  if (!IsArrayOf(*value, GgufValueType::kBool)) return ValueError(key, *value, "an array of bools", Describe(*value));
  std::vector<bool> bools(static_cast<size_t>(value->count));
  for (size_t i = 0; i < bools.size(); ++i) bools[i] = value->bytes[i] != std::byte{0};
  return bools;
} catch (const std::bad_alloc&) {
  return OutOfMemory(key);
}

}  // namespace tidemill
