#include "runtime/eagle_drafter.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "base/check.h"
#include "decoding/tree_draft.h"

namespace tidemill {
namespace {

// Rows of a sequence in a step: waiting ones at most, or run nodes of a tree.
constexpr size_t kRowsOfOne = std::max(EagleDrafter::kKept, TreeDraft::kMaxAsked);

constexpr std::string_view kNoMemory = "there is no memory for the draft head's state";

void CopyRow(const float* from, const Matrix<float>& to, size_t row) {
  std::memcpy(to.row(row), from, to.cols * sizeof(float));
}

}  // namespace

Result<std::unique_ptr<EagleHead>> EagleHead::Create(const LanguageModel& model, Isa isa, ThreadPool& threads,
                                                     size_t target_rows, size_t max_sequences) {
  TIDEMILL_TRY(ctx, ExecutionContext::Create(isa, &threads, model.scratch_bytes()));
  std::unique_ptr<EagleHead> head(new EagleHead(model, std::move(ctx)));
  const size_t rows = std::max(kRowsOfOne, kDraftRowsOfSequence * max_sequences);
  TIDEMILL_TRY(executor, StepExecutor::Create(model, head->ctx_, rows));
  head->executor_ = std::move(executor);
  const size_t hidden = model.settings.hidden_size, width = model.features.width;
  TIDEMILL_TRY(memory, AlignedBuffer::Create((rows * hidden + target_rows * width) * sizeof(float)));
  head->memory_ = std::move(memory);
  float* floats = head->memory_.As<float>().data();
  head->own_features_ = {.taps = {&model.features.own_tap, 1}, .out = {floats, rows, hidden}};
  head->target_features_ = {.taps = model.features.target_taps, .out = {floats + rows * hidden, target_rows, width}};
  return head;
}

EagleDrafter::EagleDrafter(const Options& options, std::unique_ptr<SequenceState> state)
    : options_(options),
      state_(std::move(state), options.memory),
      counted_(&options.memory->ledger()),
      builder_(options.choice, options.tree, false) {
  max_kept_ = std::min(kKept, state_->max_length());
  max_asked_ = options_.tree == DraftTreeKind::kChain ? 0 : TreeDraft::kMaxAsked;
  ids_.reserve(std::min(options_.context + 1, kReservedDraftIds));
  keys_.reserve(kRowsOfOne);
  asked_nodes_.reserve(max_asked_);
}

void EagleDrafter::Append(int32_t id) {
  if (stopped_) return;
  try {
    ids_.push_back(id);
  } catch (const std::exception&) {  // std::bad_alloc
    Stop("there is no memory for the draft head's tokens");
  }
}

void EagleDrafter::AddFeature(size_t position, std::span<const float> feature) {
  if (stopped_) return;
  if (!HasMemory()) return;
  TIDEMILL_DCHECK(feature.size() == kept_.cols && position < ids_.size());
  if (position != next_position()) BeginAt(position);
  if (StepSequence step; num_kept_ == max_kept_) {
    if (NextOfKept(Wanted::kNothing, &step) == DraftNext::kStep) {
      const DraftForward on = forward();
      TappedOrder order(on.features, on.num_layers);
      (void)on.executor->Run({&step, 1}, {}, nullptr, order);  // nothing interrupts it
      TakeKept(0);
    } else {
      BeginAt(position);
    }
  }
  if (!stopped_) CopyRow(feature.data(), kept_, num_kept_++);
}

size_t EagleDrafter::num_floats() const {
  const LanguageModel& model = options_.head->model();
  return max_kept_ * model.features.width + (1 + 2 * max_asked_) * model.settings.hidden_size;
}

bool EagleDrafter::HasMemory() {
  if (memory_.size() != 0) return true;
  auto memory = AlignedBuffer::Create(num_floats() * sizeof(float));
  if (!memory.ok()) {
    Stop(kNoMemory);
    return false;
  }
  memory_ = std::move(memory).value();
  counted_.Set(feature_bytes());
  const LanguageModel& model = options_.head->model();
  const size_t hidden = model.settings.hidden_size, width = model.features.width;
  float* floats = memory_.As<float>().data();
  kept_ = {floats, max_kept_, width};
  asked_ = {kept_.row(0) + max_kept_ * width, 1 + max_asked_, hidden};
  read_ = {asked_.row(0) + (1 + max_asked_) * hidden, max_asked_, hidden};
  return true;
}

void EagleDrafter::Release() {
  BeginAt(0);
  memory_ = AlignedBuffer();
  counted_.Set(0);
}

void EagleDrafter::BeginAt(size_t position) {
  state_->Clear();
  num_kept_ = 0;
  first_ = position;
}

bool EagleDrafter::MakeRoomForKept() {
  DraftRoom room = state_.unused() < num_kept_ ? DraftRoom::kNotNow : state_.Reserve(num_kept_);
  if (room == DraftRoom::kNotNow && state_->length() != 0) {
    first_ += state_->length();
    state_->Clear();
    room = state_.Reserve(num_kept_);
  }
  if (room == DraftRoom::kNotNow) trouble_ = "there is no room for the draft head's state";
  if (room == DraftRoom::kNoMemory) Stop(kNoMemory);
  return room == DraftRoom::kYes;
}

DraftNext EagleDrafter::NextOfKept(Wanted wanted, StepSequence* step) {
  if (!MakeRoomForKept()) return Done();
  *step = {.state = state_.get(),
           .tokens = std::span(ids_).subspan(first_ + state_->length() + 1, num_kept_),
           .rows = wanted,
           .features = kept_.Rows(0, num_kept_)};
  return DraftNext::kStep;
}

void EagleDrafter::TakeKept(size_t first_row) {
  const auto ids = std::span(ids_).subspan(first_ + state_->length() + 1, num_kept_);
  keys_.assign(ids.begin(), ids.end());
  state_->Commit(keys_);
  CopyRow(options_.head->own_features().out.row(first_row + num_kept_ - 1), asked_, 0);
  num_kept_ = 0;
}

void EagleDrafter::Begin(size_t num_draft_tokens) {
  builder_.Begin(num_draft_tokens);
  asked_nodes_.clear();
  has_text_ = false;
  stage_ = Stage::kDone;
  if (stopped_ || num_draft_tokens == 0 || num_kept_ == 0 || ids_.size() != next_position() + 1) return;
  builder_.BeginText(ids_);
  stage_ = Stage::kKept;
}

DraftNext EagleDrafter::Next(size_t rows, StepSequence* step) {
  switch (stage_) {
    case Stage::kKept: return num_kept_ > rows ? DraftNext::kWait : NextOfKept(Wanted::kLast, step);
    case Stage::kChain: return NextOfChain(step);
    case Stage::kTree: return NextOfTree(rows, step);
    case Stage::kDone: break;
  }
  return DraftNext::kDone;
}

DraftNext EagleDrafter::Done() {
  stage_ = Stage::kDone;
  return DraftNext::kDone;
}

DraftNext EagleDrafter::NextOfChain(StepSequence* step) {
  if (state_.unused() == 0 || state_.Reserve(1) != DraftRoom::kYes) return Done();
  *step = {
      .state = state_.get(), .tokens = builder_.chain().last(1), .rows = Wanted::kLast, .features = asked_.Rows(0, 1)};
  return DraftNext::kStep;
}

size_t EagleDrafter::PlaceBehind(int32_t node) const {
  if (node < 0) return 0;
  const auto found = std::find(asked_nodes_.begin(), asked_nodes_.end(), node);
  TIDEMILL_DCHECK(found != asked_nodes_.end());
  return static_cast<size_t>(found - asked_nodes_.begin()) + 1;
}

DraftNext EagleDrafter::NextOfTree(size_t rows, StepSequence* step) {
  const size_t max_rows = std::min({options_.head->executor().max_rows(), read_.rows, state_.unused()});
  if (!builder_.PlanLevel(max_rows)) return Done();
  const TreeRows& level = builder_.rows();
  const size_t wanted = level.nodes().size();
  if (wanted > rows) return DraftNext::kWait;
  if (state_.Reserve(wanted) != DraftRoom::kYes) return Done();
  for (size_t i = 0; i < wanted; ++i) CopyRow(asked_.row(PlaceBehind(builder_.parent(level.nodes()[i]))), read_, i);
  *step = {.state = state_.get(),
           .tokens = level.ids(),
           .rows = Wanted::kLast,
           .parents = level.parents(),
           .num_last = level.num_asked(),
           .features = read_.Rows(0, wanted)};
  return DraftNext::kStep;
}

void EagleDrafter::Choose(size_t row, std::span<float> logits) { builder_.Choose(row, logits); }

void EagleDrafter::Ran(size_t first_row) {
  const Matrix<float>& own = options_.head->own_features().out;
  if (stage_ == Stage::kKept) {
    TakeKept(first_row);
    has_text_ = true;
    length_ = state_->length();
  } else if (stage_ == Stage::kChain) {
    const auto key = static_cast<RowKey>(builder_.chain().back());
    state_->Commit({&key, 1});
    CopyRow(own.row(first_row), asked_, 0);
  } else {
    const TreeRows& level = builder_.rows();
    const size_t rows = level.nodes().size();
    for (size_t i = rows - level.num_asked(); i < rows; ++i) {
      asked_nodes_.push_back(level.nodes()[i]);
      CopyRow(own.row(first_row + i), asked_, asked_nodes_.size());
    }
  }
  const Stage further = draft_order() == DraftOrder::kTree ? Stage::kTree : Stage::kChain;
  stage_ = builder_.Continue() ? further : Stage::kDone;
}

DraftTree EagleDrafter::End() {
  stage_ = Stage::kDone;
  if (!has_text_) return {};
  if (draft_order() != DraftOrder::kTree && !state_->Rollback(length_).ok()) BeginAt(first_ + length_);
  return builder_.Made();
}

void EagleDrafter::Stop(std::string_view why) {
  stopped_ = true;
  trouble_ = why;
  Release();
}

}  // namespace tidemill
