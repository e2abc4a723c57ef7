// A small model of each family whose layers remember in rows and in folds: what holds for rows alone holds for a list of kinds. And rows
// that are no tokens, positions that restart, rows that see what comes after them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/step_executor.h"
#include "tests/fixtures_path.h"
#include "tests/support/families.h"
#include "tests/support/fold_branch.h"
#include "tests/support/model_runner.h"

namespace tidemill::mixed_state_test {
namespace {

using testing::AddFolds;
using testing::KeysOf;
using testing::kFamilies;
using testing::ModelRunner;

const std::vector<int32_t> kIds = {5, 9, 2, 11, 7, 3, 8, 4, 6, 1, 10, 12, 9, 2};

ModelRunner RunnerOf(const std::string& family, void (*change)(LanguageModel&) = AddFolds) {
  return ModelRunner(std::string(TIDEMILL_FIXTURES) + "/families/" + family,
                     {.context = 64, .max_rows = 16, .change = change});
}

bool SameBits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

// Logits of all rows of one step, which nobody commits.
std::vector<float> Logits(ModelRunner& runner, StepSequence step) {
  step.rows = Wanted::kAll;
  EXPECT_TRUE(step.state->Reserve(step.num_rows()).ok());
  std::vector<float> logits;
  EXPECT_TRUE(runner.executor().Run(
      {&step, 1}, [&](size_t, size_t, std::span<float> row) { logits.insert(logits.end(), row.begin(), row.end()); },
      nullptr));
  return logits;
}

class MixedState : public ::testing::TestWithParam<const char*> {
 protected:
  ModelRunner runner_ = RunnerOf(GetParam());
  const size_t vocab_ = runner_.model().settings.vocab_size;

