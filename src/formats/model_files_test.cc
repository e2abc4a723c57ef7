#include "formats/model_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "tests/support/gguf_writer.h"
#include "tests/support/safetensors_writer.h"

namespace tidemill::model_files_test {
namespace {

using testing::GgufWriter;
using testing::SafetensorsWriter;

// A folder of its own for each test, removed afterwards.
class ModelFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "model_files_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  std::string Write(const std::string& name, const std::string& bytes) const {
    std::ofstream(Path(name), std::ios::binary) << bytes;
    return Path(name);
  }
  void WriteShards() const {
    Write("config.json", R"({"model_type":"llama"})");
    Write("m-1.safetensors",
          SafetensorsWriter().Add("b", "F32", {1}, "bbbb").Add("\\u0061", "F16", {2}, "aaaa").Build());
    Write("m-2.safetensors", SafetensorsWriter().Add("c", "F32", {1}, "cccc").Add("spare", "U8", {1}, "s").Build());
    Write("model.safetensors.index.json",
          R"({"weight_map":{"a":"m-1.safetensors","b":"m-1.safetensors","c":"m-2.safetensors"}})");
  }
  // Part `number` of 2; the first has "a", the second "b".
  static std::string GgufPart(int number) {
    GgufWriter w;
    w.SetString("general.architecture", "llama").Set<uint16_t>("split.no", static_cast<uint16_t>(number - 1));
    w.Set<uint16_t>("split.count", 2).Set<int32_t>("split.tensors.count", 2);
    return w.AddTensor(number == 1 ? "a" : "b", DType::kF32, {1}, number == 1 ? "aaaa" : "bbbb").Build();
  }
  static std::string Gguf() { return GgufWriter().AddTensor("g", DType::kF32, {2, 2}, std::string(16, 'g')).Build(); }
  static std::string Safetensors() {
    return SafetensorsWriter()
        .Add("t", "BF16", {2, 2}, std::string(8, 't'))
        .Add("ids", "I64", {1}, std::string(8, 'i'))
        .Build();
  }

  static ModelFiles Opened(const std::string& path) {
    auto files = ModelFiles::Open(path);
    EXPECT_TRUE(files.ok()) << files.error().message();
    return std::move(files).value();
  }
  static void ExpectError(const std::string& path, ErrorCode code, const std::string& message) {
    const auto files = ModelFiles::Open(path);
    ASSERT_FALSE(files.ok()) << message;
    EXPECT_EQ(ErrorCodeName(files.error().code()), ErrorCodeName(code)) << message;
    EXPECT_EQ(files.error().message(), message);
  }
  static char FirstByte(const ModelFiles& files, const std::string& tensor) {
    const FileTensor* found = files.FindTensor(tensor);
    return found == nullptr ? '?' : static_cast<char>(found->bytes[0]);
  }

  std::string folder_;
};

TEST_F(ModelFilesTest, GgufFile_ByNameOrAloneInItsFolder) {
  const std::string path = Write("x.gguf", Gguf());
  Write("README.md", "not a model");
  for (const std::string& opened : {path, folder_}) {
    const ModelFiles files = Opened(opened);
    EXPECT_EQ(files.kind(), ModelFiles::Kind::kGguf);
    EXPECT_EQ(files.path(), opened);
    EXPECT_EQ(files.file_bytes(), Gguf().size());
    EXPECT_EQ(files.num_weight_files(), 1U);
    EXPECT_NE(files.gguf(), nullptr);
    EXPECT_EQ(files.config(), nullptr);
    EXPECT_EQ(files.tokenizer_json(), std::nullopt);
    EXPECT_EQ(files.tensors().size(), 1U);
    EXPECT_EQ(FirstByte(files, "g"), 'g');
  }
}

TEST_F(ModelFilesTest, GgufUnderAnotherName_IsKnownByItsContent) {
  EXPECT_EQ(Opened(Write("weights.safetensors", Gguf())).kind(), ModelFiles::Kind::kGguf);
}

TEST_F(ModelFilesTest, GgufParts_OpenFromAnyOfThem) {
  Write("x-00001-of-00002.gguf", GgufPart(1));
  Write("x-00002-of-00002.gguf", GgufPart(2));
  for (const std::string& path : {Path("x-00001-of-00002.gguf"), Path("x-00002-of-00002.gguf"), folder_}) {
    const ModelFiles files = Opened(path);
    EXPECT_EQ(files.num_weight_files(), 2U);
    EXPECT_EQ(files.file_bytes(), GgufPart(1).size() + GgufPart(2).size());
    EXPECT_EQ(files.tensors().size(), 2U);
    EXPECT_EQ(FirstByte(files, "a"), 'a');
    EXPECT_EQ(FirstByte(files, "b"), 'b');
    EXPECT_EQ(files.gguf()->GetString("general.architecture").value(), "llama");
  }
}

