#include "models/weight_loader.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/encode_weights.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/model_folder.h"
#include "tests/support/safetensors_writer.h"

namespace tidemill::weight_loader_test {
namespace {

using testing::GgufWriter;
using testing::ModelFolder;
using testing::SafetensorsWriter;

// first, first + 1, ... as f32.
std::vector<float> Counting(size_t count, float first = 0) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = first + static_cast<float>(i);
  return values;
}

std::string F32(const std::vector<float>& values) { return testing::EncodeWeights(DType::kF32, values); }

// A file and its loader, packed or mapped. Tensors "w..." are named alike in both formats.
class Fixture {
 public:
  explicit Fixture(const SafetensorsWriter& writer, bool mapped = false) : Fixture(mapped) {
    ModelFolder folder;
    files_ = folder.Write("config.json", "{}").Write("model.safetensors", writer.Build()).Open();
    loader_.emplace(*files_, settings_);
  }
  explicit Fixture(GgufWriter writer, bool mapped = false) : Fixture(mapped) {
    ModelFolder folder;
    files_ = folder.Write("model.gguf", writer.Build()).Open();
    loader_.emplace(*files_, settings_);
  }
  Fixture(const Fixture&) = delete;
  Fixture& operator=(const Fixture&) = delete;

  WeightLoader* operator->() { return &*loader_; }

 private:
  explicit Fixture(bool mapped) : threads_(std::move(ThreadPool::Create(1)).value()) {
    settings_.mapped = mapped;
    settings_.threads = threads_.get();
  }

