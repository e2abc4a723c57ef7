// What an operation has to move and to compute, whatever the kernel: benchmarks hold times against it.
#ifndef TIDEMILL_KERNELS_COST_H_
#define TIDEMILL_KERNELS_COST_H_

namespace tidemill {

struct Cost {
  double bytes = 0;         // read from or written to memory, each once
  double flops = 0;         // f32 multiplications and additions; a fused one counts two
  double int8_ops = 0;      // 8-bit multiplications and additions inside integer dot products
  double bfloat16_ops = 0;  // the same inside products of BF16

  Cost& operator+=(const Cost& other) {
    bytes += other.bytes;
    flops += other.flops;
    int8_ops += other.int8_ops;
    bfloat16_ops += other.bfloat16_ops;
    return *this;
  }
};

}  // namespace tidemill

#endif  // TIDEMILL_KERNELS_COST_H_
