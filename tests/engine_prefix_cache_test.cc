// Prompts that begin like earlier ones: they compute what is new, and answer with the bits that they would have alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "runtime/engine_impl.h"
#include "tests/support/engine_driver.h"
#include "tests/support/kv_cache.h"
#include "tests/support/random_requests.h"

namespace tidemill::engine_prefix_cache_test {
namespace {

using testing::EngineDriver;
using testing::ExpectSame;
using testing::kSmallContext;
using testing::kWindowedContext;
using testing::MakeWork;
using testing::Outcome;
using testing::RunTogether;
using testing::RunUnbatched;
using testing::SmallContextModel;
using testing::WindowedModel;
using testing::Work;

std::vector<int32_t> Prompt(size_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int32_t> ids(size);
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % 120);
  return ids;
}

std::vector<int32_t> Joined(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

const GenerationOptions kSix = {.max_new_tokens = 6, .temperature = 0, .ignore_eos = true};

const PrefixCache& CacheOf(EngineDriver& driver) { return driver.engine().impl().memory->prefix_cache(); }

class EnginePrefixCache : public ::testing::Test {
 protected:
  std::shared_ptr<const Model> model_ = SmallContextModel(DType::kF32);
  EngineDriver cold_{model_, {.threads = 1, .prefix_cache = false}};
  EngineDriver driver_{model_, {.threads = 1}};

  // The same answer as without a cache; the tokens that it did not compute.
  size_t Cached(Request request) {
    request.generation = kSix;
    const Outcome expected = cold_.Run(request.prompt, kSix);
    EXPECT_EQ(expected.stats.cached_tokens, 0U);
    const RequestId id = driver_.Submit(request);
    driver_.RunUntilIdle();
    ExpectSame(driver_.outcome(id), expected, "with a prefix cache");
    return driver_.outcome(id).stats.cached_tokens;
  }
};

TEST_F(EnginePrefixCache, PromptThatBeginsLikeAnEarlierOne_ComputesTheRest) {
  const std::vector<int32_t> text = Prompt(40, 1);
  EXPECT_EQ(Cached({.prompt = Joined(text, {1, 2, 3})}), 0U);
  EXPECT_EQ(Cached({.prompt = Joined(text, {7, 8, 9, 10})}), 40U);
  EXPECT_EQ(Cached({.prompt = Joined(text, {1, 2, 3})}), 42U);  // the last token is computed
  EXPECT_EQ(Cached({.prompt = Prompt(40, 2)}), 0U);
  EXPECT_EQ(Cached({.prompt = Joined(std::vector(text.begin(), text.begin() + 15), Prompt(20, 3))}), 0U);  // too few
}

TEST_F(EnginePrefixCache, TurnsOfAConversation_ComputeWhatIsNewAndOneToken) {
  std::vector<int32_t> text = Prompt(20, 1);
  size_t known = 0;
  for (int turn = 0; turn < 4; ++turn) {
    EXPECT_EQ(Cached({.prompt = text}), known) << turn;
    const std::vector<int32_t> answer = cold_.Run(text, kSix).ids;
    known = text.size() + answer.size() - 1;  // the last token is in no state
    text = Joined(Joined(text, answer), {5, 6, 7});
  }
  EXPECT_EQ(CacheOf(driver_).size(), 1U);  // each turn's state replaces the one before
}

TEST_F(EnginePrefixCache, PromptsThatWaitTogether_ComputeTheirPrefixOnce) {
  const std::vector<int32_t> text = Prompt(48, 1);
  std::vector<RequestId> ids;
  for (int i = 0; i < 12; ++i) ids.push_back(driver_.Submit({.prompt = Joined(text, {i, i + 1}), .generation = kSix}));
  driver_.RunUntilIdle();
  for (int i = 0; i < 12; ++i) {
    const Outcome& found = driver_.outcome(ids[static_cast<size_t>(i)]);
    ExpectSame(found, cold_.Run(Joined(text, {i, i + 1}), kSix), std::to_string(i));
    EXPECT_EQ(found.stats.cached_tokens, i == 0 ? 0U : 48U) << i;
  }
}

TEST_F(EnginePrefixCache, OtherSalt_WhatIsNotStored_AndWhatFailed_AreNotShared) {
  const std::vector<int32_t> text = Prompt(40, 1);
  EXPECT_EQ(Cached({.prompt = text, .store = false}), 0U);
  EXPECT_EQ(CacheOf(driver_).size(), 0U);
  EXPECT_EQ(Cached({.prompt = text, .cache_salt = "a"}), 0U);
  EXPECT_EQ(Cached({.prompt = text, .cache_salt = "b"}), 0U);
  EXPECT_EQ(Cached({.prompt = text, .store = false, .cache_salt = "a"}), 39U);
  const size_t kept = CacheOf(driver_).size();
  const RequestFaults faults{.decoding = [](RequestId) { throw std::bad_alloc(); }};
  driver_.engine().impl().faults = &faults;
  const RequestId failing = driver_.Submit({.prompt = Prompt(40, 5), .generation = kSix});
  driver_.RunUntilIdle();
  EXPECT_TRUE(driver_.outcome(failing).error.has_value());
  EXPECT_EQ(CacheOf(driver_).size(), kept);
}

TEST_F(EnginePrefixCache, CancelledRequest_LeavesWhatItComputed) {
  const std::vector<int32_t> text = Prompt(40, 1);
  const RequestId id = driver_.Submit({.prompt = text, .generation = kSix});
  driver_.Step();
  driver_.engine().Cancel(id);
  driver_.RunUntilIdle();
  EXPECT_EQ(Cached({.prompt = text}), 39U);
}

TEST(PrefixCache, StateThatIsTooLarge_LeavesWhatItBeginsWith) {
  PrefixCache cache(6000);
  const std::vector<int32_t> text = Prompt(300, 1);
  const auto keep = [&](size_t tokens) {
    auto state = std::make_unique<testing::KvCache>(
        testing::KvShape{.layers = {{.kv_heads = 1, .head_dim = 4}}, .max_length = 300});
    const std::vector<RowKey> keys(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(tokens));
    ASSERT_TRUE(state->Reserve(tokens).ok());
    state->Commit(keys);
    cache.Keep(std::span(text).first(tokens), "", std::move(state));
  };
  keep(20);
  const uint64_t bytes = cache.bytes();
  keep(300);
  EXPECT_EQ(cache.bytes(), bytes);
  EXPECT_EQ(cache.Find(text, {}).length, 20U);
}

// A model that forgets: what a later prompt has in common is kept at three kinds of places.
TEST(EnginePrefixCacheSnapshots, ArePromptsEnds_BeginningsOfWaitingPrompts_AndEvery1024Tokens) {
  const auto model = WindowedModel(1600);
  const auto expect = [&](EngineDriver& driver, RequestId id, const std::vector<int32_t>& prompt, size_t cached) {
    EngineDriver cold(model, {.threads = 1, .prefill_chunk = 100, .prefix_cache = false});
    const Outcome expected = cold.Run(prompt, kSix);
    EXPECT_EQ(driver.outcome(id).ids, expected.ids) << cached;
    EXPECT_EQ(driver.outcome(id).logprob_bits, expected.logprob_bits) << cached;
    EXPECT_EQ(driver.outcome(id).stats.cached_tokens, cached);
  };
  const std::vector<int32_t> text = Prompt(1400, 1);
  const auto begins = [&](size_t common, uint64_t seed) {
    return Joined({text.begin(), text.begin() + static_cast<std::ptrdiff_t>(common)}, Prompt(20, seed));
  };
  EngineDriver driver(model, {.threads = 1, .prefill_chunk = 100});
  const auto run = [&](const std::vector<int32_t>& prompt, size_t cached) {
    const RequestId id = driver.Submit(prompt, kSix);
    driver.RunUntilIdle();
    expect(driver, id, prompt, cached);
  };
  run(text, 0);
  run(begins(1200, 2), 1024);
  run(begins(880, 3), 0);  // the state of 1024 goes back 128
  run(Joined(text, {1, 2, 3}), 1400);
  run(text, 1399);
  driver.engine().ClearPrefixCache();
  std::vector<std::vector<int32_t>> prompts = {text, begins(500, 4), begins(500, 5), begins(777, 6)};
  std::vector<RequestId> ids;
  for (const auto& prompt : prompts) ids.push_back(driver.Submit(prompt, kSix));
  driver.RunUntilIdle();
  const size_t cached[] = {0, 500, 500, 777};
  for (size_t i = 0; i < ids.size(); ++i) expect(driver, ids[i], prompts[i], cached[i]);
}

// Prompts that begin with one of three texts, in every mix.
std::vector<Work> SharingWork(uint64_t seed, bool windowed) {
  const testing::WorkSpec spec = windowed ? testing::kWindowedWork : testing::WorkSpec();
  std::vector<Work> work = MakeWork(16, seed, spec);
  std::mt19937_64 random(seed);
  const size_t context = windowed ? kWindowedContext : kSmallContext;
  for (Work& w : work) {
    if (random() % 4 == 0) continue;
    const std::vector<int32_t> text = Prompt(windowed ? 200 : 45, random() % 3);
    const size_t from_text = 10 + random() % (text.size() - 10);
    w.prompt = Joined(std::vector(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(from_text)), w.prompt);
    if (w.prompt.size() > context) w.prompt.resize(context);
  }
  return work;
}

void ExpectSameInEveryMix(const std::shared_ptr<const Model>& model, bool windowed, uint64_t seeds) {
  size_t cached = 0;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    const std::vector<Work> work = SharingWork(seed, windowed);
    const auto alone = RunUnbatched(model, work, {.threads = 1, .prefill_chunk = 512, .prefix_cache = false});
    for (const KvPolicy policy : {KvPolicy::kBmc, KvPolicy::kPaged, KvPolicy::kReserve}) {
      for (const uint64_t memory : {uint64_t{0}, uint64_t{1}}) {
        EngineOptions options{
            .threads = 1 + seed % 2, .kv_policy = policy, .max_batch = 1 + seed % 5, .prefill_chunk = 1 + seed % 40};
        // A quarter of what they would take, but one has room.
        uint64_t most = 0, sum = 0;
        for (const Outcome& o : alone) {
          most = std::max(most, o.stats.growth.allocated_bytes);
          sum += o.stats.growth.allocated_bytes;
        }
        if (memory != 0) options.state_memory = std::max(2 * most, sum / 4);
        EngineDriver driver(model, options);
        const auto ids = RunTogether(driver, work, seed);
        for (size_t i = 0; i < work.size(); ++i) {
          const Outcome& found = driver.outcome(ids[i]);
          ExpectSame(found, alone[i], "request " + std::to_string(i) + ", seed " + std::to_string(seed));
          cached += found.stats.cached_tokens;
        }
        EXPECT_LE(CacheOf(driver).bytes(), driver.engine().state_memory() / 2);
        ASSERT_FALSE(::testing::Test::HasFailure());
      }
    }
  }
  EXPECT_GT(cached, 1000U);
}

TEST(EnginePrefixCacheMix, SharedPrefixes_GiveTheSameBits) {
  ExpectSameInEveryMix(SmallContextModel(DType::kF32), false, 8);
  ExpectSameInEveryMix(SmallContextModel(DType::kQ8_0), false, 4);
}

TEST(EnginePrefixCacheMix, WindowsThatForget_GiveTheSameBits) { ExpectSameInEveryMix(WindowedModel(), true, 2); }

}  // namespace
}  // namespace tidemill::engine_prefix_cache_test
