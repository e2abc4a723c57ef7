#include "decoding/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/testing/levels.h"

namespace tidemill::sampler_test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr int32_t kEos = 3;

struct Case {
  GenerationOptions options;
  std::vector<float> logits;
  std::vector<int32_t> prompt;
  std::vector<int32_t> answer;
};

Sampler Make(const GenerationOptions& options, size_t vocab, const std::vector<int32_t>& prompt = {},
             const std::vector<int32_t>& answer = {}, uint64_t sequence = 0) {
  const std::vector<int32_t> eos = {kEos};
  auto sampler =
      Sampler::Create(options, {.vocab_size = vocab, .eos_ids = eos, .sequence = sequence, .max_positions = 64});
  EXPECT_TRUE(sampler.ok()) << (sampler.ok() ? "" : sampler.error().message());
  sampler->Prime(prompt);
  for (const int32_t id : answer) sampler->Accept(id);
  return std::move(sampler).value();
}

std::vector<float> RandomLogits(size_t vocab, std::mt19937_64& rng) {
  std::normal_distribution<float> normal(0.0f, 3.0f);
  std::vector<float> logits(vocab);
  for (float& logit : logits) logit = normal(rng);
  return logits;
}

// The header's ten steps with a full sort, the C library's exp and long double; probabilities in the order of the draw,
// none if every token is masked.
std::vector<std::pair<int32_t, double>> NaiveDistribution(const Case& c) {
  const GenerationOptions& o = c.options;
  std::vector<float> l = c.logits;
  for (const auto& [id, bias] : o.logit_bias) l[static_cast<size_t>(id)] += bias;
  std::vector<int32_t> history = c.prompt;
  history.insert(history.end(), c.answer.begin(), c.answer.end());
  for (int32_t id = 0; id < static_cast<int32_t>(l.size()); ++id) {
    float& logit = l[static_cast<size_t>(id)];
    if (std::count(history.begin(), history.end(), id) > 0) {
      logit = logit < 0 ? logit * o.repetition_penalty : logit / o.repetition_penalty;
    }
    const auto times = std::count(c.answer.begin(), c.answer.end(), id);
    if (times > 0) logit -= o.presence_penalty + o.frequency_penalty * static_cast<float>(times);
  }
  const auto n = static_cast<size_t>(o.no_repeat_ngram_size);
  for (size_t i = 0; n > 0 && i + n <= history.size(); ++i) {
    const auto at = [&](size_t index) { return history.begin() + static_cast<std::ptrdiff_t>(index); };
    if (std::equal(at(i), at(i + n - 1), at(history.size() - n + 1)))
      l[static_cast<size_t>(history[i + n - 1])] = -kInf;
  }
  if (static_cast<int32_t>(c.answer.size()) < o.min_new_tokens) l[kEos] = -kInf;

  std::vector<int32_t> order(l.size());
  std::iota(order.begin(), order.end(), 0);
  const auto logit_of = [&](int32_t id) { return l[static_cast<size_t>(id)]; };
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return logit_of(a) > logit_of(b); });
  if (logit_of(order[0]) == -kInf) return {};
  if (o.temperature == 0.0f) return {{order[0], 1.0}};
  const auto weight_of = [&](int32_t id) {
    return std::exp((static_cast<long double>(logit_of(id)) - logit_of(order[0])) / o.temperature);
  };
  if (o.top_k > 0 && o.top_k < static_cast<int32_t>(order.size())) order.resize(static_cast<size_t>(o.top_k));
  long double total = 0;
  for (const int32_t id : order) total += weight_of(id);
  std::vector<int32_t> kept;
  long double before = 0;
  for (const int32_t id : order) {
    if ((o.top_p == 1.0f || before < o.top_p * total) && weight_of(id) >= o.min_p && weight_of(id) > 0)
      kept.push_back(id);
    before += weight_of(id);
  }
  if (o.top_p == 1.0f && (o.top_k == 0 || o.top_k >= static_cast<int32_t>(l.size())))
    std::sort(kept.begin(), kept.end());
  long double left = 0;
  for (const int32_t id : kept) left += weight_of(id);
  std::vector<std::pair<int32_t, double>> distribution;
  for (const int32_t id : kept) distribution.emplace_back(id, static_cast<double>(weight_of(id) / left));
  return distribution;
}

