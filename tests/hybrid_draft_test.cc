// Draft tokens for models with linear layers, whose states are not rolled back: by their own draft head (MTP), by prompt lookup and by first
// layers. They change how many steps an answer takes and nothing else; a step that verifies them writes no state of its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "runtime/engine_impl.h"
#include "state/linear_layer.h"
#include "tests/support/eagle_pairs.h"
#include "tests/support/engine_driver.h"
#include "tests/support/golden_file.h"
#include "tests/support/hybrid_models.h"
#include "tests/support/random_requests.h"
#include "tests/support/recording_drafter.h"
#include "tests/support/resumed_requests.h"

namespace tidemill::hybrid_draft_test {
namespace {

using testing::EngineDriver;
using testing::ExpectSame;
using testing::GoldenFile;
using testing::HybridFolder;
using testing::kHybridContext;
using testing::kHybridVocab;
using testing::LoadHybrid;
using testing::LoadOwnHead;
using testing::MakeWork;
using testing::OptionsOf;
using testing::Outcome;
using testing::RunUnbatched;
using testing::Work;

constexpr const char* kFamilies[] = {"qwen3_next_mtp", "qwen3_5", "qwen3_5_moe"};
constexpr DraftTreeKind kKinds[] = {DraftTreeKind::kChain, DraftTreeKind::kFixed, DraftTreeKind::kDynamic,
                                    DraftTreeKind::kOptimal};

// When linear layers write their states: after each token, after some, after some but not before a start.
struct Form {
  const char* name;
  LinearPolicy policy;
};
constexpr Form kForms[] = {{"recurrent", {.form = LinearForm::kRecurrent}},
                           {"buffered 3", {.form = LinearForm::kBuffered, .buffer = 3}},
                           {"buffered 16", {.form = LinearForm::kBuffered, .buffer = 16}},
                           {"kv 40, 8", {.form = LinearForm::kKv, .buffer = 8, .start = 40}},
                           {"bf16", {.form = LinearForm::kBuffered, .buffer = 5, .bfloat16 = true}}};

constexpr testing::WorkSpec kWork = {.vocab = kHybridVocab, .long_prompt = 70, .longest_prompt = kHybridContext};

DraftOptions Ngram(size_t num_draft_tokens, size_t min_draft_tokens) {
  return {.num_draft_tokens = num_draft_tokens,
          .min_draft_tokens = min_draft_tokens,
          .source = DraftSource::kNgram,
          .ngram_min = 1};
}

DraftOptions Layers(DraftTreeKind kind, size_t layers, size_t num_draft_tokens, size_t min_draft_tokens) {
  DraftOptions options = OptionsOf(kind, num_draft_tokens, min_draft_tokens);
  options.source = DraftSource::kLayers;
  options.layers = layers;
  return options;
}

struct Counts {
  size_t drafted = 0, accepted = 0, later = 0, preemptions = 0, cut = 0, cached = 0, steps = 0;

