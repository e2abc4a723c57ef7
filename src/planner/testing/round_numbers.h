// A machine and a model whose numbers are round, so that a test can say by hand what comes of them.
#ifndef TIDEMILL_PLANNER_TESTING_ROUND_NUMBERS_H_
#define TIDEMILL_PLANNER_TESTING_ROUND_NUMBERS_H_

#include <cstddef>

#include "planner/machine_profile.h"
#include "planner/predicted_costs.h"

namespace tidemill::testing {

// 10 GB/s; a position takes the sample's attention 1 us a query row; the sample's product takes 1 ms and, for 32 rows, 2 ms, straight
// between. One thread is half as fast. Copying and touching: 1 ns a byte each.
inline MachineProfile RoundProfile() {
  MachineProfile profile;
  profile.date = "2026-01-02";
  profile.source = "round numbers";
  profile.cpu = "a CPU";
  profile.isa = Isa::kAvx2;
  profile.threads = 2;
  profile.all = {.read = 1e10, .int8 = 1e13, .bfloat16 = 0, .f32 = 1e13};
  profile.one = {.read = 0.5e10, .int8 = 0.5e13, .bfloat16 = 0, .f32 = 0.5e13};
  profile.copy = 1e9;
  profile.touch = 1e-9;
  for (size_t i = 0; i < kProfileRows.size(); ++i) {
    const auto rows = static_cast<double>(kProfileRows[i]);
    profile.attention[i] = rows * 1e-6;
    profile.product[i] = 1e-3 * (1 + (rows - 1) / 31);
  }
  return profile;
}

// Two layers with the sample's attention (4096 bytes of state a position each). Products of 10 MB in the layers, with half of the
// sample's operations, and of 2 MB in the head, with a tenth.
inline ModelNumbers RoundModel() {
  ModelNumbers model;
  const double operations = SampleProduct().int8_ops;
  for (size_t i = 0; i < kProfileRows.size(); ++i) {
    model.layer_products[i].bytes = 10e6;
    model.layer_products[i].int8_ops = static_cast<double>(kProfileRows[i]) * operations / 2;
  }
  model.head.bytes = 2e6;
  model.head.int8_ops = operations / 10;
  model.attention = {{2, SampleAttention()}};
  model.state_row_bytes = 8192;
  return model;
}

}  // namespace tidemill::testing

#endif  // TIDEMILL_PLANNER_TESTING_ROUND_NUMBERS_H_
