// The unused rows of a block: what trees of draft tokens take of them, step by step, and when a state grows for draft tokens instead of cutting them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "planner/machine_profile.h"
#include "runtime/engine_impl.h"
#include "tests/support/allocation_probe.h"
#include "tests/support/engine_driver.h"
#include "tests/support/random_requests.h"
#include "tests/support/scripted_drafters.h"
#include "tests/support/sloped_profile.h"
#include "tests/support/tiny_model.h"

namespace tidemill::unused_rows_test {
namespace {

using testing::BuildCountingModel;
using testing::DraftScript;
using testing::EngineDriver;
using testing::ExpectSame;
using testing::LoadModel;
using testing::Outcome;
using testing::ProposedTree;
using testing::ScriptedDrafter;
using testing::SlopedProfile;
using testing::SmallContextModel;

// Trees of the three nodes of BMC's Fig. 6 behind S11, the last sampled token: S22, S21, and S31 behind S21.
class FigureDrafter : public Drafter {
 public:
  enum class Right { kNone, kS22, kS21AndS31 };

  // `answer`: the prompt and what follows it. `script`: which nodes of each tree are right.
  FigureDrafter(std::vector<int32_t> answer, std::vector<Right> script)
      : answer_(std::move(answer)), script_(std::move(script)) {}

  void Append(int32_t) override { ++length_; }
  DraftTree Propose(size_t num_draft_tokens) override {
    const Right right = step_ < script_.size() ? script_[step_++] : Right::kNone;
    const int32_t next = answer_[length_], other = next == 3 ? 4 : 3;
    ids_ = {other, other + 2 == next ? other + 3 : other + 2, 5};
    if (right == Right::kS22) ids_[0] = next;
    if (right == Right::kS21AndS31) ids_[1] = next, ids_[2] = answer_[length_ + 1];
    const size_t nodes = std::min(num_draft_tokens, ids_.size());
    return {.ids = std::span(ids_).first(nodes), .parents = std::span(parents_).first(nodes)};
  }
  DraftOrder draft_order() const override { return DraftOrder::kTree; }

 private:
  std::vector<int32_t> answer_;
  std::vector<Right> script_;
  size_t length_ = 0, step_ = 0;
  std::vector<int32_t> ids_, parents_ = {-1, -1, 1};
};

// One step, in rows.
struct TraceLine {
  size_t length, capacity;  // when it was planned, and the block it ran in
  size_t unused;            // behind `length`
  size_t rows, idle;        // of them: taken by the step, left over
  size_t cut, committed;
  bool grew;

