// Query rows that are nodes of trees: each gives the bits of its path alone, as plain decoding would ask for it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "kernels/append_kv.h"
#include "kernels/attention.h"
#include "kernels/testing/bit_formulas.h"
#include "kernels/testing/compare.h"
#include "kernels/testing/seeded_inputs.h"
#include "tensor/dequantize.h"

namespace tidemill::attention_tree_test {
namespace {

using testing::LevelsHere;
using testing::RandomFloats;
using testing::SameBits;
using testing::TestContext;
using Parents = std::vector<int32_t>;

struct Case {
  size_t heads = 4, kv_heads = 2, head_dim = 32;
  DType kv_dtype = DType::kF32;
  size_t first = 0, nodes = 6;  // positions before the tree, and its rows
  size_t window = 0, sink = 0;
  float soft_cap = 0;
  size_t bias_distances = 0;

  std::string Name() const {
    std::string name = "heads " + std::to_string(heads) + "/" + std::to_string(kv_heads);
    name.append(" dim ").append(std::to_string(head_dim)).append(" ").append(InfoOf(kv_dtype).name);
    name.append(" first ").append(std::to_string(first)).append(" nodes ").append(std::to_string(nodes));
    return name.append(" window ").append(std::to_string(window)).append(" sink ").append(std::to_string(sink));
  }
};

std::string NameOf(const Parents& parents) {
  std::string name = " parents";
  for (const int32_t parent : parents) name.append(" ").append(std::to_string(parent));
  return name;
}

// The rows on the way to `node`, which is the last.
std::vector<size_t> PathOf(const Parents& parents, size_t node) {
  std::vector<size_t> path;
  for (auto at = static_cast<int32_t>(node); at >= 0; at = parents[static_cast<size_t>(at)])
    path.insert(path.begin(), static_cast<size_t>(at));
  return path;
}

// A context of `first` positions in two spans, of which the second goes on with the rows of the tree, and NaN behind them.
class Inputs {
 public:
  explicit Inputs(const Case& c)
      : case_(c),
        rows_(c.first + c.nodes),
        cut_(c.first / 3),
        q_(RandomFloats(1, c.nodes * q_cols())),
        bias_(RandomFloats(4, c.heads * c.bias_distances)) {
    const size_t row_bytes = RowBytes(c.kv_dtype, c.head_dim);
    uint64_t seed = 2;
    for (auto [values, stored] : {std::pair{&k_, &k_rows_}, std::pair{&v_, &v_rows_}}) {
      *values = RandomFloats(seed++, c.kv_heads * rows_ * c.head_dim, 2);
      std::vector<std::byte> bytes(RowBytes(c.kv_dtype, values->size()));
      testing::StoreRow(c.kv_dtype, *values, bytes.data());
      DequantizeRow(c.kv_dtype, bytes, *values);
      stored->assign(c.kv_heads * (rows_ + kSpare) * row_bytes, std::byte{0xFF});
      for (size_t h = 0; h < c.kv_heads; ++h) {
        std::memcpy(stored->data() + h * (rows_ + kSpare) * row_bytes, bytes.data() + h * rows_ * row_bytes,
                    rows_ * row_bytes);
      }
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
  }
  Inputs(const Inputs&) = delete;
  Inputs& operator=(const Inputs&) = delete;

  const AttentionShape& shape() const { return shape_; }
  std::vector<float> RowOf(const std::vector<float>& out, size_t node) const {
    return {out.begin() + static_cast<std::ptrdiff_t>(node * q_cols()),
            out.begin() + static_cast<std::ptrdiff_t>((node + 1) * q_cols())};
  }

  // The first parents.size() rows of the tree.
  std::vector<float> Tree(TestContext& context, const Parents& parents) const {
    std::vector<float> out(parents.size() * q_cols());
    const std::vector<KvSpan> spans = {Span(0, 0, cut_), Span(cut_, cut_, case_.first + parents.size() - cut_)};
    const AttentionTask task = TreeTask(spans, parents, out);
    Attention(*context, shape_, {&task, 1});
    return out;
  }

  // One row, behind the context and a span for each of its ancestors.
  std::vector<float> Alone(TestContext& context, const std::vector<size_t>& path) const {
    std::vector<float> out(q_cols());
    std::vector<KvSpan> spans;
    if (case_.first != 0) spans.push_back(Span(0, 0, case_.first));
    for (size_t i = 0; i < path.size(); ++i) spans.push_back(Span(case_.first + path[i], case_.first + i, 1));
    const AttentionTask task{.context = spans,
                             .first_position = case_.first + path.size() - 1,
                             .visibility = Visibility::kCausal,
                             .q = ConstMatrix<float>(q_.data() + path.back() * q_cols(), 1, q_cols()),
                             .out = Matrix<float>(out.data(), 1, q_cols())};
    Attention(*context, shape_, {&task, 1});
    return out;
  }

  std::vector<float> Formula(testing::Arithmetic math, const Parents& parents) const {
    std::vector<float> out(parents.size() * q_cols());
    const AttentionTask task = TreeTask({}, parents, out);
    testing::Attention(math, shape_, {k_, v_, 0, rows_}, task, task.out);
    return out;
  }

  std::vector<float> Reference(const Parents& parents) const {
    std::vector<float> out(parents.size() * q_cols());
    const std::vector<KvSpan> spans = {Span(0, 0, rows_)};
    const AttentionTask task = TreeTask(spans, parents, out);
    reference::Attention(shape_, {&task, 1});
    return out;
  }

  AttentionTask TreeTask(std::span<const KvSpan> spans, const Parents& parents, std::vector<float>& out) const {
    return {.context = spans,
            .first_position = case_.first,
            .visibility = Visibility::kCausal,
            .q = ConstMatrix<float>(q_.data(), parents.size(), q_cols()),
            .out = Matrix<float>(out.data(), parents.size(), q_cols()),
            .parents = parents};
  }

  // Stored row `row`, which is position `position`, and those behind it.
  KvSpan Span(size_t row, size_t position, size_t rows) const {
    const size_t offset = RowBytes(case_.kv_dtype, row * case_.head_dim);
    return {.k = k_rows_.data() + offset,
            .v = v_rows_.data() + offset,
            .head_stride = (rows_ + kSpare) * case_.head_dim,
            .first = position,
            .rows = rows};
  }

  // Nobody who may not look at this row of the tree notices.
  void Poison(size_t node) {
    const size_t row_bytes = RowBytes(case_.kv_dtype, case_.head_dim);
    for (std::vector<std::byte>* rows : {&k_rows_, &v_rows_}) {
      for (size_t h = 0; h < case_.kv_heads; ++h)
        std::memset(rows->data() + (h * (rows_ + kSpare) + case_.first + node) * row_bytes, 0xFF, row_bytes);
    }
  }

 private:
  static constexpr size_t kSpare = 5;
  size_t q_cols() const { return case_.heads * case_.head_dim; }

  Case case_;
  size_t rows_, cut_;
  std::vector<float> q_, k_, v_, bias_;
  std::vector<std::byte> k_rows_, v_rows_;
  AttentionShape shape_;
};

// Calls f with all parents of `nodes` rows: of trees with one root, or of several trees, too.
template <class F>
void ForEachTree(size_t nodes, bool one_root, const F& f) {
  Parents parents(nodes, -1);
  const auto choose = [&](const auto& self, size_t row) -> void {
    if (row == nodes) return f(parents);
    for (int32_t parent = row == 0 || !one_root ? -1 : 0; parent < static_cast<int32_t>(row); ++parent) {
      parents[row] = parent;
      self(self, row + 1);
    }
  };
  choose(choose, 0);
}

// Each node of each tree against its path alone; a path is computed once, whichever trees have it.
class Comparison {
 public:
  Comparison(const Inputs& inputs, Isa isa, std::string name)
      : inputs_(inputs), context_(isa), name_(std::string(IsaName(isa)) + " " + std::move(name)) {}

