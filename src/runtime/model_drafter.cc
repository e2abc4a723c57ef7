#include "runtime/model_drafter.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <utility>

#include "base/check.h"
#include "decoding/vocab_scan.h"

namespace tidemill {
namespace {

// Rows of one step of a draft model: enough for prompts, and buffers that are small beside the model's own.
constexpr size_t kBufferBytes = size_t{4} << 20;
constexpr size_t kLeastRows = 32, kMostRows = 256;

// Of a new text, tokens that run before the next step of the model itself.
constexpr size_t kRowsAtOnce = 512;

// Tokens that a guess is drawn from, at most.
constexpr int32_t kDrawnFrom = 64;

// Special tokens that may stand among the best ones without taking a guess away.
constexpr size_t kSpecialsAmongBest = 4;

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
    : options_(options), state_(std::move(state)) {
  options_.vocab_size = std::min(options_.vocab_size, options_.model->settings.vocab_size);
  ids_.reserve(std::min(state_->max_length(), kReservedIds));
  ran_.reserve(ids_.capacity());
  proposed_.reserve(options_.most);
  keys_.reserve(options_.executor->max_rows());
  masked_.reserve(options_.mask_token ? keys_.capacity() : 0);
  chunk_max_.resize(NumChunks(options_.vocab_size));
  const bool is_tree = options_.tree != DraftTreeKind::kChain;
  TIDEMILL_CHECK(!is_tree || options_.tokenizer != nullptr);
  if (options_.least_probability > 0 || is_tree) chunk_sum_.resize(chunk_max_.size());
  if (is_tree) {
    tree_.emplace(options_.tree, options_.most);
    ranking_.emplace(options_.vocab_size);
    for (std::vector<int32_t>* of_rows : {&rows_, &row_ids_, &row_parents_}) of_rows->reserve(TreeDraft::kMostAsked);
    best_.reserve(TreeDraft::kRanks);
  }
  if (options_.drawn_as != nullptr) {
    const GenerationOptions& as = *options_.drawn_as;
    // What weighs nothing here is no guess: the fewer tokens, the less there is to compare.
    const int32_t top_k = as.top_k == 0 ? kDrawnFrom : std::min(as.top_k, kDrawnFrom);
    auto sampler =
        Sampler::Create({.temperature = as.temperature, .top_k = top_k, .top_p = as.top_p, .min_p = as.min_p},
                        {.vocab_size = options_.vocab_size, .isa = options_.isa});
    if (!sampler.ok()) throw std::bad_alloc();  // its options were those of a request
    sampler_.emplace(std::move(*sampler));
    stream_ = {as.seed, 0};
    drawn_from_.resize(options_.most);
    options_.drawn_as = nullptr;
  }
  sink_ = [this](size_t, size_t row, std::span<float> logits) {
    if (guess_order() == GuessOrder::kAtOnce) {
      ChooseAtOnce(logits);
    } else if (!tree_) {
      Choose(logits);
    } else {
      Rank(rows_.empty() ? -1 : rows_[row], logits);
    }
  };
}

ModelDrafter::~ModelDrafter() { options_.memory->held -= held_; }

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
  return {.ids = proposed_,
          .drawn_from = sampler_ ? std::span(drawn_from_).first(proposed_.size()) : std::span(drawn_from_)};
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
  rows_.clear();
  if (!Run(std::span(ids_).subspan(ran_.size()), Wanted::kLast)) return {};
  for (auto level = tree_->Level(); !level.empty(); level = tree_->Level()) {
    if (!RunLevel(level)) break;
  }
  return tree_->Tree();
}

// Rows of earlier levels run again, which costs little beside reading the weights: so a step is all that a tree needs of a state.
bool ModelDrafter::RunLevel(std::span<const int32_t> nodes) {
  const size_t most = std::min(options_.executor->max_rows(), state_->max_length() - state_->length());
  rows_.clear();
  size_t num_asked = 0;
  for (; num_asked < nodes.size(); ++num_asked) {
    const size_t before = rows_.size();
    for (int32_t at = tree_->parent(nodes[num_asked]);
         at >= 0 && std::find(rows_.begin(), rows_.end(), at) == rows_.end(); at = tree_->parent(at))
      rows_.push_back(at);
    if (rows_.size() + num_asked + 1 > most) {
      rows_.resize(before);
      break;
    }
  }
  if (num_asked == 0) return false;
  // Ancestors, which all were asked before, parents before their children; then the asked, whose logits are wanted.
  std::sort(rows_.begin(), rows_.end());
  rows_.insert(rows_.end(), nodes.begin(), nodes.begin() + static_cast<ptrdiff_t>(num_asked));
  row_ids_.clear();
  row_parents_.clear();
  for (const int32_t node : rows_) {
    const auto parent = std::find(rows_.begin(), rows_.end(), tree_->parent(node));
    row_ids_.push_back(tree_->id(node));
    row_parents_.push_back(parent == rows_.end() ? -1 : static_cast<int32_t>(parent - rows_.begin()));
  }
  if (!MakeRoom(rows_.size())) return false;
  const StepSequence step{
      .state = state_.get(), .tokens = row_ids_, .rows = Wanted::kLast, .parents = row_parents_, .num_last = num_asked};
  return options_.executor->Run({&step, 1}, sink_, options_.interrupt, options_.num_layers);
}

bool ModelDrafter::MakeRoom(size_t rows) {
  const uint64_t room = options_.memory->limit - std::min(options_.memory->limit, options_.memory->held);
  if (state_->GrowthBytes(rows) > room) {  // other requests may give theirs back
    trouble_ = "there is no room for the draft model's state";
    return false;
  }
  const bool has_room = state_->Reserve(rows).ok();
  CountMemory();
  if (!has_room) Stop("there is no memory for the draft model's state");
  return has_room;
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
  next_.reset();
  const std::span<const float> known = logits.first(options_.vocab_size);
  const LogitScan scan = ScanLogits(options_.isa, known, chunk_max_);
  if (!scan.all_numbers || !std::isfinite(scan.max)) return;
  if (options_.least_probability > 0 &&
      1 / SumWeights(options_.isa, known, scan.max, 1, chunk_sum_) < static_cast<double>(options_.least_probability))
    return;
  next_ =
      sampler_ ? Draw(logits.first(options_.vocab_size)) : static_cast<int32_t>(ArgMax(known, chunk_max_, scan.max));
}

// The next row of a step; the first that says nothing ends the guesses. Guess i is drawn from what the sequence alone says of its place,
// whatever was drawn before it: a right one is accepted as often as any rule promises.
void ModelDrafter::ChooseAtOnce(std::span<float> logits) {
  if (!next_) return;
  logits[static_cast<size_t>(*options_.mask_token)] = -std::numeric_limits<float>::infinity();
  Choose(logits);
  if (next_) proposed_.push_back(*next_);
}

void ModelDrafter::Rank(int32_t node, std::span<const float> logits) {
  const std::span<const float> known = logits.first(options_.vocab_size);
  const LogitScan scan = ScanLogits(options_.isa, known, chunk_max_);
  if (!scan.all_numbers || !std::isfinite(scan.max)) return;
  const double sum = SumWeights(options_.isa, known, scan.max, 1, chunk_sum_);
  ranking_->KeepBest(known, chunk_max_, TreeDraft::kRanks + kSpecialsAmongBest);
  best_.clear();
  for (size_t i = 0; i < ranking_->size() && best_.size() < TreeDraft::kRanks; ++i) {
    const auto id = static_cast<int32_t>(ranking_->id(i));
    if (id == options_.mask_token || options_.tokenizer->IsSpecial(id)) continue;
    const double probability = TokenWeight(known[ranking_->id(i)], scan.max, 1) / sum;
    if (probability <= 0 || probability < static_cast<double>(options_.least_probability)) break;
    best_.push_back({id, probability});
  }
  tree_->Add(node, best_);
}

// Changes the logits.
int32_t ModelDrafter::Draw(std::span<float> logits) {
  std::vector<TokenProbability>& tokens = drawn_from_[proposed_.size()];
  tokens = *sampler_->Distribution(logits);  // all are numbers
  std::sort(tokens.begin(), tokens.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  const auto position = static_cast<uint32_t>(ids_.size() + proposed_.size());
  double left = UniformAt(stream_, position, RandomPurpose::kDrawGuess);
  size_t i = 0;
  while (i + 1 < tokens.size() && left >= tokens[i].probability) left -= tokens[i++].probability;
  return tokens[i].id;
}

void ModelDrafter::Release() {
  state_->Clear();
  ran_.clear();
  agreed_ = 0;
  CountMemory();
}

void ModelDrafter::CountMemory() {
  const uint64_t now = state_->bytes().reserved;
  options_.memory->held = options_.memory->held - held_ + now;
  held_ = now;
}

void ModelDrafter::Stop(std::string_view why) {
  stopped_ = true;
  trouble_ = why;
  Release();
}

}  // namespace tidemill
