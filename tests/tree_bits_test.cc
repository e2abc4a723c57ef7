// Trees of drafts in a step: the logits of every node are those of its path alone, for every family, and the path that is taken up
// leaves the state of a sequence that never had a draft.
//
// By hand: TIDEMILL_TREES=873 for all trees of up to six drafts at each place, not a share of them, TIDEMILL_SEED for another share.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <numeric>
#include <ostream>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/attention.h"
#include "tests/fixtures_path.h"
#include "tests/support/bits_levels.h"
#include "tests/support/count_by_hand.h"
#include "tests/support/model_runner.h"
#include "tests/support/tiny_model.h"

namespace tidemill::tree_bits_test {
namespace {

using testing::ModelRunner;

struct TreeRun {
  // Of tests/fixtures/families; "tiny": a llama with heads of 32, which blocks divide; "tiny_bf16": its weights in BF16.
  const char* family;
  DType kv_dtype;
  size_t prompt, steps, context;

  friend void PrintTo(const TreeRun& run, std::ostream* out) { *out << run.family << " " << InfoOf(run.kv_dtype).name; }
};
// Windows of 8 are behind the rows, and steps cross the chunk's edge at 128; learned positions end there.
constexpr TreeRun Far(const char* family, DType dtype) { return {family, dtype, 117, 12, 512}; }
constexpr TreeRun Near(const char* family) { return {family, DType::kF32, 5, 8, 128}; }
constexpr TreeRun kRuns[] = {Far("gemma3_text", DType::kF32),
                             Far("gemma3_text", DType::kF16),
                             Far("mistral", DType::kF32),
                             Far("mistral", DType::kF16),
                             Far("gpt_neox", DType::kF32),
                             Far("llama_yarn", DType::kF32),
                             Far("mixtral", DType::kF32),
                             Far("qwen3", DType::kF16),
                             Far("tiny", DType::kQ8_0),
                             Far("tiny_bf16", DType::kF16),
                             Near("gpt2"),
                             Near("opt"),
                             Near("opt_post_norm")};

DType WeightsOf(const TreeRun& run) { return run.family == std::string("tiny_bf16") ? DType::kBF16 : DType::kF32; }

std::string PathOf(const TreeRun& run) {
  const std::string family = run.family;
  if (!family.starts_with("tiny")) return std::string(TIDEMILL_FIXTURES) + "/families/" + family;
  return testing::WriteTemporary(
      "tree_bits_" + family + ".gguf",
      testing::BuildTinyLlama({.vocab = 300, .head_dim = 32, .context = 512, .dtype = WeightsOf(run)}));
}

struct Tree {
  std::vector<int32_t> ids, parents;

