// Linear attention gives the same bits whatever is computed together: chunks and orders of cells, threads, levels of a numeric class, requests
// of other classes in the same step, trees, restored and forked states. For every class of LinearClasses.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "engine/step_executor.h"
#include "tests/fixtures_path.h"
#include "tests/support/any_order.h"
#include "tests/support/bits_levels.h"
#include "tests/support/linear_classes.h"
#include "tests/support/model_runner.h"

namespace tidemill::linear_bits_test {
namespace {

using testing::AnyOrder;
using testing::BestLevelOfClass;
using testing::KeysOf;
using testing::kHybrids;
using testing::kNumericClasses;
using testing::LevelsHere;
using testing::LinearClasses;
using testing::ModelRunner;
using testing::NameOf;

std::string PathOf(const std::string& family) { return std::string(TIDEMILL_FIXTURES) + "/families/" + family; }

std::vector<int32_t> Ids(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) id = static_cast<int32_t>(3 + random() % 120);
  return ids;
}

bool SameBits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

// Logits of all rows, one sequence after another.
std::vector<float> RunStep(ModelRunner& runner, std::span<const StepSequence> step, CellOrder& order) {
  std::vector<float> logits;
  EXPECT_TRUE(runner.executor().Run(
      step, [&](size_t, size_t, std::span<float> row) { logits.insert(logits.end(), row.begin(), row.end()); }, nullptr,
      order));
  return logits;
}

// One step of chunks of one sequence, which is committed.
std::vector<float> RunChunks(ModelRunner& runner, SequenceState& state, std::span<const int32_t> ids,
                             const std::vector<size_t>& sizes, CellOrder& order) {
  EXPECT_TRUE(state.Reserve(ids.size()).ok());
  std::vector<StepSequence> step;
  size_t slot = 0;
  for (const size_t size : sizes) {
    step.push_back({.state = &state, .tokens = ids.subspan(slot, size), .rows = Wanted::kAll, .slot = slot});
    slot += size;
  }
  EXPECT_EQ(slot, ids.size());
  std::vector<float> logits = RunStep(runner, step, order);
  state.Commit(KeysOf(ids));
  return logits;
}

// --- Chunks, orders of cells, threads, levels ---

class LinearBits : public ::testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Families, LinearBits, ::testing::ValuesIn(kHybrids),
                         [](const auto& family) { return std::string(family.param); });

constexpr size_t kRows = 200;

// What token by token gives, and what is then remembered.
struct Reference {
  std::vector<float> logits;
  std::vector<std::byte> state;
};

