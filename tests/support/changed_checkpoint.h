// A seeded checkpoint of tests/fixtures, to be changed before it is loaded.
//   ChangedCheckpoint head("eagle/eagle3");
//   head.Remove("norm.weight").Replace("\"num_hidden_layers\": 1", "\"num_hidden_layers\": 2").WriteTo(folder);
#ifndef TIDEMILL_TESTS_SUPPORT_CHANGED_CHECKPOINT_H_
#define TIDEMILL_TESTS_SUPPORT_CHANGED_CHECKPOINT_H_

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/mapped_file.h"
#include "formats/safetensors.h"
#include "tests/fixtures_path.h"
#include "tests/support/model_folder.h"
#include "tests/support/safetensors_writer.h"

namespace tidemill::testing {

class ChangedCheckpoint {
 public:
  // Below tests/fixtures, with config.json and model.safetensors.
  explicit ChangedCheckpoint(const std::string& name) {
    const std::string folder = std::string(TIDEMILL_FIXTURES) + "/" + name;
    std::ifstream config(folder + "/config.json");
    config_.assign(std::istreambuf_iterator<char>(config), {});
    const MappedFile file = std::move(MappedFile::Open(folder + "/model.safetensors")).value();
    const SafetensorsFile tensors = std::move(SafetensorsFile::Parse(file.bytes())).value();
    for (const FileTensor& tensor : tensors.tensors()) {
      std::vector<uint64_t> shape = {tensor.rows, tensor.cols};  // of more dimensions than a FileTensor tells
      if (tensor.rank <= kMaxTensorRank) shape.assign(tensor.shape.begin(), tensor.shape.begin() + tensor.rank);
      Add(tensor.name, tensor.type_name, shape,
          {reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()});
    }
  }

  // Of config.json, in one place.
  ChangedCheckpoint& Replace(const std::string& from, const std::string& to) {
    const size_t found = config_.find(from);
    TIDEMILL_CHECK(found != std::string::npos);
    config_.replace(found, from.size(), to);
    return *this;
  }
  ChangedCheckpoint& Add(std::string_view name, std::string_view type, const std::vector<uint64_t>& shape,
                         std::string_view data) {
    kept_.push_back({std::string(name), std::string(type), shape, std::string(data)});
    return *this;
  }
  ChangedCheckpoint& Remove(std::string_view name) {
    TIDEMILL_CHECK(std::erase_if(kept_, [&](const Kept& tensor) { return tensor.name == name; }) == 1);
    return *this;
  }
  // Of every name that begins with it.
  ChangedCheckpoint& DropPrefix(std::string_view prefix) {
    for (Kept& tensor : kept_) {
      if (tensor.name.starts_with(prefix)) tensor.name.erase(0, prefix.size());
    }
    return *this;
  }
  // Every F32 matrix, in the type and the bytes that convert(its bytes) gives.
  ChangedCheckpoint& Convert(std::string_view type, const std::function<std::string(const std::string&)>& convert) {
    for (Kept& tensor : kept_) {
      if (tensor.type != "F32" || tensor.shape.size() != 2) continue;
      tensor.type = type;
      tensor.data = convert(tensor.data);
    }
    return *this;
  }
  const std::string& BytesOf(std::string_view name) const {
    const auto found =
        std::find_if(kept_.begin(), kept_.end(), [&](const Kept& tensor) { return tensor.name == name; });
    TIDEMILL_CHECK(found != kept_.end());
    return found->data;
  }

  void WriteTo(ModelFolder& folder) const {
    SafetensorsWriter weights;
    for (const Kept& tensor : kept_) weights.Add(tensor.name, tensor.type, tensor.shape, tensor.data);
    folder.Write("config.json", config_).Write("model.safetensors", weights.Build());
  }

 private:
  struct Kept {
    std::string name, type;
    std::vector<uint64_t> shape;
    std::string data;
  };

  std::string config_;
  std::vector<Kept> kept_;
};

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_CHANGED_CHECKPOINT_H_
