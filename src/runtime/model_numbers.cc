#include "runtime/model_numbers.h"

#include <algorithm>
#include <span>
#include <vector>

#include "state/kv_layer.h"

namespace tidemill {
namespace {

// A weight's bytes to the group of its kind; of `experts` times as many in a mixture, an expert's share.
void AddWeight(std::vector<WeightGroup>& groups, const WeightMatrix& weight, size_t experts, size_t per_token) {
  const auto bytes = static_cast<double>(weight.packed_bytes()) / static_cast<double>(experts);
  for (WeightGroup& group : groups) {
    if (group.dtype == weight.dtype() && group.experts == static_cast<double>(experts) &&
        group.per_token == static_cast<double>(per_token)) {
      group.bytes += bytes;
      return;
    }
  }
  groups.push_back({.dtype = weight.dtype(),
                    .bytes = bytes,
                    .experts = static_cast<double>(experts),
                    .per_token = static_cast<double>(per_token)});
}

void AddAttention(std::vector<AttentionLayers>& groups, const AttentionShape& shape) {
  for (AttentionLayers& group : groups) {
    const AttentionShape& other = group.shape;
    if (other.heads == shape.heads && other.kv_heads == shape.kv_heads && other.head_dim == shape.head_dim &&
        other.window == shape.window) {
      ++group.layers;
      return;
    }
  }
  groups.push_back({1, shape});
}

}  // namespace

uint64_t StateRowBytes(const LanguageModel& model, DType kv_dtype) {
  uint64_t bytes = 0;
  for (const DecoderLayer& layer : model.layers) {
    const KvLayerShape shape{.kv_heads = layer.attention.kv_heads, .head_dim = layer.attention.head_dim};
    if (layer.attention.window == 0) bytes += shape.PositionBytes(kv_dtype);
  }
  return bytes;
}

ModelNumbers NumbersOf(const LanguageModel& model, DType kv_dtype, size_t num_layers) {
  ModelNumbers numbers;
  const auto add_to = [](std::vector<WeightGroup>& groups, size_t experts = 1, size_t per_token = 1) {
    return
        [&groups, experts, per_token](const Linear& linear) { AddWeight(groups, linear.weight, experts, per_token); };
  };
  numbers.row_works.push_back(
      {.cols = model.settings.hidden_size, .elements = model.settings.hidden_size});  // embedding
  if (model.project_in.present()) add_to(numbers.weights)(model.project_in);
  if (model.features.present() && model.features.fuses_tokens) add_to(numbers.weights)(model.features.fuse);
  for (const DecoderLayer& layer : std::span(model.layers).first(std::min(num_layers, model.layers.size()))) {
    layer.ForEachLinear(add_to(numbers.weights));
    for (const Mlp& expert : layer.mixture.experts)
      expert.ForEachLinear(add_to(numbers.weights, layer.mixture.experts.size(), layer.mixture.per_token));
    AddAttention(numbers.attention, layer.attention.shape(kv_dtype));
    for (const RowWork& work : layer.RowWorks()) numbers.row_works.push_back(work);
    numbers.loops += layer.Loops();
  }
  if (model.project_out.present()) add_to(numbers.head)(model.project_out);
  AddWeight(numbers.head, model.head_or_tied(), 1, 1);
  numbers.state_row_bytes = StateRowBytes(model, kv_dtype);
  return numbers;
}

}  // namespace tidemill
