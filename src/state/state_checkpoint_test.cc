// Checkpoints: what Restore refuses, with which error, and that a refusal changes nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/state_kinds.h"
#include "tests/support/state_model.h"

namespace tidemill::state_checkpoint_test {
namespace {

using testing::AllStateKindPointers;
using testing::CheckpointOf;
using testing::StateKindPointer;
using testing::Subject;

constexpr size_t kContext = 20;

std::vector<RowKey> Keys(size_t n, RowKey first) {
  std::vector<RowKey> keys(n);
  std::iota(keys.begin(), keys.end(), first);
  return keys;
}

class SequenceStateCheckpoint : public ::testing::TestWithParam<StateKindPointer> {
 protected:
  SequenceStateCheckpoint() : source_(*GetParam(), kContext), target_(*GetParam(), kContext) {
    source_.Extend(Keys(5, 100));
    target_.Extend(Keys(3, 7));
    child_ = std::move(target_.state->Fork()).value();  // so that a restore that writes into shared rows is seen
    target_.Extend(Keys(2, 50));
    checkpoint_ = CheckpointOf(*source_.state);
    before_ = CheckpointOf(*target_.state);
    addresses_ = target_.Addresses();
  }

  // The code of a refusal, after checking that nothing has changed; none when it is accepted.
  std::optional<ErrorCode> Refusal(std::span<const std::byte> bytes) {
    const auto result = target_.state->Restore(bytes);
    if (result.ok()) return std::nullopt;
    EXPECT_EQ(target_.Difference(false), "");
    EXPECT_EQ(result.error().message().find('\n'), std::string::npos);
    EXPECT_EQ(result.error().message().rfind("restore state: ", 0), 0U) << result.error().message();
    return result.error().code();
  }

  void ExpectUnchanged() {
    EXPECT_EQ(target_.Difference(true), "");
    EXPECT_EQ(CheckpointOf(*target_.state), before_);
    EXPECT_EQ(target_.Addresses(), addresses_);
  }

  size_t header_bytes() const { return GetParam()->checkpoint_header_bytes(); }

