#include "decoding/draft_choice.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>
#include <utility>

#include "decoding/tree_draft.h"
#include "decoding/vocab_scan.h"

namespace tidemill {
namespace {

// Tokens that a guess is drawn from, at most.
constexpr int32_t kDrawnFrom = 64;

// Special tokens that may be among the best ones without costing a draft token.
constexpr size_t kSpecialsAmongBest = 4;

constexpr float kNever = -std::numeric_limits<float>::infinity();

}  // namespace

DraftChoice::DraftChoice(const Options& options)
    : options_(options), num_rows_(options.target_ids.empty() ? options.vocab_size : options.target_ids.size()) {
  for (size_t row = 0; row < options_.target_ids.size(); ++row) {
    if (static_cast<size_t>(options_.target_ids[row]) >= options_.vocab_size) unknown_.push_back(row);
  }
  chunk_max_.resize(NumChunks(num_rows_));
  if (options_.least_probability > 0 || options_.tokenizer != nullptr) chunk_sum_.resize(chunk_max_.size());
  if (options_.tokenizer != nullptr) {
    ranking_.emplace(num_rows_);
    best_.reserve(TreeDraft::kRanks);
  }
  if (options_.drawn_as == nullptr) return;
  const GenerationOptions& as = *std::exchange(options_.drawn_as, nullptr);
  // What weighs nothing here is no guess: the fewer tokens, the less there is to compare.
  const int32_t top_k = as.top_k == 0 ? kDrawnFrom : std::min(as.top_k, kDrawnFrom);
  auto sampler = Sampler::Create({.temperature = as.temperature, .top_k = top_k, .top_p = as.top_p, .min_p = as.min_p},
                                 {.vocab_size = num_rows_, .isa = options_.isa});
  if (!sampler.ok()) throw std::bad_alloc();  // its options were those of a request
  sampler_.emplace(std::move(*sampler));
  stream_ = {as.seed, 0};
  drawn_from_.resize(options_.most);
}

std::span<float> DraftChoice::Known(std::span<float> logits) const {
  for (const size_t row : unknown_) logits[row] = kNever;
  return logits.first(num_rows_);
}

int32_t DraftChoice::IdOf(size_t row) const {
  return options_.target_ids.empty() ? static_cast<int32_t>(row) : options_.target_ids[row];
}

std::optional<int32_t> DraftChoice::Next(std::span<float> logits, size_t place, size_t position) {
  if (options_.never) logits[static_cast<size_t>(*options_.never)] = kNever;
  const std::span<float> known = Known(logits);
  const LogitScan scan = ScanLogits(options_.isa, known, chunk_max_);
  if (!scan.all_numbers || !std::isfinite(scan.max)) return std::nullopt;
  if (options_.least_probability > 0 &&
      1 / SumWeights(options_.isa, known, scan.max, 1, chunk_sum_) < static_cast<double>(options_.least_probability))
    return std::nullopt;
  return sampler_ ? Draw(known, place, position) : IdOf(ArgMax(known, chunk_max_, scan.max));
}

int32_t DraftChoice::Draw(std::span<float> known, size_t place, size_t position) {
  std::vector<TokenProbability>& tokens = drawn_from_[place];
  tokens = *sampler_->Distribution(known);  // all are numbers
  for (TokenProbability& token : tokens) token.id = IdOf(static_cast<size_t>(token.id));
  std::sort(tokens.begin(), tokens.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  double left = UniformAt(stream_, static_cast<uint32_t>(position), RandomPurpose::kDrawGuess);
  size_t i = 0;
  while (i + 1 < tokens.size() && left >= tokens[i].probability) left -= tokens[i++].probability;
  return tokens[i].id;
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
    if (probability <= 0 || probability < static_cast<double>(options_.least_probability)) break;
    best_.push_back({id, probability});
  }
  return best_;
}

}  // namespace tidemill
