// The order of the work of one (task, key head): rows are cut into batches; a batch's rows into groups, which read one state each. Groups of
// a chain follow from each other by folds in place. A tree's may need the same state again: then it is made again from the last
// one in memory, so that no state is kept for a node.
#include "kernels/delta_rule.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "kernels/cpu/delta_tile.h"

namespace tidemill {
namespace {

constexpr size_t kBatchRows = 64;  // of a chain
constexpr size_t kMaxRows = kMaxDeltaTree;
constexpr size_t kMaxIds = kMaxDeltaEntries + kMaxRows;
constexpr size_t kMaxVisible = kMaxDeltaPeriod + 16;  // of one row, its own included; whole vectors
constexpr size_t kMaxGroups = kMaxIds + 1;
constexpr size_t kNone = SIZE_MAX;

// A block of entries between two boundaries on one path, and the state before it.
struct Group {
  size_t start = 0;                    // position
  size_t parent = kNone;               // whose state and entries give ours
  size_t parent_row = kNone;           // the last of those; kNone: entry `end` - 1 of the parent's
  size_t begin = 0, end = 0;           // entries from before the batch
  size_t first_row = 0, num_rows = 0;  // in Batch::by_group and Batch::x
  size_t weights = 0;  // of the fold that gives our state, in Batch::fold_weights; with the state's decay behind them
};

struct Row {
  size_t position = 0;
  size_t group = 0;
  size_t num_visible = 0;
};

// A batch's memory, of one thread.
struct Batch {
  Group groups[kMaxGroups];
  Row rows[kMaxRows];
  uint16_t by_group[kMaxRows];
  uint16_t visible[kMaxRows][kMaxVisible];  // numbers of entries: those from before the batch, then the batch's rows
  uint16_t ids[kMaxIds];                    // 0, 1, 2, ...
  uint32_t u_rows[kMaxIds];                 // of the ring
  const float* keys[kMaxIds];
  const float* x[2 * kMaxRows];  // k and q of each row of by_group
  alignas(64) float kk[kMaxRows][kMaxVisible];
  float qk[kMaxRows][kMaxVisible];
  float k_weights[kMaxRows][kMaxVisible], q_weights[kMaxRows][kMaxVisible];
  float state_decay[kMaxRows];
  float fold_weights[kMaxIds + kMaxRows * kMaxVisible + 16 * kMaxGroups];
  float products[kMaxRows][2][kDeltaTile];
  float tile[kMaxDeltaDim * kDeltaTile];
  float fold_scratch[kDeltaFoldScratch];
  float v[kDeltaTile], y[kDeltaTile];      // of a tile whose columns are not all there
  float wide_keys[kMaxIds][kMaxDeltaDim];  // of entries that are not F32
};

class KeyHeadRun {
 public:
  KeyHeadRun(const DeltaKernels& kernels, const DeltaShape& shape, const DeltaTask& task, size_t key_head, Batch& batch)
      : kernels_(kernels), shape_(shape), task_(task), key_head_(key_head), b_(batch) {
    is_f32_ = shape.form.dtype == DType::kF32;
    stays_ = task.fold_to <= task.base + task.num_entries;
    base_ = task.base;
    first_ = task.entries.first;
    num_entries_ = task.num_entries;
    state_ = task.state;
  }

  void Run() {
    const size_t rows = task_.k.rows;
    if (rows == 0) return RunBatch(0, 0);
    const size_t batch = task_.parents.empty() ? kBatchRows : rows;
    for (size_t row = 0; row < rows; row += batch) RunBatch(row, std::min(batch, rows - row));
  }

  // The folds alone, of one value head.
  void Fold(size_t value_head) {
    Plan(0, 0);
    Weigh(value_head);
    RunHead(value_head);
  }

 private:
  const DeltaClass& form() const { return shape_.form; }
  std::byte* KeyAt(size_t ring_row) const {
    return task_.entries.k + (key_head_ * task_.entries.capacity + ring_row) * shape_.key_dim * form().element_bytes();
  }

  void RunBatch(size_t row, size_t count) {
    Plan(row, count);
    for (size_t at = 0; at < count; ++at) {
      const size_t i = b_.by_group[at];
      kernels_.dots(b_.x[2 * at], b_.x[2 * at + 1], b_.visible[i], b_.rows[i].num_visible, b_.keys, shape_.key_dim,
                    b_.kk[i], b_.qk[i]);
    }
    for (size_t i = 0; i < shape_.heads_per_key(); ++i) {
      const size_t value_head = shape_.value_head(key_head_, i);
      Weigh(value_head);
      RunHead(value_head);
    }
    StoreRows();
    GoOn();
  }

