// A context of sparse attention for tests: logical keys and values, the same rows stored in spans, and in columns. What nobody may look at is NaN.
#ifndef TIDEMILL_KERNELS_TESTING_SPARSE_CONTEXT_H_
#define TIDEMILL_KERNELS_TESTING_SPARSE_CONTEXT_H_

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "kernels/key_tiles.h"
#include "kernels/sparse_attention.h"
#include "kernels/testing/bit_formulas.h"
#include "kernels/testing/seeded_inputs.h"
#include "tensor/dequantize.h"

namespace tidemill::testing {

struct SparseCase {
  size_t group = 1, kv_heads = 2, head_dim = 64;
  DType kv_dtype = DType::kF16;
  size_t positions = 1;  // stored rows: those before the step and its own
  std::vector<int32_t> parents = {};
  size_t step_rows = 1, row = 0;
  SparseForm form = {};
  std::vector<size_t> cuts = {};  // where a new span begins
  size_t transposed = 0;          // rows of each span, at most
  size_t filled = 0;              // positions in columns, a multiple of kSumRows
  bool columns = true;            // false: sums only
  size_t context_begin = 0, window = 0;
  float soft_cap = 0;
  size_t equal_keys = 0;  // so many distinct ones; 0: all
  uint64_t seed = 1;

  size_t first_position() const { return positions - step_rows; }
  std::string Name() const {
    std::string name = "group " + std::to_string(group) + " dim " + std::to_string(head_dim) + " ";
    name.append(InfoOf(kv_dtype).name).append(" positions ").append(std::to_string(positions));
    name.append(" step ").append(std::to_string(step_rows)).append(" row ").append(std::to_string(row));
    name.append(" r ").append(std::to_string(form.r)).append(" k ").append(std::to_string(form.k));
    name.append(" local ")
        .append(std::to_string(form.local))
        .append(form.rule == SparseRule::kEval ? " eval" : " paper");
    name.append(" filled ").append(std::to_string(filled)).append(columns ? " columns" : " sums");
    name.append(" cuts ").append(std::to_string(cuts.size())).append(" tiles ").append(std::to_string(transposed));
    name.append(" window ").append(std::to_string(window)).append(" begin ").append(std::to_string(context_begin));
    return name.append(" cap ").append(std::to_string(soft_cap)).append(" seed ").append(std::to_string(seed));
  }
};

class SparseContext {
 public:
  explicit SparseContext(const SparseCase& c)
      : case_(c),
        q_(RandomFloats(c.seed, c.kv_heads * c.group * c.head_dim)),
        k_(RandomFloats(c.seed + 1, c.kv_heads * c.positions * c.head_dim, 4)),
        v_(RandomFloats(c.seed + 2, c.kv_heads * c.positions * c.head_dim, 3)),
        shape_{.heads = c.kv_heads * c.group,
               .kv_heads = c.kv_heads,
               .head_dim = c.head_dim,
               .scale = 1 / std::sqrt(static_cast<float>(c.head_dim)),
               .kv_dtype = c.kv_dtype,
               .soft_cap = c.soft_cap,
               .window = c.window,
               .bias = {}} {
    if (c.equal_keys != 0) {
      const size_t dim = c.head_dim;
      for (size_t row = c.equal_keys; row < c.kv_heads * c.positions; ++row)
        std::copy_n(k_.begin() + static_cast<std::ptrdiff_t>(row % c.equal_keys * dim), dim,
                    k_.begin() + static_cast<std::ptrdiff_t>(row * dim));
    }
    Store();
  }
  SparseContext(const SparseContext&) = delete;
  SparseContext& operator=(const SparseContext&) = delete;

  const AttentionShape& shape() const { return shape_; }
  std::vector<float>& q() { return q_; }
  std::vector<float>& k() { return k_; }  // [kv_heads, positions, head_dim]
  std::vector<float>& v() { return v_; }
  PlainContext plain() const { return {k_, v_, case_.context_begin, case_.positions}; }
  std::span<const KvSpan> spans() const { return spans_; }

