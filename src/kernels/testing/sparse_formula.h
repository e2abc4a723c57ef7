// The bit formula of kernels/sparse_attention.h, transcribed to scalar loops as testing/bit_formulas.h has the others.
#ifndef TIDEMILL_KERNELS_TESTING_SPARSE_FORMULA_H_
#define TIDEMILL_KERNELS_TESTING_SPARSE_FORMULA_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/sparse_attention.h"
#include "kernels/testing/bit_formulas.h"

namespace tidemill::testing {

struct SparseOutcome {
  std::vector<float> out, alpha;
  std::vector<uint32_t> kept;  // [kv_heads, min(k, n)]
  std::vector<uint8_t> was_dense;
  std::vector<std::vector<uint32_t>> components;  // [kv_heads] i1; empty where dense by definition
};

// Of the task only form, first_position, parents, row and q count; rows stand in `context` as they are stored.
SparseOutcome SparseAttention(Arithmetic math, const AttentionShape& shape, const PlainContext& context,
                              const SparseTask& task);

}  // namespace tidemill::testing

#endif  // TIDEMILL_KERNELS_TESTING_SPARSE_FORMULA_H_
