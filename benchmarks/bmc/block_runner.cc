#include "benchmarks/bmc/block_runner.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "base/isa.h"
#include "benchmarks/bmc/kv_store.h"
#include "benchmarks/bmc/stopwatch.h"
#include "kernels/append_kv.h"
#include "kernels/attention.h"
#include "kernels/testing/seeded_inputs.h"
#include "state/kv_layer.h"
#include "state/sequence_state.h"
#ifdef TIDEMILL_ONEDNN
#include "benchmarks/bmc/padded_attention.h"
#endif

namespace tidemill::bmc {
namespace {

float ScaleOf(const Cell& cell) { return 1 / std::sqrt(static_cast<float>(cell.shape.head_dim)); }

AttentionShape ExactShape(const Cell& cell) {
  return {.heads = cell.shape.heads,
          .kv_heads = cell.shape.kv_heads,
          .head_dim = cell.shape.head_dim,
          .scale = ScaleOf(cell),
          .kv_dtype = cell.dtype,
          .soft_cap = 0,
          .window = 0,
          .sink = 0,
          .bias = {}};
}

// The rows of a draft that stay: spread over it, so that all but the first have to move.
size_t PathRow(const Step& step, size_t i) { return i * step.len / step.accepted; }

// A step of the same shape that writes the last rows before `step`: attention to them warms up what a step would find warm.
Step RowsBefore(Step step) {
  step.rows_before -= step.len;
  return step;
}

// What all back ends read and write: queries, new keys and values, results. Rows of seven steps differ.
class Inputs {
 public:
  explicit Inputs(const Cell& cell)
      : cell_(cell),
        q_(testing::RandomFloats(1, cell.batch * cell.draft * q_cols())),
        out_(q_.size()),
        k_(testing::RandomFloats(2, (cell.batch * cell.draft + kTurns) * kv_cols())),
        v_(testing::RandomFloats(3, k_.size())) {}

  size_t q_cols() const { return cell_.shape.heads * cell_.shape.head_dim; }
  size_t kv_cols() const { return cell_.shape.kv_heads * cell_.shape.head_dim; }
  std::span<const float> q(size_t len) const { return {q_.data(), cell_.batch * len * q_cols()}; }
  std::span<float> out(size_t len) { return {out_.data(), cell_.batch * len * q_cols()}; }
  std::span<const float> Out() const { return out_; }
  ConstMatrix<float> k(size_t b, const Step& step) const { return RowsOf(k_, b, step); }
  ConstMatrix<float> v(size_t b, const Step& step) const { return RowsOf(v_, b, step); }
  // The rows of a draft see each other as a chain: what a tree would cost, within the few rows of it.
  AttentionTask Task(size_t b, const Step& step, std::span<const KvSpan> context) {
    return {.context = context,
            .first_position = step.rows_before,
            .visibility = Visibility::kCausal,
            .q = {q_.data() + b * step.len * q_cols(), step.len, q_cols()},
            .out = {out_.data() + b * step.len * q_cols(), step.len, q_cols()}};
  }

 private:
  static constexpr size_t kTurns = 7;

  ConstMatrix<float> RowsOf(const std::vector<float>& all, size_t b, const Step& step) const {
    return {all.data() + (b * step.len + step.rows_before % kTurns) * kv_cols(), step.len, kv_cols()};
  }

  const Cell& cell_;
  std::vector<float> q_, out_, k_, v_;
};

// Back ends on blocks of our own.
class StoreRunner : public BlockRunner {
 public:
  StoreRunner(const Cell& cell, ExecutionContext& context)
      : cell_(cell), context_(context), store_(cell, &context.threads()), inputs_(cell) {}

  Result<void> Place(const Step& step) override {
    if (step.capacity_before == store_.capacity() && step.rows_before >= rows_) {
      store_.ZeroRows(rows_, step.rows_before);
    } else {
      store_.Place(step.rows_before, step.capacity_before, step.capacity);
    }
    rows_ = step.rows_before;
    ShowRows(step.capacity_before, step.rows_before);
    if (step.grows() || step.rows_before < step.len) return {};
    const Step last = RowsBefore(step);
    PrepareMask(last);
    StepSeconds unused;
    return Attend(last, &unused);
  }