TEST_P(LinearBits, Chunks_OrdersOfCells_Threads_AndLevels_GiveTheBitsOfTokenByToken) {
  const std::vector<int32_t> ids = Ids(kRows, 1);
  size_t runs = 0, lists = 0;
  for (const testing::NumericClass numeric : kNumericClasses) {
    const std::optional<Isa> best = BestLevelOfClass(numeric, DType::kF32);
    if (!best) continue;
    ModelRunner runner(PathOf(GetParam()), {.isa = *best, .max_rows = kRows});
    std::vector<Reference> references;
    for (const DeltaClass& form : LinearClasses()) {
      const auto state = runner.NewState(form);
      Reference& reference = references.emplace_back();
      reference.logits = runner.Feed(*state, ids, 1);
      reference.state = state->Checkpoint().value();
    }
    // Each class has bits of its own: else one of them is not what it says.
    for (size_t i = 1; i < references.size(); ++i) {
      EXPECT_FALSE(SameBits(references[i].logits, references[0].logits)) << NameOf(LinearClasses()[i]);
    }
    for (const Isa isa : LevelsHere()) {
      if (testing::ClassOf(isa, DType::kF32) != numeric) continue;
      for (const size_t threads : {1, 2, 3}) {
        if (!testing::MayRace(threads) || (threads != 1 && isa != *best)) continue;
        ModelRunner other(PathOf(GetParam()), {.isa = isa, .threads = threads, .max_rows = kRows});
        for (size_t c = 0; c < references.size(); ++c) {
          const DeltaClass form = LinearClasses()[c];
          const auto expect = [&](SequenceState& state, const std::vector<float>& logits, const std::string& how) {
            const std::string where =
                NameOf(form) + ", " + std::string(IsaName(isa)) + ", " + std::to_string(threads) + " threads, " + how;
            EXPECT_TRUE(SameBits(logits, references[c].logits)) << where;
            EXPECT_EQ(state.Checkpoint().value(), references[c].state) << where;
            ++runs;
          };
          for (const size_t chunk : {7, 64, 65, 130}) {
            if ((threads == 2 && chunk != 65) || (threads == 3 && chunk != 130)) continue;
            const auto state = other.NewState(form);
            expect(*state, other.Feed(*state, ids, chunk), "chunks of " + std::to_string(chunk));
          }
          // Several chunks of one step: first a step that is staged whole, then one that keeps every entry.
          for (const bool diagonal : {false, true}) {
            const auto state = other.NewState(form);
            SequentialOrder sequential;
            AnyOrder any(true, 0);
            CellOrder& order = diagonal ? static_cast<CellOrder&>(any) : sequential;
            const std::span<const int32_t> all = ids;
            std::vector<float> logits = RunChunks(other, *state, all.first(11), {4, 7}, order);
            const auto whole = RunChunks(other, *state, all.subspan(11, 130), {40, 1, 64, 25}, order);
            const auto staged = RunChunks(other, *state, all.subspan(141), {7, 41, 1, 10}, order);
            logits.insert(logits.end(), whole.begin(), whole.end());
            logits.insert(logits.end(), staged.begin(), staged.end());
            expect(*state, logits, diagonal ? "the diagonal" : "chunks in one step");
            lists += any.lists_of_several();
          }
        }
      }
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(lists, 0U);
  std::printf("  %zu runs of %zu rows\n", runs, kRows);
}

TEST_P(LinearBits, AnyOrderOfCells_GivesTheSameBits) {
  const std::vector<int32_t> ids = Ids(kRows, 2);
  ModelRunner runner(PathOf(GetParam()), {.threads = 2, .max_rows = kRows});
  for (const DeltaClass& form : LinearClasses()) {
    const auto plain = runner.NewState(form);
    const std::vector<float> expected = runner.Feed(*plain, ids, kRows);
    for (uint64_t seed = 1; seed <= 6; ++seed) {
      const auto state = runner.NewState(form);
      AnyOrder order(false, seed);
      EXPECT_TRUE(SameBits(RunChunks(runner, *state, ids, {3, 65, 60, 1, 71}, order), expected))
          << NameOf(form) << ", seed " << seed;
    }
  }
}

// --- One step of everything ---

// A request, and what each of its steps has. Alone and among others it must give the same.
struct Member {
  struct Turn {
    std::vector<int32_t> tokens;
    std::vector<int32_t> parents = {};
    std::vector<uint32_t> path = {};  // that is committed; empty: all rows
    bool dropped = false;             // the step is run and not committed, then run again
  };
  std::string name;
  DeltaClass form;
  std::vector<int32_t> before;  // known before the first turn
  std::vector<Turn> turns;
};

std::vector<RowKey> CommittedKeys(const Member::Turn& turn) {
  if (turn.path.empty()) return KeysOf(turn.tokens);
  std::vector<RowKey> keys;
  for (const uint32_t row : turn.path) keys.push_back(static_cast<RowKey>(turn.tokens[row]));
  return keys;
}

void Commit(SequenceState& state, const Member::Turn& turn) {
  if (turn.path.empty()) {
    state.Commit(CommittedKeys(turn));
  } else {
    state.CommitPath(turn.path, CommittedKeys(turn));
  }
}

constexpr size_t kTurns = 24;

std::vector<Member> Members() {
  const DeltaClass recurrent = {}, eights = {.start = 8, .period = 8}, late = {.start = 64, .period = 8};
  DeltaClass halves = eights;
  halves.dtype = DType::kBF16;
  std::vector<Member> members = {{"prefill", eights, Ids(10, 11), {}},
                                 {"long prefill", recurrent, Ids(5, 12), {}},
                                 {"recurrent", recurrent, Ids(13, 13), {}},
                                 {"a fill of 3", eights, Ids(11, 14), {}},
                                 {"a fill of 7", eights, Ids(15, 15), {}},
                                 {"a full buffer", eights, Ids(16, 16), {}},
                                 {"bf16", halves, Ids(21, 17), {}},
                                 {"before its start", late, Ids(50, 18), {}},
                                 {"tree", eights, Ids(13, 19), {}},
                                 {"tree of every token", recurrent, Ids(9, 20), {}},
                                 {"tree before its start", late, Ids(44, 21), {}},
                                 {"from nothing", eights, {}, {}}};
  uint64_t seed = 100;
  for (Member& member : members) {
    for (size_t turn = 0; turn < kTurns; ++turn) {
      Member::Turn& t = member.turns.emplace_back();
      if (member.name == "prefill") {
        t.tokens = Ids(std::array<size_t, 3>{20, 1, 7}[turn % 3], ++seed);
      } else if (member.name == "long prefill") {
        t.tokens = Ids(turn == 0 ? 70 : turn == 5 ? 66 : 1, ++seed);
      } else if (member.name.starts_with("tree")) {
        t.tokens = Ids(7, ++seed);
        t.parents = {-1, 0, 0, 1, 2, 4, -1};
        const std::vector<std::vector<uint32_t>> paths = {{0, 2, 4, 5}, {0}, {0, 1, 3}, {6}, {0, 2}, {0, 1}};
        t.path = paths[turn % paths.size()];
        t.dropped = turn % 4 == 1;
      } else {
        t.tokens = Ids(1, ++seed);
        t.dropped = turn % 8 == 3;
      }
    }
  }
  return members;
}

struct MemberResult {
  std::vector<std::vector<float>> logits;  // of each turn
  std::vector<std::byte> state;
};

MemberResult Alone(ModelRunner& runner, const Member& member) {
  const auto state = runner.NewState(member.form);
  if (!member.before.empty()) (void)runner.Feed(*state, member.before, 3);
  MemberResult result;
  SequentialOrder order;
  for (const Member::Turn& turn : member.turns) {
    EXPECT_TRUE(state->Reserve(turn.tokens.size()).ok());
    const StepSequence step{.state = state.get(), .tokens = turn.tokens, .rows = Wanted::kAll, .parents = turn.parents};
    result.logits.push_back(RunStep(runner, {&step, 1}, order));
    Commit(*state, turn);
  }
  result.state = state->Checkpoint().value();
  return result;
}

TEST_P(LinearBits, OneStepOfEverything_GivesEachItsBitsAlone) {
  const std::vector<Member> members = Members();
  for (const Isa isa : LevelsHere()) {
    ModelRunner one(PathOf(GetParam()), {.isa = isa});
    std::vector<MemberResult> expected;
    for (const Member& member : members) expected.push_back(Alone(one, member));
    for (const size_t threads : {1, 3}) {
      if (!testing::MayRace(threads)) continue;
      ModelRunner runner(PathOf(GetParam()), {.isa = isa, .threads = threads});
      std::vector<std::unique_ptr<SequenceState>> states;
      for (const Member& member : members) {
        states.push_back(runner.NewState(member.form));
        if (!member.before.empty()) (void)runner.Feed(*states.back(), member.before, member.before.size());
      }
      std::mt19937_64 random(7 + threads);
      std::vector<size_t> at(members.size());
      for (size_t i = 0; i < at.size(); ++i) at[i] = i;
      const size_t vocab = runner.model().settings.vocab_size;
      for (size_t turn = 0; turn < kTurns; ++turn) {
        std::shuffle(at.begin(), at.end(), random);  // classes lie side by side, or not
        for (int again = 0; again < 2; ++again) {
          // Those whose step is dropped run in both.
          std::vector<StepSequence> step;
          std::vector<size_t> who;
          for (const size_t i : at) {
            const Member::Turn& t = members[i].turns[turn];
            if (again == 1 && !t.dropped) continue;
            ASSERT_TRUE(states[i]->Reserve(t.tokens.size()).ok());
            step.push_back({.state = states[i].get(), .tokens = t.tokens, .rows = Wanted::kAll, .parents = t.parents});
            who.push_back(i);
          }
          if (step.empty()) break;
          SequentialOrder order;
          const std::vector<float> logits = RunStep(runner, step, order);
          size_t row = 0;
          for (const size_t i : who) {
            const Member::Turn& t = members[i].turns[turn];
            const std::span<const float> found = std::span(logits).subspan(row * vocab, t.tokens.size() * vocab);
            row += t.tokens.size();
            EXPECT_TRUE(SameBits(found, expected[i].logits[turn]))
                << members[i].name << ", turn " << turn << ", " << IsaName(isa) << ", " << threads << " threads"
                << (again == 1 ? ", again" : "");
            if (again == 1 || !t.dropped) Commit(*states[i], t);
          }
        }
        if (HasFailure()) return;
      }
      for (size_t i = 0; i < members.size(); ++i)
        EXPECT_EQ(states[i]->Checkpoint().value(), expected[i].state) << members[i].name;
    }
  }
}

// --- Restored and forked ---

TEST_P(LinearBits, CheckpointAtEveryPosition_GoesOnWithTheSameBits) {
  constexpr size_t kMore = 20, kPositions = 100;
  const std::vector<int32_t> ids = Ids(kPositions + kMore, 3);
  ModelRunner runner(PathOf(GetParam()), {});
  const size_t vocab = runner.model().settings.vocab_size;
  for (const DeltaClass& form : LinearClasses()) {
    const auto whole = runner.NewState(form), state = runner.NewState(form);
    const std::vector<float> expected = runner.Feed(*whole, ids, 1);
    for (size_t position = 1; position <= kPositions; ++position) {
      (void)runner.Feed(*state, std::span(ids).subspan(position - 1, 1), 1);
      const std::vector<std::byte> bytes = state->Checkpoint().value();
      const auto restored = runner.NewState(form);
      ASSERT_TRUE(restored->Restore(bytes).ok());
      EXPECT_EQ(restored->Checkpoint().value(), bytes) << NameOf(form) << " at " << position;
      // One token, a chunk, and single ones again: whatever comes first meets the restored state.
      std::vector<float> found;
      size_t at = position;
      for (const size_t rows :
           position % 2 == 0 ? std::vector<size_t>{1, 17, 1, 1} : std::vector<size_t>{17, 1, 1, 1}) {
        const std::vector<float> logits = runner.Feed(*restored, std::span(ids).subspan(at, rows), rows);
        found.insert(found.end(), logits.begin(), logits.end());
        at += rows;
      }
      ASSERT_TRUE(SameBits(found, std::span(expected).subspan(position * vocab, kMore * vocab)))
          << NameOf(form) << " at " << position;
    }
  }
}

TEST_P(LinearBits, Forks_GoOnAsSequencesOfTheirOwn) {
  constexpr size_t kForks = 4, kSteps = 64;
  ModelRunner runner(PathOf(GetParam()), {.threads = 2});
  const size_t vocab = runner.model().settings.vocab_size;
  for (const DeltaClass& form : LinearClasses()) {
    for (const size_t length : {7, 16, 37}) {
      const std::vector<int32_t> text = Ids(length, 30);
      const auto parent = runner.NewState(form);
      (void)runner.Feed(*parent, text, 5);
      std::vector<std::unique_ptr<SequenceState>> forks, apart;
      std::vector<std::vector<int32_t>> more;
      std::vector<std::vector<float>> expected;
      for (size_t i = 0; i < kForks; ++i) {
        forks.push_back(i == 0 ? nullptr : parent->Fork().value());
        apart.push_back(runner.NewState(form));
        (void)runner.Feed(*apart.back(), text, 5);
        more.push_back(Ids(kSteps, 40 + i));
        expected.push_back(runner.Feed(*apart.back(), more.back(), 1));
      }
      for (size_t t = 0; t < kSteps; ++t) {  // all in one cell
        std::vector<StepSequence> step;
        for (size_t i = 0; i < kForks; ++i) {
          SequenceState& state = i == 0 ? *parent : *forks[i];
          ASSERT_TRUE(state.Reserve(1).ok());
          step.push_back({.state = &state, .tokens = std::span(more[i]).subspan(t, 1), .rows = Wanted::kAll});
        }
        SequentialOrder order;
        const std::vector<float> logits = RunStep(runner, step, order);
        for (size_t i = 0; i < kForks; ++i) {
          step[i].state->Commit(KeysOf(step[i].tokens));
          ASSERT_TRUE(
              SameBits(std::span(logits).subspan(i * vocab, vocab), std::span(expected[i]).subspan(t * vocab, vocab)))
              << NameOf(form) << ", fork " << i << " of " << length << " tokens, step " << t;
        }
      }
      for (size_t i = 0; i < kForks; ++i) {
        EXPECT_EQ((i == 0 ? *parent : *forks[i]).Checkpoint().value(), apart[i]->Checkpoint().value())
            << NameOf(form) << ", fork " << i;
      }
    }
  }
}

TEST_P(LinearBits, CheckpointOfAnotherClass_IsRefused) {
  const std::vector<DeltaClass> classes = LinearClasses();
  const std::vector<int32_t> ids = Ids(40, 4);
  ModelRunner runner(PathOf(GetParam()), {});
  for (size_t from = 0; from < classes.size(); ++from) {
    const auto state = runner.NewState(classes[from]);
    (void)runner.Feed(*state, ids, 9);
    const std::vector<std::byte> bytes = state->Checkpoint().value();
    for (size_t to = 0; to < classes.size(); ++to) {
      const auto other = runner.NewState(classes[to]);
      (void)runner.Feed(*other, ids, 5);
      const auto before = other->Checkpoint().value();
      const auto restored = other->Restore(bytes);
      EXPECT_EQ(restored.ok(), from == to) << NameOf(classes[from]) << " into " << NameOf(classes[to]);
      if (restored.ok()) continue;
      EXPECT_EQ(restored.error().code(), ErrorCode::kFailedPrecondition) << restored.error().message();
      EXPECT_NE(restored.error().message().find("restore state: "), std::string::npos) << restored.error().message();
      EXPECT_EQ(other->Checkpoint().value(), before);
      if (from == 0 && to == 1) std::printf("  %s\n", restored.error().message().c_str());
    }
  }
}

// --- What is written ---

TEST_P(LinearBits, StatesAreWrittenOnceForEachBoundaryThatIsPassed) {
  ModelRunner runner(PathOf(GetParam()), {});
  const std::vector<int32_t> ids = Ids(kRows, 5);
  for (const DeltaClass& form : LinearClasses()) {
    const std::string where = NameOf(form);
    // Token by token.
    const auto state = runner.NewState(form);
    const auto layers = testing::LinearLayersOf(*state);
    ASSERT_FALSE(layers.empty());
    for (size_t length = 1; length <= kRows; ++length) {
      (void)runner.Feed(*state, std::span(ids).subspan(length - 1, 1), 1);
      const uint64_t passed = testing::BoundariesPassed(form, length);
      for (const LinearLayer* layer : layers) {
        ASSERT_EQ(layer->counts().boundaries, passed) << where << " at " << length;
        ASSERT_EQ(layer->counts().writes, passed) << where << " at " << length;
        if (length > form.start) continue;
        ASSERT_EQ(testing::StateBytesOf(*layer), 0U) << where << " at " << length;
      }
    }
    // Chunks: at most one write for each, and every boundary but those of the last staged rows.
    for (const size_t chunk : {7, 65, 66, 130}) {
      const auto chunked = runner.NewState(form);
      const auto its = testing::LinearLayersOf(*chunked);
      uint64_t cells = 0;
      size_t before_last = 0;
      for (size_t at = 0; at < kRows; at += chunk) {
        const size_t rows = std::min(chunk, kRows - at);
        (void)runner.Feed(*chunked, std::span(ids).subspan(at, rows), rows);
        ++cells;
        before_last = rows > LinearLayer::kMaxStagedRows ? kRows : at + 1;
        for (const LinearLayer* layer : its) {
          ASSERT_LE(layer->counts().writes, cells) << where << ", chunks of " << chunk;
          if (at + rows > form.start) continue;
          ASSERT_EQ(testing::StateBytesOf(*layer), 0U) << where << ", chunks of " << chunk;
        }
      }
      for (const LinearLayer* layer : its) {
        EXPECT_EQ(layer->counts().boundaries, testing::BoundariesPassed(form, before_last))
            << where << ", chunks of " << chunk;
      }
    }
    // Steps of drafts, of which some are dropped: what was committed before is folded once, and of their rows nothing.
    for (size_t taken = 0; taken <= 3; ++taken) {
      const uint64_t before = layers[0]->counts().writes, length = state->length();
      const std::vector<int32_t> draft = Ids(30, 60 + taken);
      for (int again = 0; again < 3; ++again) {
        ASSERT_TRUE(state->Reserve(draft.size()).ok());
        const StepSequence step{.state = state.get(), .tokens = draft, .rows = Wanted::kAll};
        SequentialOrder order;
        (void)RunStep(runner, {&step, 1}, order);
        const uint64_t due = testing::BoundariesPassed(form, length + 1);  // the step's first row has passed them
        EXPECT_EQ(layers[0]->counts().boundaries, due) << where << ", again " << again;
        EXPECT_LE(layers[0]->counts().writes, before + 1) << where << ", again " << again;
      }
      const auto path = std::span(draft).first(1 + taken);
      state->Commit(KeysOf(path));
    }
  }
}

}  // namespace
}  // namespace tidemill::linear_bits_test
