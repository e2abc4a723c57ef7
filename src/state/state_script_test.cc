// The contract of sequence_state.h under random scripts: many sequences, forked from each other and dying in any order, beside a
// model that remembers everything. After every operation everything that the contract shows is compared.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "state/kv_layer.h"
#include "tests/support/state_kinds.h"
#include "tests/support/state_model.h"

namespace tidemill::state_script_test {
namespace {

using testing::AllStateKindPointers;
using testing::CheckpointOf;
using testing::NaiveSequence;
using testing::PlainCheckpoint;
using testing::StateKindPointer;
using testing::StateKindsThatForget;
using testing::StateKindUnderTest;
using testing::Subject;

struct ScriptOptions {
  uint64_t seed = 0;
  size_t max_length = 0;
  size_t max_step = 0;  // rows
  size_t operations = 0;
  size_t all_content_every = 1;  // operations; the sequence of the operation is always compared
};

class Script {
 public:
  Script(const StateKindUnderTest& kind, const ScriptOptions& options)
      : kind_(kind), options_(options), random_(options.seed) {
    live_.push_back({Subject(kind, options.max_length), {}});
  }

  // Empty, or what went wrong and the operations that led there.
  std::string Run() {
    for (size_t i = 0; i < options_.operations; ++i) {
      std::string fault = Operate(Below(live_.size()));
      if (fault.empty()) fault = CheckAll(i);
      if (fault.empty()) continue;
      std::string text =
          kind_.name() + ", seed " + std::to_string(options_.seed) + ", operation " + std::to_string(i) + ": " + fault;
      for (size_t from = log_.size() - std::min<size_t>(log_.size(), 25); from < log_.size(); ++from)
        text += "\n  " + log_[from];
      return text;
    }
    return {};
  }

  const std::map<std::string, size_t>& counts() const { return counts_; }

 private:
  struct Member {
    Subject subject;
    std::vector<std::vector<const std::byte*>> addresses;  // after its last operation
    size_t dropped = 0;                                    // positions, at least in one layer
  };

  static size_t PositionsDropped(const std::vector<std::vector<const std::byte*>>& addresses) {
    size_t most = 0;
    for (const auto& layer : addresses) {
      const auto first = std::find_if(layer.begin(), layer.end(), [](const std::byte* row) { return row != nullptr; });
      most = std::max(most, static_cast<size_t>(first - layer.begin()));
    }
    return most;
  }

  // Whether another one has that row where member `index` had it.
  bool IsSharedWith(size_t index, size_t layer, size_t position) const {
    const std::byte* const row = live_[index].addresses[layer][position];
    return std::any_of(live_.begin(), live_.end(), [&](const Member& other) {
      return &other != &live_[index] && !other.addresses.empty() && position < other.addresses[layer].size() &&
             other.addresses[layer][position] == row;
    });
  }
  // At least so many blocks hold these rows.
  static size_t NumSpans(const std::vector<const std::byte*>& rows) {
    size_t spans = 1;
    for (size_t i = 2; i < rows.size(); ++i) spans += rows[i] - rows[i - 1] != rows[i - 1] - rows[i - 2] ? 1U : 0U;
    return spans;
  }

  size_t Below(size_t n) { return static_cast<size_t>(random_() % n); }

  RowKey NewKey() {  // few, so that sequences meet again
    constexpr RowKey kKeys[] = {0, 1, ~RowKey{0}};
    return kKeys[Below(3)];
  }
  std::vector<RowKey> NewKeys(size_t n) {
    std::vector<RowKey> keys(n);
    for (RowKey& key : keys) key = NewKey();
    return keys;
  }

  void Log(size_t index, const std::string& operation, const std::string& numbers = {}) {
    ++counts_[operation];
    log_.push_back("[" + std::to_string(index) + "] " + operation + " " + numbers + " at " +
                   std::to_string(live_[index].subject.naive.keys.size()));
  }

  std::string Operate(size_t index) {
    Member& member = live_[index];
    operated_ = index;
    const size_t n = Below(options_.max_step + 1);
    switch (Below(16)) {
      case 0:
      case 1:
      case 2:
      case 3: return Step(member, n);
      case 4:
      case 5:
      case 6: return Draft(member, n);
      case 7: return Abandon(member, n);
      case 8:
      case 9: return Rollback(member);
      case 10:
      case 11: return Fork(member);
      case 12: return Die();
      case 13: return Below(2) == 0 ? Clear(member) : Compact(member);
      case 14: return Restore(member);
      default: return Refused(member);
    }
  }

  // Reserves and fills the rows with what must never be seen. False when the context is too small, which must change nothing.
  bool Reserve(Member& member, size_t n, std::string* fault) {
    SequenceState& state = *member.subject.state;
    const bool fits = n <= options_.max_length - state.length();
    const uint64_t most = state.bytes().reserved + (fits ? state.GrowthBytes(n) : 0);
    const auto reserved = state.Reserve(n);
    if (fits && state.bytes().reserved > most) *fault = "reserve took more than GrowthBytes said";
    if (reserved.ok() != fits || (!fits && reserved.error().code() != ErrorCode::kContextFull)) {
      *fault = "reserve " + std::to_string(n) + ": " + (reserved.ok() ? "ok" : reserved.error().message());
    }
    if (fits && reserved.ok()) {
      member.subject.WriteUncommitted(n);
      counts_["rows forgotten"] += member.subject.PoisonForgotten();
    }
    return fits && fault->empty();
  }

