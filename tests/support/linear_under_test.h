// Layers of linear attention, as the contract tests see them. Rows of 8 bytes, from which all that such a layer is given follows; cells
// that write them; and from the kernel alone, what a layer must make of them.
#ifndef TIDEMILL_TESTS_SUPPORT_LINEAR_UNDER_TEST_H_
#define TIDEMILL_TESTS_SUPPORT_LINEAR_UNDER_TEST_H_

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "state/linear_layer.h"
#include "tests/support/layer_under_test.h"

namespace tidemill::testing {

inline constexpr size_t kLinearRowBytes = 8;

// What the rows of one sequence's cell are: a row of bytes each, all 0xFF for one that nobody may see. v also has a sum of what the
// convolution reads.
struct LinearRows {
  ConstMatrix<float> q, k, v, beta, g, x;
};

// A cell of some sequences, each with its rows of a step.
struct LinearCellRows {
  LinearLayer* layer = nullptr;  // settled
  size_t slot = 0;
  std::span<const std::byte> rows;        // [num_rows, kLinearRowBytes]
  std::span<const int32_t> parents = {};  // empty: a chain
};
void RunLinearCell(std::span<const LinearCellRows> sequences);
inline void RunLinearCell(const LinearCellRows& rows) { RunLinearCell({&rows, 1}); }

// The level of processor of these cells.
Isa LinearIsa();

// What layers of one shape make of rows: every prefix of a sequence is a node, made row by row.
class LinearPrefixes {
 public:
  explicit LinearPrefixes(const LinearShape& shape);
  ~LinearPrefixes();

  // What a checkpoint has of these rows: LinearLayer::AppendTo.
  std::vector<std::byte> Checkpoint(std::span<const std::byte> rows, size_t earliest);
  // The entry of the last of these rows: u, g, k of all heads.
  std::vector<std::byte> LastEntry(std::span<const std::byte> rows);

 private:
  struct Node;
  const Node& NodeOf(std::span<const std::byte> rows);
  void Make(Node* node, const Node* parent, std::span<const std::byte> row);

  LinearShape shape_;
  struct Nodes;
  std::unique_ptr<Nodes> nodes_;
};

class LinearUnderTest : public LayerUnderTest {
 public:
  explicit LinearUnderTest(const LinearShape& shape) : shape_(shape), prefixes_(new LinearPrefixes(shape)) {}

  std::string name() const override;
  std::unique_ptr<LayerState> Make(const SequenceOptions& options) const override;
  std::vector<std::pair<std::string, Pointer>> Strangers() const override;
  size_t row_bytes() const override { return kLinearRowBytes; }
  size_t window() const override { return 1; }  // but for rollbacks
  bool keeps_rows() const override { return false; }
  size_t most_growths(size_t) const override { return 8; }
  size_t longest_step(size_t draft_rows) const override { return draft_rows == 0 ? SIZE_MAX : kMaxDeltaEntries / 2; }
  size_t longest_step_in_part(size_t draft_rows) const override {
    return draft_rows == 0 ? LinearLayer::kMaxStagedRows : SIZE_MAX;
  }
  size_t longest_draft(size_t draft_rows) const override {
    return std::min(kMaxDeltaTree, longest_step_in_part(draft_rows));
  }
  uint64_t CommittedBytes(size_t length, size_t earliest) const override;
  uint64_t MadeBytes(size_t earliest) const override;
  uint64_t ReadBytes(const LayerState& layer, size_t length, size_t draft_rows) const override;
  void Write(LayerState& layer, size_t step_row, std::span<const std::byte> row) const override;
  void WritePath(LayerState& layer, std::span<const uint32_t> slots, std::span<const std::byte> rows) const override;
  void WriteUncommitted(LayerState& layer, size_t count) const override { Touch(layer, count); }
  std::string Difference(LayerState& layer, size_t step_rows, std::span<const std::byte> rows,
                         size_t needed) const override;
  void Touch(LayerState& layer, size_t step_rows) const override;

 private:
  LinearShape shape_;
  std::unique_ptr<LinearPrefixes> prefixes_;  // remembers
};

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_LINEAR_UNDER_TEST_H_
