#include "tests/support/gguf_writer.h"

#include <algorithm>

#include "base/checked_math.h"
#include "formats/gguf_tensor_type.h"

namespace tidemill::testing {
namespace {

std::string WithLength(std::string_view text) { return LittleEndian<uint64_t>(text.size()) + std::string(text); }

void PadTo(std::string& bytes, uint64_t alignment) { bytes.resize(RoundUp<size_t>(bytes.size(), alignment), '\0'); }

}  // namespace

GgufWriter& GgufWriter::SetString(std::string_view key, std::string_view value) {
  return SetRaw(key, static_cast<uint32_t>(GgufValueType::kString), WithLength(value));
}

GgufWriter& GgufWriter::SetStrings(std::string_view key, const std::vector<std::string>& values) {
  std::string elements;
  for (const std::string& value : values) elements += WithLength(value);
  return SetRawArray(key, static_cast<uint32_t>(GgufValueType::kString), values.size(), elements);
}

GgufWriter& GgufWriter::SetAlignment(uint32_t value) {
  alignment = value;
  return Set<uint32_t>("general.alignment", value);
}

GgufWriter& GgufWriter::SetRaw(std::string_view key, uint32_t type, std::string payload) {
  keys_.push_back({.key = std::string(key), .type = type, .payload = std::move(payload)});
  return *this;
}

GgufWriter& GgufWriter::SetRawArray(std::string_view key, uint32_t element_type, uint64_t count,
                                    std::string_view elements) {
  return SetRaw(key, static_cast<uint32_t>(GgufValueType::kArray),
                LittleEndian(element_type) + LittleEndian(count) + std::string(elements));
}

GgufWriter& GgufWriter::AddTensor(std::string_view name, DType dtype, std::vector<uint64_t> dims, std::string data) {
  return AddRawTensor(name, GgufTensorTypeNumber(dtype), std::move(dims), std::move(data));
}

GgufWriter& GgufWriter::AddRawTensor(std::string_view name, uint32_t type, std::vector<uint64_t> dims, std::string data,
                                     std::optional<uint64_t> offset) {
  tensors_.push_back(
      {.name = std::string(name), .type = type, .dims = std::move(dims), .data = std::move(data), .offset = offset});
  return *this;
}

std::string GgufWriter::Build() {
  std::string bytes = "GGUF" + LittleEndian(version) + LittleEndian<uint64_t>(num_tensors.value_or(tensors_.size())) +
                      LittleEndian<uint64_t>(num_keys.value_or(keys_.size()));
  for (Key& key : keys_) {
    key.offset = bytes.size();
    bytes += WithLength(key.key) + LittleEndian(key.type) + key.payload;
  }
  uint64_t data_bytes = 0;
  for (Tensor& tensor : tensors_) {
    tensor.entry_offset = bytes.size();
    bytes += WithLength(tensor.name) + LittleEndian(static_cast<uint32_t>(tensor.dims.size()));
    for (const uint64_t dim : tensor.dims) bytes += LittleEndian(dim);
    bytes += LittleEndian(tensor.type) + LittleEndian(tensor.offset.value_or(data_bytes));
    data_bytes = RoundUp<uint64_t>(data_bytes + tensor.data.size(), alignment);
  }
  header_bytes_ = bytes.size();
  data_begin_ = RoundUp<size_t>(bytes.size(), alignment);
  for (const Tensor& tensor : tensors_) {
    PadTo(bytes, alignment);
    bytes += tensor.data;
  }
  return bytes;
}

const GgufWriter::Key& GgufWriter::FindKey(std::string_view key) const {
  const auto found = std::find_if(keys_.rbegin(), keys_.rend(), [&](const Key& k) { return k.key == key; });
  TIDEMILL_CHECK(found != keys_.rend());
  return *found;
}

const GgufWriter::Tensor& GgufWriter::FindTensor(std::string_view name) const {
  const auto found = std::find_if(tensors_.rbegin(), tensors_.rend(), [&](const Tensor& t) { return t.name == name; });
  TIDEMILL_CHECK(found != tensors_.rend());
  return *found;
}

size_t GgufWriter::KeyOffset(std::string_view key) const { return FindKey(key).offset; }
size_t GgufWriter::ValueOffset(std::string_view key) const { return FindKey(key).offset + 8 + key.size(); }
size_t GgufWriter::TensorOffset(std::string_view name) const { return FindTensor(name).entry_offset; }
size_t GgufWriter::DimsOffset(std::string_view name) const { return FindTensor(name).entry_offset + 8 + name.size(); }

}  // namespace tidemill::testing
