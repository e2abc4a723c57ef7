// How a recurrent-memory model reads a text: segment by segment, each followed by the model's memory rows, which carry it into the layers'
// memories (state/segment_kv_layer.h). A prompt's last segment has none: the answer continues it. Of RMT they stand in front of a segment, too, and
// are what the final norm made of those behind the segment before.                                                        RMT: arXiv:2207.06881
//   left     [0, S), [S, 2S), ...                     right    the same from the end: the first may be shorter
//   center   as torch.chunk cuts into ceil(text / S): each has ceil(text / that number) tokens, the last may have fewer
#ifndef TIDEMILL_ENGINE_SEGMENTS_H_
#define TIDEMILL_ENGINE_SEGMENTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/step_rows.h"
#include "formats/model_settings.h"
#include "models/language_model.h"
#include "state/sequence_state.h"
#include "tidemill/result.h"

namespace tidemill {

// The end of the segment that begins at `first`, below `text`, of a text of so many tokens.
size_t SegmentEnd(const ArmtSettings& armt, size_t text, size_t first);

// Where the last segment begins of a text of so many tokens, at least one.
size_t LastSegment(const ArmtSettings& armt, size_t text);

// Where the segment at hand of a state begins, whose model has segments.
size_t SegmentFirst(SequenceState& state);

// Where row `slot` of the step stands in the segment at hand, memory rows included.
size_t PlaceInSegment(SequenceState& state, size_t slot);

// Of RMT: a step's memory rows behind the first `slot` rows have left the last layer. Ends their segment in all layers; says where those rows are to
// be written, [memory rows, hidden].
Matrix<float> EndCarried(SequenceState& state, size_t slot);

// That every layer's memory is finite, once segments have ended that began at position `from`. kNumericalError: layer and positions. Cost: reads all
// of them.
Result<void> CheckMemories(SequenceState& state, size_t from);

// A model's memory rows as rows of a step.
class MemoryRows {
 public:
  // Borrows the model, which has segments.
  explicit MemoryRows(const LanguageModel& model);

  size_t count() const { return rows_.rows; }
  // How many a step with tokens has in its first slots: of RMT, of one that begins a segment.
  static size_t CountInFront(SequenceState& state);
  StepSequence InFront(SequenceState& state) const;  // before the state's other rows in the step
  // Behind the step's first `slot` rows of `state`, which are tokens of its segment and what is in front of them.
  StepSequence Behind(SequenceState& state, size_t slot) const;

  // How many are around tokens of a segment, which may end it.
  size_t CountAround(SequenceState& state, bool ends) const { return CountInFront(state) + (ends ? count() : 0); }

 private:
  ConstMatrix<float> RowsOf(SequenceState& state) const;

  ConstMatrix<float> rows_;          // learned
  bool is_carried_ = false;          // RMT
  std::vector<uint32_t> positions_;  // learned ones at the table's end; empty: they follow the segment's tokens
};

// A step's tokens and the memory rows around them; `memory` is null without segments.
void AddTokens(const MemoryRows* memory, StepSequence tokens, bool ends, std::vector<StepSequence>* step);

}  // namespace tidemill

#endif  // TIDEMILL_ENGINE_SEGMENTS_H_
