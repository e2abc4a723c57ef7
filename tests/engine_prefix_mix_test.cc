// Requests that begin alike give the same bits with the prefix cache on, off, and where any common beginning is taken: of every small family,
// with windows, every drafter, every growth policy, cancelled and preempted, in little memory. After each step the engine's memory is what
// its blocks are, within the bound (EngineDriver).
//
// By hand: TIDEMILL_MIXES=1000 for so many mixes, TIDEMILL_SEED for other ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "runtime/engine_impl.h"
#include "tests/support/count_by_hand.h"
#include "tests/support/drafting_models.h"
#include "tests/support/engine_driver.h"
#include "tests/support/families.h"
#include "tests/support/print_counts.h"
#include "tests/support/random_requests.h"

namespace tidemill::engine_prefix_mix_test {
namespace {

using testing::ChangedCheckpoint;
using testing::DraftingModel;
using testing::EngineDriver;
using testing::ExpectSame;
using testing::Outcome;
using testing::RunUnbatched;
using testing::Work;

constexpr size_t kWorkOfAWorld = 20, kRequests = 12;
constexpr size_t kLongestContext = 1024;  // of models that have no last position
constexpr std::array kPolicies = {KvPolicy::kIterative, KvPolicy::kUpfront, KvPolicy::kBmc,
                                  KvPolicy::kGeometric, KvPolicy::kReserve, KvPolicy::kPaged};

std::vector<DraftingModel> AllModels() {
  std::vector<DraftingModel> models = testing::DraftingModels();
  constexpr int kFamilyVocab = 128;
  for (const char* family : testing::kFamilies) {
    models.push_back({.name = family,
                      .model = testing::LoadFolder(ChangedCheckpoint(std::string("families/") + family),
                                                   testing::TinyTokenizerJson(kFamilyVocab)),
                      .layers = 1,
                      .vocab = kFamilyVocab});
  }
  models.push_back({.name = "windows", .model = testing::WindowedModel(), .layers = 1, .vocab = kFamilyVocab});
  for (const std::string folder : {"llama", "gpt2_wrap", "right", "rmt_llama"}) {  // segments of seven tokens
    models.push_back({.name = "armt " + folder,
                      .model = testing::LoadFolder(ChangedCheckpoint("armt/" + folder), testing::TinyTokenizerJson(96)),
                      .layers = 1,
                      .vocab = 96});
  }
  return models;
}

// Requests of one model, and what each gets alone.
struct World {
  const DraftingModel* drafting;
  size_t context;
  bool forgets;
  std::vector<Work> work = {};
  std::vector<Outcome> alone = {};
};

// Prompts begin with one of three texts, some in the middle of it; drawn and greedy.
World MakeWorld(const DraftingModel& drafting, uint64_t seed) {
  EngineDriver driver(drafting.model, {.threads = 1});
  World world{.drafting = &drafting,
              .context = std::min<size_t>(driver.engine().context(), kLongestContext),
              .forgets = !driver.engine().impl().NewState()->keeps_all()};
  std::mt19937_64 random(seed);
  const auto token = [&] { return static_cast<int32_t>(3 + random() % static_cast<size_t>(drafting.vocab - 3)); };
  std::vector<std::vector<int32_t>> texts(3);
  for (auto& text : texts) {
    text.resize(world.context * 2 / 3);
    std::generate(text.begin(), text.end(), token);
  }
  for (size_t i = 0; i < kWorkOfAWorld; ++i) {
    std::vector<int32_t> prompt = texts[random() % texts.size()];
    prompt.resize(1 + random() % prompt.size());
    for (size_t own = random() % 12; own != 0; --own) prompt.push_back(token());
    GenerationOptions generation{.max_new_tokens = static_cast<int32_t>(1 + random() % 30), .ignore_eos = true};
    generation.temperature = random() % 2 == 0 ? 0.0F : 0.8F;
    generation.seed = random();
    world.work.push_back({.prompt = std::move(prompt), .generation = generation});
  }
  world.alone = RunUnbatched(drafting.model, world.work,
                             {.threads = 1, .context = world.context, .prefill_chunk = 64, .prefix_cache = false});
  return world;
}

struct Counts {
  size_t requests = 0, cached = 0, cancelled = 0, preempted = 0, accepted = 0, evicted = 0;
};

enum class Cache { kOff, kOn, kForced };

void RunMix(const World& world, uint64_t seed, Cache cache, Counts* counts) {
  std::mt19937_64 random(seed);
  const DraftingModel& drafting = *world.drafting;
  EngineOptions options = drafting.Options(1 + random() % 6);
  options.threads = 1 + random() % 2;
  options.context = world.context;
  options.kv_policy = kPolicies[random() % kPolicies.size()];
  options.kv_increment = std::array<size_t, 3>{1, 5, 16}[random() % 3];
  options.prefill_chunk = std::array<size_t, 4>{1 + random() % 7, 16, 40, 512}[random() % 4];
  options.prefix_cache = cache != Cache::kOff;
  if (random() % 2 == 0) {  // a quarter of what they want, but one has room
    EngineDriver measured(drafting.model, options);
    Engine::Impl& impl = measured.engine().impl();
    const auto state = impl.NewState(0);
    uint64_t all = 0;
    for (size_t i = 0; i < kRequests; ++i) {
      const size_t tokens = world.work[random() % kWorkOfAWorld].prompt.size() + 30;
      all += state->LedgerGrowth(std::min(tokens, world.context), options.prefill_chunk);
    }
    const uint64_t features = impl.NewDrafter(drafting.Draft(4), 0, state.get())->feature_bytes();
    options.state_memory =
        std::max((options.kv_policy == KvPolicy::kPaged ? 2 : 1) * state->LedgerGrowth(world.context, world.context),
                 all / 4) +
        features;
  }
  EngineDriver driver(drafting.model, options);
  if (cache == Cache::kForced) driver.engine().impl().memory->prefix_cache().set_fewest_tokens(1);
  std::vector<std::pair<RequestId, size_t>> ids;
  while (ids.size() < kRequests || !driver.engine().idle()) {
    for (size_t arrivals = random() % 5; arrivals != 0 && ids.size() < kRequests; --arrivals) {
      const size_t i = random() % kWorkOfAWorld;
      Request request{.prompt = world.work[i].prompt, .generation = world.work[i].generation};
      if (const size_t drafter = random() % 3; drafter == 0) {
        request.draft = drafting.Draft(
            1 + random() % 5, random() % 2 == 0 || drafting.at_once ? DraftTreeKind::kChain : DraftTreeKind::kFixed);
      } else if (drafter == 1) {
        request.draft = {.num_draft_tokens = 4, .source = DraftSource::kNgram, .ngram_min = 1};
      }
      request.store = random() % 8 != 0;
      if (random() % 6 == 0) request.cache_salt = "another";
      ids.emplace_back(driver.Submit(std::move(request)), i);
    }
    if (random() % 12 == 0 && !ids.empty()) driver.engine().Cancel(ids[random() % ids.size()].first);
    if (random() % 40 == 0) driver.engine().ClearPrefixCache();
    driver.Step();
    ASSERT_FALSE(::testing::Test::HasFailure()) << drafting.name << ", seed " << seed;
  }
  for (const auto& [id, i] : ids) {
    const Outcome &found = driver.outcome(id), &expected = world.alone[i];
    const std::string where = drafting.name + ", seed " + std::to_string(seed) + ", request " + std::to_string(id);
    if (found.finish == FinishReason::kCancelled) {
      ++counts->cancelled;
      ASSERT_LE(found.ids.size(), expected.ids.size()) << where;
      ASSERT_TRUE(std::equal(found.ids.begin(), found.ids.end(), expected.ids.begin())) << where;
    } else {
      Outcome same = found;
      if (found.stats.cached_tokens != 0 && world.forgets) {  // a fork can be rolled back less far
        ASSERT_LE(found.stats.state_bytes, expected.stats.state_bytes) << where;
        same.stats.state_bytes = expected.stats.state_bytes;
      }
      ExpectSame(same, expected, where);
    }
    ASSERT_LE(found.stats.cached_tokens, cache == Cache::kOff ? 0 : world.work[i].prompt.size() - 1) << where;
    ++counts->requests;
    counts->cached += found.stats.cached_tokens;
    counts->preempted += found.stats.preemptions;
    counts->accepted += found.stats.accepted_tokens;
  }
  counts->evicted += driver.engine().prefix_cache().evictions;
  driver.engine().ClearPrefixCache();
  EXPECT_EQ(driver.engine().impl().memory->held(), 0U) << drafting.name << ", seed " << seed;
}

TEST(EnginePrefixMix, EveryAnswer_IsThatOfARequestAlone) {
  const uint64_t mixes = testing::CountByHand("TIDEMILL_MIXES", 100), first = testing::FirstSeed();
  const std::vector<DraftingModel> models = AllModels();
  std::vector<World> worlds;
  for (size_t i = 0; i < models.size(); ++i) worlds.push_back(MakeWorld(models[i], first + i));
  Counts counts;
  for (uint64_t seed = first; seed < first + mixes; ++seed) {
    RunMix(worlds[seed % worlds.size()], seed, static_cast<Cache>(seed / worlds.size() % 3), &counts);
    ASSERT_FALSE(HasFailure());
  }
  std::printf(
      "  %zu requests: cached tokens %zu, cancelled %zu, preempted %zu, accepted draft tokens %zu, evicted %zu\n",
      counts.requests, counts.cached, counts.cancelled, counts.preempted, counts.accepted, counts.evicted);
  EXPECT_GT(counts.cached, 40 * mixes);
  EXPECT_GT(counts.cancelled, mixes / 4);
  EXPECT_GT(counts.preempted, mixes / 20);
  EXPECT_GT(counts.accepted, mixes);
}

}  // namespace
}  // namespace tidemill::engine_prefix_mix_test
