#include "models/language_model.h"

#include <algorithm>
#include <span>
#include <utility>

#include "kernels/matmul.h"
#include "state/kv_layer.h"

namespace tidemill {

StepShape LanguageModel::step_shape() const {
  StepShape shape{.hidden = settings.hidden_size};
  const auto note = [&shape](const WeightMatrix& weight) {
    shape.bfloat16_weights = shape.bfloat16_weights || weight.dtype() == DType::kBF16;
    shape.quantized_weights = shape.quantized_weights || weight.quantized();
    shape.q8_0_weights = shape.q8_0_weights || weight.dtype() == DType::kQ8_0;
  };
  const auto note_mlp = [&note](const Mlp& mlp) {
    for (const Linear* linear : {&mlp.gate, &mlp.up, &mlp.down}) note(linear->weight);
  };
  for (const WeightMatrix* weight : {&project_in.weight, &project_out.weight, &features.fuse.weight, &head_or_tied()})
    note(*weight);
  shape.paired = features.present();
  shape.feature_width = features.width;
  for (const DecoderLayer& layer : layers) {
    const AttentionLayer& attention = layer.attention;
    shape.q_dim = std::max(shape.q_dim, attention.heads * attention.head_dim);
    shape.kv_dim = std::max(shape.kv_dim, attention.kv_heads * attention.head_dim);
    shape.ffn = std::max(shape.ffn, layer.mlp.up.weight.rows());
    for (const Linear* linear : {&attention.q, &attention.k, &attention.v, &attention.o}) note(linear->weight);
    note_mlp(layer.mlp);
    note(layer.mixture.router.weight);
    for (const Mlp& expert : layer.mixture.experts) note_mlp(expert);
    if (!layer.mixture.present()) continue;
    shape.experts = std::max(shape.experts, layer.mixture.experts.size());
    shape.experts_per_token = std::max(shape.experts_per_token, layer.mixture.per_token);
    shape.expert_ffn = std::max(shape.expert_ffn, layer.mixture.experts.front().up.weight.rows());
  }
  for (size_t i = 0; i < ropes.size(); ++i) shape.rotary_dims[i] = ropes[i].rotary_dim();
  return shape;
}

uint64_t LanguageModel::resident_bytes() const {
  uint64_t bytes = embedding.resident_bytes() + position_embedding.resident_bytes() + final_norm.bytes() +
                   features.token_norm.bytes();
  for (const Linear* linear : {&project_in, &project_out, &head, &features.fuse}) bytes += linear->bytes();
  for (const DecoderLayer& layer : layers) bytes += layer.bytes();
  return bytes;
}

uint64_t LanguageModel::packed_bytes() const {
  uint64_t bytes = resident_bytes();
  const auto add = [&bytes](const WeightMatrix& weight) {
    if (!weight.packed()) bytes += weight.packed_bytes();
  };
  const auto add_linear = [&add](const Linear& linear) { add(linear.weight); };
  for (const WeightMatrix* weight : {&embedding, &position_embedding}) add(*weight);
  for (const Linear* linear : {&project_in, &project_out, &head, &features.fuse}) add(linear->weight);
  for (const DecoderLayer& layer : layers) {
    layer.ForEachLinear(add_linear);
    for (const Mlp& expert : layer.mixture.experts) expert.ForEachLinear(add_linear);
  }
  return bytes;
}

size_t LanguageModel::scratch_bytes() const {
  size_t bytes = MatMulScratchBytes(head_or_tied());
  for (const Linear* linear : {&project_in, &project_out, &features.fuse})
    bytes = std::max(bytes, MatMulScratchBytes(linear->weight));
  for (const DecoderLayer& layer : layers) bytes = std::max(bytes, DecoderLayerScratchBytes(layer));
  return bytes;
}

std::unique_ptr<SequenceState> LanguageModel::MakeState(const StateOptions& options) const {
  const KvOptions kv{
      .dtype = options.kv_dtype, .growth = options.growth, .max_length = options.max_length, .pages = options.pages};
  SequenceState::Layers states;
  for (const DecoderLayer& layer : layers) {
    const AttentionLayer& a = layer.attention;
    states.push_back(std::make_unique<KvLayer>(
        KvLayerShape{.kv_heads = a.kv_heads, .head_dim = a.head_dim, .window = a.window}, kv));
  }
  return std::make_unique<SequenceState>(
      SequenceOptions{.max_length = options.max_length, .model = id, .numeric_class = options.numeric_class},
      std::move(states));
}

}  // namespace tidemill
