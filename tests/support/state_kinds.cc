#include "tests/support/state_kinds.h"
#include "tests/support/fold_state.h"
#include "tests/support/kv_cache.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/page_committer.h"
#include "kernels/key_tiles.h"

namespace tidemill::testing {
namespace {

// One thread, which begins with the first state that wants it.
PageCommitter* Pages() {
  static const std::unique_ptr<PageCommitter> pages = std::move(PageCommitter::Create()).value();
  return pages.get();
}

struct RowsKept {
  size_t first = 0;             // position
  std::vector<std::byte> rows;  // [positions from there, row_bytes]
};

// `needed`: position; rows before it may hold anything, and need not be there.
std::string DescribeRows(std::span<const std::byte> expected, const RowsKept& found, size_t needed, size_t row_bytes) {
  const size_t positions = expected.size() / row_bytes;
  if (found.rows.empty() && needed == positions) return {};
  if (found.first > needed) {
    return "rows from " + std::to_string(needed) + " on are needed, found from " + std::to_string(found.first) + " on";
  }
  if (found.first * row_bytes + found.rows.size() != expected.size()) {
    return "expected " + std::to_string(positions) + " rows, found " + std::to_string(found.first) + " + " +
           std::to_string(found.rows.size() / row_bytes);
  }
  const auto from = static_cast<std::ptrdiff_t>(needed * row_bytes);
  const auto [at, other] =
      std::mismatch(expected.begin() + from, expected.end(),
                    found.rows.begin() + from - static_cast<std::ptrdiff_t>(found.first * row_bytes));
  if (at == expected.end()) return {};
  const auto byte = static_cast<size_t>(at - expected.begin());
  return "row " + std::to_string(byte / row_bytes) + " of " + std::to_string(positions) + ", byte " +
         std::to_string(byte % row_bytes) + ": expected " + std::to_string(std::to_integer<int>(*at)) + ", found " +
         std::to_string(std::to_integer<int>(*other));
}

// A row is K of every head, then V of every head. `ahead`: somebody commits pages ahead of their use.
// Layers without heads are folds of rows of 8 bytes.
class KvCacheUnderTest : public StateKindUnderTest {
 public:
  KvCacheUnderTest(DType dtype, std::vector<KvLayerShape> layers, size_t draft_rows = 64, KvGrowth growth = {},
                   bool ahead = false)
      : shape_{.layers = std::move(layers),
               .dtype = dtype,
               .growth = growth,
               .max_length = 0,
               .draft_rows = draft_rows,
               .model = kModel,
               .numeric_class = kNumericClass},
        ahead_(ahead) {}

  std::string name() const override {
    std::string name = "KvCache" + std::string(InfoOf(shape_.dtype).name);
    std::erase(name, '_');
    for (const KvLayerShape& layer : shape_.layers) {
      if (IsFold(layer)) {
        name += "Fold" + std::to_string(layer.head_dim);
        continue;
      }
      name += "Heads" + std::to_string(layer.kv_heads) + "Dim" + std::to_string(layer.head_dim);
      if (layer.window != 0) name += "Window" + std::to_string(layer.window);
    }
    if (HasWindow()) name += "Draft" + std::to_string(shape_.draft_rows);
    if (shape_.growth == KvGrowth()) return name;
    return name + (ahead_ ? "Ahead" : "") + "Policy" + std::to_string(static_cast<int>(shape_.growth.policy)) +
           "Increment" + std::to_string(shape_.growth.increment) + "Expected" + std::to_string(shape_.growth.expected);
  }

  std::unique_ptr<SequenceState> Make(size_t max_length) const override {
    KvShape shape = shape_;
    shape.max_length = max_length;
    if (ahead_) shape.pages = Pages();
    return MakeSequence(shape);
  }

