// A causal language model as the engine runs it: one decoder stack between an embedding and a head.
#ifndef TIDEMILL_MODELS_LANGUAGE_MODEL_H_
#define TIDEMILL_MODELS_LANGUAGE_MODEL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "formats/model_settings.h"
#include "kernels/weight_matrix.h"
#include "models/layers/decoder_layer.h"
#include "models/layers/linear.h"
#include "models/layers/norm.h"
#include "models/layers/step_buffers.h"
#include "models/rope_table.h"
#include "state/kv_growth.h"
#include "state/sequence_state.h"

namespace tidemill {

class PageCommitter;

struct StateOptions {
  DType kv_dtype = DType::kF16;
  KvGrowth growth = {};
  size_t max_length = 1;
  uint64_t numeric_class = 0;
  PageCommitter* pages = nullptr;  // outlives the state; null: see KvLayer
  size_t num_layers = 0;           // of the first layers; 0: of all
};

//   x = project_in(embedding[token] * embedding_scale) + position_embedding[position + position_offset]
//   x = layers(x);   hidden = final_norm(x);   logits = cap(project_out(hidden) head^T)
struct LanguageModel {
  ModelSettings settings;
  uint64_t id = 0;  // hash of the settings, of the tensors' names, shapes and types, and of samples of their bytes
  WeightMatrix embedding;  // [vocab, embedding width]; the head, too, where `head` is not present
  float embedding_scale = 1;
  Linear project_in;                // [hidden, embedding width], or not present: the widths are equal
  WeightMatrix position_embedding;  // [positions, hidden], or no rows
  size_t position_offset = 0;
  std::vector<RopeTable> ropes;  // at most kMaxRopeTables; layers name theirs by index
  std::vector<DecoderLayer> layers;
  Norm final_norm;           // [hidden], or not present
  Linear project_out;        // [embedding width, hidden], or not present
  Linear head;               // [vocab, embedding width]; not present: tied to the embedding
  float logit_soft_cap = 0;  // 0: none

  const WeightMatrix& head_or_tied() const { return head.present() ? head.weight : embedding; }
  StepShape step_shape() const;
  uint64_t resident_bytes() const;  // of all weights in memory of their own
  size_t scratch_bytes() const;     // that a thread needs

  std::unique_ptr<SequenceState> MakeState(const StateOptions& options) const;
};

}  // namespace tidemill

#endif  // TIDEMILL_MODELS_LANGUAGE_MODEL_H_
