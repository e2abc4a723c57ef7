#include "models/language_model.h"

#include <algorithm>
#include <utility>

#include "kernels/matmul.h"

namespace tidemill {

MemoryShape MemoryShapeOf(const ModelSettings& settings) {
  const ArmtSettings& armt = *settings.armt;
  return {.hidden = settings.hidden_size,
          .key_dim = armt.d_mem,
          .nu = armt.nu,
          .correction = armt.correction,
          .dtype = armt.memory_dtype};
}

SegmentShape SegmentModel::ShapeOf(size_t layer, size_t layers) const {
  SegmentShape of = shape;
  if (layer + 1 != layers) of.carried = 0;
  return of;
}

uint64_t SegmentModel::memory_bytes(size_t layers) const {
  return (shape.front_rows == 0 ? layers : 1) * shape.memory_bytes();
}

void LanguageModel::ForEachWeight(const Branch::WeightVisitor& visit) const {
  for (const Linear* linear : {&project_in, &project_out, &head, &features.fuse}) {
    if (linear->present()) visit({*linear});
  }
  for (const DecoderLayer& layer : layers) layer.ForEachWeight(visit);
}

StepShape LanguageModel::step_shape() const {
  StepShape shape{.hidden = settings.hidden_size, .source_width = settings.hidden_size, .paired = features.present()};
  shape.AddWeight(head_or_tied());
  ForEachWeight([&shape](const WeightUse& use) {
    shape.AddWeight(use.linear.weight);
    shape.source_rows = std::max(shape.source_rows, use.per_token);
    shape.products = std::max(shape.products, 2 * use.experts);  // gate and up of all experts
  });
  for (const DecoderLayer& layer : layers) {
    for (size_t i = 0; i < layer.branches.size(); ++i) {
      const Branch& branch = *layer.branches[i].branch;
      shape.AddRegions(i, branch.Regions());
      shape.inputs = std::max(shape.inputs, branch.num_inputs());
    }
  }
  for (size_t i = 0; i < ropes.size(); ++i) shape.rotary_dims[i] = ropes[i].rotary_dim();
  return shape;
}

uint64_t LanguageModel::resident_bytes() const {
  uint64_t bytes = embedding.resident_bytes() + position_embedding.resident_bytes() + final_norm.bytes() +
                   features.token_norm.bytes() + features.feature_norm.bytes();
  for (const Linear* linear : {&project_in, &project_out, &head, &features.fuse}) bytes += linear->bytes();
  for (const DecoderLayer& layer : layers) bytes += layer.bytes();
  return bytes;
}

uint64_t LanguageModel::packed_bytes() const {
  uint64_t bytes = resident_bytes();
  const auto add = [&bytes](const WeightMatrix& weight) {
    if (!weight.packed()) bytes += weight.packed_bytes();
  };
  for (const WeightMatrix* weight : {&embedding, &position_embedding}) add(*weight);
  ForEachWeight([&add](const WeightUse& use) { add(use.linear.weight); });
  return bytes;
}

size_t LanguageModel::scratch_bytes() const {
  size_t bytes = MatMulScratchBytes(head_or_tied());
  ForEachWeight([&bytes](const WeightUse& use) { bytes = std::max(bytes, MatMulScratchBytes(use.linear.weight)); });
  for (const DecoderLayer& layer : layers) {
    for (const LayerBranch& b : layer.branches) bytes = std::max(bytes, b.branch->ScratchBytes());
  }
  return bytes;
}

std::unique_ptr<SequenceState> LanguageModel::MakeState(const StateOptions& options) const {
  // A linear state that may be rolled back keeps entries of so many rows; where drafts are verified as rows of a step, nothing is.
  StateOptions own = options;
  own.draft_rows = delta_shape() ? 0 : SequenceOptions().draft_rows;
  SequenceState::Layers states;
  for (size_t i = 0; i < layers.size(); ++i) {
    own.own_sparse = options.sparse.empty() ? std::nullopt : options.sparse[i];
    if (segments.present()) own.segments = segments.ShapeOf(i, layers.size());
    for (const LayerBranch& b : layers[i].branches) b.branch->AddStates(own, &states);
  }
  return std::make_unique<SequenceState>(SequenceOptions{.max_length = options.max_length,
                                                         .draft_rows = own.draft_rows,
                                                         .model = id,
                                                         .numeric_class = options.numeric_class,
                                                         .ledger = options.ledger},
                                         std::move(states));
}

std::vector<size_t> LanguageModel::first_states() const {
  std::vector<size_t> first(1, 0);
  for (const DecoderLayer& layer : layers) first.push_back(first.back() + layer.num_states());
  return first;
}

std::optional<DeltaShape> LanguageModel::delta_shape() const {
  for (const DecoderLayer& layer : layers) {
    for (const LayerBranch& b : layer.branches) {
      if (const std::optional<DeltaShape> shape = b.branch->delta_shape()) return shape;
    }
  }
  return std::nullopt;
}

std::vector<std::optional<AttentionShape>> LanguageModel::attention_shapes(DType kv_dtype) const {
  std::vector<std::optional<AttentionShape>> shapes;
  for (const DecoderLayer& layer : layers) {
    const std::vector<AttentionShape> all = layer.Work(kv_dtype).attention;
    shapes.push_back(all.empty() ? std::nullopt : std::optional(all.front()));
  }
  return shapes;
}

Result<void> LanguageModel::CheckKvType(DType kv_dtype) const {
  for (const DecoderLayer& layer : layers) {
    for (const LayerBranch& b : layer.branches) TIDEMILL_TRY_VOID(b.branch->CheckKvType(kv_dtype));
  }
  return {};
}

uint64_t LanguageModel::state_row_bytes(DType kv_dtype) const {
  uint64_t bytes = 0;
  for (const DecoderLayer& layer : layers) bytes += layer.Work(kv_dtype).state_row_bytes;
  return bytes;
}

}  // namespace tidemill
