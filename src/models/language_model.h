// A causal language model as the engine runs it: one decoder stack between an embedding and a head.
#ifndef TIDEMILL_MODELS_LANGUAGE_MODEL_H_
#define TIDEMILL_MODELS_LANGUAGE_MODEL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "formats/model_settings.h"
#include "kernels/weight_matrix.h"
#include "models/layers/decoder_layer.h"
#include "models/layers/step_buffers.h"
#include "state/sequence_state.h"

namespace tidemill {

struct StateOptions {
  DType kv_dtype = DType::kF16;
  size_t max_length = 1;
  uint64_t numeric_class = 0;
};

struct LanguageModel {
  ModelSettings settings;
  uint64_t id = 0;         // hash of the file's header and of samples of its weights
  WeightMatrix embedding;  // [vocab, hidden]; rows are gathered from it, and it is the head when `head` is empty
  std::vector<DecoderLayer> layers;
  std::vector<float> final_norm;  // [hidden]
  WeightMatrix head;              // [vocab, hidden]; no rows: tied to the embedding
  std::vector<float> inv_freq;    // [rotary_dim / 2]

  const WeightMatrix& head_or_tied() const { return head.rows() == 0 ? embedding : head; }
  StepShape step_shape() const;
  uint64_t resident_bytes() const;  // of all weights in memory of their own
  size_t scratch_bytes() const;     // that a thread needs

  std::unique_ptr<SequenceState> MakeState(const StateOptions& options) const;
};

}  // namespace tidemill

#endif  // TIDEMILL_MODELS_LANGUAGE_MODEL_H_
