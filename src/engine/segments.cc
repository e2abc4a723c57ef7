#include "engine/segments.h"

#include <algorithm>
#include <string>

#include "base/check.h"
#include "base/checked_math.h"
#include "kernels/associative_memory.h"
#include "state/segment_kv_layer.h"

namespace tidemill {

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

size_t SegmentFirst(SequenceState& state) {
  LayerState& layer = state.layer(0);
  TIDEMILL_CHECK(SegmentKvLayer::Holds(layer.checkpoint_kind()));
  return static_cast<SegmentKvLayer&>(layer).segment_first();
}

Result<void> CheckMemories(SequenceState& state) {
  for (size_t i = 0; i < state.num_layers(); ++i) {
    auto& layer = static_cast<SegmentKvLayer&>(state.layer(i));
    if (layer.memory() == nullptr || IsFinite(layer.segments().memory, layer.memory())) continue;
    return Error(ErrorCode::kNumericalError, "layer " + std::to_string(i) + ": the memory behind token " +
                                                 std::to_string(layer.segment_first()) +
                                                 " has an element that is not finite");
  }
  return {};
}

MemoryRows::MemoryRows(const LanguageModel& model)
    : rows_(model.segments.rows.data(), model.segments.shape.memory_rows, model.settings.hidden_size) {
  if (!model.settings.armt->wrap_pos) return;
  for (size_t i = 0; i < rows_.rows; ++i)
    positions_.push_back(static_cast<uint32_t>(model.settings.max_position_embeddings + i));
}

StepSequence MemoryRows::Behind(SequenceState& state, size_t slot) const {
  return {.state = &state, .slot = slot, .embeddings = rows_, .positions = positions_, .ends_segment = true};
}

}  // namespace tidemill