  std::string Step(Member& member, size_t n) {
    size_t m = Below(4) == 0 ? Below(n + 1) : n;  // of which some are committed
    if (m != n && n > kind_.longest_step_in_part()) m = 0;
    Log(operated_, "step", std::to_string(m) + " of " + std::to_string(n));
    std::string fault;
    if (!Reserve(member, n, &fault)) return fault;
    const auto keys = NewKeys(m);
    std::vector<uint32_t> slots(m);
    std::iota(slots.begin(), slots.end(), 0U);
    member.subject.WriteRows(slots, keys);
    fault = member.subject.StepDifference(keys);
    member.subject.state->Commit(keys);
    for (const RowKey key : keys) member.subject.naive.Append(kind_, key);
    return fault;
  }

  std::string Draft(Member& member, size_t n) {
    n = std::min(n, kind_.longest_draft());
    std::string fault;
    std::vector<uint32_t> path;
    std::string numbers;
    const size_t keep_of_8 = Below(9);
    for (uint32_t slot = 0; slot < n; ++slot) {
      if (Below(8) >= keep_of_8) continue;
      path.push_back(slot);
      numbers += std::to_string(slot) + " ";
    }
    Log(operated_, "path", "[ " + numbers + "] of " + std::to_string(n));
    if (!Reserve(member, n, &fault)) return fault;
    const auto keys = NewKeys(path.size());
    member.subject.WriteRows(path, keys);
    member.subject.state->CommitPath(path, keys);
    for (const RowKey key : keys) member.subject.naive.Append(kind_, key);
    return fault;
  }

  std::string Abandon(Member& member, size_t n) {
    Log(operated_, "abandon", std::to_string(n));
    std::string fault;
    Reserve(member, n, &fault);
    return fault;
  }

  std::string Rollback(Member& member) {
    SequenceState& state = *member.subject.state;
    const size_t first = state.earliest_rollback();  // Difference compares it with the model's
    if (first > state.length()) return "earliest_rollback beyond the end";
    for (const size_t below : {first - 1, first / 2, size_t{0}}) {
      if (below >= first) continue;
      const auto result = state.Rollback(below);
      if (result.ok() || result.error().code() != ErrorCode::kUnsupported) return "rollback below the earliest";
    }
    const size_t most = std::min(state.length() - first, Below(3) == 0 ? state.length() : options_.max_step);
    const size_t to = state.length() - Below(most + 1);
    Log(operated_, "rollback", "to " + std::to_string(to));
    const auto result = state.Rollback(to);
    if (!result.ok()) return result.error().message();
    member.subject.naive.Truncate(kind_, to);
    return {};
  }

  std::string Fork(Member& member) {
    if (live_.size() == 8) return Die();
    Log(operated_, "fork");
    auto child = member.subject.state->Fork();
    if (!child.ok()) return child.error().message();
    Subject subject(kind_, std::move(child).value(), member.subject.naive);
    auto addresses = subject.Addresses();
    if (addresses != member.addresses && member.addresses != decltype(addresses){}) return "the fork shares no rows";
    live_.push_back({std::move(subject), std::move(addresses)});
    return {};
  }

  std::string Die() {
    if (live_.size() == 1) return {};
    const size_t index = Below(live_.size());
    Log(index, "die");
    live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(index));
    operated_ = kNobody;
    return {};
  }

  std::string Compact(Member& member) {
    Log(operated_, "compact");
    const uint64_t before = member.subject.state->bytes().reserved;
    member.subject.state->Compact();
    return member.subject.state->bytes().reserved <= before ? "" : "compact took memory";
  }

  std::string Clear(Member& member) {
    Log(operated_, "clear");
    member.subject.state->Clear();
    member.subject.naive = NaiveSequence(kind_);
    return member.subject.state->bytes().reserved == 0 ? "" : "clear left memory";
  }

  // A checkpoint of this sequence goes into another one, or into a fresh one.
  std::string Restore(Member& member) {
    Log(operated_, "checkpoint");
    const NaiveSequence& naive = member.subject.naive;
    const auto bytes = CheckpointOf(*member.subject.state);
    if (bytes != PlainCheckpoint(kind_, naive)) return "the checkpoint tells how the sequence came about";
    const size_t index = Below(live_.size() + 1);
    if (index == live_.size()) {
      if (live_.size() == 8) return {};
      Subject fresh(kind_, options_.max_length);
      const auto result = fresh.state->Restore(bytes);
      if (!result.ok()) return result.error().message();
      fresh.naive = naive.Restored(kind_);
      live_.push_back({std::move(fresh), {}});
    } else {
      Log(index, "restore");
      const auto result = live_[index].subject.state->Restore(bytes);
      if (!result.ok()) return result.error().message();
      live_[index].subject.naive = naive.Restored(kind_);
      live_[index].addresses.clear();  // other rows
    }
    operated_ = index;
    return {};
  }