  Result<StepSeconds> Run(const Step& step) override {
    StepSeconds seconds;
    if (step.capacity != store_.capacity()) {
      const GrowthSeconds growth = store_.Grow(step.rows_before, step.capacity);
      seconds.allocate = growth.allocate;
      seconds.copy = growth.copy;
    }
    Stopwatch watch;
    const size_t head_dim = cell_.shape.head_dim, row_bytes = RowBytes(cell_.dtype, head_dim);
    for (size_t b = 0; b < cell_.batch; ++b) {
      const KvStore::Span span = store_.LastSpan(b);
      const size_t offset = (step.rows_before - span.first) * row_bytes, stride = span.stride * head_dim;
      AppendKv(context_, inputs_.k(b, step), head_dim, cell_.dtype, stride, span.k + offset);
      AppendKv(context_, inputs_.v(b, step), head_dim, cell_.dtype, stride, span.v + offset);
    }
    PrepareMask(step);
    seconds.update = watch.Lap();
    TIDEMILL_TRY_VOID(Attend(step, &seconds));
    seconds.attention = watch.Lap() - seconds.create;
    if (step.len > 1) {
      MovePath(step);
      ShowRows(step.capacity, step.rows_before + step.accepted);
      seconds.update += watch.Lap();
    }
    rows_ = step.rows_before + step.accepted;
    return seconds;
  }

  std::span<const float> Out() const override { return inputs_.Out(); }

 protected:
  virtual void ShowRows(size_t /*capacity*/, size_t /*rows*/) {}  // that the mask lets through
  virtual void PrepareMask(const Step& /*step*/) {}
  virtual Result<void> Attend(const Step& step, StepSeconds* seconds) = 0;

  void MovePath(const Step& step) {
    const size_t row_bytes = RowBytes(cell_.dtype, cell_.shape.head_dim);
    for (size_t b = 0; b < cell_.batch; ++b) {
      const KvStore::Span span = store_.LastSpan(b);
      for (std::byte* rows : {span.k, span.v}) {
        for (size_t head = 0; head < cell_.shape.kv_heads; ++head) {
          std::byte* first = rows + (head * span.stride + step.rows_before - span.first) * row_bytes;
          for (size_t i = 1; i < step.accepted; ++i) {
            if (PathRow(step, i) != i)
              std::memcpy(first + i * row_bytes, first + PathRow(step, i) * row_bytes, row_bytes);
          }
        }
      }
    }
  }

  const Cell& cell_;
  ExecutionContext& context_;
  KvStore store_;
  Inputs inputs_;
  size_t rows_ = 0;  // valid ones
};

class ExactRunner : public StoreRunner {
 public:
  using StoreRunner::StoreRunner;

 protected:
  Result<void> Attend(const Step& step, StepSeconds* /*seconds*/) override {
    const size_t rows = step.rows_before + step.len;
    contexts_.resize(cell_.batch);
    tasks_.clear();
    for (size_t b = 0; b < cell_.batch; ++b) {
      contexts_[b].clear();
      for (const KvStore::Span& span : store_.Spans(b)) {
        contexts_[b].push_back({.k = span.k,
                                .v = span.v,
                                .head_stride = span.stride * cell_.shape.head_dim,
                                .first = span.first,
                                .rows = std::min(span.rows, rows - span.first)});
      }
      tasks_.push_back(inputs_.Task(b, step, contexts_[b]));
    }
    Attention(context_, ExactShape(cell_), tasks_);
    return {};
  }

 private:
  std::vector<std::vector<KvSpan>> contexts_;
  std::vector<AttentionTask> tasks_;
};

#ifdef TIDEMILL_ONEDNN
// Over all rows that are allocated, or over the valid ones.
class LibraryRunner : public StoreRunner {
 public:
  LibraryRunner(const Cell& cell, ExecutionContext& context, PaddedAttention attention)
      : StoreRunner(cell, context), attention_(std::move(attention)) {}

 protected:
  size_t Columns(const Step& step) const {
    return cell_.backend == Backend::kPadded ? step.capacity : step.rows_before + step.len;
  }

  void ShowRows(size_t columns, size_t rows) override {
    seen_.assign(columns, kMasked);
    std::fill_n(seen_.begin(), rows, 0.0F);
  }

  void PrepareMask(const Step& step) override {
    const size_t columns = Columns(step);
    if (seen_.size() != columns) ShowRows(columns, step.rows_before);
    if (step.len == 1) {
      seen_[step.rows_before] = 0;
      return;
    }
    tree_.resize(step.len * columns);
    for (size_t row = 0; row < step.len; ++row) {
      float* mask = tree_.data() + row * columns;
      std::copy(seen_.begin(), seen_.end(), mask);
      // Any tree costs the same: row i hangs on row (i - 1) / 2.
      for (size_t node = row;; node = (node - 1) / 2) {
        mask[step.rows_before + node] = 0;
        if (node == 0) break;
      }
    }
  }

