// Builds safetensors files in memory for tests: correct ones, and ones with any header in front of any data.
//   SafetensorsWriter writer;
//   writer.Add("model.norm.weight", "F32", {64}, std::string(256, '\0')).SetMetadata("format", "pt");
//   std::string bytes = writer.Build();
#ifndef TIDEMILL_TESTS_SUPPORT_SAFETENSORS_WRITER_H_
#define TIDEMILL_TESTS_SUPPORT_SAFETENSORS_WRITER_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace tidemill::testing {

// The length, the header as it is, the data.
inline std::string SafetensorsBytes(std::string_view header, std::string_view data = "") {
  std::string bytes(sizeof(uint64_t), '\0');
  const uint64_t length = header.size();
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes.append(header).append(data);
}

class SafetensorsWriter {
 public:
  SafetensorsWriter& SetMetadata(std::string_view key, std::string_view value) {
    metadata_ += (metadata_.empty() ? "" : ",") + Quoted(key) + ":" + Quoted(value);
    return *this;
  }

  // `name` and `type` are written between quotes as they are; `data` follows that of the tensor before.
  SafetensorsWriter& Add(std::string_view name, std::string_view type, const std::vector<uint64_t>& shape,
                         std::string_view data) {
    std::string dims;
    for (const uint64_t dim : shape) dims += (dims.empty() ? "" : ",") + std::to_string(dim);
    tensors_ += (tensors_.empty() ? "" : ",") + Quoted(name) + ":{\"dtype\":" + Quoted(type) + ",\"shape\":[" + dims +
                "],\"data_offsets\":[" + std::to_string(data_.size()) + "," +
                std::to_string(data_.size() + data.size()) + "]}";
    data_ += data;
    return *this;
  }

  // Up to the data, padded to a multiple of 8 as the reference implementation does.
  std::string Header() const {
    std::string header = "{";
    if (!metadata_.empty()) header += "\"__metadata__\":{" + metadata_ + "}" + (tensors_.empty() ? "" : ",");
    header += tensors_ + "}";
    header.resize((header.size() + 7) / 8 * 8, ' ');
    return header;
  }
  const std::string& data() const { return data_; }
  std::string Build() const { return SafetensorsBytes(Header(), data_); }

 private:
  static std::string Quoted(std::string_view text) { return "\"" + std::string(text) + "\""; }

  std::string metadata_;
  std::string tensors_;
  std::string data_;
};

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_SAFETENSORS_WRITER_H_
