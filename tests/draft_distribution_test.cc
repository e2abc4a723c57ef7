// What the engine draws where guesses are checked follows the target's distribution, under each rule, with chains and with trees: pairs
// and triples of tokens at guessed places, by a chi-square against the exact products of probabilities. Rules that are wrong fail it.
//
// By hand: TIDEMILL_DRAWS=100000 for so many answers for each setting, TIDEMILL_SEED for other ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "runtime/engine_impl.h"
#include "tests/support/chi_square.h"
#include "tests/support/count_by_hand.h"
#include "tests/support/engine_driver.h"
#include "tests/support/random_requests.h"

namespace tidemill {
namespace {

using testing::ChiSquareProbability;
using testing::EngineDriver;
using testing::Outcome;
using testing::SmallContextModel;

using Ids = std::vector<int32_t>;
using Distribution = std::vector<TokenProbability>;  // by ascending id

// Of an answer's tokens the first is drawn behind the prompt, where nothing is guessed; the three behind it are counted. No more is needed,
// but where fewer are left to make there are fewer guesses.
constexpr size_t kCounted = 4, kTokens = 24;
constexpr double kUnlikely = 0.001;

const Ids& Prompt() {
  static const Ids prompt = {7, 8, 9};
  return prompt;
}

GenerationOptions Plain(uint64_t seed) {
  return {.max_new_tokens = kTokens, .temperature = 1, .top_k = 3, .ignore_eos = true, .seed = seed};
}
// Penalties depend on the tokens of a node's own path.
GenerationOptions Penalized(uint64_t seed) {
  return {.max_new_tokens = kTokens,
          .temperature = 0.8F,
          .top_k = 4,
          .top_p = 0.95F,
          .repetition_penalty = 1.5F,
          .presence_penalty = 0.5F,
          .no_repeat_ngram_size = 2,
          .ignore_eos = true,
          .seed = seed};
}
using MakeGeneration = GenerationOptions (*)(uint64_t seed);

// What may follow the prompt, behind each beginning of an answer, and how often each counted pair and triple comes.
struct Target {
  std::map<Ids, Distribution> next;
  std::map<Ids, double> pairs, later_pairs, triples;

  Target(EngineDriver& driver, MakeGeneration make) { Follow(driver, make(0), {}, 1); }

 private:
  void Follow(EngineDriver& driver, const GenerationOptions& generation, const Ids& path, double probability) {
    if (path.size() == kCounted) {
      pairs[{path[1], path[2]}] += probability;
      later_pairs[{path[2], path[3]}] += probability;
      triples[{path[1], path[2], path[3]}] += probability;
      return;
    }
    const size_t vocab = driver.engine().impl().model->text().tokenizer.vocab_size();
    auto sampler = Sampler::Create(generation, {.vocab_size = vocab, .max_positions = 16});
    sampler->Prime(Prompt());
    for (const int32_t id : path) sampler->Accept(id);
    Ids text = Prompt();
    text.insert(text.end(), path.begin(), path.end());
    Distribution behind;
    const auto scored = driver.engine().Score(text, true, [&](size_t, std::span<const float> logits) -> Result<void> {
      std::vector<float> copy(logits.begin(), logits.end());
      behind = *sampler->Distribution(copy);
      return {};
    });
    EXPECT_TRUE(scored.ok());
    std::sort(behind.begin(), behind.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
    for (const auto& [id, share] : behind) {
      Ids further = path;
      further.push_back(id);
      Follow(driver, generation, further, probability * share);
    }
    next[path] = std::move(behind);
  }
};

// How many answers, and what became of their guesses.
struct Counts {
  std::map<Ids, double> pairs, later_pairs, triples;
  size_t answers = 0, guesses = 0, accepted = 0, later_siblings = 0;