  std::vector<StrangerState> Strangers(size_t max_length) const override {
    std::vector<StrangerState> strangers;
    const auto add = [&](const std::string& what, auto change) {
      KvShape shape = shape_;
      shape.max_length = max_length;
      change(shape);
      strangers.push_back({what, MakeSequence(shape)});
    };
    add("model", [](KvShape& s) { ++s.model; });
    add("numeric class", [](KvShape& s) { ++s.numeric_class; });
    add("layers", [](KvShape& s) { s.layers.push_back(s.layers.back()); });
    add("draft_rows", [](KvShape& s) { ++s.draft_rows; });
    add("a fold", [](KvShape& s) { s.layers.front() = {.kv_heads = 0, .head_dim = 99}; });
    add("one more fold", [](KvShape& s) { s.layers.push_back({.kv_heads = 0, .head_dim = 1}); });
    if (HasFold()) {
      add("no fold", [](KvShape& s) {
        for (KvLayerShape& layer : s.layers) {
          if (IsFold(layer)) layer = {.kv_heads = 1, .head_dim = 32};
        }
      });
      return strangers;
    }
    add("kv_heads", [](KvShape& s) { ++s.layers.back().kv_heads; });
    add("head_dim", [](KvShape& s) { s.layers.front().head_dim += InfoOf(s.dtype).block_elements; });
    add("window", [](KvShape& s) { ++s.layers.back().window; });
    add("dtype",
        [](KvShape& s) { s.dtype = s.dtype == DType::kF16 ? DType::kBF16 : DType::kF16; });  // same sizes where it can
    // The same number of bytes in another arrangement, where all layers are equal.
    add("layers and kv_heads", [](KvShape& s) {
      KvLayerShape layer = s.layers.front();
      const size_t layers = layer.kv_heads + (layer.kv_heads == s.layers.size());
      layer.kv_heads = s.layers.size();
      s.layers.assign(layers, layer);
    });
    return strangers;
  }

  size_t num_layers() const override { return shape_.layers.size(); }
  size_t row_bytes(size_t layer) const override {
    return IsFold(shape_.layers[layer]) ? 8 : shape_.layers[layer].PositionBytes(shape_.dtype);
  }
  // A fold keeps rows that can be rolled back, and no others.
  size_t window(size_t layer) const override { return IsFold(shape_.layers[layer]) ? 1 : shape_.layers[layer].window; }
  size_t fixed_bytes(size_t layer) const override { return IsFold(shape_.layers[layer]) ? 8 : 0; }
  bool keeps_rows() const override { return !std::all_of(shape_.layers.begin(), shape_.layers.end(), IsFold); }
  size_t draft_rows() const override { return shape_.draft_rows; }
  size_t checkpoint_header_bytes() const override {
    return SequenceState::kCheckpointHeaderBytes + (HasFold() ? 8 * (2 * shape_.layers.size() + 3) : 0);
  }
  size_t fewest_quiet_steps(size_t rows) const override {
    const KvGrowth& growth = shape_.growth;
    if (growth.policy == KvPolicy::kIterative) return 0;
    const size_t growths = growth.policy == KvPolicy::kGeometric ? 3
                           : ahead_                              ? 4 * rows / (3 * growth.increment) + 2
                           : growth.policy == KvPolicy::kPaged   ? 2 * rows / growth.increment + 2
                                                                 : rows / growth.increment + 2;
    constexpr size_t kDoublings = 3;  // more, of a tail behind shared rows
    return 20 - std::min<size_t>(20, growths + kDoublings);
  }

  void Write(LayerState& layer, size_t step_row, std::span<const std::byte> row) const override {
    if (layer.kind() == StateKind::kOfATest) {
      uint64_t word = 0;
      std::memcpy(&word, row.data(), sizeof(word));
      return Fold(layer).Write(step_row, word);
    }
    KvLayer& kv = Layer(layer);
    const KvLayer::StepRows rows = kv.View();
    const size_t heads = kv.shape().kv_heads, row_bytes = kv.shape().RowBytes(shape_.dtype);
    for (size_t part = 0; part < 2 * heads; ++part) {
      std::byte* base = part < heads ? rows.k : rows.v;
      const size_t first = (part % heads) * rows.head_stride + step_row * kv.shape().head_dim;  // elements
      std::memcpy(base + Bytes(first), row.data() + part * row_bytes, row_bytes);
    }
  }

  std::string Difference(LayerState& layer, size_t step_rows, std::span<const std::byte> rows,
                         size_t needed) const override {
    if (layer.kind() != StateKind::kOfATest) {
      const size_t row_bytes = Layer(layer).shape().PositionBytes(shape_.dtype);
      return DescribeRows(rows, Read(layer, step_rows), needed, row_bytes);
    }
    uint64_t value = layer.Shape().front();
    for (size_t at = 0; at < rows.size(); at += 8) {
      uint64_t word = 0;
      std::memcpy(&word, rows.data() + at, sizeof(word));
      value = testing::Fold(value, word);
    }
    return Fold(layer).Value(step_rows) == value ? "" : "the fold is another one";
  }