Case RandomCase(std::mt19937_64& rng) {
  const auto one_in = [&](uint64_t n) { return rng() % n == 0; };
  const auto pick = [&](auto... values) {
    const double list[] = {static_cast<double>(values)...};
    return list[rng() % std::size(list)];
  };
  Case c;
  const size_t vocab = 4 + rng() % (one_in(4) ? 3000 : 200);
  c.logits = RandomLogits(vocab, rng);
  if (one_in(3)) {  // ties
    for (float& logit : c.logits) logit = std::round(logit);
  }
  if (one_in(4)) {
    for (float& logit : c.logits) logit = one_in(2) ? -kInf : logit;
    c.logits[kEos == 0 ? 1 : 0] = 1.0f;
  }
  for (uint64_t i = rng() % 20; i > 0; --i)
    c.prompt.push_back(static_cast<int32_t>(rng() % std::min<size_t>(vocab, 8)));
  for (uint64_t i = rng() % 20; i > 0; --i)
    c.answer.push_back(static_cast<int32_t>(rng() % std::min<size_t>(vocab, 8)));
  GenerationOptions& o = c.options;
  o.seed = rng();
  o.temperature = static_cast<float>(pick(0, 0.3, 0.7, 1, 1, 1.5, 40));
  if (one_in(2)) o.top_k = static_cast<int32_t>(pick(1, 2, 5, 40, 100, 5000));
  if (one_in(2)) o.top_p = static_cast<float>(pick(0.001, 0.3, 0.7, 0.9, 0.95, 0.999, 0.9999999));
  if (one_in(2)) o.min_p = static_cast<float>(pick(1e-9, 0.01, 0.1, 0.5, 1));
  if (one_in(3)) o.repetition_penalty = static_cast<float>(pick(0.5, 1.1, 1.3, 2));
  if (one_in(3)) o.presence_penalty = static_cast<float>(pick(-1, 0.5, 2));
  if (one_in(3)) o.frequency_penalty = static_cast<float>(pick(-0.5, 0.25, 1));
  if (one_in(3)) o.no_repeat_ngram_size = static_cast<int32_t>(pick(2, 2, 3, 4));
  if (one_in(3)) o.min_new_tokens = static_cast<int32_t>(pick(5, 15));
  for (uint64_t i = one_in(3) ? rng() % 5 : 0; i > 0; --i) {
    o.logit_bias.emplace_back(static_cast<int32_t>(rng() % vocab), static_cast<float>(pick(-100, -1, 2, 5)));
  }
  return c;
}

TEST(Sampler, RandomOptions_MatchTheNaiveSampler) {
  constexpr uint64_t kSeed = 20240907;
  std::mt19937_64 rng(kSeed);
  int masked_out = 0;
  for (int round = 0; round < 4000; ++round) {
    const Case c = RandomCase(rng);
    SCOPED_TRACE("round " + std::to_string(round) + ", seed " + std::to_string(kSeed) + ", vocab " +
                 std::to_string(c.logits.size()));
    const auto expected = NaiveDistribution(c);
    Sampler sampler = Make(c.options, c.logits.size(), c.prompt, c.answer);
    std::vector<float> logits = c.logits;
    const auto actual = sampler.Distribution(logits);
    if (expected.empty()) {
      ASSERT_EQ(actual.error().code(), ErrorCode::kNumericalError);
      ++masked_out;
      continue;
    }
    ASSERT_TRUE(actual.ok()) << actual.error().message();
    ASSERT_EQ(actual->size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ((*actual)[i].id, expected[i].first) << "place " << i;
      ASSERT_NEAR((*actual)[i].probability, expected[i].second, 1e-12 + 1e-9 * expected[i].second);
    }
    // The draw is the inverse of the running sum, unless the number falls on an edge of it.
    const uint32_t position = static_cast<uint32_t>(rng() % 1000);
    const double uniform = UniformAt({c.options.seed, 0}, position);
    double sum = 0.0;
    size_t place = 0;
    while (place + 1 < expected.size() && (sum += expected[place].second) <= uniform) ++place;
    logits = c.logits;
    const auto token = sampler.Sample(logits, position);
    ASSERT_TRUE(token.ok()) << token.error().message();
    if (std::fabs(sum - uniform) > 1e-9 && std::fabs(sum - expected[place].second - uniform) > 1e-9) {
      ASSERT_EQ(token->id, expected[place].first);
    }
    ASSERT_FALSE(token->logprob.has_value());
  }
  EXPECT_LT(masked_out, 40);
}

