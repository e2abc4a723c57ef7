// Draft tokens change how many steps an answer takes and nothing else, whoever makes them: drafters that know the answer and what would come
// behind its end, that know nothing, and that mean harm. Chains and trees of 1 to 8 draft tokens, every growth policy, ragged batches, little
// memory, windows that wrapped, one thread to three. Greedy prompts are run in all of these ways, drawn ones beside them.
//
// By hand: TIDEMILL_PROMPTS=1000 for so many greedy prompts, TIDEMILL_SEED for other ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "runtime/engine_impl.h"
#include "state/kv_layer.h"
#include "tests/support/count_by_hand.h"
#include "tests/support/engine_driver.h"
#include "tests/support/kv_cache.h"
#include "tests/support/print_counts.h"
#include "tests/support/random_requests.h"
#include "tests/support/scripted_drafters.h"
#include "tests/support/tiny_vocabulary.h"

namespace tidemill::engine_any_drafter_test {
namespace {

using testing::DraftScript;
using testing::EngineDriver;
using testing::ExpectSame;
using testing::kSmallContext;
using testing::kTinyEosToken;
using testing::kTinyFirstByteToken;
using testing::kWindowedContext;
using testing::MakeWork;
using testing::Outcome;
using testing::ProposedTree;
using testing::RunUnbatched;
using testing::ScriptedDrafter;
using testing::SmallContextModel;
using testing::WindowedModel;
using testing::Work;

constexpr size_t kGreedyOfAWorld = 6, kDrawnOfAWorld = 6, kLongestDraft = 8, kEnginesOfAWorld = 6;
constexpr std::array kPolicies = {KvPolicy::kIterative, KvPolicy::kUpfront, KvPolicy::kBmc,
                                  KvPolicy::kGeometric, KvPolicy::kReserve, KvPolicy::kPaged};

// Requests of one model, what each gets alone, and its prompt with that and what would follow if nothing ended it.
struct World {
  std::string name;
  std::shared_ptr<const Model> model;
  size_t context;
  int32_t vocab;
  std::optional<KvType> kv_type;
  size_t greedy;
  std::vector<Work> work;  // greedy ones, then drawn ones
  std::vector<Outcome> alone;
  std::vector<std::vector<int32_t>> truth;
};

World MakeWorld(uint64_t index, size_t greedy) {
  World world;
  constexpr std::array<std::optional<KvType>, 3> kKvTypes = {std::nullopt, KvType::kF32, KvType::kBF16};
  world.kv_type = kKvTypes[index / 3 % 3];
  const bool windowed = index % 3 == 2;
  world.model = windowed ? WindowedModel() : SmallContextModel(index % 3 == 0 ? DType::kQ8_0 : DType::kF32);
  world.name = std::string(windowed         ? "windows"
                           : index % 3 == 0 ? "q8_0"
                                            : "f32") +
               ", kv " + (world.kv_type ? std::string(KvTypeName(*world.kv_type)) : "of the model");
  world.context = windowed ? kWindowedContext : kSmallContext;
  const testing::WorkSpec spec = windowed ? testing::kWindowedWork : testing::WorkSpec();
  world.vocab = spec.vocab;
  world.greedy = greedy;
  world.work = MakeWork(kGreedyOfAWorld + kDrawnOfAWorld, 2000 + index, spec);
  std::mt19937_64 random(index);
  for (size_t i = 0; i < world.work.size(); ++i) {
    auto& [prompt, generation] = world.work[i];
    generation.temperature = i < kGreedyOfAWorld ? 0 : std::max(generation.temperature, 0.5F);
    if (generation.max_new_tokens) generation.max_new_tokens = 2 + static_cast<int32_t>(random() % 40);
    // Where a layer with a window moves its rows, draft tokens are on their way.
    if (windowed && !generation.max_new_tokens) generation.max_new_tokens = 60;
    if (windowed && prompt.size() == spec.longest_prompt) prompt.resize(600 + random() % 40);
  }
  world.work.erase(world.work.begin() + static_cast<ptrdiff_t>(greedy), world.work.begin() + kGreedyOfAWorld);
  const EngineOptions options{.threads = 1, .kv_type = world.kv_type, .prefill_chunk = 512};
  world.alone = RunUnbatched(world.model, world.work, options);
  std::vector<Work> endless = world.work;
  for (size_t i = 0; i < endless.size(); ++i) {
    GenerationOptions& generation = endless[i].generation;
    generation.max_new_tokens = static_cast<int32_t>(world.alone[i].ids.size() + 2 * kLongestDraft);
    generation.ignore_eos = true;
    generation.stop.clear();
  }
  const std::vector<Outcome> goes_on = RunUnbatched(world.model, endless, options);
  for (size_t i = 0; i < endless.size(); ++i) {
    const std::vector<int32_t>&ids = world.alone[i].ids, &more = goes_on[i].ids;
    EXPECT_TRUE(ids.size() <= more.size() && std::equal(ids.begin(), ids.end(), more.begin())) << world.name << i;
    std::vector<int32_t> all = endless[i].prompt;
    all.insert(all.end(), more.begin(), more.end());
    world.truth.push_back(std::move(all));
  }
  return world;
}

enum class Kind { kGood, kBad, kTurning, kLying, kInvalid, kNgram, kLayers, kNone };
constexpr std::array kKindNames = {"good", "bad", "turning", "lying", "invalid", "ngram", "layers", "none"};
const char* NameOf(Kind kind) { return kKindNames[static_cast<size_t>(kind)]; }

// One request and what draft tokens for its answer.
struct Run {
  size_t work = 0;
  Kind kind = Kind::kNone;
  bool trees = false;
  size_t num_draft_tokens = 0, min_draft_tokens = 0;
  uint64_t seed = 0;
  ProposedTree last = {};

