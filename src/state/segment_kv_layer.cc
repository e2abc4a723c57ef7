#include "state/segment_kv_layer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>
#include <span>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/checked_math.h"
#include "base/out_of_memory.h"

namespace tidemill {
namespace {

uint64_t SumOrMax(uint64_t a, uint64_t b) {  // UINT64_MAX: overflow
  uint64_t sum = 0;
  return CheckedAdd(a, b, &sum) ? sum : UINT64_MAX;
}

KvOptions OfSegment(KvOptions options, const SegmentShape& segments) {
  options.max_length = std::min(options.max_length, segments.max_rows);
  options.growth.expected = std::min(options.growth.expected, segments.whole_rows());
  return options;
}

}  // namespace

SegmentKvLayer::SegmentKvLayer(const KvLayerShape& shape, const KvOptions& options, const SegmentShape& segments,
                               size_t last_first)
    : KvLayer(shape, OfSegment(options, segments)), segments_(segments), last_first_(last_first) {}

std::vector<uint64_t> SegmentKvLayer::Shape() const {
  std::vector<uint64_t> shape = KvLayer::Shape();
  const MemoryShape& memory = segments_.memory;
  shape.insert(shape.end(), {memory.hidden, memory.key_dim, memory.nu, memory.correction ? 1U : 0U,
                             static_cast<uint64_t>(memory.dtype), segments_.segment_tokens, segments_.memory_rows});
  if (segments_.front_rows != 0) shape.insert(shape.end(), {segments_.front_rows, segments_.carried});
  return shape;
}

std::unique_ptr<LayerState> SegmentKvLayer::MakeEmpty() const {
  return std::make_unique<SegmentKvLayer>(shape(), options(), segments_, last_first_);
}

Result<SegmentKvLayer::MemoryPointer> SegmentKvLayer::NewMemory() const {
  auto memory = std::make_shared<Memory>(options().ledger);
  TIDEMILL_TRY(bytes, AlignedBuffer::Create(segments_.memory_bytes()));
  memory->memory = std::move(bytes);
  memory->counted.Set(memory->memory.size());
  return memory;
}

// --- Steps ---

Result<void> SegmentKvLayer::Reserve(size_t n, size_t, BufferArena* arena) {
  num_ended_ = ended_tokens_ = 0;
  if (n > options().max_length - std::min(options().max_length, length())) {
    return Error(ErrorCode::kContextFull, "reserve state: " + std::to_string(n) + " rows behind the " +
                                              std::to_string(length()) + " of a segment: expected at most " +
                                              std::to_string(options().max_length) + " in all");
  }
  if (MayEnd(n) && next_ == nullptr) {
    TIDEMILL_TRY(memory, NewMemory());
    next_ = std::move(memory);
  }
  return KvLayer::Reserve(n, 0, arena);
}

bool SegmentKvLayer::IsMemoryFinite() const {
  if (segments_.front_rows == 0) return IsFinite(segments_.memory, memory());
  const std::span<const float> carried = memory_->memory.As<float>().first(segments_.carried);
  return std::all_of(carried.begin(), carried.end(), [](float value) { return std::isfinite(value); });
}

void SegmentKvLayer::EndSegment(size_t tokens) {
  TIDEMILL_CHECK(next_ != nullptr && (num_ended_ == 0 || (length() == 0 && segments_.front_rows == 0)));
  ++num_ended_;
  ended_tokens_ += tokens;
}

void SegmentKvLayer::Commit(size_t n) {
  if (num_ended_ == 0) return KvLayer::Commit(segments_.RowsOf(tokens() + n) - length());
  TIDEMILL_CHECK(n >= ended_tokens_ && (n == ended_tokens_ || (length() == 0 && segments_.front_rows == 0)));
  first_ += tokens() + ended_tokens_;
  n -= ended_tokens_;
  KvLayer::Rollback(0);
  KvLayer::Commit(n);
  std::swap(memory_, next_);
  if (next_ != nullptr && next_.use_count() > 1) next_ = nullptr;  // a fork reads it
  num_ended_ = ended_tokens_ = 0;
}

void SegmentKvLayer::CommitPath(std::span<const uint32_t> path) {
  TIDEMILL_CHECK(num_ended_ == 0 &&
                 (length() != 0 || segments_.front_rows == 0));  // draft tokens begin and end no segment
  KvLayer::CommitPath(path);
}

// --- Between steps ---

void SegmentKvLayer::Rollback(size_t to) {
  num_ended_ = ended_tokens_ = 0;
  KvLayer::Rollback(segments_.RowsOf(to - first_));
}

void SegmentKvLayer::Clear() {
  KvLayer::Clear();
  first_ = num_ended_ = ended_tokens_ = 0;
  memory_ = next_ = nullptr;
}

void SegmentKvLayer::Compact(size_t) {
  next_ = nullptr;
  num_ended_ = ended_tokens_ = 0;
  KvLayer::Compact(0);
}

void SegmentKvLayer::Fork(LayerState& child) {
  KvLayer::Fork(child);
  auto& other = static_cast<SegmentKvLayer&>(child);
  other.first_ = first_;
  other.memory_ = memory_;
}

void SegmentKvLayer::Take(LayerState&& from) {
  auto& other = static_cast<SegmentKvLayer&>(from);
  KvLayer::Take(std::move(from));
  first_ = other.first_;
  memory_ = std::move(other.memory_);
  next_ = nullptr;
  num_ended_ = ended_tokens_ = 0;
}

// --- Bytes ---

uint64_t SegmentKvLayer::reserved_bytes() const {
  const uint64_t places = (memory_ != nullptr ? 1U : 0U) + (next_ != nullptr ? 1U : 0U);
  return KvLayer::reserved_bytes() + places * segments_.memory_bytes();
}

uint64_t SegmentKvLayer::read_bytes_per_token(size_t length) const {
  const size_t first = std::min(length, first_);
  return KvLayer::read_bytes_per_token(segments_.RowsOf(length - first)) +
         (memory_ == nullptr ? 0 : segments_.memory_bytes());
}

uint64_t SegmentKvLayer::GrowthBytes(size_t n, size_t) const {
  return SumOrMax(KvLayer::GrowthBytes(n, 0), MayEnd(n) && next_ == nullptr ? segments_.memory_bytes() : 0);
}

size_t SegmentKvLayer::RowsWith(size_t n) const {
  const size_t all = tokens() + n, rows = segments_.RowsOf(all);
  if (first_ >= last_first_) return std::min(rows, options().max_length);
  const size_t of_hand = all <= segments_.segment_tokens ? rows : std::max(segments_.whole_rows(), length());
  const size_t end = first_ + all;
  const size_t of_last = segments_.RowsOf(last_first_ == SIZE_MAX ? n : end - std::min(end, last_first_));
  return std::min(std::max(of_hand, of_last), options().max_length);
}

uint64_t SegmentKvLayer::GrowthBytes(size_t n, size_t, size_t, size_t) const {
  const uint64_t places = n == 1 ? 0 : (memory_ == nullptr ? 1U : 0U) + (next_ == nullptr ? 1U : 0U);
  return SumOrMax(KvLayer::GrowthBytes(RowsWith(n) - length(), 0), places * segments_.memory_bytes());
}

bool SegmentKvLayer::HasRoom(size_t n, size_t) const { return KvLayer::HasRoom(n, 0); }

BlockBytes SegmentKvLayer::NewBlock(size_t n, size_t) const { return KvLayer::NewBlock(n, 0); }

BlockBytes SegmentKvLayer::RestoredBlock(size_t length, size_t earliest) const {
  return KvLayer::RestoredBlock(segments_.RowsOf(length - earliest), 0);
}

void SegmentKvLayer::ForEachBlock(const BlockVisitor& visit) const {
  KvLayer::ForEachBlock(visit);
  for (const MemoryPointer& memory : {memory_, next_}) {
    if (memory != nullptr) visit(memory.get(), memory->memory.size());
  }
}

uint64_t SegmentKvLayer::CheckpointBytes(size_t length, size_t earliest) const {
  return SumOrMax(KvLayer::CheckpointBytes(segments_.RowsOf(length - earliest), 0),
                  earliest == 0 ? 0 : segments_.memory_bytes());
}

void SegmentKvLayer::AppendTo(std::vector<std::byte>* out, size_t earliest) const {
  TIDEMILL_CHECK(earliest == first_);
  if (memory_ != nullptr) {
    const std::byte* const bytes = memory_->memory.data();
    out->insert(out->end(), bytes, bytes + memory_->memory.size());
  }
  KvLayer::AppendTo(out, 0);
}

Result<void> SegmentKvLayer::ReadFrom(ByteReader& reader, size_t length, size_t earliest, BufferArena* arena) {
  if (earliest != 0) {
    TIDEMILL_TRY(bytes, reader.Take(segments_.memory_bytes(), "memory of segments"));
    TIDEMILL_TRY(memory, NewMemory());
    std::copy(bytes.begin(), bytes.end(), memory->memory.data());
    memory_ = std::move(memory);
    if (!IsMemoryFinite())
      return Error(ErrorCode::kNumericalError, "memory of segments: an element is not a finite number");
  }
  first_ = earliest;
  return KvLayer::ReadFrom(reader, segments_.RowsOf(length - earliest), 0, arena);
}

}  // namespace tidemill
