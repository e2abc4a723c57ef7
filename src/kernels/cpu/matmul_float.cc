// F32, F16 and BF16 weights times f32 rows. Lanes are output rows: a register holds a column of a panel, or a part of one where it
// holds fewer than 16 lanes. A tile is kRegisters of them x R rows; a broadcast activation serves them all.
// Won: prefetches in each first tile, 8 rows at AVX2 100 instead of 63 Gop/s (Zen 5), but none for one row with one thread where the processor does better.
// Lost: eight registers for one row, 0.66 to 0.95 times as fast (AVX2, Zen 4); two columns of BF16 at a time.
// All numbers: benchmarks/results/kernel_matmul.md.
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

constexpr size_t kLanes = HWY_MIN(hn::MaxLanes(Lane()), 16), kParts = 16 / kLanes;  // registers of a column
// Two registers of as many sums, of 32 or 16. An odd last panel takes small tiles.
constexpr size_t kMaxTile = kLowTiles ? 2 : HWY_TARGET == HWY_SSE4 ? 4 : HWY_MAX_BYTES >= 64 ? 12 : 6;
constexpr size_t kOddTile = kLowTiles ? 2 : 4;
constexpr size_t kFew = 2;  // rows that take four registers
// Columns that stand side by side in a panel: 64 bytes of BF16 hold two.
template <typename W>
constexpr size_t kColumns = 1;
template <>
constexpr size_t kColumns<hwy::bfloat16_t> = 2;
// Whether the weights of one row are fetched ahead of their use with one thread, too, or left to the processor.
template <typename W>
constexpr bool kFetchForOne = HWY_MAX_BYTES < 32 || (HWY_MAX_BYTES < 64 ? sizeof(W) == 2 : kColumns<W> == 2);

// Column c of those at `w`, in f32.
template <size_t c, typename W>
HWY_INLINE Vec LoadColumn(const W* w) {
  return LoadF32(Lane(), w);
}
template <size_t c>
HWY_INLINE Vec LoadColumn(const hwy::bfloat16_t* w) {
  const hn::RebindToUnsigned<Lane> d32;
  const auto pairs = hn::LoadU(d32, reinterpret_cast<const uint32_t*>(w));
  if constexpr (c == 0) return hn::BitCast(Lane(), hn::ShiftLeft<16>(pairs));
  return hn::BitCast(Lane(), hn::And(pairs, hn::Set(d32, 0xFFFF0000U)));
}

// acc[p][r] += column k + c of registers w times that of row r. One column at a time: of two, at AVX2 the weights and the sums are more
// than the registers.
template <size_t c, typename W, size_t kRegisters, size_t R>
HWY_INLINE void AddColumn(const W* const (&w)[kRegisters], size_t k, const float* const (&x)[(R + 2) / 3],
                          size_t stride, Vec (&acc)[kRegisters][R]) {
  Vec weights[kRegisters];
  for (size_t p = 0; p < kRegisters; ++p) weights[p] = LoadColumn<c>(w[p] + k * 16);
#pragma GCC unroll 16
  for (size_t r = 0; r < R; ++r) {
    const Vec a = hn::Set(Lane(), x[r / 3][r % 3 * stride + k + c]);
#pragma GCC unroll 4
    for (size_t p = 0; p < kRegisters; ++p) acc[p][r] = hn::MulAdd(weights[p], a, acc[p][r]);
  }
}

// Whether lines ahead of their use are fetched, as in the first tile: known when a tile is compiled, or told as it runs.
enum class Fetch { kNever, kAlways, kAsTold };