  Result<void> Attend(const Step& step, StepSeconds* seconds) override {
    const KvStore::Span span = store_.LastSpan(0);
    const uint64_t creations = attention_.creations();
    const double creation_s = attention_.creation_s();
    TIDEMILL_TRY_VOID(attention_.Run({.k = span.k, .v = span.v, .columns = Columns(step), .stride = span.stride},
                                     {.values = step.len == 1 ? seen_ : tree_, .batch = 1, .rows = step.len}, step.len,
                                     inputs_.q(step.len), inputs_.out(step.len)));
    seconds->creations = attention_.creations() - creations;
    seconds->create = attention_.creation_s() - creation_s;
    return {};
  }

 private:
  PaddedAttention attention_;
  std::vector<float> seen_;  // [columns]: the mask of rows that stay
  std::vector<float> tree_;  // [len, columns]
};
#endif

// The engine's caches, one for each sequence, and its thread that commits pages ahead of `reserve`.
class EngineRunner : public BlockRunner {
 public:
  EngineRunner(const Cell& cell, ExecutionContext& context, std::unique_ptr<PageCommitter> pages)
      : cell_(cell), context_(context), inputs_(cell), pages_(std::move(pages)) {}

  Result<void> Place(const Step& step) override {
    if (step.capacity_before != capacity_) caches_.clear();
    capacity_ = step.capacity_before;
    while (caches_.size() < cell_.batch) caches_.push_back(NewCache());
    for (const auto& cache : caches_) {
      const size_t left = step.rows_before - cache->length();
      // `reserve` is an increment ahead: behind rows that are an increment fewer it has no more than these.
      const bool ahead = cell_.policy == KvPolicy::kReserve && left > cell_.increment;
      const size_t at_once = cell_.policy == KvPolicy::kPaged ? cell_.increment
                             : ahead                          ? left - cell_.increment
                                                              : std::max<size_t>(left, 1);
      for (size_t rows = 0; rows < left; rows += at_once) {
        TIDEMILL_TRY_VOID(AppendZeros(*cache, std::min(at_once, left - rows)));
      }
    }
    if (step.grows() || step.rows_before < step.len) return {};
    tasks_.clear();
    for (size_t b = 0; b < cell_.batch; ++b) {
      tasks_.push_back(inputs_.Task(b, RowsBefore(step), LayerOf(*caches_[b]).Context(0)));
    }
    Attention(context_, ExactShape(cell_), tasks_);
    return {};
  }

  Result<StepSeconds> Run(const Step& step) override {
    StepSeconds seconds;
    Stopwatch watch;
    while (caches_.size() < cell_.batch) caches_.push_back(NewCache());
    for (const auto& cache : caches_) TIDEMILL_TRY_VOID(cache->Reserve(step.len));
    seconds.allocate = watch.Lap();
    const size_t head_dim = cell_.shape.head_dim;
    tasks_.clear();
    for (size_t b = 0; b < cell_.batch; ++b) {
      KvLayer& layer = LayerOf(*caches_[b]);
      const KvLayer::StepRows view = layer.View();
      AppendKv(context_, inputs_.k(b, step), head_dim, cell_.dtype, view.head_stride, view.k);
      AppendKv(context_, inputs_.v(b, step), head_dim, cell_.dtype, view.head_stride, view.v);
      tasks_.push_back(inputs_.Task(b, step, layer.Context(step.len)));
    }
    seconds.update = watch.Lap();
    Attention(context_, ExactShape(cell_), tasks_);
    seconds.attention = watch.Lap();
    path_.resize(step.accepted);
    for (size_t i = 0; i < step.accepted; ++i) path_[i] = static_cast<uint32_t>(PathRow(step, i));
    keys_.resize(step.accepted);
    for (const auto& cache : caches_) cache->CommitPath(path_, keys_);
    capacity_ = step.capacity;
    seconds.update += watch.Lap();
    return seconds;
  }

  std::span<const float> Out() const override { return inputs_.Out(); }

 private:
  static KvLayer& LayerOf(SequenceState& cache) {
    cache.layer(0).Settle();
    return static_cast<KvLayer&>(cache.layer(0));
  }

