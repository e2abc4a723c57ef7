#include "kernels/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/append_kv.h"
#include "kernels/key_tiles.h"
#include "kernels/testing/bit_formulas.h"
#include "kernels/testing/compare.h"
#include "kernels/testing/seeded_inputs.h"
#include "tensor/dequantize.h"

namespace tidemill::attention_test {
namespace {

using testing::Arithmetic;
using testing::LevelsHere;
using testing::RandomFloats;
using testing::SameBits;
using testing::TestContext;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// One task with its context: logical keys and values, and the same rows stored in spans. Everything that nobody may look at is
// NaN: positions before the context, unused rows behind each span, whatever stands between two heads.
struct Case {
  size_t heads = 9, kv_heads = 3, head_dim = 64;
  DType kv_dtype = DType::kF16;
  size_t len = 1, first_position = 0, kv_len = 1, context_begin = 0;
  std::vector<size_t> cuts = {};  // where a new span begins
  size_t window = 0, sink = 0;
  float soft_cap = 0, q_amax = 1;
  size_t bias_distances = 0;
  Visibility visibility = Visibility::kCausal;
  uint64_t seed = 1;

  std::string Name() const {
    std::string name = "heads " + std::to_string(heads) + "/" + std::to_string(kv_heads);
    name.append(" dim ").append(std::to_string(head_dim)).append(" ").append(InfoOf(kv_dtype).name);
    name.append(" rows ").append(std::to_string(len)).append(" at ").append(std::to_string(first_position));
    name.append(" context ").append(std::to_string(context_begin)).append("..").append(std::to_string(kv_len));
    name.append(" cuts ").append(std::to_string(cuts.size())).append(" window ").append(std::to_string(window));
    name.append(" sink ").append(std::to_string(sink)).append(" cap ").append(std::to_string(soft_cap));
    return name.append(" bias ").append(std::to_string(bias_distances));
  }
};

class Inputs {
 public:
  explicit Inputs(const Case& c)
      : case_(c),
        q_(RandomFloats(c.seed, c.len * c.heads * c.head_dim, c.q_amax)),
        k_(RandomFloats(c.seed + 1, c.kv_heads * c.kv_len * c.head_dim, 2)),
        v_(RandomFloats(c.seed + 2, c.kv_heads * c.kv_len * c.head_dim, 3)),
        bias_(RandomFloats(c.seed + 3, c.heads * c.bias_distances, 1)) {
    for (auto [values, rows] : {std::pair{&k_, &k_rows_}, std::pair{&v_, &v_rows_}}) {
      rows->resize(RowBytes(c.kv_dtype, values->size()));
      testing::StoreRow(c.kv_dtype, *values, rows->data());
      DequantizeRow(c.kv_dtype, *rows, *values);  // what the stored type can hold
    }
    shape_ = {.heads = c.heads,
              .kv_heads = c.kv_heads,
              .head_dim = c.head_dim,
              .scale = 1 / std::sqrt(static_cast<float>(c.head_dim)),
              .kv_dtype = c.kv_dtype,
              .soft_cap = c.soft_cap,
              .window = c.window,
              .sink = c.sink,
              .bias = bias_};
    std::vector<size_t> edges = {c.context_begin};
    edges.insert(edges.end(), c.cuts.begin(), c.cuts.end());
    edges.push_back(c.kv_len);
    for (size_t i = 0; i + 1 < edges.size(); ++i) AddSpan(edges[i], edges[i + 1]);
    for (size_t i = 0; i < spans_.size(); ++i) {
      spans_[i].k = stored_[2 * i].data();
      spans_[i].v = stored_[2 * i + 1].data();
    }
  }
  Inputs(const Inputs&) = delete;
  Inputs& operator=(const Inputs&) = delete;

  const AttentionShape& shape() const { return shape_; }

  // Query rows [row, row + rows) into `out`, which has the whole case's rows.
  AttentionTask Task(std::vector<float>& out, size_t row, size_t rows) const {
    const size_t cols = case_.heads * case_.head_dim;
    return {.context = spans_,
            .first_position = case_.first_position + row,
            .visibility = case_.visibility,
            .q = ConstMatrix<float>(q_.data() + row * cols, rows, cols),
            .out = Matrix<float>(out.data() + row * cols, rows, cols)};
  }

