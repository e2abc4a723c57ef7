#include "kernels/sparse_attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <vector>

#include "kernels/key_tiles.h"
#include "tensor/half.h"

namespace tidemill::reference {
namespace {

float ElementOf(DType dtype, const std::byte* base, size_t index) {
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, base + index * 4, 4);
    return value;
  }
  uint16_t bits;
  if (dtype == DType::kQ8_0) {
    const std::byte* block = base + RowBytes(dtype, index / 32 * 32);
    std::memcpy(&bits, block, 2);
    return HalfToFloat(bits) * static_cast<float>(static_cast<int8_t>(block[2 + index % 32]));
  }
  std::memcpy(&bits, base + index * 2, 2);
  return dtype == DType::kF16 ? HalfToFloat(bits) : BFloat16ToFloat(bits);
}

// One query row and one KV head: the keys and values that the row sees.
struct Group {
  size_t begin = 0;  // position of the first one
  std::vector<std::vector<float>> k, v;

  Group(const AttentionShape& shape, const SparseTask& task, size_t kv_head) {
    std::vector<size_t> path = {task.row};
    while (true) {
      const auto parent = task.parents.empty() ? static_cast<int64_t>(path.back()) - 1 : task.parents[path.back()];
      if (parent < 0) break;
      path.push_back(static_cast<size_t>(parent));
    }
    std::reverse(path.begin(), path.end());
    const size_t end = task.first_position + path.size();
    begin = std::max(task.context.front().first, shape.window == 0 || end < shape.window ? 0 : end - shape.window);
    for (size_t j = begin; j < end; ++j) {
      const size_t stored = j < task.first_position ? j : task.first_position + path[j - task.first_position];
      for (const KvSpan& span : task.context) {
        if (stored < span.first || stored >= span.first + span.rows) continue;
        const size_t row = stored - span.first, head = kv_head * span.head_stride, dim = shape.head_dim;
        k.emplace_back();
        v.emplace_back();
        for (size_t i = 0; i < dim; ++i) {
          k.back().push_back(ElementOf(shape.kv_dtype, span.k, head + KeyElement(span.transposed, dim, row, i)));
          v.back().push_back(ElementOf(shape.kv_dtype, span.v, head + row * dim + i));
        }
      }
    }
  }
};

double CappedAs(const AttentionShape& shape, double score) {
  const auto cap = static_cast<double>(shape.soft_cap);
  return cap == 0 ? score : cap * std::tanh(score / cap);
}

// y: softmax attention over some of the rows.
std::vector<double> Attend(const AttentionShape& shape, const Group& group, const std::vector<size_t>& rows,
                           const float* q) {
  std::vector<double> p, out(shape.head_dim);
  for (const size_t j : rows) {
    double score = 0;
    for (size_t i = 0; i < shape.head_dim; ++i) score += static_cast<double>(q[i]) * static_cast<double>(group.k[j][i]);
    p.push_back(CappedAs(shape, score * static_cast<double>(shape.scale)));
  }
  const double max = *std::max_element(p.begin(), p.end());
  double sum = 0;
  for (double& x : p) sum += x = std::exp(x - max);
  for (size_t j = 0; j < rows.size(); ++j) {
    for (size_t i = 0; i < out.size(); ++i) out[i] += p[j] / sum * static_cast<double>(group.v[rows[j]][i]);
  }
  return out;
}

// The softmax of one head's approximate scores, and those scores, in f32.
struct Scores {
  std::vector<float> a, s;
};
Scores ScoresOf(const AttentionShape& shape, const Group& group, const std::vector<size_t>& index, const float* q) {
  float chosen = 0, all = 0;
  for (size_t i = 0; i < shape.head_dim; ++i) all += std::fabs(q[i]);
  for (const size_t i : index) chosen += std::fabs(q[i]);
  const float c = chosen == 0 ? 0 : shape.scale / std::sqrt(chosen / all);
  Scores scores;
  for (const std::vector<float>& k : group.k) {
    float sum = 0;
    for (const size_t i : index) sum = std::fma(q[i], k[i], sum);
    scores.a.push_back(static_cast<float>(CappedAs(shape, static_cast<double>(c * sum))));
  }
  const float max = *std::max_element(scores.a.begin(), scores.a.end());
  double sum = 0;
  for (const float a : scores.a) sum += std::exp(static_cast<double>(a - max));
  for (const float a : scores.a) scores.s.push_back(static_cast<float>(std::exp(static_cast<double>(a - max)) / sum));
  return scores;
}

// The first `count` of [0, values.size()) by descending value, then ascending; sorted.
std::vector<size_t> Greatest(const std::vector<float>& values, size_t count) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] > values[b]; });
  order.resize(count);
  std::sort(order.begin(), order.end());
  return order;
}

struct Choice {
  std::vector<Scores> heads;
  std::vector<size_t> rows;  // i2, counted from the first row that is seen