// Rows [row, row + R) of registers [at, at + kRegisters) of the panels.
template <typename W, size_t kRegisters, size_t R, Fetch kFetch>
HWY_INLINE void TileHere(const MatMulPanels& args, size_t at, size_t row, [[maybe_unused]] bool told) {
  const Lane d;
  constexpr size_t kStep = kColumns<W>, kPanels = HWY_MAX(1, kRegisters / kParts);
  const W* w[kRegisters];
  for (size_t p = 0; p < kRegisters; ++p) {
    w[p] = reinterpret_cast<const W*>(args.panels + (at + p) / kParts * args.panel_bytes) +
           (at + p) % kParts * kLanes * kStep;
  }
  const unsigned char* panels[kPanels];
  for (size_t v = 0; v < kPanels; ++v) panels[v] = args.panels + (at / kParts + v) * args.panel_bytes;
  // Three rows to a pointer, which x86's addresses reach from it: twelve pointers are more than there are registers.
  const size_t stride = args.x_stride;
  const float* x[(R + 2) / 3];
  for (size_t r = 0; r < R; r += 3) x[r / 3] = args.x + (row + r) * stride;
  Vec acc[kRegisters][R];
  for (size_t p = 0; p < kRegisters; ++p) {
    for (size_t r = 0; r < R; ++r) acc[p][r] = hn::Zero(d);
  }
  size_t k = 0;
  for (; k + kStep <= args.cols; k += kStep) {
    if constexpr (kFetch == Fetch::kAsTold) __asm__("" : "+r"(told));  // else the loop is compiled twice
    if (kFetch == Fetch::kAlways || (kFetch == Fetch::kAsTold && told))
      FetchAhead<kPanels, 4096>(panels, args.panel_bytes, k * 16 * sizeof(W));
    AddColumn<0, W, kRegisters, R>(w, k, x, stride, acc);
    if constexpr (kStep == 2) AddColumn<1, W, kRegisters, R>(w, k, x, stride, acc);
  }
  if (k < args.cols) AddColumn<0, W, kRegisters, R>(w, k, x, stride, acc);  // an odd last column
  for (size_t p = 0; p < kRegisters; ++p) {
    const size_t first = (at + p) * kLanes;
    if (first >= args.outputs) continue;
    const size_t valid = HWY_MIN(kLanes, args.outputs - first);
    for (size_t r = 0; r < R; ++r) {
      float* out = args.y + (row + r) * args.y_stride + first;
      if (valid == kLanes) {
        hn::StoreU(args.accumulate ? hn::Add(hn::LoadU(d, out), acc[p][r]) : acc[p][r], d, out);
      } else {
        HWY_ALIGN float edge[16];
        hn::Store(acc[p][r], d, edge);
        for (size_t i = 0; i < valid; ++i) out[i] = args.accumulate ? out[i] + edge[i] : edge[i];
      }
    }
  }
}

// The same as a function of its own: in one with all others GCC 12 takes three times as long.
template <typename W, size_t kRegisters, size_t R, Fetch kFetch>
HWY_NOINLINE void Tile(const MatMulPanels& args, size_t at, size_t row, bool told) {
  TileHere<W, kRegisters, R, kFetch>(args, at, row, told);
}

// A tile of `rows` rows, in [1, R].
template <typename W, size_t kRegisters, size_t R>
HWY_INLINE void TileOfRows(const MatMulPanels& args, size_t at, size_t row, size_t rows, bool fetch) {
  if constexpr (R > 1) {
    if (rows < R) return TileOfRows<W, kRegisters, R - 1>(args, at, row, rows, fetch);
  }
  // Told as it runs where few rows are left over: a prompt's tiles have no register for it (BF16, AVX2).
  if constexpr (kRegisters == 1 || (kRegisters == 2 && R <= 2))
    return Tile<W, kRegisters, R, Fetch::kAsTold>(args, at, row, fetch);
  // What a prompt runs: in a function of its own GCC 12 keeps sums on the stack (BF16, AVX2, a Zen 3: prefill 0.78 times as fast).
  if constexpr (kRegisters == 2 && R == kMaxTile) {
    return fetch ? Tile<W, kRegisters, R, Fetch::kAlways>(args, at, row, true)
                 : TileHere<W, kRegisters, R, Fetch::kNever>(args, at, row, false);
  }
  return fetch ? Tile<W, kRegisters, R, Fetch::kAlways>(args, at, row, true)
               : Tile<W, kRegisters, R, Fetch::kNever>(args, at, row, false);
}

// All rows of some registers, in tiles as equal as they can be, of at most R.
template <typename W, size_t kRegisters, size_t R>
HWY_INLINE void AllRows(const MatMulPanels& args, size_t at) {
  const size_t tiles = (args.rows + R - 1) / R;
  for (size_t tile = 0, row = 0; tile < tiles; ++tile) {
    const size_t rows = (args.rows - row) / (tiles - tile);
    TileOfRows<W, kRegisters, R>(args, at, row, rows,
                                 tile == 0 && (args.rows > 1 || !args.one_thread || kFetchForOne<W>));
    row += rows;
  }
}

template <typename W>
HWY_INLINE void MatMulOf(const MatMulPanels& args) {
  const size_t registers = args.num_panels * kParts;
  size_t at = 0;
  if (args.rows <= kFew) {  // so that enough sums are in flight
    for (; at + 4 <= registers; at += 4) AllRows<W, 4, kFew>(args, at);
  }
  for (; at + 2 <= registers; at += 2) AllRows<W, 2, kMaxTile>(args, at);
  if constexpr (kParts == 1) {  // an odd last panel; else every panel has an even number of registers
    for (; at < registers; ++at) AllRows<W, 1, kOddTile>(args, at);
  }
}

void MatMulF32(const MatMulPanels& args) { MatMulOf<float>(args); }
void MatMulF16(const MatMulPanels& args) { MatMulOf<hwy::float16_t>(args); }
void MatMulBF16(const MatMulPanels& args) { MatMulOf<hwy::bfloat16_t>(args); }

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