  bool Same(const Parents& parents) {
    const std::vector<float> found = inputs_.Tree(context_, parents);
    for (size_t node = 0; node < parents.size(); ++node) {
      const std::vector<size_t> path = PathOf(parents, node);
      auto [alone, is_new] = alone_.try_emplace(path);
      if (is_new) alone->second = inputs_.Alone(context_, path);
      const auto same = SameBits(alone->second, inputs_.RowOf(found, node));
      EXPECT_TRUE(same) << name_ << NameOf(parents) << " node " << node;
      if (!same) return false;
    }
    return true;
  }

 private:
  const Inputs& inputs_;
  TestContext context_;
  std::string name_;
  std::map<std::vector<size_t>, std::vector<float>> alone_;
};

Parents RandomTree(size_t nodes, size_t reach, testing::Random& random) {
  Parents parents(nodes, -1);
  for (size_t i = 1; i < nodes; ++i) parents[i] = static_cast<int32_t>(i - 1 - random.Below(std::min(i, reach)));
  return parents;
}

TEST(AttentionTree, EveryTreeOfSixNodesAtAChunksEdge_GivesTheBitsOfEachPath) {
  size_t trees = 0;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kQ8_0}) {
    const Case kinds[] = {{.kv_dtype = dtype},
                          {.kv_dtype = dtype, .window = 3},
                          {.heads = 3, .kv_heads = 1, .kv_dtype = dtype, .window = 100, .sink = 2, .soft_cap = 20},
                          {.heads = 2, .kv_heads = 2, .kv_dtype = dtype, .bias_distances = 4}};
    for (Case c : kinds) {
      for (c.first = 125; c.first <= 131; ++c.first) {
        const Inputs inputs(c);
        for (const Isa isa : LevelsHere()) {
          Comparison comparison(inputs, isa, c.Name());
          for (size_t nodes = 1; nodes <= 6; ++nodes) {
            ForEachTree(nodes, true, [&](const Parents& parents) {
              if (!::testing::Test::HasFailure()) comparison.Same(parents);
              ++trees;
            });
          }
        }
      }
    }
  }
  EXPECT_EQ(trees, 154 * 7 * 4 * 3 * LevelsHere().size());
}

// Also behind nothing, in a later chunk, and where head_dim has a tail.
TEST(AttentionTree, SeveralTreesInOneTask_GiveTheBitsOfEachPath) {
  for (Case c : {Case{.head_dim = 40}, Case{.window = 2, .sink = 1}, Case{.heads = 8, .kv_heads = 1}}) {
    for (const size_t first : {0, 1, 2, 126, 254}) {
      c.first = first;
      const Inputs inputs(c);
      for (const Isa isa : LevelsHere()) {
        Comparison comparison(inputs, isa, c.Name());
        for (size_t nodes = 1; nodes <= 5; ++nodes) {
          ForEachTree(nodes, false, [&](const Parents& parents) {
            if (!::testing::Test::HasFailure()) comparison.Same(parents);
          });
        }
      }
    }
  }
}

// Several tiles, and paths that are longer than a chunk.
TEST(AttentionTree, TreesOfManyRows_GiveTheBitsOfEachPath) {
  testing::Random random(3);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0}) {
    for (Case c : {Case{.heads = 9, .kv_heads = 3, .head_dim = 64, .nodes = 26}, Case{.nodes = 65, .window = 7},
                   Case{.nodes = 200, .window = 140, .sink = 3}}) {
      c.kv_dtype = dtype;
      for (const size_t first : {0, 100, 500}) {
        c.first = first;
        const Inputs inputs(c);
        const Parents wide = RandomTree(c.nodes, c.nodes, random), deep = RandomTree(c.nodes, 2, random);
        for (const Isa isa : LevelsHere()) {
          Comparison comparison(inputs, isa, c.Name());
          if (!comparison.Same(wide) || !comparison.Same(deep)) return;
          TestContext one(isa), three(isa, 3);
          EXPECT_TRUE(SameBits(inputs.Tree(one, wide), inputs.Tree(three, wide))) << c.Name();
        }
      }
    }
  }
}