  RowsKept Read(LayerState& layer, size_t step_rows) const {
    KvLayer& kv = Layer(layer);
    const size_t heads = kv.shape().kv_heads, row_bytes = kv.shape().RowBytes(shape_.dtype);
    RowsKept out;
    std::optional<size_t> next;
    for (const KvSpan& span : kv.Context(step_rows)) {
      TIDEMILL_CHECK(span.first == next.value_or(span.first) && span.rows != 0);
      if (!next) out.first = span.first;
      for (size_t r = 0; r < span.rows; ++r) {
        for (size_t part = 0; part < 2 * heads; ++part) {
          const size_t head = (part % heads) * span.head_stride, dim = kv.shape().head_dim;
          if (part < heads && r < span.transposed) {
            for (size_t i = 0; i < dim; ++i) {
              const std::byte* element = span.k + Bytes(head + KeyElement(span.transposed, dim, r, i));
              out.rows.insert(out.rows.end(), element, element + Bytes(1));
            }
            continue;
          }
          const std::byte* row = (part < heads ? span.k : span.v) + Bytes(head + r * dim);
          out.rows.insert(out.rows.end(), row, row + row_bytes);
        }
      }
      next = span.first + span.rows;
    }
    return out;
  }

  size_t Poison(LayerState& layer, size_t needed) const override {
    if (layer.kind() == StateKind::kOfATest) return 0;
    KvLayer& kv = Layer(layer);
    const KvLayer::StepRows rows = kv.View();
    const auto context = kv.Context(0);
    const size_t row_bytes = kv.shape().RowBytes(shape_.dtype);
    if (context.empty() || context.back().first >= needed || kv.seen_rows() != 0) return 0;
    const KvSpan& tail = context.back();
    if (tail.k + tail.rows * row_bytes != rows.k) return 0;  // nothing is in the block that the step writes
    const size_t count = std::min(tail.rows, needed - tail.first);
    const size_t in_tiles = std::min(count, tail.transposed), dim = kv.shape().head_dim;
    for (size_t head = 0; head < kv.shape().kv_heads; ++head) {
      const auto first = [&](std::byte* step_row) {
        return step_row + Bytes(head * rows.head_stride) - tail.rows * row_bytes;
      };
      std::memset(first(rows.v), 0xFF, count * row_bytes);
      std::memset(first(rows.k) + in_tiles * row_bytes, 0xFF, (count - in_tiles) * row_bytes);
      for (size_t r = 0; r < in_tiles; ++r) {
        for (size_t i = 0; i < dim; ++i)
          std::memset(first(rows.k) + Bytes(KeyElement(tail.transposed, dim, r, i)), 0xFF, Bytes(1));
      }
    }
    return count;
  }

  void Touch(LayerState& layer, size_t step_rows) const override {
    layer.Settle();
    if (layer.kind() == StateKind::kOfATest) return;
    TIDEMILL_CHECK(Layer(layer).View().k != nullptr);
    TIDEMILL_CHECK(!Layer(layer).Context(step_rows).empty());
  }

  std::vector<const std::byte*> Addresses(LayerState& layer) const override {
    std::vector<const std::byte*> out;
    if (layer.kind() == StateKind::kOfATest) return out;
    for (const KvSpan& span : Layer(layer).Context(0)) {
      out.resize(span.first);
      for (size_t r = 0; r < span.rows; ++r) {
        out.push_back(span.v + r * Layer(layer).shape().RowBytes(shape_.dtype));
      }
    }
    return out;
  }

 private:
  static bool IsFold(const KvLayerShape& layer) { return layer.kv_heads == 0; }
  bool HasFold() const { return std::any_of(shape_.layers.begin(), shape_.layers.end(), IsFold); }
  bool HasWindow() const {
    return std::any_of(shape_.layers.begin(), shape_.layers.end(),
                       [](const auto& layer) { return layer.window != 0 || IsFold(layer); });
  }
  static std::unique_ptr<SequenceState> MakeSequence(const KvShape& shape) {
    SequenceState::Layers layers;
    for (const KvLayerShape& layer : shape.layers) {
      if (IsFold(layer)) {
        layers.push_back(std::make_unique<FoldState>(layer.head_dim));
      } else {
        layers.push_back(std::make_unique<KvLayer>(layer, KvOptionsOf(shape)));
      }
    }
    return std::make_unique<SequenceState>(SequenceOptionsOf(shape), std::move(layers));
  }
  static FoldState& Fold(LayerState& layer) {
    layer.Settle();
    return static_cast<FoldState&>(layer);
  }
  size_t Bytes(size_t elements) const { return RowBytes(shape_.dtype, elements); }

  KvLayer& Layer(LayerState& layer) const {
    TIDEMILL_CHECK(layer.kind() == StateKind::kKv);
    layer.Settle();
    auto& kv = static_cast<KvLayer&>(layer);
    TIDEMILL_CHECK(kv.dtype() == shape_.dtype);
    return kv;
  }