  friend bool operator==(const TraceLine&, const TraceLine&) = default;
  friend void PrintTo(const TraceLine& line, std::ostream* out) {
    *out << "{" << line.length << ", " << line.capacity << ", " << line.unused << ", " << line.rows << ", " << line.idle
         << ", " << line.cut << ", " << line.committed << ", " << (line.grew ? "true" : "false") << "}";
  }
};

// The paper: seven padded rows, a tree of four, three rows wasted; (S11, S22) is accepted, and one is wasted; S11 is accepted, and none is.
// Then what the text beside it says: fewer free rows than nodes bound the tree, one is plain decoding, and none lets the block grow.
TEST(UnusedRows, Figure6_StepByStep) {
  using Right = FigureDrafter::Right;
  const auto model = SmallContextModel(DType::kF32);
  const std::vector<int32_t> prompt = {7, 8, 9, 10, 11, 12, 13, 14, 15};
  const GenerationOptions generation{.max_new_tokens = 20, .ignore_eos = true};
  EngineDriver plain(model, {.threads = 1, .kv_policy = KvPolicy::kUpfront});
  const Outcome expected = plain.Run(prompt, generation);
  std::vector<int32_t> answer = prompt;
  answer.insert(answer.end(), expected.ids.begin(), expected.ids.end());
  answer.push_back(0);  // behind the last one
  EngineDriver driver(model, {.threads = 1, .kv_policy = KvPolicy::kBmc, .kv_increment = 8});
  Engine::Impl& impl = driver.engine().impl();
  impl.make_drafter = [&](const Request&, size_t, SequenceState&) {
    return std::make_unique<FigureDrafter>(
        answer, std::vector{Right::kS22, Right::kNone, Right::kNone, Right::kS21AndS31, Right::kNone, Right::kS21AndS31,
                            Right::kS21AndS31});
  };
  const uint64_t row_bytes = impl.NewState()->GrowthBytes(8) / 8;
  const RequestId id = driver.Submit(
      {.prompt = prompt, .generation = generation, .draft = {.num_draft_tokens = 3, .min_draft_tokens = 3}});
  driver.Step();  // the prompt
  const RequestId beside = plain.Submit(prompt, generation);
  plain.Step();
  std::vector<TraceLine> trace;
  while (trace.size() < 7) {
    SequenceState& state = impl.requests[0]->state();
    const size_t length = state.length(), before = state.bytes().reserved / row_bytes;
    driver.Step();
    ASSERT_FALSE(driver.engine().idle());
    const size_t capacity = state.bytes().reserved / row_bytes, rows = impl.scheduler->step()[0].tokens.size();
    trace.push_back({length, capacity, capacity - length, rows, capacity - length - rows, 4 - rows,
                     state.length() - length, capacity != before});
    SequenceState& decoded = plain.engine().impl().requests[0]->state();
    while (decoded.length() < state.length()) plain.Step();
    ASSERT_EQ(decoded.length(), state.length());
    const auto found = state.Checkpoint(), wanted = decoded.Checkpoint();
    ASSERT_TRUE(found.ok() && wanted.ok());
    EXPECT_EQ(*found, *wanted) << "all rows are those of plain decoding, in their places; step " << trace.size();
  }
  EXPECT_EQ(trace, (std::vector<TraceLine>{
                       // length, capacity, unused, rows, idle, cut, committed, grew
                       {9, 16, 7, 4, 3, 0, 2, false},
                       {11, 16, 5, 4, 1, 0, 1, false},
                       {12, 16, 4, 4, 0, 0, 1, false},
                       {13, 16, 3, 3, 0, 1, 2, false},
                       {15, 16, 1, 1, 0, 3, 1, false},
                       {16, 24, 8, 4, 4, 0, 3, true},
                       {19, 24, 5, 4, 1, 0, 3, false},
                   }));
  driver.RunUntilIdle();
  plain.RunUntilIdle();
  ExpectSame(driver.outcome(id), expected, "the answer");
  ExpectSame(plain.outcome(beside), expected, "without draft tokens");
  EXPECT_GE(driver.outcome(id).stats.drafts.cut, 2U);
  EXPECT_EQ(driver.outcome(id).stats.drafts.grown, 0U) << "a fixed number is cut, as in the paper";
}

// Growing costs so many seconds for each row that is copied; a step takes a microsecond, and a tenth of that for each row more.
struct GrowthPrice {
  const char* name;
  double copy;  // bytes a second
};
constexpr GrowthPrice kCheap = {"cheap", 1e18}, kDear = {"dear", 1};

void SetPrice(Engine::Impl& impl, const GrowthPrice& price) {
  impl.profile = SlopedProfile(impl.isa, 0.1);
  impl.profile->copy = price.copy;
  impl.profile->touch = 1 / price.copy;
  impl.step_seconds = [](size_t rows) { return 1e-6 + 1e-7 * static_cast<double>(rows - 1); };
}

// Draft tokens that the ids go on counting, which is right of a counting model; in every third draft only the first five do.
class CountingDrafter : public Drafter {
 public:
  void Append(int32_t id) override { last_ = id; }
  DraftTree Propose(size_t num_draft_tokens) override {
    ids_.resize(num_draft_tokens);
    std::iota(ids_.begin(), ids_.end(), last_ + 1);
    for (size_t i = 5; i < num_draft_tokens && num_drafts_ % 3 == 2; ++i) ids_[i] = 7;
    ++num_drafts_;
    return {.ids = ids_};
  }

