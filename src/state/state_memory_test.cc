// Memory that is not there, and memory that must not be asked for.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <vector>

#include "tests/support/allocation_probe.h"
#include "tests/support/state_kinds.h"
#include "tests/support/state_model.h"

namespace tidemill::state_memory_test {
namespace {

using testing::AllStateKindPointers;
using testing::CheckpointOf;
using testing::FailAllocations;
using testing::NumAllocations;
using testing::StateKindPointer;
using testing::Subject;

constexpr size_t kContext = 600;

std::vector<RowKey> Keys(size_t n, RowKey first) {
  std::vector<RowKey> keys(n);
  std::iota(keys.begin(), keys.end(), first);
  return keys;
}

TEST(AllocationProbe, CountsAndFails) {
  const size_t before = NumAllocations();
  const std::vector<int> some(100);
  EXPECT_EQ(NumAllocations() - before, 1U);
  FailAllocations failure(1);
  bool first = true, second = true;
  try {
    const std::vector<int> passes(100);
    first = false;
    const std::vector<int> fails(100);
    second = false;
  } catch (const std::bad_alloc&) {
  }
  EXPECT_TRUE(failure.Stop());
  EXPECT_FALSE(first);
  EXPECT_TRUE(second);
}

class SequenceStateMemory : public ::testing::TestWithParam<StateKindPointer> {
 protected:
  // Four histories: fresh, in the middle of a block, with a shared prefix, and with a full block of which short windows need little.
  std::vector<Subject> Subjects() {
    std::vector<Subject> subjects;
    for (int history = 0; history < 4; ++history) {
      Subject subject(*GetParam(), kContext);
      if (history != 0) subject.Extend(Keys(10, 1));
      if (history == 2) {
        children_.push_back(std::move(subject.state->Fork()).value());
        subject.Extend(Keys(3, 40));
      }
      if (history == 3) subject.Extend(Keys(246, 40));
      subjects.push_back(std::move(subject));
    }
    return subjects;
  }

  // Makes each allocation of `operation` fail, only it or all that follow, too, until it asks for none that fails and succeeds.
  // `done_without`: whether it is done all the same, as where a layer stays larger than it need be.
  void ExpectSurvives(
      const Subject& subject, size_t count, const std::function<ErrorCode(SequenceState&)>& operation,
      const std::function<bool(SequenceState&)>& done_without = [](SequenceState&) { return false; }) {
    const auto before = CheckpointOf(*subject.state);
    for (size_t n = 0; n < 1000; ++n) {
      FailAllocations failure(n, count);
      const ErrorCode code = operation(*subject.state);
      if (!failure.Stop()) {
        EXPECT_EQ(code, kNoError);
        return;
      }
      ASSERT_TRUE(code == ErrorCode::kOutOfMemory || (code == kNoError && done_without(*subject.state)))
          << "allocation " << n;
      ASSERT_EQ(subject.Difference(true), "") << "allocation " << n;
      ASSERT_EQ(CheckpointOf(*subject.state), before) << "allocation " << n;
      ++refusals_;
    }
    FAIL() << "never succeeds";
  }

  static constexpr ErrorCode kNoError = static_cast<ErrorCode>(-1);
  template <typename T>
  static ErrorCode CodeOf(const Result<T>& result) {
    return result.ok() ? kNoError : result.error().code();
  }

