// What a matrix kernel of one instruction-set level is given. Plain data without a standard-library class, so that a file
// compiled for one level emits no inline function that another level could then be linked to.
#ifndef TIDEMILL_KERNELS_CPU_MATMUL_KERNEL_H_
#define TIDEMILL_KERNELS_CPU_MATMUL_KERNEL_H_

#include <stddef.h>
#include <stdint.h>

#include "kernels/biased_block.h"
#include "kernels/cpu/fetch.h"
#include "kernels/cpu/low_tiles.h"

namespace tidemill {

// Panels that a kernel takes together at most. Mapped weights are packed into scratch in such groups.
inline constexpr size_t kGroupPanels = 4;

// Some panels of one weight (kernels/weight_matrix.h) times all rows of its task (kernels/matmul.h).
struct MatMulPanels {
  const unsigned char* panels;
  size_t panel_bytes;
  size_t num_panels;
  size_t cols;
  const float* x;  // f32 weights: [rows, cols], rows x_stride apart
  size_t x_stride;
  const uint16_t* bfloat16;  // BF16 weights at a level with their products: [rows, cols], rows bfloat16_stride apart
  size_t bfloat16_stride;
  const int8_t* q;       // quantised weights: [rows, cols]
  const int16_t* pairs;  // the same for 16-bit products (QuantizedRows::pairs)
  const float* d;        // [rows, cols / 32]
  const float* sum;
  const int16_t* half_sums;   // [rows, cols / 16]
  const BiasedBlock* biased;  // QuantizedRows::biased, or null
  size_t biased_row;          // of the first row in its tile of biased blocks: 0 to 3
  size_t rows;
  float* y;  // [rows, outputs], rows y_stride apart
  size_t y_stride;
  size_t outputs;  // valid columns of y: the last panel may have fewer than 16
  bool accumulate;
  unsigned char* expanded;  // room for the bytes of two panels, 64-byte aligned, of types that may be expanded; or null
  // How kernels bring weights from memory, how large their tiles are and where they add; bits are the same.
  bool zen3, zen5, intel;  // the processor is tuned for as one of these (Tuning)
  bool one_thread;         // no other thread of ours reads memory meanwhile
};

// For a tile of all rows, which takes V panels side by side, each as a stream of its own. Fetches from memory the line of each that is
// kBytesAhead behind byte `at`, past a panel's end that of the panel V further on: the processor's own prefetcher stops at the end of
// each page of 4 KiB.
template <size_t V, size_t kBytesAhead>
[[gnu::always_inline]] inline void FetchAhead(const unsigned char* const (&panels)[V], size_t panel_bytes, size_t at) {
  at += kBytesAhead;
  if (at >= panel_bytes) at += (V - 1) * panel_bytes;
  for (size_t v = 0; v < V; ++v) __builtin_prefetch(panels[v] + at, 0, kIntoL2);
}

using MatMulKernel = void (*)(const MatMulPanels&);

}  // namespace tidemill

#endif  // TIDEMILL_KERNELS_CPU_MATMUL_KERNEL_H_
