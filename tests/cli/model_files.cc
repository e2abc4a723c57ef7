#include "tests/cli/model_files.h"

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <span>

#include "base/check.h"
#include "formats/gguf.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/tiny_model.h"

namespace tidemill::testing {
namespace {

struct Folder {
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "tidemill_cli_XXXXXX").string();
    TIDEMILL_CHECK(mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  std::string path;
};

}  // namespace

const std::string& TestFolder() {
  static const Folder folder;
  return folder.path;
}

std::string WriteFile(const std::string& name, std::string_view bytes) {
  const std::string path = TestFolder() + "/" + name;
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  TIDEMILL_CHECK(file.good());
  return path;
}

std::string ReadWholeFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

const std::string& CountingModelFile() {
  static const std::string path = WriteFile("counting.gguf", BuildCountingModel(997));
  return path;
}

const std::string& LongCountingModelFile() {
  static const std::string path =
      WriteFile("counting_long.gguf", BuildCountingModel(CountingModelSpec{.vocab = 997, .context = 1'000'000}));
  return path;
}

const std::string& TinyLlamaFile() {
  static const std::string path = WriteFile("tiny.gguf", BuildTinyLlama({}));
  return path;
}

size_t ValueOffset(const std::string& bytes, const std::string& key) {
  const size_t found = bytes.find(key);
  TIDEMILL_CHECK(found != std::string::npos);
  return found + key.size() + 4;  // behind the type number
}

size_t TensorTypeOffset(const std::string& bytes, const std::string& tensor, int dims) {
  const size_t found = bytes.find(tensor);
  TIDEMILL_CHECK(found != std::string::npos);
  return found + tensor.size() + 4 + 8 * static_cast<size_t>(dims);
}

void PoisonTensor(std::string& bytes, const std::string& tensor) {
  const auto parsed = GgufFile::Parse(std::as_bytes(std::span(bytes)));
  TIDEMILL_CHECK(parsed.ok());
  const FileTensor* found = parsed->FindTensor(tensor);
  TIDEMILL_CHECK(found != nullptr && found->dtype == DType::kF32);
  const auto offset = static_cast<size_t>(reinterpret_cast<const char*>(found->bytes.data()) - bytes.data());
  Patch(bytes, offset, std::numeric_limits<float>::quiet_NaN());
}

}  // namespace tidemill::testing