  // Groups, what each row sees, and where everything stands.
  void Plan(size_t row, size_t count) {
    TIDEMILL_CHECK(num_entries_ <= kMaxDeltaEntries && count <= kMaxRows);
    batch_row_ = row;
    batch_rows_ = count;
    num_groups_ = 0;
    const size_t end = base_ + num_entries_;
    b_.groups[num_groups_++] = {.start = base_};
    for (size_t next = form().Next(base_); next <= end; next = form().Next(next)) {
      Group& before = b_.groups[num_groups_ - 1];
      before.end = next - base_;
      b_.groups[num_groups_] = {.start = next, .parent = num_groups_ - 1, .begin = before.end};
      ++num_groups_;
    }
    // The last one may be full already without anything behind it: then nobody reads its successor, unless the batch has rows or
    // fold_to asks for it.
    b_.groups[num_groups_ - 1].end = num_entries_;
    committed_group_ = num_groups_ - 1;
    for (size_t i = 0; i < count; ++i) PlaceRow(i);
    SortRows();
    for (size_t i = 0; i < num_entries_ + count; ++i) b_.ids[i] = static_cast<uint16_t>(i);
    for (size_t i = 0; i < num_entries_; ++i) {
      const size_t ring_row = (first_ + i) % task_.entries.capacity;
      b_.u_rows[i] = static_cast<uint32_t>(ring_row);
      const std::byte* key = KeyAt(ring_row);
      b_.keys[i] = reinterpret_cast<const float*>(key);
      if (is_f32_) continue;
      kernels_.widen(key, shape_.key_dim, b_.wide_keys[i]);
      b_.keys[i] = b_.wide_keys[i];
    }
    for (size_t i = 0; i < count; ++i) {
      const size_t id = num_entries_ + i;
      b_.u_rows[id] = static_cast<uint32_t>((task_.entries.first + PlaceOf(i)) % task_.entries.capacity);
      const float* key = task_.k.row(row + i) + key_head_ * shape_.key_dim;
      if (!is_f32_) {
        std::byte rounded[2 * kMaxDeltaDim];
        kernels_.store(key, shape_.key_dim, rounded);
        kernels_.widen(rounded, shape_.key_dim, b_.wide_keys[id]);
        key = b_.wide_keys[id];
      }
      b_.keys[id] = key;
    }
    for (size_t at = 0; at < count; ++at) {
      const size_t i = b_.by_group[at];
      b_.x[2 * at] = b_.keys[num_entries_ + i];
      b_.x[2 * at + 1] = task_.q.row(row + i) + key_head_ * shape_.key_dim;
    }
  }

  size_t ParentOf(size_t i) const {  // in the batch
    if (task_.parents.empty()) return i == 0 ? kNone : i - 1;
    const int32_t parent = task_.parents[i];
    return parent < 0 ? kNone : static_cast<size_t>(parent);
  }

  void PlaceRow(size_t i) {
    const size_t parent = ParentOf(i), end = base_ + num_entries_;
    const size_t at = parent == kNone ? end : b_.rows[parent].position + 1;
    const size_t before = parent == kNone ? committed_group_ : b_.rows[parent].group;
    size_t group = before;
    if (at == form().Next(b_.groups[before].start)) {  // a block begins: its group may be there, of a sibling
      group = kNone;
      for (size_t g = before + 1; g < num_groups_ && group == kNone; ++g) {
        if (b_.groups[g].parent == before && b_.groups[g].parent_row == parent) group = g;
      }
      if (group == kNone) {
        group = num_groups_++;
        b_.groups[group] = {
            .start = at, .parent = before, .parent_row = parent, .begin = num_entries_, .end = num_entries_};
      }
    }
    Row& row = b_.rows[i];
    row = {.position = at, .group = group};
    uint16_t* visible = b_.visible[i];
    if (parent != kNone && b_.rows[parent].group == group) {
      row.num_visible = b_.rows[parent].num_visible;
      std::memcpy(visible, b_.visible[parent], row.num_visible * sizeof(*visible));
    } else {
      for (size_t e = b_.groups[group].begin; e < b_.groups[group].end; ++e)
        visible[row.num_visible++] = static_cast<uint16_t>(e);
    }
    visible[row.num_visible++] = static_cast<uint16_t>(num_entries_ + i);
  }

  void SortRows() {
    for (size_t i = 0; i < batch_rows_; ++i) ++b_.groups[b_.rows[i].group].num_rows;
    size_t at = 0;
    for (size_t g = 0; g < num_groups_; ++g) {
      b_.groups[g].first_row = at;
      at += std::exchange(b_.groups[g].num_rows, 0);
    }
    for (size_t i = 0; i < batch_rows_; ++i) {
      Group& group = b_.groups[b_.rows[i].group];
      b_.by_group[group.first_row + group.num_rows++] = static_cast<uint16_t>(i);
    }
  }

