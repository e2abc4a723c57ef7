// What is particular to layers of linear attention: when a state is made, written, shared and copied. That all of it gives the bits of single
// steps, whatever happens between them, is what the contract suite says; here are the cases that it meets rarely.
#include "state/linear_layer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "tests/support/allocation_probe.h"
#include "tests/support/linear_under_test.h"

namespace tidemill::linear_layer_test {
namespace {

using testing::FailAllocations;
using testing::kLinearRowBytes;
using testing::LinearCellRows;
using testing::LinearPrefixes;
using testing::NumAllocations;
using testing::RunLinearCell;
using testing::UncommittedRow;

using Bytes = std::vector<std::byte>;

LinearShape ShapeOf(size_t start, size_t period, DType dtype = DType::kF32) {
  return {.delta = {.key_heads = 2,
                    .value_heads = 4,
                    .key_dim = 3,
                    .value_dim = 5,
                    .form = {.start = start, .period = period, .dtype = dtype}},
          .channels = 3,
          .conv_width = 4};
}

std::vector<LinearShape> Shapes() {
  return {ShapeOf(1, 1), ShapeOf(3, 3), ShapeOf(8, 8, DType::kBF16), ShapeOf(24, 8), ShapeOf(64, 16, DType::kBF16)};
}

std::string NameOf(const LinearShape& shape) {
  return "start " + std::to_string(shape.delta.form.start) + " period " + std::to_string(shape.delta.form.period);
}

// Rows of a sequence; another one for each seed.
Bytes Rows(size_t num, uint64_t seed) {
  std::mt19937_64 random(seed);
  Bytes rows(num * kLinearRowBytes);
  for (std::byte& byte : rows) byte = static_cast<std::byte>(random() % 255);
  return rows;
}

size_t BoundariesUpTo(const DeltaClass& form, size_t position) {
  return position < form.start ? 0 : (position - form.start) / form.period + 1;
}

// A layer alone, and the rows that it has.
struct Subject {
  std::unique_ptr<LinearLayer> layer;
  LinearPrefixes* prefixes;  // of the shape
  Bytes rows;
  size_t rollback_rows;
  StateLedger* ledger;
  size_t floor = 0;

  Subject(const LinearShape& shape, LinearPrefixes* of_shape, size_t rollback = 0, StateLedger* who_counts = nullptr)
      : layer(std::make_unique<LinearLayer>(
            shape, LinearOptions{.isa = testing::LinearIsa(), .rollback_rows = rollback, .ledger = who_counts})),
        prefixes(of_shape),
        rollback_rows(rollback),
        ledger(who_counts) {}

  size_t length() const { return rows.size() / kLinearRowBytes; }

  void Reserve(size_t n) { ASSERT_TRUE(layer->Reserve(n, floor, nullptr).ok()); }
  // Cells of the step that was reserved, of so many rows each.
  void Run(const Bytes& step, const std::vector<size_t>& cells) {
    layer->Settle();
    size_t slot = 0;
    for (const size_t num : cells) {
      const auto rows_of_cell = std::span(step).subspan(slot * kLinearRowBytes, num * kLinearRowBytes);
      RunLinearCell({.layer = layer.get(), .slot = slot, .rows = rows_of_cell});
      slot += num;
    }
  }
  void Committed(std::span<const std::byte> step) {
    rows.insert(rows.end(), step.begin(), step.end());
    floor = std::max(floor, length() - std::min(length(), rollback_rows));
  }
  void Step(const Bytes& step, const std::vector<size_t>& cells) {
    Reserve(step.size() / kLinearRowBytes);
    Run(step, cells);
    layer->Commit(step.size() / kLinearRowBytes);
    Committed(step);
  }
  void Step(const Bytes& step) { Step(step, {step.size() / kLinearRowBytes}); }
  void OneByOne(const Bytes& more) {
    for (size_t at = 0; at < more.size(); at += kLinearRowBytes) {
      const auto row = std::span(more).subspan(at, kLinearRowBytes);
      Step(Bytes(row.begin(), row.end()));
    }
  }

