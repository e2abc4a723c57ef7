// Trees of drafts in a step: the logits of every node are those of its path alone, for every family, and the path that is taken up
// leaves the state of a sequence that never had a draft.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "tests/support/bits_levels.h"
#include "tests/support/model_runner.h"
#include "tests/support/tiny_model.h"

namespace tidemill {
namespace {

using testing::ModelRunner;

struct TreeRun {
  const char* family;  // of tests/fixtures/families; "tiny": a llama with heads of 32, which blocks divide
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
                             Near("gpt2"),
                             Near("opt"),
                             Near("opt_post_norm")};

std::string PathOf(const TreeRun& run) {
  if (std::string(run.family) != "tiny") return std::string(TIDEMILL_FIXTURES) + "/families/" + run.family;
  static const std::string tiny = testing::WriteTemporary(
      "tree_bits.gguf", testing::BuildTinyLlama({.vocab = 300, .head_dim = 32, .context = 512}));
  return tiny;
}

struct Tree {
  std::vector<int32_t> ids, parents;

  // Any, or one that forks late, or a chain; row 0 is the pending token.
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
    const auto level = testing::BestLevelOfClass(numeric, DType::kF32);
    if (!level.has_value()) continue;
    for (const KvGrowth growth :
         {KvGrowth{.policy = KvPolicy::kBmc, .period = 16}, KvGrowth{.policy = KvPolicy::kPaged, .period = 5}}) {
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
  EXPECT_GT(beside, 4U);
}

}  // namespace
}  // namespace tidemill