  std::vector<float> Blank() const { return std::vector<float>(q_.size(), kNaN); }

  // All rows at once, or `rows` at a time.
  std::vector<float> Attend(TestContext& context, size_t rows = SIZE_MAX) const {
    std::vector<float> out = Blank();
    for (size_t row = 0; row < case_.len; row += std::min(rows, case_.len)) {
      const AttentionTask task = Task(out, row, std::min(rows, case_.len - row));
      Attention(*context, shape_, {&task, 1});
    }
    return out;
  }

  std::vector<float> Formula(Arithmetic math) const {
    std::vector<float> out = Blank();
    const AttentionTask task = Task(out, 0, case_.len);
    testing::Attention(math, shape_, {k_, v_, case_.context_begin, case_.kv_len}, task, task.out);
    return out;
  }

  std::vector<float> Reference() const {
    std::vector<float> out = Blank();
    const AttentionTask task = Task(out, 0, case_.len);
    reference::Attention(shape_, {&task, 1});
    return out;
  }

  double Tolerance() const {
    double q_max = 0, k_max = 0, v_max = 0;
    for (const float x : q_) q_max = std::max(q_max, std::fabs(static_cast<double>(x)));
    for (const float x : k_) k_max = std::max(k_max, std::fabs(static_cast<double>(x)));
    for (const float x : v_) v_max = std::max(v_max, std::fabs(static_cast<double>(x)));
    const double dim = static_cast<double>(case_.head_dim);
    const double magnitude = q_max * k_max * dim * static_cast<double>(shape_.scale) + (bias_.empty() ? 0 : 1);
    return AttentionTolerance(case_.head_dim, case_.kv_len, magnitude, static_cast<double>(case_.soft_cap)) * v_max;
  }

  // Keys of each span's tiles among its first `most` rows. Returns how many tiles.
  size_t TransposeKeyTiles(size_t most) {
    size_t tiles = 0;
    for (size_t i = 0; i < spans_.size(); ++i) {
      KvSpan& span = spans_[i];
      span.transposed = std::min(most, span.rows) / kKeyTileRows * kKeyTileRows;
      for (size_t h = 0; h < case_.kv_heads; ++h) {
        for (size_t row = 0; row < span.transposed; row += kKeyTileRows, ++tiles) {
          const size_t element = h * span.head_stride + row * case_.head_dim;
          TransposeKeys(case_.kv_dtype, case_.head_dim, stored_[2 * i].data() + RowBytes(case_.kv_dtype, element));
        }
      }
    }
    return tiles;
  }

 private:
  void AddSpan(size_t begin, size_t end) {
    const size_t dim = case_.head_dim, rows = end - begin, spare = 3 + begin % 5;
    const size_t head_stride = (rows + spare) * dim + 7 * InfoOf(case_.kv_dtype).block_elements;
    const auto bytes_of = [&](size_t elements) { return RowBytes(case_.kv_dtype, elements); };
    for (const std::vector<std::byte>* from : {&k_rows_, &v_rows_}) {
      std::vector<std::byte> bytes(bytes_of(case_.kv_heads * head_stride), std::byte{0xFF});  // NaN in every type
      for (size_t h = 0; h < case_.kv_heads; ++h) {
        std::memcpy(bytes.data() + bytes_of(h * head_stride), from->data() + bytes_of((h * case_.kv_len + begin) * dim),
                    bytes_of(rows * dim));
      }
      stored_.push_back(std::move(bytes));
    }
    spans_.push_back({.k = nullptr, .v = nullptr, .head_stride = head_stride, .first = begin, .rows = rows});
  }

