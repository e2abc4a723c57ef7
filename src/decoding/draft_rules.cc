#include "decoding/draft_rules.h"

#include <algorithm>
#include <cstddef>

#include "base/check.h"

namespace tidemill {
namespace {

double SumOf(std::span<const TokenProbability> tokens) {
  double sum = 0;
  for (const TokenProbability& token : tokens) sum += token.probability;
  return sum;
}

// Of those that are left; where rounding leaves the draw behind the last of them, that one.
int32_t Draw(std::span<const TokenProbability> tokens, const RandomStream& stream, uint32_t position) {
  double left = UniformAt(stream, position, RandomPurpose::kSampleToken) * SumOf(tokens);
  int32_t last = tokens.front().id;
  for (const TokenProbability& token : tokens) {
    if (token.probability == 0) continue;
    last = token.id;
    if (left < token.probability) break;
    left -= token.probability;
  }
  return last;
}

// The number for the guess with this index at its position.
double AcceptanceNumber(const RandomStream& stream, uint32_t position, size_t index) {
  const auto first = static_cast<uint32_t>(RandomPurpose::kAcceptGuess);
  return UniformAt(stream, position, static_cast<RandomPurpose>(first + static_cast<uint32_t>(index)));
}

}  // namespace

int32_t DrawAmongSiblings(std::span<TokenProbability> target, std::span<const int32_t> siblings,
                          const RandomStream& stream, uint32_t position) {
  TIDEMILL_CHECK(!target.empty());
  for (size_t i = 0; i < siblings.size(); ++i) {
    const auto token = std::find_if(target.begin(), target.end(), [&](const auto& t) { return t.id == siblings[i]; });
    if (token == target.end() || token->probability == 0) continue;
    const double all = SumOf(target);
    // The last one that is left has all of the sum.
    if (AcceptanceNumber(stream, position, i) * all < token->probability) return token->id;
    token->probability = 0;
  }
  return Draw(target, stream, position);
}

int32_t DrawWithResidual(std::span<TokenProbability> target, int32_t guess, std::span<const TokenProbability> draft,
                         const RandomStream& stream, uint32_t position) {
  TIDEMILL_CHECK(!target.empty());
  const auto by_id = [](const TokenProbability& a, const TokenProbability& b) { return a.id < b.id; };
  if (!std::is_sorted(target.begin(), target.end(), by_id)) std::sort(target.begin(), target.end(), by_id);
  const auto probability_of = [&](std::span<const TokenProbability> tokens) {
    const auto found = std::lower_bound(tokens.begin(), tokens.end(), TokenProbability{guess, 0}, by_id);
    return found != tokens.end() && found->id == guess ? found->probability : 0.0;
  };
  const double p = probability_of(target), q = probability_of(draft);
  if (AcceptanceNumber(stream, position, 0) * q < p) return guess;
  auto other = draft.begin();
  for (TokenProbability& token : target) {
    while (other != draft.end() && other->id < token.id) ++other;
    if (other != draft.end() && other->id == token.id)
      token.probability = std::max(0.0, token.probability - other->probability);
  }
  // p < q somewhere, so p > q elsewhere, but for rounding: then p and q are the same.
  return SumOf(target) > 0 ? Draw(target, stream, position) : guess;
}

}  // namespace tidemill
