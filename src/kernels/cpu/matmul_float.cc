// F32, F16 and BF16 weights times f32 rows: lanes are output rows; one broadcast activation serves V strips.
#include "kernels/cpu/matmul_levels.h"

#include "base/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul_float.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "kernels/cpu/highway_levels.h"
#include "kernels/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tidemill::HWY_NAMESPACE {
namespace {
using Lane = hn::CappedTag<float, 16>;
using Vec = hn::Vec<Lane>;

// kRegisters registers of weights (a strip each, or parts of one where a register holds fewer than 16 lanes) times R rows.
template <typename W, size_t kRegisters, size_t R>
HWY_INLINE void Tile(const MatMulStrips& args, size_t strip, size_t part, size_t row) {
  const Lane d;
  const size_t lanes = hn::Lanes(d);
  const size_t parts = 16 / lanes;
  const W* w[kRegisters];
  for (size_t p = 0; p < kRegisters; ++p) {
    const size_t at = part + p;
    w[p] = reinterpret_cast<const W*>(args.strips + (strip + at / parts) * args.strip_bytes) + at % parts * lanes;
  }
  Vec acc[kRegisters][R];
  for (size_t p = 0; p < kRegisters; ++p) {
    for (size_t r = 0; r < R; ++r) acc[p][r] = hn::Zero(d);
  }
  const float* x = args.x + row * args.x_stride;
  for (size_t k = 0; k < args.cols; ++k) {
    Vec weights[kRegisters];
    for (size_t p = 0; p < kRegisters; ++p) weights[p] = LoadF32(d, w[p] + k * 16);
    for (size_t r = 0; r < R; ++r) {
      const Vec a = hn::Set(d, x[r * args.x_stride + k]);
      for (size_t p = 0; p < kRegisters; ++p) acc[p][r] = hn::MulAdd(weights[p], a, acc[p][r]);
    }
  }
  for (size_t p = 0; p < kRegisters; ++p) {
    const size_t first = strip * 16 + (part + p) * lanes;
    if (first >= args.outputs) continue;
    const size_t valid = HWY_MIN(lanes, args.outputs - first);
    for (size_t r = 0; r < R; ++r) {
      float* out = args.y + (row + r) * args.y_stride + first;
      if (valid == lanes) {
        hn::StoreU(args.accumulate ? hn::Add(hn::LoadU(d, out), acc[p][r]) : acc[p][r], d, out);
      } else {
        HWY_ALIGN float edge[16];
        hn::Store(acc[p][r], d, edge);
        for (size_t i = 0; i < valid; ++i) out[i] = args.accumulate ? out[i] + edge[i] : edge[i];
      }
    }
  }
}

template <typename W>
HWY_INLINE void MatMulOf(const MatMulStrips& args) {
  const size_t parts = 16 / hn::Lanes(Lane());
  const size_t registers = args.num_strips * parts;
  size_t row = 0;
  for (; row + 4 <= args.rows; row += 4) {
    size_t at = 0;
    for (; at + 2 <= registers; at += 2) Tile<W, 2, 4>(args, 0, at, row);
    for (; at < registers; ++at) Tile<W, 1, 4>(args, 0, at, row);
  }
  for (; row < args.rows; ++row) {
    size_t at = 0;
    for (; at + 8 <= registers; at += 8) Tile<W, 8, 1>(args, 0, at, row);
    for (; at < registers; ++at) Tile<W, 1, 1>(args, 0, at, row);
  }
}

void MatMulF32(const MatMulStrips& args) { MatMulOf<float>(args); }
void MatMulF16(const MatMulStrips& args) { MatMulOf<hwy::float16_t>(args); }
void MatMulBF16(const MatMulStrips& args) { MatMulOf<hwy::bfloat16_t>(args); }

}  // namespace
}  // namespace tidemill::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tidemill {

MatMulKernel PickFloatMatMul(DType dtype, Isa isa) {
  switch (dtype) {
    case DType::kF32: return TIDEMILL_PICK(isa, MatMulF32);
    case DType::kF16: return TIDEMILL_PICK(isa, MatMulF16);
    case DType::kBF16: return TIDEMILL_PICK(isa, MatMulBF16);
    default: break;
  }
  StopOnFailedCheck("a float type", __FILE__, __LINE__);
}

}  // namespace tidemill
#endif