TEST(AttentionTree, Chain_GivesTheBitsOfRowsWithoutParents) {
  for (const size_t first : {0, 120, 300}) {
    const Case c{.first = first, .nodes = 20};
    const Inputs inputs(c);
    Parents parents(c.nodes, -1);
    for (size_t i = 1; i < c.nodes; ++i) parents[i] = static_cast<int32_t>(i) - 1;
    for (const Isa isa : LevelsHere()) {
      TestContext context(isa);
      std::vector<float> plain(c.nodes * c.heads * c.head_dim);
      const std::vector<KvSpan> spans = {inputs.Span(0, 0, first + c.nodes)};
      AttentionTask task = inputs.TreeTask(spans, parents, plain);
      task.parents = {};
      Attention(*context, inputs.shape(), {&task, 1});
      EXPECT_TRUE(SameBits(plain, inputs.Tree(context, parents))) << IsaName(isa) << " " << c.Name();
    }
  }
}

TEST(AttentionTree, EveryLevel_GivesTheBitsOfTheFormula) {
  testing::Random random(5);
  for (const Case& c : {Case{.first = 127, .nodes = 30}, Case{.first = 40, .nodes = 12, .window = 20, .soft_cap = 10},
                        Case{.kv_dtype = DType::kF16, .first = 250, .nodes = 17, .bias_distances = 9}}) {
    const Inputs inputs(c);
    const Parents parents = RandomTree(c.nodes, 5, random);
    const std::vector<float> exact = inputs.Reference(parents);
    for (const Isa isa : LevelsHere()) {
      TestContext context(isa);
      const std::vector<float> found = inputs.Tree(context, parents);
      EXPECT_TRUE(SameBits(inputs.Formula(testing::Arithmetic::Of(isa), parents), found))
          << IsaName(isa) << " " << c.Name();
      const double magnitude = static_cast<double>(c.head_dim) * 2 * static_cast<double>(inputs.shape().scale) + 1;
      const double tolerance =
          2 * AttentionTolerance(c.head_dim, c.first + c.nodes, magnitude, static_cast<double>(c.soft_cap));
      EXPECT_TRUE(testing::Within(exact, found, [&](size_t) { return tolerance; })) << IsaName(isa) << " " << c.Name();
    }
  }
}