  Case case_;
  std::vector<float> q_, k_, v_, bias_;
  std::vector<std::byte> k_rows_, v_rows_;  // as stored: per KV head [kv_len, head_dim]
  AttentionShape shape_;
  std::vector<std::vector<std::byte>> stored_;
  std::vector<KvSpan> spans_;
};

// Each case with its own type and with blocks.
std::vector<Case> AlsoInBlocks(std::vector<Case> cases) {
  for (size_t i = 0, count = cases.size(); i < count; ++i) {
    cases.push_back(cases[i]);
    cases.back().kv_dtype = DType::kQ8_0;
  }
  return cases;
}

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const size_t kv_len : {1, 2, 16, 17, 127, 128, 129, 300}) {
      cases.push_back({.kv_dtype = dtype, .len = 1, .first_position = kv_len - 1, .kv_len = kv_len});
    }
    cases.push_back({.kv_dtype = dtype, .len = 40, .first_position = 0, .kv_len = 40});
    cases.push_back(
        {.kv_dtype = dtype, .len = 7, .first_position = 125, .kv_len = 132, .cuts = {1, 60, 127, 128, 130}});
  }
  for (const size_t head_dim : {1, 8, 15, 16, 40, 64, 80, 128}) {
    for (const size_t group : {1, 3, 4, 7}) {
      cases.push_back(
          {.heads = 2 * group, .kv_heads = 2, .head_dim = head_dim, .len = 3, .first_position = 130, .kv_len = 133});
      cases.push_back(
          {.heads = 2 * group, .kv_heads = 2, .head_dim = head_dim, .len = 1, .first_position = 140, .kv_len = 141});
    }
  }
  cases.push_back(
      {.heads = 128, .kv_heads = 1, .head_dim = 16, .len = 2, .first_position = 20, .kv_len = 22});  // kMaxGroup
  cases.push_back(
      {.heads = 1, .kv_heads = 1, .head_dim = 512, .len = 5, .first_position = 5, .kv_len = 10});  // kMaxHeadDim
  cases.push_back({.heads = 4, .kv_heads = 4, .len = 100, .first_position = 200, .kv_len = 300});
  // Windows and sinks: inside a chunk, across chunks, wider than the context.
  for (const size_t window : {1, 5, 100, 128, 129, 1000}) {
    for (const size_t sink : {0, 4, 130}) {
      cases.push_back({.len = 9, .first_position = 290, .kv_len = 299, .window = window, .sink = sink});
      cases.push_back({.len = 1, .first_position = 370, .kv_len = 371, .window = window, .sink = sink});
    }
  }
  cases.push_back({.len = 70, .first_position = 0, .kv_len = 70, .window = 20, .sink = 3});
  // A context that does not begin at 0, in one chunk and in several.
  cases.push_back({.len = 4, .first_position = 60, .kv_len = 64, .context_begin = 50});
  cases.push_back({.len = 1, .first_position = 299, .kv_len = 300, .context_begin = 137});
  cases.push_back({.len = 30,
                   .first_position = 270,
                   .kv_len = 300,
                   .context_begin = 131,
                   .cuts = {200},
                   .window = 150,
                   .sink = 140});
  // A row before its whole context sees nothing.
  cases.push_back({.len = 4, .first_position = 8, .kv_len = 40, .context_begin = 10});
  // Caps, biases, and both; large scores.
  cases.push_back({.len = 5, .first_position = 150, .kv_len = 155, .soft_cap = 30});
  cases.push_back({.len = 1, .first_position = 154, .kv_len = 155, .soft_cap = 2, .bias_distances = 8});
  cases.push_back({.len = 20, .first_position = 120, .kv_len = 140, .bias_distances = 40});
  cases.push_back({.len = 20, .first_position = 120, .kv_len = 140, .window = 30, .sink = 2, .bias_distances = 1000});
  cases.push_back({.len = 6, .first_position = 300, .kv_len = 306, .q_amax = 60});
  // Every row sees everything: encoders; queries of another sequence, whose positions lie beyond the context.
  cases.push_back({.len = 33, .first_position = 0, .kv_len = 150, .visibility = Visibility::kAll});
  cases.push_back({.len = 2, .first_position = 500, .kv_len = 150, .visibility = Visibility::kAll});
  cases.push_back({.len = 33, .first_position = 0, .kv_len = 150, .bias_distances = 9, .visibility = Visibility::kAll});
  // Rows of the context after the query: seen by later rows only.
  cases.push_back({.len = 3, .first_position = 100, .kv_len = 290});
  // Blocks: everything above that has whole ones, but one of the windows for all, and one, three and eight of them in a row.
  for (size_t i = 0, count = cases.size(); i < count; ++i) {
    if (cases[i].kv_dtype != DType::kF16 || cases[i].head_dim % 32 != 0) continue;
    if (cases[i].len == 9 && cases[i].window != 129) continue;
    cases.push_back(cases[i]);
    cases.back().kv_dtype = DType::kQ8_0;
  }
  for (const size_t head_dim : {32, 96, 256}) {
    for (const size_t len : {1, 3}) {
      cases.push_back({.heads = 10,
                       .kv_heads = 2,
                       .head_dim = head_dim,
                       .kv_dtype = DType::kQ8_0,
                       .len = len,
                       .first_position = 140 - len,
                       .kv_len = 140,
                       .cuts = {3, 20, 133}});
    }
  }
  uint64_t seed = 1000;
  for (Case& c : cases) c.seed = seed += 10;
  return cases;
}

