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

namespace tidemill::testing {

class GoldenFile {
 public:
  explicit GoldenFile(const std::string& folder) {
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
  size_t num_prompts() const { return json_.at("prompts").size(); }
  std::vector<int32_t> Ids(size_t prompt, const char* what) const { return json_.at("prompts")[prompt].at(what); }
  // "logits" of the prompt, for instance.
  std::vector<float> Tensor(size_t prompt, const std::string& name) const {
    const FileTensor* tensor = tensors_->FindTensor("prompt" + std::to_string(prompt) + "." + name);
    EXPECT_NE(tensor, nullptr) << name;
    if (tensor == nullptr) return {};
    std::vector<float> values(tensor->rows * tensor->cols);
    std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
    return values;
  }

 private:
  nlohmann::json json_;
  std::optional<MappedFile> file_;
  std::optional<SafetensorsFile> tensors_;
};

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_GOLDEN_FILE_H_
