#include "state/column_store.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "base/check.h"
#include "base/checked_math.h"
#include "base/out_of_memory.h"
#include "kernels/key_tiles.h"
#include "tensor/half.h"
#include "tensor/q8_block.h"

namespace tidemill {
namespace {

// Blocks of positions before `end`, also of any size_t.
constexpr size_t BlocksOf(size_t end) { return end / kColumnRows + (end % kColumnRows == 0 ? 0 : 1); }

// Rows of keys into columns: out[i * kColumnRows + r] = k[r * dim + i].
template <typename T>
void TurnKeys(const std::byte* k, size_t rows, size_t dim, std::byte* out) {
  const T* from = reinterpret_cast<const T*>(k);
  T* to = reinterpret_cast<T*>(out);
  for (size_t i = 0; i < dim; ++i) {
    for (size_t r = 0; r < rows; ++r) to[i * kColumnRows + r] = from[r * dim + i];
  }
}

template <typename T, typename F>
void AddElements(const std::byte* v, size_t count, double* sums, const F& to_float) {
  const T* from = reinterpret_cast<const T*>(v);
  for (size_t i = 0; i < count; ++i) sums[i] += static_cast<double>(to_float(from[i]));
}

void AddValues(DType dtype, const std::byte* v, size_t dim, double* sums) {
  switch (dtype) {
    case DType::kF32: return AddElements<float>(v, dim, sums, [](float x) { return x; });
    case DType::kF16: return AddElements<uint16_t>(v, dim, sums, HalfToFloat);
    case DType::kBF16: return AddElements<uint16_t>(v, dim, sums, BFloat16ToFloat);
    default: break;
  }
  TIDEMILL_CHECK(dtype == DType::kQ8_0);
  const auto* blocks = reinterpret_cast<const Q8Block*>(v);
  for (size_t i = 0; i < dim; ++i) {
    const Q8Block& block = blocks[i / Q8Block::kElements];
    sums[i] += static_cast<double>(HalfToFloat(block.d()) * static_cast<float>(block.q[i % Q8Block::kElements]));
  }
}

}  // namespace

ColumnStore::ColumnStore(const KvLayerShape& shape, DType dtype, bool columns, StateLedger* ledger)
    : kv_heads_(shape.kv_heads),
      head_dim_(shape.head_dim),
      dtype_(dtype),
      wanted_(columns && dtype != DType::kQ8_0),
      columns_(wanted_),
      ledger_(ledger) {}

ContextColumns ColumnStore::View() const {
  if (filled_ == 0) return {};
  return {.blocks = std::span(views_).first(BlocksOf(filled_) - first_), .first = first_, .filled = filled_};
}

double* ColumnStore::SumsOf(size_t granule, size_t head) const {
  constexpr size_t kGranules = kColumnRows / kSumRows;
  std::byte* const sums = blocks_[granule / kGranules - first_].sums->memory.data();
  return reinterpret_cast<double*>(sums) + (granule % kGranules * kv_heads_ + head) * head_dim_;
}

std::span<const double> ColumnStore::SumsBefore(size_t rows) const {
  TIDEMILL_CHECK(rows != 0 && rows % kSumRows == 0 && rows <= filled_);
  return {SumsOf(rows / kSumRows - 1, 0), dims()};
}

void ColumnStore::Show() {
  views_.resize(blocks_.size());
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const Block& block = blocks_[i];
    views_[i] = {block.columns == nullptr ? nullptr : block.columns->memory.data(),
                 block.sums == nullptr ? nullptr : reinterpret_cast<const double*>(block.sums->memory.data())};
  }
}

// --- Memory ---

ColumnStore::PiecePointer ColumnStore::NewPiece(size_t bytes, BufferArena* arena) const {
  try {
    auto piece = std::make_shared<Piece>(ledger_);
    Result<AlignedBuffer> memory = arena != nullptr ? arena->AllocateLonger(bytes) : AlignedBuffer::Create(bytes);
    if (!memory.ok()) return nullptr;
    piece->memory = std::move(memory).value();
    piece->counted.Set(bytes);
    return piece;
  } catch (const std::exception&) {
    return nullptr;
  }
}

bool ColumnStore::OwnSums(size_t index) {
  PiecePointer& sums = blocks_[index - first_].sums;
  if (IsOwn(sums)) return true;
  PiecePointer piece = NewPiece(sums_bytes(), nullptr);
  if (piece == nullptr) return false;
  const size_t first = index * kColumnRows, granules = (filled_ - std::min(filled_, first)) / kSumRows;
  ++growth_.growths;
  if (granules != 0) {  // but for those that Reserve asks for, blocks are full
    const size_t bytes = granules * dims() * sizeof(double);
    std::memcpy(piece->memory.data(), sums->memory.data(), bytes);
    growth_.bytes_copied += bytes;
  }
  sums = std::move(piece);
  return true;
}

