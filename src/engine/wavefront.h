// Texts through the layers, several pieces at a time. A piece is rows that stay together: a segment with its memory rows, or a chunk of a prompt.
//
// A piece's cell is ready when the piece has left the layer below and the text's piece before it has left this layer. Any order of ready cells
// gives the same bits, and reads the same bytes: an order decides how often threads wait for each other, and how many bytes come from a cache.
//
//   GroupedWave    one list of ready cells after another, with all threads
//     kSequential  one cell, of the oldest piece: with one piece in flight, piece after piece
//     kDiagonal    all of them as grouped operations: with as many pieces in flight as layers, the diagonals of arXiv:2506.05229; n pieces
//                  take n + layers - 1 lists
//     kLayerMajor  one cell of the lowest layer: a layer's weights serve all pieces in flight before the next layer's do
//   TeamWave       kTeams: each team of threads carries a piece through the layers, and waits for a cell that is not ready only
//
// The states have reserved what the pieces need; who calls commits them once Run has returned true. After false nothing counts.
#ifndef TIDEMILL_ENGINE_WAVEFRONT_H_
#define TIDEMILL_ENGINE_WAVEFRONT_H_

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "engine/step_rows.h"
#include "engine/wave_form.h"
#include "kernels/execution_context.h"
#include "models/language_model.h"
#include "models/layers/decoder_layer.h"
#include "tidemill/result.h"

namespace tidemill {

struct WavePiece {
  size_t text = 0;                 // 0, 1, ...: those of one text come in its order
  size_t number = 0;               // of the text's pieces: set by the wave
  std::vector<StepSequence> rows;  // as a step's
};

struct WaveHooks {
  // The next piece, whatever text it is of; false: there are no more. Called by one thread at a time.
  std::function<bool(WavePiece* piece)> next;
  // Logits and hidden states, as StepRows::RowSink; of a text in order, by one thread at a time.
  std::function<void(const WavePiece& piece, size_t sequence, size_t token, std::span<float> values)> sink = nullptr;
  // A piece has left a layer, behind the text's pieces before it. Teams call it from several threads, for different layers.
  std::function<void(const WavePiece& piece, size_t layer)> passed = nullptr;
};

class Wave {
 public:
  virtual ~Wave() = default;

  // False: `interrupt`, which may be null, became true. Throws std::bad_alloc, and then the wave cannot be used again.
  virtual bool Run(const WaveHooks& hooks, const std::atomic<bool>* interrupt) = 0;
  virtual uint64_t work_bytes() const = 0;  // of its buffers
};

// Pieces of at most `piece_rows` rows. Borrows model and context. kOutOfMemory, or std::bad_alloc.
Result<std::unique_ptr<Wave>> CreateWave(const LanguageModel& model, ExecutionContext& ctx, size_t piece_rows,
                                         const WaveForm& form);
// Its work_bytes(), before it is there.
uint64_t WaveBytes(const LanguageModel& model, Isa isa, size_t piece_rows, const WaveForm& form);

class GroupedWave : public Wave {
 public:
  struct Ready {
    size_t slot = 0;  // of the piece, in flight
    size_t layer = 0;
    uint64_t age = 0;  // pieces that came before
  };
  // Leaves in the list what is to run now, at least one. For tests; else as the order says.
  using Choose = std::function<void(std::vector<Ready>*)>;

  // As CreateWave. Not kTeams.
  static Result<std::unique_ptr<GroupedWave>> Create(const LanguageModel& model, ExecutionContext& ctx,
                                                     size_t piece_rows, size_t in_flight, WaveOrder order);

  void set_choose(Choose choose) { choose_ = std::move(choose); }
  uint64_t groups() const { return groups_; }  // lists that ran so far
  uint64_t cells() const { return num_cells_; }
  const StepCounts& counts() const { return rows_.counts(); }
  uint64_t work_bytes() const override { return rows_.work_bytes(); }

  bool Run(const WaveHooks& hooks, const std::atomic<bool>* interrupt) override;

 private:
  struct Slot {
    bool in_use = false;
    uint64_t age = 0;
    size_t layer = 0;  // the next one
    WavePiece piece;
    StepRows::Part part;
    Cell cell;
  };
  GroupedWave(StepRows rows, size_t piece_rows, size_t in_flight, WaveOrder order);
  bool TakePiece(const WaveHooks& hooks, Slot& slot, size_t first_row);
  void FindReady();
  void RunChosen();

  StepRows rows_;
  size_t piece_rows_;
  WaveOrder order_;
  Choose choose_;
  std::vector<Slot> slots_;
  std::vector<std::vector<size_t>> passed_;  // [texts][layers] pieces that have left the layer
  std::vector<size_t> taken_;                // [texts] pieces
  std::vector<Ready> ready_;
  std::vector<DecoderCell> cells_;
  std::vector<size_t> first_states_;  // of each layer
  uint64_t ages_ = 0, groups_ = 0, num_cells_ = 0;
};

class TeamWave : public Wave {
 public:
  // Threads of its own: `teams` times `team_threads`, the caller's among them.
  static Result<std::unique_ptr<TeamWave>> Create(const LanguageModel& model, Isa isa, size_t piece_rows, size_t teams,
                                                  size_t team_threads);

  // Only of tests: called by a team in front of a cell, once it is ready.
  void set_before_cell(std::function<void(size_t team, const WavePiece& piece, size_t layer)> before) {
    before_cell_ = std::move(before);
  }
  uint64_t work_bytes() const override;

  bool Run(const WaveHooks& hooks, const std::atomic<bool>* interrupt) override;

 private:
  struct Team {
    std::unique_ptr<ThreadPool> threads;
    std::unique_ptr<ExecutionContext> ctx;
    std::unique_ptr<StepRows> rows;
    StepRows::Part part;
    WavePiece piece;
  };
  struct Text {
    explicit Text(size_t layers) : passed(layers + 1) {}
    size_t taken = 0;
    std::vector<std::atomic<size_t>> passed;  // pieces that have left the layer; the last: the head
  };

  explicit TeamWave(const LanguageModel& model) : model_(model) {}
  Text* TakePiece(const WaveHooks& hooks, WavePiece* piece);  // null: there are no more
  void CarryOrStop(size_t team, const WaveHooks& hooks, const std::atomic<bool>* interrupt);
  void Carry(size_t team, const WaveHooks& hooks, const std::atomic<bool>* interrupt);
  // False: the wave stops.
  bool WaitFor(const std::atomic<size_t>& passed, size_t number);
  void Pass(std::atomic<size_t>& passed);
  void Stop();

  const LanguageModel& model_;
  std::vector<size_t> first_states_;
  std::unique_ptr<ThreadPool> carriers_;
  std::vector<Team> teams_;
  std::function<void(size_t, const WavePiece&, size_t)> before_cell_;

  std::mutex source_mutex_;
  std::deque<Text> texts_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<size_t> waiting_{0};
  std::atomic<bool> stops_{false};
  std::atomic<bool> lacks_memory_{false};  // why it stopped
};

}  // namespace tidemill

#endif  // TIDEMILL_ENGINE_WAVEFRONT_H_
