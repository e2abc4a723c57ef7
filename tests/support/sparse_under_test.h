// KV layers for sparse attention, as the contract tests see them: as KV layers, and with columns and sums that are those of their rows.
#ifndef TIDEMILL_TESTS_SUPPORT_SPARSE_UNDER_TEST_H_
#define TIDEMILL_TESTS_SUPPORT_SPARSE_UNDER_TEST_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "state/sparse_kv_layer.h"
#include "tests/support/kv_under_test.h"

namespace tidemill::testing {

// What of a layer's columns and sums differs, bit by bit, from those made anew of `rows`, as KvUnderTest has them, all committed positions;
// empty: nothing. Columns from position `needed` on, and sums before its granule, have to be there.
std::string ColumnDifference(const SparseKvLayer& layer, std::span<const std::byte> rows, size_t needed);

// Clears a bit of each element's exponent, so that none is infinite or no number.
void MakeFinite(DType dtype, std::span<std::byte> row);

class SparseUnderTest : public KvUnderTest {
 public:
  SparseUnderTest(const KvLayerShape& shape, DType dtype, const KvGrowth& growth, bool ahead, const SparseForm& form,
                  bool columns)
      : KvUnderTest(shape, dtype, growth, ahead), form_(form), columns_(columns) {}

  bool is_plain() const override { return !has_word(); }  // as its checkpoints are
  Pointer Of(const KvLayerShape& shape, DType dtype) const override {
    return std::make_shared<SparseUnderTest>(shape, dtype, growth(), ahead(), form_, columns_);
  }
  std::string name() const override;
  std::unique_ptr<LayerState> Make(const SequenceOptions& options) const override;
  std::vector<std::pair<std::string, Pointer>> Strangers() const override;
  void Admit(std::span<std::byte> row) const override { MakeFinite(dtype(), row); }
  size_t most_growths(size_t rows) const override;
  uint64_t CommittedBytes(size_t length, size_t earliest) const override;
  uint64_t MadeBytes(size_t) const override { return has_word() ? 8 : 0; }
  uint64_t ReadBytes(const LayerState& layer, size_t length, size_t draft_rows) const override;
  bool GaveUp(const LayerState& layer) const override;
  std::string Difference(LayerState& layer, size_t step_rows, std::span<const std::byte> rows,
                         size_t needed) const override;
  size_t Poison(LayerState& layer, size_t needed) const override;

 private:
  bool evicts() const { return Evicts(form_.kind); }
  bool has_word() const { return evicts() || window() != 0; }
  size_t FirstKept(size_t earliest) const { return FirstSeen(earliest) / kSumRows * kSumRows; }

  SparseForm form_;
  bool columns_;
};

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_SPARSE_UNDER_TEST_H_
