// Recipes of GGUF files that are wrong in one place: a small file with bytes replaced, or one odd key or tensor.
#ifndef TIDEMILL_TESTS_MALFORMED_GGUF_RECIPES_H_
#define TIDEMILL_TESTS_MALFORMED_GGUF_RECIPES_H_

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/gguf_writer.h"

namespace tidemill::testing {

constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();

// One key, a matrix and a vector: the file that every case damages.
inline GgufWriter Small() {
  GgufWriter w;
  w.SetString("general.architecture", "llama");
  w.AddTensor("m", DType::kQ8_0, {32, 2}, std::string(68, 'm')).AddTensor("v", DType::kF32, {4}, std::string(16, 'v'));
  return w;
}

// Small with the bytes at `offset` replaced by `value`.
template <typename T>
std::string Patched(size_t (*offset)(const GgufWriter&), T value) {
  GgufWriter w = Small();
  std::string bytes = w.Build();
  Patch<T>(bytes, offset(w), value);
  return bytes;
}

inline size_t Magic(const GgufWriter&) { return 0; }
inline size_t Version(const GgufWriter&) { return 4; }
inline size_t TensorCount(const GgufWriter&) { return 8; }
inline size_t KeyCount(const GgufWriter&) { return 16; }
inline size_t KeyLength(const GgufWriter& w) { return w.KeyOffset("general.architecture"); }
inline size_t ValueType(const GgufWriter& w) { return w.ValueOffset("general.architecture"); }
inline size_t StringLength(const GgufWriter& w) { return w.ValueOffset("general.architecture") + 4; }
inline size_t NameLength(const GgufWriter& w) { return w.TensorOffset("m"); }
inline size_t Rank(const GgufWriter& w) { return w.DimsOffset("m"); }
inline size_t Dim0(const GgufWriter& w) { return w.DimsOffset("m") + 4; }
inline size_t Dim1(const GgufWriter& w) { return w.DimsOffset("m") + 12; }
inline size_t Type(const GgufWriter& w) { return w.DimsOffset("m") + 20; }
inline size_t Offset(const GgufWriter& w) { return w.DimsOffset("m") + 24; }
inline size_t SecondOffset(const GgufWriter& w) { return w.DimsOffset("v") + 16; }

inline std::string WithKey(const std::string& key) { return GgufWriter().Set<bool>(key, true).Build(); }
inline std::string WithValue(uint32_t type, const std::string& payload) {
  return GgufWriter().SetRaw("k", type, payload).Build();
}
inline std::string WithArray(uint32_t element_type, uint64_t count, const std::string& elements) {
  return GgufWriter().SetRawArray("k", element_type, count, elements).Build();
}
inline std::string WithTensor(const std::string& name, uint32_t type, const std::vector<uint64_t>& dims,
                              size_t data_bytes = 64) {
  return GgufWriter().AddRawTensor(name, type, dims, std::string(data_bytes, 'd')).Build();
}
template <typename T>
inline std::string WithAlignment(T value) {
  return GgufWriter().Set<T>("general.alignment", value).AddTensor("v", DType::kF32, {4}, std::string(16, 'v')).Build();
}

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_MALFORMED_GGUF_RECIPES_H_