  std::vector<std::unique_ptr<SequenceState>> children_;
  size_t refusals_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Kinds, SequenceStateMemory, ::testing::ValuesIn(AllStateKindPointers()),
                         [](const auto& test) { return test.param->name(); });

TEST_P(SequenceStateMemory, ReserveWithoutMemory_ChangesNothing) {
  for (Subject& subject : Subjects()) {
    for (const size_t count : {size_t{1}, FailAllocations::kAllFurther}) {
      ExpectSurvives(
          subject, count, [](SequenceState& state) { return CodeOf(state.Reserve(300)); },
          [](SequenceState& state) { return state.HasRoom(300); });
      subject.state->Compact();
    }
    subject.Extend(Keys(300, 5));
    EXPECT_EQ(subject.Difference(true), "");
  }
  EXPECT_GT(refusals_, 6U);
}

TEST_P(SequenceStateMemory, ReserveBeyondAnyMemory_ChangesNothing) {
  Subject subject(*GetParam(), ~size_t{0});
  subject.Extend(Keys(10, 1));
  for (const size_t n : {size_t{1} << 48, size_t{1} << 61, size_t{1} << 63, ~size_t{0} - 11, ~size_t{0} - 10}) {
    EXPECT_EQ(CodeOf(subject.state->Reserve(n)), ErrorCode::kOutOfMemory) << n;
    EXPECT_EQ(subject.Difference(true), "") << n;
  }
  EXPECT_EQ(CodeOf(subject.state->Reserve(~size_t{0} - 9)), ErrorCode::kContextFull);
  subject.Extend(Keys(10, 1));
  EXPECT_EQ(subject.Difference(true), "");
}

TEST_P(SequenceStateMemory, ForkWithoutMemory_ChangesNothing) {
  for (Subject& subject : Subjects()) {
    const auto addresses = subject.Addresses();
    for (const size_t count : {size_t{1}, FailAllocations::kAllFurther}) {
      ExpectSurvives(subject, count, [](SequenceState& state) { return CodeOf(state.Fork()); });
      EXPECT_EQ(subject.Addresses(), addresses);
    }
    const auto naive = subject.naive;
    Subject child(*GetParam(), std::move(subject.state->Fork()).value(), naive);
    subject.Extend(Keys(3, 5));
    child.Extend(Keys(4, 6));
    EXPECT_EQ(subject.Difference(true), "");
    EXPECT_EQ(child.Difference(true), "");
  }
  EXPECT_GT(refusals_, 6U);
}

TEST_P(SequenceStateMemory, CheckpointWithoutMemory_IsOutOfMemory) {
  for (const Subject& subject : Subjects()) {
    for (const size_t count : {size_t{1}, FailAllocations::kAllFurther}) {
      ExpectSurvives(subject, count, [](SequenceState& state) { return CodeOf(state.Checkpoint()); });
    }
  }
  EXPECT_GE(refusals_, 6U);
}

TEST_P(SequenceStateMemory, RestoreWithoutMemory_ChangesNothing) {
  Subject source(*GetParam(), kContext);
  source.Extend(Keys(270, 1000));
  const auto checkpoint = CheckpointOf(*source.state);
  for (Subject& subject : Subjects()) {
    const auto own = CheckpointOf(*subject.state);
    for (const size_t count : {FailAllocations::kAllFurther, size_t{1}}) {
      ExpectSurvives(
          subject, count, [&](SequenceState& state) { return CodeOf(state.Restore(checkpoint)); },
          [&](SequenceState& state) {  // the other content came without what was given up
            if (!subject.GaveUp() || CheckpointOf(state) != checkpoint || !state.Restore(own).ok()) return false;
            subject.naive = subject.naive.Restored(*GetParam());
            return true;
          });
      ASSERT_TRUE(subject.state->Restore(own).ok());
      subject.naive = subject.naive.Restored(*GetParam());
    }
    ASSERT_TRUE(subject.state->Restore(checkpoint).ok());
    subject.naive = source.naive.Restored(*GetParam());
    EXPECT_EQ(subject.Difference(true), "");
  }
  EXPECT_GT(refusals_, 6U);
}

TEST_P(SequenceStateMemory, CompactWithoutMemory_KeepsEverything) {
  for (Subject& subject : Subjects()) {
    for (const size_t count : {size_t{1}, FailAllocations::kAllFurther}) {
      for (size_t n = 0; n < 20; ++n) {
        ASSERT_TRUE(subject.state->Reserve(20).ok());
        FailAllocations failure(n, count);
        subject.state->Compact();
        failure.Stop();
        ASSERT_EQ(subject.Difference(true), "") << "allocation " << n;
      }
    }
    subject.Extend(Keys(30, 5));
    EXPECT_EQ(subject.Difference(true), "");
  }
}

TEST_P(SequenceStateMemory, StepsBetweenGrowths_AllocateNothing) {
  for (Subject& subject : Subjects()) {
    SequenceState& state = *subject.state;
    subject.Extend(Keys(1, 1));
    const auto keys = Keys(4, 70);
    const auto touch = [&](size_t step_rows) {
      for (size_t layer = 0; layer < GetParam()->num_layers(); ++layer)
        GetParam()->layer(layer).Touch(state.layer(layer), step_rows);
    };
    const std::vector<uint32_t> path = {0, 2, 3};
    size_t quiet_steps = 0;
    for (int step = 0; step < 20; ++step) {
      const size_t before = NumAllocations();
      const uint64_t reserved = state.bytes().reserved, growths = state.growth().growths;
      ASSERT_TRUE(state.Reserve(6).ok());
      touch(4);
      state.Commit(keys);
      ASSERT_TRUE(state.Reserve(5).ok());
      touch(5);
      state.CommitPath(path, std::span(keys).first(3));
      ASSERT_TRUE(state.Rollback(std::max(state.length() - 1, state.earliest_rollback())).ok());
      if (state.bytes().reserved != reserved || state.growth().growths != growths) continue;
      EXPECT_EQ(NumAllocations() - before, 0U);
      ++quiet_steps;
    }
    EXPECT_GE(quiet_steps, GetParam()->fewest_quiet_steps(120));
  }
}

// However long the sequence is: a checkpoint has neither rows nor keys of what no rollback reaches.
TEST(ConstantSize, CheckpointsAndMemoryDoNotGrow) {
  size_t kinds = 0;
  for (const auto& kind : testing::AllStateKinds()) {
    if (kind->keeps_rows()) continue;
    ++kinds;
    Subject subject(*kind, 9000);
    std::vector<size_t> bytes, reserved;
    for (const size_t length : {2400, 4800, 7200}) {  // as far behind a boundary of each kind
      while (subject.state->length() < length) subject.Extend(Keys(30, subject.state->length()));
      bytes.push_back(CheckpointOf(*subject.state).size());
      reserved.push_back(subject.state->bytes().reserved);
    }
    EXPECT_EQ(bytes, std::vector<size_t>(3, bytes.front())) << kind->name();
    EXPECT_EQ(reserved, std::vector<size_t>(3, reserved.front())) << kind->name();
  }
  EXPECT_EQ(kinds, 14U);
}

}  // namespace
}  // namespace tidemill::state_memory_test