  std::unique_ptr<ThreadPool> threads_;
  LoadSettings settings_;
  std::optional<ModelFiles> files_;
  std::optional<WeightLoader> loader_;
};

const WeightName kW{"w", "w"};

std::vector<float> Row(const WeightMatrix& matrix, size_t row) {
  std::vector<float> values(matrix.cols());
  matrix.CopyRow(row, values);
  return values;
}

void ExpectRows(const Result<WeightMatrix>& matrix, const std::vector<std::vector<float>>& rows) {
  ASSERT_TRUE(matrix.ok()) << matrix.error().message();
  ASSERT_EQ(matrix->rows(), rows.size());
  for (size_t r = 0; r < rows.size(); ++r) EXPECT_EQ(Row(*matrix, r), rows[r]) << "row " << r;
}

template <typename T>
void ExpectError(const Result<T>& result, ErrorCode code, const std::string& message) {
  ASSERT_FALSE(result.ok()) << "expected: " << message;
  EXPECT_EQ(result.error().code(), code);
  EXPECT_EQ(result.error().message(), message);
}

// 6 rows of 2: row r is {2 r, 2 r + 1}.
SafetensorsWriter SixRows() { return SafetensorsWriter().Add("w.weight", "F32", {6, 2}, F32(Counting(12))); }

TEST(WeightLoader, PackedAndMapped_HaveTheSameRows) {
  for (const bool mapped : {false, true}) {
    Fixture files(SixRows(), mapped);
    const auto matrix = files->Matrix(kW, 6, 2);
    ExpectRows(matrix, {{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}});
    EXPECT_EQ(matrix->packed(), !mapped);
  }
}

TEST(WeightLoader, PartsBehindEachOther_AreBlocksOfRows) {
  for (const bool mapped : {false, true}) {
    Fixture files(SixRows(), mapped);
    ExpectRows(files->Matrix(kW, 2, 2, {.parts = 3, .part = 0}), {{0, 1}, {2, 3}});
    ExpectRows(files->Matrix(kW, 2, 2, {.parts = 3, .part = 2}), {{8, 9}, {10, 11}});
  }
}

TEST(WeightLoader, PartsInTurns_TakeEveryOtherGroupOfRows) {
  for (const bool mapped : {false, true}) {
    // As GPT-NeoX: head 0's q, k, v, then head 1's, heads of one row ...
    Fixture files(SixRows(), mapped);
    ExpectRows(files->Matrix(kW, 2, 2, {.parts = 3, .part = 0, .part_rows = 1}), {{0, 1}, {6, 7}});
    ExpectRows(files->Matrix(kW, 2, 2, {.parts = 3, .part = 1, .part_rows = 1}), {{2, 3}, {8, 9}});
    ExpectRows(files->Matrix(kW, 2, 2, {.parts = 3, .part = 2, .part_rows = 1}), {{4, 5}, {10, 11}});
    // ... and of two.
    Fixture wide(SafetensorsWriter().Add("w.weight", "F32", {8, 1}, F32(Counting(8))), mapped);
    ExpectRows(wide->Matrix(kW, 4, 1, {.parts = 2, .part = 1, .part_rows = 2}), {{2}, {3}, {6}, {7}});
  }
}

TEST(WeightLoader, Transposed_TurnsRowsIntoColumns) {
  for (const bool mapped : {false, true}) {
    // [in, out] = [2, 6]: row 0 is 0 .. 5, row 1 is 6 .. 11.
    Fixture files(SafetensorsWriter().Add("w.weight", "F32", {2, 6}, F32(Counting(12))), mapped);
    ExpectRows(files->Matrix(kW, 6, 2, {.transposed = true}), {{0, 6}, {1, 7}, {2, 8}, {3, 9}, {4, 10}, {5, 11}});
    ExpectRows(files->Matrix(kW, 2, 2, {.transposed = true, .parts = 3, .part = 1}), {{2, 8}, {3, 9}});
  }
}

TEST(WeightLoader, TransposedHalfPrecision_KeepsItsElements) {
  Fixture files(SafetensorsWriter().Add("w.weight", "BF16", {2, 3},
                                        testing::EncodeWeights(DType::kBF16, std::vector<float>{1, 2, 3, 4, 5, 6})));
  const auto matrix = files->Matrix(kW, 3, 2, {.transposed = true});
  ExpectRows(matrix, {{1, 4}, {2, 5}, {3, 6}});
  EXPECT_EQ(matrix->dtype(), DType::kBF16);
}

TEST(WeightLoader, F8_BecomesF16InEveryForm) {
  const std::string e4m3 = {'\x38', '\x40', '\x30', '\xB8', '\x7E', '\x01'};  // 1, 2, 0.5, -1, 448, 2^-9
  const std::string e5m2 = {'\x3C', '\x40', '\x38', '\xBC', '\x7B', '\x01'};  // 1, 2, 0.5, -1, 57344, 2^-16
  for (const bool mapped : {false, true}) {
    Fixture files(SafetensorsWriter().Add("a.weight", "F8_E4M3", {2, 3}, e4m3).Add("b.weight", "F8_E5M2", {2, 3}, e5m2),
                  mapped);
    const WeightName a{"a", ""}, b{"b", ""};
    ExpectRows(files->Matrix(a, 2, 3), {{1, 2, 0.5f}, {-1, 448, 0x1p-9f}});
    ExpectRows(files->Matrix(b, 2, 3), {{1, 2, 0.5f}, {-1, 57344, 0x1p-16f}});
    ExpectRows(files->Matrix(a, 3, 2, {.transposed = true}), {{1, -1}, {2, 448}, {0.5f, 0x1p-9f}});
    ExpectRows(files->Matrix(b, 1, 3, {.parts = 2, .part = 1, .part_rows = 1}), {{-1, 57344, 0x1p-16f}});
    EXPECT_EQ(files->Matrix(a, 2, 3)->dtype(), DType::kF16);
  }
}

TEST(WeightLoader, Range_IsAPartOfRowsAndColumns) {
  for (const bool mapped : {false, true}) {
    Fixture files(SafetensorsWriter().Add("w.weight", "F32", {3, 4}, F32(Counting(12))), mapped);
    ExpectRows(files->Matrix(kW, 3, 4, {}, {1, 3, 1, 3}), {{5, 6}, {9, 10}});
    ExpectRows(files->Matrix(kW, 3, 4, {}, {0, 3, 0, 4}), {{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}});
    ExpectRows(files->Matrix(kW, 3, 4, {}, {2, 2, 0, 4}), {});
  }
}

TEST(WeightLoader, RangeOfBlocks_KeepsTheirNumbers) {
  std::vector<float> values(2 * 64);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 32) - 16;  // every block: -16 .. 15
  Fixture files(
      GgufWriter().AddTensor("w.weight", DType::kQ8_0, {64, 2}, testing::EncodeWeights(DType::kQ8_0, values)));
  const auto whole = files->Matrix(kW, 2, 64), part = files->Matrix(kW, 2, 64, {}, {1, 2, 32, 64});
  ASSERT_TRUE(whole.ok() && part.ok());
  const std::vector<float> row = Row(*whole, 1);
  EXPECT_EQ(Row(*part, 0), std::vector<float>(row.begin() + 32, row.end()));
}

