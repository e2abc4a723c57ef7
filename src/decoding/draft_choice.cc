#include "decoding/draft_choice.h"

#include <cmath>
#include <limits>

#include "decoding/tree_draft.h"
#include "decoding/vocab_scan.h"

namespace tidemill {
namespace {

// Special tokens that may stand among the best ones without taking a draft token away.
constexpr size_t kSpecialsAmongBest = 4;

constexpr float kNever = -std::numeric_limits<float>::infinity();

}  // namespace

DraftChoice::DraftChoice(const Options& options)
    : options_(options), num_rows_(options.target_ids.empty() ? options.vocab_size : options.target_ids.size()) {
  for (size_t row = 0; row < options_.target_ids.size(); ++row) {
    if (static_cast<size_t>(options_.target_ids[row]) >= options_.vocab_size) unknown_.push_back(row);
  }
  chunk_max_.resize(NumChunks(num_rows_));
  if (options_.min_probability > 0 || options_.tokenizer != nullptr) chunk_sum_.resize(chunk_max_.size());
  if (options_.tokenizer != nullptr) {
    ranking_.emplace(num_rows_);
    best_.reserve(TreeDraft::kRanks);
  }
}

std::span<float> DraftChoice::Known(std::span<float> logits) const {
  for (const size_t row : unknown_) logits[row] = kNever;
  return logits.first(num_rows_);
}

int32_t DraftChoice::IdOf(size_t row) const {
  return options_.target_ids.empty() ? static_cast<int32_t>(row) : options_.target_ids[row];
}

std::optional<int32_t> DraftChoice::Next(std::span<float> logits) {
  if (options_.never) logits[static_cast<size_t>(*options_.never)] = kNever;
  const std::span<float> known = Known(logits);
  const LogitScan scan = ScanLogits(options_.isa, known, chunk_max_);
  if (!scan.all_numbers || !std::isfinite(scan.max)) return std::nullopt;
  if (options_.min_probability > 0 &&
      1 / SumWeights(options_.isa, known, scan.max, 1, chunk_sum_) < static_cast<double>(options_.min_probability))
    return std::nullopt;
  return IdOf(ArgMax(known, chunk_max_, scan.max));
}

std::span<const TokenProbability> DraftChoice::Best(std::span<float> logits) {
  best_.clear();
  const std::span<float> known = Known(logits);
  const LogitScan scan = ScanLogits(options_.isa, known, chunk_max_);
  if (!scan.all_numbers || !std::isfinite(scan.max)) return {};
  const double sum = SumWeights(options_.isa, known, scan.max, 1, chunk_sum_);
  ranking_->KeepBest(known, chunk_max_, TreeDraft::kRanks + kSpecialsAmongBest);
  for (size_t i = 0; i < ranking_->size() && best_.size() < TreeDraft::kRanks; ++i) {
    const size_t row = ranking_->id(i);
    const int32_t id = IdOf(row);
    if (id == options_.never || options_.tokenizer->IsSpecial(id)) continue;
    const double probability = TokenWeight(known[row], scan.max, 1) / sum;
    if (probability <= 0 || probability < static_cast<double>(options_.min_probability)) break;
    best_.push_back({id, probability});
  }
  return best_;
}

}  // namespace tidemill
