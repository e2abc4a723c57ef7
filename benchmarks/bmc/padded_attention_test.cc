#include "benchmarks/bmc/padded_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "base/isa.h"
#include "kernels/attention.h"
#include "kernels/testing/seeded_inputs.h"
#include "tensor/half.h"

namespace tidemill::bmc::padded_attention_test {
namespace {

constexpr float kPoison = 1e4F;

// A cache with `rows[b]` valid rows of sequence b in front of the step's `len` rows; all others hold poison. parents[i] < i is the row of
// the draft on which row i hangs; row 0 hangs on the context. Empty: one row.
struct Case {
  size_t heads = 4, kv_heads = 4, head_dim = 16;
  std::vector<size_t> rows = {5};
  size_t columns = 8, stride = 8;
  std::vector<size_t> parents = {};
  DType dtype = DType::kF32;
  bool own_masks = false;

  size_t batch() const { return rows.size(); }
  size_t len() const { return parents.empty() ? 1 : parents.size(); }
  std::string Name() const {
    return "heads " + std::to_string(heads) + "/" + std::to_string(kv_heads) + ", head_dim " +
           std::to_string(head_dim) + ", batch " + std::to_string(batch()) + ", rows " + std::to_string(rows[0]) +
           ".., columns " + std::to_string(columns) + " of " + std::to_string(stride) + ", len " +
           std::to_string(len()) + ", " + std::string(InfoOf(dtype).name) + (own_masks ? ", masks of their own" : "");
  }
};

// Rows of the step that row i sees, itself last.
std::vector<size_t> PathOf(const Case& c, size_t i) {
  std::vector<size_t> path = {i};
  while (path.back() != 0) path.push_back(c.parents[path.back()]);
  std::reverse(path.begin(), path.end());
  return path;
}

struct Stored {
  std::vector<float> floats;
  std::vector<uint16_t> halves;
  const std::byte* bytes() const {
    return halves.empty() ? reinterpret_cast<const std::byte*>(floats.data())
                          : reinterpret_cast<const std::byte*>(halves.data());
  }
};

Stored RowsWithPoison(const Case& c, uint64_t seed) {
  Stored stored;
  stored.floats.resize(c.batch() * c.kv_heads * c.stride * c.head_dim);
  const std::vector<float> values = testing::RandomFloats(seed, stored.floats.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t row = i / c.head_dim % c.stride, b = i / (c.kv_heads * c.stride * c.head_dim);
    const float poison = values[i] < 0 ? -kPoison : kPoison;
    stored.floats[i] = row < c.rows[b] + c.len() ? values[i] : poison;
  }
  if (c.dtype == DType::kBF16) {
    for (const float value : stored.floats) stored.halves.push_back(FloatToBFloat16(value));
  }
  return stored;
}

std::vector<float> MaskOf(const Case& c) {
  std::vector<float> mask;
  for (size_t b = 0; b < (c.own_masks ? c.batch() : 1); ++b) {
    for (size_t i = 0; i < c.len(); ++i) {
      std::vector<float> row(c.columns, kMasked);
      std::fill_n(row.begin(), c.rows[b], 0.0F);
      for (const size_t node : PathOf(c, i)) row[c.rows[b] + node] = 0;
      mask.insert(mask.end(), row.begin(), row.end());
    }
  }
  return mask;
}

// The engine's kernel: one query row over the rows that it sees, in a span for each run of them.
std::vector<float> Exact(const Case& c, const Stored& k, const Stored& v, const std::vector<float>& q) {
  testing::TestContext context(DetectIsa());
  const AttentionShape shape{.heads = c.heads,
                             .kv_heads = c.kv_heads,
                             .head_dim = c.head_dim,
                             .scale = 1 / std::sqrt(static_cast<float>(c.head_dim)),
                             .kv_dtype = c.dtype,
                             .soft_cap = 0,
                             .window = 0,
                             .sink = 0,
                             .bias = {}};
  const size_t row_bytes = RowBytes(c.dtype, c.head_dim), row = c.heads * c.head_dim;
  std::vector<float> out(q.size()), q_row(row), out_row(row);
  const auto at = [&](size_t b, size_t h, size_t i) { return ((b * c.heads + h) * c.len() + i) * c.head_dim; };
  for (size_t b = 0; b < c.batch(); ++b) {
    const size_t sequence = b * c.kv_heads * c.stride * row_bytes;
    for (size_t i = 0; i < c.len(); ++i) {
      std::vector<KvSpan> spans;
      size_t position = 0;
      const auto add = [&](size_t first, size_t rows) {
        if (rows == 0) return;
        spans.push_back({.k = k.bytes() + sequence + first * row_bytes,
                         .v = v.bytes() + sequence + first * row_bytes,
                         .head_stride = c.stride * c.head_dim,
                         .first = position,
                         .rows = rows});
        position += rows;
      };
      add(0, c.rows[b]);
      for (const size_t node : PathOf(c, i)) add(c.rows[b] + node, 1);
      for (size_t h = 0; h < c.heads; ++h)
        std::copy_n(q.data() + at(b, h, i), c.head_dim, q_row.data() + h * c.head_dim);
      const AttentionTask task{.context = spans,
                               .first_position = position - 1,
                               .visibility = Visibility::kCausal,
                               .q = ConstMatrix<float>(q_row.data(), 1, row),
                               .out = Matrix<float>(out_row.data(), 1, row)};
      Attention(*context, shape, {&task, 1});
      for (size_t h = 0; h < c.heads; ++h)
        std::copy_n(out_row.data() + h * c.head_dim, c.head_dim, out.data() + at(b, h, i));
    }
  }
  return out;
}

PaddedAttention MakeFor(const Case& c) {
  return PaddedAttention::Create({.batch = c.batch(),
                                  .heads = c.heads,
                                  .kv_heads = c.kv_heads,
                                  .head_dim = c.head_dim,
                                  .scale = 1 / std::sqrt(static_cast<float>(c.head_dim)),
                                  .dtype = c.dtype,
                                  .max_len = c.len(),
                                  .max_columns = c.columns})
      .value();
}

void ExpectExact(const Case& c) {
  const Stored k = RowsWithPoison(c, 1), v = RowsWithPoison(c, 2);
  std::vector<float> q = testing::RandomFloats(3, c.batch() * c.heads * c.len() * c.head_dim, 4);
  if (c.dtype == DType::kBF16) {
    for (float& value : q) value = BFloat16ToFloat(FloatToBFloat16(value));  // so that only the weights are rounded
  }
  const std::vector<float> mask = MaskOf(c);
  std::vector<float> out(q.size(), std::nanf(""));
  PaddedAttention attention = MakeFor(c);
  const auto run =
      attention.Run({.k = k.bytes(), .v = v.bytes(), .columns = c.columns, .stride = c.stride},
                    {.values = mask, .batch = c.own_masks ? c.batch() : 1, .rows = c.len()}, c.len(), q, out);
  ASSERT_TRUE(run.ok()) << c.Name() << ": " << run.error().message();
  const std::vector<float> expected = Exact(c, k, v, q);
  const double tolerance = c.dtype == DType::kBF16 ? 0x1p-7 : 1e-5;  // |v| < 1
  size_t worst = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    if (!(std::abs(out[i] - expected[i]) <= std::abs(out[worst] - expected[worst]))) worst = i;
  }
  EXPECT_LE(std::abs(out[worst] - expected[worst]), tolerance)
      << c.Name() << ": element " << worst << ": expected " << expected[worst] << ", found " << out[worst];
}

std::vector<size_t> HeapTree(size_t len) {
  std::vector<size_t> parents(len, 0);
  for (size_t i = 1; i < len; ++i) parents[i] = (i - 1) / 2;
  return parents;
}

TEST(PaddedAttention, RowsAroundEachBoundary_EqualTheExactKernel) {
  constexpr size_t kIncrement = 16;
  for (const size_t blocks : {1, 2, 5, 9}) {
    for (const size_t n :
         {blocks * kIncrement - 1, blocks * kIncrement, blocks * kIncrement + 1}) {  // rows with the step's
      const size_t columns = (n + kIncrement - 1) / kIncrement * kIncrement;
      ExpectExact({.rows = {n - 1, n - 1}, .columns = columns, .stride = columns});
    }
  }
}

TEST(PaddedAttention, OneValidRow_TakesItsValue) {
  ExpectExact({.rows = {0}, .columns = 1, .stride = 1});
  ExpectExact({.rows = {0, 0}, .columns = 300, .stride = 300});
}

TEST(PaddedAttention, HeadsOfEveryShape_EqualTheExactKernel) {
  for (const size_t kv_heads : {8, 4, 2, 1}) {
    for (const size_t head_dim : {16, 64, 80, 128}) {
      ExpectExact(
          {.heads = 8, .kv_heads = kv_heads, .head_dim = head_dim, .rows = {33, 33}, .columns = 48, .stride = 48});
    }
  }
}

TEST(PaddedAttention, RowsOfAReservedBlock_AreReadAtItsStride) {
  ExpectExact({.rows = {20, 20}, .columns = 32, .stride = 256});
  ExpectExact({.rows = {20, 20}, .columns = 21, .stride = 256});
}

TEST(PaddedAttention, SequencesOfUnequalLength_HaveMasksOfTheirOwn) {
  for (const size_t kv_heads : {8, 2, 1}) {
    ExpectExact(
        {.heads = 8, .kv_heads = kv_heads, .rows = {0, 17, 63, 40}, .columns = 64, .stride = 64, .own_masks = true});
  }
}

TEST(PaddedAttention, Trees_SeeTheirAncestorsOnly) {
  for (const size_t kv_heads : {8, 2, 1}) {
    for (const size_t len : {2, 5, 26}) {
      ExpectExact(
          {.heads = 8, .kv_heads = kv_heads, .rows = {70}, .columns = 96, .stride = 96, .parents = HeapTree(len)});
      ExpectExact({.heads = 8,
                   .kv_heads = kv_heads,
                   .rows = {70, 70, 70},
                   .columns = 96,
                   .stride = 96,
                   .parents = HeapTree(len)});
    }
  }
}

TEST(PaddedAttention, TreesOfSequencesOfUnequalLength_SeeTheirAncestorsOnly) {
  for (const size_t kv_heads : {8, 2, 1}) {
    ExpectExact({.heads = 8,
                 .kv_heads = kv_heads,
                 .rows = {3, 70, 31},
                 .columns = 96,
                 .stride = 96,
                 .parents = HeapTree(26),
                 .own_masks = true});
  }
}

TEST(PaddedAttention, LongContext_EqualsTheExactKernel) {
  ExpectExact({.heads = 4, .kv_heads = 2, .head_dim = 128, .rows = {1500, 1500}, .columns = 2048, .stride = 2048});
}

TEST(PaddedAttention, BFloat16_IsCloseToTheExactKernel) {
  if (!HasBFloat16Products(DetectIsa())) GTEST_SKIP() << "this CPU has no AVX512_BF16";
  ExpectExact({.rows = {33, 33}, .columns = 48, .stride = 48, .dtype = DType::kBF16});
  ExpectExact({.heads = 8,
               .kv_heads = 2,
               .head_dim = 80,
               .rows = {0, 40},
               .columns = 64,
               .stride = 64,
               .dtype = DType::kBF16,
               .own_masks = true});
  ExpectExact({.heads = 8,
               .kv_heads = 2,
               .head_dim = 128,
               .rows = {70},
               .columns = 96,
               .stride = 96,
               .parents = HeapTree(26),
               .dtype = DType::kBF16});
}

TEST(PaddedAttention, Primitives_AreMadeOnceForAShape) {
  const Case c{.rows = {5}, .columns = 8, .stride = 8};
  const Stored k = RowsWithPoison(c, 1), v = RowsWithPoison(c, 2);
  const std::vector<float> q(c.heads * c.head_dim), mask = MaskOf(c);
  std::vector<float> out(q.size());
  PaddedAttention attention = MakeFor(c);
  EXPECT_EQ(attention.creations(), 0u);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(attention.Run({k.bytes(), v.bytes(), 8, 8}, {.values = mask, .batch = 1, .rows = 1}, 1, q, out).ok());
    EXPECT_EQ(attention.creations(), 1u);
  }
  EXPECT_GT(attention.creation_s(), 0);
  ASSERT_TRUE(
      attention
          .Run({k.bytes(), v.bytes(), 7, 8}, {.values = std::span(mask).first(7), .batch = 1, .rows = 1}, 1, q, out)
          .ok());
  EXPECT_EQ(attention.creations(), 2u);
}

TEST(PaddedAttention, TypesThatTheLibraryDoesNotMultiply_AreRefused) {
  const auto attention = PaddedAttention::Create(
      {.batch = 1, .heads = 1, .kv_heads = 1, .head_dim = 16, .scale = 1, .dtype = DType::kF16});
  ASSERT_FALSE(attention.ok());
  EXPECT_EQ(attention.error().code(), ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace tidemill::bmc::padded_attention_test
