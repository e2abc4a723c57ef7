// What products, attention and loops take on this machine, with the threads of a context.
#ifndef TIDEMILL_PLANNER_OPERATION_MEASUREMENT_H_
#define TIDEMILL_PLANNER_OPERATION_MEASUREMENT_H_

#include <cstddef>
#include <span>

#include "kernels/execution_context.h"
#include "planner/machine_profile.h"
#include "tensor/dtype.h"
#include "tidemill/result.h"

namespace tidemill {

// What weights, keys and values are made of: a normal number, far from overflow, in every type, whichever of its bytes it is.
inline constexpr int kSampleByte = 0x28;

// Each member is for operations of its own. `sample`: bytes of kSampleByte, more than the last cache holds; borrowed. A context is of
// one thread or more and has scratch of OperationScratchBytes(). All fill `seconds`. kOutOfMemory.
class OperationMeasurement {
 public:
  OperationMeasurement(ExecutionContext& one, ExecutionContext& all, std::span<const std::byte> sample)
      : one_(one), all_(all), sample_(sample) {}

  // A matrix as large as the sample, read from memory; where a pass over it would take more than kLongestPass, as for many rows, arithmetic
  // binds whatever the memory does, and a smaller one serves.
  Result<void> Products(DType dtype, ProductSeconds& one, ProductSeconds& all);
  // One layer after the other, so that keys and values come from memory as in a step.
  void Attention(size_t dim_index, size_t group_index, AttentionSeconds& one, AttentionSeconds& all);
  // As many bytes of small matrices as of eight times larger ones, each behind a norm and a quantisation of what the one before it wrote.
  Result<void> Loops(double element, double& one, double& all);
  // A row that is normed and quantised, in a cache, by one thread.
  Result<double> Element();

 private:
  ExecutionContext& one_;
  ExecutionContext& all_;
  std::span<const std::byte> sample_;
};

size_t OperationScratchBytes();

}  // namespace tidemill

#endif  // TIDEMILL_PLANNER_OPERATION_MEASUREMENT_H_
