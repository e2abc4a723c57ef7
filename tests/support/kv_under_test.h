// KV layers and folds, as the contract tests see them.
#ifndef TIDEMILL_TESTS_SUPPORT_KV_UNDER_TEST_H_
#define TIDEMILL_TESTS_SUPPORT_KV_UNDER_TEST_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "state/kv_layer.h"
#include "tests/support/layer_under_test.h"

namespace tidemill::testing {

// A row is K of every head, then V of every head.
class KvUnderTest : public LayerUnderTest {
 public:
  // `ahead`: somebody commits pages ahead of their use.
  KvUnderTest(const KvLayerShape& shape, DType dtype, const KvGrowth& growth, bool ahead)
      : shape_(shape), dtype_(dtype), growth_(growth), ahead_(ahead) {}

  const KvLayerShape& shape() const { return shape_; }
  virtual bool is_plain() const { return true; }                      // StateKind::kKv
  virtual Pointer Of(const KvLayerShape& shape, DType dtype) const {  // another one
    return std::make_shared<KvUnderTest>(shape, dtype, growth_, ahead_);
  }
  DType dtype() const { return dtype_; }

  std::string name() const override;
  std::unique_ptr<LayerState> Make(const SequenceOptions& options) const override;
  std::vector<std::pair<std::string, Pointer>> Strangers() const override;
  size_t row_bytes() const override { return shape_.PositionBytes(dtype_); }
  size_t window() const override { return shape_.window; }
  size_t most_growths(size_t rows) const override;
  void Write(LayerState& layer, size_t step_row, std::span<const std::byte> row) const override;
  std::string Difference(LayerState& layer, size_t step_rows, std::span<const std::byte> rows,
                         size_t needed) const override;
  size_t Poison(LayerState& layer, size_t needed) const override;
  void Touch(LayerState& layer, size_t step_rows) const override;
  std::vector<const std::byte*> Addresses(LayerState& layer) const override;

 protected:
  KvOptions OptionsOf(const SequenceOptions& options) const;
  const KvGrowth& growth() const { return growth_; }
  bool ahead() const { return ahead_; }

 private:
  struct RowsKept {
    size_t first = 0;             // position
    std::vector<std::byte> rows;  // [positions from there, row_bytes]
  };

  size_t Bytes(size_t elements) const { return RowBytes(dtype_, elements); }
  KvLayer& Layer(LayerState& layer) const;  // settled
  RowsKept Read(LayerState& layer, size_t step_rows) const;
  // `needed`: position; rows before it may hold anything, and need not be there.
  std::string DescribeRows(std::span<const std::byte> expected, const RowsKept& found, size_t needed) const;

  KvLayerShape shape_;
  DType dtype_;
  KvGrowth growth_;
  bool ahead_;
};

// Rows of 8 bytes. Keeps those that can be rolled back, and no others.
class FoldUnderTest : public LayerUnderTest {
 public:
  explicit FoldUnderTest(uint64_t begin) : begin_(begin) {}

  std::string name() const override { return "Fold" + std::to_string(begin_); }
  std::unique_ptr<LayerState> Make(const SequenceOptions& options) const override;
  std::vector<std::pair<std::string, Pointer>> Strangers() const override;
  size_t row_bytes() const override { return 8; }
  size_t window() const override { return 1; }
  bool keeps_rows() const override { return false; }
  size_t most_growths(size_t) const override { return 5; }
  uint64_t CommittedBytes(size_t length, size_t earliest) const override {
    return 8 + LayerUnderTest::CommittedBytes(length, earliest);
  }
  void Write(LayerState& layer, size_t step_row, std::span<const std::byte> row) const override;
  std::string Difference(LayerState& layer, size_t step_rows, std::span<const std::byte> rows,
                         size_t needed) const override;
  void Touch(LayerState& layer, size_t) const override { layer.Settle(); }

 private:
  uint64_t begin_;
};

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_KV_UNDER_TEST_H_
