#include "engine/segments.h"

#include <algorithm>
#include <string>

#include "base/check.h"
#include "base/checked_math.h"
#include "state/segment_kv_layer.h"

namespace tidemill {
namespace {

SegmentKvLayer& SegmentLayer(SequenceState& state, size_t layer) {
  LayerState& of = state.layer(layer);
  TIDEMILL_CHECK(SegmentKvLayer::Holds(of.checkpoint_kind()));
  return static_cast<SegmentKvLayer&>(of);
}

}  // namespace

size_t SegmentEnd(const ArmtSettings& armt, size_t text, size_t first) {
  const size_t size = armt.segment_size;
  switch (armt.segment_alignment) {
    case SegmentAlignment::kLeft: return std::min(text, first + size);
    case SegmentAlignment::kRight: return first == 0 && text % size != 0 ? text % size : std::min(text, first + size);
    case SegmentAlignment::kCenter: return std::min(text, first + DivideRoundUp(text, DivideRoundUp(text, size)));
  }
  return text;
}

size_t LastSegment(const ArmtSettings& armt, size_t text) {
  const size_t size = armt.segment_size;
  switch (armt.segment_alignment) {
    case SegmentAlignment::kLeft: return (text - 1) / size * size;
    case SegmentAlignment::kRight: return text - std::min(text, size);
    case SegmentAlignment::kCenter: {
      const size_t each = DivideRoundUp(text, DivideRoundUp(text, size));
      return (text - 1) / each * each;
    }
  }
  return 0;
}

size_t SegmentFirst(SequenceState& state) { return SegmentLayer(state, 0).segment_first(); }

size_t PlaceInSegment(SequenceState& state, size_t slot) { return SegmentLayer(state, 0).PositionOf(slot); }

Matrix<float> EndCarried(SequenceState& state, size_t slot) {
  for (size_t i = 0; i < state.num_layers(); ++i) {
    SegmentKvLayer& layer = SegmentLayer(state, i);
    layer.EndSegment(slot - layer.front_rows());
  }
  SegmentKvLayer& last = SegmentLayer(state, state.num_layers() - 1);
  const SegmentShape& shape = last.segments();
  return {reinterpret_cast<float*>(last.next_memory()), shape.memory_rows, shape.carried / shape.memory_rows};
}

Result<void> CheckMemories(SequenceState& state, size_t from) {
  for (size_t i = 0; i < state.num_layers(); ++i) {
    SegmentKvLayer& layer = SegmentLayer(state, i);
    if (layer.memory() == nullptr || layer.IsMemoryFinite()) continue;
    return Error(ErrorCode::kNumericalError,
                 "layer " + std::to_string(i) +
                     ": expected a finite memory, found an element that is not since tokens " + std::to_string(from) +
                     " to " + std::to_string(layer.segment_first()) +
                     ": the model cannot hold such a text; give a shorter one");
  }
  return {};
}

MemoryRows::MemoryRows(const LanguageModel& model)
    : rows_(model.segments.rows.data(), model.segments.shape.memory_rows, model.settings.hidden_size),
      is_carried_(model.segments.shape.front_rows != 0) {
  if (!model.settings.armt->wrap_pos) return;
  for (size_t i = 0; i < rows_.rows; ++i)
    positions_.push_back(static_cast<uint32_t>(model.settings.max_position_embeddings + i));
}

StepSequence MemoryRows::Behind(SequenceState& state, size_t slot) const {
  return {.state = &state, .slot = slot, .embeddings = RowsOf(state), .positions = positions_, .ends_segment = true};
}

StepSequence MemoryRows::InFront(SequenceState& state) const { return {.state = &state, .embeddings = RowsOf(state)}; }

size_t MemoryRows::CountInFront(SequenceState& state) { return SegmentLayer(state, 0).front_rows(); }

ConstMatrix<float> MemoryRows::RowsOf(SequenceState& state) const {
  if (!is_carried_) return rows_;
  const std::byte* const carried = SegmentLayer(state, state.num_layers() - 1).memory();
  return carried == nullptr ? rows_
                            : ConstMatrix<float>(reinterpret_cast<const float*>(carried), rows_.rows, rows_.cols);
}

void AddTokens(const MemoryRows* memory, StepSequence tokens, bool ends, std::vector<StepSequence>* step) {
  SequenceState& state = *tokens.state;
  tokens.slot = memory == nullptr ? 0 : MemoryRows::CountInFront(state);
  if (tokens.slot != 0) step->push_back(memory->InFront(state));
  step->push_back(tokens);
  if (ends) step->push_back(memory->Behind(state, tokens.slot + tokens.tokens.size()));
}

}  // namespace tidemill
