// A drafter that tells what another one proposes, unbatched or with batch mates.
#ifndef TIDEMILL_TESTS_SUPPORT_RECORDING_DRAFTER_H_
#define TIDEMILL_TESTS_SUPPORT_RECORDING_DRAFTER_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "runtime/draft_steps.h"

namespace tidemill::testing {

class RecordingDrafter : public StepDrafter {
 public:
  using Tell = std::function<void(size_t num_ids, const DraftTree&)>;  // how many ids were known, and what was said

  // `drafter`: one that takes steps.
  RecordingDrafter(std::unique_ptr<Drafter> drafter, Tell tell)
      : drafter_(std::move(drafter)), steps_(StepDrafter::Of(drafter_.get())), tell_(std::move(tell)) {}

  void Append(int32_t id) override {
    ++num_ids_;
    drafter_->Append(id);
  }
  bool reads_text() const override { return drafter_->reads_text(); }
  bool reads_features() const override { return drafter_->reads_features(); }
  void AddFeature(size_t position, std::span<const float> feature) override { drafter_->AddFeature(position, feature); }
  void Release() override { drafter_->Release(); }
  uint64_t feature_bytes() const override { return drafter_->feature_bytes(); }
  uint64_t held_feature_bytes() const override { return drafter_->held_feature_bytes(); }
  void HoldFeatures() override { drafter_->HoldFeatures(); }
  uint64_t state_bytes() const override { return steps_->state_bytes(); }
  void ReleaseState() override { steps_->ReleaseState(); }
  SequenceState* KnownState() override { return steps_->KnownState(); }
  std::unique_ptr<SequenceState> TakeState() override { return steps_->TakeState(); }
  void Continue(SequenceState& from, size_t length) override { steps_->Continue(from, length); }
  void ForEachBlock(const LayerState::BlockVisitor& visit) const override { steps_->ForEachBlock(visit); }
  DraftOrder draft_order() const override { return drafter_->draft_order(); }
  std::string_view trouble() const override { return drafter_->trouble(); }
  DraftForward forward() const override { return steps_->forward(); }
  void Begin(size_t num_draft_tokens) override { steps_->Begin(num_draft_tokens); }
  DraftNext Next(size_t rows, StepSequence* step) override { return steps_->Next(rows, step); }
  void Choose(size_t row, std::span<float> logits) override { steps_->Choose(row, logits); }
  void Ran(size_t first_row) override { steps_->Ran(first_row); }
  DraftTree End() override {
    const DraftTree tree = steps_->End();
    tell_(num_ids_, tree);
    return tree;
  }

 private:
  std::unique_ptr<Drafter> drafter_;
  StepDrafter* steps_;
  Tell tell_;
  size_t num_ids_ = 0;
};

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_RECORDING_DRAFTER_H_