TEST(Attention, EveryLevel_StaysWithinToleranceOfReference) {
  for (const Case& c : AllCases()) {
    const Inputs inputs(c);
    const std::vector<float> expected = inputs.Reference();
    const double tolerance = inputs.Tolerance();
    for (const Isa isa : LevelsHere()) {
      TestContext context(isa);
      EXPECT_TRUE(testing::Within(expected, inputs.Attend(context), [&](size_t) { return tolerance; }))
          << IsaName(isa) << " " << c.Name();
    }
  }
}

TEST(Attention, EveryLevel_GivesTheBitsOfTheFormula) {
  for (const Case& c : AllCases()) {
    const Inputs inputs(c);
    const std::vector<float> expected[2] = {inputs.Formula({false}), inputs.Formula({true})};
    for (const Isa isa : LevelsHere()) {
      TestContext context(isa);
      EXPECT_TRUE(SameBits(expected[HasFma(isa)], inputs.Attend(context))) << IsaName(isa) << " " << c.Name();
    }
  }
}

TEST(Attention, AnyTuning_GivesTheSameBits) {
  for (const Case& c : AllCases()) {
    const Inputs inputs(c);
    for (const Isa isa : LevelsHere()) {
      TestContext context(isa);
      const std::vector<float> expected = inputs.Attend(context);
      for (const Tuning tuning : testing::TuningsOf(isa)) {
        TestContext other(isa, 1, tuning);
        EXPECT_TRUE(SameBits(expected, inputs.Attend(other)))
            << IsaName(isa) << " " << c.Name() << " tuned as " << testing::TuningName(tuning);
      }
    }
  }
}

TEST(Attention, TransposedKeys_GiveTheBitsOfRows) {
  size_t turned = 0;
  for (const Case& c : AllCases()) {
    if (!HasKeyTiles(c.kv_dtype)) continue;
    const Inputs rows(c);
    const std::vector<float> reference = rows.Reference();
    // All whole tiles of each span, and a part of them, so that a chunk has both.
    for (const size_t most : {c.kv_len, c.kv_len / 2}) {
      Inputs transposed(c);
      const size_t tiles = transposed.TransposeKeyTiles(most);
      if (tiles == 0) continue;
      turned += tiles;
      EXPECT_TRUE(SameBits(reference, transposed.Reference())) << c.Name();
      for (const Isa isa : LevelsHere()) {
        TestContext context(isa);
        const std::vector<float> expected = rows.Attend(context);
        EXPECT_TRUE(SameBits(expected, transposed.Attend(context))) << IsaName(isa) << " " << c.Name();
        for (const Tuning tuning : testing::TuningsOf(isa)) {
          TestContext two(isa, 2, tuning);
          EXPECT_TRUE(SameBits(expected, transposed.Attend(two, 1)))
              << IsaName(isa) << " one by one " << c.Name() << " tuned as " << testing::TuningName(tuning);
        }
      }
    }
  }
  EXPECT_GT(turned, 1000U);
}

TEST(Attention, PromptInPiecesOfAnySize_GivesTheBitsOfTheWhole) {
  std::vector<Case> cases =
      AlsoInBlocks({{.len = 150, .first_position = 0, .kv_len = 150},
                    {.len = 50, .first_position = 250, .kv_len = 300, .window = 140, .sink = 3, .soft_cap = 20}});
  cases.push_back({.heads = 4, .kv_heads = 1, .head_dim = 40, .len = 60, .first_position = 110, .kv_len = 170});
  for (const Case& c : cases) {
    const Inputs inputs(c);
    for (const Isa isa : LevelsHere()) {
      TestContext context(isa), two(isa, 2);
      const std::vector<float> whole = inputs.Attend(context);
      for (const size_t rows : {1, 2, 5, 16, 17, 33}) {
        EXPECT_TRUE(SameBits(whole, inputs.Attend(context, rows)))
            << IsaName(isa) << " rows " << rows << " " << c.Name();
      }
      // Few rows at a time and several threads: chunks of positions are units of their own.
      for (const size_t rows : {1, 3, 12})
        EXPECT_TRUE(SameBits(whole, inputs.Attend(two, rows))) << IsaName(isa) << " rows " << rows << " " << c.Name();
    }
  }
}