  void Add(const RequestStats& stats) {
    drafted += stats.drafted_tokens;
    accepted += stats.accepted_tokens;
    later += stats.drafts.later_siblings;
    preemptions += stats.preemptions;
    cut += stats.drafts.cut;
    cached += stats.cached_tokens;
    for (size_t i = 1; i < DraftStats::kStepCounts; ++i) steps += stats.drafts.steps_by_draft_tokens[i];
  }
};

// The first draft tokens of the engine are those of the golden, and as many are accepted.
TEST(MtpDraft, FirstDraftTokens_AreTheGoldens) {
  for (const char* family : kFamilies) {
    const GoldenFile golden(HybridFolder(family));
    const auto model = LoadHybrid(family, true);
    const auto head = LoadOwnHead(model, true);
    Counts counts;
    for (size_t p = 0; p < golden.num_prompts(); ++p) {
      for (const size_t chunk : {64, 3}) {
        SCOPED_TRACE(std::string(family) + ", prompt " + std::to_string(p) + ", chunk " + std::to_string(chunk));
        EngineDriver driver(model, {.threads = 2, .prefill_chunk = chunk, .draft_head = head});
        Engine::Impl& impl = driver.engine().impl();
        std::vector<std::vector<int32_t>> drafts;
        impl.make_drafter = [&](const Request& request, size_t expected, SequenceState& state) {
          return std::make_unique<testing::RecordingDrafter>(
              impl.NewDrafter(request.draft, expected, &state),
              [&drafts](size_t, const DraftTree& tree) { drafts.emplace_back(tree.ids.begin(), tree.ids.end()); });
        };
        const std::vector<int32_t> ids = golden.Ids(p, "mtp_draft_ids"), greedy = golden.Ids(p, "greedy_ids");
        const RequestId id =
            driver.Submit({.prompt = golden.Ids(p, "input_ids"),
                           .generation = {.max_new_tokens = static_cast<int32_t>(greedy.size()), .ignore_eos = true},
                           .draft = OptionsOf(DraftTreeKind::kChain, ids.size(), ids.size())});
        while (drafts.empty()) driver.Step();
        EXPECT_EQ(drafts[0], ids);
        EXPECT_EQ(driver.outcome(id).ids.size(),
                  2 + golden.json().at("prompts")[p].at("mtp_num_accepted").get<size_t>());
        driver.RunUntilIdle();
        EXPECT_EQ(driver.outcome(id).ids, greedy);
        EXPECT_EQ(driver.outcome(id).stats.draft_trouble, "");
        counts.Add(driver.outcome(id).stats);
      }
    }
    std::printf("  %s: %zu of %zu draft tokens accepted in %zu steps\n", family, counts.accepted, counts.drafted,
                counts.steps);
    EXPECT_GT(counts.accepted, 10U) << family;
    EXPECT_GT(counts.drafted - counts.accepted, 10U) << family;
  }
}

// Greedy and drawn answers in every form of linear layers and with every growth policy, in ragged batches, with little memory, ended by stop
// texts and end-of-sequence tokens. One request in three drafts by each kind of drafter.
TEST(HybridDraft, EveryRequest_GetsWhatItGetsWithout) {
  constexpr KvPolicy kPolicies[] = {KvPolicy::kIterative, KvPolicy::kUpfront, KvPolicy::kBmc,
                                    KvPolicy::kGeometric, KvPolicy::kReserve, KvPolicy::kPaged};
  enum Drafter { kMtp, kNgram, kLayers };
  constexpr std::array kNames = {"mtp", "ngram", "layers"};
  std::map<std::pair<size_t, bool>, Counts> counts;  // by drafter, and whether there are trees
  const std::string folders[] = {"", ::testing::TempDir()};
  size_t at = 0;
  for (const char* family : kFamilies) {
    const auto model = LoadHybrid(family);
    const auto head = LoadOwnHead(model);
    const auto work = MakeWork(18, 21, kWork);
    for (const Form& form : kForms) {
      const auto alone = RunUnbatched(model, work, {.threads = 1, .linear = form.policy, .prefill_chunk = 512});
      for (const size_t end = at + 2; at < end;) {  // the other two kinds with another family
        const DraftTreeKind kind = kKinds[at++ % 4];
        std::mt19937_64 random(at);
        const auto one_of = [&random](std::vector<size_t> values) { return values[random() % values.size()]; };
        const size_t num_draft_tokens = one_of({25, 3, 64, 1, 12, 8});
        const size_t min_draft_tokens = at % 3 == 2 ? 0 : num_draft_tokens;
        const bool is_tight = (at + at / 4) % 2 == 0;
        EngineOptions options{.threads = one_of({1, 2}),
                              .kv_policy = kPolicies[at % 6],
                              .kv_increment = one_of({5, 16}),
                              .linear = form.policy,
                              .max_batch = one_of({5, 32}),
                              .prefill_chunk = one_of({1, 7, 64, 512}),
                              .spill_folder = folders[at / 2 % 2],
                              .draft_head = head};
        EngineDriver roomy(model, options);
        if (is_tight) {  // for the longest request and a part of another
          Engine::Impl& impl = roomy.engine().impl();
          const uint64_t features = impl.NewDrafter(OptionsOf(kind, 1, 1), 0, nullptr)->feature_bytes();
          options.state_memory =
              (impl.NewState(0)->LedgerGrowth(kHybridContext, options.prefill_chunk) + features) * 3 / 2;
        }
        EngineDriver driver(model, options);
        const bool is_tree = kind != DraftTreeKind::kChain;
        std::vector<RequestId> ids;
        for (size_t i = 0; i < work.size(); ++i) {
          const DraftOptions drafts[] = {OptionsOf(kind, num_draft_tokens, min_draft_tokens),
                                         Ngram(num_draft_tokens, min_draft_tokens),
                                         Layers(kind, 1 + (i + at) % 3, num_draft_tokens, min_draft_tokens)};
          ids.push_back(driver.Submit(
              {.prompt = work[i].prompt, .generation = work[i].generation, .draft = drafts[(i + at) % 3]}));
        }
        driver.RunUntilIdle();
        for (size_t i = 0; i < work.size(); ++i) {
          const size_t drafter = (i + at) % 3;
          const Outcome& found = driver.outcome(ids[i]);
          ExpectSame(found, alone[i],
                     std::string(family) + ", " + form.name + ", " + kNames[drafter] + ", request " +
                         std::to_string(i) + ", run " + std::to_string(at));
          counts[{drafter, is_tree && drafter != kNgram}].Add(found.stats);
        }
        driver.engine().ClearPrefixCache();
        EXPECT_EQ(driver.engine().impl().memory->held(), 0U) << at;
        ASSERT_FALSE(HasFailure());
      }
    }
  }
  size_t preemptions = 0;
  for (const auto& [key, of] : counts) {
    std::printf(
        "  %s, %s: %zu of %zu draft tokens accepted in %zu steps, %zu cut, %zu later siblings, %zu preemptions\n",
        kNames[key.first], key.second ? "trees" : "chains", of.accepted, of.drafted, of.steps, of.cut, of.later,
        of.preemptions);
    EXPECT_GT(of.accepted, 20U) << kNames[key.first];
    EXPECT_GT(of.drafted - of.accepted, 50U) << kNames[key.first];
    preemptions += of.preemptions;
  }
  EXPECT_GT(counts[std::pair(kMtp, true)].later, 5U);
  EXPECT_GT(preemptions, 10U);
}

std::vector<const LinearLayer*> LinearLayersOf(SequenceState& state) {
  std::vector<const LinearLayer*> layers;
  for (size_t i = 0; i < state.num_layers(); ++i) {
    if (const LinearLayer* layer = LinearOf(state.layer(i))) layers.push_back(layer);
  }
  return layers;
}

// A linear layer at a moment.
struct Seen {
  LinearCounts counts;
  size_t base = 0, length = 0;
};

std::vector<Seen> See(SequenceState& state) {
  std::vector<Seen> seen;
  for (const LinearLayer* layer : LinearLayersOf(state))
    seen.push_back({layer->counts(), layer->base(), layer->length()});
  return seen;
}

// Of a layer whose longest step has so many rows: entries and inputs, no state.
uint64_t RingBytes(const LinearShape& shape, size_t rows) {
  const DeltaShape& d = shape.delta;
  const uint64_t element = d.form.dtype == DType::kF32 ? 4 : 2;
  const uint64_t entry = d.value_heads * (d.padded_value_dim() * element + 4) + d.key_heads * d.key_dim * element;
  constexpr uint64_t kPadding = 4 * 128;  // between the parts of a ring, and behind
  return (std::max(d.form.start, d.form.period) + 2 * rows) * entry +
         (shape.conv_width - 1 + rows) * shape.channels * 4 + kPadding;
}

// Draft tokens take rows. What is folded into a state is committed, once a boundary is passed, at most once a step; there is one state.
TEST(HybridDraft, StepsThatVerify_WriteNoStateOfDrafts) {
  constexpr size_t kMaxDraftTokens = 12, kTokens = 70;
  const Form never = {"kv 128, 8", {.form = LinearForm::kKv, .buffer = 8, .start = kHybridContext}};
  std::vector<Form> forms(std::begin(kForms), std::end(kForms));
  forms.push_back(never);
  for (const char* family : kFamilies) {
    const auto model = LoadHybrid(family);
    const auto head = LoadOwnHead(model);
    const std::vector<int32_t> prompt = GoldenFile(HybridFolder(family)).Ids(1, "input_ids");
    for (const Form& form : forms) {
      for (const DraftTreeKind kind : {DraftTreeKind::kChain, DraftTreeKind::kDynamic}) {
        SCOPED_TRACE(std::string(family) + ", " + form.name + (kind == DraftTreeKind::kChain ? "" : ", trees"));
        EngineDriver driver(model,
                            {.threads = 1, .kv_policy = KvPolicy::kUpfront, .linear = form.policy, .draft_head = head});
        Engine::Impl& impl = driver.engine().impl();
        const RequestId id = driver.Submit({.prompt = prompt,
                                            .generation = {.max_new_tokens = kTokens, .ignore_eos = true},
                                            .draft = OptionsOf(kind, kMaxDraftTokens, kMaxDraftTokens)});
        size_t verified = 0, without_writes = 0, rejected = 0;
        while (driver.outcome(id).ids.empty()) driver.Step();
        while (true) {
          SequenceState& state = impl.requests[0]->state();
          const std::vector<Seen> before = See(state);
          ASSERT_EQ(before.size(), 3U);
          const size_t tokens = driver.Step();
          if (driver.engine().idle()) break;
          const size_t rows = impl.scheduler->step()[0].tokens.size();
          if (rows == 1) continue;
          ++verified;
          rejected += rows - tokens;
          const std::vector<Seen> after = See(state);
          for (size_t i = 0; i < before.size(); ++i) {
            const LinearLayer& layer = *LinearLayersOf(state)[i];
            const DeltaClass& delta = layer.shape().delta.form;
            EXPECT_EQ(after[i].length, before[i].length + tokens);
            EXPECT_EQ(after[i].base, std::max(before[i].base, delta.Boundary(before[i].length)))
                << "what was committed";
            EXPECT_EQ(after[i].counts.writes - before[i].counts.writes, after[i].base != before[i].base ? 1U : 0U);
            size_t states = 0;
            uint64_t rings = 0;
            layer.ForEachBlock([&](const void* block, uint64_t bytes) {
              (block == &layer ? rings : states) += block == &layer ? bytes : 1;
            });
            EXPECT_EQ(states, after[i].base == 0 ? 0U : 1U);
            EXPECT_LE(rings, RingBytes(layer.shape(), 1 + kMaxDraftTokens));
          }
          without_writes += after[0].counts.writes == before[0].counts.writes ? 1 : 0;
        }
        EXPECT_GT(verified, 5U);
        EXPECT_GT(rejected, 20U);
        if (form.policy.buffer > 8 || form.policy.form == LinearForm::kKv) {
          EXPECT_GT(without_writes, 3U);
        }
        EXPECT_EQ(without_writes == verified, form.policy == never.policy) << "there is no state at all";
      }
    }
  }
}

// After a prompt that linear layers take as a whole their rings are short; draft tokens have room all the same.
TEST(HybridDraft, AfterALongPrompt_NoDraftTokensAreCut) {
  const auto model = LoadHybrid("qwen3_next_mtp");
  const auto head = LoadOwnHead(model);
  const std::vector<int32_t> ids = GoldenFile(HybridFolder("qwen3_next_mtp")).Ids(0, "greedy_ids");
  std::vector<int32_t> prompt;
  while (prompt.size() < 72) prompt.insert(prompt.end(), ids.begin(), ids.begin() + 24);
  const GenerationOptions generation{.max_new_tokens = 40, .ignore_eos = true};
  for (const Form& form : kForms) {
    const EngineOptions options{
        .threads = 1, .kv_policy = KvPolicy::kUpfront, .linear = form.policy, .draft_head = head};
    EngineDriver plain(model, options);
    const Outcome expected = plain.Run(prompt, generation);
    for (const DraftOptions& draft :
         {OptionsOf(DraftTreeKind::kChain, 6, 6), OptionsOf(DraftTreeKind::kFixed, 25, 25), Ngram(6, 6),
          Layers(DraftTreeKind::kChain, 3, 6, 6), Layers(DraftTreeKind::kFixed, 3, 25, 25)}) {
      EngineDriver driver(model, options);
      const RequestId id = driver.Submit({.prompt = prompt, .generation = generation, .draft = draft});
      driver.RunUntilIdle();
      const Outcome& found = driver.outcome(id);
      ExpectSame(found, expected, form.name);
      const DraftStats& drafts = found.stats.drafts;
      EXPECT_EQ(drafts.cut, 0U) << form.name;
      EXPECT_EQ(found.stats.draft_trouble, "") << form.name;
      const size_t wanted = std::min(draft.num_draft_tokens, DraftStats::kStepCounts - 1);
      if (draft.source != DraftSource::kNgram) {
        EXPECT_GT(drafts.steps_by_draft_tokens[wanted], 3U) << form.name;
      }
    }
  }
}

// Requests that continue from the states of others: cached rows bring the head no features.
TEST(HybridDraft, FromCachedPrefixes_GetWhatTheyGetWithout) {
  for (const char* family : kFamilies) {
    const auto model = LoadHybrid(family);
    const auto head = LoadOwnHead(model);
    const GoldenFile golden(HybridFolder(family));
    std::vector<int32_t> shared = golden.Ids(0, "input_ids");
    const std::vector<int32_t> more = golden.Ids(0, "greedy_ids");
    shared.insert(shared.end(), more.begin(), more.begin() + 16);
    std::vector<Work> work(9);
    for (size_t i = 0; i < work.size(); ++i) {
      work[i].prompt = shared;
      if (i % 3 == 1) work[i].prompt.insert(work[i].prompt.end(), more.begin() + 16, more.begin() + 20);
      if (i % 3 == 2) work[i].prompt.push_back(static_cast<int32_t>(40 + i));
      work[i].generation = {.max_new_tokens = 30, .temperature = i % 2 == 0 ? 0 : 0.8F, .ignore_eos = true};
    }
    for (Work& w : work) w.generation.seed = 7;
    for (const Form& form : kForms) {
      const auto alone = RunUnbatched(model, work, {.threads = 1, .linear = form.policy, .prefix_cache = false});
      for (const DraftTreeKind kind : {DraftTreeKind::kChain, DraftTreeKind::kDynamic}) {
        EngineDriver driver(model, {.threads = 1, .linear = form.policy, .prefill_chunk = 16, .draft_head = head});
        Counts counts;
        size_t hits = 0;
        for (size_t i = 0; i < work.size(); ++i) {
          const DraftOptions drafts[] = {OptionsOf(kind, 8, 8), Ngram(8, 8), Layers(kind, 3, 8, 8)};
          const RequestId id =
              driver.Submit({.prompt = work[i].prompt, .generation = work[i].generation, .draft = drafts[i / 3]});
          driver.RunUntilIdle();
          ExpectSame(driver.outcome(id), alone[i],
                     std::string(family) + ", " + form.name + ", request " + std::to_string(i));
          counts.Add(driver.outcome(id).stats);
          hits += driver.outcome(id).stats.cached_tokens != 0 ? 1 : 0;
        }
        EXPECT_GE(hits, 6U) << family << ", " << form.name;
        EXPECT_GT(counts.accepted, 20U) << family << ", " << form.name;
        EXPECT_GT(counts.drafted - counts.accepted, 20U) << family << ", " << form.name;
      }
    }
  }
}

TEST(MtpDraft, SavedRequests_GoOnWithAndWithout) {
  const auto model = LoadHybrid("qwen3_5_moe");
  const auto head = LoadOwnHead(model);
  const GenerationOptions generation{.max_new_tokens = 60, .temperature = 0.8F, .ignore_eos = true, .logprobs = 2};
  const std::vector<int32_t> prompt = GoldenFile(HybridFolder("qwen3_5_moe")).Ids(1, "input_ids");
  EngineDriver plain(model, {.threads = 1});
  const Outcome whole = plain.Run(prompt, generation);
  GenerationOptions part = generation;
  part.max_new_tokens = 17;
  for (const DraftTreeKind kind : {DraftTreeKind::kChain, DraftTreeKind::kDynamic}) {
    const DraftOptions draft = OptionsOf(kind, 8, 8);
    EngineDriver driver(model, {.threads = 1, .draft_head = head});
    const RequestId id = driver.Submit({.prompt = prompt, .generation = part, .draft = draft, .keep_state = true});
    driver.RunUntilIdle();
    for (const DraftOptions& then : {draft, DraftOptions{}}) {
      EngineDriver other(model, {.threads = 1, .draft_head = head});
      const Outcome rest = testing::ResumeSaved(other, driver.outcome(id), {.generation = generation, .draft = then});
      testing::ExpectJoined(driver.outcome(id), rest, whole, "most " + std::to_string(then.num_draft_tokens));
      EXPECT_EQ(rest.stats.drafted_tokens > 20, then.num_draft_tokens != 0) << rest.stats.drafted_tokens;
      EXPECT_EQ(rest.stats.accepted_tokens > 3, then.num_draft_tokens != 0) << rest.stats.accepted_tokens;
    }
  }
}

}  // namespace
}  // namespace tidemill::hybrid_draft_test
