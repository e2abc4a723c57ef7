#include "planner/predicted_costs.h"

#include <algorithm>

#include "planner/growth_choice.h"

namespace tidemill {
namespace {

constexpr double kLastRows = static_cast<double>(kProfileRows.back());

Cost Sum(Cost a, const Cost& b) { return a += b; }

Cost Scaled(const Cost& cost, double factor) {
  return {.bytes = cost.bytes * factor,
          .flops = cost.flops * factor,
          .int8_ops = cost.int8_ops * factor,
          .bfloat16_ops = cost.bfloat16_ops * factor};
}

double FlopsOfRow(const AttentionShape& shape) { return AttentionCost(shape, 1, 1, 1).flops; }

// Keys and values of one position.
double BytesOfRow(const AttentionShape& shape) {
  return AttentionCost(shape, 1, 1, 1).bytes - AttentionCost(shape, 1, 1, 0).bytes;
}

// Positions that the rows of a prompt see in all.
double SeenPositions(double tokens, double window) {
  if (window == 0 || tokens <= window) return tokens * (tokens + 1) / 2;
  return window * (window + 1) / 2 + (tokens - window) * window;
}

}  // namespace

double AtRows(const PerRows& numbers, double rows, double slope) {
  if (rows >= kLastRows) return numbers.back() + (rows - kLastRows) * slope;
  size_t upper = 1;
  while (static_cast<double>(kProfileRows[upper]) < rows) ++upper;
  const auto low = static_cast<double>(kProfileRows[upper - 1]), high = static_cast<double>(kProfileRows[upper]);
  const double part = std::max(0.0, (rows - low) / (high - low));
  return numbers[upper - 1] + part * (numbers[upper] - numbers[upper - 1]);
}

double PredictedCosts::Products(double rows, double head_rows) const {
  // Of the layers: a mixture reads more experts for more rows, up to 32; past that only operations grow.
  size_t at = 0;
  while (at + 1 < kProfileRows.size() && static_cast<double>(kProfileRows[at]) < rows) ++at;
  Cost layers = Scaled(model_.layer_products[at], rows / static_cast<double>(kProfileRows[at]));
  layers.bytes = model_.layer_products[at].bytes;
  Cost head = Scaled(model_.head, head_rows);
  head.bytes = head_rows > 0 ? model_.head.bytes : 0;

  const Cost sample = SampleProduct();
  const PerRows& t = profile_.product;
  const double slope = (t.back() - t.front()) / (kLastRows - 1);
  const auto beyond_first = [&](const Cost& one_row, double count) {
    const double work = rates().ArithmeticSeconds(one_row) / profile_.all.ArithmeticSeconds(sample);
    return std::max(0.0, AtRows(t, count, slope) - t.front()) * work;
  };
  const double seconds = (layers.bytes + head.bytes) / rates().read +
                         beyond_first(model_.layer_products.front(), rows) + beyond_first(model_.head, head_rows);
  return std::max(seconds, rates().ArithmeticSeconds(Sum(layers, head)));
}

double PredictedCosts::AttentionOf(const AttentionShape& shape, double rows, double kv_rows) const {
  const PerRows& a = profile_.attention;
  const double slower = profile_.all.f32 / rates().f32;
  const double work = FlopsOfRow(shape) / FlopsOfRow(SampleAttention());
  const double compute = kv_rows * AtRows(a, rows, a.back() / kLastRows) * work * slower;
  return std::max(compute, kv_rows * BytesOfRow(shape) / rates().read);
}

double PredictedCosts::DecodeStep(size_t depth, size_t batch) const {
  const auto b = static_cast<double>(batch);
  double seconds = Products(b, b);
  for (const AttentionLayers& group : model_.attention) {
    const size_t window = group.shape.window;
    const size_t seen = window == 0 ? depth + 1 : std::min(depth + 1, window);
    seconds += static_cast<double>(group.layers) * b * AttentionOf(group.shape, 1, static_cast<double>(seen));
  }
  return seconds;
}

double PredictedCosts::Prefill(size_t tokens, size_t chunk) const {
  if (tokens == 0) return 0;
  const size_t rows = std::min(chunk, tokens), last = (tokens - 1) % rows + 1, others = (tokens - last) / rows;
  double seconds =
      static_cast<double>(others) * Products(static_cast<double>(rows), 0) + Products(static_cast<double>(last), 1);
  for (const AttentionLayers& group : model_.attention) {
    const double seen = SeenPositions(static_cast<double>(tokens), static_cast<double>(group.shape.window));
    const double width = static_cast<double>(rows);
    seconds += static_cast<double>(group.layers) * AttentionOf(group.shape, width, seen / width);
  }
  return seconds;
}

double PredictedCosts::Growing(KvPolicy policy, size_t period, size_t positions, size_t batch) const {
  const auto row_bytes = static_cast<double>(model_.state_row_bytes) * static_cast<double>(batch);
  const double copied = RowsCopied(policy, period, positions);
  return row_bytes * (copied / profile_.copy + (copied + static_cast<double>(positions)) * profile_.touch);
}

double PredictedCosts::AttendOneRow(size_t batch) const {
  double seconds = 0;
  for (const AttentionLayers& group : model_.attention) {
    if (group.shape.window == 0) seconds += static_cast<double>(group.layers) * AttentionOf(group.shape, 1, 1);
  }
  return seconds * static_cast<double>(batch);
}

double PredictedCosts::GrowOneRow(size_t batch) const {
  return static_cast<double>(model_.state_row_bytes) * static_cast<double>(batch) *
         (1 / profile_.copy + profile_.touch);
}

}  // namespace tidemill
