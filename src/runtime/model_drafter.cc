#include "runtime/model_drafter.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/check.h"

namespace tidemill {
namespace {

// Rows of one step of a draft model: enough for prompts, and buffers that are small beside the model's own.
constexpr size_t kBufferBytes = size_t{4} << 20;
constexpr size_t kLeastRows = 32, kMostRows = 256;

// Of a new text, tokens that run before the next step of the model itself.
constexpr size_t kRowsAtOnce = 512;

// Beyond it a context grows now and then.
constexpr size_t kReservedIds = size_t{1} << 20;

}  // namespace

Result<std::unique_ptr<DraftModel>> DraftModel::Create(const LanguageModel& model, Isa isa, ThreadPool& threads) {
  TIDEMILL_TRY(ctx, ExecutionContext::Create(isa, &threads, model.scratch_bytes()));
  std::unique_ptr<DraftModel> draft(new DraftModel(model, std::move(ctx)));
  const size_t rows = std::clamp(kBufferBytes / StepBuffers::RowBytes(model.step_shape(), isa), kLeastRows, kMostRows);
  TIDEMILL_TRY(executor, SequentialExecutor::Create(model, draft->ctx_, rows));
  draft->executor_ = std::move(executor);
  return draft;
}

ModelDrafter::ModelDrafter(const Options& options, std::unique_ptr<SequenceState> state)
    : options_(options),
      state_(std::move(state), options.memory),
      choice_({.isa = options.isa,
               .most = options.most,
               .vocab_size = std::min(options.vocab_size, options.model->settings.vocab_size),
               .least_probability = options.least_probability,
               .drawn_as = options.drawn_as,
               .never = options.mask_token,
               .tokenizer = options.tree == DraftTreeKind::kChain ? nullptr : options.tokenizer}) {
  options_.drawn_as = nullptr;
  ids_.reserve(std::min(state_->max_length(), kReservedIds));
  ran_.reserve(ids_.capacity());
  proposed_.reserve(options_.most);
  keys_.reserve(options_.executor->max_rows());
  masked_.reserve(options_.mask_token ? keys_.capacity() : 0);
  if (options_.tree != DraftTreeKind::kChain) {
    TIDEMILL_CHECK(options_.tokenizer != nullptr);
    tree_.emplace(options_.tree, options_.most);
  }
  sink_ = [this](size_t, size_t row, std::span<float> logits) {
    if (guess_order() == GuessOrder::kAtOnce) {
      ChooseAtOnce(logits);
    } else if (!tree_) {
      Choose(logits);
    } else {
      tree_->Add(rows_.nodes().empty() ? -1 : rows_.nodes()[row], choice_.Best(logits));
    }
  };
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

DraftTree ModelDrafter::Propose(size_t most) {
  proposed_.clear();
  if (stopped_ || most == 0 || ids_.empty()) return {};
  StepBack();
  const size_t rows = options_.executor->max_rows();
  const bool at_once = guess_order() == GuessOrder::kAtOnce;
  const size_t masks = at_once ? std::min({most - 1, rows - 1, state_->max_length() - ids_.size()}) : 0;
  for (size_t ran = 0; ids_.size() - ran_.size() > rows - masks; ran += rows) {
    const size_t count = std::min(rows, ids_.size() - ran_.size() - 1);
    if (ran >= kRowsAtOnce || !Run(std::span(ids_).subspan(ran_.size(), count), Wanted::kNothing)) return {};
  }
  if (tree_) return ProposeTree(most);
  std::span<const int32_t> next = std::span(ids_).subspan(ran_.size());
  if (at_once) {
    next_ = options_.mask_token;  // any: rows are asked while there was one
    if (!Run(next, Wanted::kLast, masks)) proposed_.clear();
  } else {
    while (Run(next, Wanted::kLast) && next_) {
      proposed_.push_back(*next_);
      if (proposed_.size() == most || state_->length() == state_->max_length()) break;
      next = std::span(proposed_).last(1);
    }
  }
  return {.ids = proposed_, .drawn_from = choice_.drawn_from(proposed_.size())};
}

void ModelDrafter::StepBack() {
  const size_t both = std::min(ids_.size(), ran_.size());
  while (agreed_ < both && ids_[agreed_] == ran_[agreed_]) ++agreed_;
  agreed_ = std::min(agreed_, ids_.size() - 1);  // the last one runs again: its logits are what follows
  if (agreed_ == ran_.size()) return;
  if (state_->Rollback(agreed_).ok()) {
    ran_.resize(agreed_);
  } else {  // too far for what windows left
    Release();
  }
}

DraftTree ModelDrafter::ProposeTree(size_t most) {
  tree_->Begin(most, std::span(ids_).subspan(tree_begin_));
  tree_begin_ = ids_.size();
  rows_.Clear();
  if (!Run(std::span(ids_).subspan(ran_.size()), Wanted::kLast)) return {};
  for (auto level = tree_->Level(); !level.empty(); level = tree_->Level()) {
    if (!RunLevel(level)) break;
  }
  return tree_->Tree();
}

bool ModelDrafter::RunLevel(std::span<const int32_t> nodes) {
  const size_t most = std::min(options_.executor->max_rows(), state_.spare());
  if (!rows_.Plan(*tree_, nodes, most) || !MakeRoom(rows_.nodes().size())) return false;
  const StepSequence step{.state = state_.get(),
                          .tokens = rows_.ids(),
                          .rows = Wanted::kLast,
                          .parents = rows_.parents(),
                          .num_last = rows_.num_asked()};
  return options_.executor->Run({&step, 1}, sink_, options_.interrupt, options_.num_layers);
}

bool ModelDrafter::MakeRoom(size_t rows) {
  switch (state_.Reserve(rows)) {
    case DraftRoom::kYes: return true;
    case DraftRoom::kNotNow: trouble_ = "there is no room for the draft model's state"; return false;
    case DraftRoom::kNoMemory: Stop("there is no memory for the draft model's state"); return false;
  }
  return false;
}

bool ModelDrafter::Run(std::span<const int32_t> ids, Wanted wanted, size_t masks) {
  if (!MakeRoom(ids.size() + masks)) return false;
  std::span<const int32_t> tokens = ids;
  if (masks != 0) {
    masked_.assign(ids.begin(), ids.end());
    masked_.insert(masked_.end(), masks, *options_.mask_token);
    tokens = masked_;
  }
  const StepSequence step{.state = state_.get(), .tokens = tokens, .rows = wanted, .num_last = masks + 1};
  if (!options_.executor->Run({&step, 1}, sink_, options_.interrupt, options_.num_layers)) return false;
  keys_.assign(ids.begin(), ids.end());
  state_->Commit(keys_);
  ran_.insert(ran_.end(), ids.begin(), ids.end());
  return true;
}

void ModelDrafter::Choose(std::span<float> logits) {
  next_ = choice_.Next(logits, proposed_.size(), ids_.size() + proposed_.size());
}

// The next row of a step; the first that says nothing ends the guesses. Guess i is drawn from what the sequence alone says of its place,
// whatever was drawn before it: a right one is accepted as often as any rule promises.
void ModelDrafter::ChooseAtOnce(std::span<float> logits) {
  if (!next_) return;
  Choose(logits);
  if (next_) proposed_.push_back(*next_);
}

void ModelDrafter::Release() {
  state_.Clear();
  ran_.clear();
  agreed_ = 0;
}

void ModelDrafter::Stop(std::string_view why) {
  stopped_ = true;
  trouble_ = why;
  Release();
}

}  // namespace tidemill
