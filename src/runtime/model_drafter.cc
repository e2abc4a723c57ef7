#include "runtime/model_drafter.h"

#include <algorithm>
#include <exception>
#include <utility>

namespace tidemill {
namespace {

// Rows of one step of a draft model: enough for prompts, with buffers that are small beside the target's; at least what the most
// sequences need. They do not count as state memory.
constexpr size_t kBufferBytes = size_t{4} << 20;
constexpr size_t kMinRows = 32, kMaxRows = 256;

// Draft prefill tokens that run before the target's next step.
constexpr size_t kRowsAtOnce = 512;

DraftChoice::Options Within(DraftChoice::Options choice, size_t vocab_size) {
  choice.vocab_size = std::min(choice.vocab_size, vocab_size);
  return choice;
}

}  // namespace

Result<std::unique_ptr<DraftModel>> DraftModel::Create(const LanguageModel& model, Isa isa, ThreadPool& threads,
                                                       size_t max_sequences) {
  TIDEMILL_TRY(ctx, ExecutionContext::Create(isa, &threads, model.scratch_bytes()));
  std::unique_ptr<DraftModel> draft(new DraftModel(model, std::move(ctx)));
  const size_t fitting = std::clamp(kBufferBytes / StepBuffers::RowBytes(model.step_shape(), isa), kMinRows, kMaxRows);
  const size_t rows = std::max(fitting, kDraftRowsOfSequence * max_sequences);
  TIDEMILL_TRY(executor, StepExecutor::Create(model, draft->ctx_, rows));
  draft->executor_ = std::move(executor);
  return draft;
}

ModelDrafter::ModelDrafter(const Options& options, std::unique_ptr<SequenceState> state)
    : options_(options),
      state_(std::move(state), options.memory),
      builder_(Within(options.choice, options.model->settings.vocab_size), options.tree,
               options.mask_token.has_value()) {
  ids_.reserve(std::min(state_->max_length(), kReservedDraftIds));
  ran_.reserve(ids_.capacity());
  keys_.reserve(options_.executor->max_rows());
  masked_.reserve(options_.mask_token ? keys_.capacity() : 0);
}

void ModelDrafter::Append(int32_t id) {
  if (stopped_) return;
  if (static_cast<size_t>(id) >= options_.model->settings.vocab_size)
    return Stop("the text has a token that the draft model does not know");
  if (ids_.size() == state_->max_length()) return Stop("the draft model's context is full");
  try {
    ids_.push_back(id);
  } catch (const std::exception&) {  // std::bad_alloc
    Stop("there is no memory for the draft model's tokens");
  }
}

void ModelDrafter::Begin(size_t num_draft_tokens) {
  max_ = num_draft_tokens;
  builder_.Begin(num_draft_tokens);
  num_caught_up_ = 0;
  has_text_ = false;
  stage_ = Stage::kDone;
  if (stopped_ || num_draft_tokens == 0 || ids_.empty()) return;
  StepBack();
  stage_ = Stage::kText;
}

DraftNext ModelDrafter::Next(size_t rows, StepSequence* step) {
  switch (stage_) {
    case Stage::kText: return NextOfText(rows, step);
    case Stage::kChain: return state_.unused() == 0 ? Done() : NextOf(builder_.chain().last(1), Wanted::kLast, 0, step);
    case Stage::kTree: return NextOfTree(rows, step);
    case Stage::kDone: break;
  }
  return DraftNext::kDone;
}

DraftNext ModelDrafter::NextOfText(size_t rows, StepSequence* step) {
  const size_t all_rows = options_.executor->max_rows();
  const std::span<const int32_t> ids = std::span(ids_).subspan(ran_.size());
  const bool at_once = draft_order() == DraftOrder::kAtOnce;
  const size_t masks = at_once ? std::min({max_ - 1, all_rows - 1, state_->max_length() - ids_.size()}) : 0;
  is_part_ = ids.size() + masks > all_rows;
  if (is_part_) {
    if (num_caught_up_ >= kRowsAtOnce) return Done();
    return NextOf(ids.first(std::min(rows, ids.size() - 1)), Wanted::kNothing, 0, step, ids.size());
  }
  if (ids.size() + masks > rows) return DraftNext::kWait;
  builder_.BeginText(ids_);
  return NextOf(ids, Wanted::kLast, masks, step);
}

DraftNext ModelDrafter::NextOf(std::span<const int32_t> ids, Wanted wanted, size_t masks, StepSequence* step,
                               size_t all) {
  if (!MakeRoom(ids.size() + masks, std::max(ids.size() + masks, all))) return Done();
  running_ = ids;
  if (masks != 0) {
    masked_.assign(ids.begin(), ids.end());
    masked_.insert(masked_.end(), masks, *options_.mask_token);
    ids = masked_;
  }
  *step = {.state = state_.get(), .tokens = ids, .rows = wanted, .num_last = masks + 1};
  return DraftNext::kStep;
}

DraftNext ModelDrafter::NextOfTree(size_t rows, StepSequence* step) {
  if (!builder_.PlanLevel(std::min(options_.executor->max_rows(), state_.unused()))) return Done();
  const TreeRows& level = builder_.rows();
  if (level.nodes().size() > rows) return DraftNext::kWait;
  if (!MakeRoom(level.nodes().size(), level.nodes().size())) return Done();
  *step = {.state = state_.get(),
           .tokens = level.ids(),
           .rows = Wanted::kLast,
           .parents = level.parents(),
           .num_last = level.num_asked()};
  return DraftNext::kStep;
}

DraftNext ModelDrafter::Done() {
  stage_ = Stage::kDone;
  return DraftNext::kDone;
}

void ModelDrafter::Choose(size_t row, std::span<float> logits) { builder_.Choose(row, logits); }

void ModelDrafter::Ran(size_t /*first_row*/) {
  if (stage_ != Stage::kTree) {
    keys_.assign(running_.begin(), running_.end());
    state_->Commit(keys_);
    ran_.insert(ran_.end(), running_.begin(), running_.end());
  }
  if (stage_ == Stage::kText && is_part_) {
    num_caught_up_ += running_.size();
    return;
  }
  has_text_ = true;
  const Stage further = draft_order() == DraftOrder::kTree ? Stage::kTree : Stage::kChain;
  stage_ = builder_.Continue() ? further : Stage::kDone;
}

DraftTree ModelDrafter::End() {
  stage_ = Stage::kDone;
  if (!has_text_)
    return {.ids = {}, .empty = num_caught_up_ != 0 ? DraftTree::Empty::kReadText : DraftTree::Empty::kNothing};
  return builder_.Made();
}

void ModelDrafter::StepBack() {
  const size_t both = std::min(ids_.size(), ran_.size());
  while (agreed_ < both && ids_[agreed_] == ran_[agreed_]) ++agreed_;
  agreed_ = std::min(agreed_, ids_.size() - 1);  // the last one runs again, for its logits
  if (agreed_ == ran_.size()) return;
  if (state_->Rollback(agreed_).ok()) {
    ran_.resize(agreed_);
  } else {  // too far for what windows left
    Release();
  }
}

bool ModelDrafter::MakeRoom(size_t rows, size_t all) {
  switch (state_.Reserve(rows, all)) {
    case DraftRoom::kYes: return true;
    case DraftRoom::kNotNow: trouble_ = "there is no room for the draft model's state"; return false;
    case DraftRoom::kNoMemory: Stop("there is no memory for the draft model's state"); return false;
  }
  return false;
}

void ModelDrafter::Release() {
  state_->Clear();
  ran_.clear();
  agreed_ = 0;
}

SequenceState* ModelDrafter::KnownState() {
  if (stopped_ || ran_.empty() || ids_.empty()) return nullptr;
  StepBack();
  return state_->length() == 0 ? nullptr : state_.get();
}

std::unique_ptr<SequenceState> ModelDrafter::TakeState() {
  if (KnownState() == nullptr) return nullptr;
  stopped_ = true;
  ran_.clear();
  return state_.Take();
}

void ModelDrafter::Continue(SequenceState& from, size_t length) {
  if (stopped_ || ids_.empty() || !ran_.empty()) return;
  const size_t known = std::min({length, from.length(), ids_.size() - 1, state_->max_length()});
  if (known == 0) return;
  try {
    ran_.reserve(known);
  } catch (const std::exception&) {  // std::bad_alloc
    return;
  }
  if (!from.ForkTo(*state_.get(), known).ok()) return;
  ran_.assign(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(known));
  agreed_ = known;
}

void ModelDrafter::Stop(std::string_view why) {
  stopped_ = true;
  trouble_ = why;
  Release();
}

}  // namespace tidemill