TEST_F(ModelFilesTest, GgufParts_ThatAreMissingOrDamagedAreNamed) {
  const std::string first = Write("x-00001-of-00002.gguf", GgufPart(1));
  const std::string second = Path("x-00002-of-00002.gguf");
  ExpectError(first, ErrorCode::kNotFound, "GGUF part 2 of 2: open " + second + ": No such file or directory");
  Write("x-00002-of-00002.gguf", "GGUF");
  ExpectError(
      first, ErrorCode::kCorruptFile,
      "GGUF part 2 of 2: GGUF header: byte 4: version: expected 4 bytes, found 0; the file is truncated or damaged");
  Write("x-00002-of-00002.gguf", GgufPart(1));
  ExpectError(first, ErrorCode::kCorruptFile, "GGUF part 2 of 2: split.no: expected 1, found 0");
  Write("x-00002-of-00002.gguf", Gguf());
  ExpectError(first, ErrorCode::kCorruptFile, "GGUF part 2 of 2: split.count: expected 2, found 1");
  ExpectError(
      Write("renamed.gguf", GgufPart(1)), ErrorCode::kCorruptFile,
      "GGUF part 1 of 2: file name: expected a name that ends in \"-00001-of-00002.gguf\", found \"renamed.gguf\"");
}

TEST_F(ModelFilesTest, SafetensorsFile_ByNameOrItsFolder) {
  const std::string path = Write("model.safetensors", Safetensors());
  Write("config.json", R"({"hidden_size":64})");
  for (const std::string& opened : {path, folder_}) {
    const ModelFiles files = Opened(opened);
    EXPECT_EQ(files.kind(), ModelFiles::Kind::kSafetensors);
    EXPECT_EQ(files.gguf(), nullptr);
    EXPECT_EQ(files.file_bytes(), Safetensors().size());
    EXPECT_EQ(files.config()->GetUint("hidden_size", 1, 64).value(), 64U);
    EXPECT_EQ(files.generation_config(), nullptr);
    EXPECT_EQ(files.tokenizer_config(), nullptr);
    EXPECT_EQ(files.chat_template(), std::nullopt);
    EXPECT_EQ(files.tensors().size(), 2U);
    EXPECT_TRUE(CheckReadable(*files.FindTensor("t")).ok());
    EXPECT_EQ(CheckReadable(*files.FindTensor("ids")).error().message(),
              "tensor \"ids\": expected F32, F16, BF16, F8_E4M3 or F8_E5M2, found type I64");
    EXPECT_EQ(files.FindTensor("gone"), nullptr);
  }
}

TEST_F(ModelFilesTest, SettingsBesideTheWeights_AreRead) {
  Write("model.safetensors", Safetensors());
  Write("config.json", "{}");
  Write("generation_config.json", R"({"eos_token_id":[1,2]})");
  Write("tokenizer_config.json", R"({"add_bos_token":true})");
  Write("tokenizer.json", "{\"model\":{}}");
  Write("chat_template.jinja", "{{ messages }}");
  const ModelFiles files = Opened(folder_);
  EXPECT_THAT(files.generation_config()->GetInts("eos_token_id").value(), ::testing::ElementsAre(1, 2));
  EXPECT_TRUE(files.tokenizer_config()->GetBool("add_bos_token").value());
  EXPECT_EQ(files.tokenizer_json(), "{\"model\":{}}");
  EXPECT_EQ(files.chat_template(), "{{ messages }}");
}

TEST_F(ModelFilesTest, Shards_AreOneModel) {
  WriteShards();
  const ModelFiles files = Opened(folder_);
  EXPECT_EQ(files.num_weight_files(), 2U);
  ASSERT_EQ(files.tensors().size(), 3U);  // without the spare one
  EXPECT_EQ(FirstByte(files, "a"), 'a');
  EXPECT_EQ(FirstByte(files, "b"), 'b');
  EXPECT_EQ(FirstByte(files, "c"), 'c');
  EXPECT_EQ(files.FindTensor("spare"), nullptr);
}

