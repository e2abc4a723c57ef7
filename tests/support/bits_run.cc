#include "tests/support/bits_run.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "base/check.h"
#include "tests/support/bits_covering.h"

namespace tidemill::testing {
namespace {

template <typename T>
T OrStop(Result<T> result, const char* what) {
  if (!result.ok()) {
    std::fprintf(stderr, "%s: %s\n", what, result.error().message().c_str());
    std::exit(1);
  }
  if constexpr (!std::is_void_v<T>) return std::move(result).value();
}

// A sequence that is there so that ours has neighbours: a prompt in chunks, then single tokens, then it leaves.
struct Companion {
  std::unique_ptr<SequenceState> state;
  std::vector<int32_t> ids;
  size_t prompt = 0;      // ids of the prompt; the rest comes one by one
  size_t chunk = 1;       // of the prompt
  size_t idle_steps = 0;  // until the next one joins, once this one has left
  Wanted wanted = Wanted::kLast;
  RowWant want = RowWant::kLogits;

  bool present() const { return state != nullptr; }
  size_t NextTokens() const { return state->length() < prompt ? std::min(chunk, prompt - state->length()) : 1; }
};

class BatchMateRun {
 public:
  BatchMateRun(ModelRunner& runner, std::span<const int32_t> ids, const BitsPlan& plan,
               std::unique_ptr<SequenceState>& state, const PositionSink& sink)
      : runner_(runner),
        ids_(ids),
        plan_(plan),
        state_(state),
        sink_(sink),
        random_(plan.seed),
        companions_(plan.batch - 1) {
    TIDEMILL_CHECK(plan.batch >= 1 && plan.index < plan.batch && plan.chunk >= 1);
    TIDEMILL_CHECK(runner.executor().max_rows() >= plan.chunk + (plan.batch == 1 ? 0 : kBatchMateRows));
    for (Companion& companion : companions_) Join(companion);
  }

  BitsReport Run() {
    begin_ = state_->length();
    const bool straight = plan_.history == History::kStraight;
    size_t next_event = straight ? ids_.size() : NextEvent();  // a step ends there
    while (state_->length() < ids_.size()) {
      if (state_->length() == next_event) {
        if (plan_.history == History::kRolledBack)
          RollBack();
        else
          Fork();
        next_event = NextEvent();
      }
      Step(std::min(plan_.chunk, next_event - state_->length()));
    }
    return report_;
  }

 private:
  size_t NextEvent() {
    return std::min(ids_.size(), state_->length() + 1 + random_.Below(std::max<size_t>(2, (ids_.size() - begin_) / 3)));
  }

  void Join(Companion& companion) {
    companion.state = runner_.NewState();
    companion.prompt = 1 + random_.Below(40);
    companion.ids =
        RandomIds(random_.Next(), companion.prompt + random_.Below(24), runner_.model().settings.vocab_size);
    companion.chunk = std::array<size_t, 4>{1, 3, 16, 40}[random_.Below(4)];
    companion.wanted = std::array{Wanted::kNothing, Wanted::kLast, Wanted::kAll}[random_.Below(3)];
    companion.want = random_.Below(4) == 0 ? RowWant::kHidden : RowWant::kLogits;
    ++report_.joins;
  }

  void Leave(Companion& companion) {
    companion.state.reset();
    companion.idle_steps = random_.Below(3);
    ++report_.leaves;
  }

  // The batch mates is there in bursts and may use about as many rows as our sequence, so that a run of single tokens stays cheap.
  bool BatchMatesCome(size_t own_rows) {
    const auto burst = static_cast<ptrdiff_t>(8 * plan_.batch);
    credit_ = report_.steps == 0 ? burst : std::min(credit_ + static_cast<ptrdiff_t>(own_rows), 2 * burst);
    if (credit_ >= burst) burst_ = true;
    if (credit_ <= 0) burst_ = false;
    return burst_ && plan_.batch > 1;
  }