  Subject source_, target_;
  std::unique_ptr<SequenceState> child_;
  std::vector<std::byte> checkpoint_, before_;
  std::vector<std::vector<const std::byte*>> addresses_;
};

INSTANTIATE_TEST_SUITE_P(Kinds, SequenceStateCheckpoint, ::testing::ValuesIn(AllStateKindPointers()),
                         [](const auto& test) { return test.param->name(); });

TEST_P(SequenceStateCheckpoint, Restored_ContinuesAsTheOriginal) {
  for (Subject* into : {&target_, &source_}) {  // another's content, and one's own
    ASSERT_TRUE(into->state->Restore(checkpoint_).ok());
    into->naive = source_.naive.Restored(*GetParam());
    EXPECT_EQ(into->Difference(true), "");
    EXPECT_EQ(CheckpointOf(*into->state), checkpoint_);
  }
  target_.Extend(Keys(4, 9));
  source_.Extend(Keys(4, 9));
  EXPECT_EQ(target_.Difference(true), "");
  EXPECT_EQ(CheckpointOf(*target_.state), CheckpointOf(*source_.state));
  EXPECT_EQ(child_->length(), 3U);
}

TEST_P(SequenceStateCheckpoint, OfNothing_EmptiesTheState) {
  const Subject empty(*GetParam(), kContext);
  const auto bytes = CheckpointOf(*empty.state);
  EXPECT_EQ(bytes.size(), header_bytes());
  ASSERT_TRUE(target_.state->Restore(bytes).ok());
  target_.naive = empty.naive;
  EXPECT_EQ(target_.Difference(true), "");
  target_.Extend(Keys(kContext, 1));
  EXPECT_EQ(target_.Difference(true), "");
}

TEST_P(SequenceStateCheckpoint, LayerTakenBefore_ShowsTheRestoredRows) {
  LayerState& layer = target_.state->layer(0);
  ASSERT_TRUE(target_.state->Restore(checkpoint_).ok());
  EXPECT_EQ(&target_.state->layer(0), &layer);
  target_.naive = source_.naive.Restored(*GetParam());
  EXPECT_EQ(target_.Difference(true), "");
}

TEST_P(SequenceStateCheckpoint, WithoutItsEnd_IsCorrupt) {
  for (size_t size = 0; size < checkpoint_.size(); ++size) {
    ASSERT_EQ(Refusal(std::span(checkpoint_).first(size)), ErrorCode::kCorruptFile)
        << size << " of " << checkpoint_.size();
  }
  ExpectUnchanged();
}

TEST_P(SequenceStateCheckpoint, WithMoreBehind_IsCorrupt) {
  for (const size_t more : {1, 8, 4096}) {
    auto longer = checkpoint_;
    longer.resize(longer.size() + more);
    EXPECT_EQ(Refusal(longer), ErrorCode::kCorruptFile) << more;
  }
  ExpectUnchanged();
}

TEST_P(SequenceStateCheckpoint, WithAnyBitFlipped_IsRefused) {
  for (size_t byte = 0; byte < checkpoint_.size(); ++byte) {
    for (int bit = 0; bit < 8; ++bit) {
      auto damaged = checkpoint_;
      damaged[byte] ^= static_cast<std::byte>(1 << bit);
      const auto code = Refusal(damaged);
      ASSERT_TRUE(code.has_value()) << "byte " << byte << " of " << checkpoint_.size() << ", bit " << bit;
      if (byte >= header_bytes()) {
        ASSERT_EQ(*code, ErrorCode::kCorruptFile) << "byte " << byte << ", bit " << bit;
      }
      ASSERT_TRUE(*code == ErrorCode::kCorruptFile || *code == ErrorCode::kFailedPrecondition ||
                  *code == ErrorCode::kContextFull);
    }
  }
  ExpectUnchanged();
}

TEST_P(SequenceStateCheckpoint, WithAnyNumberInItsHeader_IsRefused) {
  for (size_t offset = 0; offset + 8 <= header_bytes(); offset += 4) {
    for (const uint64_t value :
         {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32, uint64_t{1} << 61, uint64_t{1} << 63, ~uint64_t{0}}) {
      auto damaged = checkpoint_;
      std::memcpy(damaged.data() + offset, &value, sizeof(value));
      if (damaged != checkpoint_) {  // some have a 0 there
        ASSERT_TRUE(Refusal(damaged).has_value()) << "offset " << offset << ", value " << value;
      }
      damaged.resize(header_bytes());
      ASSERT_TRUE(Refusal(damaged).has_value()) << "offset " << offset << ", value " << value << ", no body";
    }
  }
  ExpectUnchanged();
}

// Sizes that would wrap must not pass for those that are there.
TEST_P(SequenceStateCheckpoint, OfAbsurdLengthIntoAbsurdContext_IsRefused) {
  Subject boundless(*GetParam(), ~size_t{0});
  for (size_t offset = 0; offset + 8 <= header_bytes(); offset += 4) {
    for (int bit = 48; bit < 64; ++bit) {
      std::vector<std::byte> damaged(checkpoint_.begin(),
                                     checkpoint_.begin() + static_cast<std::ptrdiff_t>(header_bytes()));
      const uint64_t value = uint64_t{1} << bit;
      std::memcpy(damaged.data() + offset, &value, sizeof(value));
      ASSERT_FALSE(boundless.state->Restore(damaged).ok()) << "offset " << offset << ", bit " << bit;
    }
  }
  EXPECT_EQ(boundless.Difference(true), "");
  ASSERT_TRUE(boundless.state->Restore(checkpoint_).ok());
}

TEST_P(SequenceStateCheckpoint, OfAStranger_IsFailedPrecondition) {
  for (const auto& stranger : GetParam()->Strangers(kContext)) {
    const auto theirs = CheckpointOf(*stranger.state);
    EXPECT_EQ(Refusal(theirs), ErrorCode::kFailedPrecondition) << stranger.what;
    const auto ours = stranger.state->Restore(checkpoint_);
    ASSERT_FALSE(ours.ok()) << stranger.what;
    EXPECT_EQ(ours.error().code(), ErrorCode::kFailedPrecondition) << stranger.what;
    EXPECT_EQ(stranger.state->length(), 0U);
    EXPECT_EQ(CheckpointOf(*stranger.state), theirs);
  }
  ExpectUnchanged();
}

TEST_P(SequenceStateCheckpoint, LongerThanTheContext_IsContextFull) {
  for (const size_t context : {size_t{1}, size_t{4}}) {
    Subject small(*GetParam(), context);
    small.Extend(Keys(1, 3));
    const auto result = small.state->Restore(checkpoint_);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code(), ErrorCode::kContextFull);
    EXPECT_EQ(small.Difference(true), "");
  }
  Subject exact(*GetParam(), 5);
  EXPECT_TRUE(exact.state->Restore(checkpoint_).ok());
}

}  // namespace
}  // namespace tidemill::state_checkpoint_test
