// A cell as layers run it.
#ifndef TIDEMILL_MODELS_LAYERS_DECODER_CELL_H_
#define TIDEMILL_MODELS_LAYERS_DECODER_CELL_H_

#include <cstddef>

#include "state/cell.h"

namespace tidemill {

struct DecoderLayer;

struct DecoderCell {
  const DecoderLayer* layer = nullptr;
  size_t first_state = 0;  // of the layer, in the sequences
  Cell cell;
};

}  // namespace tidemill

#endif  // TIDEMILL_MODELS_LAYERS_DECODER_CELL_H_