TEST(Attention, AnyNumberOfThreads_GivesTheSameBits) {
  for (const Case& c : AlsoInBlocks({{.len = 1, .first_position = 1000, .kv_len = 1001},
                                     {.len = 90, .first_position = 40, .kv_len = 130},
                                     {.len = 1, .first_position = 700, .kv_len = 701, .window = 200, .sink = 4},
                                     {.len = 7, .first_position = 1018, .kv_len = 1025},
                                     {.len = 5, .first_position = 700, .kv_len = 705, .window = 200, .sink = 4}})) {
    const Inputs inputs(c);
    for (const Isa isa : LevelsHere()) {
      TestContext one(isa);
      const std::vector<float> expected = inputs.Attend(one);
      for (const size_t threads : {2, 3}) {
        TestContext context(isa, threads);
        for (int repeat = 0; repeat < 5; ++repeat) {
          EXPECT_TRUE(SameBits(expected, inputs.Attend(context)))
              << IsaName(isa) << " threads " << threads << " " << c.Name();
        }
      }
    }
  }
}

TEST(Attention, SpansCutAnywhere_GiveTheBitsOfOneSpan) {
  testing::Random random(5);
  for (Case c : AlsoInBlocks(
           {{.len = 1, .first_position = 279, .kv_len = 280}, {.len = 20, .first_position = 260, .kv_len = 280}})) {
    const Inputs whole(c);
    for (const Isa isa : LevelsHere()) {
      TestContext context(isa);
      const std::vector<float> expected = whole.Attend(context);
      for (int repeat = 0; repeat < 8; ++repeat) {
        c.cuts.clear();
        for (size_t at = 1 + random.Below(40); at < 280; at += 1 + random.Below(90)) c.cuts.push_back(at);
        EXPECT_TRUE(SameBits(expected, Inputs(c).Attend(context))) << IsaName(isa) << " " << c.Name();
      }
    }
  }
}

TEST(Attention, TasksTogether_GiveTheBitsOfEachAlone) {
  const std::vector<Case> cases = {{.len = 1, .first_position = 10, .kv_len = 11, .seed = 1},
                                   {.len = 1, .first_position = 300, .kv_len = 301, .seed = 2},
                                   {.len = 1, .first_position = 129, .kv_len = 130, .cuts = {100}, .seed = 3},
                                   {.len = 0, .first_position = 129, .kv_len = 130, .seed = 4},
                                   {.len = 50, .first_position = 100, .kv_len = 150, .seed = 5}};
  // Single rows only, and all.
  for (const auto& [kv_dtype, count] : {std::pair{DType::kF16, size_t{3}}, std::pair{DType::kF16, cases.size()},
                                        std::pair{DType::kQ8_0, size_t{3}}, std::pair{DType::kQ8_0, cases.size()}}) {
    for (const Isa isa : LevelsHere()) {
      for (const size_t threads : {1, 3}) {
        TestContext context(isa, threads), one(isa);
        std::vector<std::unique_ptr<Inputs>> inputs;
        std::vector<std::vector<float>> out;
        std::vector<AttentionTask> tasks;
        for (size_t i = 0; i < count; ++i) {
          Case c = cases[i];
          c.kv_dtype = kv_dtype;
          inputs.push_back(std::make_unique<Inputs>(c));
          out.push_back(inputs[i]->Blank());
        }
        for (size_t i = 0; i < count; ++i) tasks.push_back(inputs[i]->Task(out[i], 0, cases[i].len));
        Attention(*context, inputs[0]->shape(), tasks);
        for (size_t i = 0; i < count; ++i) {
          if (cases[i].len == 0) continue;
          EXPECT_TRUE(SameBits(inputs[i]->Attend(one), out[i]))
              << IsaName(isa) << " threads " << threads << " task " << i;
        }
      }
    }
  }
}

