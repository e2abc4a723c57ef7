#include "decoding/draft_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace tidemill::draft_tree_test {
namespace {

// The ranks along the path of a node: "010".
std::string PathOf(const DraftShape& shape, size_t node) {
  const int32_t parent = shape.parents[node];
  return (parent < 0 ? "" : PathOf(shape, static_cast<size_t>(parent))) + std::to_string(shape.ranks[node]);
}

void ExpectTree(const DraftShape& shape) {
  std::set<std::string> paths;
  ASSERT_EQ(shape.parents.size(), shape.ranks.size());
  for (size_t i = 0; i < shape.size(); ++i) {
    EXPECT_GE(shape.parents[i], -1);
    EXPECT_LT(shape.parents[i], static_cast<int32_t>(i));
    EXPECT_TRUE(paths.insert(PathOf(shape, i)).second) << "node " << i << " stands twice";
  }
}

// Of up to `depths` depths with up to four ranks, in any order; some are never accepted.
std::vector<std::vector<double>> RandomAcceptance(size_t depths, std::mt19937_64& random) {
  std::vector<std::vector<double>> acceptance(1 + random() % depths);
  std::uniform_real_distribution<double> uniform;
  for (std::vector<double>& ranks : acceptance) {
    ranks.resize(1 + random() % 4);
    double left = 1;
    for (double& rank : ranks) left -= rank = random() % 6 == 0 ? 0 : left * uniform(random);
    std::shuffle(ranks.begin(), ranks.end(), random);
  }
  return acceptance;
}

double ExpectedAccepted(const DraftShape& shape, DraftAcceptance acceptance) {
  const std::vector<double> promises = Promises(shape, acceptance);
  return std::accumulate(promises.begin(), promises.end(), 0.0);
}

TEST(DraftTree, FixedShape_IsTheOneOf25Nodes) {
  const DraftShape shape = FixedDraftShape();
  ExpectTree(shape);
  std::string paths;
  for (size_t i = 0; i < shape.size(); ++i) paths += PathOf(shape, i) + " ";
  EXPECT_EQ(paths, "0 1 2 3 00 01 02 10 11 20 21 30 000 001 002 010 011 020 021 100 0000 0001 0002 00000 00001 ");
  EXPECT_EQ(shape.size(), 25U);
}

TEST(DraftTree, Promises_AreProductsOverPaths) {
  const std::vector<std::vector<double>> acceptance = {{0.5, 0.25}, {0.5}};
  EXPECT_EQ(ExpectedAccepted({}, acceptance), 0);
  EXPECT_EQ(ExpectedAccepted({{-1, 0, -1, 2}, {0, 0, 1, 0}}, acceptance), 0.5 + 0.25 + 0.25 + 0.125);
  EXPECT_EQ(ExpectedAccepted({{-1, 0, 1}, {0, 1, 0}}, acceptance), 0.5)
      << "a rank and a depth of which nothing is known";
}

// Every tree: candidates are taken or left, one after another; one that is taken brings its children.
double BruteForce(const std::vector<std::vector<double>>& acceptance, size_t nodes) {
  struct Candidate {
    double promise;
    size_t depth;
  };
  double best = 0;
  std::vector<Candidate> candidates;
  const std::function<void(size_t, size_t, double)> go = [&](size_t at, size_t left, double sum) {
    best = std::max(best, sum);
    if (left == 0 || at == candidates.size()) return;
    go(at + 1, left, sum);
    const Candidate taken = candidates[at];
    const size_t before = candidates.size();
    if (taken.depth + 1 < acceptance.size()) {
      for (const double rank : acceptance[taken.depth + 1])
        candidates.push_back({taken.promise * rank, taken.depth + 1});
    }
    go(at + 1, left - 1, sum + taken.promise);
    candidates.resize(before);
  };
  for (const double rank : acceptance[0]) candidates.push_back({rank, 0});
  go(0, nodes, 0);
  return best;
}

// Sequoia's recurrence: the worth of `nodes` nodes among the ranks from `rank` on at `depth`, below an accepted parent.
class Recurrence {
 public:
  explicit Recurrence(const std::vector<std::vector<double>>& acceptance) : acceptance_(acceptance) {}

  double Best(size_t nodes, size_t depth = 0, size_t rank = 0) {
    if (nodes == 0 || depth == acceptance_.size() || rank == acceptance_[depth].size()) return 0;
    const auto [at, is_new] = known_.try_emplace({nodes, depth, rank}, 0.0);
    if (!is_new) return at->second;
    double best = Best(nodes, depth, rank + 1);
    for (size_t below = 0; below < nodes; ++below) {
      best = std::max(
          best, acceptance_[depth][rank] * (1 + Best(below, depth + 1)) + Best(nodes - 1 - below, depth, rank + 1));
    }
    return known_[{nodes, depth, rank}] = best;
  }

