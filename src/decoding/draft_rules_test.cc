#include "decoding/draft_rules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "decoding/sampler.h"
#include "tidemill/generation.h"

namespace tidemill {
namespace {

constexpr size_t kVocab = 16;
constexpr size_t kTokens = 3;  // of a sequence: its pairs and triples are counted

// Logits behind a token, that the target and the draft model have: some alike, some not.
float Logit(size_t before, size_t id, bool draft) {
  const double target = std::sin(1.7 * static_cast<double>(before * kVocab + id)) * 2;
  const double other = std::cos(0.9 * static_cast<double>(before + 3 * id));
  return static_cast<float>(draft ? 0.6 * target + other : target);
}

std::vector<float> LogitsBehind(size_t before, bool draft = false) {
  std::vector<float> logits(kVocab);
  for (size_t id = 0; id < kVocab; ++id) logits[id] = Logit(before, id, draft);
  return logits;
}

Sampler Make(const GenerationOptions& options) {
  auto sampler = Sampler::Create(options, {.vocab_size = kVocab, .max_positions = 8});
  return std::move(*sampler);
}

// What the target and the draft model give behind each token, by ascending id, and the draft model's best three, which are no draw.
struct Chain {
  explicit Chain(const GenerationOptions& options) {
    Sampler sampler = Make(options);
    const auto by_id = [](const auto& a, const auto& b) { return a.id < b.id; };
    for (size_t before = 0; before < kVocab; ++before) {
      for (const bool is_draft : {false, true}) {
        std::vector<float> logits = LogitsBehind(before, is_draft);
        std::vector<TokenProbability> found = *sampler.Distribution(logits);
        std::sort(found.begin(), found.end(), by_id);
        (is_draft ? draft : target).push_back(std::move(found));
      }
      std::vector<TokenProbability> best = draft[before];
      std::sort(best.begin(), best.end(), [](const auto& a, const auto& b) { return a.probability > b.probability; });
      siblings.push_back({best[0].id, best[1].id, best[2].id});
    }
  }