TEST(Sampler, Defaults_AreGreedyAndTheLowerIdWinsTies) {
  Sampler sampler = Make({}, 200);
  std::vector<float> logits(200, 1.0f);
  logits[70] = logits[71] = logits[199] = 2.0f;
  EXPECT_EQ(sampler.Sample(logits, 0)->id, 70);
}

TEST(Sampler, TopK_TiesAtTheEdge_KeepTheLowerIds) {
  Sampler sampler = Make({.temperature = 1.0f, .top_k = 3}, 6);
  std::vector<float> logits = {1.0f, 0.0f, 1.0f, 2.0f, 1.0f, 1.0f};
  const auto distribution = sampler.Distribution(logits);
  ASSERT_EQ(distribution->size(), 3U);
  EXPECT_EQ((*distribution)[0].id, 3);
  EXPECT_EQ((*distribution)[1].id, 0);
  EXPECT_EQ((*distribution)[2].id, 2);
}

TEST(Sampler, NotANumber_IsAnErrorAndNeverAToken) {
  const std::vector<GenerationOptions> all = {{},
                                              {.temperature = 1.0f},
                                              {.temperature = 1.0f, .top_k = 5},
                                              {.temperature = 1.0f, .top_p = 0.9f},
                                              {.temperature = 1.0f, .min_p = 0.1f},
                                              {.logprobs = 3},
                                              {.min_new_tokens = 5,
                                               .repetition_penalty = 1.5f,
                                               .presence_penalty = 1.0f,
                                               .no_repeat_ngram_size = 1,
                                               .logit_bias = {{5, -100.0f}},
                                               .logprobs = 3}};
  for (size_t i = 0; i < all.size(); ++i) {
    Sampler sampler = Make(all[i], 100, {1, 2}, {4, 5});
    for (const float bad : {kNan, kInf}) {
      for (const size_t id : {0, 1, 3, 4, 5, 64, 99}) {  // prompt, end of sequence, answer and the rest
        std::vector<float> logits(100, 1.0f);
        logits[id] = bad;
        const auto token = sampler.Sample(logits, 7);
        ASSERT_FALSE(token.ok()) << "options " << i << ", " << bad << " at " << id;
        EXPECT_EQ(token.error().code(), ErrorCode::kNumericalError);
        EXPECT_NE(token.error().message().find("token id " + std::to_string(id)), std::string::npos)
            << token.error().message();
        logits.assign(100, 1.0f);
        logits[id] = bad;
        EXPECT_FALSE(sampler.Distribution(logits).ok());
      }
    }
    std::vector<float> logits(100, 1.0f);
    EXPECT_TRUE(sampler.Sample(logits, 7).ok()) << "works again after an error";
  }
}

TEST(Sampler, NothingLeftToChoose_IsAnError) {
  Sampler sampler = Make({.temperature = 1.0f}, 10);
  std::vector<float> masked(10, -kInf);
  EXPECT_EQ(sampler.Sample(masked, 0).error().code(), ErrorCode::kNumericalError);
  Sampler blocked = Make({.no_repeat_ngram_size = 1}, 4, {0, 1}, {2, 3});
  std::vector<float> logits(4, 1.0f);
  const auto token = blocked.Sample(logits, 4);
  ASSERT_FALSE(token.ok());
  EXPECT_NE(token.error().message().find("--no-repeat-ngram-size"), std::string::npos);
}

TEST(Sampler, OverflowInAPenalty_IsAnErrorToo) {
  Sampler sampler = Make({.repetition_penalty = 0.01f}, 10, {4});
  std::vector<float> logits(10, 3e38f);
  EXPECT_EQ(sampler.Sample(logits, 1).error().code(), ErrorCode::kNumericalError);
}

TEST(Sampler, MaskedLogits_AreNeverDrawn) {
  for (const GenerationOptions& options :
       {GenerationOptions{.temperature = 100.0f}, GenerationOptions{.temperature = 100.0f, .top_p = 0.99f},
        GenerationOptions{.temperature = 100.0f, .top_k = 150},
        GenerationOptions{.temperature = 100.0f, .min_p = 1e-6f}}) {
    Sampler sampler = Make(options, 200);
    for (uint32_t position = 0; position < 500; ++position) {
      std::vector<float> logits(200, -kInf);
      logits[66] = -5.0f;
      logits[130] = 1.0f;
      const int32_t id = sampler.Sample(logits, position)->id;
      ASSERT_TRUE(id == 66 || id == 130) << id;
    }
  }
}