  bool scripted() const { return kind <= Kind::kInvalid; }
};

std::unique_ptr<Drafter> MakeDrafter(const World& world, Run& run) {
  DraftScript script{.truth = world.truth[run.work], .seed = run.seed, .trees = run.trees, .vocab = world.vocab};
  switch (run.kind) {
    case Kind::kBad: script.right = 0; break;
    case Kind::kTurning: script.turns = true; break;
    case Kind::kLying:  // ends of sequences, special tokens and the letters of stop texts, where they are not due
      script.right = 0.7;
      script.lies = {kTinyEosToken, 0, 1};
      for (const char letter : {'e', 't', 'h', 'a', 'q', 'z'}) script.lies.push_back(kTinyFirstByteToken + letter);
      break;
    case Kind::kInvalid:
      script.right = 0.9;
      script.lies = {-1, world.vocab, std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::min()};
      break;
    default: break;
  }
  return std::make_unique<ScriptedDrafter>(std::move(script), &run.last);
}

// What was met. Printed, and a run that did not meet it has shown nothing.
struct Coverage {
  size_t prompts = 0, requests = 0, draft_tokens = 0, accepted = 0, rejected = 0, later_siblings = 0;
  size_t cut = 0, grown = 0, wrapped = 0;                           // steps with draft tokens
  size_t eos_inside = 0, stop_inside = 0, told = 0, preempted = 0;  // requests
  std::map<size_t, size_t> accepted_of_steps, widths, threads, batches;
  std::map<std::string, size_t> worlds;
  std::map<std::string, std::map<std::string, size_t>> policies;  // of drafter and shape
  std::map<std::string, size_t> draft_tokens_of_kinds;            // that were checked