  // Any, or one that forks late, or a chain; row 0 is the last sampled token.
  static Tree Make(size_t rows, size_t vocab, std::mt19937_64& random) {
    Tree tree;
    const size_t reach = std::vector<size_t>{1, 2, 4, rows}[random() % 4];
    for (size_t i = 0; i < rows; ++i) {
      tree.ids.push_back(static_cast<int32_t>(random() % vocab));
      tree.parents.push_back(i == 0 ? -1 : static_cast<int32_t>(i - 1 - random() % std::min(i, reach)));
    }
    return tree;
  }
  std::vector<uint32_t> Path(size_t node) const {
    std::vector<uint32_t> path;
    for (auto at = static_cast<int32_t>(node); at >= 0; at = parents[static_cast<size_t>(at)])
      path.insert(path.begin(), static_cast<uint32_t>(at));
    return path;
  }
  std::vector<int32_t> Ids(const std::vector<uint32_t>& path) const {
    std::vector<int32_t> of_path;
    for (const uint32_t row : path) of_path.push_back(ids[row]);
    return of_path;
  }
};

class TreeBits : public ::testing::TestWithParam<TreeRun> {};

INSTANTIATE_TEST_SUITE_P(Families, TreeBits, ::testing::ValuesIn(kRuns), [](const auto& test) {
  return std::string(test.param.family) + "_" + std::string(InfoOf(test.param.kv_dtype).name);
});

TEST_P(TreeBits, EveryNode_HasTheLogitsOfItsPathAlone) {
  const TreeRun& run = GetParam();
  size_t beside = 0;  // paths that left another row out
  for (const testing::NumericClass numeric : testing::kNumericClasses) {
    const auto level = testing::BestLevelOfClass(numeric, WeightsOf(run));
    if (!level.has_value()) continue;
    for (const KvGrowth growth :
         {KvGrowth{.policy = KvPolicy::kBmc, .increment = 16}, KvGrowth{.policy = KvPolicy::kPaged, .increment = 5}}) {
      ModelRunner runner(PathOf(run), {.isa = *level,
                                       .threads = 2,
                                       .kv_dtype = run.kv_dtype,
                                       .growth = growth,
                                       .context = run.context,
                                       .max_rows = 160});
      const size_t vocab = runner.model().settings.vocab_size;
      std::mt19937_64 random(7);
      std::vector<int32_t> prompt(run.prompt);
      for (int32_t& id : prompt) id = static_cast<int32_t>(random() % vocab);
      const auto drafted = runner.NewState(), plain = runner.NewState();
      for (SequenceState* state : {drafted.get(), plain.get()}) runner.Feed(*state, prompt, 50, true);
      for (size_t i = 0; i < run.steps; ++i) {
        const Tree tree = Tree::Make(1 + random() % 26, vocab, random);
        const size_t rows = tree.ids.size(), length = drafted->length();
        if (length + rows > run.context) break;
        SCOPED_TRACE(std::string(IsaName(*level)) + ", step " + std::to_string(i) + " at " + std::to_string(length));
        // A prompt's rows on either side.
        const auto before = runner.NewState(), after = runner.NewState();
        for (SequenceState* state : {before.get(), after.get()}) ASSERT_TRUE(state->Reserve(3).ok());
        ASSERT_TRUE(drafted->Reserve(rows).ok());
        const StepSequence step[] = {
            {.state = before.get(), .tokens = std::span(prompt).first(3), .rows = Wanted::kLast},
            {.state = drafted.get(), .tokens = tree.ids, .rows = Wanted::kAll, .parents = tree.parents},
            {.state = after.get(), .tokens = std::span(prompt).first(3)}};
        std::vector<std::vector<float>> logits(rows);
        runner.executor().Run(
            step,
            [&](size_t sequence, size_t token, std::span<float> row) {
              if (sequence == 1) logits[token].assign(row.begin(), row.end());
            },
            nullptr);
        for (size_t node = 0; node < rows; ++node) {
          const std::vector<int32_t> ids = tree.Ids(tree.Path(node));
          ASSERT_EQ(runner.Feed(*plain, ids, ids.size(), true), logits[node]) << "node " << node << " of " << rows;
          ASSERT_TRUE(plain->Rollback(length).ok());
        }
        const std::vector<uint32_t> path = tree.Path(random() % rows);
        const std::vector<int32_t> ids = tree.Ids(path);
        beside += path.back() + 1 != path.size();
        drafted->CommitPath(path, testing::KeysOf(ids));
        runner.Feed(*plain, ids, 1, true);
        ASSERT_EQ(drafted->identity(), plain->identity());
        ASSERT_EQ(drafted->Checkpoint().value(), plain->Checkpoint().value());
      }
    }
  }
  std::printf("  %s\n", testing::DescribeLevels().c_str());
  EXPECT_GT(beside, 4U);
}

// Every tree of 1 to 6 drafts, in every order of its nodes: each draft stands behind the last sampled token or any draft before it.
// What a node's path is depends on its places among siblings alone, so few paths are in all of them.
class SmallTrees {
 public:
  static constexpr size_t kMaxDrafts = 6;

  explicit SmallTrees(size_t vocab) : vocab_(vocab) {
    std::vector<Tree> last = {{.ids = {Id(0, 0)}, .parents = {-1}}};
    for (size_t drafts = 1; drafts <= kMaxDrafts; ++drafts) {
      std::vector<Tree> larger;
      for (const Tree& tree : last) {
        for (size_t parent = 0; parent < drafts; ++parent) larger.push_back(WithChild(tree, parent));
      }
      for (const Tree& tree : larger) Add(tree);
      last = std::move(larger);
    }
  }

  struct Entry {
    Tree tree;
    std::vector<size_t> paths;  // of each node, in paths()
  };
  const std::vector<Entry>& trees() const { return trees_; }
  const std::vector<std::vector<int32_t>>& paths() const { return paths_; }

 private:
  int32_t Id(size_t depth, size_t rank) const { return static_cast<int32_t>((5 + 17 * depth + 7 * rank) % vocab_); }
  Tree WithChild(Tree tree, size_t parent) const {
    const auto index = static_cast<int32_t>(parent);
    const auto rank = static_cast<size_t>(std::count(tree.parents.begin(), tree.parents.end(), index));
    tree.ids.push_back(Id(tree.Path(parent).size(), rank));
    tree.parents.push_back(index);
    return tree;
  }
  void Add(const Tree& tree) {
    Entry entry{.tree = tree, .paths = {}};
    for (size_t node = 0; node < tree.ids.size(); ++node) {
      const auto [path, is_new] = numbers_.try_emplace(tree.Ids(tree.Path(node)), paths_.size());
      if (is_new) paths_.push_back(path->first);
      entry.paths.push_back(path->second);
    }
    trees_.push_back(std::move(entry));
  }