  void Step(size_t own) {
    const bool batch_mates = BatchMatesCome(own);
    step_.clear();
    who_.clear();
    size_t rows_left = kBatchMateRows, prompts = own > 1, singles = own == 1;
    for (size_t i = 0; i < plan_.batch; ++i) {
      if (i == plan_.index) {
        OrStop(state_->Reserve(own), "reserve");
        step_.push_back({.state = state_.get(),
                         .tokens = ids_.subspan(state_->length(), own),
                         .rows = Wanted::kAll,
                         .sparse_from = runner_.sparse_from()});
        who_.push_back(nullptr);
        continue;
      }
      if (!batch_mates) continue;
      Companion& companion = companions_[i < plan_.index ? i : i - 1];
      if (!companion.present()) {
        if (companion.idle_steps != 0) {
          --companion.idle_steps;
          continue;
        }
        Join(companion);
      }
      // Each of those to come keeps a row.
      const size_t tokens = std::min(companion.NextTokens(), rows_left - (plan_.batch - 1 - i));
      rows_left -= tokens;
      credit_ -= static_cast<ptrdiff_t>(tokens);
      (tokens > 1 ? prompts : singles) += 1;
      OrStop(companion.state->Reserve(tokens), "reserve for batch mates");
      step_.push_back({.state = companion.state.get(),
                       .tokens = std::span<const int32_t>(companion.ids).subspan(companion.state->length(), tokens),
                       .rows = companion.wanted,
                       .want = companion.want,
                       .sparse_from = runner_.sparse_from()});
      who_.push_back(&companion);
    }
    const size_t first = state_->length();
    runner_.executor().Run(
        step_,
        [&](size_t sequence, size_t token, std::span<float> values) {
          if (who_[sequence] == nullptr) sink_(first + token, values);
        },
        nullptr);
    for (size_t s = 0; s < step_.size(); ++s) {
      step_[s].state->Commit(KeysOf(step_[s].tokens));
      if (who_[s] != nullptr && who_[s]->state->length() == who_[s]->ids.size()) Leave(*who_[s]);
    }
    ++report_.steps;
    report_.full_steps += step_.size() == plan_.batch;
    report_.mixed_steps += prompts != 0 && singles != 0;
  }

  // Feeds other tokens to a state of this sequence; the last step is abandoned when `commit` is false.
  void FeedOthers(SequenceState& state, size_t count, bool commit) {
    const auto others = RandomIds(random_.Next(), count, runner_.model().settings.vocab_size);
    const size_t chunk = 1 + random_.Below(count);
    for (size_t first = 0; first < count; first += chunk) {
      const auto part = std::span<const int32_t>(others).subspan(first, std::min(chunk, count - first));
      OrStop(state.Reserve(part.size()), "reserve for others");
      const StepSequence step{
          .state = &state, .tokens = part, .rows = Wanted::kLast, .sparse_from = runner_.sparse_from()};
      runner_.executor().Run(
          {&step, 1}, [](size_t, size_t, std::span<float>) {}, nullptr);
      if (commit) state.Commit(KeysOf(part));
    }
  }

  // For a state with room for one at least.
  size_t OtherCount(const SequenceState& state) {
    return std::min(1 + random_.Below(plan_.max_others), state.max_length() - state.length());
  }

  void RollBack() {
    const size_t length = state_->length();
    if (length == state_->max_length()) return;
    FeedOthers(*state_, OtherCount(*state_), false);
    FeedOthers(*state_, OtherCount(*state_), true);
    if (random_.Below(2) == 0) state_->Compact();
    // By less than a run gains between two events, or it never ends.
    const size_t most = std::clamp<size_t>((ids_.size() - begin_) / 8, 2, 40);
    OrStop(state_->Rollback(std::max(begin_, length - std::min(length, random_.Below(most)))), "roll back");
    ++report_.rollbacks;
  }

  void Fork() {
    if (state_->length() == state_->max_length()) return;
    others_.push_back(OrStop(state_->Fork(), "fork"));
    if (random_.Below(2) == 0) std::swap(others_.back(), state_);
    for (auto& other : others_) {
      if (other->length() < other->max_length()) FeedOthers(*other, OtherCount(*other), true);
    }
    if (others_.size() == 3) others_.erase(others_.begin());  // some live on, some go
    ++report_.forks;
  }

  ModelRunner& runner_;
  std::span<const int32_t> ids_;
  const BitsPlan& plan_;
  std::unique_ptr<SequenceState>& state_;
  const PositionSink& sink_;
  BitsRandom random_;
  std::vector<Companion> companions_;
  std::vector<std::unique_ptr<SequenceState>> others_;  // other ends of forks
  std::vector<StepSequence> step_;
  std::vector<Companion*> who_;  // of each sequence of the step; null: ours
  size_t begin_ = 0;
  ptrdiff_t credit_ = 0;
  bool burst_ = false;
  BitsReport report_;
};

std::string Hex(float value) {
  char text[48];
  std::snprintf(text, sizeof(text), "%.9g (0x%08x)", static_cast<double>(value), std::bit_cast<uint32_t>(value));
  return text;
}

}  // namespace

std::vector<int32_t> RandomIds(uint64_t seed, size_t count, size_t vocab) {
  BitsRandom random(seed);
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) id = static_cast<int32_t>(random.Below(vocab));
  return ids;
}

