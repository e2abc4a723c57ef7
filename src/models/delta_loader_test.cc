// Layouts of a gated delta net's weights: every row of every tensor is a number of its own, so that one in another place is seen.
#include "models/delta_loader.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tensor/dequantize.h"
#include "tests/support/encode_weights.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/model_folder.h"
#include "tests/support/safetensors_writer.h"

namespace tidemill::delta_loader_test {
namespace {

using testing::GgufWriter;
using testing::ModelFolder;
using testing::SafetensorsWriter;

constexpr size_t kKeyHeads = 2, kKeyDim = 3, kValueDim = 2, kWidth = 4, kHidden = 32;
enum Part : size_t { kQ = 1, kK, kV, kZ, kB, kA, kConv, kDecay, kDt, kOut };

ModelSettings Settings(size_t ratio) {
  ModelSettings s;
  s.hidden_size = kHidden;
  s.linear_num_key_heads = kKeyHeads;
  s.linear_num_value_heads = kKeyHeads * ratio;
  s.linear_key_head_dim = kKeyDim;
  s.linear_value_head_dim = kValueDim;
  s.linear_conv_kernel_dim = kWidth;
  s.norm_eps = 1e-6;
  return s;
}

// Of row i of a head, whose value heads count from their key head's first.
float Mark(size_t part, size_t key_head, size_t value_head, size_t i) {
  return static_cast<float>(part * 1000 + key_head * 100 + value_head * 10 + i);
}

// The heads of a file in its order, as (key head, value head of it).
std::vector<std::pair<size_t, size_t>> ValueHeads(size_t ratio, bool tiled) {
  std::vector<std::pair<size_t, size_t>> heads;
  for (size_t h = 0; h < kKeyHeads * ratio; ++h)
    heads.push_back(tiled ? std::pair{h % kKeyHeads, h / kKeyHeads} : std::pair{h / ratio, h % ratio});
  return heads;
}

using Marks = std::vector<float>;  // one for each row

void AddKeys(Marks& marks, size_t part, size_t first = 0, size_t heads = kKeyHeads) {
  for (size_t g = first; g < first + heads; ++g) {
    for (size_t i = 0; i < kKeyDim; ++i) marks.push_back(Mark(part, g, 0, i));
  }
}
Marks OfValueHeads(size_t part, size_t ratio, bool tiled, size_t width) {
  Marks marks;
  for (const auto& [g, j] : ValueHeads(ratio, tiled)) {
    for (size_t i = 0; i < width; ++i) marks.push_back(Mark(part, g, j, i));
  }
  return marks;
}
Marks Qkv(size_t ratio, bool tiled) {
  Marks marks;
  AddKeys(marks, kQ);
  AddKeys(marks, kK);
  const Marks v = OfValueHeads(kV, ratio, tiled, kValueDim);
  marks.insert(marks.end(), v.begin(), v.end());
  return marks;
}
// By key head [q | k | v | z], and [b | a].
Marks Qkvz(size_t ratio) {
  Marks marks;
  for (size_t g = 0; g < kKeyHeads; ++g) {
    AddKeys(marks, kQ, g, 1);
    AddKeys(marks, kK, g, 1);
    for (const size_t part : {kV, kZ}) {
      for (size_t row = 0; row < ratio * kValueDim; ++row)
        marks.push_back(Mark(part, g, row / kValueDim, row % kValueDim));
    }
  }
  return marks;
}
Marks Ba(size_t ratio) {
  Marks marks;
  for (size_t g = 0; g < kKeyHeads; ++g) {
    for (const size_t part : {kB, kA}) {
      for (size_t j = 0; j < ratio; ++j) marks.push_back(Mark(part, g, j, 0));
    }
  }
  return marks;
}

// Rows of `cols` equal numbers; columns of `rows` equal numbers.
Marks InRows(const Marks& marks, size_t cols) {
  Marks values;
  for (const float mark : marks) values.insert(values.end(), cols, mark);
  return values;
}
Marks InColumns(const Marks& marks, size_t rows) {
  Marks values;
  for (size_t r = 0; r < rows; ++r) values.insert(values.end(), marks.begin(), marks.end());
  return values;
}
// Row c of the convolution: its mark and the place in the row.
Marks Convolution(size_t ratio, bool tiled) {
  Marks values;
  for (const float mark : Qkv(ratio, tiled)) {
    for (size_t i = 0; i < kWidth; ++i) values.push_back(mark + static_cast<float>(i) / 8);
  }
  return values;
}
Marks Logarithms(size_t ratio, bool tiled) {
  Marks marks = OfValueHeads(0, ratio, tiled, 1);
  for (float& mark : marks) mark /= 64;
  return marks;
}
Marks Decays(size_t ratio, bool tiled) {
  Marks decays;
  for (const float log : Logarithms(ratio, tiled))
    decays.push_back(static_cast<float>(-std::exp(static_cast<double>(log))));
  return decays;
}

// The same names in both kinds of files.
class Tensors {
 public:
  Tensors& Set(const std::string& name, size_t rows, size_t cols, Marks values, DType dtype = DType::kF32) {
    for (Tensor& t : tensors_) {
      if (t.name == name) {
        t = {name, rows, cols, std::move(values), dtype};
        return *this;
      }
    }
    tensors_.push_back({name, rows, cols, std::move(values), dtype});
    return *this;
  }
  ModelFiles OpenCheckpoint() const {
    SafetensorsWriter writer;
    for (const Tensor& t : tensors_) {
      std::vector<uint64_t> shape = {t.rows, t.cols};
      if (t.name.ends_with("conv1d.weight")) shape = {t.rows, 1, t.cols};
      if (t.rows == 1) shape = {t.cols};
      writer.Add(t.name, std::string(InfoOf(t.dtype).name), shape, testing::EncodeWeights(t.dtype, t.values));
    }
    ModelFolder folder;
    return folder.Write("config.json", "{}").Write("model.safetensors", writer.Build()).Open();
  }
  ModelFiles OpenGguf() const {
    GgufWriter writer;
    for (const Tensor& t : tensors_) {
      std::vector<uint64_t> shape = {t.cols, t.rows};
      if (t.rows == 1) shape = {t.cols};
      writer.AddTensor(t.name, t.dtype, shape, testing::EncodeWeights(t.dtype, t.values));
    }
    ModelFolder folder;
    return folder.Write("model.gguf", writer.Build()).Open();
  }