  // Again, after logical keys, values or the layout were changed.
  void Store() {
    for (auto [values, rows] : {std::pair{&k_, &k_rows_}, std::pair{&v_, &v_rows_}}) {
      rows->assign(RowBytes(case_.kv_dtype, values->size()), std::byte{0});
      testing::StoreRow(case_.kv_dtype, *values, rows->data());
      DequantizeRow(case_.kv_dtype, *rows, *values);  // what the stored type can hold
    }
    spans_.clear();
    stored_.clear();
    std::vector<size_t> edges = {case_.context_begin};
    for (const size_t cut : case_.cuts) {
      if (cut > case_.context_begin && cut < case_.positions) edges.push_back(cut);
    }
    edges.push_back(case_.positions);
    stored_.reserve(2 * edges.size());
    for (size_t i = 0; i + 1 < edges.size(); ++i) AddSpan(edges[i], edges[i + 1]);
    StoreColumns();
  }
  void Relayout(size_t filled, bool columns, std::vector<size_t> cuts, size_t transposed) {
    case_.filled = filled;
    case_.columns = columns;
    case_.cuts = std::move(cuts);
    case_.transposed = transposed;
    Store();
  }
  SparseTask Task(float* out) const {
    return {.form = &case_.form,
            .context = spans_,
            .columns = {.blocks = blocks_, .first = first_block_, .filled = case_.filled},
            .first_position = case_.first_position(),
            .parents = case_.parents,
            .row = case_.row,
            .q = q_.data(),
            .out = out};
  }

  // Bytes of element i of a key or value as it is stored, or of a column; nothing where blocks share a scale.
  std::byte* Key(size_t kv_head, size_t row, size_t i) { return Element(true, kv_head, row, i); }
  std::byte* Value(size_t kv_head, size_t row, size_t i) { return Element(false, kv_head, row, i); }
  std::byte* Column(size_t kv_head, size_t position, size_t i) {
    const size_t element = RowBytes(case_.kv_dtype, 1);
    return columns_[position / kColumnRows - first_block_].data() +
           ((kv_head * case_.head_dim + i) * kColumnRows + position % kColumnRows) * element;
  }
  size_t first_block() const { return first_block_; }

 private:
  void AddSpan(size_t begin, size_t end) {
    const size_t dim = case_.head_dim, rows = end - begin, spare = 3 + begin % 5;
    const size_t head_stride = (rows + spare) * dim + 7 * InfoOf(case_.kv_dtype).block_elements;
    const auto bytes_of = [&](size_t elements) { return RowBytes(case_.kv_dtype, elements); };
    const size_t tiles =
        HasKeyTiles(case_.kv_dtype) ? std::min(case_.transposed, rows) / kKeyTileRows * kKeyTileRows : 0;
    for (const std::vector<std::byte>* from : {&k_rows_, &v_rows_}) {
      std::vector<std::byte> bytes(bytes_of(case_.kv_heads * head_stride), std::byte{0xFF});  // NaN in every type
      for (size_t h = 0; h < case_.kv_heads; ++h) {
        std::memcpy(bytes.data() + bytes_of(h * head_stride),
                    from->data() + bytes_of((h * case_.positions + begin) * dim), bytes_of(rows * dim));
        for (size_t row = 0; from == &k_rows_ && row < tiles; row += kKeyTileRows)
          TransposeKeys(case_.kv_dtype, dim, bytes.data() + bytes_of(h * head_stride + row * dim));
      }
      stored_.push_back(std::move(bytes));
    }
    spans_.push_back({.k = stored_[stored_.size() - 2].data(),
                      .v = stored_.back().data(),
                      .head_stride = head_stride,
                      .first = begin,
                      .rows = rows,
                      .transposed = tiles});
  }