bool ColumnStore::OwnColumns(size_t index, BufferArena* arena) {
  PiecePointer& columns = blocks_[index - first_].columns;
  if (IsOwn(columns)) return true;
  PiecePointer piece = NewPiece(column_bytes(), arena);
  if (piece == nullptr) return false;
  const size_t first = index * kColumnRows, bytes = (filled_ - std::min(filled_, first)) * element_bytes();
  for (size_t i = 0; i < dims() && bytes != 0; ++i) {
    const size_t at = i * kColumnRows * element_bytes();
    std::memcpy(piece->memory.data() + at, columns->memory.data() + at, bytes);
  }
  growth_.bytes_copied += dims() * bytes;
  columns = std::move(piece);
  return true;
}

void ColumnStore::GiveUpColumns() {
  columns_ = false;
  gave_up_ = growth_.gave_up_columns = true;
  for (Block& block : blocks_) block.columns = nullptr;
}

bool ColumnStore::GiveUp() {
  if (!columns_) return false;
  GiveUpColumns();
  Show();
  return true;
}

Result<void> ColumnStore::Reserve(size_t rows, BufferArena* arena) {
  const size_t end = rows - rows % kSumRows, begin_block = filled_ / kColumnRows;
  reserved_ = filled_;
  if (end <= filled_) return {};
  const size_t last = BlocksOf(end);
  if (blocks_.empty()) first_ = begin_block;
  if (last > end_block()) {
    blocks_.reserve(last - first_);
    views_.reserve(last - first_);
    blocks_.resize(last - first_);
  }
  bool has_sums = true, has_columns = true;
  for (size_t i = begin_block; i < last && has_sums; ++i) has_sums = OwnSums(i);
  if (!has_sums) {
    while (!blocks_.empty() && blocks_.back().sums == nullptr) blocks_.pop_back();
    Show();
    return OutOfMemoryError("reserve state", sums_bytes());
  }
  for (size_t i = begin_block; i < last && has_columns && columns_; ++i) has_columns = OwnColumns(i, arena);
  if (!has_columns) GiveUpColumns();
  reserved_ = end;
  Show();
  return {};
}

void ColumnStore::CountMissing(size_t rows, uint64_t* sums, uint64_t* columns) const {
  *sums = *columns = 0;
  const size_t end = rows - rows % kSumRows;
  if (end <= filled_) return;
  const size_t begin = filled_ / kColumnRows, last = BlocksOf(end);
  const size_t known = blocks_.empty() ? begin : std::min(last, end_block());
  for (size_t i = begin; i < known; ++i) {
    *sums += !IsOwn(blocks_[i - first_].sums);
    *columns += columns_ && !IsOwn(blocks_[i - first_].columns);
  }
  *sums += last - std::max(begin, known);
  *columns += columns_ ? last - std::max(begin, known) : 0;
}

uint64_t ColumnStore::GrowthBytes(size_t rows) const {
  uint64_t sums = 0, columns = 0, bytes = 0, more = 0;
  CountMissing(rows, &sums, &columns);
  const bool fits = CheckedMul<uint64_t>(sums, sums_bytes(), &bytes) &&
                    CheckedMul<uint64_t>(columns, column_bytes(), &more) && CheckedAdd(bytes, more, &bytes);
  return fits ? bytes : UINT64_MAX;
}

BlockBytes ColumnStore::NewBlock(size_t rows) const {
  uint64_t sums = 0, columns = 0;
  CountMissing(rows, &sums, &columns);
  if (columns == 0) return {};
  BlockBytes bytes{.rows = rows};
  if (!CheckedMul<uint64_t>(columns, column_bytes(), &bytes.all)) bytes.all = UINT64_MAX;
  uint64_t used = 0;
  if (!CheckedMul<uint64_t>(rows - rows % kSumRows - filled_, dims() * element_bytes(), &used)) used = UINT64_MAX;
  bytes.used = std::min(bytes.all, used);
  return bytes;
}

BlockBytes ColumnStore::RestoredBlock(size_t first, size_t rows) const {
  ColumnStore empty({.kv_heads = kv_heads_, .head_dim = head_dim_}, dtype_, wanted_, nullptr);
  empty.filled_ = first - first % kSumRows;
  return empty.NewBlock(rows);
}

uint64_t ColumnStore::held_bytes() const {
  uint64_t bytes = 0;
  ForEachBlock([&](const void*, uint64_t more) { bytes += more; });
  return bytes;
}

size_t ColumnStore::own_blocks() const {
  return static_cast<size_t>(
      std::count_if(blocks_.begin(), blocks_.end(), [](const Block& block) { return IsOwn(block.sums); }));
}

void ColumnStore::ForEachBlock(const std::function<void(const void*, uint64_t)>& visit) const {
  for (const Block& block : blocks_) {
    for (const PiecePointer* piece : {&block.columns, &block.sums}) {
      if (*piece != nullptr) visit(piece->get(), (*piece)->counted.bytes());
    }
  }
}

// --- Content ---

// Key r of a span, `k` of the head, in a tile or behind all tiles, into a column each of its elements.
void ColumnStore::TurnKey(const KvSpan& span, const std::byte* k, size_t r, std::byte* out) const {
  const size_t element = element_bytes();
  for (size_t i = 0; i < head_dim_; ++i)
    std::memcpy(out + i * kColumnRows * element, k + KeyElement(span.transposed, head_dim_, r, i) * element, element);
}

