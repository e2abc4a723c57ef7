#include "tests/support/state_kinds.h"

#include <cstring>
#include <utility>

#include "base/check.h"
#include "state/kv_cache.h"

namespace tidemill::testing {
namespace {

// A row is K of every head, then V of every head.
class KvCacheUnderTest : public StateKindUnderTest {
 public:
  KvCacheUnderTest(size_t layers, size_t kv_heads, size_t head_dim, DType dtype)
      : shape_{.layers = layers,
               .kv_heads = kv_heads,
               .head_dim = head_dim,
               .dtype = dtype,
               .max_length = 0,
               .model = kModel,
               .numeric_class = kNumericClass} {}

  std::string name() const override {
    return "KvCache" + std::string(InfoOf(shape_.dtype).name) + "Layers" + std::to_string(shape_.layers) + "Heads" +
           std::to_string(shape_.kv_heads) + "Dim" + std::to_string(shape_.head_dim);
  }

  std::unique_ptr<SequenceState> Make(size_t max_length) const override {
    KvShape shape = shape_;
    shape.max_length = max_length;
    return std::make_unique<KvCache>(shape);
  }

  std::vector<StrangerState> Strangers(size_t max_length) const override {
    std::vector<StrangerState> strangers;
    const auto add = [&](const std::string& what, auto change) {
      KvShape shape = shape_;
      shape.max_length = max_length;
      change(shape);
      strangers.push_back({what, std::make_unique<KvCache>(shape)});
    };
    add("model", [](KvShape& s) { ++s.model; });
    add("numeric class", [](KvShape& s) { ++s.numeric_class; });
    add("layers", [](KvShape& s) { ++s.layers; });
    add("kv_heads", [](KvShape& s) { ++s.kv_heads; });
    add("head_dim", [](KvShape& s) { ++s.head_dim; });
    add("dtype",
        [](KvShape& s) { s.dtype = s.dtype == DType::kF16 ? DType::kBF16 : DType::kF16; });  // same sizes where it can
    // The same number of bytes in another arrangement.
    add("layers and kv_heads", [](KvShape& s) {
      std::swap(s.layers, s.kv_heads);
      s.layers += s.layers == s.kv_heads;
    });
    return strangers;
  }

  size_t num_layers() const override { return shape_.layers; }
  size_t row_bytes() const override { return shape_.PositionBytes(); }
  uint64_t CommittedBytes(size_t length) const override {
    return uint64_t{2} * shape_.layers * shape_.kv_heads * shape_.head_dim * (shape_.dtype == DType::kF32 ? 4 : 2) *
           length;
  }
  size_t checkpoint_header_bytes() const override { return KvCache::kCheckpointHeaderBytes; }

  void Write(LayerState& layer, size_t step_row, std::span<const std::byte> row) const override {
    const KvLayer::StepRows rows = Layer(layer).View();
    for (size_t part = 0; part < 2 * shape_.kv_heads; ++part) {
      std::byte* base = part < shape_.kv_heads ? rows.k : rows.v;
      const size_t first = (part % shape_.kv_heads) * rows.head_stride + step_row * shape_.head_dim;  // elements
      std::memcpy(base + first * ElementBytes(), row.data() + part * shape_.RowBytes(), shape_.RowBytes());
    }
  }

  std::vector<std::byte> Read(LayerState& layer, size_t step_rows) const override {
    std::vector<std::byte> out;
    size_t next = 0;
    for (const KvSpan& span : Layer(layer).Context(step_rows)) {
      TIDEMILL_CHECK(span.first == next && span.rows != 0);
      for (size_t r = 0; r < span.rows; ++r) {
        for (size_t part = 0; part < 2 * shape_.kv_heads; ++part) {
          const std::byte* base = part < shape_.kv_heads ? span.k : span.v;
          const size_t first = (part % shape_.kv_heads) * span.head_stride + r * shape_.head_dim;
          out.insert(out.end(), base + first * ElementBytes(), base + first * ElementBytes() + shape_.RowBytes());
        }
      }
      next += span.rows;
    }
    return out;
  }

  void Touch(LayerState& layer, size_t step_rows) const override {
    TIDEMILL_CHECK(Layer(layer).View().k != nullptr);
    TIDEMILL_CHECK(!Layer(layer).Context(step_rows).empty());
  }

  std::vector<const std::byte*> Addresses(LayerState& layer) const override {
    std::vector<const std::byte*> out;
    for (const KvSpan& span : Layer(layer).Context(0)) {
      for (size_t r = 0; r < span.rows; ++r) out.push_back(span.v + r * shape_.RowBytes());
    }
    return out;
  }

 private:
  size_t ElementBytes() const { return InfoOf(shape_.dtype).block_bytes; }

  KvLayer& Layer(LayerState& layer) const {
    TIDEMILL_CHECK(layer.kind() == StateKind::kKvCache);
    auto& kv = static_cast<KvLayer&>(layer);
    TIDEMILL_CHECK(kv.dtype() == shape_.dtype);
    return kv;
  }

  KvShape shape_;  // max_length comes with Make
};

}  // namespace

const std::vector<std::unique_ptr<const StateKindUnderTest>>& AllStateKinds() {
  static const auto kinds = [] {
    std::vector<std::unique_ptr<const StateKindUnderTest>> all;
    all.push_back(std::make_unique<KvCacheUnderTest>(1, 1, 1, DType::kF16));
    all.push_back(std::make_unique<KvCacheUnderTest>(2, 3, 5, DType::kF16));
    all.push_back(std::make_unique<KvCacheUnderTest>(3, 2, 16, DType::kBF16));
    all.push_back(std::make_unique<KvCacheUnderTest>(2, 1, 7, DType::kF32));
    all.push_back(std::make_unique<KvCacheUnderTest>(1, 4, 8, DType::kF32));
    return all;
  }();
  return kinds;
}

std::vector<StateKindPointer> AllStateKindPointers() {
  std::vector<StateKindPointer> pointers;
  for (const auto& kind : AllStateKinds()) pointers.push_back(kind.get());
  return pointers;
}

}  // namespace tidemill::testing