TEST(AttentionTree, NaNBesideThePath_ChangesNothing) {
  testing::Random random(7);
  for (const DType dtype : {DType::kF32, DType::kQ8_0}) {
    const Case c{.kv_dtype = dtype, .first = 120, .nodes = 24};
    const Parents parents = RandomTree(c.nodes, 6, random);
    for (const size_t node : {1, 5, 11, 23}) {
      const Inputs clean(c);
      Inputs poisoned(c);
      poisoned.Poison(node);
      for (const Isa isa : LevelsHere()) {
        TestContext context(isa);
        const std::vector<float> expected = clean.Tree(context, parents), found = poisoned.Tree(context, parents);
        for (size_t row = 0; row < c.nodes; ++row) {
          const std::vector<size_t> path = PathOf(parents, row);
          const bool sees = std::find(path.begin(), path.end(), node) != path.end();
          EXPECT_EQ(static_cast<bool>(SameBits(clean.RowOf(expected, row), poisoned.RowOf(found, row))), !sees)
              << IsaName(isa) << " row " << row << " poisoned " << node << NameOf(parents);
        }
      }
    }
  }
}

TEST(AttentionTree, BatchMatesInTheCall_ChangeNothing) {
  const Case c{.first = 126, .nodes = 9};
  const Inputs inputs(c);
  testing::Random random(9);
  const Parents parents = RandomTree(c.nodes, 4, random);
  for (const Isa isa : LevelsHere()) {
    for (const size_t threads : {1, 2}) {
      TestContext context(isa, threads), one(isa);
      const std::vector<KvSpan> spans = {inputs.Span(0, 0, c.first + c.nodes)};
      std::vector<float> tree(c.nodes * c.heads * c.head_dim), chain(tree.size()), row(tree.size());
      AttentionTask tasks[] = {inputs.TreeTask(spans, parents, chain), inputs.TreeTask(spans, parents, tree),
                               inputs.TreeTask(spans, parents, row)};
      tasks[0].parents = tasks[2].parents = {};
      tasks[2].q.rows = tasks[2].out.rows = 1;
      Attention(*context, inputs.shape(), tasks);
      EXPECT_TRUE(SameBits(inputs.Tree(one, parents), tree)) << IsaName(isa) << " threads " << threads;
      EXPECT_TRUE(SameBits(inputs.RowOf(tree, 0), inputs.RowOf(row, 0)))
          << IsaName(isa) << " threads " << threads << ": a root is a row that stands alone";
    }
  }
}

}  // namespace
}  // namespace tidemill::attention_tree_test
