#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "runtime/eval_metrics.h"
#include "tidemill/eval.h"

namespace tidemill {
namespace {

// What a row is made of.
struct RowRecords {
  EvalRow row;
  std::vector<const EvalRecord*> records, dense;  // dense[i]: of the question of records[i]
};

// One for each context: the mean over its questions of how much more a token of the answer costs than with dense attention.
std::vector<double> ContextDifferences(const RowRecords& own) {
  std::map<size_t, std::pair<double, size_t>> sums;  // by context
  for (size_t i = 0; i < own.records.size(); ++i) {
    auto& [sum, count] = sums[own.records[i]->key.context];
    sum += own.records[i]->nll - own.dense[i]->nll;
    ++count;
  }
  std::vector<double> differences;
  for (const auto& [context, sum] : sums) differences.push_back(sum.first / static_cast<double>(sum.second));
  return differences;
}

void AddMean(double value, double share, std::optional<double>* mean) {
  mean->emplace(mean->value_or(0) + value * share);
}

// Records without an estimate are left out; audits count alike.
EvalAttention MeanAttention(const std::vector<const EvalRecord*>& records) {
  EvalAttention mean;
  double alpha = 0;
  size_t estimates = 0;
  for (const EvalRecord* record : records) {
    const EvalAttention& own = record->attention;
    const auto audits = static_cast<double>(own.audits);
    mean.audits += own.audits;
    mean.kept_mass += own.kept_mass * audits;
    mean.error += own.error * audits;
    mean.overlap += own.overlap * audits;
    if (!own.alpha_estimate) continue;
    alpha += *own.alpha_estimate;
    ++estimates;
  }
  if (estimates != 0) mean.alpha_estimate = alpha / static_cast<double>(estimates);
  for (double* sum : {&mean.kept_mass, &mean.error, &mean.overlap})
    *sum /= static_cast<double>(std::max<size_t>(1, mean.audits));
  return mean;
}

EvalRow Finish(RowRecords own, uint64_t seed) {
  EvalRow& row = own.row;
  const double share = 1 / static_cast<double>(own.records.size());
  row.questions = own.records.size();
  row.bytes = 0;
  for (const EvalRecord* record : own.records) {
    row.bytes += record->bytes * share;
    row.nll += record->nll * share;
    row.kl += record->kl * share;
    row.agreement += record->agreement * share;
    row.exact += record->exact ? share : 0;
    row.matched_characters += static_cast<double>(record->matched_characters) * share;
    if (record->rouge_l) AddMean(*record->rouge_l, share, &row.rouge_l);
    if (record->bits_per_character) AddMean(*record->bits_per_character, share, &row.bits_per_character);
  }
  row.attention = MeanAttention(own.records);
  const std::vector<double> differences = ContextDifferences(own);
  row.contexts = differences.size();
  const BootstrapMean mean = BootstrapMeanOf(differences, seed);
  row.ratio = std::exp(mean.mean);
  row.ratio_low = std::exp(mean.low);
  row.ratio_high = std::exp(mean.high);
  return std::move(own.row);
}

}  // namespace

std::vector<EvalRow> SummarizeEval(std::span<const EvalRecord> records, uint64_t seed) {
  std::map<EvalKey, const EvalRecord*> dense;
  for (const EvalRecord& record : records) {
    if (record.key.policy == EvalPolicy().name()) dense[record.key] = &record;
  }
  std::vector<RowRecords> rows;
  for (const EvalRecord& record : records) {
    EvalKey key = record.key;
    key.policy = EvalPolicy().name();
    const auto reference = dense.find(key);
    if (reference == dense.end()) continue;
    auto row = std::find_if(rows.begin(), rows.end(), [&](const RowRecords& r) {
      return r.row.task == key.task && r.row.context_tokens == key.context_tokens && r.row.policy == record.key.policy;
    });
    if (row == rows.end()) {
      rows.emplace_back();
      row = std::prev(rows.end());
      row->row.task = key.task;
      row->row.context_tokens = key.context_tokens;
      row->row.policy = record.key.policy;
    }
    row->records.push_back(&record);
    row->dense.push_back(reference->second);
  }
  std::vector<EvalRow> summary;
  for (RowRecords& row : rows) summary.push_back(Finish(std::move(row), seed));
  return summary;
}

}  // namespace tidemill
