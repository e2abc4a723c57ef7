// Measures products, attention and loops on this machine, with the threads of a context.
#ifndef TIDEMILL_PLANNER_OPERATION_MEASUREMENT_H_
#define TIDEMILL_PLANNER_OPERATION_MEASUREMENT_H_

#include <cstddef>
#include <span>

#include "kernels/execution_context.h"
#include "planner/machine_profile.h"
#include "tensor/dtype.h"
#include "tidemill/result.h"

namespace tidemill {

// All bytes of the measured weights, keys and values: a normal number far from overflow in every type.
inline constexpr int kSampleByte = 0x28;

// sample: bytes of kSampleByte, more than the last-level cache holds; borrowed. Both contexts have scratch of OperationScratchBytes().
// kOutOfMemory.
class OperationMeasurement {
 public:
  OperationMeasurement(ExecutionContext& one, ExecutionContext& all, std::span<const std::byte> sample)
      : one_(one), all_(all), sample_(sample) {}

  // A matrix as large as the sample, read from memory. A pass that would take more than kLongestPass is bound by arithmetic: then a smaller
  // matrix serves.
  Result<void> Products(DType dtype, ProductSeconds& one, ProductSeconds& all);
  // Layer by layer, so that keys and values come from memory as in a step.
  void Attention(size_t dim_index, size_t group_index, AttentionSeconds& one, AttentionSeconds& all);
  // Small matrices less the same bytes of eight times larger ones. Each product follows a norm and a quantisation of the result before.
  Result<void> Loops(double element, double& one, double& all);
  // One thread norms and quantises a row that is in its cache.
  Result<double> Element();

 private:
  ExecutionContext& one_;
  ExecutionContext& all_;
  std::span<const std::byte> sample_;
};

size_t OperationScratchBytes();

}  // namespace tidemill

#endif  // TIDEMILL_PLANNER_OPERATION_MEASUREMENT_H_
