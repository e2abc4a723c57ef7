// What befalls one request of 32 that run together befalls no other: the sampler or the text throws, logits are no numbers, memory is gone,
// someone cancels it. The other 31 get what they get in a run without it, bit by bit, and so does the same request afterwards.
//
// By hand: TIDEMILL_POINTS=500 for so many of them, TIDEMILL_SEED for other ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/engine_impl.h"
#include "tests/support/allocation_probe.h"
#include "tests/support/count_by_hand.h"
#include "tests/support/engine_driver.h"
#include "tests/support/random_requests.h"

namespace tidemill::engine_containment_test {
namespace {

using testing::EngineDriver;
using testing::ExpectSame;
using testing::FailAllocations;
using testing::MakeWork;
using testing::Outcome;
using testing::SmallContextModel;
using testing::WindowedModel;
using testing::Work;

constexpr size_t kRequests = 32;
constexpr size_t kNobody = kRequests;

enum Kind { kSamplerThrows, kTextThrows, kRowOfNan, kOneNan, kOneInfinity, kNoMemory, kCancelled, kKinds };
constexpr std::array<std::string_view, kKinds> kNames = {"sampler throws", "text throws",      "row of NaN", "one NaN",
                                                         "one infinity",   "allocation fails", "cancelled"};

// One engine's options and 32 requests, of which some are there at once and some come later.
struct Batch {
  std::string name;
  std::shared_ptr<const Model> model;
  EngineOptions options;
  std::vector<Work> work;
  std::vector<size_t> arrivals;  // [kRequests] the step before which each comes
  bool drafts = false;           // every other request has draft tokens checked
  bool sparse = false;           // each request attends in another way than the ones beside it
};

Batch MakeBatch(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&random](size_t n) { return static_cast<size_t>(random() % n); };
  constexpr KvPolicy kPolicies[] = {KvPolicy::kIterative, KvPolicy::kUpfront, KvPolicy::kBmc,
                                    KvPolicy::kGeometric, KvPolicy::kReserve, KvPolicy::kPaged};
  constexpr std::array<size_t, 4> kChunks = {7, 16, 64, 512};
  Batch batch;
  const bool windowed = seed % 3 == 2;
  batch.model = windowed ? WindowedModel() : SmallContextModel(seed % 3 == 0 ? DType::kQ8_0 : DType::kF32);
  batch.options = {.threads = 1 + below(2),
                   .kv_policy = kPolicies[seed % 6],
                   .kv_increment = (std::array<size_t, 3>{1, 5, 16})[below(3)],
                   .max_batch = kRequests,
                   .prefill_chunk = kChunks[below(4)]};
  batch.work = MakeWork(kRequests, seed, windowed ? testing::kWindowedWork : testing::WorkSpec());
  batch.drafts = below(2) == 0;
  batch.sparse = seed % 2 == 0;
  for (size_t i = 0; i < kRequests; ++i) {
    Work& work = batch.work[i];
    // Short prompts and long answers, so that many are in a step; a few prompts as they came are computed beside them.
    if (i % 8 != 0) {
      work.prompt.resize(std::min<size_t>(work.prompt.size(), 1 + i % 9));
      work.generation.max_new_tokens = static_cast<int32_t>(12 + below(20));
      work.generation.ignore_eos = i % 3 != 0;
    }
    if (!work.generation.max_new_tokens) work.generation.max_new_tokens = 24;
    if (i % 4 != 0) work.generation.logprobs = std::max(work.generation.logprobs, 0);
    batch.arrivals.push_back(i % 3 == 0 ? below(6) : 0);
  }
  batch.name = std::string(windowed        ? "windows"
                           : seed % 3 == 0 ? "q8_0"
                                           : "f32") +
               ", " + std::string(KvPolicyName(batch.options.kv_policy)) + " of " +
               std::to_string(batch.options.kv_increment) + ", chunk " + std::to_string(batch.options.prefill_chunk) +
               ", threads " + std::to_string(batch.options.threads) + (batch.drafts ? ", drafts" : "") +
               (batch.sparse ? ", sparse" : "") + ", batch " + std::to_string(seed);
  return batch;
}

AttentionPolicy PolicyOf(size_t request) {
  switch (request % 5) {
    case 0: return {.kind = AttentionKind::kSparq, .r = 3, .k = 8};
    case 1: return {.kind = AttentionKind::kTopk, .k = 5};
    case 2: return {.kind = AttentionKind::kSparq, .r = 5, .k = 12, .audit = 3, .floors = {.alphas = {0.5F}}};
    case 3: return {.kind = AttentionKind::kH2o, .k = 9};
    default: return {.kind = AttentionKind::kWindow, .k = 20};
  }
}

// What happens in one run of a batch.
struct Point {
  Kind kind = kSamplerThrows;
  size_t victim = kNobody;  // of kNoMemory: whoever is hit
  size_t nth = 0;           // of its tokens; of kNoMemory: of its step's allocations
  size_t step = 0;          // of kNoMemory
  uint64_t random = 0;      // which logit
};

struct BatchRun {
  std::vector<Outcome> outcomes;         // [kRequests]
  std::vector<size_t> step_allocations;  // what each step made
  bool happened = false;
  size_t beside = 0;  // sequences of the step in which it happened
  Outcome again;      // of the victim's request, submitted after everything has ended
};

// The requests of a batch, with what `point` says on the way.
BatchRun RunBatch(const Batch& batch, const std::optional<Point>& point) {
  BatchRun run;
  EngineDriver driver(batch.model, batch.options);
  Engine::Impl& impl = driver.engine().impl();
  std::vector<RequestId> ids(kRequests);
  const auto is_victim = [&](RequestId id) { return point && point->victim != kNobody && id == ids[point->victim]; };
  size_t sampled = 0, decoded = 0;
  const auto happens = [&] {
    run.happened = true;
    run.beside = impl.scheduler->step().size();
  };
  RequestFaults faults;
  faults.sampling = [&](RequestId id, std::span<float> logits) {
    if (!is_victim(id) || ++sampled != point->nth) return;
    const size_t at = point->random % logits.size();
    switch (point->kind) {
      case kSamplerThrows: happens(); throw std::bad_alloc();
      case kRowOfNan: happens(); return std::fill(logits.begin(), logits.end(), std::nanf(""));
      case kOneNan:
        happens();
        logits[at] = std::nanf("");
        return;
      case kOneInfinity:
        happens();
        logits[at] = std::numeric_limits<float>::infinity();
        return;
      case kCancelled: happens(); return driver.engine().Cancel(id);
      default: return;
    }
  };
  faults.decoding = [&](RequestId id) {
    if (!is_victim(id) || ++decoded != point->nth || point->kind != kTextThrows) return;
    happens();
    throw std::bad_alloc();
  };
  impl.faults = &faults;
  const auto submit = [&](size_t i) {
    const DraftOptions draft = batch.drafts && i % 2 == 0
                                   ? DraftOptions{.num_draft_tokens = 4, .min_draft_tokens = 4, .ngram_min = 1}
                                   : DraftOptions();
    const AttentionPolicy attention = batch.sparse ? PolicyOf(i) : AttentionPolicy();
    const bool evicts = attention.kind == AttentionKind::kH2o || attention.kind == AttentionKind::kWindow;
    return driver.Submit({.prompt = batch.work[i].prompt,
                          .generation = batch.work[i].generation,
                          .draft = evicts ? DraftOptions() : draft,
                          .attention = attention});
  };
  size_t submitted = 0;
  for (size_t step = 0; submitted < kRequests || !driver.engine().idle(); ++step) {
    for (size_t i = 0; i < kRequests; ++i) {
      if (batch.arrivals[i] != step) continue;
      ids[i] = submit(i);
      ++submitted;
    }
    const size_t before = testing::NumAllocations();
    const bool fails = point && point->kind == kNoMemory && point->step == step;
    FailAllocations failure(fails ? point->nth : 0, fails ? 1 : 0);
    const std::span<const Event> events = driver.engine().Step();
    if (failure.Stop()) happens();
    run.step_allocations.push_back(testing::NumAllocations() - before);
    driver.Consume(events);
  }
  for (const RequestId id : ids) run.outcomes.push_back(driver.outcome(id));
  impl.faults = nullptr;
  if (point && point->victim != kNobody) {
    const RequestId id = submit(point->victim);
    driver.RunUntilIdle();
    run.again = driver.outcome(id);
  }
  return run;
}

// The text of all these tokens: what has ended with an error has given all of it.
std::string TextOf(const Batch& batch, const std::vector<int32_t>& ids) {
  StreamDecoder decoder(batch.model->impl().text.tokenizer);
  std::string text;
  for (const int32_t id : ids) text += decoder.Push(id);
  return text + decoder.Finish();
}

struct Coverage {
  std::array<size_t, kKinds> points = {};
  size_t engines = 0, first_tokens = 0, beside_16 = 0, absorbed = 0, cancelled_too_late = 0, draft_tokens = 0;