TEST(Sampler, ExtremeTemperatures_StayInside) {
  std::vector<float> logits = {1.0f, 3.0f, 2.9999998f, -3e38f, 3.0f};
  Sampler cold = Make({.temperature = 1e-45f}, 5);
  const auto distribution = cold.Distribution(logits);
  ASSERT_EQ(distribution->size(), 2U);
  EXPECT_EQ((*distribution)[0].id, 1);
  EXPECT_EQ((*distribution)[1].probability, 0.5);
  std::vector<float> far = {3e38f, -3e38f};
  EXPECT_EQ(Make({.temperature = 100.0f, .top_p = 0.5f}, 2).Sample(far, 0)->id, 0);
}

TEST(Sampler, Draws_FollowTheDistribution) {
  constexpr int kDraws = 100000;
  const std::vector<float> base = {0.0f, 1.0f, -1.0f, 2.0f, 0.5f, 1.5f, -2.0f, 0.25f, 1.0f, -0.5f};
  struct Expectation {
    GenerationOptions options;
    double limit;  // chi-square that one seed in a thousand exceeds, for survivors - 1 degrees of freedom
  };
  const Expectation expectations[] = {{{.temperature = 1.0f, .seed = 11}, 27.88},                   // 10 survivors
                                      {{.temperature = 1.3f, .top_k = 5, .seed = 12}, 18.47},       // 5
                                      {{.temperature = 0.9f, .top_p = 0.8f, .seed = 13}, 18.47},    // 5
                                      {{.temperature = 1.0f, .min_p = 0.15f, .seed = 14}, 20.52}};  // 6
  for (const auto& [options, limit] : expectations) {
    Sampler sampler = Make(options, base.size());
    std::vector<float> logits = base;
    const auto distribution = sampler.Distribution(logits);
    std::map<int32_t, int> counts;
    for (uint32_t position = 0; position < kDraws; ++position) {
      logits = base;
      ++counts[sampler.Sample(logits, position)->id];
    }
    double chi_square = 0.0;
    int drawn = 0;
    for (const auto& [id, probability] : *distribution) {
      const double expected = probability * kDraws;
      chi_square += (counts[id] - expected) * (counts[id] - expected) / expected;
      drawn += counts[id];
    }
    EXPECT_EQ(drawn, kDraws) << "every token drawn is in the distribution";
    EXPECT_LT(chi_square, limit) << distribution->size() << " survivors, seed " << options.seed;
    EXPECT_GT(chi_square, 0.0);
  }
}

// Seed, sequence and position decide, not what was sampled before.
TEST(Sampler, Draws_DependOnSeedSequenceAndPositionOnly) {
  std::mt19937_64 rng(20240908);
  const std::vector<float> base = RandomLogits(1000, rng);
  const auto draw = [&](Sampler& sampler, uint32_t position) {
    std::vector<float> logits = base;
    return sampler.Sample(logits, position)->id;
  };
  const auto draws = [&](uint64_t seed, uint64_t sequence, bool backwards) {
    Sampler sampler = Make({.temperature = 1.0f, .seed = seed}, 1000, {}, {}, sequence);
    std::vector<int32_t> ids(50);
    for (uint32_t i = 0; i < 50; ++i) {
      const uint32_t position = backwards ? 49 - i : i;
      ids[position] = draw(sampler, position);
    }
    return ids;
  };
  EXPECT_EQ(draws(1, 0, false), draws(1, 0, true));
  EXPECT_NE(draws(1, 0, false), draws(2, 0, false));
  EXPECT_NE(draws(1, 0, false), draws(1, 1, false));
}

