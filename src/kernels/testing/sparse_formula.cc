#include "kernels/testing/sparse_formula.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace tidemill::testing {
namespace {

// Indices of the `count` greatest, ties to the lower one; ascending.
std::vector<uint32_t> Greatest(const std::vector<float>& values, size_t count) {
  std::vector<uint32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return values[a] > values[b]; });
  order.resize(count);
  std::sort(order.begin(), order.end());
  return order;
}

// One row and KV head.
struct Group {
  const Arithmetic& math;
  const AttentionShape& shape;
  const SparseTask& task;
  const float *q, *k, *v;
  std::vector<size_t> stored;  // of each position up to the row's own
  size_t begin, end;

  const float* Key(size_t j) const { return k + stored[j] * shape.head_dim; }
  const float* Value(size_t j) const { return v + stored[j] * shape.head_dim; }
  size_t heads() const { return shape.heads / shape.kv_heads; }

  // s of a head, and a.
  void ScoresOf(const std::vector<uint32_t>& components, size_t head, std::vector<float>& a,
                std::vector<float>& s) const {
    const float* x = q + head * shape.head_dim;
    float chosen = 0, all = 0;
    for (const uint32_t i : components) chosen += std::fabs(x[i]);
    for (size_t i = 0; i < shape.head_dim; ++i) all += std::fabs(x[i]);
    const float c = chosen == 0 ? 0 : shape.scale / std::sqrt(chosen / all);
    for (size_t j = begin; j < end; ++j) {
      float acc = 0;
      for (const uint32_t i : components) acc = math.MulAdd(x[i], Key(j)[i], acc);
      acc *= c;
      a.push_back(shape.soft_cap == 0 ? acc : shape.soft_cap * math.Tanh(acc / shape.soft_cap));
    }
    float total_m = 0, total_l = 0;
    bool any = false;
    std::vector<float> maxima(end / kAttentionChunk + 1);
    for (size_t base = begin / kAttentionChunk * kAttentionChunk; base < end; base += kAttentionChunk) {
      const size_t from = std::max(base, begin), to = std::min(base + kAttentionChunk, end);
      const float m = *std::max_element(a.begin() + (from - begin), a.begin() + (to - begin));
      std::array<float, 16> sums{};
      for (size_t j = from; j < to; ++j) {
        s.push_back(math.Exp(a[j - begin] - m));
        sums[j % 16] += s.back();
      }
      const float l = TreeSum16(sums), both = any ? std::max(total_m, m) : m;
      total_l = any ? math.MulAdd(total_l, math.Exp(total_m - both), l * math.Exp(m - both)) : l;
      total_m = both;
      any = true;
      maxima[base / kAttentionChunk] = m;
    }
    for (size_t j = begin; j < end; ++j) s[j - begin] *= math.Exp(maxima[j / kAttentionChunk] - total_m) / total_l;
  }

  std::vector<float> Mean() const {
    const size_t dim = shape.head_dim;
    std::vector<float> mean(dim);
    for (size_t i = 0; i < dim; ++i) {
      const auto rows = [&](size_t from, size_t to) {
        double sum = 0;
        for (size_t j = from; j < to; ++j) sum += static_cast<double>(Value(j)[i]);
        return sum;
      };
      const auto before = [&](size_t to) {
        double sum = 0;
        for (size_t j = 0; j < to; j += kSumRows) sum += rows(j, std::min(j + kSumRows, to));
        return sum;
      };
      const size_t whole = (begin + kSumRows - 1) / kSumRows * kSumRows;
      double sum = before(end);
      if (begin != 0) sum = (whole < end ? sum - before(whole) : 0.0) + rows(begin, std::min(whole, end));
      mean[i] = static_cast<float>(sum / static_cast<double>(end - begin));
    }
    return mean;
  }
};

}  // namespace