// Unused rows are NaN in every case above; here, rows inside the context that the mask hides are too.
TEST(Attention, NaNInHiddenRows_ChangesNothing) {
  constexpr size_t kDim = 64, kLen = 300;
  for (const DType kv_dtype : {DType::kF32, DType::kQ8_0}) {
    const size_t row_bytes = RowBytes(kv_dtype, kDim);
    std::vector<float> q = RandomFloats(1, 3 * kDim);
    std::vector<std::byte> k(kLen * row_bytes), v(kLen * row_bytes);
    testing::StoreRow(kv_dtype, RandomFloats(2, kLen * kDim), k.data());
    testing::StoreRow(kv_dtype, RandomFloats(3, kLen * kDim), v.data());
    const KvSpan span{.k = k.data(), .v = v.data(), .head_stride = kLen * kDim, .first = 0, .rows = kLen};
    const AttentionShape shape{.heads = 1,
                               .kv_heads = 1,
                               .head_dim = kDim,
                               .scale = 0.125F,
                               .kv_dtype = kv_dtype,
                               .soft_cap = 0,
                               .window = 90,
                               .sink = 4,
                               .bias = {}};
    const auto attend = [&](Isa isa, size_t row, size_t rows) {
      TestContext context(isa);
      std::vector<float> out(3 * kDim);
      const AttentionTask task{.context = {&span, 1},
                               .first_position = 279 + row,
                               .visibility = Visibility::kCausal,
                               .q = ConstMatrix<float>(q.data() + row * kDim, rows, kDim),
                               .out = Matrix<float>(out.data() + row * kDim, rows, kDim)};
      Attention(*context, shape, {&task, 1});
      return out;
    };
    std::vector<std::vector<float>> expected;
    for (const Isa isa : LevelsHere()) expected.push_back(attend(isa, 0, 3));
    for (const Isa isa : LevelsHere()) expected.push_back(attend(isa, 1, 1));
    for (size_t j = 4; j < kLen; ++j) {
      if (j >= 190 && j <= 281) continue;
      for (std::vector<std::byte>* rows : {&k, &v}) std::memset(rows->data() + j * row_bytes, 0xFF, row_bytes);
    }
    for (size_t i = 0; i < LevelsHere().size(); ++i) {
      const Isa isa = LevelsHere()[i];
      EXPECT_FALSE(std::isnan(expected[i][0]));
      EXPECT_TRUE(SameBits(expected[i], attend(isa, 0, 3))) << IsaName(isa) << " " << InfoOf(kv_dtype).name;
      EXPECT_TRUE(SameBits(expected[LevelsHere().size() + i], attend(isa, 1, 1)))
          << IsaName(isa) << " " << InfoOf(kv_dtype).name;
    }
  }
}

// What blocks cost in quality, at most. Where each score moves by up to e, each weight changes by a factor of exp(-2 e) to exp(2 e), so
// that the weights, whose sum is 1, move by exp(2 e) - 1 in all.
TEST(Attention, Blocks_StayWithinTheirRoundingOfF32) {
  for (const size_t len : {1, 20}) {
    const Case exact{.kv_dtype = DType::kF32, .len = len, .first_position = 400 - len, .kv_len = 400, .seed = 77};
    Case blocks = exact;
    blocks.kv_dtype = DType::kQ8_0;
    const Inputs a(exact), b(blocks);  // of one seed: the same keys and values before they are stored
    const std::vector<float> expected = a.Reference();
    const double k_max = 2, v_max = 3, q_max = 1, dim = 64;
    const double score_error = q_max * dim * Q8StoreError(k_max) * static_cast<double>(a.shape().scale);
    const double bound = std::expm1(2 * score_error) * v_max + Q8StoreError(v_max), tolerance = b.Tolerance();
    for (const Isa isa : LevelsHere()) {
      TestContext context(isa);
      const std::vector<float> found = b.Attend(context);
      EXPECT_TRUE(testing::Within(expected, found, [&](size_t) { return bound + tolerance; })) << IsaName(isa);
      double worst = 0;
      for (size_t i = 0; i < found.size(); ++i) {
        worst = std::max(worst, std::fabs(static_cast<double>(found[i]) - static_cast<double>(expected[i])));
      }
      EXPECT_GT(worst, bound / 10000) << "is this stored in blocks?";
    }
  }
}

