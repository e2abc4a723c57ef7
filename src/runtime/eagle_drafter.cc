#include "runtime/eagle_drafter.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <utility>

#include "base/check.h"

namespace tidemill {
namespace {

// Of a step: as many as wait at most, and as the nodes of a tree that are asked.
constexpr size_t kMostRows = std::max(EagleDrafter::kKept, TreeDraft::kMostAsked);

// Beyond it a context grows now and then.
constexpr size_t kReservedIds = size_t{1} << 20;

void CopyRow(const float* from, const Matrix<float>& to, size_t row) {
  std::memcpy(to.row(row), from, to.cols * sizeof(float));
}

}  // namespace

Result<std::unique_ptr<EagleHead>> EagleHead::Create(const LanguageModel& model, Isa isa, ThreadPool& threads,
                                                     size_t most_rows) {
  TIDEMILL_TRY(ctx, ExecutionContext::Create(isa, &threads, model.scratch_bytes()));
  std::unique_ptr<EagleHead> head(new EagleHead(model, std::move(ctx)));
  TIDEMILL_TRY(executor, SequentialExecutor::Create(model, head->ctx_, kMostRows));
  head->executor_ = std::move(executor);
  const size_t hidden = model.settings.hidden_size, width = model.features.width;
  TIDEMILL_TRY(memory, AlignedBuffer::Create((kMostRows * hidden + most_rows * width) * sizeof(float)));
  head->memory_ = std::move(memory);
  float* floats = head->memory_.As<float>().data();
  head->own_ = {floats, kMostRows, hidden};
  head->target_features_ = {.taps = model.features.target_taps, .out = {floats + kMostRows * hidden, most_rows, width}};
  return head;
}

bool EagleHead::Run(const StepSequence& step, const SequentialExecutor::RowSink& sink,
                    const std::atomic<bool>* interrupt) {
  const StepFeatures own{.taps = {&model_.features.own_tap, 1}, .out = own_};
  return executor_->Run({&step, 1}, sink, interrupt, SIZE_MAX, &own);
}

EagleDrafter::EagleDrafter(const Options& options, std::unique_ptr<SequenceState> state)
    : options_(options),
      state_(std::move(state), options.memory),
      choice_({.isa = options.isa,
               .most = options.most,
               .vocab_size = options.vocab_size,
               .least_probability = options.least_probability,
               .drawn_as = options.drawn_as,
               .target_ids = options.head->model().features.target_ids,
               .tokenizer = options.tree == DraftTreeKind::kChain ? nullptr : options.tokenizer}) {
  options_.drawn_as = nullptr;
  const LanguageModel& model = options_.head->model();
  const size_t hidden = model.settings.hidden_size, width = model.features.width;
  const size_t kept = std::min(kKept, state_->max_length());
  const size_t asked = options_.tree == DraftTreeKind::kChain ? 0 : TreeDraft::kMostAsked;
  auto memory = AlignedBuffer::Create((kept * width + (1 + 2 * asked) * hidden) * sizeof(float));
  if (!memory.ok()) throw std::bad_alloc();
  memory_ = std::move(memory).value();
  float* floats = memory_.As<float>().data();
  kept_ = {floats, kept, width};
  asked_ = {floats + kept * width, 1 + asked, hidden};
  read_ = {floats + kept * width + (1 + asked) * hidden, asked, hidden};
  ids_.reserve(std::min(options_.context + 1, kReservedIds));
  keys_.reserve(kMostRows);
  proposed_.reserve(options_.most);
  if (options_.tree != DraftTreeKind::kChain) {
    TIDEMILL_CHECK(options_.tokenizer != nullptr);
    tree_.emplace(options_.tree, options_.most);
    asked_nodes_.reserve(TreeDraft::kMostAsked);
  }
  sink_ = [this](size_t, size_t row, std::span<float> logits) {
    if (tree_) {
      tree_->Add(rows_.nodes().empty() ? -1 : rows_.nodes()[row], choice_.Best(logits));
    } else {
      next_ = choice_.Next(logits, proposed_.size(), ids_.size() + proposed_.size());
    }
  };
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
  TIDEMILL_DCHECK(feature.size() == kept_.cols && position < ids_.size());
  if (position != next_position()) BeginAt(position);
  if (num_kept_ == kept_.rows && !RunKept(Wanted::kNothing, nullptr)) BeginAt(position);
  if (!stopped_) CopyRow(feature.data(), kept_, num_kept_++);
}

void EagleDrafter::BeginAt(size_t position) {
  state_.Clear();
  num_kept_ = 0;
  first_ = position;
}

bool EagleDrafter::MakeRoomForKept() {
  DraftRoom room = state_.spare() < num_kept_ ? DraftRoom::kNotNow : state_.Reserve(num_kept_);
  if (room == DraftRoom::kNotNow && state_->length() != 0) {
    first_ += state_->length();
    state_.Clear();
    room = state_.Reserve(num_kept_);
  }
  if (room == DraftRoom::kNotNow) trouble_ = "there is no room for the draft head's state";
  if (room == DraftRoom::kNoMemory) Stop("there is no memory for the draft head's state");
  return room == DraftRoom::kYes;
}

bool EagleDrafter::RunKept(Wanted wanted, const std::atomic<bool>* interrupt) {
  if (!MakeRoomForKept()) return false;
  const std::span<const int32_t> ids = std::span(ids_).subspan(first_ + state_->length() + 1, num_kept_);
  rows_.Clear();
  if (!options_.head->Run({.state = state_.get(), .tokens = ids, .rows = wanted, .features = kept_.Rows(0, num_kept_)},
                          sink_, interrupt))
    return false;
  keys_.assign(ids.begin(), ids.end());
  state_->Commit(keys_);
  CopyRow(options_.head->own_features().row(num_kept_ - 1), asked_, 0);
  num_kept_ = 0;
  return true;
}

DraftTree EagleDrafter::Propose(size_t most) {
  proposed_.clear();
  next_.reset();
  if (stopped_ || most == 0 || num_kept_ == 0 || ids_.size() != next_position() + 1) return {};
  if (!tree_) {
    DraftChain(most);
    return {.ids = proposed_, .drawn_from = choice_.drawn_from(proposed_.size())};
  }
  tree_->Begin(most, std::span(ids_).subspan(tree_begin_));
  tree_begin_ = ids_.size();
  if (!RunKept(Wanted::kLast, options_.interrupt)) return {};
  asked_nodes_.clear();
  for (auto level = tree_->Level(); !level.empty(); level = tree_->Level()) {
    if (!RunLevel(level)) break;
  }
  return tree_->Tree();
}

// Each guess is a row behind the last one; all of them go again.
void EagleDrafter::DraftChain(size_t most) {
  if (!RunKept(Wanted::kLast, options_.interrupt)) return;
  const size_t length = state_->length();
  while (next_) {
    proposed_.push_back(*next_);
    if (proposed_.size() == most || state_.spare() == 0 || state_.Reserve(1) != DraftRoom::kYes) break;
    if (!options_.head->Run({.state = state_.get(),
                             .tokens = std::span(proposed_).last(1),
                             .rows = Wanted::kLast,
                             .features = asked_.Rows(0, 1)},
                            sink_, options_.interrupt))
      break;
    const RowKey key = static_cast<RowKey>(proposed_.back());
    state_->Commit({&key, 1});
    CopyRow(options_.head->own_features().row(0), asked_, 0);
  }
  if (!state_->Rollback(length).ok()) BeginAt(first_ + length);
}

size_t EagleDrafter::PlaceBehind(int32_t node) const {
  if (node < 0) return 0;
  const auto found = std::find(asked_nodes_.begin(), asked_nodes_.end(), node);
  TIDEMILL_DCHECK(found != asked_nodes_.end());
  return static_cast<size_t>(found - asked_nodes_.begin()) + 1;
}

bool EagleDrafter::RunLevel(std::span<const int32_t> nodes) {
  const size_t most = std::min({options_.head->max_rows(), read_.rows, state_.spare()});
  if (!rows_.Plan(*tree_, nodes, most)) return false;
  const size_t rows = rows_.nodes().size();
  if (state_.Reserve(rows) != DraftRoom::kYes) return false;
  for (size_t i = 0; i < rows; ++i) CopyRow(asked_.row(PlaceBehind(tree_->parent(rows_.nodes()[i]))), read_, i);
  if (!options_.head->Run({.state = state_.get(),
                           .tokens = rows_.ids(),
                           .rows = Wanted::kLast,
                           .parents = rows_.parents(),
                           .num_last = rows_.num_asked(),
                           .features = read_.Rows(0, rows)},
                          sink_, options_.interrupt))
    return false;
  for (size_t i = rows - rows_.num_asked(); i < rows; ++i) {
    asked_nodes_.push_back(rows_.nodes()[i]);
    CopyRow(options_.head->own_features().row(i), asked_, asked_nodes_.size());
  }
  return true;
}

void EagleDrafter::Stop(std::string_view why) {
  stopped_ = true;
  trouble_ = why;
  BeginAt(0);
}

}  // namespace tidemill