SparseOutcome SparseAttention(Arithmetic math, const AttentionShape& shape, const PlainContext& context,
                              const SparseTask& task) {
  const SparseForm& form = *task.form;
  const size_t dim = shape.head_dim, heads = shape.heads / shape.kv_heads, cols = shape.heads * dim;
  std::vector<size_t> path;
  for (auto node = static_cast<int32_t>(task.row); node >= 0;
       node = task.parents.empty() ? node - 1 : task.parents[static_cast<size_t>(node)])
    path.insert(path.begin(), task.first_position + static_cast<size_t>(node));
  std::vector<size_t> stored(task.first_position + path.size());
  std::iota(stored.begin(), stored.end(), size_t{0});
  std::copy(path.begin(), path.end(), stored.begin() + static_cast<std::ptrdiff_t>(task.first_position));
  const size_t end = stored.size();
  const size_t begin =
      std::max(context.context_begin, shape.window == 0 || end < shape.window ? 0 : end - shape.window);
  const size_t n = end - begin;

  // Dense attention of all heads: that of the last of enough rows.
  std::vector<float> q((task.row + 1) * cols), dense(q.size());
  std::copy(task.q, task.q + cols, q.end() - static_cast<std::ptrdiff_t>(cols));
  const AttentionTask as_dense{.context = {},
                               .first_position = task.first_position,
                               .q = ConstMatrix<float>(q.data(), task.row + 1, cols),
                               .out = Matrix<float>(dense.data(), task.row + 1, cols),
                               .parents = task.parents.empty() ? task.parents : task.parents.first(task.row + 1)};
  Attention(math, shape, context, as_dense, as_dense.out);
  SparseOutcome outcome{.out = {dense.end() - static_cast<std::ptrdiff_t>(cols), dense.end()},
                        .alpha = std::vector<float>(shape.heads, 1.0F),
                        .kept = {},
                        .was_dense = std::vector<uint8_t>(shape.kv_heads),
                        .components = std::vector<std::vector<uint32_t>>(shape.kv_heads)};

  for (size_t kv_head = 0; kv_head < shape.kv_heads; ++kv_head) {
    const size_t offset = kv_head * context.kv_len * dim;
    const Group group{
        math,   shape, task, task.q + kv_head * heads * dim, context.k.data() + offset, context.v.data() + offset,
        stored, begin, end};
    if (n <= form.k || form.floor >= 1) {
      for (size_t i = 0; i < std::min(n, form.k); ++i) outcome.kept.push_back(static_cast<uint32_t>(begin + i));
      outcome.was_dense[kv_head] = n > form.k ? 1 : 0;
      continue;
    }
    std::vector<float> sums(dim), totals(n);
    for (size_t i = 0; i < heads * dim; ++i) sums[i % dim] += std::fabs(group.q[i]);
    const std::vector<uint32_t> components = Greatest(sums, form.kind == SparseKind::kTopk ? dim : form.r);
    outcome.components[kv_head] = components;
    std::vector<std::vector<float>> a(heads), s(heads);
    for (size_t h = 0; h < heads; ++h) {
      group.ScoresOf(components, h, a[h], s[h]);
      for (size_t j = 0; j < n; ++j) totals[j] += form.rule == SparseRule::kPaper ? s[h][j] : a[h][j];
    }
    totals.resize(n - form.local);
    std::vector<uint32_t> chosen = Greatest(totals, form.k - form.local);
    for (size_t j = n - form.local; j < n; ++j) chosen.push_back(static_cast<uint32_t>(j));
    bool is_dense = false;
    std::vector<float> k, v;
    for (const uint32_t j : chosen) {
      outcome.kept.push_back(static_cast<uint32_t>(begin + j));
      k.insert(k.end(), group.Key(begin + j), group.Key(begin + j) + dim);
      v.insert(v.end(), group.Value(begin + j), group.Value(begin + j) + dim);
    }
    for (size_t h = 0; h < heads; ++h) {
      float alpha = 0;
      for (const uint32_t j : chosen) alpha += s[h][j];
      outcome.alpha[kv_head * heads + h] = alpha;
      is_dense = is_dense || (form.floor > 0 && !(alpha > form.floor));
    }
    outcome.was_dense[kv_head] = is_dense ? 1 : 0;
    if (is_dense) continue;
    AttentionShape one = shape;
    one.heads = heads;
    one.kv_heads = 1;
    one.window = 0;
    float* out = outcome.out.data() + kv_head * heads * dim;
    const AttentionTask selected{.context = {},
                                 .first_position = 0,
                                 .visibility = Visibility::kAll,
                                 .q = ConstMatrix<float>(group.q, 1, heads * dim),
                                 .out = Matrix<float>(out, 1, heads * dim)};
    Attention(math, one, {k, v, 0, chosen.size()}, selected, selected.out);
    if (form.kind != SparseKind::kSparq || !form.reallocate) continue;
    const std::vector<float> mean = group.Mean();
    for (size_t i = 0; i < heads * dim; ++i) {
      const float alpha = outcome.alpha[kv_head * heads + i / dim];
      out[i] = math.MulAdd(alpha, out[i], (1 - alpha) * mean[i % dim]);
    }
  }
  return outcome;
}

}  // namespace tidemill::testing
