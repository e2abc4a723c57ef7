// A folder of its own for the files of one model, removed when the object goes.
//   ModelFolder folder;
//   folder.Write("config.json", R"({"model_type":"llama"})");
//   const ModelFiles files = folder.Open();
#ifndef TIDEMILL_TESTS_SUPPORT_MODEL_FOLDER_H_
#define TIDEMILL_TESTS_SUPPORT_MODEL_FOLDER_H_

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "base/check.h"
#include "formats/model_files.h"

namespace tidemill::testing {

class ModelFolder {
 public:
  ModelFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "tidemill_model_XXXXXX").string();
    TIDEMILL_CHECK(mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ModelFolder(const ModelFolder&) = delete;
  ModelFolder& operator=(const ModelFolder&) = delete;
  ~ModelFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }

  ModelFolder& Write(std::string_view name, std::string_view bytes) {
    std::ofstream file(path_ + "/" + std::string(name), std::ios::binary);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    TIDEMILL_CHECK(file.flush().good());
    return *this;
  }

  // What is mapped outlives the folder.
  ModelFiles Open() const {
    auto files = ModelFiles::Open(path_);
    TIDEMILL_CHECK(files.ok());
    return std::move(files).value();
  }

 private:
  std::string path_;
};

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_MODEL_FOLDER_H_