void ColumnStore::FillRows(size_t head, const KvSpan& span, size_t committed) {
  const size_t end = std::min(span.first + span.rows, filled_ + RowsDue(committed));
  const size_t row_bytes = RowBytes(dtype_, head_dim_), element = element_bytes();
  const std::byte* const k = span.k + RowBytes(dtype_, head * span.head_stride);
  const std::byte* const v = span.v + RowBytes(dtype_, head * span.head_stride);
  for (size_t at = std::max(filled_, span.first), stop = 0; at < end; at = stop) {
    stop = std::min(end, (at / kSumRows + 1) * kSumRows);  // of the granule
    const size_t granule = at / kSumRows;
    double* const sums = SumsOf(granule, head);
    if (at % kSumRows == 0) std::fill_n(sums, head_dim_, 0.0);
    for (size_t r = at; r < stop; ++r) AddValues(dtype_, v + (r - span.first) * row_bytes, head_dim_, sums);
    if (stop % kSumRows == 0 && granule != 0) {
      const double* const before = SumsOf(granule - 1, head);
      for (size_t i = 0; i < head_dim_; ++i) sums[i] += before[i];
    }
    if (!columns_) continue;
    std::byte* const out = blocks_[at / kColumnRows - first_].columns->memory.data() +
                           (head * head_dim_ * kColumnRows + at % kColumnRows) * element;
    const std::byte* const keys = k + (at - span.first) * row_bytes;
    if (at - span.first < span.transposed) {  // rows of a KvLayer whose state we continue
      for (size_t r = at; r < stop; ++r) TurnKey(span, k, r - span.first, out + (r - at) * element);
      continue;
    }
    if (element == sizeof(uint16_t)) {
      TurnKeys<uint16_t>(keys, stop - at, head_dim_, out);
    } else {
      TurnKeys<uint32_t>(keys, stop - at, head_dim_, out);
    }
  }
}

void ColumnStore::Rollback(size_t rows) {
  filled_ = reserved_ = std::min(filled_, rows - rows % kSumRows);
  // Others' blocks of which nothing is ours any more.
  const size_t open = BlocksOf(filled_);
  while (!blocks_.empty() && end_block() > open && !IsOwn(blocks_.back().sums)) blocks_.pop_back();
  Show();
}

void ColumnStore::DropBefore(size_t position) {
  if (blocks_.empty()) return;
  position = std::min(position, filled_);
  const size_t needed = position == 0 ? 0 : (position - 1) / kColumnRows;
  if (needed <= first_) return;
  blocks_.erase(blocks_.begin(), blocks_.begin() + static_cast<std::ptrdiff_t>(needed - first_));
  first_ = needed;
  Show();
}

void ColumnStore::Trim() {
  const size_t open = BlocksOf(filled_);
  if (open < end_block()) blocks_.resize(open - first_);
  Show();
}

void ColumnStore::Clear() {
  blocks_ = {};
  views_ = {};
  first_ = filled_ = reserved_ = 0;
  columns_ = wanted_;
  gave_up_ = false;
}

void ColumnStore::PrepareFork(ColumnStore& child) const {
  child.blocks_.reserve(blocks_.size());
  child.views_.reserve(blocks_.size());
}

void ColumnStore::Fork(ColumnStore& child) const {
  child.first_ = first_;
  child.filled_ = child.reserved_ = filled_;
  child.blocks_.assign(blocks_.begin(), blocks_.begin() + static_cast<std::ptrdiff_t>(View().blocks.size()));
  if (!columns_) child.gave_up_ = child.growth_.gave_up_columns = child.wanted_;
  if (!columns_ || !child.wanted_) {
    child.columns_ = false;
    for (Block& block : child.blocks_) block.columns = nullptr;
  }
  child.Show();
}

void ColumnStore::Take(ColumnStore&& other) {
  GrowthCounts growth = growth_;
  growth += other.growth_;
  *this = std::move(other);
  growth_ = growth;
  other.Clear();
}

Result<void> ColumnStore::Begin(size_t rows, std::span<const double> sums_before) {
  TIDEMILL_CHECK(blocks_.empty() && rows != 0 && rows % kSumRows == 0 && sums_before.size() == dims());
  blocks_.reserve(1);
  views_.reserve(1);
  PiecePointer sums = NewPiece(sums_bytes(), nullptr);
  if (sums == nullptr) return OutOfMemoryError("reserve state", sums_bytes());
  PiecePointer columns = columns_ ? NewPiece(column_bytes(), nullptr) : nullptr;
  first_ = (rows - 1) / kColumnRows;
  filled_ = reserved_ = rows;
  blocks_.push_back({std::move(columns), std::move(sums)});
  if (columns_ && blocks_.back().columns == nullptr) GiveUpColumns();
  std::copy(sums_before.begin(), sums_before.end(), SumsOf(rows / kSumRows - 1, 0));
  Show();
  return {};
}

}  // namespace tidemill