  KvShape shape_;  // max_length comes with Make
  bool ahead_;
};

}  // namespace

size_t StateKindUnderTest::FirstSeen(size_t layer, size_t position) const {
  return window(layer) == 0 || position < window(layer) ? 0 : position + 1 - window(layer);
}

size_t StateKindUnderTest::UnlessAllIsSeen(size_t position) const {
  for (size_t layer = 0; layer < num_layers(); ++layer) {
    if (FirstSeen(layer, position) != 0) return position;
  }
  return 0;
}

const std::vector<std::unique_ptr<const StateKindUnderTest>>& AllStateKinds() {
  static const auto kinds = [] {
    std::vector<std::unique_ptr<const StateKindUnderTest>> all;
    const auto add = [&all](auto... arguments) { all.push_back(std::make_unique<KvCacheUnderTest>(arguments...)); };
    using Layers = std::vector<KvLayerShape>;
    const auto same = [](size_t layers, KvLayerShape layer) { return Layers(layers, layer); };
    add(DType::kF16, same(1, {1, 1}));
    add(DType::kF16, same(2, {3, 5}));
    add(DType::kBF16, same(3, {2, 16}));
    add(DType::kF32, same(2, {1, 7}));
    add(DType::kF32, same(1, {4, 8}));
    add(DType::kF16, Layers{{2, 3}, {1, 8}});
    add(DType::kQ8_0, same(1, {1, 32}));
    add(DType::kQ8_0, Layers{{2, 32}, {1, 64}});
    // Windows everywhere: of one row, of a few, of as many as a long step has.
    add(DType::kF16, same(1, {1, 2, 1}), size_t{0});
    add(DType::kF16, same(2, {2, 3, 4}), size_t{1});
    add(DType::kBF16, Layers{{1, 3, 2}, {2, 2, 7}}, size_t{3});
    add(DType::kF32, same(2, {1, 2, 100}));
    add(DType::kQ8_0, same(1, {2, 32, 4}), size_t{1});
    // Between layers that keep everything.
    add(DType::kF16, Layers{{1, 4}, {2, 3, 3}, {1, 2, 5}}, size_t{2});
    add(DType::kBF16, Layers{{2, 2, 6}, {1, 5}}, size_t{0});
    add(DType::kF16, Layers{{1, 2, 48}, {1, 2}, {1, 2, 48}}, size_t{16});
    add(DType::kQ8_0, Layers{{1, 64, 5}, {1, 32}}, size_t{2});
    // Every policy of growth, beside a layer that does not follow it.
    for (const KvGrowth& growth :
         {KvGrowth{.policy = KvPolicy::kIterative}, KvGrowth{.policy = KvPolicy::kUpfront, .expected = 5000},
          KvGrowth{.policy = KvPolicy::kUpfront, .expected = 10}, KvGrowth{.policy = KvPolicy::kBmc, .increment = 3},
          KvGrowth{.policy = KvPolicy::kBmc, .increment = 16, .expected = 40}, KvGrowth{.policy = KvPolicy::kGeometric},
          KvGrowth{.policy = KvPolicy::kReserve, .increment = 64},
          KvGrowth{.policy = KvPolicy::kPaged, .increment = 16}}) {
      add(DType::kBF16, Layers{{1, 4}, {2, 3, 3}}, size_t{2}, growth);
    }
    // Folds alone, and between layers of rows.
    add(DType::kF16, same(1, {0, 7}), size_t{0});
    add(DType::kF16, same(2, {0, 7}), size_t{3});
    add(DType::kF16, Layers{{0, 7}, {2, 3}}, size_t{0});
    add(DType::kBF16, Layers{{1, 4}, {0, 7}, {2, 3, 3}, {0, 9}}, size_t{2});
    add(DType::kQ8_0, Layers{{1, 32}, {0, 7}}, size_t{16}, KvGrowth{.policy = KvPolicy::kBmc, .increment = 16});
    for (const size_t increment : {size_t{16}, size_t{100}}) {
      add(DType::kBF16, Layers{{1, 4}, {2, 3, 3}}, size_t{2},
          KvGrowth{.policy = KvPolicy::kReserve, .increment = increment}, true);
    }
    return all;
  }();
  return kinds;
}

std::vector<StateKindPointer> AllStateKindPointers() {
  std::vector<StateKindPointer> pointers;
  for (const auto& kind : AllStateKinds()) pointers.push_back(kind.get());
  return pointers;
}

std::vector<StateKindPointer> StateKindsThatForget() {
  std::vector<StateKindPointer> pointers = AllStateKindPointers();
  std::erase_if(pointers, [](StateKindPointer kind) {
    bool drops_rows = false;
    for (size_t i = 0; i < kind->num_layers(); ++i)
      drops_rows = drops_rows || (kind->window(i) != 0 && kind->fixed_bytes(i) == 0);
    return !drops_rows;
  });
  return pointers;
}

}  // namespace tidemill::testing