  // The entry of the batch's row i in the task's ring.
  size_t PlaceOf(size_t i) const {
    if (stays_) return task_.num_entries + batch_row_ + i;
    const size_t len = task_.base + task_.num_entries;
    const size_t position = b_.rows[i].position, start = b_.groups[b_.rows[i].group].start;
    return start > len ? task_.place + position - start : task_.num_entries + position - len;
  }

  // The entries whose fold gives a group's state.
  std::span<const uint16_t> FoldedBy(const Group& group) const {
    const Group& parent = b_.groups[group.parent];
    if (group.parent_row == kNone) return {b_.ids + parent.begin, parent.end - parent.begin};
    return {b_.visible[group.parent_row], b_.rows[group.parent_row].num_visible};
  }

  // Weights of one value head: what decays leave of each entry, and of the state.
  void Weigh(size_t value_head) {
    const float* ring = task_.entries.g + value_head * task_.entries.capacity;
    const auto g_of = [&](size_t id) {
      return id < num_entries_ ? ring[b_.u_rows[id]] : task_.g.row(batch_row_ + id - num_entries_)[value_head];
    };
    // d[i] for entries [0, n), the last one's 0, and d[n] for the state before them.
    const auto decays = [&](std::span<const uint16_t> entries, float* d) {
      float sum = 0;
      d[entries.size()] = 0;
      for (size_t i = entries.size(); i-- > 0;) {
        d[i] = sum;
        sum += g_of(entries[i]);
      }
      d[entries.size()] = sum;
      kernels_.decay(d, entries.size() + 1);
    };
    for (size_t i = 0; i < batch_rows_; ++i) {
      const size_t n = b_.rows[i].num_visible;
      float* weights = b_.k_weights[i];
      decays({b_.visible[i], n}, weights);
      b_.state_decay[i] = weights[n];
      for (size_t e = 0; e < n; ++e) {
        const float decay = weights[e];
        weights[e] = b_.kk[i][e] * decay;
        b_.q_weights[i][e] = b_.qk[i][e] * decay;
      }
    }
    size_t used = 0;
    for (size_t g = 1; g < num_groups_; ++g) {
      const std::span<const uint16_t> entries = FoldedBy(b_.groups[g]);
      b_.groups[g].weights = used;
      decays(entries, b_.fold_weights + used);
      used += RoundUp<size_t>(entries.size() + 1, 16);
    }
  }

  void RunHead(size_t value_head) {
    const size_t tiles = shape_.padded_value_dim() / kDeltaTile, tile_floats = shape_.key_dim * kDeltaTile;
    for (size_t tile = 0; tile < tiles; ++tile) {
      const size_t at = value_head * shape_.head_floats() + tile * tile_floats;
      from_ = state_ == nullptr ? nullptr : state_ + at;
      to_ = task_.folded == nullptr ? nullptr : task_.folded + at;
      next_ = from_ != nullptr && tile + 1 < tiles ? from_ + tile_floats : nullptr;
      entries_ = {
          .u = task_.entries.u + (value_head * task_.entries.capacity * shape_.padded_value_dim() + tile * kDeltaTile) *
                                     form().element_bytes(),
          .stride = shape_.padded_value_dim(),
          .u_rows = b_.u_rows,
          .keys = b_.keys};
      kept_ = 0;
      kept_at_ = from_;
      held_ = kNone;
      for (size_t g = 0; g < num_groups_; ++g) {
        const Group& group = b_.groups[g];
        if (group.num_rows == 0 && group.start > task_.fold_to) continue;
        const float* state = StateOf(g);
        if (group.num_rows != 0) RunRows(group, state, value_head, tile);
      }
    }
  }

  // The state before a group's block, one tile of it.
  const float* StateOf(size_t g) {
    if (g == kept_) return kept_at_;
    if (g == held_) return b_.tile;
    const Group& group = b_.groups[g];
    const float* from = StateOf(group.parent);
    const bool is_kept = group.start <= task_.fold_to;
    const std::span<const uint16_t> entries = FoldedBy(group);
    const float* weights = b_.fold_weights + group.weights;
    const DeltaFold fold{.entries = entries.data(),
                         .num = entries.size(),
                         .weights = weights,
                         .state_decay = weights[entries.size()],
                         .from = from,
                         .to = is_kept ? to_ : b_.tile,
                         .key_dim = shape_.key_dim};
    kernels_.fold(fold, entries_, b_.fold_scratch);
    if (is_kept) {
      kept_ = g;
      kept_at_ = to_;
    } else {
      held_ = g;
    }
    return fold.to;
  }

