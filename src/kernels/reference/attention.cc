#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/attention.h"
#include "kernels/key_tiles.h"
#include "tensor/half.h"

namespace tidemill::reference {
namespace {

double Element(DType dtype, const std::byte* base, size_t index) {
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, base + index * 4, 4);
    return static_cast<double>(value);
  }
  uint16_t bits;
  if (dtype == DType::kQ8_0) {
    const std::byte* block = base + RowBytes(dtype, index / 32 * 32);
    std::memcpy(&bits, block, 2);
    return static_cast<double>(HalfToFloat(bits)) * static_cast<double>(static_cast<int8_t>(block[2 + index % 32]));
  }
  std::memcpy(&bits, base + index * 2, 2);
  return static_cast<double>(dtype == DType::kF16 ? HalfToFloat(bits) : BFloat16ToFloat(bits));
}

// The rows of the task from the first one down to `row`, each the parent of the next; they stand at first_position and behind it.
std::vector<size_t> PathOf(const AttentionTask& task, size_t row) {
  std::vector<size_t> path = {row};
  if (task.parents.empty()) {
    while (path.back() != 0) path.push_back(path.back() - 1);
  } else {
    while (task.parents[path.back()] >= 0) path.push_back(static_cast<size_t>(task.parents[path.back()]));
  }
  std::reverse(path.begin(), path.end());
  return path;
}

}  // namespace

void Attention(const AttentionShape& shape, std::span<const AttentionTask> tasks) {
  const size_t dim = shape.head_dim;
  for (const AttentionTask& task : tasks) {
    for (size_t row = 0; row < task.q.rows; ++row) {
      const std::vector<size_t> path = PathOf(task, row);
      const size_t position = task.first_position + path.size() - 1;
      for (size_t h = 0; h < shape.heads; ++h) {
        std::vector<double> scores;
        std::vector<std::pair<const KvSpan*, size_t>> rows;
        const size_t kv_head = h / (shape.heads / shape.kv_heads);
        for (const KvSpan& span : task.context) {
          for (size_t r = 0; r < span.rows; ++r) {
            size_t j = span.first + r;
            if (!task.parents.empty() && j >= task.first_position) {
              const auto node = std::find(path.begin(), path.end(), j - task.first_position);
              if (node == path.end()) continue;
              j = task.first_position + static_cast<size_t>(node - path.begin());
            }
            if (task.visibility == Visibility::kCausal && j > position) continue;
            if (shape.window != 0 && j + shape.window <= position && j >= shape.sink) continue;
            double score = 0;
            for (size_t d = 0; d < dim; ++d) {
              score +=
                  static_cast<double>(task.q.row(row)[h * dim + d]) *
                  Element(shape.kv_dtype, span.k, kv_head * span.head_stride + KeyElement(span.transposed, dim, r, d));
            }
            score *= static_cast<double>(shape.scale);
            if (shape.soft_cap != 0) {
              score = static_cast<double>(shape.soft_cap) * std::tanh(score / static_cast<double>(shape.soft_cap));
            }
            if (!shape.bias.empty() && j <= position) {
              const size_t distances = shape.bias.size() / shape.heads;
              score += static_cast<double>(shape.bias[h * distances + std::min(position - j, distances - 1)]);
            }
            scores.push_back(score);
            rows.emplace_back(&span, r);
          }
        }
        const double max = scores.empty() ? 0 : *std::max_element(scores.begin(), scores.end());
        double sum = 0;
        for (double& score : scores) sum += score = std::exp(score - max);
        for (size_t d = 0; d < dim; ++d) {
          double out = 0;
          for (size_t i = 0; i < scores.size(); ++i) {
            out += scores[i] * Element(shape.kv_dtype, rows[i].first->v,
                                       kv_head * rows[i].first->head_stride + rows[i].second * dim + d);
          }
          task.out.row(row)[h * dim + d] = scores.empty() ? 0.0F : static_cast<float>(out / sum);
        }
      }
    }
  }
}

}  // namespace tidemill::reference