TEST_F(ModelFilesTest, Shards_ThatAreMissingOrDamagedAreNamed) {
  WriteShards();
  Write("m-2.safetensors", SafetensorsWriter().Add("d", "F32", {1}, "cccc").Build());
  ExpectError(folder_, ErrorCode::kCorruptFile,
              "safetensors index: tensor \"c\": expected in \"m-2.safetensors\", found in no shard");
  Write("m-2.safetensors", "xyz");
  ExpectError(
      folder_, ErrorCode::kCorruptFile,
      "shard \"m-2.safetensors\": safetensors header: byte 0: header length: expected 8 bytes, found 3; the file is "
      "truncated or damaged");
  std::filesystem::remove(Path("m-2.safetensors"));
  ExpectError(folder_, ErrorCode::kNotFound,
              "shard \"m-2.safetensors\": open " + Path("m-2.safetensors") + ": No such file or directory");
  Write("model.safetensors.index.json", R"({"weight_map":{"a":"../m-1.safetensors"}})");
  ExpectError(
      folder_, ErrorCode::kCorruptFile,
      "safetensors index: byte 19: weight_map \"a\": expected the plain name of a .safetensors file in the index's own "
      "folder, found \"../m-1.safetensors\"");
}

TEST_F(ModelFilesTest, OneShardByName_AsksForTheFolder) {
  const std::string path = Write("model-00001-of-00002.safetensors", Safetensors());
  Write("config.json", "{}");
  ExpectError(path, ErrorCode::kUnsupported,
              "open " + path + ": expected a whole model, found part 1 of 2; name the folder instead");
}

TEST_F(ModelFilesTest, WeightsWithoutConfig_AreRefused) {
  const std::string message = "open " + folder_ + ": expected config.json beside the weights, found none";
  const std::string path = Write("model.safetensors", Safetensors());
  ExpectError(path, ErrorCode::kNotFound, message);
  ExpectError(folder_, ErrorCode::kNotFound, message);
}

TEST_F(ModelFilesTest, FoldersWithoutOneModel_AreRefused) {
  const std::string expected = "expected model.safetensors, model.safetensors.index.json or a .gguf file, found ";
  ExpectError(folder_, ErrorCode::kNotFound, "open " + folder_ + ": " + expected + "none");
  Write("config.json", "{}");
  ExpectError(folder_, ErrorCode::kNotFound, "open " + folder_ + ": " + expected + "none");
  Write("tf_model.h5", "x");
  Write("pytorch_model.bin", "PK\x03\x04");
  ExpectError(folder_, ErrorCode::kUnsupported,
              "open " + folder_ + ": " + expected + "\"pytorch_model.bin\"; convert the model to safetensors");
  Write("b.gguf", Gguf());
  Write("a.gguf", Gguf());
  ExpectError(folder_, ErrorCode::kUnsupported,
              "open " + folder_ + ": expected one model, found \"a.gguf\" and \"b.gguf\"; name the file");
  Write("model.safetensors.index.json", "{}");
  ExpectError(folder_, ErrorCode::kUnsupported,
              "open " + folder_ +
                  ": expected one model, found \"model.safetensors.index.json\" and \"a.gguf\"; name the file, or "
                  "move one away");
  Write("model.safetensors", "{}");
  ExpectError(folder_, ErrorCode::kUnsupported,
              "open " + folder_ +
                  ": expected one model, found \"model.safetensors\" and \"a.gguf\"; name the file, or move one away");
}

TEST_F(ModelFilesTest, FolderWithATokenizerAlone_HasText) {
  Write("tokenizer.json", "{}");
  EXPECT_FALSE(ModelFiles::Open(folder_).ok());
  const auto files = ModelFiles::OpenText(folder_);
  ASSERT_TRUE(files.ok()) << files.error().message();
  EXPECT_EQ(files->tokenizer_json(), "{}");
  EXPECT_EQ(files->config(), nullptr);
  EXPECT_TRUE(files->tensors().empty());
  EXPECT_EQ(ModelFiles::OpenText(folder_ + "/none").error().code(), ErrorCode::kNotFound);
}

// As transformers does: the single file is the model.
TEST_F(ModelFilesTest, IndexBesideTheSingleFile_IsNotRead) {
  Write("config.json", "{}");
  Write("model.safetensors", Safetensors());
  Write("model.safetensors.index.json", R"({"weight_map":{"t":"gone.safetensors"}})");
  EXPECT_NE(Opened(folder_).FindTensor("t"), nullptr);
}

TEST_F(ModelFilesTest, SetsOfParts_MustBeOne) {
  Write("x-00001-of-00002.gguf", GgufPart(1));
  Write("y-00002-of-00002.gguf", GgufPart(2));
  ExpectError(folder_, ErrorCode::kUnsupported,
              "open " + folder_ +
                  ": expected one model, found \"x-00001-of-00002.gguf\" and \"y-00002-of-00002.gguf\"; name the "
                  "file");
}

