#include "engine/wavefront.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/check.h"
#include "base/float_environment.h"

namespace tidemill {
namespace {

constexpr size_t kSequencesOfAPiece = 2;  // tokens and memory rows; with more its first one allocates

}  // namespace

Result<std::unique_ptr<Wave>> CreateWave(const LanguageModel& model, ExecutionContext& ctx, size_t piece_rows,
                                         const WaveForm& form) {
  if (form.order == WaveOrder::kTeams) {
    TIDEMILL_TRY(teams, TeamWave::Create(model, ctx.isa(), piece_rows, form.in_flight, form.team_threads));
    return std::unique_ptr<Wave>(std::move(teams));
  }
  TIDEMILL_TRY(grouped, GroupedWave::Create(model, ctx, piece_rows, form.in_flight, form.order));
  return std::unique_ptr<Wave>(std::move(grouped));
}

uint64_t WaveBytes(const LanguageModel& model, Isa isa, size_t piece_rows, const WaveForm& form) {
  if (form.order != WaveOrder::kTeams) return StepRows::Bytes(model, isa, piece_rows * form.in_flight);
  return form.in_flight * (StepRows::Bytes(model, isa, piece_rows) + ExecutionContext::kSharedScratchBytes +
                           form.team_threads * model.scratch_bytes());
}

// --- One list after another ---

Result<std::unique_ptr<GroupedWave>> GroupedWave::Create(const LanguageModel& model, ExecutionContext& ctx,
                                                         size_t piece_rows, size_t in_flight, WaveOrder order) {
  TIDEMILL_CHECK(piece_rows != 0 && in_flight != 0 && order != WaveOrder::kTeams);
  TIDEMILL_TRY(rows, StepRows::Create(model, ctx, piece_rows * in_flight));
  return std::unique_ptr<GroupedWave>(new GroupedWave(std::move(rows), piece_rows, in_flight, order));
}

GroupedWave::GroupedWave(StepRows rows, size_t piece_rows, size_t in_flight, WaveOrder order)
    : rows_(std::move(rows)),
      piece_rows_(piece_rows),
      order_(order),
      slots_(in_flight),
      first_states_(rows_.model().first_states()) {
  for (Slot& slot : slots_) slot.part.Reserve(kSequencesOfAPiece, piece_rows);
  ready_.reserve(in_flight);
  cells_.reserve(in_flight);
}

bool GroupedWave::TakePiece(const WaveHooks& hooks, Slot& slot, size_t first_row) {
  slot.piece.rows.clear();
  if (!hooks.next(&slot.piece)) return false;
  const size_t text = slot.piece.text;
  if (text >= taken_.size()) {
    taken_.resize(text + 1);
    passed_.resize(text + 1, std::vector<size_t>(rows_.model().layers.size()));
  }
  slot.piece.number = taken_[text]++;
  slot.in_use = true;
  slot.age = ages_++;
  slot.layer = 0;
  rows_.Prepare(slot.piece.rows, first_row, &slot.part);
  TIDEMILL_CHECK(slot.part.num_rows() <= piece_rows_);
  return true;
}

void GroupedWave::FindReady() {
  ready_.clear();
  for (size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    if (slot.in_use && passed_[slot.piece.text][slot.layer] == slot.piece.number)
      ready_.push_back({.slot = i, .layer = slot.layer, .age = slot.age});
  }
  const auto keep_first_by = [&](const auto& less) {
    ready_.front() = *std::min_element(ready_.begin(), ready_.end(), less);
    ready_.resize(1);
  };
  if (choose_) {
    choose_(&ready_);
  } else if (order_ == WaveOrder::kSequential) {
    keep_first_by([](const Ready& a, const Ready& b) { return a.age < b.age; });
  } else if (order_ == WaveOrder::kLayerMajor) {
    keep_first_by(
        [](const Ready& a, const Ready& b) { return a.layer < b.layer || (a.layer == b.layer && a.age < b.age); });
  }
  TIDEMILL_CHECK(!ready_.empty());  // the oldest piece is always ready
}

void GroupedWave::RunChosen() {
  cells_.clear();
  for (const Ready& ready : ready_) {
    const Slot& slot = slots_[ready.slot];
    const std::vector<DecoderLayer>& layers = rows_.model().layers;
    cells_.push_back({.layer = &layers[ready.layer],
                      .first_state = first_states_[ready.layer],
                      .cell = slot.part.InLayer(ready.layer, ready.layer + 1 == layers.size())});
  }
  RunDecoderCells(rows_.ctx(), rows_.buffers(), cells_);
  ++groups_;
  num_cells_ += cells_.size();
}

bool GroupedWave::Run(const WaveHooks& hooks, const std::atomic<bool>* interrupt) {
  const ScopedDefaultFloatEnvironment float_environment;
  const ExecutionContext::Interruptible interruptible(rows_.ctx(), interrupt);
  const size_t layers = rows_.model().layers.size();
  for (Slot& slot : slots_) slot.in_use = false;
  passed_.clear();
  taken_.clear();
  bool more = true;
  while (true) {
    const auto is_in_use = [](const Slot& slot) { return slot.in_use; };
    // A piece that came later would go through the layers alone, up to those before it.
    const bool waits = order_ == WaveOrder::kLayerMajor && std::any_of(slots_.begin(), slots_.end(), is_in_use);
    for (size_t i = 0; i < slots_.size() && more && !waits; ++i) {
      if (!slots_[i].in_use) more = TakePiece(hooks, slots_[i], i * piece_rows_);
    }
    if (std::none_of(slots_.begin(), slots_.end(), is_in_use)) return true;
    FindReady();
    RunChosen();
    if (rows_.ctx().Stops()) return false;
    for (const Ready& ready : ready_) {
      Slot& slot = slots_[ready.slot];
      ++passed_[slot.piece.text][ready.layer];
      if (hooks.passed) hooks.passed(slot.piece, ready.layer);
      if (++slot.layer < layers) continue;
      const auto sink = [&](size_t sequence, size_t token, std::span<float> values) {
        hooks.sink(slot.piece, sequence, token, values);
      };
      if (!rows_.Finish(slot.part, sink)) return false;
      slot.in_use = false;
    }
  }
}

// --- Teams ---

Result<std::unique_ptr<TeamWave>> TeamWave::Create(const LanguageModel& model, Isa isa, size_t piece_rows, size_t teams,
                                                   size_t team_threads) {
  TIDEMILL_CHECK(piece_rows != 0 && teams != 0 && team_threads != 0);
  std::unique_ptr<TeamWave> wave(new TeamWave(model));
  wave->first_states_ = model.first_states();
  TIDEMILL_TRY(carriers, ThreadPool::Create(teams));
  wave->carriers_ = std::move(carriers);
  for (size_t i = 0; i < teams; ++i) {
    Team team;
    TIDEMILL_TRY(threads, ThreadPool::Create(team_threads));
    team.threads = std::move(threads);
    TIDEMILL_TRY(ctx, ExecutionContext::Create(isa, team.threads.get(), model.scratch_bytes()));
    team.ctx = std::make_unique<ExecutionContext>(std::move(ctx));
    TIDEMILL_TRY(rows, StepRows::Create(model, *team.ctx, piece_rows));
    team.rows = std::make_unique<StepRows>(std::move(rows));
    team.part.Reserve(kSequencesOfAPiece, piece_rows);
    wave->teams_.push_back(std::move(team));
  }
  return wave;
}

uint64_t TeamWave::work_bytes() const {
  uint64_t bytes = 0;
  for (const Team& team : teams_) {
    bytes += team.rows->work_bytes() + team.ctx->shared_scratch().size();
    for (size_t i = 0; i < team.threads->num_threads(); ++i) bytes += team.ctx->scratch(i).size();
  }
  return bytes;
}

TeamWave::Text* TeamWave::TakePiece(const WaveHooks& hooks, WavePiece* piece) {
  const std::lock_guard lock(source_mutex_);
  piece->rows.clear();
  if (!hooks.next(piece)) return nullptr;
  while (texts_.size() <= piece->text) texts_.emplace_back(model_.layers.size());
  piece->number = texts_[piece->text].taken++;
  return &texts_[piece->text];
}

bool TeamWave::WaitFor(const std::atomic<size_t>& passed, size_t number) {
  constexpr int kSpins = 2000;  // a cell of a small model takes microseconds
  for (int i = 0; i < kSpins; ++i) {
    if (passed.load(std::memory_order_acquire) == number) return !stops_.load(std::memory_order_relaxed);
  }
  std::unique_lock lock(mutex_);
  waiting_.fetch_add(1);
  changed_.wait(lock, [&] { return passed.load() == number || stops_.load(); });
  waiting_.fetch_sub(1);
  return !stops_.load();
}

void TeamWave::Pass(std::atomic<size_t>& passed) {
  passed.fetch_add(1);  // in one order with who begins to wait
  if (waiting_.load() == 0) return;
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

void TeamWave::Stop() {
  const std::lock_guard lock(mutex_);
  stops_.store(true);
  changed_.notify_all();
}

void TeamWave::Carry(size_t index, const WaveHooks& hooks, const std::atomic<bool>* interrupt) {
  const ScopedDefaultFloatEnvironment float_environment;
  Team& team = teams_[index];
  const ExecutionContext::Interruptible interruptible(*team.ctx, interrupt);
  while (!stops_.load()) {
    Text* const text = TakePiece(hooks, &team.piece);
    if (text == nullptr) return;
    team.rows->Prepare(team.piece.rows, 0, &team.part);
    for (size_t layer = 0; layer < model_.layers.size(); ++layer) {
      if (!WaitFor(text->passed[layer], team.piece.number)) return;
      if (before_cell_) before_cell_(index, team.piece, layer);
      DecoderCell cell{.layer = &model_.layers[layer],
                       .first_state = first_states_[layer],
                       .cell = team.part.InLayer(layer, layer + 1 == model_.layers.size())};
      RunDecoderCells(*team.ctx, team.rows->buffers(), {&cell, 1});
      if (team.ctx->Stops()) return Stop();
      if (hooks.passed) hooks.passed(team.piece, layer);
      Pass(text->passed[layer]);
    }
    if (!WaitFor(text->passed.back(), team.piece.number)) return;
    const auto sink = [&](size_t sequence, size_t token, std::span<float> values) {
      const std::lock_guard lock(source_mutex_);
      hooks.sink(team.piece, sequence, token, values);
    };
    if (!team.rows->Finish(team.part, sink)) Stop();
    Pass(text->passed.back());
  }
}

void TeamWave::CarryOrStop(size_t team, const WaveHooks& hooks, const std::atomic<bool>* interrupt) {
  try {
    Carry(team, hooks, interrupt);
  } catch (const std::bad_alloc&) {  // a pool's thread passes nothing on
    lacks_memory_.store(true);
    Stop();
  }
}

bool TeamWave::Run(const WaveHooks& hooks, const std::atomic<bool>* interrupt) {
  texts_.clear();
  stops_.store(false);
  carriers_->ParallelFor(teams_.size(), [&](size_t team, size_t) { CarryOrStop(team, hooks, interrupt); });
  if (lacks_memory_.load()) throw std::bad_alloc();
  return !stops_.load();
}

}  // namespace tidemill