  // Blocks that nobody needs who sees positions from the row's window on are not there.
  void StoreColumns() {
    const size_t dim = case_.head_dim, element = RowBytes(case_.kv_dtype, 1);
    const size_t end = case_.first_position() + 1;
    const size_t seen = case_.window == 0 || end < case_.window ? 0 : end - case_.window;
    first_block_ = seen == 0 ? 0 : (seen - 1) / kColumnRows;
    blocks_.clear();
    columns_.clear();
    sums_.clear();
    std::vector<double> total(case_.kv_heads * dim);
    std::vector<std::vector<double>> all;
    for (size_t first = 0; first < case_.filled; first += kSumRows) {
      for (size_t h = 0; h < case_.kv_heads; ++h) {
        for (size_t i = 0; i < dim; ++i) {
          double granule = 0;
          for (size_t j = first; j < first + kSumRows; ++j)
            granule += static_cast<double>(v_[(h * case_.positions + j) * dim + i]);
          total[h * dim + i] += granule;
        }
      }
      all.push_back(total);
    }
    const bool columns = case_.columns && HasKeyTiles(case_.kv_dtype);
    for (size_t base = first_block_ * kColumnRows; base < case_.filled; base += kColumnRows) {
      std::vector<double> sums(kColumnRows / kSumRows * case_.kv_heads * dim, std::nan(""));
      for (size_t g = 0; g < kColumnRows / kSumRows && base + g * kSumRows < case_.filled; ++g)
        std::copy(all[base / kSumRows + g].begin(), all[base / kSumRows + g].end(),
                  sums.begin() + static_cast<std::ptrdiff_t>(g * case_.kv_heads * dim));
      sums_.push_back(std::move(sums));
      columns_.emplace_back(columns ? case_.kv_heads * dim * kColumnRows * element : 0, std::byte{0xFF});
      for (size_t j = base; columns && j < std::min(base + kColumnRows, case_.filled); ++j) {
        for (size_t x = 0; x < case_.kv_heads * dim; ++x)
          std::memcpy(Column(x / dim, j, x % dim),
                      k_rows_.data() + ((x / dim * case_.positions + j) * dim + x % dim) * element, element);
      }
    }
    for (size_t i = 0; i < sums_.size(); ++i)
      blocks_.push_back({.columns = columns ? columns_[i].data() : nullptr, .sums = sums_[i].data()});
  }

  std::byte* Element(bool key, size_t kv_head, size_t row, size_t i) {
    for (size_t s = 0; s < spans_.size(); ++s) {
      const KvSpan& span = spans_[s];
      if (row < span.first || row >= span.first + span.rows) continue;
      const size_t element =
          kv_head * span.head_stride + KeyElement(key ? span.transposed : 0, case_.head_dim, row - span.first, i);
      return stored_[2 * s + (key ? 0 : 1)].data() + RowBytes(case_.kv_dtype, element);
    }
    return nullptr;
  }

  SparseCase case_;
  std::vector<float> q_, k_, v_;
  AttentionShape shape_;
  std::vector<std::byte> k_rows_, v_rows_;  // as stored: per KV head [positions, head_dim]
  std::vector<KvSpan> spans_;
  std::vector<std::vector<std::byte>> stored_, columns_;
  std::vector<std::vector<double>> sums_;
  std::vector<ColumnBlock> blocks_;
  size_t first_block_ = 0;
};

// What a run of one task said.
struct SparseRunResult {
  std::vector<float> out, alpha;
  std::vector<uint32_t> kept;
  std::vector<uint8_t> was_dense;
  SparseAudit audit;

  SparseRunResult(const AttentionShape& shape, size_t k)
      : out(shape.heads * shape.head_dim, std::nanf("")),
        alpha(shape.heads, std::nanf("")),
        kept(shape.kv_heads * k, UINT32_MAX),
        was_dense(shape.kv_heads, 2) {}
  SparseResult wanted() { return {.alpha = alpha, .kept = kept, .was_dense = was_dense}; }
};

}  // namespace tidemill::testing

#endif  // TIDEMILL_KERNELS_TESTING_SPARSE_CONTEXT_H_
