// How a recurrent-memory model reads a text: segment by segment, each followed by the model's memory rows, which carry it into the layers'
// memories (state/segment_kv_layer.h). A prompt's last segment has none: the answer continues it.
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

// That every layer's memory is finite, once a segment has ended. kNumericalError: layer and position. Cost: reads all of them.
Result<void> CheckMemories(SequenceState& state);

// A model's memory rows as rows of a step.
class MemoryRows {
 public:
  // Borrows the model, which has segments.
  explicit MemoryRows(const LanguageModel& model);

  size_t count() const { return rows_.rows; }
  // Behind the step's first `slot` rows of `state`, which are tokens of its segment.
  StepSequence Behind(SequenceState& state, size_t slot) const;

 private:
  ConstMatrix<float> rows_;
  std::vector<uint32_t> positions_;  // learned ones at the table's end; empty: they follow the segment's tokens
};

}  // namespace tidemill

#endif  // TIDEMILL_ENGINE_SEGMENTS_H_
