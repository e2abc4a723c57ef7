#include "base/aligned_buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

namespace tidemill::aligned_buffer_test {
namespace {

bool AllAre(const AlignedBuffer& buffer, std::byte value) {
  return std::all_of(buffer.data(), buffer.data() + buffer.size(), [value](std::byte b) { return b == value; });
}

TEST(AlignedBuffer, OfAnySize_IsZeroedAndAligned) {
  for (const size_t bytes : {size_t{1}, size_t{63}, size_t{4096}, size_t{1} << 20, (size_t{1} << 20) + 1}) {
    const AlignedBuffer buffer = AlignedBuffer::Create(bytes).value();
    EXPECT_EQ(buffer.size(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % AlignedBuffer::kAlignment, 0u);
    EXPECT_TRUE(AllAre(buffer, std::byte{0})) << bytes;
  }
}

TEST(BufferArena, BuffersOfAnySize_DoNotOverlapAndOutliveIt) {
  std::vector<AlignedBuffer> buffers;
  {
    constexpr size_t kBlock = 2 * BufferArena::kLargePage;
    BufferArena arena(kBlock);
    // Some fill the first mapping, one does not fit into what is left of it, one is larger than a mapping.
    for (const size_t bytes :
         {size_t{1}, size_t{64}, size_t{5000}, kBlock - 8192, size_t{8192}, kBlock + 1, size_t{7}}) {
      buffers.push_back(arena.Allocate(bytes).value());
      EXPECT_EQ(buffers.back().size(), bytes);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(buffers.back().data()) % AlignedBuffer::kAlignment, 0u);
      EXPECT_TRUE(AllAre(buffers.back(), std::byte{0})) << bytes;
      std::fill_n(buffers.back().data(), bytes, static_cast<std::byte>(buffers.size()));
    }
  }
  for (size_t i = 0; i < buffers.size(); ++i) EXPECT_TRUE(AllAre(buffers[i], static_cast<std::byte>(i + 1))) << i;
  AlignedBuffer moved = std::move(buffers.front());
  buffers.clear();
  EXPECT_TRUE(AllAre(moved, std::byte{1}));
}

// So that a mapping goes back once the shorter-lived buffers do.
TEST(BufferArena, BuffersThatStayLonger_StandInAnother) {
  if (BufferArena::kSeparateBuffers) GTEST_SKIP() << "no buffer shares a mapping under AddressSanitizer";
  constexpr size_t kBlock = 4 * BufferArena::kLargePage;
  BufferArena longer(kBlock), arena(kBlock, BufferArena::Pages::kSmall, &longer), alone(kBlock);
  const auto are_together = [](const AlignedBuffer& a, const AlignedBuffer& b) {
    const auto x = reinterpret_cast<uintptr_t>(a.data()), y = reinterpret_cast<uintptr_t>(b.data());
    return std::max(x, y) - std::min(x, y) < BufferArena::kLargePage;
  };
  const AlignedBuffer first = arena.Allocate(4096).value(), stays = arena.AllocateLonger(4096).value();
  EXPECT_TRUE(are_together(first, arena.Allocate(4096).value()));
  EXPECT_TRUE(are_together(stays, longer.Allocate(4096).value()));
  EXPECT_FALSE(are_together(first, stays));
  EXPECT_TRUE(are_together(alone.Allocate(4096).value(), alone.AllocateLonger(4096).value()));
}

TEST(BufferArena, WhatNoSystemHas_IsOutOfMemory) {
  BufferArena arena;
  for (const size_t bytes : {SIZE_MAX, SIZE_MAX - 100, SIZE_MAX / 2}) {
    const Result<AlignedBuffer> buffer = arena.Allocate(bytes);
    ASSERT_FALSE(buffer.ok()) << bytes;
    EXPECT_EQ(buffer.error().code(), ErrorCode::kOutOfMemory);
  }
  EXPECT_EQ(arena.Allocate(0).value().size(), 0u);
}

}  // namespace
}  // namespace tidemill::aligned_buffer_test
