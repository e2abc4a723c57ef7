#include "tests/support/kv_under_test.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/check.h"
#include "base/page_committer.h"
#include "kernels/key_tiles.h"
#include "tests/support/fold_state.h"

namespace tidemill::testing {
namespace {

// One thread, which begins with the first state that wants it.
PageCommitter* Pages() {
  static const std::unique_ptr<PageCommitter> pages = std::move(PageCommitter::Create()).value();
  return pages.get();
}

FoldState& FoldOf(LayerState& layer) {
  TIDEMILL_CHECK(layer.checkpoint_kind() == StateKind::kOfATest);
  layer.Settle();
  return static_cast<FoldState&>(layer);
}

}  // namespace

std::string KvUnderTest::name() const {
  std::string name = "Heads" + std::to_string(shape_.kv_heads) + "Dim" + std::to_string(shape_.head_dim);
  if (shape_.window != 0) name += "Window" + std::to_string(shape_.window);
  return name;
}

KvOptions KvUnderTest::OptionsOf(const SequenceOptions& options) const {
  return {.dtype = dtype_,
          .growth = growth_,
          .max_length = options.max_length,
          .pages = ahead_ ? Pages() : nullptr,
          .ledger = options.ledger};
}

std::unique_ptr<LayerState> KvUnderTest::Make(const SequenceOptions& options) const {
  return std::make_unique<KvLayer>(shape_, OptionsOf(options));
}

std::vector<std::pair<std::string, LayerUnderTest::Pointer>> KvUnderTest::Strangers() const {
  std::vector<std::pair<std::string, Pointer>> strangers;
  const auto add = [&](const std::string& what, auto change) {
    KvLayerShape shape = shape_;
    change(shape);
    strangers.emplace_back(what, Of(shape, dtype_));
  };
  add("kv_heads", [](KvLayerShape& s) { ++s.kv_heads; });
  add("head_dim", [&](KvLayerShape& s) { s.head_dim += InfoOf(dtype_).block_elements; });
  add("window", [](KvLayerShape& s) { ++s.window; });
  // Of the same size where it can be.
  strangers.emplace_back("dtype", Of(shape_, dtype_ == DType::kF16 ? DType::kBF16 : DType::kF16));
  return strangers;
}

size_t KvUnderTest::most_growths(size_t rows) const {
  constexpr size_t kDoublings = 3;  // of a tail behind shared rows
  switch (growth_.policy) {
    case KvPolicy::kIterative: return SIZE_MAX;
    case KvPolicy::kGeometric: return 3 + kDoublings;
    default: break;
  }
  if (ahead_) return 4 * rows / (3 * growth_.increment) + 2 + kDoublings;
  return (growth_.policy == KvPolicy::kPaged ? 2 : 1) * rows / growth_.increment + 2 + kDoublings;
}

void KvUnderTest::Write(LayerState& layer, size_t step_row, std::span<const std::byte> row) const {
  const KvLayer::StepRows rows = Layer(layer).View();
  const size_t heads = shape_.kv_heads, row_bytes = shape_.RowBytes(dtype_);
  for (size_t part = 0; part < 2 * heads; ++part) {
    std::byte* base = part < heads ? rows.k : rows.v;
    const size_t first = (part % heads) * rows.head_stride + step_row * shape_.head_dim;  // elements
    std::memcpy(base + Bytes(first), row.data() + part * row_bytes, row_bytes);
  }
}

std::string KvUnderTest::Difference(LayerState& layer, size_t step_rows, std::span<const std::byte> rows,
                                    size_t needed) const {
  return DescribeRows(rows, Read(layer, step_rows), needed);
}

std::string KvUnderTest::DescribeRows(std::span<const std::byte> expected, const RowsKept& found, size_t needed) const {
  const size_t positions = expected.size() / row_bytes();
  if (found.rows.empty() && needed == positions) return {};
  if (found.first > needed) {
    return "rows from " + std::to_string(needed) + " on are needed, found from " + std::to_string(found.first) + " on";
  }
  if (found.first * row_bytes() + found.rows.size() != expected.size()) {
    return "expected " + std::to_string(positions) + " rows, found " + std::to_string(found.first) + " + " +
           std::to_string(found.rows.size() / row_bytes());
  }
  const auto from = static_cast<std::ptrdiff_t>(needed * row_bytes());
  const auto [at, other] =
      std::mismatch(expected.begin() + from, expected.end(),
                    found.rows.begin() + from - static_cast<std::ptrdiff_t>(found.first * row_bytes()));
  if (at == expected.end()) return {};
  const auto byte = static_cast<size_t>(at - expected.begin());
  return "row " + std::to_string(byte / row_bytes()) + " of " + std::to_string(positions) + ", byte " +
         std::to_string(byte % row_bytes()) + ": expected " + std::to_string(std::to_integer<int>(*at)) + ", found " +
         std::to_string(std::to_integer<int>(*other));
}

KvUnderTest::RowsKept KvUnderTest::Read(LayerState& layer, size_t step_rows) const {
  const size_t heads = shape_.kv_heads, row_bytes = shape_.RowBytes(dtype_);
  RowsKept out;
  std::optional<size_t> next;
  for (const KvSpan& span : Layer(layer).Context(step_rows)) {
    TIDEMILL_CHECK(span.first == next.value_or(span.first) && span.rows != 0);
    if (!next) out.first = span.first;
    for (size_t r = 0; r < span.rows; ++r) {
      for (size_t part = 0; part < 2 * heads; ++part) {
        const size_t head = (part % heads) * span.head_stride, dim = shape_.head_dim;
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

size_t KvUnderTest::Poison(LayerState& layer, size_t needed) const {
  KvLayer& kv = Layer(layer);
  const KvLayer::StepRows rows = kv.View();
  const auto context = kv.Context(0);
  const size_t row_bytes = shape_.RowBytes(dtype_);
  if (context.empty() || context.back().first >= needed || kv.seen_rows() != 0) return 0;
  const KvSpan& tail = context.back();
  if (tail.k + tail.rows * row_bytes != rows.k) return 0;  // nothing is in the block that the step writes
  const size_t count = std::min(tail.rows, needed - tail.first);
  const size_t in_tiles = std::min(count, tail.transposed), dim = shape_.head_dim;
  for (size_t head = 0; head < shape_.kv_heads; ++head) {
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

void KvUnderTest::Touch(LayerState& layer, size_t step_rows) const {
  TIDEMILL_CHECK(Layer(layer).View().k != nullptr);
  TIDEMILL_CHECK(!Layer(layer).Context(step_rows).empty());
}

std::vector<const std::byte*> KvUnderTest::Addresses(LayerState& layer) const {
  std::vector<const std::byte*> out;
  for (const KvSpan& span : Layer(layer).Context(0)) {
    out.resize(span.first);
    for (size_t r = 0; r < span.rows; ++r) out.push_back(span.v + r * shape_.RowBytes(dtype_));
  }
  return out;
}

KvLayer& KvUnderTest::Layer(LayerState& layer) const {
  TIDEMILL_CHECK(KvLayer::Holds(layer.checkpoint_kind()));
  layer.Settle();
  auto& kv = static_cast<KvLayer&>(layer);
  TIDEMILL_CHECK(kv.dtype() == dtype_);
  return kv;
}

std::unique_ptr<LayerState> FoldUnderTest::Make(const SequenceOptions&) const {
  return std::make_unique<FoldState>(begin_);
}

std::vector<std::pair<std::string, LayerUnderTest::Pointer>> FoldUnderTest::Strangers() const {
  return {{"another fold", std::make_shared<FoldUnderTest>(begin_ + 1)},
          {"no fold",
           std::make_shared<KvUnderTest>(KvLayerShape{.kv_heads = 1, .head_dim = 32}, DType::kF16, KvGrowth(), false)}};
}

void FoldUnderTest::Write(LayerState& layer, size_t step_row, std::span<const std::byte> row) const {
  uint64_t word = 0;
  std::memcpy(&word, row.data(), sizeof(word));
  FoldOf(layer).Write(step_row, word);
}

std::string FoldUnderTest::Difference(LayerState& layer, size_t step_rows, std::span<const std::byte> rows,
                                      size_t) const {
  uint64_t value = begin_;
  for (size_t at = 0; at < rows.size(); at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, rows.data() + at, sizeof(word));
    value = Fold(value, word);
  }
  return FoldOf(layer).Value(step_rows) == value ? "" : "the fold is another one";
}

}  // namespace tidemill::testing