  std::unique_ptr<SequenceState> NewCache() const {
    SequenceState::Layers layers;
    layers.push_back(std::make_unique<KvLayer>(
        KvLayerShape{.kv_heads = cell_.shape.kv_heads, .head_dim = cell_.shape.head_dim},
        KvOptions{.dtype = cell_.dtype,
                  .growth = {.policy = cell_.policy, .increment = cell_.increment, .expected = cell_.tokens},
                  .max_length = cell_.tokens,
                  .pages = pages_.get()}));
    return std::make_unique<SequenceState>(SequenceOptions{.max_length = cell_.tokens}, std::move(layers));
  }

  Result<void> AppendZeros(SequenceState& cache, size_t rows) {
    TIDEMILL_TRY_VOID(cache.Reserve(rows));
    const KvLayer::StepRows view = LayerOf(cache).View();
    const size_t row_bytes = RowBytes(cell_.dtype, cell_.shape.head_dim);
    for (std::byte* part : {view.k, view.v}) {
      for (size_t head = 0; head < cell_.shape.kv_heads; ++head) {
        std::memset(part + head * view.head_stride / cell_.shape.head_dim * row_bytes, 0, rows * row_bytes);
      }
    }
    cache.Commit(std::vector<RowKey>(rows));
    return {};
  }

  const Cell& cell_;
  ExecutionContext& context_;
  Inputs inputs_;
  std::unique_ptr<PageCommitter> pages_;
  std::vector<std::unique_ptr<SequenceState>> caches_;
  size_t capacity_ = 0;  // as the script has it
  std::vector<AttentionTask> tasks_;
  std::vector<uint32_t> path_;
  std::vector<RowKey> keys_;
};

}  // namespace

Result<std::unique_ptr<BlockRunner>> MakeBlockRunner(const Cell& cell, ExecutionContext& context) {
  switch (cell.backend) {
    case Backend::kExact: return std::unique_ptr<BlockRunner>(std::make_unique<ExactRunner>(cell, context));
    case Backend::kEngine: {
      TIDEMILL_TRY(pages, PageCommitter::Create());
      return std::unique_ptr<BlockRunner>(std::make_unique<EngineRunner>(cell, context, std::move(pages)));
    }
    case Backend::kPadded:
    case Backend::kStrided: break;
  }
#ifdef TIDEMILL_ONEDNN
  TIDEMILL_TRY(attention, PaddedAttention::Create({.batch = cell.batch,
                                                   .heads = cell.shape.heads,
                                                   .kv_heads = cell.shape.kv_heads,
                                                   .head_dim = cell.shape.head_dim,
                                                   .scale = ScaleOf(cell),
                                                   .dtype = cell.dtype,
                                                   .max_len = cell.draft,
                                                   .max_columns = cell.tokens}));
  return std::unique_ptr<BlockRunner>(std::make_unique<LibraryRunner>(cell, context, std::move(attention)));
#else
  return Error(ErrorCode::kUnsupported,
               "--backend " + std::string(BackendName(cell.backend)) +
                   ": this build has no oneDNN; install libdnnl-dev and configure with -DTIDEMILL_ONEDNN=ON");
#endif
}

Result<std::vector<Sample>> RunCell(const Cell& cell, size_t samples) try {
  const ProcessCounters counters;
  TIDEMILL_TRY(threads, ThreadPool::Create(cell.threads));
  TIDEMILL_TRY(context, ExecutionContext::Create(DetectIsa(), threads.get(), AttentionScratchBytes(ExactShape(cell))));
  TIDEMILL_TRY(runner, MakeBlockRunner(cell, context));
  const std::vector<Step> script = MakeScript(cell);
  std::vector<Sample> taken;
  size_t next = 0;
  for (const PlannedStep& planned : PlanSteps(script, samples)) {
    const Step& step = script[planned.index];
    if (planned.index != next) TIDEMILL_TRY_VOID(runner->Place(step));
    const MemoryEvents before = counters.Read();
    TIDEMILL_TRY(seconds, runner->Run(step));
    MemoryEvents events = counters.Read();
    events.minor_faults -= before.minor_faults;
    events.major_faults -= before.major_faults;
    if (events.tlb_misses && before.tlb_misses) *events.tlb_misses -= *before.tlb_misses;
    taken.push_back({step, planned.weight, seconds, events});
    next = planned.index + 1;
  }
  return taken;
} catch (const std::bad_alloc&) {
  return Error(ErrorCode::kOutOfMemory, "run " + cell.Key() + ": memory is short");
}

}  // namespace tidemill::bmc