  std::vector<float> Row(const std::vector<float>& logits, size_t row) const {
    return {logits.begin() + static_cast<std::ptrdiff_t>(row * vocab_),
            logits.begin() + static_cast<std::ptrdiff_t>((row + 1) * vocab_)};
  }
};

INSTANTIATE_TEST_SUITE_P(Families, MixedState, ::testing::ValuesIn(kFamilies),
                         [](const auto& family) { return std::string(family.param); });

TEST_P(MixedState, ListOfKinds_IsTheBranches) {
  const auto state = runner_.NewState();
  ASSERT_EQ(state->num_layers(), runner_.model().layers.size() + 1);
  EXPECT_EQ(state->layer(0).checkpoint_kind(), StateKind::kKv);
  EXPECT_EQ(state->layer(1).checkpoint_kind(), StateKind::kOfATest);
  EXPECT_EQ(state->layer(state->num_layers() - 1).checkpoint_kind(), StateKind::kOfATest);
}

TEST_P(MixedState, Chunks_GiveTheSameBits) {
  const auto whole = runner_.NewState();
  const std::vector<float> expected = runner_.Feed(*whole, kIds, kIds.size());
  for (const size_t chunk : {1, 3, 7}) {
    const auto state = runner_.NewState();
    EXPECT_TRUE(SameBits(runner_.Feed(*state, kIds, chunk), expected)) << chunk;
    EXPECT_EQ(state->Checkpoint().value(), whole->Checkpoint().value()) << chunk;
  }
}

TEST_P(MixedState, StepThatIsDroppedOrRepeated_LeavesNothing) {
  const auto state = runner_.NewState();
  (void)runner_.Feed(*state, std::span(kIds).first(3), 3);
  const auto before = state->Checkpoint().value();
  const std::span<const int32_t> rest = std::span(kIds).subspan(3, 5);
  const std::vector<float> expected = Logits(runner_, {.state = state.get(), .tokens = rest});
  (void)Logits(runner_, {.state = state.get(), .tokens = std::span(kIds).last(7)});
  EXPECT_EQ(state->Checkpoint().value(), before);
  EXPECT_TRUE(SameBits(Logits(runner_, {.state = state.get(), .tokens = rest}), expected));
}

TEST_P(MixedState, TreeOfDraftTokens_GivesTheBitsOfItsPaths) {
  const std::vector<int32_t> tokens = {7, 3, 8, 4, 6}, parents = {-1, 0, 0, 2, -1};
  const std::vector<uint32_t> path = {0, 2, 3};
  const std::vector<int32_t> chain = {7, 8, 4};
  const auto state = runner_.NewState(), other = runner_.NewState();
  (void)runner_.Feed(*state, std::span(kIds).first(3), 3);
  (void)runner_.Feed(*other, std::span(kIds).first(3), 3);
  const std::vector<float> tree = Logits(runner_, {.state = state.get(), .tokens = tokens, .parents = parents});
  const std::vector<float> alone = Logits(runner_, {.state = other.get(), .tokens = chain});
  for (size_t i = 0; i < path.size(); ++i) EXPECT_TRUE(SameBits(Row(tree, path[i]), Row(alone, i))) << i;
  state->CommitPath(path, KeysOf(chain));
  other->Commit(KeysOf(chain));
  EXPECT_EQ(state->Checkpoint().value(), other->Checkpoint().value());
  EXPECT_TRUE(SameBits(runner_.Feed(*state, kIds, 5), runner_.Feed(*other, kIds, 5)));
}

TEST_P(MixedState, RestoredForkedOrRolledBack_GoesOnTheSame) {
  const auto state = runner_.NewState(), restored = runner_.NewState(), longer = runner_.NewState();
  const std::span<const int32_t> first = std::span(kIds).first(6), rest = std::span(kIds).subspan(6);
  (void)runner_.Feed(*state, first, 4);
  ASSERT_TRUE(restored->Restore(state->Checkpoint().value()).ok());
  const auto fork = state->Fork().value();
  (void)runner_.Feed(*longer, kIds, 5);
  ASSERT_TRUE(longer->Rollback(first.size()).ok());
  const std::vector<float> expected = runner_.Feed(*state, rest, 3);
  EXPECT_TRUE(SameBits(runner_.Feed(*restored, rest, 2), expected));
  EXPECT_TRUE(SameBits(runner_.Feed(*fork, rest, 8), expected));
  EXPECT_TRUE(SameBits(runner_.Feed(*longer, rest, 1), expected));
}

TEST_P(MixedState, CheckpointOfAnotherList_IsRefused) {
  ModelRunner plain = RunnerOf(GetParam(), nullptr);
  const auto state = runner_.NewState(), rows = plain.NewState();
  (void)runner_.Feed(*state, kIds, 5);
  (void)plain.Feed(*rows, kIds, 5);
  const auto before = rows->Checkpoint().value();
  const auto refused = rows->Restore(state->Checkpoint().value());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::kFailedPrecondition) << refused.error().message();
  EXPECT_EQ(rows->Checkpoint().value(), before);
  EXPECT_FALSE(state->Restore(before).ok());
}

TEST_P(MixedState, StateOfAnotherList_StopsTheStep) {
  ModelRunner plain = RunnerOf(GetParam(), nullptr);
  const auto rows = plain.NewState();
  EXPECT_EXIT((void)Logits(runner_, {.state = rows.get(), .tokens = kIds}), ::testing::ExitedWithCode(70),
              "internal check failed");
}

// The embeddings of tokens as rows of their own, between rows of tokens.
TEST_P(MixedState, EmbeddingsOfTokens_AreTheTokens) {
  const LanguageModel& model = runner_.model();
  const size_t width = model.token_embedding().cols();
  std::vector<float> values(4 * width);
  for (size_t r = 0; r < 4; ++r) {
    const std::span<float> row = std::span(values).subspan(r * width, width);
    model.token_embedding().CopyRow(static_cast<size_t>(kIds[3 + r]), row);
    for (float& x : row) x *= model.embedding_scale;
  }
  const auto state = runner_.NewState(), plain = runner_.NewState();
  const std::vector<float> expected = Logits(runner_, {.state = plain.get(), .tokens = std::span(kIds).first(9)});
  ASSERT_TRUE(state->Reserve(9).ok());
  const StepSequence step[] = {
      {.state = state.get(), .tokens = std::span(kIds).first(3), .rows = Wanted::kAll},
      {.state = state.get(), .rows = Wanted::kAll, .slot = 3, .embeddings = {values.data(), 4, width}},
      {.state = state.get(), .tokens = std::span(kIds).subspan(7, 2), .rows = Wanted::kAll, .slot = 7}};
  std::vector<float> logits;
  ASSERT_TRUE(runner_.executor().Run(
      step, [&](size_t, size_t, std::span<float> row) { logits.insert(logits.end(), row.begin(), row.end()); },
      nullptr));
  EXPECT_TRUE(SameBits(logits, expected));
}

TEST_P(MixedState, PositionsThatAreGiven_AreTheDefaultWhereTheyFollow) {
  const auto state = runner_.NewState(), plain = runner_.NewState();
  (void)runner_.Feed(*state, std::span(kIds).first(3), 3);
  (void)runner_.Feed(*plain, std::span(kIds).first(3), 3);
  const std::span<const int32_t> rest = std::span(kIds).subspan(3, 4);
  const std::vector<uint32_t> follow = {3, 4, 5, 6}, restart = {0, 1, 2, 3};
  const std::vector<float> expected = Logits(runner_, {.state = plain.get(), .tokens = rest});
  EXPECT_TRUE(SameBits(Logits(runner_, {.state = state.get(), .tokens = rest, .positions = follow}), expected));
  EXPECT_FALSE(SameBits(Logits(runner_, {.state = state.get(), .tokens = rest, .positions = restart}), expected));
}

// Positions that restart are what a new sequence has: rows of both give the same where they see only themselves.
TEST(RowPlaces, PositionsThatRestart_AreThoseOfANewSequence) {
  ModelRunner runner = RunnerOf("gpt2", [](LanguageModel& model) {  // no layer looks back
    for (DecoderLayer& layer : model.layers) layer.branches.erase(layer.branches.begin());
  });
  const auto state = runner.NewState(), fresh = runner.NewState();
  (void)runner.Feed(*state, kIds, 4);
  const std::span<const int32_t> ids = std::span(kIds).first(4);
  const std::vector<uint32_t> restart = {0, 1, 2, 3};
  EXPECT_TRUE(SameBits(Logits(runner, {.state = state.get(), .tokens = ids, .positions = restart}),
                       Logits(runner, {.state = fresh.get(), .tokens = ids})));
}

TEST(RowPlaces, RowsThatSeeAll_SeeWhatComesAfterThem) {
  for (const char* family : {"llama3_rope", "gpt2", "mixtral"}) {
    ModelRunner runner = RunnerOf(family, nullptr);
    const auto state = runner.NewState();
    const std::vector<int32_t> some = {5, 9, 2, 11}, others = {5, 9, 2, 7};
    const auto first_row = [&](const std::vector<int32_t>& ids, Visibility visibility) {
      std::vector<float> logits = Logits(runner, {.state = state.get(), .tokens = ids, .visibility = visibility});
      logits.resize(runner.model().settings.vocab_size);
      return logits;
    };
    EXPECT_TRUE(SameBits(first_row(some, Visibility::kCausal), first_row(others, Visibility::kCausal))) << family;
    EXPECT_FALSE(SameBits(first_row(some, Visibility::kAll), first_row(others, Visibility::kAll))) << family;
  }
}

}  // namespace
}  // namespace tidemill::mixed_state_test
