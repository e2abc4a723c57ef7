// What of the delta rule differs by instruction set: products and sums over one tile of columns (kernels/delta_rule.h).
#ifndef TIDEMILL_KERNELS_CPU_DELTA_TILE_H_
#define TIDEMILL_KERNELS_CPU_DELTA_TILE_H_

#include <cstddef>
#include <cstdint>

#include "base/isa.h"
#include "kernels/delta_rule.h"
#include "tensor/dtype.h"

namespace tidemill {

// Entries of one head and tile by number i: u stands in row u_rows[i], `stride` elements of the class's type after the one before it.
struct DeltaTileEntries {
  std::byte* u = nullptr;  // row 0
  size_t stride = 0;
  const uint32_t* u_rows = nullptr;
  const float* const* keys = nullptr;  // [key_dim] each
};

struct DeltaRow {
  const uint16_t* visible = nullptr;  // [num] entries, oldest first, the row's own last
  size_t num = 0;
  const float* k_weights = nullptr;  // [num] (k.k_i) e_i
  const float* q_weights = nullptr;  // [num]
  const float* products = nullptr;   // [2, kDeltaTile]: k S0, q S0; null: no state
  float state_decay = 0;
  const float* v = nullptr;  // [kDeltaTile]
  float beta = 0;
  float* y = nullptr;  // [kDeltaTile]
};

struct DeltaFold {
  const uint16_t* entries = nullptr;  // [num], oldest first
  size_t num = 0;
  const float* weights = nullptr;  // [num] e_i
  float state_decay = 0;
  const float* from = nullptr;  // [key_dim, kDeltaTile]; null: no state
  float* to = nullptr;          // may be `from`
  size_t key_dim = 0;
};

struct DeltaKernels {
  // k.keys[i] and q.keys[i] of n keys.
  void (*dots)(const float* k, const float* q, const uint16_t* entries, size_t n, const float* const* keys,
               size_t key_dim, float* kk, float* qk);
  // d[i] = exp(d[i]), i < n; writes up to the next multiple of 16.
  void (*decay)(float* d, size_t n);
  // out[row] = x[row] S, [rows, kDeltaTile]; `next`: a tile that is fetched meanwhile, or null.
  void (*products)(const float* const* x, size_t rows, const float* s, size_t key_dim, const float* next, float* out);
  void (*solve)(const DeltaRow& row, const DeltaTileEntries& entries);
  void (*fold)(const DeltaFold& fold, const DeltaTileEntries& entries, float* scratch);  // kDeltaFoldScratch floats
  void (*widen)(const std::byte* from, size_t n, float* to);  // elements of BF16, whatever the class's type
  void (*store)(const float* from, size_t n, std::byte* to);  // elements of the class's type, rounded to nearest even
};
inline constexpr size_t kDeltaFoldEntries = 64;  // at a time
inline constexpr size_t kDeltaFoldScratch = kDeltaFoldEntries * kDeltaTile;

DeltaKernels PickDelta(Isa isa, DType dtype);

}  // namespace tidemill

#endif  // TIDEMILL_KERNELS_CPU_DELTA_TILE_H_
