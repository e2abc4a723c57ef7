// A request gets the same bits alone and among 1 to 64 others: whatever they are, in chunks of any size, on one thread or two, with room
// for all or for one or two whole contexts, preempted and computed again, with draft tokens and without, behind windows that forget.
//
// By hand: TIDEMILL_PAIRS=10000 for so many requests among others, TIDEMILL_SEED for other ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "runtime/engine_impl.h"
#include "tests/support/count_by_hand.h"
#include "tests/support/engine_driver.h"
#include "tests/support/print_counts.h"
#include "tests/support/random_requests.h"

namespace tidemill::engine_batch_mates_test {
namespace {

using testing::EngineDriver;
using testing::ExpectSame;
using testing::kSmallContext;
using testing::kWindowedContext;
using testing::MakeWork;
using testing::Outcome;
using testing::RunUnbatched;
using testing::SmallContextModel;
using testing::WindowedModel;
using testing::Work;

constexpr size_t kMaxOthers = 64, kMax = 1 + kMaxOthers;

// Requests of one model, and what each gets alone.
struct World {
  std::string name;
  std::shared_ptr<const Model> model;
  size_t context;
  std::optional<KvType> kv_type;
  // [2 * kMax] of any sort; then short prompts with long answers, so that many are in a step at once and grow out of their memory.
  std::vector<Work> work;
  std::vector<Outcome> alone;
};

World MakeWorld(uint64_t index, uint64_t seed) {
  World world;
  constexpr std::array<std::optional<KvType>, 3> kKvTypes = {std::nullopt, KvType::kF32, KvType::kBF16};
  world.kv_type = kKvTypes[index / 3 % 3];
  const bool windowed = index % 3 == 2;
  world.model = windowed ? WindowedModel() : SmallContextModel(index % 3 == 0 ? DType::kQ8_0 : DType::kF32);
  world.name = (windowed         ? "windows"
                : index % 3 == 0 ? "q8_0"
                                 : "f32") +
               std::string(", kv ") + (world.kv_type ? std::string(KvTypeName(*world.kv_type)) : "of the model") +
               ", work " + std::to_string(seed);
  world.context = windowed ? kWindowedContext : kSmallContext;
  world.work = MakeWork(2 * kMax, seed, windowed ? testing::kWindowedWork : testing::WorkSpec());
  for (size_t i = 0; i < world.work.size(); ++i) {
    GenerationOptions& generation = world.work[i].generation;
    if (i % 4 != 0) generation.logprobs = std::max(generation.logprobs, 0);
    if (windowed && !generation.max_new_tokens) generation.max_new_tokens = 60;
    if (i < kMax) continue;
    std::vector<int32_t>& prompt = world.work[i].prompt;
    prompt.resize(std::min(prompt.size(), 1 + i % 9));
    generation.max_new_tokens = static_cast<int32_t>(50 + i % 30);
    generation.ignore_eos = true;
    generation.stop.clear();
  }
  world.alone = RunUnbatched(world.model, world.work, {.threads = 1, .kv_type = world.kv_type, .prefill_chunk = 512});
  return world;
}

// What was met. Printed, and a run that did not meet it has shown nothing.
struct Coverage {
  size_t pairs = 0, engines = 0, preempted = 0, requests_preempted = 0, drafted = 0, accepted = 0, mixed_steps = 0;
  std::map<size_t, size_t> others;           // engines
  std::map<size_t, size_t> batches;          // steps with so many sequences, by their lowest: 1, 2, 8, 32, 64, 65
  std::map<size_t, size_t> parts;            // parts of prompts with so many rows, likewise
  std::map<size_t, size_t> chunks, threads;  // engines
  std::map<std::string, size_t> worlds;      // pairs
  size_t past_windows = 0, forgot = 0;       // requests behind a window, and behind what a windowed layer keeps

