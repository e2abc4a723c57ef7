#include "runtime/sparse_stats.h"

#include <exception>

#include "state/sparse_kv_layer.h"

namespace tidemill {
namespace {

AttentionKind KindOf(SparseKind kind) {
  switch (kind) {
    case SparseKind::kSparq: return AttentionKind::kSparq;
    case SparseKind::kTopk: return AttentionKind::kTopk;
    case SparseKind::kH2o: return AttentionKind::kH2o;
    case SparseKind::kWindow: return AttentionKind::kWindow;
    case SparseKind::kDense: break;
  }
  return AttentionKind::kDense;
}

double Share(double part, uint64_t of) { return of == 0 ? 0 : part / static_cast<double>(of); }

SparseStats::Counts CountsOf(const SparseCounts& counts) {
  return {.rows = counts.rows,
          .short_rows = counts.short_rows,
          .alpha_estimate = Share(counts.alpha, counts.heads),
          .dense_share = Share(static_cast<double>(counts.dense_groups), counts.groups),
          .bytes = counts.bytes,
          .dense_bytes = counts.dense_bytes,
          .audits = counts.audits,
          .kept_mass = Share(counts.kept_mass, counts.audits),
          .error = Share(counts.error, counts.audits),
          .agreement = Share(counts.agreement, counts.audits)};
}

}  // namespace

std::optional<SparseStats> SparseStatsOf(SequenceState& state) {
  std::optional<SparseStats> stats;
  SparseCounts all;
  bool has_layers = true;
  for (size_t i = 0; i < state.num_layers(); ++i) {
    SparseKvLayer* layer = SparseOf(state.layer(i));
    if (layer == nullptr) continue;
    const SparseForm& form = layer->form();
    if (form.kind == SparseKind::kDense) continue;
    if (!stats) {
      stats = {.kind = KindOf(form.kind),
               .r = form.kind == SparseKind::kSparq ? form.r : 0,
               .k = form.k,
               .local = form.local,
               .rule = form.rule == SparseRule::kEval ? SparqRule::kEval : SparqRule::kPaper,
               .reallocate = form.reallocate,
               .columns = layer->column_store().has_columns()};
    }
    stats->columns = stats->columns && layer->column_store().has_columns();
    const SparseCounts& counts = layer->counts();
    all += counts;
    if (!has_layers) continue;
    try {
      stats->layers.push_back({.layer = i, .counts = CountsOf(counts)});
    } catch (const std::exception&) {  // the sums stay
      stats->layers.clear();
      has_layers = false;
    }
  }
  if (stats) stats->all = CountsOf(all);
  return stats;
}

bool GiveUpColumns(SequenceState& state) {
  bool any = false;
  for (size_t i = 0; i < state.num_layers(); ++i) {
    SparseKvLayer* layer = SparseOf(state.layer(i));
    any = (layer != nullptr && layer->GiveUpColumns()) || any;
  }
  return any;
}

}  // namespace tidemill
