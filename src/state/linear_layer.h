// One layer of linear attention: a state of constant size at a boundary (kernels/delta_rule.h), the entries after it, and the last inputs of
// a short convolution.
//
// A cell makes its rows' entries and reads them back. A full block of committed entries is folded into the state by the next cell, which
// reads the state anyway. A step of at most kMaxStagedRows rows keeps all of its entries, so that any path of them may be committed. A longer
// one is committed whole or not at all: its state goes to a second place, and only entries after its last boundary stay.
//
// Forks share the state; who folds first takes a place of its own, which Reserve provides. Entries are copied.
// No state is allocated before a token has passed the first boundary.
//
// With rollback_rows, a step of any length keeps all of its entries. They and those before them are at most kMaxDeltaEntries: who reserves cuts
// a longer prompt into steps.
//
// Checkpoint:  the state at the last boundary that is not after `earliest`, if there is one; entries from there on, of each u, then g, then
// k of all heads; inputs of the convolution from position earliest - (conv_width - 1) on. Without earlier inputs to read, none.
#ifndef TIDEMILL_STATE_LINEAR_LAYER_H_
#define TIDEMILL_STATE_LINEAR_LAYER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/byte_reader.h"
#include "base/isa.h"
#include "kernels/delta_rule.h"
#include "state/entry_ring.h"
#include "state/layer_state.h"
#include "state/state_ledger.h"
#include "tensor/matrix.h"
#include "tidemill/result.h"

namespace tidemill {

struct LinearShape {
  DeltaShape delta;
  size_t channels = 1;    // of the convolution
  size_t conv_width = 1;  // of which a row reads conv_width - 1 earlier inputs
  friend bool operator==(const LinearShape&, const LinearShape&) = default;
};

struct LinearOptions {
  Isa isa = Isa::kBaseline;       // of folds that no cell makes
  size_t rollback_rows = 0;       // positions that a rollback may take back: 2 * SequenceOptions::draft_rows
  StateLedger* ledger = nullptr;  // who counts blocks; null: nobody. Outlives all of them
};

// What was done with states. Cleared with the layer.
struct LinearCounts {
  uint64_t boundaries = 0;  // that a later token has passed: folds
  uint64_t writes = 0;      // of a state to memory: at most one a cell
};

class LinearLayer : public LayerState {
 public:
  static constexpr StateKind kKind = StateKind::kLinear;
  static constexpr bool Holds(StateKind kind) { return kind == kKind; }
  static constexpr size_t kMaxStagedRows = 65;  // the longest draft and the token before it

  LinearLayer(const LinearShape& shape, const LinearOptions& options);

  const LinearShape& shape() const { return shape_; }
  const LinearCounts& counts() const { return counts_; }
  size_t base() const { return base_; }  // the position of the state in memory
  size_t length() const { return base_ + num_entries_; }

  // A cell: rows [slot, slot + num) of the step, in ascending order of slots; with slot 0 the step starts over.
  //   ConvInputs -> the convolution -> Task, with entries and state -> the delta rule -> EndRows
  // inputs[i * conv_width ...]: of row i, as kernels/short_convolution.h; x: [num, channels] the rows' own inputs.
  void ConvInputs(size_t slot, ConstMatrix<float> x, std::span<const int32_t> parents, std::span<const float*> inputs);
  // Rows, outputs and parents are left to the caller.
  DeltaTask Task(size_t slot, size_t num);
  // After both: what the rows leave. x as above.
  void EndRows(size_t slot, ConstMatrix<float> x);

  StateKind checkpoint_kind() const override { return kKind; }
  std::vector<uint64_t> Shape() const override;
  std::unique_ptr<LayerState> MakeEmpty() const override { return std::make_unique<LinearLayer>(shape_, options_); }
  size_t EarliestRollback(size_t floor) const override { return floor; }
  bool has_constant_size() const override { return true; }
  uint64_t CheckpointBytes(size_t length, size_t earliest) const override;
  uint64_t reserved_bytes() const override;
  uint64_t read_bytes_per_token(size_t length) const override;
  GrowthCounts growth() const override { return growth_; }
  void ForEachBlock(const BlockVisitor& visit) const override;
  uint64_t GrowthBytes(size_t n, size_t floor) const override;
  uint64_t GrowthBytes(size_t n, size_t step, size_t floor, size_t rollback) const override;
  // A ring that grows for draft rows copies a block at most, and keeps its size.
  bool HasRoom(size_t n, size_t floor) const override { return n <= kMaxStagedRows || GrowthBytes(n, floor) == 0; }
  Result<void> Reserve(size_t n, size_t floor, BufferArena* arena) override;
  void Commit(size_t n) override;
  void CommitPath(std::span<const uint32_t> path) override;
  size_t num_settle_parts() const override { return path_.empty() ? 0 : shape_.delta.value_heads + 1; }
  uint64_t settle_bytes() const override { return 2 * path_.size() * (entries_.row_bytes() + inputs_.row_bytes()); }
  void SettlePart(size_t part) override;
  void EndSettle() override { path_ = {}; }
  void Rollback(size_t length) override;
  void Clear() override;
  void Compact(size_t floor) override;
  void PrepareFork(LayerState& child) override;
  void Fork(LayerState& child) override;
  void AppendTo(std::vector<std::byte>* out, size_t earliest) const override;
  Result<void> ReadFrom(ByteReader& reader, size_t length, size_t earliest, BufferArena* arena) override;
  void Take(LayerState&& other) override;