  void Add(const Outcome& outcome) {
    const Ids& ids = outcome.ids;
    ASSERT_GE(ids.size(), kCounted);
    ++pairs[{ids[1], ids[2]}];
    ++later_pairs[{ids[2], ids[3]}];
    ++triples[{ids[1], ids[2], ids[3]}];
    ++answers;
    guesses += outcome.stats.drafted_tokens;
    accepted += outcome.stats.accepted_tokens;
    later_siblings += outcome.stats.drafts.later_siblings;
  }
  // The least of the three.
  double Probability(const Target& target) const {
    const auto of = [this](const std::map<Ids, double>& shares, const std::map<Ids, double>& counts) {
      std::map<Ids, double> expected = shares;
      for (auto& [cell, mean] : expected) mean *= static_cast<double>(answers);
      return ChiSquareProbability(expected, counts);
    };
    return std::min({of(target.pairs, pairs), of(target.later_pairs, later_pairs), of(target.triples, triples)});
  }
};

Counts Draw(EngineDriver& driver, MakeGeneration make, const DraftOptions& draft, uint64_t first_seed,
            uint64_t answers) {
  constexpr uint64_t kAtOnce = 250;
  Counts counts;
  for (uint64_t done = 0; done < answers; done += kAtOnce) {
    std::vector<RequestId> ids;
    for (uint64_t seed = done; seed < std::min(done + kAtOnce, answers); ++seed)
      ids.push_back(driver.Submit({.prompt = Prompt(), .generation = make(first_seed + seed), .draft = draft}));
    while (!driver.engine().idle()) {
      driver.Step();
      for (const RequestId id : ids) {
        if (driver.outcome(id).ids.size() >= kCounted && !driver.outcome(id).ended()) driver.engine().Cancel(id);
      }
    }
    for (const RequestId id : ids) counts.Add(driver.outcome(id));
  }
  return counts;
}

constexpr const char* kRules[] = {"Noise", "Sibling", "Residual"};

std::string NameOf(const DraftOptions& draft) {
  constexpr const char* kTrees[] = {"chain", "fixed", "dynamic", "optimal"};
  return std::string(kRules[static_cast<size_t>(draft.rule)]) + ", " + kTrees[static_cast<size_t>(draft.tree)] +
         (draft.source == DraftSource::kLayers ? ", first layer" : ", the model itself");
}

class DraftDistribution : public ::testing::TestWithParam<DraftRule> {};

INSTANTIATE_TEST_SUITE_P(Rules, DraftDistribution,
                         ::testing::Values(DraftRule::kNoise, DraftRule::kSibling, DraftRule::kResidual),
                         [](const auto& test) { return kRules[static_cast<size_t>(test.param)]; });

TEST_P(DraftDistribution, PairsAndTriples_FollowTheTarget) {
  const uint64_t answers = testing::CountByHand("TIDEMILL_DRAWS", 500), first = testing::FirstSeed();
  const auto model = SmallContextModel(DType::kQ8_0);
  uint64_t seed = first << 32;
  size_t retries = 0;
  for (const MakeGeneration make : {&Plain, &Penalized}) {
    EngineDriver exact(model, {.threads = 1});
    const Target target(exact, make);
    for (const DraftTreeKind tree :
         {DraftTreeKind::kChain, DraftTreeKind::kFixed, DraftTreeKind::kDynamic, DraftTreeKind::kOptimal}) {
      if (tree != DraftTreeKind::kChain && GetParam() == DraftRule::kResidual) continue;  // refused
      for (const DraftSource source : {DraftSource::kLayers, DraftSource::kModel}) {
        const bool own = source == DraftSource::kLayers;
        const size_t most = tree == DraftTreeKind::kChain ? 3 : 7;
        const DraftOptions draft{.most = most,
                                 .least = most,
                                 .source = source,
                                 .layers = own ? size_t{1} : 0,
                                 .rule = GetParam(),
                                 .tree = tree};
        const std::string name = NameOf(draft) + (make == &Plain ? "" : ", penalties");
        double probability = 0;
        for (int round = 0; round < 2 && probability <= kUnlikely; ++round) {  // one chance more, with other numbers
          retries += static_cast<size_t>(round);
          EngineDriver driver(model, {.threads = 1, .max_batch = 32, .draft_model = own ? nullptr : model});
          const Counts counts = Draw(driver, make, draft, seed, answers);
          seed += answers;
          probability = counts.Probability(target);
          std::printf("  %s: p %.4f; guesses %zu, accepted %zu, later siblings %zu\n", name.c_str(), probability,
                      counts.guesses, counts.accepted, counts.later_siblings);
          EXPECT_GT(counts.accepted, answers / 4) << name;
          // The residual rule takes all that the model itself drew, but where penalties differ along a path.
          EXPECT_TRUE(counts.accepted < counts.guesses || (GetParam() == DraftRule::kResidual && !own)) << name;
          if (tree != DraftTreeKind::kChain) {
            EXPECT_GT(counts.later_siblings, answers / 20) << name;
          }
        }
        EXPECT_GT(probability, kUnlikely) << name;
      }
    }
  }
  std::printf("  %llu answers each, seeds from %llu on, %zu tried again\n", static_cast<unsigned long long>(answers),
              static_cast<unsigned long long>(first << 32), retries);
}

// A drafter that knows the target's distribution, and what a rule may be told of its guess that is not so.
enum class Told {
  kTruth,       // drawn from q, whose numbers are its own
  kBest,        // q's best, as if it had been drawn
  kSameNumber,  // drawn from q with the number that decides whether it is accepted
  kSibling,     // the best, as what it is: no draw
  kPeeked,      // the token that the plain draw would give, as if nobody knew that
};

class ToldDrafter : public Drafter {
 public:
  ToldDrafter(const Target& target, Told told, uint64_t seed, Ids truth)
      : target_(target), told_(told), seed_(seed), truth_(std::move(truth)), random_(seed) {}