 private:
  struct Tensor {
    std::string name;
    size_t rows, cols;
    Marks values;
    DType dtype;
  };
  std::vector<Tensor> tensors_;
};

Tensors& SetRows(Tensors& t, const std::string& name, const Marks& marks, DType dtype = DType::kF32) {
  return t.Set(name, marks.size(), kHidden, InRows(marks, kHidden), dtype);
}

// fused: in_proj_qkvz and in_proj_ba, as Qwen3-Next has them; else Qwen3.5.
Tensors Checkpoint(size_t ratio, bool fused) {
  const size_t values = kKeyHeads * ratio, channels = 2 * kKeyHeads * kKeyDim + values * kValueDim;
  Tensors t;
  if (fused) {
    SetRows(t, "l.linear_attn.in_proj_qkvz.weight", Qkvz(ratio));
    SetRows(t, "l.linear_attn.in_proj_ba.weight", Ba(ratio));
  } else {
    SetRows(t, "l.linear_attn.in_proj_qkv.weight", Qkv(ratio, false));
    SetRows(t, "l.linear_attn.in_proj_z.weight", OfValueHeads(kZ, ratio, false, kValueDim));
    SetRows(t, "l.linear_attn.in_proj_b.weight", OfValueHeads(kB, ratio, false, 1));
    SetRows(t, "l.linear_attn.in_proj_a.weight", OfValueHeads(kA, ratio, false, 1));
  }
  t.Set("l.linear_attn.conv1d.weight", channels, kWidth, Convolution(ratio, false));
  t.Set("l.linear_attn.A_log", 1, values, Logarithms(ratio, false));
  t.Set("l.linear_attn.dt_bias", 1, values, OfValueHeads(kDt, ratio, false, 1));
  t.Set("l.linear_attn.norm.weight", 1, kValueDim, {0.5f, 2});
  return t.Set("l.linear_attn.out_proj.weight", kHidden, values * kValueDim,
               InColumns(OfValueHeads(kOut, ratio, false, kValueDim), kHidden));
}

enum class Inputs { kSplit, kHalfSplit, kWhole };  // Qwen3.5's files; Qwen3-Next's, today and before

Tensors Gguf(size_t ratio, bool tiled, Inputs inputs, DType dtype = DType::kF32) {
  const size_t values = kKeyHeads * ratio, channels = 2 * kKeyHeads * kKeyDim + values * kValueDim;
  Tensors t;
  if (inputs == Inputs::kWhole) {
    SetRows(t, "g.ssm_in.weight", Qkvz(ratio), dtype);
  } else {
    SetRows(t, "g.attn_qkv.weight", Qkv(ratio, tiled), dtype);
    SetRows(t, "g.attn_gate.weight", OfValueHeads(kZ, ratio, tiled, kValueDim), dtype);
  }
  if (inputs == Inputs::kSplit) {
    SetRows(t, "g.ssm_beta.weight", OfValueHeads(kB, ratio, tiled, 1), dtype);
    SetRows(t, "g.ssm_alpha.weight", OfValueHeads(kA, ratio, tiled, 1), dtype);
  } else {
    SetRows(t, "g.ssm_ba.weight", Ba(ratio), dtype);
  }
  t.Set("g.ssm_conv1d.weight", channels, kWidth, Convolution(ratio, tiled));
  t.Set("g.ssm_a", 1, values, Decays(ratio, tiled));
  t.Set("g.ssm_dt.bias", 1, values, OfValueHeads(kDt, ratio, tiled, 1));
  t.Set("g.ssm_norm.weight", 1, kValueDim, {0.5f, 2});
  return t.Set("g.ssm_out.weight", kHidden, values * kValueDim,
               InColumns(OfValueHeads(kOut, ratio, tiled, kValueDim), kHidden));
}

Result<DeltaLayer> Load(const ModelFiles& files, size_t ratio, bool tiled, bool mapped = false) {
  const auto threads = std::move(ThreadPool::Create(1)).value();
  const LoadSettings load{.mapped = mapped, .threads = threads.get(), .progress = {}};
  WeightLoader weights(files, load);
  const ModelSettings settings = Settings(ratio);
  auto layer = LoadDeltaLayer(
      settings, tiled,
      [](const std::string& checkpoint, const std::string& gguf) {
        return WeightName{"l." + checkpoint, "g." + gguf};
      },
      weights);
  if (layer.ok()) {
    const auto all = weights.CheckAllRead();
    EXPECT_TRUE(all.ok()) << all.error().message();
  }
  return layer;
}

// The first element of each row, all of whose elements are the same.
Marks FirstColumn(const WeightMatrix& matrix) {
  Marks marks;
  std::vector<float> row(matrix.cols());
  for (size_t r = 0; r < matrix.rows(); ++r) {
    matrix.CopyRow(r, row);
    EXPECT_EQ(row, std::vector<float>(row.size(), row[0])) << "row " << r;
    marks.push_back(row[0]);
  }
  return marks;
}
Marks FirstRow(const WeightMatrix& matrix) {
  Marks marks(matrix.cols());
  matrix.CopyRow(0, marks);
  return marks;
}

// What is left of marks in blocks of this type.
Marks Stored(const Marks& marks, DType dtype) {
  const std::string bytes = testing::EncodeWeights(dtype, InRows(marks, kHidden));
  Marks values(marks.size() * kHidden), stored;
  DequantizeRow(dtype, std::as_bytes(std::span(bytes)), values);
  for (size_t r = 0; r < marks.size(); ++r) stored.push_back(values[r * kHidden]);
  return stored;
}

void ExpectLayer(const ModelFiles& files, size_t ratio, bool tiled, DType dtype = DType::kF32) {
  for (const bool mapped : {false, true}) {
    SCOPED_TRACE("ratio " + std::to_string(ratio) + (tiled ? " tiled" : " grouped") + (mapped ? " mapped" : " packed"));
    const auto layer = Load(files, ratio, tiled, mapped);
    ASSERT_TRUE(layer.ok()) << layer.error().message();
    EXPECT_EQ(layer->key_heads, kKeyHeads);
    EXPECT_EQ(layer->value_heads, kKeyHeads * ratio);
    EXPECT_EQ(layer->conv_width, kWidth);
    EXPECT_EQ(layer->tiled, tiled);
    EXPECT_EQ(FirstColumn(layer->qkv.weight), Stored(Qkv(ratio, tiled), dtype));
    EXPECT_EQ(FirstColumn(layer->z.weight), Stored(OfValueHeads(kZ, ratio, tiled, kValueDim), dtype));
    EXPECT_EQ(FirstColumn(layer->b.weight), Stored(OfValueHeads(kB, ratio, tiled, 1), dtype));
    EXPECT_EQ(FirstColumn(layer->a.weight), Stored(OfValueHeads(kA, ratio, tiled, 1), dtype));
    EXPECT_EQ(layer->decay, Decays(ratio, tiled));
    EXPECT_EQ(layer->dt_bias, OfValueHeads(kDt, ratio, tiled, 1));
    EXPECT_EQ(layer->norm.weight, (Marks{0.5f, 2}));
    EXPECT_EQ(FirstRow(layer->out.weight), OfValueHeads(kOut, ratio, tiled, kValueDim));
    const Marks rows = Convolution(ratio, tiled);
    ASSERT_EQ(layer->conv.size(), rows.size());
    for (size_t c = 0; c < layer->channels(); ++c) {
      for (size_t i = 0; i < kWidth; ++i)
        EXPECT_EQ(layer->conv[i * layer->channels() + c], rows[c * kWidth + i]) << "channel " << c;
    }
  }
}

TEST(DeltaLoader, EveryLayout_GivesTheLayersOrder) {
  for (const size_t ratio : {1, 2, 3}) {
    ExpectLayer(Checkpoint(ratio, true).OpenCheckpoint(), ratio, false);
    ExpectLayer(Checkpoint(ratio, false).OpenCheckpoint(), ratio, true);
    ExpectLayer(Checkpoint(ratio, true).OpenCheckpoint(), ratio, true);
    ExpectLayer(Gguf(ratio, false, Inputs::kHalfSplit).OpenGguf(), ratio, false);
    ExpectLayer(Gguf(ratio, false, Inputs::kWhole).OpenGguf(), ratio, false);
    ExpectLayer(Gguf(ratio, true, Inputs::kSplit).OpenGguf(), ratio, true);
  }
}

TEST(DeltaLoader, QuantisedRows_AreGatheredToo) {
  for (const Inputs inputs : {Inputs::kHalfSplit, Inputs::kWhole})
    ExpectLayer(Gguf(3, false, inputs, DType::kQ8_0).OpenGguf(), 3, false, DType::kQ8_0);
  ExpectLayer(Gguf(3, true, Inputs::kSplit, DType::kQ8_0).OpenGguf(), 3, true, DType::kQ8_0);
}

void ExpectError(const ModelFiles& files, size_t ratio, bool tiled, const std::string& message) {
  const auto layer = Load(files, ratio, tiled);
  ASSERT_FALSE(layer.ok()) << "expected: " << message;
  EXPECT_EQ(layer.error().code(), ErrorCode::kCorruptFile);
  EXPECT_EQ(layer.error().message(), message);
}

TEST(DeltaLoader, WrongShapes_AreNamedWithBoth) {
  // 12 rows of q and k and 8 of v.
  ExpectError(Checkpoint(2, false).Set("l.linear_attn.conv1d.weight", 20, 3, Marks(60)).OpenCheckpoint(), 2, true,
              "tensor \"l.linear_attn.conv1d.weight\": expected shape [20, 4] from the metadata, found [20, 3]");
  ExpectError(
      Checkpoint(2, true).OpenCheckpoint(), 3, false,
      "tensor \"l.linear_attn.in_proj_qkvz.weight\": expected shape [36, 32] from the metadata, found [28, 32]");
  ExpectError(Checkpoint(2, false).OpenCheckpoint(), 3, true,
              "tensor \"l.linear_attn.in_proj_qkv.weight\": expected shape [24, 32] from the metadata, found [20, 32]");
  ExpectError(Gguf(2, true, Inputs::kSplit).Set("g.ssm_a", 1, 3, {-1, -1, -1}).OpenGguf(), 2, true,
              "tensor \"g.ssm_a\": expected shape [4] from the metadata, found [3]");
}

TEST(DeltaLoader, DecayThatIsNoNumberBelow0_IsRefused) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  for (const auto& [value, found] :
       {std::pair{kInfinity, "inf"}, {-kInfinity, "-inf"}, {kNan, "nan"}, {89, "89"}, {-200, "-200"}}) {
    ExpectError(Checkpoint(2, false).Set("l.linear_attn.A_log", 1, 4, {0, 1, value, 0}).OpenCheckpoint(), 2, true,
                std::string("tensor \"l.linear_attn.A_log\": expected numbers from -87 to 88, found ") + found);
  }
  for (const auto& [value, found] : {std::pair{-kInfinity, "-inf"}, {kNan, "nan"}, {0, "0"}, {2, "2"}}) {
    ExpectError(Gguf(2, true, Inputs::kSplit).Set("g.ssm_a", 1, 4, {-1, -1, value, -1}).OpenGguf(), 2, true,
                std::string("tensor \"g.ssm_a\": expected finite numbers below 0, found ") + found);
  }
  ExpectError(Checkpoint(2, false).Set("l.linear_attn.dt_bias", 1, 4, {0, kInfinity, 0, 0}).OpenCheckpoint(), 2, true,
              "tensor \"l.linear_attn.dt_bias\": expected finite numbers, found inf");
}

}  // namespace
}  // namespace tidemill::delta_loader_test