// The tokens of every machine and level: made on x86-64 with gcc 12, equal with clang 14 and on arm64.
TEST(Sampler, TokenHash_IsThatOfEveryMachine) {
  constexpr size_t kVocab = 5000;
  for (const Isa isa : testing::LevelsHere()) {
    uint64_t hash = 0xcbf29ce484222325;  // FNV-1a, by ids
    for (const GenerationOptions& options :
         {GenerationOptions{.temperature = 1.0f}, GenerationOptions{.temperature = 0.8f, .top_p = 0.95f},
          GenerationOptions{.temperature = 1.2f, .top_k = 40, .min_p = 0.02f},
          GenerationOptions{.temperature = 1.5f, .min_p = 0.001f, .repetition_penalty = 1.1f}}) {
      auto sampler = Sampler::Create(options, {.vocab_size = kVocab, .isa = isa});
      sampler->Prime(std::vector<int32_t>{1, 2, 3});
      std::vector<float> logits(kVocab);
      for (uint32_t position = 3; position < 53; ++position) {
        for (uint32_t i = 0; i < kVocab; ++i) {
          logits[i] = static_cast<float>(Philox4x32_10({i, position, 0, 0}, {5, 6})[0] >> 8) * 0x1p-21f;
        }
        const auto token = sampler->Sample(logits, position);
        sampler->Accept(token->id);
        hash = (hash ^ static_cast<uint64_t>(token->id)) * 0x100000001b3;
      }
    }
    EXPECT_EQ(hash, 9621551061863109755U) << IsaName(isa);
  }
}

TEST(Sampler, Logprobs_AreOfTheModelsOwnLogits) {
  std::mt19937_64 rng(20240909);
  const std::vector<float> base = RandomLogits(300, rng);
  long double sum = 0;
  for (const float logit : base) sum += std::exp(static_cast<long double>(logit));
  std::vector<int32_t> order(300);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return base[static_cast<size_t>(a)] > base[static_cast<size_t>(b)]; });
  const auto logprob_of = [&](int32_t id) {
    return static_cast<float>(static_cast<long double>(base[static_cast<size_t>(id)]) - std::log(sum));
  };
  for (const bool transformed : {false, true}) {
    for (const int32_t wanted : {0, 1, 20}) {
      GenerationOptions options = {.temperature = 2.0f, .top_k = 50, .logprobs = wanted};
      if (transformed) options.logit_bias = {{order[0], -100.0f}, {order[5], 50.0f}};
      Sampler sampler = Make(options, 300);
      std::vector<float> logits = base;
      const auto token = sampler.Sample(logits, 4);
      if (transformed) {
        EXPECT_EQ(token->id, order[5]);
      }
      ASSERT_TRUE(token->logprob.has_value());
      EXPECT_FLOAT_EQ(*token->logprob, logprob_of(token->id));
      ASSERT_EQ(token->top().size(), static_cast<size_t>(wanted));
      for (size_t i = 0; i < token->top().size(); ++i) {
        EXPECT_EQ(token->top()[i].id, order[i]);
        EXPECT_FLOAT_EQ(token->top()[i].logprob, logprob_of(order[i]));
      }
    }
  }
}

TEST(Sampler, Logprobs_FewerTokensThanAsked_GiveThose) {
  Sampler sampler = Make({.logprobs = 20}, 70);
  std::vector<float> logits(70, -kInf);
  logits[4] = logits[69] = 0.0f;
  const auto token = sampler.Sample(logits, 0);
  ASSERT_EQ(token->top().size(), 2U);
  EXPECT_EQ(token->top()[0].id, 4);
  EXPECT_FLOAT_EQ(token->top()[1].logprob, std::log(0.5f));
}

TEST(Sampler, MinNewTokens_HoldsBackEveryEndOfSequence) {
  const std::vector<int32_t> eos = {2, 5, -1, 900};
  auto sampler = Sampler::Create({.min_new_tokens = 2}, {.vocab_size = 8, .eos_ids = eos, .max_positions = 8});
  sampler->Prime(std::vector<int32_t>{1, 1, 1});
  const std::vector<float> base = {0, 0, 9, 0, 1, 9, 0, 0};
  for (const int32_t expected : {4, 4, 2, 2}) {
    std::vector<float> logits = base;
    EXPECT_EQ(sampler->Sample(logits, 0)->id, expected);
    sampler->Accept(expected);
  }
}

TEST(Sampler, Create_RefusesBadOptionsAndSizes) {
  const auto code_of = [](const GenerationOptions& options, const SamplerSetting& setting) {
    return Sampler::Create(options, setting).error().code();
  };
  EXPECT_EQ(code_of({.top_p = 2.0f}, {.vocab_size = 8}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of({}, {.vocab_size = 0}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of({}, {.vocab_size = size_t{1} << 31}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of({}, {.vocab_size = 8, .max_positions = std::numeric_limits<size_t>::max()}),
            ErrorCode::kOutOfMemory);
}

}  // namespace
}  // namespace tidemill::sampler_test
