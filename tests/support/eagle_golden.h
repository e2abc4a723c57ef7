// What tests/fixtures/eagle has of one draft head.
#ifndef TIDEMILL_TESTS_SUPPORT_EAGLE_GOLDEN_H_
#define TIDEMILL_TESTS_SUPPORT_EAGLE_GOLDEN_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "formats/safetensors.h"

namespace tidemill::testing {

class EagleGolden {
 public:
  // f32 against f32 in another order of sums, as of families; ranks of drafted ids are further apart.
  static constexpr double kTolerance = 1e-4;

  static std::string Folder(const std::string& name) { return std::string(TIDEMILL_FIXTURES) + "/eagle/" + name; }

  // "eagle1" or "eagle3".
  explicit EagleGolden(const std::string& name) {
    std::ifstream in(Folder(name) + "/golden.json");
    EXPECT_TRUE(in.good()) << name << "/golden.json is missing";
    json_ = nlohmann::json::parse(in);
    auto file = MappedFile::Open(Folder(name) + "/golden.safetensors");
    EXPECT_TRUE(file.ok());
    file_ = std::move(file).value();
    auto tensors = SafetensorsFile::Parse(file_->bytes());
    EXPECT_TRUE(tensors.ok());
    tensors_ = std::move(tensors).value();
  }

  size_t num_prompts() const { return json_.at("prompts").size(); }
  size_t num_steps(size_t prompt) const { return json_.at("prompts")[prompt].at("steps").size(); }
  std::vector<int32_t> Parents() const { return json_.at("parents"); }
  std::vector<int32_t> Ids(size_t prompt, const char* what) const { return json_.at("prompts")[prompt].at(what); }
  std::vector<int32_t> Nodes(size_t prompt, size_t step, const char* what) const {
    return json_.at("prompts")[prompt].at("steps")[step].at(what);
  }
  // "features" of the prompt, or "step2.node_logits".
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

#endif  // TIDEMILL_TESTS_SUPPORT_EAGLE_GOLDEN_H_