 private:
  enum EntryPart : size_t { kU, kG, kK };

  struct State {
    AlignedBuffer memory;
    LedgerEntry counted;
    explicit State(StateLedger* ledger) : counted(ledger) {}
  };
  using StatePointer = std::shared_ptr<State>;

  const DeltaClass& form() const { return shape_.delta.form; }
  uint64_t state_bytes() const { return shape_.delta.state_bytes(); }
  static const float* DataOf(const StatePointer& state) {
    return state == nullptr ? nullptr : state->memory.As<float>().data();
  }
  Result<StatePointer> NewState() const;

  // Whether a step of n rows is committed whole or not at all.
  bool IsWhole(size_t n) const { return options_.rollback_rows == 0 && n > kMaxStagedRows; }
  // The boundary to which the next cell folds committed entries.
  size_t FoldLimit(size_t floor) const { return std::max(base_, form().Boundary(std::min(floor, length()))); }
  struct Needs {
    size_t entries = 0, inputs = 0;              // rows of the rings
    size_t usual_entries = 0, usual_inputs = 0;  // the most that such steps need once they follow each other
    bool state = false;                          // a second place
  };
  Needs NeedsOf(size_t n, size_t floor) const;
  static size_t CapacityOf(const RowRing& ring, size_t needed, size_t usual);
  // Of rings of so many rows and so many more states.
  uint64_t MissingBytes(size_t entries, size_t inputs, size_t states) const;
  Result<void> Fit(RowRing& ring, size_t needed, size_t usual, size_t rows);
  bool is_shared() const { return state_ != nullptr && state_.use_count() > 1; }

  size_t inputs_before() const { return shape_.conv_width - 1; }  // that a row reads
  // None where no row reads one.
  size_t kept_inputs() const { return inputs_before() == 0 ? 0 : inputs_before() + options_.rollback_rows; }
  // The first one in a checkpoint.
  size_t FirstInput(size_t length, size_t earliest) const {
    return inputs_before() == 0 ? length : earliest - std::min(earliest, inputs_before());
  }
  void CountBytes() { counted_.Set(entries_.bytes() + inputs_.bytes()); }
  // Entries and state of the rows so far, committed or staged.
  DeltaEntries EntriesFrom(size_t first) const;
  void CommitUnwritten(size_t n);
  void DropInputs();  // those that no rollback makes a row read again
  void AppendState(std::vector<std::byte>* out, size_t boundary) const;

  LinearShape shape_;
  LinearOptions options_;
  LinearCounts counts_;
  GrowthCounts growth_;
  LedgerEntry counted_;  // the rings

  // Committed: the state at base_, null where base_ is 0; entries_ of positions base_ and on; the last num_inputs_ inputs.
  StatePointer state_;
  size_t base_ = 0, num_entries_ = 0, num_inputs_ = 0;
  RowRing entries_, inputs_;
  std::span<const uint32_t> path_;             // of the last commit, while its rows have not moved
  size_t path_entries_ = 0, path_inputs_ = 0;  // committed ones before it

  // Of the step.
  StatePointer spare_;  // a second place
  size_t step_rows_ = 0, floor_ = 0;
  bool is_whole_ = false;
  size_t staged_rows_ = 0;  // run so far
  bool in_spare_ = false;   // the state of the rows so far; of a step that is not whole: the fold in progress
  size_t folding_to_ = 0;   // by the cell in progress
  // Of a whole step, after the rows so far.
  size_t staged_base_ = 0, staged_first_ = 0, staged_entries_ = 0, staged_inputs_ = 0;
};

// A layer's state, if it is one; null: it is another.
inline LinearLayer* LinearOf(LayerState& state) {
  return LinearLayer::Holds(state.checkpoint_kind()) ? static_cast<LinearLayer*>(&state) : nullptr;
}

}  // namespace tidemill

#endif  // TIDEMILL_STATE_LINEAR_LAYER_H_