  // What must be refused and change nothing.
  std::string Refused(Member& member) {
    Log(operated_, "refused");
    SequenceState& state = *member.subject.state;
    for (const size_t beyond : {options_.max_length - state.length() + 1, ~size_t{0}, ~size_t{0} - state.length()}) {
      const auto reserved = state.Reserve(beyond);
      if (reserved.ok() || reserved.error().code() != ErrorCode::kContextFull) return "reserve past the context";
    }
    for (const size_t above : {state.length() + 1, ~size_t{0}}) {
      const auto rolled_back = state.Rollback(above);
      if (rolled_back.ok() || rolled_back.error().code() != ErrorCode::kInvalidArgument)
        return "rollback above the length";
    }
    return {};
  }

  std::string CheckAll(size_t operation) {
    for (size_t i = 0; i < live_.size(); ++i) {
      Member& member = live_[i];
      const bool content = i == operated_ || operation % options_.all_content_every == 0;
      std::string fault = member.subject.Difference(content);
      if (member.subject.GaveUp()) fault = "something was given up, though there is memory";
      auto addresses = member.subject.Addresses();
      if (i != operated_ && !member.addresses.empty() && addresses != member.addresses)
        fault = "rows moved by another sequence";
      for (size_t layer = 0; i == operated_ && layer < addresses.size() && !member.addresses.empty(); ++layer) {
        const auto &now = addresses[layer], &before = member.addresses[layer];
        const size_t kept = std::min(now.size(), before.size());
        for (size_t position = 0; position < kept; ++position) {
          if (now[position] == nullptr || now[position] == before[position]) continue;
          if (IsSharedWith(i, layer, position) && NumSpans(before) <= KvLayer::kMaxSpans) fault = "shared rows moved";
        }
      }
      const size_t dropped = PositionsDropped(addresses);
      if (i == operated_ && dropped > member.dropped) counts_["drop"] += 1;
      member.dropped = dropped;
      member.addresses = std::move(addresses);
      if (!fault.empty()) return "sequence " + std::to_string(i) + ": " + fault;
      for (size_t j = 0; j < i; ++j) {
        const Subject &a = live_[j].subject, &b = member.subject;
        if ((a.state->identity() == b.state->identity()) != (a.naive.keys == b.naive.keys)) {
          return "identity of sequences " + std::to_string(j) + " and " + std::to_string(i);
        }
      }
    }
    return {};
  }

  static constexpr size_t kNobody = static_cast<size_t>(-1);

  const StateKindUnderTest& kind_;
  ScriptOptions options_;
  std::mt19937_64 random_;
  std::vector<Member> live_;
  size_t operated_ = kNobody;  // index of the sequence whose rows may have moved
  std::vector<std::string> log_;
  std::map<std::string, size_t> counts_;
};

class SequenceStateScript : public ::testing::TestWithParam<StateKindPointer> {};

INSTANTIATE_TEST_SUITE_P(Kinds, SequenceStateScript, ::testing::ValuesIn(AllStateKindPointers()),
                         [](const auto& test) { return test.param->name(); });

TEST_P(SequenceStateScript, ShortSequences_EqualTheModel) {
  std::map<std::string, size_t> counts;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    Script script(*GetParam(), {.seed = seed, .max_length = 24, .max_step = 9, .operations = 500});
    ASSERT_EQ(script.Run(), "");
    for (const auto& [name, count] : script.counts()) counts[name] += count;
  }
  for (const char* name :
       {"step", "path", "abandon", "rollback", "fork", "die", "compact", "clear", "checkpoint", "restore", "refused"}) {
    EXPECT_GT(counts[name], 80U) << name;
  }
}

TEST_P(SequenceStateScript, SequencesThatGrow_EqualTheModel) {
  for (uint64_t seed = 101; seed <= 104; ++seed) {
    Script script(*GetParam(),
                  {.seed = seed, .max_length = 700, .max_step = 300, .operations = 100, .all_content_every = 8});
    ASSERT_EQ(script.Run(), "");
  }
}

class ForgettingStateScript : public ::testing::TestWithParam<StateKindPointer> {};

INSTANTIATE_TEST_SUITE_P(Kinds, ForgettingStateScript, ::testing::ValuesIn(StateKindsThatForget()),
                         [](const auto& test) { return test.param->name(); });

// Windows pass many times, blocks fill up and rows move to their front.
TEST_P(ForgettingStateScript, LongSequences_EqualTheModel) {
  size_t drops = 0, forgotten = 0;
  for (uint64_t seed = 201; seed <= 203; ++seed) {
    Script script(*GetParam(),
                  {.seed = seed, .max_length = 2500, .max_step = 130, .operations = 250, .all_content_every = 16});
    ASSERT_EQ(script.Run(), "");
    drops += script.counts().at("drop");
    forgotten += script.counts().at("rows forgotten");
  }
  EXPECT_GT(drops, 20U);
  EXPECT_GT(forgotten, 20U);
}

}  // namespace
}  // namespace tidemill::state_script_test