  void Print() const {
    std::printf(
        "  %zu greedy prompts, %zu requests; draft tokens %zu, accepted %zu, rejected %zu, later siblings %zu\n",
        prompts, requests, draft_tokens, accepted, rejected, later_siblings);
    std::printf("  steps with draft tokens: cut to free rows %zu, grown %zu, a window's rows moved %zu\n", cut, grown,
                wrapped);
    std::printf(
        "  ends among accepted draft tokens: end of sequence %zu, stop text %zu; drafters stopped %zu; preempted %zu\n",
        eos_inside, stop_inside, told, preempted);
    testing::PrintCounts("steps by accepted draft tokens", accepted_of_steps);
    testing::PrintCounts("greedy requests by draft tokens", widths);
    testing::PrintCounts("requests by threads", threads);
    testing::PrintCounts("steps by sequences", batches);
    testing::PrintCounts("requests by model", worlds);
    testing::PrintCounts("draft tokens by drafter", draft_tokens_of_kinds);
    for (const auto& [drafter, counts] : policies) testing::PrintCounts(drafter.c_str(), counts);
  }
};

// What a step may change, as it was before.
struct Before {
  RequestId id;
  size_t tokens, kept;
  uint64_t growths;
};

// The first position that a layer with a window still has.
size_t FirstKept(SequenceState& state) {
  if (state.length() == 0) return 0;
  return testing::KvLayerOf(state, 0).Context(0).front().first;
}

void Step(EngineDriver& driver, std::map<RequestId, Run*>& runs, Coverage* coverage) {
  Engine::Impl& impl = driver.engine().impl();
  std::map<const SequenceState*, Before> before;
  for (const auto& request : impl.requests) {
    runs[request->id()]->last = {};
    before[&request->state()] = {request->id(), driver.outcome(request->id()).ids.size(), FirstKept(request->state()),
                                 request->state().growth().growths};
  }
  driver.Step();
  const auto step = impl.scheduler->step();  // of requests that ended nothing but sizes and addresses is left
  ++coverage->batches[step.size()];
  for (const StepSequence& sequence : step) {
    const Before& was = before.at(sequence.state);
    const Outcome& outcome = driver.outcome(was.id);
    const size_t rows = sequence.tokens.size(), made = outcome.ids.size() - was.tokens;
    const ProposedTree& proposed = runs.at(was.id)->last;
    if (sequence.rows != Wanted::kAll || proposed.nodes == 0) continue;
    const size_t right = proposed.RightAmong(rows - 1);
    ASSERT_GE(made, 1U);
    ASSERT_LE(made, right + 1);
    ++coverage->accepted_of_steps[made - 1];
    coverage->cut += rows - 1 < proposed.nodes;
    if (!outcome.ended()) {
      ASSERT_EQ(made, right + 1) << "what is right is accepted";
      coverage->grown += sequence.state->growth().growths != was.growths;
      coverage->wrapped += FirstKept(*sequence.state) != was.kept;
    } else if (right >= made) {  // the last token was drafted, too
      coverage->eos_inside += outcome.finish == FinishReason::kEos;
      coverage->stop_inside += outcome.finish == FinishReason::kStop;
    }
  }
}

// All runs in one engine with any options that change no bits.
void RunTogether(const World& world, std::deque<Run> runs, uint64_t seed, Coverage* coverage) {
  std::mt19937_64 random(seed);
  const auto one_of = [&](std::vector<size_t> values) { return values[random() % values.size()]; };
  EngineOptions options{.threads = one_of({1, 2, 3}),
                        .kv_type = world.kv_type,
                        .kv_policy = kPolicies[seed % kPolicies.size()],
                        .kv_increment = one_of({1, 5, 16}),
                        .max_batch = one_of({1, 3, 8, 32}),
                        .prefill_chunk = one_of({1, 7, 64, 512})};
  if (world.context == kWindowedContext && options.prefill_chunk == 1) options.prefill_chunk = 64;
  if (random() % 2 == 0) {
    options.state_memory =
        EngineDriver(world.model, options).engine().impl().NewState(0)->LedgerGrowth(world.context, world.context);
    options.state_memory *= 2;  // a page of `paged` may be begun for each part of a prompt
  }
  EngineDriver driver(world.model, options);
  Engine::Impl& impl = driver.engine().impl();
  Run* next = nullptr;
  impl.make_drafter = [&](const Request& request, size_t expected, SequenceState& state) {
    return next->scripted() ? MakeDrafter(world, *next) : impl.NewDrafter(request.draft, expected, &state);
  };
  std::map<RequestId, Run*> by_id;
  const std::string where = world.name + ", " + std::string(KvPolicyName(options.kv_policy)) + ", increment " +
                            std::to_string(options.kv_increment) + ", seed " + std::to_string(seed) + ", ";
  for (size_t submitted = 0; submitted < runs.size() || !driver.engine().idle();) {
    for (size_t arrivals = random() % 20; arrivals != 0 && submitted < runs.size(); --arrivals) {
      Run& run = runs[submitted++];
      next = &run;
      const Work& work = world.work[run.work];
      const DraftSource source = run.kind == Kind::kLayers ? DraftSource::kLayers : DraftSource::kNgram;
      by_id[driver.Submit({.prompt = work.prompt,
                           .generation = work.generation,
                           .draft = {.num_draft_tokens = run.num_draft_tokens,
                                     .min_draft_tokens = run.min_draft_tokens,
                                     .source = source,
                                     .ngram_min = 1,
                                     .layers = run.kind == Kind::kLayers ? size_t{1} : 0}})] = &run;
    }
    Step(driver, by_id, coverage);
    ASSERT_FALSE(::testing::Test::HasFailure()) << where;
  }
  for (const auto& [id, run] : by_id) {
    const Outcome& found = driver.outcome(id);
    const std::string drafter = std::string(NameOf(run->kind)) + (run->trees ? " trees" : "");
    ExpectSame(
        found, world.alone[run->work],
        where + drafter + " of " + std::to_string(run->num_draft_tokens) + ", request " + std::to_string(run->work));
    const RequestStats& stats = found.stats;
    coverage->draft_tokens += stats.drafted_tokens;
    coverage->draft_tokens_of_kinds[NameOf(run->kind)] += stats.drafted_tokens;
    coverage->accepted += stats.accepted_tokens;
    coverage->rejected += stats.drafted_tokens - stats.accepted_tokens;
    coverage->later_siblings += stats.drafts.later_siblings;
    coverage->told += stats.draft_trouble == "an id was drafted that the tokenizer does not have";
    coverage->preempted += stats.preemptions != 0;
    if (run->work < world.greedy) ++coverage->widths[run->num_draft_tokens];
    ++coverage->policies[drafter][std::string(KvPolicyName(options.kv_policy))];
  }
  coverage->requests += runs.size();
  coverage->threads[options.threads] += runs.size();
  coverage->worlds[world.name] += runs.size();
}

// Each greedy prompt with drafts of each length by each drafter, as chains and as trees, spread over engines; and in each engine each
// drawn one with any drafter or none.
void RunWorld(const World& world, uint64_t seed, Coverage* coverage) {
  std::mt19937_64 random(seed);
  std::vector<Run> greedy;
  for (size_t work = 0; work < world.greedy; ++work) {
    for (size_t length = 1; length <= kLongestDraft; ++length) {
      for (const bool trees : {false, true}) {
        const Kind adversarial = std::array{Kind::kTurning, Kind::kTurning, Kind::kLying, Kind::kInvalid}[random() % 4];
        for (const Kind kind : {Kind::kGood, Kind::kBad, adversarial})
          greedy.push_back(
              {.work = work, .kind = kind, .trees = trees, .num_draft_tokens = length, .min_draft_tokens = length});
      }
    }
  }
  std::vector<std::deque<Run>> engines(kEnginesOfAWorld);
  for (const Run& run : greedy) engines[random() % engines.size()].push_back(run);
  for (size_t i = 0; i < engines.size(); ++i) {
    std::deque<Run>& runs = engines[i];
    for (size_t work = world.greedy; work < world.work.size(); ++work) {
      Run run{.work = work, .kind = static_cast<Kind>(random() % kKindNames.size())};
      if (run.scripted()) run.trees = random() % 2 == 0;
      if (run.kind != Kind::kNone) run.num_draft_tokens = std::array{1, 2, 3, 8, 16, 64}[random() % 6];
      run.min_draft_tokens = random() % 2 == 0 ? run.num_draft_tokens : 0;
      runs.push_back(run);
    }
    std::shuffle(runs.begin(), runs.end(), random);
    for (Run& run : runs) run.seed = random();
    RunTogether(world, std::move(runs), seed * kEnginesOfAWorld + i, coverage);
    ASSERT_FALSE(::testing::Test::HasFailure());
  }
  coverage->prompts += world.greedy;
}

#ifdef TIDEMILL_FEW_PROMPTS
constexpr uint64_t kPrompts = 10;  // an emulator takes four minutes for all
#else
constexpr uint64_t kPrompts = 50;
#endif

TEST(EngineAnyDrafter, EveryAnswer_IsThatOfPlainDecoding) {
  const uint64_t prompts = testing::CountByHand("TIDEMILL_PROMPTS", kPrompts), first = testing::FirstSeed();
  Coverage coverage;
  for (uint64_t seed = first; coverage.prompts < prompts; ++seed) {
    const World world = MakeWorld(seed, std::min<size_t>(kGreedyOfAWorld, prompts - coverage.prompts));
    RunWorld(world, seed, &coverage);
    ASSERT_FALSE(HasFailure());
  }
  std::printf("  seeds from %llu on\n", static_cast<unsigned long long>(first));
  coverage.Print();
  EXPECT_GT(coverage.accepted, 50 * prompts);
  EXPECT_GT(coverage.rejected, 50 * prompts);
  if (prompts < 50) return;  // too few to meet everything
  EXPECT_GT(coverage.accepted, 100 * prompts);
  EXPECT_GT(coverage.rejected, 100 * prompts);
  for (size_t length = 0; length <= kLongestDraft; ++length)
    EXPECT_GT(coverage.accepted_of_steps[length], prompts / 2) << length;
  for (size_t length = 1; length <= kLongestDraft; ++length) EXPECT_EQ(coverage.widths[length], 6 * prompts) << length;
  EXPECT_GT(coverage.later_siblings, 5 * prompts);
  for (const size_t count : {coverage.cut, coverage.grown}) EXPECT_GT(count, 10 * prompts);
  EXPECT_GT(coverage.wrapped, prompts / 5);
  for (const size_t count : {coverage.eos_inside, coverage.stop_inside, coverage.told, coverage.preempted})
    EXPECT_GT(count, prompts / 2);
  for (const size_t threads : {1, 2, 3}) EXPECT_GT(coverage.threads[threads], 0U) << threads;
  EXPECT_GE(coverage.worlds.size(), 9U);
  for (const auto& [drafter, counts] : coverage.policies) EXPECT_EQ(counts.size(), kPolicies.size()) << drafter;
  for (const auto& [kind, draft_tokens] : coverage.draft_tokens_of_kinds)
    EXPECT_EQ(draft_tokens != 0, kind != "none") << kind;
  EXPECT_EQ(coverage.policies.size(), kKindNames.size() + 5) << "scripted ones make trees, too";
}

}  // namespace
}  // namespace tidemill::engine_any_drafter_test
