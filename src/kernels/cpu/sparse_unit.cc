#include "kernels/cpu/sparse_unit.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <utility>

#include "base/check.h"
#include "tensor/dequantize.h"

// Beside each read of keys, values, sums and queries, and the write of the result: a test counts them (sparse_cost_test.cc).
#ifndef TIDEMILL_TOUCHED
#define TIDEMILL_TOUCHED(bytes) static_cast<void>(0)
#endif

namespace tidemill {
namespace {

// Of types without blocks; others stand in rows only.
size_t ElementBytes(DType dtype) { return InfoOf(dtype).block_bytes; }

void PrefetchRow(const std::byte* at, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(at + i);
}

// Rows that are fetched ahead of the one that is copied.
constexpr size_t kRowsAhead = 8;

}  // namespace

RowContext::RowContext(const AttentionShape& shape, std::span<const KvSpan> context, size_t first,
                       std::span<const int32_t> nodes, size_t query_row)
    : spans(context),
      parents(nodes),
      first_position(first),
      row(query_row),
      position(first + AncestorsOf(nodes, query_row)),
      begin(std::max(context.front().first,
                     shape.window == 0 || position + 1 < shape.window ? 0 : position + 1 - shape.window)),
      end(position + 1) {}

size_t RowContext::StoredAt(size_t at) const {
  if (at < shared_end()) return at;
  auto node = static_cast<int32_t>(row);
  for (size_t i = position; i > at; --i) node = parents[static_cast<size_t>(node)];
  return first_position + static_cast<size_t>(node);
}

StoredRow RowContext::At(const AttentionShape& shape, size_t kv_head, size_t at) const {
  const size_t stored = StoredAt(at);
  while (stored < spans[span_].first) --span_;
  while (stored >= spans[span_].first + spans[span_].rows) ++span_;
  const KvSpan& span = spans[span_];
  const size_t r = stored - span.first, head = kv_head * span.head_stride;
  const bool transposed = r < span.transposed;
  const size_t key = transposed ? RowBytes(shape.kv_dtype, head + r / kKeyTileRows * kKeyTileRows * shape.head_dim) +
                                      r % kKeyTileRows * ElementBytes(shape.kv_dtype)
                                : RowBytes(shape.kv_dtype, head + r * shape.head_dim);
  return {span.k + key, span.v + RowBytes(shape.kv_dtype, head + r * shape.head_dim), transposed};
}

SparseScratch::SparseScratch(const AttentionShape& shape, std::span<std::byte> bytes) {
  TIDEMILL_DCHECK(bytes.size() >= Bytes(shape));
  std::byte* at = bytes.data();
  const auto take = [&at](size_t count) { return std::exchange(at, at + RoundUp<size_t>(count, 64)); };
  const size_t rows = kAttentionChunk * RowBytes(shape.kv_dtype, shape.head_dim);
  tile = {take(TileRunBytes(shape)), TileRunBytes(shape)};
  k = take(rows);
  v = take(rows);
  gathered = reinterpret_cast<float*>(take(shape.head_dim * 16 * sizeof(float)));
  select = reinterpret_cast<int32_t*>(take(kSelectInts * sizeof(int32_t)));
  row = reinterpret_cast<float*>(take(shape.head_dim * sizeof(float)));
  sums = reinterpret_cast<double*>(take(2 * PaddedDim(shape) * sizeof(double)));
  dense = reinterpret_cast<float*>(take(shape.heads * shape.head_dim * sizeof(float)));
}

size_t SparseScratch::Bytes(const AttentionShape& shape) {
  const size_t rows = kAttentionChunk * RowBytes(shape.kv_dtype, shape.head_dim);
  size_t bytes = 0;
  for (const size_t part : {TileRunBytes(shape), rows, rows, shape.head_dim * 16 * sizeof(float),
                            kSelectInts * sizeof(int32_t), shape.head_dim * sizeof(float),
                            2 * PaddedDim(shape) * sizeof(double), shape.heads * shape.head_dim * sizeof(float)})
    bytes += RoundUp<size_t>(part, 64);
  return bytes;
}

void CopyKey(const AttentionShape& shape, const StoredRow& row, std::byte* to) {
  if (!row.transposed) {
    std::memcpy(to, row.k, RowBytes(shape.kv_dtype, shape.head_dim));
    return;
  }
  const size_t element = ElementBytes(shape.kv_dtype);
  for (size_t d = 0; d < shape.head_dim; ++d)
    std::memcpy(to + d * element, row.k + d * kKeyTileRows * element, element);
}

void AttendPositions(const AttentionShape& shape, const SparseTools& tools, const RowContext& context, size_t kv_head,
                     std::span<const uint32_t> positions, const float* q, float* out, SparseScratch& scratch) {
  AttentionShape plain = shape;  // of the gathered rows
  plain.window = plain.sink = 0;
  const size_t bytes = RowBytes(shape.kv_dtype, shape.head_dim);
  const size_t cols = shape.heads * shape.head_dim;
  KvSpan span{.k = scratch.k, .v = scratch.v, .head_stride = 0, .first = 0, .rows = 0};
  const AttentionTask task{.context = {&span, 1},
                           .first_position = 0,
                           .visibility = Visibility::kAll,
                           .q = ConstMatrix<float>(q, 1, cols),
                           .out = Matrix<float>(out, 1, cols)};
  TileRun run(plain, tools.attention, task, kv_head, 0, 1, scratch.tile);
  for (size_t first = 0; first < positions.size(); first += kAttentionChunk) {
    span.first = first;
    span.rows = std::min(kAttentionChunk, positions.size() - first);
    for (size_t i = 0; i < span.rows; ++i) {
      if (first + i + kRowsAhead < positions.size()) {
        const StoredRow ahead = context.At(shape, kv_head, positions[first + i + kRowsAhead]);
        if (!ahead.transposed) PrefetchRow(ahead.k, bytes);
        PrefetchRow(ahead.v, bytes);
      }
      const StoredRow row = context.At(shape, kv_head, positions[first + i]);
      CopyKey(shape, row, scratch.k + i * bytes);
      std::memcpy(scratch.v + i * bytes, row.v, bytes);
      TIDEMILL_TOUCHED(2 * bytes);
    }
    if (run.Attend(first)) run.JoinChunk();
  }
  run.Finish();
}

SparseUnit::Memory::Memory(const AttentionShape& shape, size_t chunks, std::byte* at) {
  const size_t group = shape.heads / shape.kv_heads, dim = shape.head_dim, wide = RoundUp<size_t>(group, 16);
  bytes = 0;
  const auto take = [&](size_t count) -> std::byte* {
    const size_t from = std::exchange(bytes, bytes + RoundUp<size_t>(count * 4, 64));
    return at == nullptr ? nullptr : at + from;
  };
  index = reinterpret_cast<uint32_t*>(take(dim));
  natural = reinterpret_cast<uint32_t*>(take(dim));
  q = reinterpret_cast<float*>(take(group * dim));
  c = reinterpret_cast<float*>(take(group));
  m = reinterpret_cast<float*>(take(chunks * wide));
  l = reinterpret_cast<float*>(take(chunks * wide));
  p = reinterpret_cast<float*>(take(chunks * group * kAttentionChunk));
  keys = reinterpret_cast<int32_t*>(take(chunks * kAttentionChunk));
  exact_keys = reinterpret_cast<int32_t*>(take(chunks * kAttentionChunk));
}

size_t SparseUnit::Bytes(const AttentionShape& shape, size_t positions) {
  return Memory(shape, DivideRoundUp(positions, kAttentionChunk) + 1, nullptr).bytes;
}

SparseUnit::SparseUnit(const AttentionShape& shape, const SparseTools& tools, const SparseTask& task, size_t kv_head,
                       std::byte* memory)
    : shape_(shape),
      tools_(tools),
      task_(task),
      kv_head_(kv_head),
      group_(shape.heads / shape.kv_heads),
      context_(shape, task.context, task.first_position, task.parents, task.row),
      seen_(context_.end - context_.begin),
      first_chunk_(context_.begin / kAttentionChunk),
      num_chunks_(DivideRoundUp(context_.end, kAttentionChunk) - first_chunk_),
      dense_(seen_ <= task.form->k || task.form->floor >= 1),
      r_(task.form->kind == SparseKind::kTopk ? shape.head_dim : task.form->r),
      memory_(shape, num_chunks_, memory),
      keys_(memory_.keys) {
  TIDEMILL_DCHECK(r_ >= 1 && r_ <= shape.head_dim);
  TIDEMILL_DCHECK(task.form->local >= 1 && task.form->local <= task.form->k);
  TIDEMILL_DCHECK(context_.end <= task.context.back().first + task.context.back().rows);
}

void SparseUnit::Prepare() {
  if (dense_) return;
  const size_t dim = shape_.head_dim;
  const float* q = task_.q + kv_head_ * group_ * dim;
  uint64_t order[kMaxHeadDim];  // sums of the group, greatest first, then the lower component
  for (size_t i = 0; i < dim; ++i) {
    float sum = 0;
    for (size_t h = 0; h < group_; ++h) sum += std::fabs(q[h * dim + i]);
    order[i] = uint64_t{std::bit_cast<uint32_t>(sum)} << 32 | (UINT32_MAX - i);
    memory_.natural[i] = static_cast<uint32_t>(i);
  }
  if (r_ < dim) std::nth_element(order, order + r_, order + dim, std::greater<>());
  for (size_t i = 0; i < r_; ++i) memory_.index[i] = UINT32_MAX - static_cast<uint32_t>(order[i]);
  std::sort(memory_.index, memory_.index + r_);
  for (size_t h = 0; h < group_; ++h) {
    float chosen = 0, all = 0;
    for (size_t i = 0; i < dim; ++i) all += std::fabs(q[h * dim + i]);
    for (size_t i = 0; i < r_; ++i) {
      const float x = memory_.q[h * r_ + i] = q[h * dim + memory_.index[i]];
      chosen += std::fabs(x);
    }
    memory_.c[h] = chosen == 0 ? 0 : shape_.scale / std::sqrt(chosen / all);
  }
}

void SparseUnit::PrepareExact() {
  r_ = shape_.head_dim;
  keys_ = memory_.exact_keys;
  Prepare();
}

void SparseUnit::Score(size_t first_chunk, size_t end_chunk, SparseScratch& scratch) {
  if (dense_) return;
  for (size_t chunk = first_chunk; chunk < std::min(end_chunk, num_chunks_); ++chunk) ScoreChunk(chunk, scratch);
}

void SparseUnit::ScoreChunk(size_t chunk, SparseScratch& scratch) {
  const size_t base = (first_chunk_ + chunk) * kAttentionChunk;
  const size_t from = std::max(base, context_.begin), to = std::min(base + kAttentionChunk, context_.end);
  AttentionShape capped = shape_;  // already, below
  capped.soft_cap = 0;
  const float* q[kMaxGroup];
  SeenRanges seen[kMaxGroup];
  for (size_t h = 0; h < group_; ++h) {
    q[h] = task_.q + (kv_head_ * group_ + h) * shape_.head_dim;
    seen[h] = {.begin = from - base, .end = to - base};
  }
  float *m = memory_.m + chunk * stride(), *l = memory_.l + chunk * stride();
  std::fill(m, m + stride(), 0.0F);
  std::fill(l, l + stride(), 1.0F);
  AttentionTile tile{.shape = &capped,
                     .padded_dim = PaddedDim(shape_),
                     .vectors = group_,
                     .q = q,
                     .seen = seen,
                     .position = nullptr,
                     .head = nullptr,
                     .chunk_first = base,
                     .keys = to - base,
                     .scored = 0,
                     .kt = reinterpret_cast<float*>(scratch.tile.data()),
                     .v = nullptr,
                     .scores = memory_.p + chunk * group_ * kAttentionChunk,
                     .m = m,
                     .l = l,
                     .o = nullptr};
  if (r_ == shape_.head_dim && r_ % 16 == 0) {
    ScoreStored(tile, from, to);
  } else {
    size_t columns_end = from;
    if (in_columns() && base / kColumnRows >= task_.columns.first)
      columns_end = std::clamp(task_.columns.filled, from, to);
    if (columns_end > from) ScoreColumns(base, from, columns_end, tile.scores);
    if (columns_end < to) ScoreRows(base, columns_end, to, tile.scores, scratch);
  }
  if (shape_.soft_cap != 0) tools_.sparse.cap(shape_.soft_cap, group_ * kAttentionChunk, tile.scores);
  if (task_.form->rule == SparseRule::kEval)
    tools_.sparse.add_scores(group_, tile.scores, keys_ + chunk * kAttentionChunk);
  tools_.attention.softmax(tile);
}

// All components, from the rows as attention reads them.
void SparseUnit::ScoreStored(AttentionTile& tile, size_t from, size_t to) {
  const auto score = [&](size_t begin, size_t end, size_t origin) {
    ForPieces(shape_, context_.spans, kv_head_, begin, end, origin,
              [&](const StoredKeys& k, const std::byte*, size_t first, size_t last) {
                TIDEMILL_TOUCHED((last - first) * RowBytes(shape_.kv_dtype, shape_.head_dim));
                tools_.attention.row.score(tile, k, k.at, first, last - first);
              });
  };
  const size_t base = tile.chunk_first, shared = std::clamp(context_.shared_end(), from, to);
  score(from, shared, base);
  for (size_t j = shared; j < to; ++j) {
    const size_t stored = context_.StoredAt(j);
    score(stored, stored + 1, stored - (j - base));
  }
}

void SparseUnit::ScoreColumns(size_t base, size_t from, size_t to, float* scores) {
  const size_t dim = shape_.head_dim, element = ElementBytes(shape_.kv_dtype);
  const auto at = [&](size_t position) {
    const size_t block = position / kColumnRows - task_.columns.first;
    return task_.columns.blocks[block].columns + (kv_head_ * dim * kColumnRows + position % kColumnRows) * element;
  };
  const size_t begin = from / kSumRows * kSumRows, ahead = begin + kColumnRows;
  const std::byte* here = at(begin);
  const std::byte* next = ahead < task_.columns.filled ? at(ahead) : here;
  TIDEMILL_TOUCHED((RoundUp(to, kSumRows) - begin) * r_ * element);
  tools_.sparse.score({.at = here,
                       .next = next,
                       .dtype = shape_.kv_dtype,
                       .index = memory_.index,
                       .stride = kColumnRows,
                       .r = r_,
                       .positions = RoundUp(to, kSumRows) - begin},
                      group_, memory_.q, memory_.c, scores + (begin - base));
}

void SparseUnit::ScoreRows(size_t base, size_t from, size_t to, float* scores, SparseScratch& scratch) {
  for (size_t first = from / 16 * 16; first < to; first += 16) {
    SixteenRows rows;
    for (size_t l = 0; l < 16; ++l) {  // those that are not seen: one that is
      const StoredRow row = context_.At(shape_, kv_head_, std::clamp(first + l, from, to - 1));
      rows.row[l] = row.k;
      rows.step[l] = row.transposed ? kKeyTileRows : 1;
    }
    TIDEMILL_TOUCHED((std::min(first + 16, to) - std::max(first, from)) * r_ *
                     RowBytes(shape_.kv_dtype, shape_.head_dim) / shape_.head_dim);
    tools_.sparse.gather(shape_.kv_dtype, rows, memory_.index, r_, scratch.gathered);
    const auto* at = reinterpret_cast<const std::byte*>(scratch.gathered);
    tools_.sparse.score(
        {.at = at, .next = at, .dtype = DType::kF32, .index = memory_.natural, .stride = 16, .r = r_, .positions = 16},
        group_, memory_.q, memory_.c, scores + (first - base));
  }
}

std::span<const uint32_t> SparseUnit::Choose(SparseScratch& scratch) {
  tools_.sparse.weights(num_chunks_, stride(), memory_.m, memory_.l);
  if (task_.form->rule == SparseRule::kPaper) {
    for (size_t chunk = 0; chunk < num_chunks_; ++chunk) {
      tools_.sparse.add_weights(group_, memory_.p + chunk * group_ * kAttentionChunk, memory_.m + chunk * stride(),
                                keys_ + chunk * kAttentionChunk);
    }
  }
  const size_t k = task_.form->k, local = task_.form->local;
  int32_t* keys = keys_ + (context_.begin - first_chunk_ * kAttentionChunk);
  auto* chosen = reinterpret_cast<uint32_t*>(keys);
  tools_.sparse.select(keys, seen_ - local, k - local, static_cast<uint32_t>(context_.begin), scratch.select, chosen);
  for (size_t i = 0; i < local; ++i) chosen[k - local + i] = static_cast<uint32_t>(context_.end - local + i);
  return {chosen, k};
}

float SparseUnit::MassOf(std::span<const uint32_t> positions, size_t head) const {
  float mass = 0;
  for (const uint32_t j : positions) {
    const size_t chunk = j / kAttentionChunk - first_chunk_;
    mass +=
        memory_.p[(chunk * group_ + head) * kAttentionChunk + j % kAttentionChunk] * memory_.m[chunk * stride() + head];
  }
  return mass;
}

void SparseUnit::Weights(float* weights) {
  tools_.sparse.weights(num_chunks_, stride(), memory_.m, memory_.l);
  for (size_t j = context_.begin; j < context_.end; ++j) {
    const size_t chunk = j / kAttentionChunk - first_chunk_;
    const float* p = memory_.p + chunk * group_ * kAttentionChunk + j % kAttentionChunk;
    float sum = 0;
    for (size_t h = 0; h < group_; ++h) sum += p[h * kAttentionChunk] * memory_.m[chunk * stride() + h];
    weights[j - context_.begin] = sum;
  }
}

void SparseUnit::Finish(SparseScratch& scratch) {
  const SparseForm& form = *task_.form;
  const SparseResult& result = task_.result;
  float alpha[kMaxGroup];
  std::fill(alpha, alpha + group_, 1.0F);
  std::span<const uint32_t> chosen;
  bool dense = dense_;
  if (!dense_) {
    chosen = Choose(scratch);
    for (size_t h = 0; h < group_; ++h) {
      alpha[h] = MassOf(chosen, h);
      dense = dense || (form.floor > 0 && !(alpha[h] > form.floor));
    }
  }
  if (!result.alpha.empty()) std::copy(alpha, alpha + group_, result.alpha.data() + kv_head_ * group_);
  if (!result.was_dense.empty()) result.was_dense[kv_head_] = dense && seen_ > form.k ? 1 : 0;
  if (!result.kept.empty()) {
    uint32_t* kept = result.kept.data() + kv_head_ * form.k;
    for (size_t i = 0; i < std::min(form.k, seen_); ++i)
      kept[i] = dense_ ? static_cast<uint32_t>(context_.begin + i) : chosen[i];
  }
  TIDEMILL_TOUCHED(2 * group_ * shape_.head_dim * sizeof(float));  // the query, too
  if (dense) return Dense(task_.out, scratch);
  AttendPositions(shape_, tools_, context_, kv_head_, chosen, task_.q, task_.out, scratch);
  if (form.kind != SparseKind::kSparq || !form.reallocate) return;
  Mean(scratch);
  for (size_t h = 0; h < group_; ++h) {
    tools_.sparse.blend(shape_.head_dim, alpha[h], scratch.row, task_.out + (kv_head_ * group_ + h) * shape_.head_dim);
  }
}

void SparseUnit::Dense(float* out, SparseScratch& scratch) const {
  const size_t cols = shape_.heads * shape_.head_dim;
  const AttentionTask task{.context = task_.context,
                           .first_position = task_.first_position,
                           .visibility = Visibility::kCausal,
                           .q = ConstMatrix<float>(task_.q, 1, cols),
                           .out = Matrix<float>(out, 1, cols),
                           .parents = task_.parents};
  TIDEMILL_TOUCHED(2 * seen_ * RowBytes(shape_.kv_dtype, shape_.head_dim));
  TileRun run(shape_, tools_.attention, task, kv_head_, task_.row, 1, scratch.tile, task_.row);
  const ChunkRange range = ChunksOf(shape_, task, task_.row, 1);
  for (size_t chunk = range.begin; chunk < range.end; ++chunk) {
    if (run.Attend(chunk * kAttentionChunk)) run.JoinChunk();
  }
  run.Finish();
}

SparseUnit::Difference SparseUnit::Audit(SparseScratch& scratch) {
  const size_t dim = shape_.head_dim, k = task_.form->k;
  Difference result;
  const auto* kept =
      reinterpret_cast<const uint32_t*>(memory_.keys + (context_.begin - first_chunk_ * kAttentionChunk));
  const std::span<const uint32_t> exact = Choose(scratch);
  for (size_t h = 0; h < group_; ++h) result.kept_mass += static_cast<double>(MassOf({kept, k}, h));
  size_t both = 0;
  for (size_t i = 0, j = 0; i < k && j < k; kept[i] < exact[j] ? ++i : ++j) both += kept[i] == exact[j] ? 1U : 0U;
  result.agreement = static_cast<double>(both) / static_cast<double>(k);
  Dense(scratch.dense, scratch);
  for (size_t i = kv_head_ * group_ * dim; i < (kv_head_ + 1) * group_ * dim; ++i) {
    const auto dense = static_cast<double>(scratch.dense[i]), difference = static_cast<double>(task_.out[i]) - dense;
    result.difference += difference * difference;
    result.dense += dense * dense;
  }
  return result;
}

void SparseUnit::SumRows(size_t begin, size_t end, double* sum, SparseScratch& scratch) const {
  const size_t dim = shape_.head_dim;
  for (size_t j = begin; j < end; ++j) {
    const std::byte* v = context_.At(shape_, kv_head_, j).v;
    TIDEMILL_TOUCHED(RowBytes(shape_.kv_dtype, dim));
    if (dim % 16 == 0) {
      tools_.sparse.add_row(shape_.kv_dtype, v, dim, sum);
      continue;
    }
    DequantizeRow(shape_.kv_dtype, {v, RowBytes(shape_.kv_dtype, dim)}, {scratch.row, dim});
    for (size_t i = 0; i < dim; ++i) sum[i] += static_cast<double>(scratch.row[i]);
  }
}

void SparseUnit::SumBefore(size_t end, double* sum, SparseScratch& scratch) const {
  const ContextColumns& columns = task_.columns;
  const size_t dim = shape_.head_dim;
  size_t at = std::min(columns.filled, end) / kSumRows * kSumRows;
  const bool kept = at != 0 && (at - 1) / kColumnRows >= columns.first;
  if (kept) {
    const ColumnBlock& block = columns.blocks[(at - 1) / kColumnRows - columns.first];
    const size_t entry = (at - 1) % kColumnRows / kSumRows;
    TIDEMILL_TOUCHED(dim * sizeof(double));
    std::copy_n(block.sums + (entry * shape_.kv_heads + kv_head_) * dim, dim, sum);
  } else {
    std::fill(sum, sum + dim, 0.0);
    at = context_.spans.front().first;
  }
  double granule[kMaxHeadDim];
  while (at < end) {
    const size_t next = std::min((at / kSumRows + 1) * kSumRows, end);
    std::fill(granule, granule + dim, 0.0);
    SumRows(at, next, granule, scratch);
    for (size_t i = 0; i < dim; ++i) sum[i] += granule[i];
    at = next;
  }
}

void SparseUnit::Mean(SparseScratch& scratch) const {
  const size_t dim = shape_.head_dim, begin = context_.begin, end = context_.end;
  double *sum = scratch.sums, *before = sum + PaddedDim(shape_);
  const size_t whole = RoundUp(begin, kSumRows);  // the first granule of which all is seen
  if (begin == 0) {
    SumBefore(end, sum, scratch);
  } else {
    std::fill(sum, sum + dim, 0.0);
    if (whole < end) {
      SumBefore(end, sum, scratch);
      SumBefore(whole, before, scratch);
      for (size_t i = 0; i < dim; ++i) sum[i] -= before[i];
    }
    std::fill(before, before + dim, 0.0);
    SumRows(begin, std::min(whole, end), before, scratch);
    for (size_t i = 0; i < dim; ++i) sum[i] += before[i];
  }
  for (size_t i = 0; i < dim; ++i) scratch.row[i] = static_cast<float>(sum[i] / static_cast<double>(seen_));
}

}  // namespace tidemill