TEST(WeightLoader, Layer_ReadsTheBiasThatBelongsToItsRows) {
  for (const bool mapped : {false, true}) {
    Fixture files(SixRows().Add("w.bias", "F32", {6}, F32(Counting(6, 100))), mapped);
    const auto whole = files->Layer(kW, 6, 2, Bias::kRequired);
    const auto block = files->Layer(kW, 2, 2, Bias::kOptional, {.parts = 3, .part = 1});
    const auto turns = files->Layer(kW, 2, 2, Bias::kRequired, {.parts = 3, .part = 1, .part_rows = 1});
    ASSERT_TRUE(whole.ok() && block.ok() && turns.ok());
    EXPECT_EQ(whole->bias, Counting(6, 100));
    EXPECT_EQ(block->bias, (std::vector<float>{102, 103}));
    EXPECT_EQ(turns->bias, (std::vector<float>{101, 104}));
  }
}

TEST(WeightLoader, InterleavedRows_OrderTheBiasToo) {
  // One head of 4 dimensions: file rows (i, half) are rows (half, i).
  Fixture files(GgufWriter()
                    .AddTensor("w.weight", DType::kF32, {1, 4}, F32({0, 1, 2, 3}))
                    .AddTensor("w.bias", DType::kF32, {4}, F32({10, 11, 12, 13})));
  WeightForm form;
  form.order.interleaved_head_dim = 4;
  const auto layer = files->Layer(kW, 4, 1, Bias::kRequired, form);
  ASSERT_TRUE(layer.ok()) << layer.error().message();
  for (size_t r = 0; r < 4; ++r) EXPECT_EQ(Row(layer->weight, r)[0] + 10, layer->bias[r]) << r;
  EXPECT_EQ(layer->bias, (std::vector<float>{10, 12, 11, 13}));
}

TEST(WeightLoader, ListedRows_AreThoseOfTheFileInAnyOrder) {
  for (const bool mapped : {false, true}) {
    Fixture files(SixRows().Add("w.bias", "F32", {6}, F32(Counting(6, 100))), mapped);
    const auto layer = files->Layer(kW, 4, 2, Bias::kRequired, {.rows = {5, 0, 1, 3}, .file_rows = 6});
    ASSERT_TRUE(layer.ok()) << layer.error().message();
    for (const auto& [row, first] : {std::pair<size_t, float>{0, 10}, {1, 0}, {2, 2}, {3, 6}})
      EXPECT_EQ(Row(layer->weight, row), (std::vector<float>{first, first + 1})) << "row " << row;
    EXPECT_EQ(layer->bias, (std::vector<float>{105, 100, 101, 103}));
    EXPECT_EQ(layer->weight.packed(), !mapped);
    EXPECT_TRUE(files->CheckAllRead().ok());
    ExpectError(files->Matrix(kW, 4, 2, {.rows = {5, 0, 1, 3}, .file_rows = 8}), ErrorCode::kCorruptFile,
                "tensor \"w.weight\": expected shape [8, 2] from the metadata, found [6, 2]");
  }
}

// Two panels and a part of one, rows backwards: each byte of a block moves with its row.
TEST(WeightLoader, ListedQuantisedRows_KeepTheirNumbers) {
  constexpr size_t kRows = 40, kCols = 256;
  std::vector<float> values(kRows * kCols);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>((i * 37 + i / kCols * 11) % 61) - 30;
  std::vector<uint32_t> backwards(kRows);
  for (size_t r = 0; r < kRows; ++r) backwards[r] = static_cast<uint32_t>(kRows - 1 - r);
  for (const DType dtype : {DType::kQ8_0, DType::kQ4_0, DType::kQ4_K, DType::kQ6_K, DType::kF16, DType::kBF16}) {
    for (const bool mapped : {false, true}) {
      SCOPED_TRACE(std::string(InfoOf(dtype).name) + (mapped ? " mapped" : " packed"));
      Fixture files(GgufWriter().AddTensor("w.weight", dtype, {kCols, kRows}, testing::EncodeWeights(dtype, values)),
                    mapped);
      const auto whole = files->Matrix(kW, kRows, kCols),
                 listed = files->Matrix(kW, kRows, kCols, {.rows = backwards, .file_rows = kRows});
      ASSERT_TRUE(whole.ok() && listed.ok());
      for (size_t r = 0; r < kRows; ++r) EXPECT_EQ(Row(*listed, r), Row(*whole, kRows - 1 - r)) << "row " << r;
    }
  }
}