BitsReport RunWithBatchMates(ModelRunner& runner, std::span<const int32_t> ids, const BitsPlan& plan,
                             std::unique_ptr<SequenceState>& state, const PositionSink& sink) {
  return BatchMateRun(runner, ids, plan, state, sink).Run();
}

BitsReference::BitsReference(ModelRunner& runner, std::span<const int32_t> ids)
    : vocab_(runner.model().settings.vocab_size),
      ids_(ids.begin(), ids.end()),
      state_(runner.NewState()),
      seen_(ids.size()) {
  logits_.resize(ids.size() * vocab_);
  RunWithBatchMates(runner, ids, {}, state_, [&](size_t position, std::span<const float> row) {
    std::copy(row.begin(), row.end(), logits_.begin() + static_cast<ptrdiff_t>(position * vocab_));
  });
}

std::unique_ptr<SequenceState> BitsReference::StateAt(size_t length) const {
  auto fork = OrStop(state_->Fork(), "fork the reference");
  OrStop(fork->Rollback(length), "roll back the reference");
  return fork;
}

std::vector<std::byte> BitsReference::Checkpoint(size_t length) const {
  return OrStop(StateAt(length)->Checkpoint(), "checkpoint of the reference");
}

uint64_t BitsReference::LogitsHash(size_t length) const {
  FnvHash hash;
  hash.Add(std::as_bytes(std::span(logits_).first(length * vocab_)));
  return hash.value();
}

uint64_t BitsReference::StateHash(size_t length) const {
  const auto state = StateAt(length);
  const auto checkpoint = OrStop(state->Checkpoint(), "checkpoint of the reference");
  FnvHash hash;
  hash.Add(std::span(checkpoint).last(state->bytes().committed));
  return hash.value();
}

PositionSink BitsReference::Comparer() {
  return [this](size_t position, std::span<const float> row) {
    const float* expected = logits_.data() + position * vocab_;
    TIDEMILL_CHECK(row.size() == vocab_);
    seen_[position] = true;
    if (!difference_.empty() || std::memcmp(expected, row.data(), vocab_ * sizeof(float)) == 0) return;
    size_t i = 0, count = 0, first = vocab_;
    for (; i < vocab_; ++i) {
      if (std::memcmp(expected + i, &row[i], sizeof(float)) == 0) continue;
      first = std::min(first, i);
      ++count;
    }
    difference_ = "logits of position " + std::to_string(position) + ": index " + std::to_string(first) +
                  ": expected " + Hex(expected[first]) + ", got " + Hex(row[first]) + "; " + std::to_string(count) +
                  " of " + std::to_string(vocab_) + " differ";
  };
}

std::string BitsReference::CompareLogits(size_t first, size_t length) {
  std::string found = std::move(difference_);
  const std::vector<bool> seen = std::move(seen_);
  difference_.clear();
  seen_.assign(ids_.size(), false);
  for (size_t position = first; position < length && found.empty(); ++position) {
    if (!seen[position]) found = "logits of position " + std::to_string(position) + " never came";
  }
  return found;
}

std::string BitsReference::CompareState(SequenceState& state) const {
  const std::vector<std::byte> expected = Checkpoint(state.length());
  const std::vector<std::byte> actual = OrStop(state.Checkpoint(), "checkpoint");
  if (actual == expected) return "";
  if (actual.size() != expected.size()) {
    return "state: expected " + std::to_string(expected.size()) + " bytes, got " + std::to_string(actual.size());
  }
  const auto at =
      static_cast<size_t>(std::mismatch(expected.begin(), expected.end(), actual.begin()).first - expected.begin());
  return "state: byte " + std::to_string(at) + " of " + std::to_string(expected.size()) + ": expected " +
         std::to_string(std::to_integer<int>(expected[at])) + ", got " +
         std::to_string(std::to_integer<int>(actual[at]));
}

}  // namespace tidemill::testing