  Bytes Checkpoint() const {
    layer->Settle();
    Bytes out;
    layer->AppendTo(&out, floor);
    return out;
  }
  bool IsRight() const {
    const Bytes found = Checkpoint();
    return found == prefixes->Checkpoint(rows, floor) && found.size() == layer->CheckpointBytes(length(), floor);
  }
  std::set<const void*> States() const {
    std::set<const void*> blocks;
    layer->ForEachBlock([&](const void* block, uint64_t) { blocks.insert(block); });
    blocks.erase(layer.get());
    return blocks;
  }
  // A child that has all rows.
  Subject Fork() {
    Subject child(layer->shape(), prefixes, rollback_rows, ledger);
    layer->Settle();
    layer->PrepareFork(*child.layer);
    layer->Fork(*child.layer);
    child.rows = rows;
    child.floor = floor;
    return child;
  }
};

TEST(LinearLayer, BeforeATokenHasPassedTheFirstBoundary_NoStateIsThere) {
  for (const LinearShape& shape : Shapes()) {
    SCOPED_TRACE(NameOf(shape));
    LinearPrefixes prefixes(shape);
    const size_t start = shape.delta.form.start;
    for (const size_t rollback : {0, 4}) {
      StateLedger ledger;
      Subject one(shape, &prefixes, rollback, &ledger);
      uint64_t rings = 0;
      for (size_t length = 0; length <= start + rollback; ++length) {
        ASSERT_TRUE(one.States().empty()) << length;
        EXPECT_EQ(one.layer->base(), 0U);
        rings = one.layer->reserved_bytes();
        EXPECT_EQ(ledger.held(), rings);
        one.Step(Rows(1, length));
      }
      // The cell of position start + rollback was the first that could fold.
      EXPECT_EQ(one.States().size(), 1U);
      EXPECT_EQ(one.layer->base(), start);
      EXPECT_EQ(ledger.held(), one.layer->reserved_bytes());
      EXPECT_GE(ledger.held(), rings + shape.delta.state_floats() * sizeof(float));
      EXPECT_TRUE(one.IsRight());
    }
  }
  // A long step up to a boundary, too, and the first position behind it.
  const LinearShape shape = ShapeOf(70, 10);
  LinearPrefixes prefixes(shape);
  Subject one(shape, &prefixes);
  one.Step(Rows(70, 1));
  EXPECT_TRUE(one.States().empty());
  EXPECT_TRUE(one.IsRight());
  one.Step(Rows(1, 2));
  EXPECT_EQ(one.States().size(), 1U);
  EXPECT_TRUE(one.IsRight());
}

TEST(LinearLayer, OneRowSteps_WriteTheStateOnceForEachBoundaryThatWasPassed) {
  for (const LinearShape& shape : Shapes()) {
    LinearPrefixes prefixes(shape);
    for (const size_t rollback : {0, 2}) {
      Subject one(shape, &prefixes, rollback);
      for (size_t length = 1; length <= 150; ++length) {
        one.Step(Rows(1, length));
        const size_t seen = length - 1 - std::min(length - 1, rollback);  // when the last cell ran
        ASSERT_EQ(one.layer->counts().boundaries, BoundariesUpTo(shape.delta.form, seen)) << NameOf(shape);
        ASSERT_EQ(one.layer->counts().writes, one.layer->counts().boundaries) << NameOf(shape);
      }
      ASSERT_TRUE(one.IsRight());
      one.layer->Clear();
      EXPECT_EQ(one.layer->counts().boundaries + one.layer->counts().writes, 0U);
    }
  }
}

TEST(LinearLayer, StepsOfDrafts_WriteTheStateInTheNextCellAndOnce) {
  for (const LinearShape& shape : Shapes()) {
    SCOPED_TRACE(NameOf(shape));
    LinearPrefixes prefixes(shape);
    Subject one(shape, &prefixes);
    one.OneByOne(Rows(shape.delta.form.start, 1));
    const LinearCounts before = one.layer->counts();
    for (int again = 0; again < 3; ++again) {  // repeated or abandoned, it folds what was committed, once
      one.Reserve(65);
      one.Run(Rows(65, 2), {65});
      EXPECT_EQ(one.layer->counts().writes, before.writes + 1);
      EXPECT_EQ(one.layer->counts().boundaries, before.boundaries + 1);
    }
    one.layer->Commit(65);
    one.Committed(Rows(65, 2));
    EXPECT_EQ(one.layer->counts().writes, before.writes + 1);
    EXPECT_TRUE(one.IsRight());
    one.Step(Rows(1, 3));
    const size_t boundaries = BoundariesUpTo(shape.delta.form, shape.delta.form.start + 65);
    EXPECT_EQ(one.layer->counts().boundaries, boundaries);
    EXPECT_EQ(one.layer->counts().writes, before.writes + (boundaries == 1 ? 1U : 2U));
    EXPECT_TRUE(one.IsRight());
    const uint64_t writes = one.layer->counts().writes;
    one.Step(Rows(200, 4), {64, 64, 72});
    EXPECT_LE(one.layer->counts().writes, writes + 3);
    EXPECT_EQ(one.layer->counts().boundaries, BoundariesUpTo(shape.delta.form, one.length() - 1));
  }
}

TEST(LinearLayer, WholeStepThatIsAbandoned_LeavesWhatWasCommitted) {
  for (const LinearShape& shape : Shapes()) {
    SCOPED_TRACE(NameOf(shape));
    LinearPrefixes prefixes(shape);
    for (const size_t length : {0, 1, 3, 23, 24, 30, 64, 90}) {
      Subject one(shape, &prefixes);
      if (length != 0) one.Step(Rows(length, 1));
      const Bytes before = one.Checkpoint();
      for (const std::vector<size_t>& cells : {std::vector<size_t>{}, {100}, {1, 99}, {64}, {30, 30, 30}}) {
        one.Reserve(100);
        one.Run(UncommittedRow(100 * kLinearRowBytes), cells);
        ASSERT_EQ(one.Checkpoint(), before) << length;
        ASSERT_TRUE(one.IsRight());
      }
      one.layer->Commit(0);
      one.Step(Rows(5, 2));
      ASSERT_TRUE(one.IsRight()) << length;
      one.Reserve(100);
      one.Run(UncommittedRow(100 * kLinearRowBytes), {50, 50});
      one.Run(Rows(100, 3), {100});  // it begins again
      one.layer->Commit(100);
      one.Committed(Rows(100, 3));
      ASSERT_TRUE(one.IsRight()) << length;
    }
  }
}

TEST(LinearLayer, CellsOfAWholeStep_GiveTheBitsOfOneCellAndOfSingleSteps) {
  const std::vector<std::vector<size_t>> splits = {{7, 33, 30},   {70},         {1, 1, 68},        {69, 1},
                                                   {64, 64, 72},  {200},        {2, 1, 3, 1, 193}, {64, 64, 64, 8},
                                                   {1, 64, 1, 4}, {24, 40, 16}, {23, 1, 1, 63}};
  for (const LinearShape& shape : Shapes()) {
    LinearPrefixes prefixes(shape);
    for (const size_t length : {0, 1, 2, 23, 24, 31, 64, 70}) {
      for (const std::vector<size_t>& cells : splits) {
        Subject chunks(shape, &prefixes), single(shape, &prefixes);
        const Bytes prompt = Rows(length, 1);
        chunks.OneByOne(prompt);
        single.OneByOne(prompt);
        size_t rows = 0;
        for (const size_t num : cells) rows += num;
        chunks.Step(Rows(rows, 2), cells);
        ASSERT_TRUE(chunks.IsRight()) << NameOf(shape) << " length " << length << " of " << rows;
        single.OneByOne(Rows(rows, 2));
        ASSERT_EQ(chunks.Checkpoint(), single.Checkpoint());
        chunks.Step(Rows(9, 3), {9});
        chunks.Step(Rows(80, 4), {80});
        ASSERT_TRUE(chunks.IsRight()) << NameOf(shape) << " length " << length << " of " << rows;
      }
    }
  }
}

TEST(LinearLayer, Fork_SharesTheStateUntilOneFolds) {
  const LinearShape shape = ShapeOf(8, 8);
  LinearPrefixes prefixes(shape);
  Subject parent(shape, &prefixes);
  parent.OneByOne(Rows(12, 1));
  Subject child = parent.Fork();
  const std::set<const void*> shared = parent.States();
  ASSERT_EQ(shared.size(), 1U);
  EXPECT_EQ(child.States(), shared);
  child.OneByOne(Rows(4, 2));
  EXPECT_EQ(child.States(), shared);
  EXPECT_EQ(child.layer->GrowthBytes(1, child.floor), shape.delta.state_floats() * sizeof(float));
  child.Step(Rows(1, 3));  // the first that folds again
  ASSERT_EQ(child.States().size(), 1U);
  EXPECT_NE(child.States(), shared);
  EXPECT_EQ(parent.States(), shared);
  EXPECT_TRUE(child.IsRight());
  EXPECT_TRUE(parent.IsRight());
  // Alone again, the parent folds where the state is.
  parent.OneByOne(Rows(30, 4));
  EXPECT_EQ(parent.States(), shared);
  EXPECT_TRUE(parent.IsRight());
  // A whole step beside a shared state.
  Subject other = parent.Fork();
  for (int step = 0; step < 3; ++step) {  // the second may not take the place that the first left
    other.Step(Rows(100, 5));
    EXPECT_EQ(parent.States(), shared);
    EXPECT_TRUE(other.IsRight());
    EXPECT_TRUE(parent.IsRight());
  }
}

// Those of a cell are prepared before any of them ends: who is the last to have a state may not know it before.
TEST(LinearLayer, FourForksInTheSameCells_AreFourSequences) {
  for (const LinearShape& shape : Shapes()) {
    LinearPrefixes prefixes(shape);
    for (const size_t rollback : {0, 6}) {
      std::vector<Subject> forks;
      forks.emplace_back(shape, &prefixes, rollback);
      forks[0].Step(Rows(65, 1));
      forks[0].OneByOne(Rows(7, 2));
      ASSERT_EQ(forks[0].States().size(), 1U);
      for (size_t i = 1; i < 4; ++i) forks.push_back(forks[0].Fork());
      for (size_t step = 0; step < 64; ++step) {
        std::vector<Bytes> rows;
        std::vector<LinearCellRows> cell;
        for (size_t i = 0; i < forks.size(); ++i) {
          rows.push_back(Rows(1 + (i + step) % 3, 100 * step + i));
          forks[i].Reserve(rows[i].size() / kLinearRowBytes);
        }
        for (size_t i = 0; i < forks.size(); ++i) cell.push_back({.layer = forks[i].layer.get(), .rows = rows[i]});
        RunLinearCell(cell);
        for (size_t i = 0; i < forks.size(); ++i) {
          forks[i].layer->Commit(rows[i].size() / kLinearRowBytes);
          forks[i].Committed(rows[i]);
          ASSERT_TRUE(forks[i].IsRight()) << NameOf(shape) << " step " << step << " fork " << i;
        }
      }
    }
  }
}

// A tree whose other branches are rows, too, or nothing at all.
TEST(LinearLayer, PathOfATree_IsCommittedAsAChain) {
  std::mt19937_64 random(5);
  for (const LinearShape& shape : Shapes()) {
    LinearPrefixes prefixes(shape);
    for (const size_t rollback : {0, 8, 40}) {
      Subject one(shape, &prefixes, rollback);
      for (int step = 0; step < 60; ++step) {
        const size_t num = 1 + random() % (step % 5 == 0 ? 65 : 9);
        std::vector<int32_t> parents(num);
        for (size_t i = 0; i < num; ++i) parents[i] = static_cast<int32_t>(random() % (i + 1)) - 1;
        std::vector<uint32_t> path;
        for (auto at = static_cast<int32_t>(random() % num); at >= 0; at = parents[static_cast<size_t>(at)])
          path.insert(path.begin(), static_cast<uint32_t>(at));
        if (random() % 6 == 0) path.resize(random() % path.size());
        Bytes tree = Rows(num, random());
        for (uint32_t row = 0; row < num && step % 2 == 0; ++row) {
          const auto first = tree.begin() + static_cast<std::ptrdiff_t>(row * kLinearRowBytes);
          if (std::find(path.begin(), path.end(), row) == path.end())
            std::fill(first, first + kLinearRowBytes, std::byte{0xFF});
        }
        one.Reserve(num);
        one.layer->Settle();
        RunLinearCell({.layer = one.layer.get(), .rows = tree, .parents = parents});
        one.layer->CommitPath(path);
        for (const uint32_t row : path) one.Committed(std::span(tree).subspan(row * kLinearRowBytes, kLinearRowBytes));
        if (step % 3 == 0) one.Reserve(3);  // may come before what the commit left is settled
        ASSERT_TRUE(one.IsRight()) << NameOf(shape) << " rollback " << rollback << " step " << step;
      }
    }
  }
}

TEST(LinearLayer, RestoredAtAnyPosition_GoesOnWithTheSameBits) {
  for (const LinearShape& shape : Shapes()) {
    LinearPrefixes prefixes(shape);
    for (const size_t rollback : {0, 6}) {
      Subject one(shape, &prefixes, rollback);
      for (size_t length = 1; length <= 100; ++length) {
        one.Step(Rows(1, length));
        for (const size_t earliest : {one.floor, (one.floor + length) / 2, length}) {
          Bytes bytes;
          one.layer->AppendTo(&bytes, earliest);
          Subject restored(shape, &prefixes, rollback);
          ByteReader reader(bytes);
          ASSERT_TRUE(restored.layer->ReadFrom(reader, length, earliest, nullptr).ok());
          ASSERT_EQ(reader.remaining(), 0U);
          restored.rows = one.rows;
          restored.floor = earliest;
          ASSERT_TRUE(restored.IsRight()) << NameOf(shape) << " at " << length << " from " << earliest;
          restored.OneByOne(Rows(3, 1000));
          restored.Step(Rows(length % 2 == 0 ? 9 : 70, 2000));
          ASSERT_TRUE(restored.IsRight()) << NameOf(shape) << " at " << length << " from " << earliest;
          ASSERT_EQ(restored.layer->length(), restored.length());
        }
      }
    }
  }
}

TEST(LinearLayer, StepsOfASteadyState_AllocateNothing) {
  for (const LinearShape& shape : Shapes()) {
    LinearPrefixes prefixes(shape);
    for (const size_t rollback : {0, 10}) {
      for (const bool drafts : {false, true}) {
        Subject one(shape, &prefixes, rollback);
        one.rows.reserve(100000);
        one.Step(Rows(61, 1));
        size_t before = 0;
        uint64_t growths = 0;
        constexpr size_t kWarm = 100, kSteps = 300;
        for (size_t step = 0; step < kWarm + kSteps; ++step) {
          if (step == kWarm) {
            before = NumAllocations();
            growths = one.layer->growth().growths;
          }
          static const Bytes rows = Rows(5, 9);
          const size_t num = drafts ? 5 : 1, committed = drafts ? 1 + step % 5 : 1;
          const std::span<const std::byte> of_step = std::span(rows).first(num * kLinearRowBytes);
          ASSERT_TRUE(one.layer->Reserve(num, one.floor, nullptr).ok());
          one.layer->Settle();
          RunLinearCell({.layer = one.layer.get(), .rows = of_step});
          one.layer->Commit(committed);
          one.Committed(of_step.first(committed * kLinearRowBytes));
        }
        EXPECT_EQ(NumAllocations(), before) << NameOf(shape) << (drafts ? " drafts" : "");
        EXPECT_EQ(one.layer->growth().growths, growths);
        EXPECT_TRUE(one.IsRight());
      }
    }
  }
}

// What the layer then remembers is undefined; it is safe, and of a size that does not grow.
TEST(LinearLayer, CommitsWithoutCells_AreSafe) {
  for (const LinearShape& shape : Shapes()) {
    SCOPED_TRACE(NameOf(shape));
    LinearPrefixes prefixes(shape);
    for (const size_t rollback : {0, 10}) {
      for (const size_t step : {1, 5, 65, 100}) {
        Subject one(shape, &prefixes, rollback);
        one.Step(Rows(20, 1));
        uint64_t reserved = 0;
        for (size_t i = 0; one.length() < 4000; ++i) {
          one.Reserve(step);
          if (i % 7 == 3 && step == 5) {
            one.layer->CommitPath(std::vector<uint32_t>{0, 2, 3, 4});
            one.Committed(Rows(4, i));
          } else {
            one.layer->Commit(step);
            one.Committed(Rows(step, i));
          }
          ASSERT_EQ(one.layer->length(), one.length());
          ASSERT_EQ(one.Checkpoint().size(), one.layer->CheckpointBytes(one.length(), one.floor));
          if (one.length() < 2000) reserved = one.layer->reserved_bytes();
        }
        EXPECT_LE(one.layer->reserved_bytes(), reserved + shape.delta.state_floats() * sizeof(float));
        Subject child = one.Fork();
        for (Subject* each : {&child, &one}) {
          each->layer->Rollback(each->floor);
          each->rows.resize(each->floor * kLinearRowBytes);
          each->OneByOne(Rows(70, 2));
          each->Step(Rows(70, 3));
          EXPECT_EQ(each->layer->length(), each->length());
        }
      }
    }
  }
}

TEST(LinearLayer, ReserveWithoutMemory_LeavesWhatWasCommitted) {
  for (const LinearShape& shape : Shapes()) {
    LinearPrefixes prefixes(shape);
    size_t refusals = 0;
    for (const size_t rows : {1, 5, 65, 66, 300}) {
      for (const bool forked : {false, true}) {
        Subject one(shape, &prefixes);
        one.Step(Rows(90, 1));
        one.Step(Rows(shape.delta.form.period, 1));
        Subject child(shape, &prefixes);
        if (forked) child = one.Fork();
        one.layer->Compact(one.floor);
        for (size_t n = 0;; ++n) {
          FailAllocations failure(n);
          bool reserved = false;
          try {
            reserved = one.layer->Reserve(rows, one.floor, nullptr).ok();
          } catch (const std::bad_alloc&) {
          }
          const bool failed = failure.Stop();
          ASSERT_TRUE(one.IsRight()) << NameOf(shape) << " rows " << rows << " allocation " << n;
          ASSERT_EQ(reserved, !failed);
          if (!failed) break;
          ++refusals;
        }
        one.Step(Rows(rows, 2));
        ASSERT_TRUE(one.IsRight());
        ASSERT_TRUE(!forked || child.IsRight());
      }
    }
    EXPECT_GE(refusals, 10U);
  }
}

TEST(LinearLayer, StepsUpToALength_TakeNoMoreThanGrowthBytesSaid) {
  for (const LinearShape& shape : Shapes()) {
    LinearPrefixes prefixes(shape);
    for (const size_t rollback : {0, 12}) {
      for (const size_t step : {1, 7, 65, 66, 130}) {
        for (const size_t length : {0, 30, 200}) {
          for (const bool forked : {false, true}) {
            Subject one(shape, &prefixes, rollback);
            if (length != 0) one.Step(Rows(length, 1));
            Subject child(shape, &prefixes, rollback);
            if (forked) child = one.Fork();
            constexpr size_t kRows = 400;
            const uint64_t most =
                one.layer->reserved_bytes() + one.layer->GrowthBytes(kRows, step, one.floor, rollback);
            for (size_t done = 0; done < kRows;) {
              const size_t num = std::min(step, kRows - done);
              const uint64_t at_once = one.layer->reserved_bytes() + one.layer->GrowthBytes(num, one.floor);
              one.Step(Rows(num, done));
              done += num;
              ASSERT_LE(one.layer->reserved_bytes(), at_once) << NameOf(shape) << " step " << step;
              ASSERT_LE(one.layer->reserved_bytes(), most) << NameOf(shape) << " step " << step;
            }
          }
        }
      }
    }
    const LinearLayer layer(shape, {});
    EXPECT_EQ(layer.GrowthBytes(SIZE_MAX, 0), UINT64_MAX);
  }
}

TEST(LinearLayer, Ledger_CountsEachBlockOnce) {
  std::mt19937_64 random(8);
  for (const LinearShape& shape : Shapes()) {
    LinearPrefixes prefixes(shape);
    StateLedger ledger;
    {
      std::vector<Subject> live;
      live.emplace_back(shape, &prefixes, 4, &ledger);
      for (int operation = 0; operation < 400; ++operation) {
        const size_t index = random() % live.size();
        Subject& one = live[index];
        one.layer->Settle();
        switch (random() % 8) {
          case 0: live.push_back(one.Fork()); break;
          case 1: {
            FailAllocations failure(random() % 3);
            try {
              one.layer->Compact(one.floor);
            } catch (const std::bad_alloc&) {
            }
            break;
          }
          case 2: {
            Subject other(shape, &prefixes, 4, &ledger);
            const Bytes bytes = one.Checkpoint();
            ByteReader reader(bytes);
            ASSERT_TRUE(other.layer->ReadFrom(reader, one.length(), one.floor, nullptr).ok());
            Subject& into = live[random() % live.size()];
            into.rows = Bytes(one.rows);
            into.floor = one.floor;
            into.layer->Take(std::move(*other.layer));
            break;
          }
          case 3:
            if (live.size() > 3) live.erase(live.begin() + static_cast<std::ptrdiff_t>(index));
            break;
          case 4:
            if (random() % 4 != 0) break;
            one.layer->Clear();
            one.rows.clear();
            one.floor = 0;
            break;
          default: one.Step(Rows(1 + random() % 40, random())); break;
        }
        std::map<const void*, uint64_t> blocks;
        for (const Subject& each : live) {
          ASSERT_TRUE(each.IsRight()) << NameOf(shape) << " operation " << operation;
          each.layer->ForEachBlock([&](const void* block, uint64_t bytes) { blocks[block] = bytes; });
        }
        uint64_t sum = 0;
        for (const auto& [block, bytes] : blocks) sum += bytes;
        ASSERT_EQ(ledger.held(), sum) << NameOf(shape) << " operation " << operation;
      }
    }
    EXPECT_EQ(ledger.held(), 0U);
  }
}

TEST(LinearLayer, ConvolutionOfOneInput_KeepsNone) {
  LinearShape shape = ShapeOf(8, 8);
  const uint64_t with_inputs = LinearLayer(shape, {.rollback_rows = 4}).CheckpointBytes(20, 16);
  shape.conv_width = 1;
  LinearPrefixes prefixes(shape);
  Subject one(shape, &prefixes, 4);
  one.Step(Rows(20, 1));
  EXPECT_TRUE(one.IsRight());
  EXPECT_EQ(one.layer->CheckpointBytes(20, 16), with_inputs - 7 * shape.channels * sizeof(float));
}

}  // namespace
}  // namespace tidemill::linear_layer_test