  void Append(int32_t id) override { text_.push_back(id); }
  DraftTree Propose(size_t) override {
    const Ids path(text_.begin() + static_cast<ptrdiff_t>(Prompt().size()), text_.end());
    const auto known = target_.next.find(path);
    if (known == target_.next.end()) return {};
    const Distribution& p = known->second;
    const auto by_probability = [](const auto& a, const auto& b) { return a.probability < b.probability; };
    q_.assign(1, p);  // flatter, so that it is neither p nor alike everywhere
    double sum = 0;
    for (TokenProbability& token : q_[0]) sum += token.probability = std::sqrt(token.probability);
    for (TokenProbability& token : q_[0]) token.probability /= sum;
    const auto position = static_cast<uint32_t>(text_.size());
    switch (told_) {
      case Told::kTruth: id_ = DrawFromQ(std::uniform_real_distribution<double>()(random_)); break;
      case Told::kSameNumber:
        id_ = DrawFromQ(UniformAt({.seed = seed_, .sequence = 0}, position, RandomPurpose::kAcceptGuess));
        break;
      case Told::kBest:
      case Told::kSibling: id_ = std::max_element(p.begin(), p.end(), by_probability)->id; break;
      case Told::kPeeked: id_ = truth_[path.size()]; break;
    }
    const bool drawn = told_ != Told::kSibling && told_ != Told::kPeeked;
    return {.ids = {&id_, 1},
            .parents = {},
            .drawn_from = drawn ? std::span<const Distribution>(q_) : std::span<const Distribution>()};
  }

 private:
  int32_t DrawFromQ(double uniform) const {
    for (const TokenProbability& token : q_[0]) {
      if ((uniform -= token.probability) < 0) return token.id;
    }
    return q_[0].back().id;
  }

  const Target& target_;
  Told told_;
  uint64_t seed_;
  Ids truth_, text_;
  std::mt19937_64 random_;
  std::vector<Distribution> q_;
  int32_t id_ = 0;
};

// The rules hold what they promise where what they are told is so; where it is not, the same test of as many answers says so.
TEST(DraftRules, WrongRules_AreFoundByTheSameTest) {
  constexpr uint64_t kAnswers = 1000;
  const auto model = SmallContextModel(DType::kQ8_0);
  EngineDriver plain(model, {.threads = 1});
  const Target target(plain, &Plain);
  std::vector<Ids> truths;
  for (uint64_t seed = 0; seed < kAnswers; ++seed) truths.push_back(plain.Run(Prompt(), Plain(seed)).ids);
  const auto probability = [&](Told told) {
    EngineDriver driver(model, {.threads = 1, .max_batch = 32});
    driver.engine().impl().make_drafter = [&](const Request& request, size_t, SequenceState&) {
      const uint64_t seed = request.generation.seed;
      return std::make_unique<ToldDrafter>(target, told, seed, truths[seed]);
    };
    const Counts counts = Draw(driver, &Plain, {.most = 1, .least = 1, .rule = DraftRule::kResidual}, 0, kAnswers);
    EXPECT_GT(counts.accepted, kAnswers / 10);
    const double found = counts.Probability(target);
    std::printf("  told %d: p %.3g\n", static_cast<int>(told), found);
    return found;
  };
  for (const Told told : {Told::kTruth, Told::kSibling}) EXPECT_GT(probability(told), kUnlikely);
  for (const Told told : {Told::kBest, Told::kSameNumber, Told::kPeeked}) EXPECT_LT(probability(told), 1e-9);
}

TEST(ChiSquare, TailsAreThoseOfTables) {
  EXPECT_NEAR(testing::ChiSquareTail(3.841, 1), 0.05, 1e-4);
  EXPECT_NEAR(testing::ChiSquareTail(10.828, 1), 0.001, 1e-6);
  EXPECT_NEAR(testing::ChiSquareTail(2.558, 10), 0.99, 1e-4);
  EXPECT_NEAR(testing::ChiSquareTail(18.307, 10), 0.05, 1e-5);
  EXPECT_NEAR(testing::ChiSquareTail(29.588, 10), 0.001, 1e-6);
  EXPECT_NEAR(testing::ChiSquareTail(149.449, 100), 0.001, 1e-6);
  EXPECT_EQ(testing::ChiSquareTail(0, 4), 1);
  const std::map<int, double> expected = {
      {0, 50}, {1, 47}, {2, 2}, {3, 1}};  // the last two are one cell, which is rare
  EXPECT_NEAR(ChiSquareProbability(expected, {{0, 40}, {1, 57}, {3, 3}}),
              testing::ChiSquareTail(100 / 50.0 + 100 / 47.0, 2), 1e-12);
  EXPECT_EQ(ChiSquareProbability(expected, {{0, 50}, {1, 47}, {2, 2}, {4, 1}}), 0) << "4 never comes";
}

}  // namespace
}  // namespace tidemill