TEST(WeightLoader, ListedColumns_AreMovedUnlessBlocksHoldThem) {
  const std::string f8 = {'\x38', '\x40', '\x30', '\xB8', '\x7E', '\x01'};  // 1, 2, 0.5, -1, 448, 2^-9
  for (const bool mapped : {false, true}) {
    Fixture files(SafetensorsWriter()
                      .Add("a.weight", "F32", {2, 3}, F32(Counting(6)))
                      .Add("b.weight", "BF16", {2, 3}, testing::EncodeWeights(DType::kBF16, Counting(6)))
                      .Add("c.weight", "F8_E4M3", {2, 3}, f8),
                  mapped);
    ExpectRows(files->Matrix({"a", ""}, 2, 3, {.cols = {2, 0, 1}}), {{2, 0, 1}, {5, 3, 4}});
    ExpectRows(files->Matrix({"b", ""}, 2, 3, {.cols = {2, 0, 1}}), {{2, 0, 1}, {5, 3, 4}});
    ExpectRows(files->Matrix({"b", ""}, 1, 3, {.rows = {1}, .file_rows = 2, .cols = {1, 0, 2}}), {{4, 3, 5}});
    ExpectRows(files->Matrix({"c", ""}, 2, 3, {.cols = {2, 0, 1}}), {{0.5f, 1, 2}, {0x1p-9f, -1, 448}});
  }
  std::vector<uint32_t> turned(32);
  for (size_t i = 0; i < turned.size(); ++i) turned[i] = static_cast<uint32_t>((i + 1) % turned.size());
  Fixture gguf(GgufWriter().AddTensor("w.weight", DType::kQ8_0, {32, 1}, std::string(34, '\0')));
  ExpectError(gguf->Matrix(kW, 1, 32, {.cols = turned}), ErrorCode::kUnsupported,
              "tensor \"w.weight\": expected F32, F16 or BF16 for a matrix with columns in another order, found Q8_0");
}

TEST(WeightLoader, NamesWithoutTheUsualEnd_AreFoundByTheirSuffix) {
  Fixture files(SafetensorsWriter().Add("w", "F32", {6, 2}, F32(Counting(12))));
  ExpectRows(files->Matrix(kW, 2, 2, {.parts = 3, .part = 2, .suffix = ""}), {{8, 9}, {10, 11}});
  EXPECT_TRUE(files->Has(kW, ""));
  EXPECT_FALSE(files->Has(kW));
}

TEST(WeightLoader, OptionalBias_MayBeMissing) {
  Fixture files(SixRows());
  const auto layer = files->Layer(kW, 6, 2, Bias::kOptional);
  ASSERT_TRUE(layer.ok()) << layer.error().message();
  EXPECT_TRUE(layer->bias.empty());
}

TEST(WeightLoader, Norms_AddOneInCheckpointsOnly) {
  Fixture checkpoint(SafetensorsWriter().Add("w.weight", "F32", {2}, F32({0.5f, -0.5f})));
  Fixture gguf(GgufWriter().AddTensor("w.weight", DType::kF32, {2}, F32({0.5f, -0.5f})));
  EXPECT_EQ(checkpoint->Rms(kW, 2, 1e-6)->weight, (std::vector<float>{0.5f, -0.5f}));
  EXPECT_EQ(checkpoint->Rms(kW, 2, 1e-6, true)->weight, (std::vector<float>{1.5f, 0.5f}));
  EXPECT_EQ(gguf->Rms(kW, 2, 1e-6, true)->weight, (std::vector<float>{0.5f, -0.5f}));
}

TEST(WeightLoader, ProgressReachesTheShareOfTheWeights) {
  ModelFolder folder;
  const ModelFiles files = folder.Write("config.json", "{}").Write("model.safetensors", SixRows().Build()).Open();
  const auto threads = std::move(ThreadPool::Create(1)).value();
  double last = 0;
  const LoadSettings settings{.threads = threads.get(), .progress = [&](double share) { last = share; }};
  WeightLoader loader(files, settings);
  ASSERT_TRUE(loader.Matrix(kW, 6, 2).ok());
  EXPECT_EQ(last, 48.0 / static_cast<double>(files.file_bytes()));
}

