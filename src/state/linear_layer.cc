#include "state/linear_layer.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "base/check.h"
#include "base/checked_math.h"
#include "base/out_of_memory.h"

namespace tidemill {
namespace {

constexpr size_t kFewRows = 32;                 // of a ring that is made
constexpr size_t kTooManyRows = SIZE_MAX / 16;  // for any memory; a few times as many can be counted

std::vector<RowRing::Part> EntryParts(const LinearShape& shape) {
  const DeltaShape& d = shape.delta;
  const size_t element_bytes = d.form.element_bytes();
  return {{d.value_heads, d.padded_value_dim() * element_bytes},
          {d.value_heads, sizeof(float)},
          {d.key_heads, d.key_dim * element_bytes}};
}

void OrThrow(const Result<void>& result) {
  if (!result.ok()) throw std::bad_alloc();
}

}  // namespace

LinearLayer::LinearLayer(const LinearShape& shape, const LinearOptions& options)
    : shape_(shape),
      options_(options),
      counted_(options.ledger),
      entries_(EntryParts(shape)),
      inputs_({{1, shape.channels * sizeof(float)}}) {}

std::vector<uint64_t> LinearLayer::Shape() const {
  const DeltaShape& d = shape_.delta;
  return {d.key_heads,
          d.value_heads,
          d.key_dim,
          d.value_dim,
          static_cast<uint64_t>(d.tiled),
          d.form.start,
          d.form.period,
          static_cast<uint64_t>(d.form.dtype),
          shape_.channels,
          shape_.conv_width};
}

Result<LinearLayer::StatePointer> LinearLayer::NewState() const {
  auto state = std::make_shared<State>(options_.ledger);
  TIDEMILL_TRY(memory, AlignedBuffer::Create(state_bytes()));
  state->memory = std::move(memory);
  state->counted.Set(state_bytes());
  return state;
}

// --- A step ---

LinearLayer::Needs LinearLayer::NeedsOf(size_t n, size_t floor) const {
  const size_t block = std::max(form().period, base_ == 0 ? form().start : 0);
  Needs needs;
  if (IsWhole(n)) {
    needs.entries = needs.usual_entries = num_entries_ + std::min(n, 2 * block);
    needs.inputs = needs.usual_inputs = inputs_before() == 0 ? 0 : num_inputs_ + inputs_before();
    needs.state = form().Boundary(length() + n - 1) > base_;
    return needs;
  }
  needs.entries = num_entries_ + n;
  needs.usual_entries = block + options_.rollback_rows + 2 * n;
  needs.inputs = inputs_before() == 0 ? 0 : num_inputs_ + n;
  needs.usual_inputs = inputs_before() == 0 ? 0 : kept_inputs() + n;
  needs.state = FoldLimit(floor) > base_ && (state_ == nullptr || is_shared());
  return needs;
}

// A ring grows to what steps like this one need from block to block, and shrinks where it is far from that.
size_t LinearLayer::CapacityOf(const RowRing& ring, size_t needed, size_t usual) {
  const size_t most = std::max(needed, usual);
  if (ring.capacity() > 2 * most + kFewRows) return most;
  if (needed <= ring.capacity()) return ring.capacity();
  return std::max(needed, std::min(usual, std::max(2 * ring.capacity(), kFewRows)));
}

uint64_t LinearLayer::MissingBytes(size_t entries, size_t inputs, size_t states) const {
  const auto missing = [](const RowRing& ring, size_t capacity) -> uint64_t {
    if (capacity <= ring.capacity()) return 0;
    const uint64_t bytes = ring.BytesOf(capacity);
    return bytes == UINT64_MAX ? bytes : bytes - ring.bytes();
  };
  uint64_t bytes = 0;
  const bool fits = CheckedAdd(missing(entries_, entries), missing(inputs_, inputs), &bytes) &&
                    CheckedAdd(bytes, states * state_bytes(), &bytes);
  return fits ? bytes : UINT64_MAX;
}

uint64_t LinearLayer::GrowthBytes(size_t n, size_t floor) const {
  if (n == 0) return 0;
  if (n > kTooManyRows) return UINT64_MAX;
  const Needs needs = NeedsOf(n, floor);
  return MissingBytes(CapacityOf(entries_, needs.entries, needs.usual_entries),
                      CapacityOf(inputs_, needs.inputs, needs.usual_inputs), needs.state && spare_ == nullptr ? 1 : 0);
}

uint64_t LinearLayer::GrowthBytes(size_t n, size_t step, size_t floor, size_t) const {
  if (n == 0) return 0;
  step = std::min(n, step);
  if (n > kTooManyRows) return UINT64_MAX;
  const bool whole = IsWhole(step);
  const Needs needs = NeedsOf(step, floor);
  size_t entries = CapacityOf(entries_, needs.entries, needs.usual_entries);
  size_t inputs = CapacityOf(inputs_, needs.inputs, needs.usual_inputs);
  size_t states = needs.state && spare_ == nullptr ? 1 : 0;
  // The most that any of several steps has, of up to `step` rows each. A ring is at most twice as large as what it needs, or has few rows.
  const size_t block = std::max(form().period, form().start) + options_.rollback_rows;
  const size_t most = whole ? std::max(2 * block, 2 * kMaxStagedRows) : 2 * step;
  entries = std::max(entries, std::min(std::max(num_entries_, block) + most, 2 * (num_entries_ + n) + kFewRows));
  if (inputs_before() != 0)
    inputs = std::max(inputs, kept_inputs() + (whole ? std::max(inputs_before(), kMaxStagedRows) : step));
  if (form().Boundary(length() + n - 1) > base_) {
    const size_t held = (state_ != nullptr ? 1U : 0U) + (spare_ != nullptr ? 1U : 0U);
    const size_t at_most = whole || is_shared() ? 2 : 1;
    states = std::max(states, at_most - std::min(at_most, held));
  }
  return MissingBytes(entries, inputs, states);
}

Result<void> LinearLayer::Fit(RowRing& ring, size_t needed, size_t usual, size_t rows) {
  const size_t capacity = CapacityOf(ring, needed, usual);
  if (capacity == ring.capacity()) return {};
  Settle();
  if (!ring.Resize(capacity, rows).ok()) {
    if (needed <= ring.capacity()) return {};  // it stays larger than it need be
    return OutOfMemoryError("reserve state", ring.BytesOf(capacity));
  }
  growth_.growths += 1;
  growth_.bytes_copied += rows * ring.row_bytes();
  CountBytes();
  return {};
}

Result<void> LinearLayer::Reserve(size_t n, size_t floor, BufferArena*) {
  if (n > kTooManyRows) return OutOfMemoryError("reserve state");
  const Needs needs = NeedsOf(n, floor);
  if (n != 0) {
    TIDEMILL_TRY_VOID(Fit(entries_, needs.entries, needs.usual_entries, num_entries_));
    TIDEMILL_TRY_VOID(Fit(inputs_, needs.inputs, needs.usual_inputs, num_inputs_));
    if (needs.state && spare_ == nullptr) {
      TIDEMILL_TRY(state, NewState());
      spare_ = std::move(state);
      growth_.growths += 1;
    }
  }
  is_whole_ = IsWhole(n);
  if (!needs.state && !is_whole_) spare_ = nullptr;
  step_rows_ = n;
  floor_ = floor;
  staged_rows_ = 0;
  return {};
}

void LinearLayer::ConvInputs(size_t slot, ConstMatrix<float> x, std::span<const int32_t> parents,
                             std::span<const float*> inputs) {
  if (slot == 0) {
    in_spare_ = false;
    staged_rows_ = staged_first_ = staged_inputs_ = 0;
    staged_base_ = base_;
    staged_entries_ = num_entries_;
  }
  TIDEMILL_CHECK(path_.empty() && slot == staged_rows_ && slot + x.rows <= step_rows_);
  const size_t width = shape_.conv_width;
  // Of the input `back` rows before the step's row `slot`, 1 the last.
  const auto earlier = [&](size_t back) -> const float* {
    size_t row = 0;  // of the ring
    if (!is_whole_) {
      if (back > num_inputs_ + slot) return nullptr;
      row = num_inputs_ + slot - back;
    } else if (back <= staged_inputs_) {
      row = num_inputs_ + staged_inputs_ - back;
    } else {
      if (back > slot + num_inputs_) return nullptr;
      row = num_inputs_ + slot - back;
    }
    return reinterpret_cast<const float*>(inputs_.Row(0, 0, row));
  };
  for (size_t i = 0; i < x.rows; ++i) {
    const float** const out = inputs.data() + i * width;
    size_t at = i;  // row of the cell; SIZE_MAX: before it
    size_t back = 0;
    for (size_t tap = width; tap-- > 0;) {
      if (at != SIZE_MAX) {
        out[tap] = x.row(at);
        at = parents.empty() ? (at == 0 ? SIZE_MAX : at - 1)
                             : (parents[at] < 0 ? SIZE_MAX : static_cast<size_t>(parents[at]));
      } else {
        out[tap] = earlier(++back);
      }
    }
  }
}

DeltaEntries LinearLayer::EntriesFrom(size_t first) const {
  RowRing& ring = const_cast<RowRing&>(entries_);
  return {.u = ring.Part0(kU, 0),
          .k = ring.Part0(kK, 0),
          .g = reinterpret_cast<float*>(ring.Part0(kG, 0)),
          .capacity = ring.capacity(),
          .first = ring.Place(first)};
}

DeltaTask LinearLayer::Task(size_t slot, size_t num) {
  TIDEMILL_CHECK(slot == staged_rows_ && slot + num <= step_rows_);
  DeltaTask task;
  if (!is_whole_) {
    folding_to_ = slot == 0 ? FoldLimit(floor_) : base_;
    // Others that fold in the same cell may leave the state to us before our EndRows.
    in_spare_ = folding_to_ != base_ && (state_ == nullptr || is_shared());
    task = {.state = DataOf(state_),
            .folded = const_cast<float*>(DataOf(in_spare_ ? spare_ : state_)),
            .base = base_,
            .fold_to = folding_to_,
            .entries = EntriesFrom(0),
            .num_entries = num_entries_ + slot,
            .place = num_entries_ + slot};
    TIDEMILL_CHECK(folding_to_ == base_ || task.folded != nullptr);
    return task;
  }
  folding_to_ = std::max(staged_base_, form().Boundary(length() + slot + num - 1));
  task = {.state = DataOf(in_spare_ ? spare_ : state_),
          .folded = const_cast<float*>(DataOf(spare_)),
          .base = staged_base_,
          .fold_to = folding_to_,
          .entries = EntriesFrom(staged_first_),
          .num_entries = staged_entries_,
          .place = num_entries_ - staged_first_};
  TIDEMILL_CHECK(folding_to_ == staged_base_ || task.folded != nullptr);
  return task;
}

void LinearLayer::EndRows(size_t slot, ConstMatrix<float> x) {
  const size_t num = x.rows, width = shape_.conv_width;
  const auto store = [&](size_t row, size_t ring_row) {
    std::memcpy(inputs_.Row(0, 0, ring_row), x.row(row), shape_.channels * sizeof(float));
  };
  if (!is_whole_) {
    if (folding_to_ > base_) {
      for (size_t b = base_; b != folding_to_; b = form().Next(b)) ++counts_.boundaries;
      ++counts_.writes;
      if (in_spare_) state_ = std::move(spare_);
      entries_.Drop(folding_to_ - base_);
      num_entries_ -= folding_to_ - base_;
      base_ = folding_to_;
    }
    for (size_t i = 0; i < num && width > 1; ++i) store(i, num_inputs_ + slot + i);
    staged_rows_ = slot + num;
    return;
  }
  const size_t end = length() + slot + num, folded = folding_to_ - staged_base_;
  if (folded != 0) {
    for (size_t b = staged_base_; b != folding_to_; b = form().Next(b)) ++counts_.boundaries;
    ++counts_.writes;
    in_spare_ = true;
    staged_first_ = folded <= staged_entries_ ? staged_first_ + folded : num_entries_;
    staged_base_ = folding_to_;
  }
  staged_entries_ = end - staged_base_;
  if (staged_first_ > num_entries_) {  // so that any number of cells take the same rows
    for (size_t i = 0; i < staged_entries_; ++i) entries_.Move(staged_first_ + i, num_entries_ + i);
    staged_first_ = num_entries_;
  }
  const size_t kept = std::min(width - 1, staged_inputs_ + num), old = kept - std::min(kept, num);
  for (size_t i = 0; i < old; ++i) inputs_.Move(num_inputs_ + staged_inputs_ - old + i, num_inputs_ + i);
  for (size_t i = old; i < kept; ++i) store(num - kept + i, num_inputs_ + i);
  staged_inputs_ = kept;
  staged_rows_ = slot + num;
}

void LinearLayer::DropInputs() {
  const size_t dropped = num_inputs_ - std::min(num_inputs_, kept_inputs());
  inputs_.Drop(dropped);
  num_inputs_ -= dropped;
  path_inputs_ -= dropped;  // may pass below zero: rows that moved away before they were kept
}

void LinearLayer::Commit(size_t n) {
  if (n != 0 && staged_rows_ == 0) {
    CommitUnwritten(n);
  } else if (n != 0 && is_whole_) {
    TIDEMILL_CHECK(n == staged_rows_);
    if (in_spare_) {
      std::swap(state_, spare_);
      if (spare_ != nullptr && spare_.use_count() > 1) spare_ = nullptr;
    }
    base_ = staged_base_;
    entries_.Drop(staged_first_);
    num_entries_ = staged_entries_;
    inputs_.Drop(num_inputs_);
    num_inputs_ = staged_inputs_;
  } else {
    num_entries_ += n;
    num_inputs_ += n;
    DropInputs();
  }
  is_whole_ = false;
  step_rows_ = staged_rows_ = 0;
}

// No cell ran: what the layer remembers of these rows is undefined. Nor did one fold; what it would have folded goes.
void LinearLayer::CommitUnwritten(size_t n) {
  const size_t end = length() + n;
  const size_t base = std::max(base_, form().Boundary(end - std::min(end, options_.rollback_rows)));
  entries_.Drop(std::min(base - base_, num_entries_));
  base_ = base;
  num_entries_ = end - base;
  num_inputs_ += is_whole_ ? std::min(n, inputs_before()) : n;
  DropInputs();
}

void LinearLayer::CommitPath(std::span<const uint32_t> path) {
  const bool is_prefix = path.empty() || path.back() + 1 == path.size();
  if (is_prefix || staged_rows_ == 0) return Commit(path.size());
  TIDEMILL_CHECK(!is_whole_);
  path_ = path;
  path_entries_ = num_entries_;
  path_inputs_ = num_inputs_;
  num_entries_ += path.size();
  num_inputs_ += path.size();
  DropInputs();
  step_rows_ = staged_rows_ = 0;
}

void LinearLayer::SettlePart(size_t part) {
  const bool of_head = part < shape_.delta.value_heads;
  for (size_t i = 0; i < path_.size(); ++i) {
    if (path_[i] == i) continue;
    if (of_head) {
      entries_.Move(kU, part, path_entries_ + path_[i], path_entries_ + i);
      entries_.Move(kG, part, path_entries_ + path_[i], path_entries_ + i);
      continue;
    }
    for (size_t h = 0; h < shape_.delta.key_heads; ++h)
      entries_.Move(kK, h, path_entries_ + path_[i], path_entries_ + i);
    const auto to = static_cast<std::ptrdiff_t>(path_inputs_ + i);
    if (to >= 0) inputs_.Move(path_inputs_ + path_[i], static_cast<size_t>(to));
  }
}

// --- Between steps ---

void LinearLayer::Rollback(size_t to) {
  TIDEMILL_CHECK(to >= base_ && to <= length());
  const size_t rows = length() - to;
  num_entries_ -= rows;
  num_inputs_ -= std::min(num_inputs_, rows);
}

void LinearLayer::Clear() {
  state_ = spare_ = nullptr;
  base_ = num_entries_ = num_inputs_ = 0;
  entries_.Clear();
  inputs_.Clear();
  path_ = {};
  step_rows_ = staged_rows_ = 0;
  is_whole_ = false;
  counts_ = {};
  CountBytes();
}

void LinearLayer::Compact(size_t) {
  spare_ = nullptr;
  const auto compact = [this](RowRing& ring, size_t rows) {
    if (ring.capacity() != rows) OrThrow(ring.Resize(rows, rows));
    CountBytes();
  };
  compact(entries_, num_entries_);
  compact(inputs_, num_inputs_);
}

void LinearLayer::PrepareFork(LayerState& child) {
  auto& other = static_cast<LinearLayer&>(child);
  OrThrow(other.entries_.Copy(entries_, num_entries_, num_entries_));
  OrThrow(other.inputs_.Copy(inputs_, num_inputs_, num_inputs_));
  other.CountBytes();
}

void LinearLayer::Fork(LayerState& child) {
  auto& other = static_cast<LinearLayer&>(child);
  other.state_ = state_;
  other.base_ = base_;
  other.num_entries_ = num_entries_;
  other.num_inputs_ = num_inputs_;
}

// --- Bytes ---

uint64_t LinearLayer::reserved_bytes() const {
  return entries_.bytes() + inputs_.bytes() +
         ((state_ != nullptr ? 1U : 0U) + (spare_ != nullptr ? 1U : 0U)) * state_bytes();
}

uint64_t LinearLayer::read_bytes_per_token(size_t length) const {
  const size_t boundary = form().Boundary(length - std::min(length, options_.rollback_rows));
  return (boundary == 0 ? 0 : state_bytes()) + (length - boundary) * entries_.row_bytes() +
         std::min(length, inputs_before()) * inputs_.row_bytes();
}

void LinearLayer::ForEachBlock(const BlockVisitor& visit) const {
  for (const StatePointer& state : {state_, spare_}) {
    if (state != nullptr) visit(state.get(), state_bytes());
  }
  visit(this, entries_.bytes() + inputs_.bytes());
}

uint64_t LinearLayer::CheckpointBytes(size_t length, size_t earliest) const {
  if (length == 0) return 0;
  const size_t boundary = form().Boundary(earliest), first = FirstInput(length, earliest);
  uint64_t bytes = 0, inputs = 0;
  if (!CheckedMul<uint64_t>(length - boundary, entries_.row_bytes(), &bytes) ||
      !CheckedMul<uint64_t>(length - first, inputs_.row_bytes(), &inputs) || !CheckedAdd(bytes, inputs, &bytes) ||
      !CheckedAdd(bytes, boundary == 0 ? 0 : state_bytes(), &bytes)) {
    return UINT64_MAX;
  }
  return bytes;
}

void LinearLayer::AppendState(std::vector<std::byte>* out, size_t boundary) const {
  std::vector<float> state(shape_.delta.state_floats());
  if (boundary == base_) {
    if (state_ != nullptr) std::memcpy(state.data(), DataOf(state_), state_bytes());
  } else {
    Result<AlignedBuffer> scratch = AlignedBuffer::Create(DeltaScratchBytes());
    if (!scratch.ok()) throw std::bad_alloc();
    const DeltaTask task{.state = DataOf(state_),
                         .folded = state.data(),
                         .base = base_,
                         .fold_to = boundary,
                         .entries = EntriesFrom(0),
                         .num_entries = num_entries_};
    for (size_t head = 0; head < shape_.delta.value_heads; ++head)
      FoldDelta(options_.isa, shape_.delta, task, head, {scratch.value().data(), scratch.value().size()});
  }
  const auto bytes = std::as_bytes(std::span(state));
  out->insert(out->end(), bytes.begin(), bytes.end());
}

void LinearLayer::AppendTo(std::vector<std::byte>* out, size_t earliest) const {
  if (length() == 0) return;
  const size_t boundary = std::max(base_, form().Boundary(earliest));
  const size_t first = FirstInput(length(), earliest);
  if (boundary != 0) AppendState(out, boundary);
  entries_.AppendTo(out, boundary - base_, num_entries_);
  inputs_.AppendTo(out, num_inputs_ - (length() - first), num_inputs_);
}

Result<void> LinearLayer::ReadFrom(ByteReader& reader, size_t length, size_t earliest, BufferArena*) {
  if (length == 0) return {};
  const size_t boundary = form().Boundary(earliest), first = FirstInput(length, earliest);
  if (boundary != 0) {
    TIDEMILL_TRY(state, NewState());
    TIDEMILL_TRY(bytes, reader.Take(state_bytes(), "state of a linear layer"));
    std::memcpy(state->memory.data(), bytes.data(), bytes.size());
    state_ = std::move(state);
  }
  TIDEMILL_TRY_VOID(entries_.Resize(length - boundary, 0));
  TIDEMILL_TRY_VOID(inputs_.Resize(length - first, 0));
  TIDEMILL_TRY_VOID(entries_.ReadFrom(reader, length - boundary));
  TIDEMILL_TRY_VOID(inputs_.ReadFrom(reader, length - first));
  base_ = boundary;
  num_entries_ = length - boundary;
  num_inputs_ = length - first;
  CountBytes();
  return {};
}

void LinearLayer::Take(LayerState&& other) {
  auto& from = static_cast<LinearLayer&>(other);
  state_ = std::move(from.state_);
  spare_ = std::move(from.spare_);
  base_ = from.base_;
  num_entries_ = from.num_entries_;
  num_inputs_ = from.num_inputs_;
  std::swap(entries_, from.entries_);  // an empty ring knows its parts, too
  std::swap(inputs_, from.inputs_);
  path_ = {};
  step_rows_ = staged_rows_ = 0;
  is_whole_ = false;
  from.Clear();
  CountBytes();
}

}  // namespace tidemill