 private:
  size_t num_drafts_ = 0;
  int32_t last_ = 0;
  std::vector<int32_t> ids_;
};

Request Counting(int32_t first, int32_t count) {
  return {
      .prompt = {first}, .generation = {.max_new_tokens = count, .ignore_eos = true}, .draft = {.num_draft_tokens = 8}};
}

void ExpectCounts(const Outcome& outcome, int32_t first, int32_t count, const std::string& where) {
  std::vector<int32_t> expected(static_cast<size_t>(count));
  std::iota(expected.begin(), expected.end(), first + 1);
  EXPECT_FALSE(outcome.error.has_value()) << where << ": " << outcome.message;
  EXPECT_EQ(outcome.ids, expected) << where;
}

TEST(UnusedRows, DraftTokensWorthMoreThanACopy_LetTheStateGrow) {
  const auto model = LoadModel("unused_rows", BuildCountingModel({.vocab = 400, .context = 256, .eos_token = 399}));
  for (const KvPolicy policy : {KvPolicy::kIterative, KvPolicy::kUpfront, KvPolicy::kBmc, KvPolicy::kGeometric,
                                KvPolicy::kReserve, KvPolicy::kPaged}) {
    for (const GrowthPrice& price : {kCheap, kDear}) {
      EngineDriver driver(model, {.threads = 1, .kv_policy = policy, .kv_increment = 16});
      SetPrice(driver.engine().impl(), price);
      driver.engine().impl().make_drafter = [](const Request&, size_t, SequenceState&) {
        return std::make_unique<CountingDrafter>();
      };
      const RequestId id = driver.Submit(Counting(20, 200));
      driver.RunUntilIdle();
      const std::string where = std::string(KvPolicyName(policy)) + ", " + price.name;
      ExpectCounts(driver.outcome(id), 20, 200, where);
      const DraftStats& drafts = driver.outcome(id).stats.drafts;
      if (policy == KvPolicy::kUpfront || policy == KvPolicy::kReserve) {
        EXPECT_EQ(drafts.cut + drafts.grown, 0U) << where << ": there is room for all";
      } else {
        const bool grows = policy != KvPolicy::kPaged && price.copy == kCheap.copy;
        EXPECT_GT(grows ? drafts.grown : drafts.cut, policy == KvPolicy::kGeometric ? 0U : 4U) << where;
        EXPECT_EQ(grows ? drafts.cut : drafts.grown, 0U) << where;
      }
    }
  }
}

// Nobody is preempted while a state holds a block that its text does not need yet, whatever the memory for states.
TEST(UnusedRows, GrowingForDraftTokens_PreemptsNobody) {
  constexpr size_t kIncrement = 16;
  const auto model = LoadModel("unused_rows", BuildCountingModel({.vocab = 400, .context = 128, .eos_token = 399}));
  const EngineOptions roomy{.threads = 1, .kv_policy = KvPolicy::kBmc, .kv_increment = kIncrement, .max_batch = 4};
  EngineDriver measured(model, roomy);
  const auto state = measured.engine().impl().NewState();
  const uint64_t row_bytes = state->GrowthBytes(kIncrement) / kIncrement;
  const uint64_t key_bytes = 4 * (state->LedgerGrowth(kIncrement, kIncrement) - kIncrement * row_bytes);
  size_t grown = 0, cut = 0, preemptions = 0, waits = 0;
  for (size_t rows = 96; rows <= 400; rows += kIncrement) {
    EngineOptions options = roomy;
    options.state_memory = rows * row_bytes + key_bytes;
    EngineDriver driver(model, options);
    Engine::Impl& impl = driver.engine().impl();
    SetPrice(impl, kCheap);
    impl.make_drafter = [](const Request&, size_t, SequenceState&) { return std::make_unique<CountingDrafter>(); };
    std::vector<RequestId> ids;
    for (int32_t i = 0; i < 4; ++i) ids.push_back(driver.Submit(Counting(20 + i, 70 + 3 * i)));
    struct Before {
      ActiveRequest* request;
      size_t needed, held;
    };
    while (!driver.engine().idle()) {
      std::vector<Before> before;
      for (const auto& request : impl.requests) {
        if (!request->running()) continue;
        const size_t known = request->state().length() + request->pending();
        before.push_back({request.get(), (known + kIncrement - 1) / kIncrement * kIncrement,
                          static_cast<size_t>(request->state().bytes().reserved / row_bytes)});
      }
      driver.Step();
      const auto is_there = [&](const Before& one) {
        return std::any_of(impl.requests.begin(), impl.requests.end(),
                           [&](const auto& request) { return request.get() == one.request; });
      };
      const auto preempted = static_cast<size_t>(std::count_if(
          before.begin(), before.end(), [&](const Before& one) { return is_there(one) && !one.request->running(); }));
      preemptions += preempted;
      const auto waiting = static_cast<size_t>(std::count_if(impl.requests.begin(), impl.requests.end(),
                                                             [](const auto& request) { return !request->running(); }));
      waits += waiting > preempted ? 1U : 0U;
      for (const Before& one : before) {
        if (waiting == preempted || !is_there(one) || !one.request->running()) continue;
        EXPECT_LE(one.request->state().bytes().reserved / row_bytes, std::max(one.held, one.needed))
            << rows << " rows; one waits for memory";
      }
      for (const Before& one : before) {
        if (preempted == 0) continue;
        EXPECT_LE(one.held, one.needed) << rows << " rows";
        if (is_there(one) && one.request->running()) {
          EXPECT_LE(one.request->state().bytes().reserved / row_bytes, one.needed) << rows << " rows";
        }
      }
    }
    for (int32_t i = 0; i < 4; ++i) {
      const Outcome& outcome = driver.outcome(ids[static_cast<size_t>(i)]);
      ExpectCounts(outcome, 20 + i, 70 + 3 * i, std::to_string(rows) + " rows");
      grown += outcome.stats.drafts.grown;
      cut += outcome.stats.drafts.cut;
    }
  }
  EXPECT_GT(grown, 20U);
  EXPECT_GT(cut, 20U);
  EXPECT_GT(preemptions, 10U);
  EXPECT_GT(waits, 50U);
}

// Each allocation of a step that grows for draft tokens fails in turn, once: then the step has the draft tokens that free rows are there for.
TEST(UnusedRows, StateThatCannotGrowForDraftTokens_KeepsThoseWithFreeRows) {
  const auto model = LoadModel("unused_rows", BuildCountingModel({.vocab = 400, .context = 128, .eos_token = 399}));
  // A step's rows when the state first grows for draft tokens, and with its n-th allocation failing.
  const auto rows_of = [&](size_t fail, bool* failed) {
    EngineDriver driver(model, {.threads = 1, .kv_policy = KvPolicy::kBmc, .kv_increment = 16});
    Engine::Impl& impl = driver.engine().impl();
    SetPrice(impl, kCheap);
    impl.make_drafter = [](const Request&, size_t, SequenceState&) { return std::make_unique<CountingDrafter>(); };
    const RequestId id = driver.Submit(Counting(20, 60));
    size_t rows = 0;
    while (!driver.engine().idle()) {
      SequenceState& state = impl.requests[0]->state();
      const size_t free = state.length() == 0 ? 0 : (16 - state.length() % 16) % 16;
      const bool will_grow = state.length() > 4 && free > 1 && free < 9 && rows == 0;
      testing::FailAllocations failure(will_grow ? fail : testing::FailAllocations::kAllFurther - 1);
      const auto events = driver.engine().Step();
      const bool has_failed = failure.Stop();
      if (will_grow) {
        *failed = has_failed;
        rows = impl.scheduler->step().empty() ? 0 : impl.scheduler->step()[0].tokens.size();
        EXPECT_TRUE(rows == 9 || rows == free || rows <= 1) << rows << ", free " << free;
        rows = rows == free ? 2 : rows == 9 ? 3 : 1;
      }
      driver.Consume(events);
    }
    if (!driver.outcome(id).error) ExpectCounts(driver.outcome(id), 20, 60, "allocation " + std::to_string(fail));
    return rows;
  };
  bool failed = true;
  ASSERT_EQ(rows_of(testing::FailAllocations::kAllFurther - 1, &failed), 3U) << "it grows where it can";
  size_t cut = 0;
  failed = true;
  for (size_t n = 0; failed; ++n) {
    ASSERT_LT(n, 100U);
    cut += rows_of(n, &failed) == 2 ? 1U : 0U;
  }
  EXPECT_GT(cut, 0U);
}

// Trees and chains of real steps, growing where it is cheap: answers are those without draft tokens.
TEST(UnusedRows, Growing_ChangesNoAnswer) {
  const auto model = SmallContextModel(DType::kQ8_0);
  const auto work = testing::MakeWork(18, 61);
  const auto alone = testing::RunUnbatched(model, work);
  size_t grown = 0;
  for (const bool trees : {false, true}) {
    for (const KvPolicy policy :
         {KvPolicy::kIterative, KvPolicy::kBmc, KvPolicy::kGeometric, KvPolicy::kReserve, KvPolicy::kPaged}) {
      EngineDriver driver(model, {.threads = 1, .kv_policy = policy, .kv_increment = 6, .max_batch = 5});
      SetPrice(driver.engine().impl(), kCheap);
      std::vector<ProposedTree> last(work.size());
      size_t at = 0;
      driver.engine().impl().make_drafter = [&](const Request& request, size_t, SequenceState&) {
        std::vector<int32_t> truth = request.prompt;
        truth.insert(truth.end(), alone[at].ids.begin(), alone[at].ids.end());
        ProposedTree* const tree = &last[at];
        return std::make_unique<ScriptedDrafter>(
            DraftScript{.truth = truth, .right = 0.9, .seed = at++, .trees = trees}, tree);
      };
      std::vector<RequestId> ids;
      for (const testing::Work& w : work)
        ids.push_back(
            driver.Submit({.prompt = w.prompt, .generation = w.generation, .draft = {.num_draft_tokens = 9}}));
      driver.RunUntilIdle();
      for (size_t i = 0; i < work.size(); ++i) {
        ExpectSame(driver.outcome(ids[i]), alone[i],
                   std::string(KvPolicyName(policy)) + ", request " + std::to_string(i));
        grown += driver.outcome(ids[i]).stats.drafts.grown;
      }
    }
  }
  EXPECT_GT(grown, 50U);
}

}  // namespace
}  // namespace tidemill::unused_rows_test
