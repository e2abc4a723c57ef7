// The golden of a folder of fixtures: golden.json with ids by prompt, golden.safetensors with tensors by prompt.
#ifndef TIDEMILL_TESTS_SUPPORT_GOLDEN_FILE_H_
#define TIDEMILL_TESTS_SUPPORT_GOLDEN_FILE_H_

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/mapped_file.h"
#include "formats/safetensors.h"
#include "tensor/half.h"

namespace tidemill::testing {

class GoldenFile {
 public:
  // `kind`: of what ids and tensors are: a list `kind`s in golden.json.
  explicit GoldenFile(const std::string& folder, std::string kind = "prompt") : kind_(std::move(kind)) {
    std::ifstream in(folder + "/golden.json");
    EXPECT_TRUE(in.good()) << folder << "/golden.json is missing";
    json_ = nlohmann::json::parse(in);
    auto file = MappedFile::Open(folder + "/golden.safetensors");
    EXPECT_TRUE(file.ok());
    file_ = std::move(file).value();
    auto tensors = SafetensorsFile::Parse(file_->bytes());
    EXPECT_TRUE(tensors.ok());
    tensors_ = std::move(tensors).value();
  }

  const nlohmann::json& json() const { return json_; }
  size_t num_prompts() const { return json_.at(kind_ + "s").size(); }
  std::vector<int32_t> Ids(size_t prompt, const char* what) const { return json_.at(kind_ + "s")[prompt].at(what); }
  // "logits" of the prompt, for instance: F32, or BF16 as f32.
  std::vector<float> Tensor(size_t prompt, const std::string& name) const {
    const FileTensor* tensor = Find(prompt, name);
    if (tensor == nullptr) return {};
    std::vector<float> values(tensor->rows * tensor->cols);
    if (tensor->dtype != DType::kBF16) {
      std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
      return values;
    }
    for (size_t i = 0; i < values.size(); ++i) {
      uint16_t bits = 0;
      std::memcpy(&bits, tensor->bytes.data() + i * sizeof(bits), sizeof(bits));
      values[i] = BFloat16ToFloat(bits);
    }
    return values;
  }
  // The tensor as it is stored; 0 columns where it is missing.
  FileTensor Stored(size_t prompt, const std::string& name) const {
    const FileTensor* tensor = Find(prompt, name);
    return tensor == nullptr ? FileTensor() : *tensor;
  }

 private:
  const FileTensor* Find(size_t prompt, const std::string& name) const {
    const FileTensor* tensor = tensors_->FindTensor(kind_ + std::to_string(prompt) + "." + name);
    EXPECT_NE(tensor, nullptr) << name;
    return tensor;
  }

  std::string kind_;
  nlohmann::json json_;
  std::optional<MappedFile> file_;
  std::optional<SafetensorsFile> tensors_;
};

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_GOLDEN_FILE_H_