TEST(Attention, ScratchBytes_AreEnoughForTheLargestShapes) {
  for (const AttentionShape& shape : {AttentionShape{.heads = 128, .kv_heads = 1, .head_dim = 512, .bias = {}},
                                      AttentionShape{.heads = 9, .kv_heads = 3, .head_dim = 64, .bias = {}}}) {
    const size_t bytes = AttentionScratchBytes(shape);
    EXPECT_GE(bytes, (kAttentionChunk * 2 * shape.head_dim) * sizeof(float));
    EXPECT_LE(bytes, size_t{2} << 20);
  }
  constexpr size_t kGuard = 64;
  for (const size_t len : {1, 3}) {
    const Inputs inputs(
        {.heads = kMaxGroup, .kv_heads = 1, .head_dim = kMaxHeadDim, .len = len, .first_position = 140, .kv_len = 143});
    for (const Isa isa : LevelsHere()) {
      for (const size_t threads : {1, 2}) {
        const auto pool = ThreadPool::Create(threads).value();
        auto context =
            ExecutionContext::Create(isa, pool.get(), AttentionScratchBytes(inputs.shape()) + kGuard).value();
        std::vector<std::span<std::byte>> guards;
        for (size_t i = 0; i < threads; ++i) guards.push_back(context.scratch(i).last(kGuard));
        // Behind what two chunks leave to be joined: of each row and head its sums and 16 floats more.
        guards.push_back(context.shared_scratch().subspan(2 * len * kMaxGroup * (kMaxHeadDim + 16) * sizeof(float)));
        for (const std::span<std::byte> guard : guards) std::memset(guard.data(), 0x5A, guard.size());
        std::vector<float> out = inputs.Blank();
        const AttentionTask task = inputs.Task(out, 0, len);
        Attention(context, inputs.shape(), {&task, 1});
        EXPECT_TRUE(std::none_of(out.begin(), out.end(), [](float x) { return std::isnan(x); })) << IsaName(isa);
        for (const std::span<std::byte> guard : guards) {
          EXPECT_TRUE(std::all_of(guard.begin(), guard.end(), [](std::byte b) { return b == std::byte{0x5A}; }))
              << IsaName(isa) << ", " << threads << " threads, " << len << " rows";
        }
      }
    }
  }
}

TEST(Attention, Cost_CountsEachKeyAndValueOnce) {
  const AttentionShape shape{.heads = 9, .kv_heads = 3, .head_dim = 64, .kv_dtype = DType::kF16, .bias = {}};
  const Cost cost = AttentionCost(shape, 1, 512, 512);
  EXPECT_EQ(cost.bytes, 2 * 512 * 3 * 64 * 2 + 2 * 9 * 64 * 4);
  EXPECT_EQ(cost.flops, 512 * 9 * (4 * 64 + 20));
  AttentionShape blocks = shape;
  blocks.kv_dtype = DType::kQ8_0;
  EXPECT_EQ(AttentionCost(blocks, 1, 512, 512).bytes, 2 * 512 * 3 * (64 / 32 * 34) + 2 * 9 * 64 * 4);
}

TEST(Attention, EveryLevel_GivesTheKeptHash) {
  const Inputs prompt({.len = 60, .first_position = 150, .kv_len = 210, .soft_cap = 25, .seed = 7});
  const Inputs decode(
      {.len = 1, .first_position = 399, .kv_len = 400, .window = 300, .sink = 4, .bias_distances = 50, .seed = 8});
  for (const Isa isa : LevelsHere()) {
    TestContext context(isa);
    EXPECT_TRUE(testing::SameHash(HasFma(isa) ? 0xF96B1F4A1216AE19 : 0xD5E729D80833D8BB,
                                  testing::HashOf<float>(prompt.Attend(context))))
        << IsaName(isa);
    EXPECT_TRUE(testing::SameHash(HasFma(isa) ? 0xE4A456A2EF396CBC : 0x8ED5AEC6DF60F1A7,
                                  testing::HashOf<float>(decode.Attend(context))))
        << IsaName(isa);
  }
}

}  // namespace
}  // namespace tidemill::attention_test
