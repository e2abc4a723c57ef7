#include "state/sparse_kv_layer.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "base/check.h"
#include "base/checked_math.h"

namespace tidemill {
namespace {

KvOptions WithRows(KvOptions options) {
  options.key_tiles = false;
  options.drop_rows = kSumRows;
  return options;
}

uint64_t SumOf(uint64_t a, uint64_t b) {  // UINT64_MAX: overflow
  uint64_t sum = 0;
  return CheckedAdd(a, b, &sum) ? sum : UINT64_MAX;
}

}  // namespace

SparseKvLayer::SparseKvLayer(const KvLayerShape& shape, const KvOptions& options, const SparseForm& form, bool columns)
    : KvLayer(shape, WithRows(options)),
      form_(form),
      wants_columns_(columns),
      columns_(shape, options.dtype, columns, options.ledger),
      weights_(form.kind == SparseKind::kH2o ? shape.kv_heads : 0, options.ledger) {}

std::vector<uint64_t> SparseKvLayer::Shape() const {
  std::vector<uint64_t> shape = KvLayer::Shape();
  if (!has_word()) return shape;
  shape.push_back(evicts() ? static_cast<uint64_t>(form_.kind) : 0);
  return shape;
}

std::unique_ptr<LayerState> SparseKvLayer::MakeEmpty() const {
  return std::make_unique<SparseKvLayer>(shape(), options(), form_, wants_columns_);
}

// --- Steps ---

Result<void> SparseKvLayer::Reserve(size_t n, size_t floor, BufferArena* arena) {
  if (shape().window != 0 && columns_.RowsDue(length()) != 0) Settle();  // before rows go that it reads
  TIDEMILL_TRY_VOID(KvLayer::Reserve(n, floor, arena));
  columns_.DropBefore(FirstNeeded(floor));
  if (has_weights()) TIDEMILL_TRY_VOID(weights_.Reserve(n));
  TIDEMILL_TRY_VOID(columns_.Reserve(length() + n, arena));
  step_evicts_ = false;
  return {};
}

void SparseKvLayer::CommitWeights(size_t n) {
  if (has_weights() && weights_.Commit(n)) evicting_ = true;
  evicting_ = evicting_ || (step_evicts_ && n != 0);
  step_evicts_ = false;
}

void SparseKvLayer::Commit(size_t n) {
  KvLayer::Commit(n);
  CommitWeights(n);
}

void SparseKvLayer::CommitPath(std::span<const uint32_t> path) {
  KvLayer::CommitPath(path);
  CommitWeights(path.size());
}

size_t SparseKvLayer::num_settle_parts() const {
  return columns_.RowsDue(length()) != 0 ? shape().kv_heads : KvLayer::num_settle_parts();
}

uint64_t SparseKvLayer::settle_bytes() const {
  const size_t written = columns_.has_columns() ? PositionBytes() / 2 : 0;
  return KvLayer::settle_bytes() + columns_.RowsDue(length()) * (PositionBytes() + written);
}

void SparseKvLayer::SettlePart(size_t head) {
  KvLayer::SettlePart(head);
  if (columns_.RowsDue(length()) == 0) return;
  ForEachSpan([&](const KvSpan& span) { columns_.FillRows(head, span, length()); });
}

void SparseKvLayer::EndSettle() {
  KvLayer::EndSettle();
  columns_.EndFill(length());
}

// --- Between steps ---

void SparseKvLayer::Rollback(size_t to) {
  KvLayer::Rollback(to);
  columns_.Rollback(to);
  if (has_weights()) weights_.Rollback(to);
}

void SparseKvLayer::Clear() {
  KvLayer::Clear();
  columns_.Clear();
  weights_.Clear();
  evicting_ = step_evicts_ = false;
}

void SparseKvLayer::Compact(size_t floor) {
  columns_.DropBefore(FirstNeeded(floor));
  columns_.Trim();
  if (!weights_.Compact().ok()) throw std::bad_alloc();
  KvLayer::Compact(floor);
}

// A child that is a plain KvLayer shares the rows alone.
void SparseKvLayer::PrepareFork(LayerState& child) {
  KvLayer::PrepareFork(child);
  SparseKvLayer* other = static_cast<KvLayer&>(child).AsSparse();
  if (other == nullptr) return;
  columns_.PrepareFork(other->columns_);
  if (!other->weights_.Copy(weights_).ok()) throw std::bad_alloc();
}

void SparseKvLayer::Fork(LayerState& child) {
  KvLayer::Fork(child);
  SparseKvLayer* other = static_cast<KvLayer&>(child).AsSparse();
  if (other == nullptr) return;
  columns_.Fork(other->columns_);
  other->evicting_ = evicting_;
}

void SparseKvLayer::Take(LayerState&& from) {
  auto& other = static_cast<SparseKvLayer&>(from);
  KvLayer::Take(std::move(from));
  columns_.Take(std::move(other.columns_));
  weights_.Take(std::move(other.weights_));
  evicting_ = other.evicting_;
}

// --- Bytes ---

uint64_t SparseKvLayer::reserved_bytes() const {
  return KvLayer::reserved_bytes() + columns_.held_bytes() + weights_.bytes();
}

void SparseKvLayer::ForEachBlock(const BlockVisitor& visit) const {
  KvLayer::ForEachBlock(visit);
  columns_.ForEachBlock(visit);
  if (has_weights()) visit(&weights_, weights_.bytes());
}

GrowthCounts SparseKvLayer::growth() const {
  GrowthCounts counts = KvLayer::growth();
  counts += columns_.growth();
  return counts;
}

// Of more than k positions H2O reads the sums of weights, too. Its own row is none of them.
uint64_t SparseKvLayer::read_bytes_per_token(size_t length) const {
  const size_t n = shape().window == 0 ? length : std::min(length, shape().window);
  const AttentionShape attention{.head_dim = shape().head_dim, .kv_dtype = dtype(), .bias = {}};
  const size_t filled = columns_.filled() - std::min(columns_.filled(), length - n);  // of those that are seen
  auto of_head = static_cast<uint64_t>(SparseReadsOf(attention, form_, n, filled, columns_.has_columns()).memory);
  if (has_weights() && n > form_.k) of_head = of_head - 2 * shape().RowBytes(dtype()) + n * sizeof(float);
  return shape().kv_heads * of_head;
}

uint64_t SparseKvLayer::GrowthBytes(size_t n, size_t floor) const {
  const uint64_t rows = KvLayer::GrowthBytes(n, floor);
  if (rows == UINT64_MAX) return rows;
  return SumOf(rows, SumOf(columns_.GrowthBytes(length() + n), has_weights() ? weights_.GrowthBytes(n) : 0));
}

uint64_t SparseKvLayer::GrowthBytes(size_t n, size_t step, size_t floor, size_t rollback) const {
  const uint64_t rows = KvLayer::GrowthBytes(n, step, floor, rollback);
  if (rows == UINT64_MAX) return rows;
  uint64_t columns = columns_.GrowthBytes(length() + n);
  if (n > step && shape().window != 0 && shape().window < options().max_length) {
    // The most blocks that are needed at once, and the one before them.
    const size_t needed = (shape().window + kSumRows + rollback + step) / kColumnRows + 3;
    const uint64_t most = (needed - std::min(needed, columns_.own_blocks())) * columns_.block_bytes();
    columns = std::min(columns, std::max(most, columns_.GrowthBytes(length() + std::min(n, step))));
  }
  return SumOf(rows, SumOf(columns, has_weights() ? weights_.GrowthBytes(n) : 0));
}

bool SparseKvLayer::HasRoom(size_t n, size_t floor) const {
  return KvLayer::HasRoom(n, floor) && (!has_weights() || weights_.HasRoom(n));
}

BlockBytes SparseKvLayer::NewBlock(size_t n, size_t floor) const {
  BlockBytes bytes = KvLayer::NewBlock(n, floor);
  bytes.Add(columns_.NewBlock(length() + n));
  return bytes;
}

BlockBytes SparseKvLayer::RestoredBlock(size_t length, size_t earliest) const {
  BlockBytes bytes = KvLayer::RestoredBlock(length, earliest);
  bytes.Add(columns_.RestoredBlock(FirstNeeded(earliest), length));
  return bytes;
}

// --- Checkpoints ---

uint64_t SparseKvLayer::CheckpointBytes(size_t length, size_t earliest) const {
  if (length == 0) return 0;
  uint64_t bytes = KvLayer::CheckpointBytes(length, earliest);
  if (has_word()) bytes = SumOf(bytes, sizeof(uint64_t));
  if (has_weights()) bytes = SumOf(bytes, WeightSums::CheckpointBytes(shape().kv_heads, length));
  if (FirstNeeded(earliest) != 0) bytes = SumOf(bytes, shape().kv_heads * shape().head_dim * sizeof(double));
  return bytes;
}

void SparseKvLayer::AppendTo(std::vector<std::byte>* out, size_t earliest) const {
  if (length() == 0) return;
  if (has_word()) {
    const uint64_t word = 2 * earliest + (evicting_ ? 1 : 0);
    const auto bytes = std::as_bytes(std::span(&word, 1));
    out->insert(out->end(), bytes.begin(), bytes.end());
  }
  weights_.AppendTo(out);
  if (const size_t first = FirstNeeded(earliest); first != 0) {
    const auto bytes = std::as_bytes(columns_.SumsBefore(first));
    out->insert(out->end(), bytes.begin(), bytes.end());
  }
  KvLayer::AppendTo(out, earliest);
}

Result<void> SparseKvLayer::ReadFrom(ByteReader& reader, size_t length, size_t earliest, BufferArena* arena) {
  if (length == 0) return {};
  bool evicting = false;
  if (has_word()) {
    TIDEMILL_TRY(word, reader.Read<uint64_t>("the earliest rollback of a sparse layer"));
    evicting = word == 2 * length + 1 && evicts();
    if (word / 2 != earliest || (word % 2 != 0) != evicting)
      return Error(ErrorCode::kCorruptFile, "a sparse layer's earliest rollback is another; the checkpoint is damaged");
  }
  WeightSums weights(weights_.kv_heads(), nullptr);
  if (has_weights()) TIDEMILL_TRY_VOID(weights.ReadFrom(reader, length));
  if (const size_t first = FirstNeeded(earliest); first != 0) {
    std::vector<double> sums(shape().kv_heads * shape().head_dim);
    TIDEMILL_TRY(bytes, reader.Take(sums.size() * sizeof(double), "sums of values"));
    std::memcpy(sums.data(), bytes.data(), bytes.size());
    TIDEMILL_TRY_VOID(columns_.Begin(first, sums));
  }
  TIDEMILL_TRY_VOID(KvLayer::ReadFrom(reader, length, earliest, arena));
  weights_.Take(std::move(weights));
  evicting_ = evicting;
  return {};
}

}  // namespace tidemill
