// A machine and a model whose numbers are round, so that a test can say by hand what comes of them.
#ifndef TIDEMILL_PLANNER_TESTING_ROUND_NUMBERS_H_
#define TIDEMILL_PLANNER_TESTING_ROUND_NUMBERS_H_

#include <cstddef>

#include "kernels/attention.h"
#include "planner/machine_profile.h"
#include "planner/predicted_costs.h"

namespace tidemill::testing {

// Weights of every type: 0.1 ns a byte for one row, twice as much for 32, straight between and behind. Attention: in proportion to
// rows, head_dim and group, so that a position of RoundAttention() takes 1 us a query row. A loop: 1 us. One thread takes twice as long
// for all of these. An element: 1 ns. Copying and touching: 1 ns a byte each.
inline MachineProfile RoundProfile() {
  MachineProfile profile;
  profile.date = "2026-01-02";
  profile.source = "round numbers";
  profile.cpu = "a CPU";
  profile.isa = Isa::kAvx2;
  profile.threads = 2;
  profile.copy = 1e9;
  profile.touch = 1e-9;
  profile.element = 1e-9;
  const auto fill = [](OperationSeconds& operations, double times) {
    operations.loop = times * 1e-6;
    for (ProductSeconds& product : operations.product) {
      for (size_t i = 0; i < kProductRows.size(); ++i)
        product[i] = times * 1e-10 * (1 + (static_cast<double>(kProductRows[i]) - 1) / 31);
    }
    for (size_t dim = 0; dim < kAttentionDims.size(); ++dim) {
      for (size_t group = 0; group < kAttentionGroups.size(); ++group) {
        const auto work = static_cast<double>(kAttentionDims[dim] * kAttentionGroups[group]) / 512;
        for (size_t i = 0; i < kAttentionRows.size(); ++i)
          operations.attention[dim][group][i] = times * 1e-6 / 8 * work * static_cast<double>(kAttentionRows[i]);
      }
    }
  };
  fill(profile.all, 1);
  fill(profile.one, 2);
  return profile;
}

// 4096 bytes of state a position.
inline AttentionShape RoundAttention() {
  AttentionShape shape;
  shape.heads = 32;
  shape.kv_heads = 8;
  shape.head_dim = 128;
  shape.kv_dtype = DType::kF16;
  return shape;
}

// Two layers with that attention. Weights of 10 MB in the layers and of 2 MB in the head. 99 loops, and the head's; 100,000 elements of a
// row, in blocks of 16 rows.
inline ModelNumbers RoundModel() {
  ModelNumbers model;
  model.weights = {{.dtype = DType::kQ8_0, .bytes = 6e6}, {.dtype = DType::kQ4_K, .bytes = 4e6}};
  model.head = {{.dtype = DType::kQ6_K, .bytes = 2e6}};
  model.attention = {{2, RoundAttention()}};
  model.row_works = {{.cols = 1000, .elements = 100'000}};
  model.loops = 99;
  model.state_row_bytes = 8192;
  return model;
}

}  // namespace tidemill::testing

#endif  // TIDEMILL_PLANNER_TESTING_ROUND_NUMBERS_H_
