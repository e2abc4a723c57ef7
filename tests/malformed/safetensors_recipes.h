// Recipes of safetensors files that are wrong in one place.
#ifndef TIDEMILL_TESTS_MALFORMED_SAFETENSORS_RECIPES_H_
#define TIDEMILL_TESTS_MALFORMED_SAFETENSORS_RECIPES_H_

#include <cstdint>
#include <cstring>
#include <string>

#include "tests/support/safetensors_writer.h"

namespace tidemill::testing {

inline std::string WithLength(uint64_t length, const std::string& rest) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + rest;
}

// One tensor "t" with this entry, in front of `data`.
inline std::string WithEntry(const std::string& entry, const std::string& data = std::string(16, 'd')) {
  return SafetensorsBytes("{\"t\":" + entry + "}", data);
}
inline std::string WithShape(const std::string& dtype, const std::string& shape,
                             const std::string& offsets = "[0,16]") {
  return WithEntry("{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}");
}
inline std::string WithOffsets(const std::string& offsets) { return WithShape("F32", "[2,2]", offsets); }
inline std::string WithName(const std::string& name) {
  return SafetensorsBytes("{\"" + name + "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", "d");
}
// Tensors "a" and "b" of 8 bytes each at these ranges.
inline std::string TwoAt(const std::string& a, const std::string& b, size_t data = 16) {
  return SafetensorsBytes("{\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":" + a +
                              "},\"b\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":" + b + "}}",
                          std::string(data, 'd'));
}
inline std::string WithMetadata(const std::string& metadata) {
  return SafetensorsBytes("{\"__metadata__\":" + metadata + "}");
}

inline std::string Header(const std::string& message) { return "safetensors header: " + message; }
inline std::string Tensor(const std::string& message) { return "safetensors tensor \"t\": " + message; }

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_MALFORMED_SAFETENSORS_RECIPES_H_