TEST_F(ModelFilesTest, WhatIsNoModel_IsRefused) {
  ExpectError(Path("gone"), ErrorCode::kNotFound, "open " + Path("gone") + ": No such file or directory");
  ExpectError(Write("empty.gguf", ""), ErrorCode::kCorruptFile, "open " + Path("empty.gguf") + ": the file is empty");
  ExpectError(Write("text.gguf", "hello"), ErrorCode::kCorruptFile,
              "GGUF header: byte 0: magic: expected \"GGUF\", found \"hell\"");
  ExpectError(Write("x.bin", "PK\x03\x04" + std::string(60, 'z')), ErrorCode::kUnsupported,
              "GGUF header: byte 0: magic: expected \"GGUF\", found \"PK\\x03\\x04\", a zip archive, such as a PyTorch "
              "checkpoint; convert the model to GGUF");
  ExpectError(Write("x.safetensors", "hello"), ErrorCode::kCorruptFile,
              "safetensors header: byte 0: header length: expected 8 bytes, found 5; the file is truncated or damaged");
}

TEST_F(ModelFilesTest, SettingsThatAreWrong_AreNamed) {
  Write("model.safetensors", Safetensors());
  Write("config.json", "[]");
  ExpectError(folder_, ErrorCode::kCorruptFile, "config.json: byte 0: expected an object, found an array");
  Write("config.json", "");
  ExpectError(folder_, ErrorCode::kCorruptFile, "open " + Path("config.json") + ": the file is empty");
  Write("config.json", "{}" + std::string(kMaxSettingsBytes, ' '));
  ExpectError(folder_, ErrorCode::kUnsupported, "config.json: expected at most 16777216 bytes, found 16777218");
  Write("config.json", "{}");
  Write("generation_config.json", "{\"a\":1,\"a\":2}");
  ExpectError(
      folder_, ErrorCode::kCorruptFile,
      "generation_config.json: byte 7: expected each key of an object once, found \"a\", which also stands at byte 1");
  Write("generation_config.json", "{}");
  Write("tokenizer_config.json", "{\"a\":NaN}");
  ExpectError(
      folder_, ErrorCode::kCorruptFile,
      "tokenizer_config.json: byte 5: expected JSON, found NaN, which only Python writes; replace it by a number");
  Write("tokenizer_config.json", "{}");
  Write("tokenizer.json", std::string(kMaxTokenizerJsonBytes + 1, ' '));
  ExpectError(folder_, ErrorCode::kUnsupported, "tokenizer.json: expected at most 67108864 bytes, found 67108865");
  std::filesystem::remove(Path("tokenizer.json"));
  std::filesystem::create_directory(Path("tokenizer.json"));
  ExpectError(folder_, ErrorCode::kIoError, "open " + Path("tokenizer.json") + ": expected a file, found a folder");
}

TEST_F(ModelFilesTest, Pipe_IsRefusedWithoutWaitingForAWriter) {
  Write("model.safetensors", Safetensors());
  ASSERT_EQ(mkfifo(Path("config.json").c_str(), 0600), 0);
  ExpectError(folder_, ErrorCode::kIoError,
              "open " + Path("config.json") + ": expected a file, found something that is not a regular file");
}

TEST_F(ModelFilesTest, LinksOutOfTheFolder_AreFollowed) {  // the hub's cache is made of them
  std::filesystem::create_directory(Path("blobs"));
  std::filesystem::create_directory(Path("snapshot"));
  Write("blobs/1", Safetensors());
  Write("blobs/2", "{}");
  std::filesystem::create_symlink("../blobs/1", Path("snapshot/model.safetensors"));
  std::filesystem::create_symlink("../blobs/2", Path("snapshot/config.json"));
  EXPECT_EQ(FirstByte(Opened(Path("snapshot")), "t"), 't');
}

TEST_F(ModelFilesTest, Release_GivesPagesBackAndTheyAreReadAgain) {
  WriteShards();
  const ModelFiles opened = Opened(folder_);
  for (const FileTensor& tensor : opened.tensors()) opened.Release(tensor.bytes);
  opened.ReleaseAll();
  const std::string elsewhere(10'000, 'x');
  opened.Release(std::as_bytes(std::span(elsewhere)));  // in no file: left alone
  EXPECT_EQ(elsewhere, std::string(10'000, 'x'));
  EXPECT_EQ(FirstByte(opened, "c"), 'c');
}

TEST_F(ModelFilesTest, Move_KeepsTensorsAndSettings) {
  WriteShards();
  ModelFiles first = Opened(folder_);
  const FileTensor* tensor = first.FindTensor("a");
  const ModelFiles second = std::move(first);
  EXPECT_EQ(second.FindTensor("a"), tensor);
  EXPECT_EQ(tensor->name, "a");
  EXPECT_EQ(second.config()->GetString("model_type").value(), "llama");
}

}  // namespace
}  // namespace tidemill::model_files_test
