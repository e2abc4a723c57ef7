#include "tests/support/sparse_under_test.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "tensor/half.h"

namespace tidemill::testing {
namespace {

double ValueOf(DType dtype, const std::byte* row, size_t i) {
  uint16_t half = 0;
  float value = 0;
  switch (dtype) {
    case DType::kF32: std::memcpy(&value, row + 4 * i, sizeof(value)); return value;
    case DType::kF16: std::memcpy(&half, row + 2 * i, sizeof(half)); return HalfToFloat(half);
    case DType::kBF16: std::memcpy(&half, row + 2 * i, sizeof(half)); return BFloat16ToFloat(half);
    default: break;
  }
  const std::byte* block = row + i / 32 * 34;
  std::memcpy(&half, block, sizeof(half));
  return HalfToFloat(half) * static_cast<float>(static_cast<int8_t>(block[2 + i % 32]));
}

std::string At(const std::string& what, size_t position, size_t head, size_t i) {
  return what + " " + std::to_string(position) + ", head " + std::to_string(head) + ", component " + std::to_string(i);
}

}  // namespace

void MakeFinite(DType dtype, std::span<std::byte> row) {
  const size_t block = InfoOf(dtype).block_bytes;
  const bool low = dtype == DType::kBF16 || dtype == DType::kF32;  // the exponent's last bit is the highest of a byte
  const size_t byte = dtype == DType::kF32 ? 2 : dtype == DType::kBF16 ? 0 : 1;
  for (size_t at = byte; at < row.size(); at += block) row[at] &= low ? std::byte{0x7F} : std::byte{0xFB};
}

std::string ColumnDifference(const SparseKvLayer& layer, std::span<const std::byte> rows, size_t needed) {
  const KvLayerShape& shape = layer.shape();
  const DType dtype = layer.dtype();
  const size_t heads = shape.kv_heads, dim = shape.head_dim, row_bytes = shape.RowBytes(dtype);
  const size_t positions = rows.size() / shape.PositionBytes(dtype), filled = positions / kSumRows * kSumRows;
  const size_t first_needed = needed / kSumRows * kSumRows, element = RowBytes(dtype, 1);
  const ContextColumns found = layer.Columns();
  if (found.filled != filled)
    return "filled: expected " + std::to_string(filled) + ", found " + std::to_string(found.filled);
  if (filled == 0) return found.blocks.empty() ? "" : "blocks of nothing";
  const size_t last_unneeded = std::min(first_needed, filled);
  if (found.first * kColumnRows > last_unneeded - std::min<size_t>(last_unneeded, 1))
    return "needed blocks are missing";
  if (found.first + found.blocks.size() != (filled + kColumnRows - 1) / kColumnRows) return "number of blocks";
  const auto row = [&](size_t position, bool value, size_t head) {
    return rows.data() + position * shape.PositionBytes(dtype) + ((value ? heads : 0) + head) * row_bytes;
  };
  const bool has_columns = layer.column_store().has_columns();
  for (size_t head = 0; head < heads; ++head) {
    for (size_t i = 0; i < dim; ++i) {
      double before = 0;
      for (size_t granule = 0; granule < filled / kSumRows; ++granule) {
        double sum = 0;
        for (size_t r = 0; r < kSumRows; ++r) sum += ValueOf(dtype, row(granule * kSumRows + r, true, head), i);
        before += sum;
        const size_t first = granule * kSumRows;
        if (first + kSumRows < first_needed || first < found.first * kColumnRows) continue;
        const ColumnBlock& block = found.blocks[first / kColumnRows - found.first];
        const double sums = block.sums[(first % kColumnRows / kSumRows * heads + head) * dim + i];
        if (std::bit_cast<uint64_t>(sums) != std::bit_cast<uint64_t>(before))
          return At("sum of granule at", first, head, i);
        if ((block.columns != nullptr) != has_columns) return "a block with columns, another without";
        for (size_t r = first; r < first + kSumRows && has_columns && first >= first_needed; ++r) {
          const std::byte* column = block.columns + ((head * dim + i) * kColumnRows + r % kColumnRows) * element;
          if (std::memcmp(column, row(r, false, head) + i * element, element) != 0) return At("key", r, head, i);
        }
      }
    }
  }
  return {};
}

std::string SparseUnderTest::name() const {
  static constexpr const char* kForms[] = {"", "Sparq", "Topk", "H2o", "Last"};
  return "Sparse" + std::string(kForms[static_cast<size_t>(form_.kind)]) + (columns_ ? "" : "Rows") +
         KvUnderTest::name();
}

std::unique_ptr<LayerState> SparseUnderTest::Make(const SequenceOptions& options) const {
  return std::make_unique<SparseKvLayer>(shape(), OptionsOf(options), form_, columns_);
}

std::vector<std::pair<std::string, LayerUnderTest::Pointer>> SparseUnderTest::Strangers() const {
  auto strangers = KvUnderTest::Strangers();
  if (has_word()) {
    strangers.emplace_back("keys in rows only", std::make_shared<KvUnderTest>(shape(), dtype(), growth(), ahead()));
  }
  SparseForm form = form_;
  form.kind = form_.kind == SparseKind::kH2o ? SparseKind::kWindow : SparseKind::kH2o;
  strangers.emplace_back("eviction",
                         std::make_shared<SparseUnderTest>(shape(), dtype(), growth(), ahead(), form, columns_));
  return strangers;
}

size_t SparseUnderTest::most_growths(size_t rows) const {
  const size_t of_rows = KvUnderTest::most_growths(rows);
  return of_rows == SIZE_MAX ? of_rows : of_rows + rows / kColumnRows + 3;
}

uint64_t SparseUnderTest::CommittedBytes(size_t length, size_t earliest) const {
  const size_t first = FirstKept(earliest), heads = shape().kv_heads;
  return row_bytes() * (length - first) + (first == 0 ? 0 : heads * shape().head_dim * sizeof(double)) +
         (has_word() ? 8 : 0) + (form_.kind == SparseKind::kH2o ? 4 * heads * length : 0);
}

bool SparseUnderTest::GaveUp(const LayerState& layer) const {
  return static_cast<const SparseKvLayer&>(layer).column_store().gave_up();
}

uint64_t SparseUnderTest::ReadBytes(const LayerState& layer, size_t length, size_t draft_rows) const {
  const size_t n = window() == 0 ? length : std::min(length, window());
  if (form_.kind == SparseKind::kDense || n <= form_.k) return KvUnderTest::ReadBytes(layer, length, draft_rows);
  const bool in_columns = columns_ && dtype() != DType::kQ8_0 && !GaveUp(layer);
  const size_t settled = static_cast<const SparseKvLayer&>(layer).column_store().filled();
  const size_t filled = settled - std::min(settled, length - n);
  const size_t row = row_bytes() / 2, kept = form_.k * row_bytes();  // of all KV heads
  const bool is_exact = form_.kind == SparseKind::kTopk || form_.r == shape().head_dim;
  switch (form_.kind) {
    case SparseKind::kSparq:
    case SparseKind::kTopk: {
      const size_t r = is_exact ? shape().head_dim : form_.r, columns = in_columns ? filled : 0;
      const size_t line = std::min(row, r * 64 * shape().kv_heads);  // of one key: whole cache lines
      const bool has_mean = form_.kind == SparseKind::kSparq && form_.reallocate;
      const size_t sums = filled == 0 ? 0 : 8 * shape().head_dim * shape().kv_heads;
      return kept + columns * (row / shape().head_dim * r) + (n - columns) * line +
             (has_mean ? (n - filled) * row + sums : 0);
    }
    case SparseKind::kH2o: return kept + 4 * n * shape().kv_heads;
    default: return kept;
  }
}

std::string SparseUnderTest::Difference(LayerState& layer, size_t step_rows, std::span<const std::byte> rows,
                                        size_t needed) const {
  std::string difference = KvUnderTest::Difference(layer, step_rows, rows, needed);
  if (!difference.empty()) return difference;
  const auto& sparse = static_cast<const SparseKvLayer&>(layer);
  difference = ColumnDifference(sparse, rows.first(rows.size() - step_rows * row_bytes()), needed);
  return difference.empty() ? difference : "columns: " + difference;
}

size_t SparseUnderTest::Poison(LayerState& layer, size_t needed) const {
  return KvUnderTest::Poison(layer, needed / kSumRows * kSumRows);
}

}  // namespace tidemill::testing
