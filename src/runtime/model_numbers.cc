#include "runtime/model_numbers.h"

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

namespace tidemill {
namespace {

// Bytes to the group of their kind; of `experts` times as many in a mixture, an expert's share.
void AddBytes(std::vector<WeightGroup>& groups, DType dtype, uint64_t all, size_t experts = 1, size_t per_token = 1) {
  const auto bytes = static_cast<double>(all) / static_cast<double>(experts);
  for (WeightGroup& group : groups) {
    if (group.dtype == dtype && group.experts == static_cast<double>(experts) &&
        group.per_token == static_cast<double>(per_token)) {
      group.bytes += bytes;
      return;
    }
  }
  groups.push_back({.dtype = dtype,
                    .bytes = bytes,
                    .experts = static_cast<double>(experts),
                    .per_token = static_cast<double>(per_token)});
}

void AddWeight(std::vector<WeightGroup>& groups, const WeightUse& use) {
  const WeightMatrix& weight = use.linear.weight;
  AddBytes(groups, weight.dtype(), weight.packed_bytes(), use.experts, use.per_token);
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
  numbers.row_works.push_back(
      {.cols = model.settings.hidden_size, .elements = model.settings.hidden_size});  // embedding
  if (model.project_in.present()) AddWeight(numbers.weights, {model.project_in});
  if (model.features.present() && model.features.fuses_tokens) AddWeight(numbers.weights, {model.features.fuse});
  const auto layers = std::span(model.layers).first(std::min(num_layers, model.layers.size()));
  for (const DecoderLayer& layer : layers) {
    const bool has_outputs =
        &layer == &layers.back() && !model.features.present();  // a draft head reads all that it gave
    layer.ForEachWeight([&](const WeightUse& use) {
      AddWeight(use.of_memory_rows              ? numbers.memory
                : has_outputs && use.of_outputs ? numbers.outputs
                                                : numbers.weights,
                use);
    });
    // What a segment's rows read of those before it takes about as long as a product with as many weights.
    const MemoryShape& memory = model.segments.shape.memory;
    if (model.segments.present() && memory.key_dim != 0) AddBytes(numbers.weights, memory.dtype, memory.bytes());
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
  if (model.project_out.present()) AddWeight(numbers.head, {model.project_out});
  const WeightMatrix& head = model.head_or_tied();
  AddBytes(numbers.head, head.dtype(), head.packed_bytes());
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