  static size_t Lowest(size_t count) {
    size_t lowest = 1;
    for (const size_t edge : {2, 8, 17, 32, 64, 65}) {
      if (count >= edge) lowest = edge;
    }
    return lowest;
  }
  void Print() const {
    std::printf("  %zu requests among others in %zu engines; %zu preempted, %zu times; draft tokens %zu, right %zu\n",
                pairs, engines, requests_preempted, preempted, drafted, accepted);
    testing::PrintCounts("engines by requests beside one", others);
    testing::PrintCounts("steps by sequences, from", batches);
    testing::PrintCounts("parts of prompts by rows, from", parts);
    testing::PrintCounts("engines by prefill_chunk", chunks);
    testing::PrintCounts("engines by threads", threads);
    testing::PrintCounts("requests by model", worlds);
    std::printf(
        "  steps with parts of prompts and single tokens %zu; requests past a window %zu, past forgotten rows %zu\n",
        mixed_steps, past_windows, forgot);
  }
};

void CountStep(EngineDriver& driver, Coverage* coverage) {
  const auto step = driver.engine().impl().scheduler->step();
  if (step.empty()) return;
  ++coverage->batches[Coverage::Lowest(step.size())];
  size_t parts = 0;
  for (const StepSequence& sequence : step) {
    if (sequence.rows == Wanted::kAll || sequence.tokens.size() == 1) continue;
    ++parts;
    ++coverage->parts[Coverage::Lowest(sequence.tokens.size())];
  }
  coverage->mixed_steps += parts != 0 && parts != step.size();
}

// One engine with any options that change no bits, and 1 to 64 others beside each of its requests.
void RunTogether(const World& world, uint64_t seed, Coverage* coverage) {
  std::mt19937_64 random(seed);
  const auto below = [&random](size_t n) { return static_cast<size_t>(random() % n); };
  const auto one_of = [&](std::vector<size_t> values) { return values[below(values.size())]; };
  constexpr KvPolicy kPolicies[] = {KvPolicy::kIterative, KvPolicy::kUpfront, KvPolicy::kBmc,
                                    KvPolicy::kGeometric, KvPolicy::kReserve, KvPolicy::kPaged};
  constexpr KvPolicy kGrowing[] = {KvPolicy::kIterative, KvPolicy::kBmc, KvPolicy::kReserve, KvPolicy::kPaged};
  // Every fourth engine has room for all at once, who come together and stay for long. In another fourth as many grow out of their memory:
  // where a state takes all it will need at once, as upfront's does, nobody has to give way. Of the others two of three have little memory.
  const bool crowd = seed % 4 == 3, squeeze = seed % 4 == 1;
  const bool windowed = world.context == kWindowedContext;             // whose long prompts are of the first sort
  const size_t sort = crowd || squeeze ? 1 : windowed ? 0 : below(3);  // of any sort, those with long answers, or both
  const std::array few = {size_t{1}, 2 + below(6), 8 + below(24), 32 + below(32), kMaxOthers};
  const size_t others = crowd ? few[4 - seed / 4 % 2] : few[seed % 5];
  const bool little_memory = squeeze || (!crowd && below(3) != 0), all_at_once = crowd || squeeze || below(2) == 0;
  EngineOptions options{.threads = one_of({1, 2}),
                        .kv_type = world.kv_type,
                        .kv_policy = squeeze ? kGrowing[below(4)] : kPolicies[below(6)],
                        .kv_increment = one_of({1, 5, 16}),
                        .max_batch = crowd || squeeze ? kMax : one_of({2, 8, kMax}),
                        .prefill_chunk = (std::array<size_t, 5>{1, 7, 16, 64, 512})[(2 * seed + seed / 5) % 5]};
  if (little_memory) {
    const size_t longest = sort == 1 ? kSmallContext : world.context;
    options.state_memory =
        EngineDriver(world.model, options).engine().impl().NewState(0)->LedgerGrowth(longest, longest);
    // A page of `paged` may be begun for each part of a prompt.
    options.state_memory = (4 + below(4)) * options.state_memory * 5 / 16;
  }
  const std::string folders[] = {"", ::testing::TempDir(), ::testing::TempDir() + "/that/is/not/there"};
  options.spill_folder = folders[below(3)];
  std::vector<size_t> chosen(world.work.size());
  for (size_t i = 0; i < chosen.size(); ++i) chosen[i] = i;
  if (sort == 0) chosen.resize(kMax);
  if (sort == 1) chosen.erase(chosen.begin(), chosen.begin() + kMax);
  std::shuffle(chosen.begin(), chosen.end(), random);
  chosen.resize(1 + others);

  EngineDriver driver(world.model, options);
  std::vector<RequestId> ids;
  while (ids.size() < chosen.size() || !driver.engine().idle()) {
    size_t arrivals = std::min(chosen.size() - ids.size(), all_at_once ? chosen.size() : below(18));
    for (; arrivals != 0; --arrivals) {
      const Work& work = world.work[chosen[ids.size()]];
      const size_t most = below(4) == 0 ? 4 : 0;
      ids.push_back(driver.Submit({.prompt = work.prompt,
                                   .generation = work.generation,
                                   .draft = {.num_draft_tokens = most, .min_draft_tokens = most, .ngram_min = 1}}));
    }
    driver.Step();
    CountStep(driver, coverage);
    if (little_memory) {
      ASSERT_LE(driver.held_bytes(), options.state_memory) << world.name << ", seed " << seed;
    }
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    const Outcome& found = driver.outcome(ids[i]);
    ExpectSame(found, world.alone[chosen[i]],
               world.name + ", seed " + std::to_string(seed) + ", " + std::string(KvPolicyName(options.kv_policy)) +
                   ", increment " + std::to_string(options.kv_increment) + ", chunk " +
                   std::to_string(options.prefill_chunk) + ", threads " + std::to_string(options.threads) +
                   ", others " + std::to_string(others) + ", memory " + std::to_string(options.state_memory) +
                   ", folder '" + options.spill_folder + "', request " + std::to_string(chosen[i]));
    coverage->preempted += found.stats.preemptions;
    coverage->requests_preempted += found.stats.preemptions != 0;
    coverage->drafted += found.stats.drafted_tokens;
    coverage->accepted += found.stats.accepted_tokens;
    if (windowed) {
      const size_t length = found.stats.prompt_tokens + found.stats.generated_tokens;
      coverage->past_windows += length > 8;
      coverage->forgot += length > 633;
    }
  }
  coverage->pairs += ids.size();
  ++coverage->engines;
  ++coverage->others[Coverage::Lowest(others)];
  ++coverage->chunks[options.prefill_chunk];
  ++coverage->threads[options.threads];
  coverage->worlds[world.name.substr(0, world.name.find(", work"))] += ids.size();
}

TEST(EngineBatchMates, RequestAmongAnyOthers_GetsWhatItGetsAlone) {
  const uint64_t pairs = testing::CountByHand("TIDEMILL_PAIRS", 500), first = testing::FirstSeed();
  constexpr uint64_t kEnginesOfAWorld = 4;
  Coverage coverage;
  uint64_t seed = first;
  for (uint64_t index = first / kEnginesOfAWorld; coverage.pairs < pairs; ++index) {
    const World world = MakeWorld(index, 1000 + index);
    for (uint64_t i = 0; i < kEnginesOfAWorld && coverage.pairs < pairs; ++i, ++seed) {
      RunTogether(world, seed, &coverage);
      ASSERT_FALSE(HasFailure());
    }
  }
  std::printf("  seeds %llu to %llu\n", static_cast<unsigned long long>(first),
              static_cast<unsigned long long>(seed - 1));
  coverage.Print();
  for (const size_t lowest : {1, 2, 64}) EXPECT_GT(coverage.others[lowest], 0U) << lowest;
  EXPECT_GT(coverage.others[8] + coverage.others[17], 0U);
  for (const size_t lowest : {1, 2, 8, 32}) EXPECT_GT(coverage.batches[lowest], 20U) << lowest;
  EXPECT_GT(coverage.batches[64] + coverage.batches[65], 0U);
  for (const size_t chunk : {1, 7, 16, 64, 512}) EXPECT_GT(coverage.chunks[chunk], 0U) << chunk;
  for (const size_t threads : {1, 2}) EXPECT_GT(coverage.threads[threads], 0U) << threads;
  EXPECT_GE(coverage.worlds.size(), 3U);
  EXPECT_GT(coverage.requests_preempted, pairs / 20);
  EXPECT_GT(coverage.mixed_steps, 100U);
  EXPECT_GT(coverage.accepted, pairs / 20);
  EXPECT_GT(coverage.drafted - coverage.accepted, pairs / 20);
  EXPECT_GT(coverage.past_windows, pairs / 20);
  EXPECT_GT(coverage.forgot, pairs / 100);
}

}  // namespace
}  // namespace tidemill::engine_batch_mates_test