  void Print(uint64_t first, uint64_t last) const {
    std::printf("  batches %llu to %llu;", static_cast<unsigned long long>(first),
                static_cast<unsigned long long>(last));
    for (size_t kind = 0; kind < kKinds; ++kind)
      std::printf(" %s: %zu%s", kNames[kind].data(), points[kind], kind + 1 < kKinds ? "," : "\n");
    std::printf(
        "  at a first token %zu, in a step of 16 sequences or more %zu, allocations that nobody missed %zu; right "
        "draft tokens beside it %zu\n",
        first_tokens, beside_16, absorbed, draft_tokens);
  }
};

void ExpectContained(const Batch& batch, const BatchRun& clean, const Point& point, Coverage* coverage) {
  const BatchRun run = RunBatch(batch, point);
  size_t victim = point.victim;
  const auto has_error = [](const Outcome& outcome) { return outcome.error.has_value(); };
  if (point.kind == kNoMemory) {
    const auto hit = std::find_if(run.outcomes.begin(), run.outcomes.end(), has_error);
    victim = static_cast<size_t>(hit - run.outcomes.begin());
    coverage->absorbed += victim == kNobody;
  }
  const std::string where = batch.name + "; " + std::string(kNames[point.kind]) + " at token " +
                            std::to_string(point.nth) + " of request " + std::to_string(victim) + ", step " +
                            std::to_string(point.step);
  EXPECT_TRUE(run.happened) << where;
  for (size_t i = 0; i < kRequests; ++i) {
    coverage->draft_tokens += run.outcomes[i].stats.accepted_tokens;
    if (i != victim) ExpectSame(run.outcomes[i], clean.outcomes[i], where + ", beside it request " + std::to_string(i));
  }
  ++coverage->points[point.kind];
  coverage->beside_16 += run.beside >= 16;
  if (victim == kNobody) return;
  const Outcome& found = run.outcomes[victim];
  const std::vector<int32_t>& ids = clean.outcomes[victim].ids;
  if (point.kind == kCancelled && found.finish != FinishReason::kCancelled) {  // its last token was in that step
    ++coverage->cancelled_too_late;
    return ExpectSame(found, clean.outcomes[victim], where);
  }
  EXPECT_EQ(found.fault, "") << where;
  EXPECT_EQ(found.last_events, 1U) << where;
  ASSERT_LE(found.ids.size(), ids.size()) << where;
  EXPECT_TRUE(std::equal(found.ids.begin(), found.ids.end(), ids.begin())) << where;
  EXPECT_EQ(found.text, TextOf(batch, found.ids)) << where;
  coverage->first_tokens += found.ids.empty();
  switch (point.kind) {
    case kSamplerThrows:
    case kTextThrows:
    case kNoMemory: EXPECT_EQ(found.error, ErrorCode::kOutOfMemory) << where; break;
    case kCancelled: EXPECT_EQ(found.finish, FinishReason::kCancelled) << where; break;
    default: EXPECT_EQ(found.error, ErrorCode::kNumericalError) << where; break;
  }
  if (point.kind != kNoMemory) {
    // A step that a cancellation interrupts has chosen nothing, and one that is complete anyway has chosen all.
    const size_t more = point.kind == kCancelled ? 1 + DraftOptions::kMax : 0;
    EXPECT_GE(found.ids.size() + 1 + more, point.nth) << where;
    EXPECT_LE(found.ids.size() + 1, point.nth + more) << where;
    ExpectSame(run.again, clean.outcomes[victim], where + ", once more");
  }
}

TEST(EngineContainment, FaultOfOneRequest_ChangesNoOther) {
  const uint64_t points = testing::CountByHand("TIDEMILL_POINTS", 21), first = testing::FirstSeed();
  constexpr uint64_t kPointsOfABatch = kKinds;  // one of each
  Coverage coverage;
  uint64_t seed = first;
  for (uint64_t done = 0; done < points; ++seed) {
    const Batch batch = MakeBatch(seed);
    const BatchRun clean = RunBatch(batch, std::nullopt);
    std::mt19937_64 random(seed + 1);
    const auto below = [&random](size_t n) { return static_cast<size_t>(random() % n); };
    for (uint64_t i = 0; i < kPointsOfABatch && done < points; ++i, ++done) {
      Point point{.kind = static_cast<Kind>(i), .random = random()};
      if (point.kind == kNoMemory) {
        std::vector<size_t> steps;
        for (size_t step = 0; step < clean.step_allocations.size(); ++step) {
          if (clean.step_allocations[step] != 0) steps.push_back(step);
        }
        ASSERT_FALSE(steps.empty()) << batch.name;
        point.step = steps[below(steps.size())];
        point.nth = below(clean.step_allocations[point.step]);
      } else {
        do point.victim = below(kRequests);
        while (clean.outcomes[point.victim].ids.empty());
        point.nth = 1 + below(clean.outcomes[point.victim].ids.size());
      }
      ExpectContained(batch, clean, point, &coverage);
      ASSERT_FALSE(HasFailure());
    }
  }
  coverage.Print(first, seed - 1);
  for (size_t kind = 0; kind < kKinds; ++kind) EXPECT_GE(coverage.points[kind], points / kKinds) << kNames[kind];
  EXPECT_GT(coverage.beside_16, points / 3);
  EXPECT_GT(coverage.first_tokens, 0U);
  EXPECT_LT(coverage.absorbed, std::max<uint64_t>(coverage.points[kNoMemory], 1));
  EXPECT_LT(coverage.cancelled_too_late, std::max<uint64_t>(coverage.points[kCancelled], 1));
  EXPECT_GT(coverage.draft_tokens, 0U);
}

}  // namespace
}  // namespace tidemill::engine_containment_test
