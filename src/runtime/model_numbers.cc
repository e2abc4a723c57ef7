#include "runtime/model_numbers.h"

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

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

void AddAttention(std::vector<AttentionLayers>& groups, const AttentionLayers& one) {
  for (AttentionLayers& group : groups) {
    const AttentionShape &shape = one.shape, &other = group.shape;
    if (other.heads == shape.heads && other.kv_heads == shape.kv_heads && other.head_dim == shape.head_dim &&
        other.window == shape.window && group.sparse == one.sparse && group.has_columns == one.has_columns) {
      group.layers += one.layers;
      return;
    }
  }
  groups.push_back(one);
}

}  // namespace

ModelNumbers NumbersOf(const LanguageModel& model, DType kv_dtype, size_t num_layers) {
  ModelNumbers numbers;
  const auto add_to = [](std::vector<WeightGroup>& groups) {
    return [&groups](const WeightUse& use) { AddWeight(groups, use.linear.weight, use.experts, use.per_token); };
  };
  numbers.row_works.push_back(
      {.cols = model.settings.hidden_size, .elements = model.settings.hidden_size});  // embedding
  if (model.project_in.present()) add_to(numbers.weights)({model.project_in});
  if (model.features.present() && model.features.fuses_tokens) add_to(numbers.weights)({model.features.fuse});
  for (const DecoderLayer& layer : std::span(model.layers).first(std::min(num_layers, model.layers.size()))) {
    layer.ForEachWeight(add_to(numbers.weights));
    const BranchWork work = layer.Work(kv_dtype);
    for (const AttentionShape& shape : work.attention) AddAttention(numbers.attention, {.layers = 1, .shape = shape});
    for (const LayerBranch& branch : layer.branches) {
      if (const std::optional<DeltaShape> shape = branch.branch->delta_shape()) {
        ++numbers.linear.layers;
        numbers.linear.shape = *shape;
      }
    }
    numbers.row_works.insert(numbers.row_works.end(), work.rows.begin(), work.rows.end());
    numbers.loops += work.loops;
  }
  if (model.project_out.present()) add_to(numbers.head)({model.project_out});
  AddWeight(numbers.head, model.head_or_tied(), 1, 1);
  numbers.state_row_bytes = model.state_row_bytes(kv_dtype);
  return numbers;
}

ModelNumbers NumbersOf(const LanguageModel& model, DType kv_dtype, const AttentionClass& attention) {
  ModelNumbers numbers = NumbersOf(model, kv_dtype);
  if (!attention.is_sparse()) return numbers;
  numbers.sparse_from = attention.from;
  numbers.attention.clear();
  const auto shapes = model.attention_shapes(kv_dtype);
  for (size_t i = 0; i < shapes.size(); ++i) {
    if (!shapes[i]) continue;
    AttentionLayers one{.layers = 1, .shape = *shapes[i]};
    if (const std::optional<SparseLayer>& sparse = attention.layers[i]) {
      one.sparse = sparse->form;
      one.has_columns = sparse->columns;
    }
    AddAttention(numbers.attention, one);
  }
  return numbers;
}

}  // namespace tidemill
