// A causal language model as the engine runs it: one decoder stack between an embedding and a head.
#ifndef TIDEMILL_MODELS_LANGUAGE_MODEL_H_
#define TIDEMILL_MODELS_LANGUAGE_MODEL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "formats/model_settings.h"
#include "kernels/attention.h"
#include "kernels/weight_matrix.h"
#include "models/layers/decoder_layer.h"
#include "models/layers/linear.h"
#include "models/layers/norm.h"
#include "models/layers/step_buffers.h"
#include "models/rope_table.h"
#include "state/segment_kv_layer.h"
#include "state/sequence_state.h"

namespace tidemill {

// A draft head's input beside tokens: a feature for each row, from the target's layers or, for draft rows, from the head's row before. A
// row with the token of position i + 1 reads the feature of position i, so the head's state begins with the sequence's second token.
//   EAGLE    x = fuse([embedding[token] ; feature])                                                            arXiv:2401.15077
//   EAGLE-3  x = fuse(feature of the target), or a feature of its own as it is                                 arXiv:2503.01840
//   MTP      x = fuse([token_norm(embedding[token]) ; feature_norm(feature)])
struct FeatureInput {
  Linear fuse;  // [hidden, 2 * hidden] with fuses_tokens, else [hidden, width]; not present: the model is no draft head
  bool fuses_tokens = false;  // EAGLE, MTP
  Norm token_norm;  // of embedding[token]: of MTP, and of EAGLE-3, whose layers read it (AttentionLayer::reads_tokens)
  Norm feature_norm;                // of a feature that is fused with a token
  size_t width = 0;                 // of the target's features; without fuses_tokens not hidden
  std::vector<size_t> target_taps;  // where they are taken (StepFeatures::taps)
  size_t own_tap = 0;               // of its own features, [hidden]
  // [rows of the head] the target's id of each, all different; empty: the same ids.
  std::vector<int32_t> target_ids;

  bool present() const { return fuse.present(); }
};

// Of a layer's associative memory; key_dim 0: the settings are of RMT. They have `armt`.
MemoryShape MemoryShapeOf(const ModelSettings& settings);

// Of a recurrent-memory transformer, whose layers begin and end with a memory branch (models/layers/memory_branch.h), or RMT.
struct SegmentModel {
  SegmentShape shape;       // of the last layer; others carry nothing
  std::vector<float> rows;  // [memory_rows, hidden]: inputs behind each segment's tokens

  bool present() const { return !rows.empty(); }
  size_t memory_rows() const { return present() ? shape.memory_rows : 0; }
  // Around a segment's tokens.
  size_t rows_around() const { return memory_rows() + shape.front_rows; }
  SegmentShape ShapeOf(size_t layer, size_t layers) const;
  uint64_t memory_bytes(size_t layers) const;  // of a state
};

//   x = project_in(embedding[token] * embedding_scale) + position_embedding[position + position_offset]
//   x = layers(x);   hidden = final_norm(x);   logits = cap(project_out(hidden) head^T)
struct LanguageModel {
  ModelSettings settings;
  uint64_t id = 0;  // hash of the settings, of the tensors' names, shapes and types, and of samples of their bytes
  // [vocab, embedding width]; also the head if `head` is not present. No rows: a draft head's, which is the target's.
  WeightMatrix embedding;
  float embedding_scale = 1;
  Linear project_in;                // [hidden, embedding width], or not present: the widths are equal
  WeightMatrix position_embedding;  // [positions, hidden], or no rows
  size_t position_offset = 0;
  std::vector<RopeTable> ropes;  // at most kMaxRopeTables; layers refer to them by index
  std::vector<DecoderLayer> layers;
  Norm final_norm;     // [hidden], or not present
  Linear project_out;  // [embedding width, hidden], or not present
  // [vocab or a draft head's ids, embedding width]; not present: tied to the embedding, or the target's
  Linear head;
  float logit_soft_cap = 0;  // 0: none

  SegmentModel segments;

  // Of a draft head, which uses the target's embedding and head if it has none. The target outlives it.
  FeatureInput features;
  const LanguageModel* target = nullptr;

  const WeightMatrix& token_embedding() const { return embedding.rows() != 0 ? embedding : target->embedding; }
  const WeightMatrix& head_or_tied() const {
    if (head.present()) return head.weight;
    return target != nullptr ? target->head_or_tied() : embedding;
  }
  // Calls visit(use) for every linear layer, a head that is tied to the embedding excepted.
  void ForEachWeight(const Branch::WeightVisitor& visit) const;
  StepShape step_shape() const;
  uint64_t resident_bytes() const;  // of all weights in memory of their own
  uint64_t packed_bytes() const;    // the same once all are packed, whether or not they are
  size_t scratch_bytes() const;     // that a thread needs

  // Layer states in the order of the layers and of their branches.
  std::unique_ptr<SequenceState> MakeState(const StateOptions& options) const;
  // [layers + 1] of each layer, its first state in those; then how many there are.
  std::vector<size_t> first_states() const;
  // Of linear attention, which is the same in all layers that have it; none: no layer does.
  std::optional<DeltaShape> delta_shape() const;
  // [layers] of attention over rows of this type; none: the layer has no attention.
  std::vector<std::optional<AttentionShape>> attention_shapes(DType kv_dtype) const;
  // kUnsupported: rows of this type cannot hold what some branch remembers.
  Result<void> CheckKvType(DType kv_dtype) const;
  // Of layers that keep all positions: what a token adds to the state for good.
  uint64_t state_row_bytes(DType kv_dtype) const;
};

}  // namespace tidemill

#endif  // TIDEMILL_MODELS_LANGUAGE_MODEL_H_