  std::vector<std::vector<TokenProbability>> target, draft;
  std::vector<std::vector<int32_t>> siblings;
};

// The token at `position` behind `before`; `stream` of the draw's sequence.
using Rule = std::function<int32_t(size_t before, const RandomStream& stream, uint32_t position)>;

// Chi-square of the sequences' last two and all three tokens against the products of the target's probabilities, each as how many
// standard deviations above its mean. Cells that expect fewer than 5 are one.
struct Deviations {
  double pairs, triples;
  double worst() const { return std::max(pairs, triples); }
};

Deviations DeviationsOf(const Rule& rule, const Chain& chain, uint64_t seed) {
  constexpr int kSequences = 60000;
  std::map<size_t, double> expected_pairs, expected_triples, pairs, triples;
  const auto& target = chain.target;
  for (const auto& a : target[0]) {
    for (const auto& b : target[static_cast<size_t>(a.id)]) {
      for (const auto& c : target[static_cast<size_t>(b.id)]) {
        const double expected = kSequences * a.probability * b.probability * c.probability;
        const auto pair = static_cast<size_t>(b.id) * kVocab + static_cast<size_t>(c.id);
        expected_pairs[pair] += expected;
        expected_triples[static_cast<size_t>(a.id) * kVocab * kVocab + pair] += expected;
      }
    }
  }
  for (int s = 0; s < kSequences; ++s) {
    const RandomStream stream{seed, static_cast<uint64_t>(s)};
    size_t ids[kTokens], before = 0;
    for (size_t t = 0; t < kTokens; ++t)
      before = ids[t] = static_cast<size_t>(rule(before, stream, static_cast<uint32_t>(t)));
    ++pairs[ids[1] * kVocab + ids[2]];
    ++triples[(ids[0] * kVocab + ids[1]) * kVocab + ids[2]];
  }
  const auto deviation = [](const std::map<size_t, double>& expected, std::map<size_t, double> counts) {
    double chi_square = 0, rare_expected = 0, rare = 0, cells = 0;
    for (const auto& [cell, mean] : expected) {
      const double count = counts[cell];
      counts.erase(cell);
      if (mean < 5) {
        rare_expected += mean;
        rare += count;
        continue;
      }
      chi_square += (count - mean) * (count - mean) / mean;
      ++cells;
    }
    for (const auto& [cell, count] : counts) chi_square += count * 1e9;  // what should never be drawn
    if (rare_expected > 0) chi_square += (rare - rare_expected) * (rare - rare_expected) / rare_expected;
    return (chi_square - cells) / std::sqrt(2 * cells);
  };
  return {deviation(expected_pairs, pairs), deviation(expected_triples, triples)};
}

const GenerationOptions kOptions[] = {{.temperature = 1.0f, .seed = 1},
                                      {.temperature = 0.8f, .top_k = 6, .seed = 2},
                                      {.temperature = 1.2f, .top_p = 0.9f, .seed = 3}};

int32_t DrawFrom(const std::vector<TokenProbability>& tokens, double uniform) {
  for (const TokenProbability& token : tokens) {
    if ((uniform -= token.probability) < 0) return token.id;
  }
  return tokens.back().id;
}

TEST(DraftRules, Siblings_PairsAndTriplesFollowTheTarget) {
  for (const GenerationOptions& options : kOptions) {
    const Chain chain(options);
    const Deviations found = DeviationsOf(
        [&](size_t before, const RandomStream& stream, uint32_t position) {
          auto target = chain.target[before];
          return DrawAmongSiblings(target, chain.siblings[before], stream, position);
        },
        chain, options.seed);
    EXPECT_LT(found.worst(), 4) << options.seed;
  }
}

TEST(DraftRules, Residual_PairsAndTriplesFollowTheTarget) {
  for (const GenerationOptions& options : kOptions) {
    const Chain chain(options);
    const Deviations found = DeviationsOf(
        [&](size_t before, const RandomStream& stream, uint32_t position) {
          auto target = chain.target[before];
          const auto& draft = chain.draft[before];
          const int32_t guess = DrawFrom(draft, UniformAt(stream, position, RandomPurpose::kDrawGuess));
          return DrawWithResidual(target, guess, draft, stream, position);
        },
        chain, options.seed);
    EXPECT_LT(found.worst(), 4) << options.seed;
  }
}

// The same test tells rules apart that are wrong in ways that are easily written.
TEST(DraftRules, WrongRules_AreFoundByTheSameTest) {
  const Chain chain(kOptions[0]);
  const auto noise = [](const RandomStream& stream, uint32_t position) {
    return UniformAt(stream, position, RandomPurpose::kAcceptGuess);
  };
  const Rule drawn_again_from_all = [&](size_t before, const RandomStream& stream, uint32_t position) {
    const int32_t guess = chain.siblings[before][0];
    for (const auto& token : chain.target[before]) {
      if (token.id == guess && noise(stream, position) < token.probability) return guess;
    }
    // The guess has a second chance.
    return DrawFrom(chain.target[before], UniformAt(stream, position, RandomPurpose::kSampleToken));
  };
  const Rule one_number_for_two_purposes = [&](size_t before, const RandomStream& stream, uint32_t position) {
    auto target = chain.target[before];
    const int32_t guess = DrawFrom(chain.draft[before], noise(stream, position));
    return DrawWithResidual(target, guess, chain.draft[before], stream, position);
  };
  const Rule always_accepted = [&](size_t before, const RandomStream& stream, uint32_t position) {
    return DrawFrom(chain.draft[before], noise(stream, position));
  };
  for (const Rule& rule : {drawn_again_from_all, one_number_for_two_purposes, always_accepted})
    EXPECT_GT(DeviationsOf(rule, chain, 1).worst(), 20);
}

TEST(DraftRules, Residual_AcceptsAsOftenAsTheDistributionsOverlap) {
  const Chain chain(kOptions[0]);
  const auto &target = chain.target[3], &draft = chain.draft[3];
  double overlap = 0;
  for (size_t i = 0; i < kVocab; ++i) overlap += std::min(target[i].probability, draft[i].probability);
  constexpr int kDraws = 40000;
  int accepted = 0;
  for (uint32_t i = 0; i < kDraws; ++i) {
    const RandomStream stream{7, i};
    const int32_t guess = DrawFrom(draft, UniformAt(stream, 0, RandomPurpose::kDrawGuess));
    auto copy = target;
    accepted += DrawWithResidual(copy, guess, draft, stream, 0) == guess ? 1 : 0;
  }
  EXPECT_NEAR(accepted, overlap * kDraws, 4 * std::sqrt(kDraws * overlap * (1 - overlap)));
}

TEST(DraftRules, OneTokenOfAll_IsDrawnWhateverIsGuessed) {
  for (const int32_t guess : {4, 5}) {
    std::vector<TokenProbability> only = {{5, 1.0}};
    EXPECT_EQ(DrawAmongSiblings(only, std::vector<int32_t>{guess, guess}, {1, 2}, 3), 5);
    only = {{5, 1.0}};
    const std::vector<TokenProbability> draft = {{guess, 1.0}};
    EXPECT_EQ(DrawWithResidual(only, guess, draft, {1, 2}, 3), 5);
  }
}

TEST(SampleAmong, GreedyOrNothingGuessed_IsThePlainDraw) {
  const std::vector<int32_t> siblings = {1, 2};
  for (const float temperature : {0.0f, 1.0f}) {
    Sampler sampler = Make({.temperature = temperature, .seed = 4, .logprobs = 2});
    for (uint32_t position = 0; position < 50; ++position) {
      std::vector<float> a = LogitsBehind(position % kVocab), b = a;
      const SampledToken plain = *sampler.Sample(a, position);
      const Guesses guesses{.ids =
                                temperature == 0.0f ? std::span<const int32_t>(siblings) : std::span<const int32_t>()};
      const SampledToken among = *sampler.SampleAmong(guesses, b, position);
      EXPECT_EQ(plain.id, among.id);
      EXPECT_EQ(plain.logprob, among.logprob);
    }
  }
}

TEST(SampleAmong, Logprobs_AreThoseOfTheLogitsAsTheyCame) {
  const std::vector<int32_t> siblings = {1, 2};
  Sampler sampler = Make({.temperature = 0.7f, .repetition_penalty = 1.3f, .seed = 4, .logprobs = 3});
  const std::vector<int32_t> prompt = {1, 2, 3};
  sampler.Prime(prompt);
  for (uint32_t position = 3; position < 40; ++position) {
    std::vector<float> logits = LogitsBehind(position % kVocab);
    const std::vector<float> raw = logits;
    const SampledToken token = *sampler.SampleAmong({.ids = siblings}, logits, position);
    double sum = 0;
    for (const float logit : raw) sum += std::exp(static_cast<double>(logit));
    EXPECT_NEAR(*token.logprob, static_cast<double>(raw[static_cast<size_t>(token.id)]) - std::log(sum), 1e-6);
    EXPECT_EQ(token.num_top, 3U);
  }
}

}  // namespace
}  // namespace tidemill