  double Mass(size_t head) const {
    double mass = 0;
    for (const size_t j : rows) mass += static_cast<double>(heads[head].s[j]);
    return mass;
  }
};
Choice Choose(const AttentionShape& shape, const SparseForm& form, const Group& group, const float* q, size_t r) {
  const size_t heads = shape.heads / shape.kv_heads, dim = shape.head_dim, n = group.k.size();
  std::vector<float> sums(dim), totals(n);
  for (size_t i = 0; i < heads * dim; ++i) sums[i % dim] += std::fabs(q[i]);
  const std::vector<size_t> index = Greatest(sums, r);
  Choice choice;
  for (size_t h = 0; h < heads; ++h) {
    choice.heads.push_back(ScoresOf(shape, group, index, q + h * dim));
    const Scores& scores = choice.heads.back();
    for (size_t j = 0; j < n; ++j) totals[j] += form.rule == SparseRule::kPaper ? scores.s[j] : scores.a[j];
  }
  totals.resize(n - form.local);
  choice.rows = Greatest(totals, form.k - form.local);
  for (size_t j = n - form.local; j < n; ++j) choice.rows.push_back(j);
  return choice;
}

// Of one KV head; its part of an audit, if there is one.
struct Sums {
  double kept_mass = 0, difference = 0, dense = 0, agreement = 0, groups = 0;
};

void OneGroup(const AttentionShape& shape, const SparseTask& task, size_t kv_head, Sums& audit) {
  const SparseForm& form = *task.form;
  const size_t heads = shape.heads / shape.kv_heads, dim = shape.head_dim, first = kv_head * heads;
  const float* q = task.q + first * dim;
  const Group group(shape, task, kv_head);
  const size_t n = group.k.size();
  const bool all = n <= form.k || form.floor >= 1;
  std::vector<size_t> every(n);
  std::iota(every.begin(), every.end(), size_t{0});
  Choice choice{.heads = {}, .rows = {every.begin(), every.begin() + static_cast<std::ptrdiff_t>(std::min(n, form.k))}};
  std::vector<double> alpha(heads, 1.0);
  bool dense = all;
  if (!all) {
    choice = Choose(shape, form, group, q, form.kind == SparseKind::kTopk ? dim : form.r);
    for (size_t h = 0; h < heads; ++h) {
      alpha[h] = choice.Mass(h);
      dense = dense || (form.floor > 0 && !(alpha[h] > static_cast<double>(form.floor)));
    }
  }
  for (size_t h = 0; h < heads; ++h) {
    const std::vector<double> y = Attend(shape, group, dense ? every : choice.rows, q + h * dim);
    const bool blend = !dense && form.kind == SparseKind::kSparq && form.reallocate;
    for (size_t i = 0; i < dim; ++i) {
      double mean = 0;
      for (const std::vector<float>& v : group.v) mean += static_cast<double>(v[i]) / static_cast<double>(n);
      task.out[(first + h) * dim + i] = static_cast<float>(blend ? alpha[h] * y[i] + (1 - alpha[h]) * mean : y[i]);
    }
    if (!task.result.alpha.empty()) task.result.alpha[first + h] = static_cast<float>(alpha[h]);
  }
  if (!task.result.was_dense.empty()) task.result.was_dense[kv_head] = dense && n > form.k ? 1 : 0;
  if (!task.result.kept.empty()) {
    for (size_t i = 0; i < choice.rows.size(); ++i)
      task.result.kept[kv_head * form.k + i] = static_cast<uint32_t>(group.begin + choice.rows[i]);
  }
  if (task.result.audit == nullptr || all) return;
  const Choice exact = Choose(shape, form, group, q, dim);
  for (size_t h = 0; h < heads; ++h) {
    for (const size_t j : choice.rows) audit.kept_mass += static_cast<double>(exact.heads[h].s[j]);
    const std::vector<double> y = Attend(shape, group, every, q + h * dim);
    for (size_t i = 0; i < dim; ++i) {
      const double difference = static_cast<double>(task.out[(first + h) * dim + i]) - y[i];
      audit.difference += difference * difference;
      audit.dense += y[i] * y[i];
    }
  }
  for (const size_t j : choice.rows) {
    const bool both = std::binary_search(exact.rows.begin(), exact.rows.end(), j);
    audit.agreement += both ? 1 / static_cast<double>(form.k) : 0;
  }
  audit.groups += 1;
}

}  // namespace

void SparseAttention(const AttentionShape& shape, std::span<const SparseTask> tasks) {
  for (const SparseTask& task : tasks) {
    Sums sums;
    for (size_t kv_head = 0; kv_head < shape.kv_heads; ++kv_head) OneGroup(shape, task, kv_head, sums);
    if (task.result.audit == nullptr) continue;
    *task.result.audit = {.kept_mass = 1, .error = 0, .agreement = 1};
    if (sums.groups == 0) continue;
    *task.result.audit = {.kept_mass = static_cast<float>(sums.kept_mass / static_cast<double>(shape.heads)),
                          .error = static_cast<float>(std::sqrt(sums.difference / sums.dense)),
                          .agreement = static_cast<float>(sums.agreement / sums.groups)};
  }
}

}  // namespace tidemill::reference
