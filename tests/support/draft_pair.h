// A target and a draft head for it through executors of their own, with the features that go from one to the other.
#ifndef TIDEMILL_TESTS_SUPPORT_DRAFT_PAIR_H_
#define TIDEMILL_TESTS_SUPPORT_DRAFT_PAIR_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "models/registry.h"
#include "tests/support/model_runner.h"

namespace tidemill::testing {

// Rows of floats, one behind the other.
struct Rows {
  size_t width = 0;
  std::vector<float> values = {};

  size_t count() const { return values.size() / width; }
  std::span<const float> row(size_t i) const { return std::span(values).subspan(i * width, width); }
  void Add(std::span<const float> row) { values.insert(values.end(), row.begin(), row.end()); }
  ConstMatrix<float> view() const { return {values.data(), count(), width}; }
};

struct Outputs {
  Rows logits = {}, features = {};
};

// A model through an executor, with the features that it reads and those that are taken.
inline Outputs RunTapped(StepExecutor& executor, const LanguageModel& model, std::span<const size_t> taps,
                         const StepSequence& sequence) {
  Outputs out;
  const size_t rows = sequence.tokens.size();
  out.logits.width = model.head_or_tied().rows();
  out.features.width = taps.size() * model.settings.hidden_size;
  out.features.values.resize(rows * out.features.width);
  const StepFeatures features{.taps = taps, .out = {out.features.values.data(), rows, out.features.width}};
  EXPECT_TRUE(sequence.state->Reserve(rows).ok());
  TappedOrder order(&features);
  EXPECT_TRUE(executor.Run(
      {&sequence, 1}, [&](size_t, size_t, std::span<float> row) { out.logits.Add(row); }, nullptr, order));
  return out;
}

class DraftPair {
 public:
  // Paths. `head`: the folder of a head; empty: it is the target's own.
  DraftPair(const std::string& target, const std::string& head, const RunnerOptions& options)
      : options_(options), target_(target, options), threads_(ThreadPool::Create(options.threads).value()) {
    files_ = ModelFiles::Open(head.empty() ? target : head).value();
    LoadSettings settings;
    settings.f32 = options.f32;
    settings.mapped = options.mapped;
    settings.threads = threads_.get();
    EXPECT_EQ(IsDraftHead(*files_), !head.empty());
    auto loaded = head.empty() ? LoadOwnDraftHead(*files_, target_.model(), settings)
                               : LoadDraftHead(*files_, target_.model(), settings);
    EXPECT_TRUE(loaded.ok()) << loaded.error().message();
    head_ = std::move(loaded).value();
    ctx_ = std::make_unique<ExecutionContext>(
        ExecutionContext::Create(options.isa, threads_.get(), head_->scratch_bytes()).value());
    executor_ = StepExecutor::Create(*head_, *ctx_, options.max_rows).value();
  }

  ModelRunner& target() { return target_; }
  const LanguageModel& head() const { return *head_; }
  StepExecutor& executor() { return *executor_; }  // of the head
  std::unique_ptr<SequenceState> NewHeadState() const {
    return head_->MakeState({.kv_dtype = DType::kF32, .max_length = options_.context});
  }

  // The target over tokens; a tree where there are parents. The caller commits.
  Outputs RunTarget(SequenceState& state, std::span<const int32_t> tokens, std::span<const int32_t> parents = {}) {
    return RunTapped(target_.executor(), target_.model(), head_->features.target_taps,
                     {.state = &state, .tokens = tokens, .rows = Wanted::kAll, .parents = parents});
  }
  Outputs RunHead(SequenceState& state, std::span<const int32_t> tokens, const ConstMatrix<float>& features,
                  std::span<const int32_t> parents = {}) {
    const size_t taps[] = {head_->features.own_tap};
    return RunTapped(
        *executor_, *head_, taps,
        {.state = &state, .tokens = tokens, .rows = Wanted::kAll, .parents = parents, .features = features});
  }

  int32_t TargetId(size_t draft_id) const {
    const std::vector<int32_t>& ids = head_->features.target_ids;
    return ids.empty() ? static_cast<int32_t>(draft_id) : ids[draft_id];
  }

 private:
  RunnerOptions options_;
  ModelRunner target_;
  std::unique_ptr<ThreadPool> threads_;
  std::optional<ModelFiles> files_;
  std::unique_ptr<LanguageModel> head_;
  std::unique_ptr<ExecutionContext> ctx_;
  std::unique_ptr<StepExecutor> executor_;
};

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_DRAFT_PAIR_H_