TEST(WeightLoader, MissingTensor_IsNamedWithTheShapeThatWasWanted) {
  Fixture files(SixRows());
  ExpectError(files->Matrix({"v", "v"}, 6, 2), ErrorCode::kCorruptFile,
              "tensor \"v.weight\": expected shape [6, 2], but the file has no such tensor");
  ExpectError(files->Layer(kW, 6, 2, Bias::kRequired), ErrorCode::kCorruptFile,
              "tensor \"w.bias\": expected shape [6], but the file has no such tensor");
  ExpectError(files->LayerNorm({"v", "v"}, 6, 1e-5), ErrorCode::kCorruptFile,
              "tensor \"v.weight\": expected shape [6], but the file has no such tensor");
  EXPECT_FALSE(files->Has({"v", "v"}));
  EXPECT_TRUE(files->Has(kW));
}

TEST(WeightLoader, WrongShape_IsNamedWithBoth) {
  Fixture files(SixRows());
  ExpectError(files->Matrix(kW, 2, 6), ErrorCode::kCorruptFile,
              "tensor \"w.weight\": expected shape [2, 6] from the metadata, found [6, 2]");
  ExpectError(files->Matrix(kW, 4, 2, {.parts = 3}), ErrorCode::kCorruptFile,
              "tensor \"w.weight\": expected shape [12, 2] from the metadata, found [6, 2]");
  ExpectError(files->Matrix(kW, 6, 2, {.transposed = true}), ErrorCode::kCorruptFile,
              "tensor \"w.weight\": expected shape [2, 6] from the metadata, found [6, 2]");
  ExpectError(files->Vector(kW, 12), ErrorCode::kCorruptFile,
              "tensor \"w.weight\": expected shape [12] from the metadata, found [6, 2]");
}

TEST(WeightLoader, WrongType_IsRefusedByName) {
  Fixture files(SafetensorsWriter()
                    .Add("w.weight", "I64", {1, 1}, std::string(8, '\0'))
                    .Add("n.weight", "F8_E4M3", {2}, std::string(2, '\0')));
  const auto integers = files->Matrix(kW, 1, 1);
  ASSERT_FALSE(integers.ok());
  EXPECT_EQ(integers.error().code(), ErrorCode::kUnsupported);
  EXPECT_NE(integers.error().message().find("\"w.weight\""), std::string::npos) << integers.error().message();
  EXPECT_NE(integers.error().message().find("I64"), std::string::npos) << integers.error().message();
  ExpectError(files->Rms({"n", ""}, 2, 1e-6), ErrorCode::kUnsupported,
              "tensor \"n.weight\": F8_E4M3 is not supported for a vector");

  Fixture gguf(GgufWriter().AddTensor("w.weight", DType::kQ8_0, {32, 1}, std::string(34, '\0')));
  ExpectError(gguf->Matrix(kW, 32, 1, {.transposed = true}), ErrorCode::kUnsupported,
              "tensor \"w.weight\": expected F32, F16 or BF16 for a matrix stored as [in, out], found Q8_0");
}

TEST(WeightLoader, BiasThatTheFamilyLacks_IsRefusedByName) {
  Fixture files(SixRows().Add("w.bias", "F32", {6}, F32(Counting(6))));
  ExpectError(files->Layer(kW, 6, 2, Bias::kNone), ErrorCode::kUnsupported,
              "tensor \"w.bias\": this family has no such bias");
}

TEST(WeightLoader, SkippedTensors_CountAsRead) {
  Fixture files(SixRows().Add("v.a.weight", "F32", {1}, F32({0})).Add("vb", "F32", {1}, F32({0})));
  files->Skip("v.");
  ASSERT_TRUE(files->Matrix(kW, 6, 2).ok());
  ExpectError(files->CheckAllRead(), ErrorCode::kUnsupported,
              "tensors: 1 weight that nothing reads, \"vb\": the model is of another family or variant than the "
              "settings say, or deeper");
}

TEST(WeightLoader, EveryTensorAskedFor_CountsAsRead) {
  Fixture files(SixRows().Add("w.bias", "F32", {6}, F32(Counting(6))));
  ExpectError(
      files->CheckAllRead(), ErrorCode::kUnsupported,
      "tensors: 2 weights that nothing reads, the first \"w.weight\": the model is of another family or variant "
      "than the settings say, or deeper");
  ASSERT_TRUE(files->Layer(kW, 6, 2, Bias::kOptional).ok());
  EXPECT_TRUE(files->CheckAllRead().ok());
}

}  // namespace
}  // namespace tidemill::weight_loader_test