  size_t vocab_;
  std::vector<Entry> trees_;
  std::vector<std::vector<int32_t>> paths_;
  std::map<std::vector<int32_t>, size_t> numbers_;
};

// What plain decoding gives behind a path.
struct Plain {
  std::vector<float> logits;
  std::vector<std::byte> checkpoint;
};

// So many of them at each place; by hand all.
#ifdef TIDEMILL_FEW_POSITIONS
constexpr size_t kShare = 12;
#else
constexpr size_t kShare = 60;
#endif

// Contexts that end at most so far from an edge of attention's chunks, on either side.
constexpr size_t kNearEdge = 3;
constexpr size_t kEdges[] = {kAttentionChunk, 2 * kAttentionChunk};

class SmallTreeBits : public ::testing::TestWithParam<TreeRun> {};

INSTANTIATE_TEST_SUITE_P(Families, SmallTreeBits,
                         ::testing::Values(Far("gemma3_text", DType::kF32), Far("tiny", DType::kQ8_0)),
                         [](const auto& test) {
                           return std::string(test.param.family) + "_" + std::string(InfoOf(test.param.kv_dtype).name);
                         });

TEST_P(SmallTreeBits, EveryTreeAtChunkEdges_HasTheLogitsOfPlainDecoding) {
  const TreeRun& run = GetParam();
  const uint64_t share = testing::CountByHand("TIDEMILL_TREES", kShare), seed = testing::FirstSeed();
  size_t nodes = 0, trees = 0, places = 0;
  std::set<size_t> met;  // trees
  std::mt19937_64 random(seed);
  for (const testing::NumericClass numeric : testing::kNumericClasses) {
    const auto level = testing::BestLevelOfClass(numeric, WeightsOf(run));
    if (!level.has_value()) continue;
    ModelRunner runner(PathOf(run), {.isa = *level,
                                     .kv_dtype = run.kv_dtype,
                                     .growth = {.policy = KvPolicy::kBmc, .increment = 16},
                                     .context = run.context});
    const size_t vocab = runner.model().settings.vocab_size;
    const SmallTrees all(vocab);
    ASSERT_EQ(all.trees().size(), 1U + 2 + 6 + 24 + 120 + 720);
    ASSERT_EQ(all.paths().size(), 64U);
    std::vector<size_t> order(all.trees().size());
    std::iota(order.begin(), order.end(), size_t{0});
    const auto drafted = runner.NewState(), plain = runner.NewState();
    const auto fill = [&](size_t length) {
      std::vector<int32_t> text;
      while (drafted->length() + text.size() < length) text.push_back(static_cast<int32_t>(random() % vocab));
      for (SequenceState* state : {drafted.get(), plain.get()}) runner.Feed(*state, text, 50, true);
    };
    for (const size_t edge : kEdges) {
      for (size_t length = edge - kNearEdge; length <= edge + kNearEdge; ++length, ++places) {
        SCOPED_TRACE(std::string(IsaName(*level)) + " at " + std::to_string(length));
        fill(length);
        std::vector<Plain> behind(all.paths().size());
        for (size_t i = 0; i < behind.size(); ++i) {
          behind[i].logits = runner.Feed(*plain, all.paths()[i], 1);
          behind[i].logits.erase(behind[i].logits.begin(), behind[i].logits.end() - static_cast<ptrdiff_t>(vocab));
          behind[i].checkpoint = plain->Checkpoint().value();
          ASSERT_TRUE(plain->Rollback(length).ok());
        }
        std::shuffle(order.begin(), order.end(), random);
        for (size_t i = 0; i < std::min<size_t>(share, order.size()); ++i, ++trees) {
          const auto& entry = all.trees()[order[i]];  // lambdas of clang 14 know no parts of it
          const auto& tree = entry.tree;
          const auto& paths = entry.paths;
          met.insert(order[i]);
          ASSERT_TRUE(drafted->Reserve(tree.ids.size()).ok());
          const StepSequence step{
              .state = drafted.get(), .tokens = tree.ids, .rows = Wanted::kAll, .parents = tree.parents};
          size_t same = 0;
          runner.executor().Run(
              {&step, 1},
              [&](size_t, size_t node, std::span<float> row) {
                same += std::memcmp(row.data(), behind[paths[node]].logits.data(), row.size_bytes()) == 0;
              },
              nullptr);
          ASSERT_EQ(same, tree.ids.size()) << "parents " << ::testing::PrintToString(tree.parents);
          nodes += same;
          const size_t taken = (i + length) % tree.ids.size();
          drafted->CommitPath(tree.Path(taken), testing::KeysOf(all.paths()[paths[taken]]));
          ASSERT_EQ(drafted->Checkpoint().value(), behind[paths[taken]].checkpoint)
              << "node " << taken << ", parents " << ::testing::PrintToString(tree.parents);
          ASSERT_TRUE(drafted->Rollback(length).ok());
        }
      }
    }
  }
  std::printf("  seed %llu: %zu trees of %zu nodes in %zu contexts; of 873 different ones %zu; %s\n",
              static_cast<unsigned long long>(seed), trees, nodes, places, met.size(),
              testing::DescribeLevels().c_str());
  EXPECT_GE(met.size(), std::min<size_t>(share * places / 4, 873));
}

}  // namespace
}  // namespace tidemill::tree_bits_test