 private:
  const std::vector<std::vector<double>>& acceptance_;
  std::map<std::tuple<size_t, size_t, size_t>, double> known_;
};

TEST(DraftTree, OptimalShapeOfSixNodes_IsTheBestOfAllTrees) {
  std::mt19937_64 random(1);
  for (int repeat = 0; repeat < 100; ++repeat) {
    const auto acceptance = RandomAcceptance(4, random);
    for (size_t nodes = 0; nodes <= 6; ++nodes) {
      const DraftShape shape = OptimalDraftShape(acceptance, nodes);
      ExpectTree(shape);
      EXPECT_LE(shape.size(), nodes);
      const double best = BruteForce(acceptance, nodes);
      EXPECT_NEAR(ExpectedAccepted(shape, acceptance), best, 1e-12) << "nodes " << nodes << " repeat " << repeat;
      EXPECT_NEAR(Recurrence(acceptance).Best(nodes), best, 1e-12) << "nodes " << nodes << " repeat " << repeat;
    }
  }
}

TEST(DraftTree, OptimalShape_IsThatOfTheRecurrenceAndSoIsEachOfItsBeginnings) {
  std::mt19937_64 random(2);
  for (int repeat = 0; repeat < 20; ++repeat) {
    const auto acceptance = RandomAcceptance(9, random);
    Recurrence recurrence(acceptance);
    const DraftShape shape = OptimalDraftShape(acceptance, 40);
    ExpectTree(shape);
    for (size_t nodes = 0; nodes <= shape.size(); ++nodes) {
      const auto count = static_cast<std::ptrdiff_t>(nodes);
      const DraftShape first{{shape.parents.begin(), shape.parents.begin() + count},
                             {shape.ranks.begin(), shape.ranks.begin() + count}};
      EXPECT_NEAR(ExpectedAccepted(first, acceptance), recurrence.Best(nodes), 1e-12)
          << "nodes " << nodes << " repeat " << repeat;
    }
    EXPECT_GE(ExpectedAccepted(OptimalDraftShape(acceptance, 25), acceptance),
              ExpectedAccepted(FixedDraftShape(), acceptance) - 1e-12);
  }
}

TEST(DraftTree, OptimalShape_IsAChainWhereTheFirstRankIsRightAndWideWhereNothingFollows) {
  const std::vector<std::vector<double>> sure(5, {0.95, 0.02});
  EXPECT_EQ(OptimalDraftShape(sure, 5).parents, (std::vector<int32_t>{-1, 0, 1, 2, 3}));
  const std::vector<std::vector<double>> shallow = {{0.3, 0.2, 0.4}, {0.01}};
  const DraftShape wide = OptimalDraftShape(shallow, 3);
  EXPECT_EQ(wide.parents, (std::vector<int32_t>{-1, -1, -1}));
  EXPECT_EQ(wide.ranks, (std::vector<uint32_t>{2, 0, 1}));
  EXPECT_EQ(OptimalDraftShape({}, 3).size(), 0U);
  const std::vector<std::vector<double>> never = {{0.0, 0.5}, {0.0}};
  EXPECT_EQ(OptimalDraftShape(never, 8).size(), 1U) << "what is never right has no row";
}

TEST(DynamicDraft, Tree_HasTheNodesWithTheGreatestProducts) {
  DynamicDraft draft(2);
  for (int repeat = 0; repeat < 2; ++repeat) {
    draft.Clear();
    EXPECT_TRUE(draft.Best(4).ids.empty());
    draft.Add(-1, 10, 0.25);  // node 0
    draft.Add(-1, 11, 0.5);   // 1
    draft.Add(-1, 12, 0.125);
    const auto first = draft.Level();
    ASSERT_EQ((std::vector<int32_t>{first.begin(), first.end()}), (std::vector<int32_t>{1, 0}));
    draft.Add(1, 20, 0.5);   // 3: 0.25
    draft.Add(1, 21, 0.25);  // 4: 0.125
    draft.Add(0, 22, 1);     // 5: 0.25
    const auto second = draft.Level();
    ASSERT_EQ((std::vector<int32_t>{second.begin(), second.end()}), (std::vector<int32_t>{3, 5}));
    EXPECT_EQ(draft.id(5), 22);
    EXPECT_EQ(draft.parent(5), 0);
    draft.Add(3, 30, 0.125);  // 6: 0.03125
    EXPECT_EQ(draft.Level().size(), 1U);
    EXPECT_TRUE(draft.Level().empty());
    const DraftTree best = draft.Best(5);
    EXPECT_EQ((std::vector<int32_t>{best.ids.begin(), best.ids.end()}), (std::vector<int32_t>{11, 10, 20, 22, 12}));
    EXPECT_EQ((std::vector<int32_t>{best.parents.begin(), best.parents.end()}),
              (std::vector<int32_t>{-1, -1, 0, 1, -1}));
    EXPECT_EQ(draft.Best(100).ids.size(), 7U);
  }
}

// The first nodes of any tree are a tree, and none that was left out promises more.
TEST(DynamicDraft, RandomTrees_AreInOrderOfPromise) {
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> uniform;
  for (int repeat = 0; repeat < 50; ++repeat) {
    DynamicDraft draft(1 + random() % 5);
    std::vector<double> promise;  // by id, which is the node
    const auto add = [&](int32_t parent) {
      double left = 1;
      for (size_t children = 1 + random() % 5; children != 0; --children) {
        const double probability = random() % 8 == 0 ? left : left * uniform(random);
        if (probability <= 0) return;
        draft.Add(parent, static_cast<int32_t>(promise.size()), probability);
        promise.push_back((parent < 0 ? 1 : promise[static_cast<size_t>(parent)]) * probability);
        left -= probability;
      }
    };
    add(-1);
    for (int depth = 0; depth < 4; ++depth) {
      const auto level = draft.Level();
      for (const int32_t node : std::vector<int32_t>(level.begin(), level.end())) add(node);
    }
    const DraftTree best = draft.Best(26);
    ASSERT_EQ(best.ids.size(), std::min<size_t>(26, promise.size()));
    double smallest = 1;
    std::set<int32_t> kept(best.ids.begin(), best.ids.end());
    for (size_t i = 0; i < best.ids.size(); ++i) {
      ASSERT_LT(best.parents[i], static_cast<int32_t>(i));
      const int32_t parent = draft.parent(best.ids[i]);
      EXPECT_EQ(best.parents[i] < 0 ? -1 : best.ids[static_cast<size_t>(best.parents[i])], parent);
      EXPECT_LE(promise[static_cast<size_t>(best.ids[i])], smallest);
      smallest = promise[static_cast<size_t>(best.ids[i])];
    }
    for (size_t id = 0; id < promise.size(); ++id) {
      if (!kept.contains(static_cast<int32_t>(id))) {
        EXPECT_LE(promise[id], smallest);
      }
    }
  }
}

TEST(DraftTree, OrderByPromise_KeepsTheTreeAndPutsTheBestFirst) {
  const std::vector<std::vector<double>> acceptance(5, {0.6, 0.15, 0.04, 0.01});
  const DraftShape fixed = FixedDraftShape(), ordered = OrderByPromise(fixed, acceptance);
  ASSERT_EQ(ordered.size(), fixed.size());
  const auto paths = [](const DraftShape& shape) {
    std::vector<std::vector<uint32_t>> of_nodes;
    for (size_t i = 0; i < shape.size(); ++i) {
      of_nodes.push_back(shape.parents[i] < 0 ? std::vector<uint32_t>{}
                                              : of_nodes.at(static_cast<size_t>(shape.parents[i])));
      of_nodes.back().push_back(shape.ranks[i]);
    }
    return std::set<std::vector<uint32_t>>(of_nodes.begin(), of_nodes.end());
  };
  EXPECT_EQ(paths(ordered), paths(fixed));
  double last = 1;
  DraftShape first_ones;
  for (size_t i = 0; i < ordered.size(); ++i) {
    ASSERT_LT(ordered.parents[i], static_cast<int32_t>(i));
    const double before = ExpectedAccepted(first_ones, acceptance);
    first_ones.parents.push_back(ordered.parents[i]);
    first_ones.ranks.push_back(ordered.ranks[i]);
    const double gain = ExpectedAccepted(first_ones, acceptance) - before;
    EXPECT_LE(gain, last + 1e-12);
    last = gain;
  }
}

// What is not asked for more could not have changed what is proposed.
TEST(DynamicDraft, LevelsOfWhatIsWanted_GiveTheSameTree) {
  size_t asked = 0, asked_of_all = 0;
  for (const size_t num_draft_tokens : {1, 2, 5, 16, 40}) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const auto grown = [&](size_t wanted, size_t* count) {
        DynamicDraft draft(8);
        // Children by the path, so that both runs get the same ones.
        const auto add = [&](int32_t parent, uint64_t path) {
          std::mt19937_64 random(seed * 1000003 + path);
          double left = 1;
          for (int32_t rank = 0; rank < 6; ++rank) {
            const double probability = left * std::uniform_real_distribution<double>(0.05, 0.9)(random);
            draft.Add(parent, static_cast<int32_t>(path * 7 + static_cast<uint64_t>(rank) + 1), probability);
            left -= probability;
          }
        };
        add(-1, 0);
        for (int depth = 0; depth < 6; ++depth) {
          const auto level = draft.Level(wanted);
          for (const int32_t node : std::vector<int32_t>(level.begin(), level.end())) {
            add(node, static_cast<uint64_t>(draft.id(node)));
            ++*count;
          }
        }
        const DraftTree best = draft.Best(num_draft_tokens);
        std::vector<std::pair<int32_t, int32_t>> nodes;
        for (size_t i = 0; i < best.ids.size(); ++i) nodes.emplace_back(best.ids[i], best.parents[i]);
        return nodes;
      };
      EXPECT_EQ(grown(num_draft_tokens, &asked), grown(SIZE_MAX, &asked_of_all)) << num_draft_tokens << " " << seed;
    }
  }
  EXPECT_LT(asked, asked_of_all);
}

}  // namespace
}  // namespace tidemill::draft_tree_test