  void RunRows(const Group& group, const float* state, size_t value_head, size_t tile) {
    const size_t column = value_head * shape_.value_dim + tile * kDeltaTile;
    const size_t columns = std::min(kDeltaTile, shape_.value_dim - tile * kDeltaTile);
    const bool is_whole = columns == kDeltaTile;
    const std::span<const uint16_t> rows{b_.by_group + group.first_row, group.num_rows};
    if (state != nullptr)
      kernels_.products(b_.x + 2 * group.first_row, 2 * rows.size(), state, shape_.key_dim, next_, b_.products[0][0]);
    for (size_t i = 0; i < rows.size(); ++i) {
      const size_t row = rows[i];
      const float* v = task_.v.row(batch_row_ + row) + column;
      float* const y = task_.y.row(batch_row_ + row) + column;
      if (!is_whole) {
        std::fill(std::copy(v, v + columns, b_.v), std::end(b_.v), 0.0F);
        v = b_.v;
      }
      const DeltaRow r{.visible = b_.visible[row],
                       .num = b_.rows[row].num_visible,
                       .k_weights = b_.k_weights[row],
                       .q_weights = b_.q_weights[row],
                       .products = state == nullptr ? nullptr : b_.products[i][0],
                       .state_decay = b_.state_decay[row],
                       .v = v,
                       .beta = task_.beta.row(batch_row_ + row)[value_head],
                       .y = is_whole ? y : b_.y};
      kernels_.solve(r, entries_);
      if (!is_whole) std::copy(b_.y, b_.y + columns, y);
    }
  }

  // Keys and decays of the rows whose entries stay, or that the next batch reads.
  void StoreRows() {
    for (size_t i = 0; i < batch_rows_; ++i) {
      if (!stays_ && b_.groups[b_.rows[i].group].start != b_.groups[b_.rows[batch_rows_ - 1].group].start) continue;
      const size_t ring_row = b_.u_rows[num_entries_ + i];
      kernels_.store(b_.keys[num_entries_ + i], shape_.key_dim, KeyAt(ring_row));
      for (size_t h = 0; h < shape_.heads_per_key(); ++h) {
        const size_t value_head = shape_.value_head(key_head_, h);
        task_.entries.g[value_head * task_.entries.capacity + ring_row] = task_.g.row(batch_row_ + i)[value_head];
      }
    }
  }

  // What the next batch begins with.
  void GoOn() {
    if (batch_rows_ == 0) return;
    if (stays_) {  // what was folded for good stays so; the rest is folded again
      const size_t folded = task_.fold_to - base_;
      if (folded != 0) {
        state_ = task_.folded;
        base_ = task_.fold_to;
        first_ += folded;
        num_entries_ -= folded;
      }
      num_entries_ += batch_rows_;
      return;
    }
    const size_t last = batch_rows_ - 1, len = task_.base + task_.num_entries, end = b_.rows[last].position + 1;
    const size_t start = b_.groups[b_.rows[last].group].start;
    if (start > base_) state_ = task_.folded;
    first_ = task_.entries.first + (start > len ? task_.place : start - task_.base);
    base_ = start;
    num_entries_ = end - start;
  }

  const DeltaKernels& kernels_;
  const DeltaShape& shape_;
  const DeltaTask& task_;
  size_t key_head_;
  Batch& b_;
  bool is_f32_ = true, stays_ = true;
  // Before the batch: the state in memory, and the entries after it.
  const float* state_ = nullptr;
  size_t base_ = 0, first_ = 0, num_entries_ = 0;
  size_t batch_row_ = 0, batch_rows_ = 0, num_groups_ = 0, committed_group_ = 0;
  // Of one tile: whose state is in memory and in Batch::tile.
  size_t kept_ = 0, held_ = kNone;
  const float *from_ = nullptr, *kept_at_ = nullptr, *next_ = nullptr;
  float* to_ = nullptr;
  DeltaTileEntries entries_;
};

Batch& BatchIn(std::span<std::byte> scratch) {
  TIDEMILL_CHECK(scratch.size() >= sizeof(Batch));
  return *reinterpret_cast<Batch*>(scratch.data());
}

}  // namespace

size_t DeltaScratchBytes() { return sizeof(Batch); }

void DeltaRule(ExecutionContext& ctx, const DeltaShape& shape, std::span<const DeltaTask> tasks) {
  const DeltaKernels kernels = PickDelta(ctx.isa(), shape.form.dtype);
  ctx.threads().ParallelFor(tasks.size() * shape.key_heads, [&](size_t i, size_t thread) {
    KeyHeadRun(kernels, shape, tasks[i / shape.key_heads], i % shape.key_heads, BatchIn(ctx.scratch(thread))).Run();
  });
}

void FoldDelta(Isa isa, const DeltaShape& shape, const DeltaTask& task, size_t value_head,
               std::span<std::byte> scratch) {
  const DeltaKernels kernels = PickDelta(isa, shape.form.dtype);
  KeyHeadRun(kernels, shape, task, shape.key_head(value_head), BatchIn(scratch)).Fold(value_head);
}

}  // namespace tidemill
