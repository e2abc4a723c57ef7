// Quantised weights on levels without byte dot products: bytes widen to 16 bits inside the register (even bytes by a mask, odd
// ones by a shift), and the pairwise 16-bit product does the rest. Activations come as pairs in that order.
#include "kernels/cpu/matmul_levels.h"

#include "base/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul_int16.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "kernels/cpu/highway_levels.h"
#include "kernels/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tidemill::HWY_NAMESPACE {
namespace {

using F32 = hn::CappedTag<float, 16>;
using I32 = hn::RebindToSigned<F32>;
using I16 = hn::Repartition<int16_t, I32>;
using U16 = hn::Repartition<uint16_t, I32>;

enum class Type { kQ8_0, kQ4_0, kQ4_1 };

constexpr size_t kQuantBytes(Type type) { return type == Type::kQ8_0 ? 512 : 256; }
constexpr size_t kScaleBytes(Type type) { return type == Type::kQ4_1 ? 64 : 32; }
constexpr int32_t kOffset(Type type) { return type == Type::kQ8_0 ? 128 : type == Type::kQ4_0 ? 8 : 0; }

// sum0 (and sum1 where the pairwise product leaves its halves apart) += bytes (u8, four a lane) . activations (as pairs)
HWY_INLINE void Accumulate(hn::Vec<U16> bytes, hn::Vec<I16> even_a, hn::Vec<I16> odd_a, hn::Vec<I32>& sum0,
                           hn::Vec<I32>& sum1) {
  const I32 di32;
  const I16 di16;
  const U16 du16;
  const auto even = hn::BitCast(di16, hn::And(bytes, hn::Set(du16, uint16_t{255})));
  const auto odd = hn::BitCast(di16, hn::ShiftRight<8>(bytes));
  sum0 = hn::ReorderWidenMulAccumulate(di32, even, even_a, sum0, sum1);
  sum0 = hn::ReorderWidenMulAccumulate(di32, odd, odd_a, sum0, sum1);
}

HWY_INLINE hn::Vec<I16> Pair(const int16_t* pairs) {
  const I32 di32;
  const I16 di16;
  int32_t word;
  hwy::CopyBytes<4>(pairs, &word);
  return hn::BitCast(di16, hn::Set(di32, word));
}

// One register (a strip or a part of one) times R rows.
template <Type type, size_t R>
HWY_INLINE void Tile(const MatMulStrips& args, size_t strip, size_t part, size_t row) {
  const F32 df;
  const I32 di32;
  const U16 du16;
  const size_t lanes = hn::Lanes(df);
  const size_t blocks = args.cols / 32;
  const uint8_t* quants = args.strips + strip * args.strip_bytes + part * lanes * 4;
  const uint8_t* scales = args.strips + strip * args.strip_bytes + blocks * kQuantBytes(type) + part * lanes * 2;

  hn::Vec<F32> acc[R];
  for (size_t r = 0; r < R; ++r) acc[r] = hn::Zero(df);
  for (size_t b = 0; b < blocks; ++b) {
    hn::Vec<I32> sum0[R], sum1[R];
    for (size_t r = 0; r < R; ++r) sum0[r] = sum1[r] = hn::Zero(di32);
    const int16_t* pairs = args.pairs + row * args.cols + b * 32;
    if constexpr (type == Type::kQ8_0) {
      for (size_t g = 0; g < 8; ++g) {
        const auto w = hn::BitCast(du16, hn::LoadU(hn::Repartition<uint8_t, I32>(), quants + b * 512 + g * 64));
        for (size_t r = 0; r < R; ++r) {
          const int16_t* a = pairs + r * args.cols + g * 4;
          Accumulate(w, Pair(a), Pair(a + 2), sum0[r], sum1[r]);
        }
      }
    } else {
      const hn::Repartition<uint8_t, I32> du8;
      const auto nibbles = hn::Set(du8, uint8_t{15});
      for (size_t g = 0; g < 4; ++g) {
        const auto w = hn::LoadU(du8, quants + b * 256 + g * 64);
        const auto low = hn::BitCast(du16, hn::And(w, nibbles));
        const auto high =
            hn::BitCast(du16, hn::And(hn::BitCast(du8, hn::ShiftRight<4>(hn::BitCast(du16, w))), nibbles));
        for (size_t r = 0; r < R; ++r) {
          const int16_t* a = pairs + r * args.cols + g * 4;
          Accumulate(low, Pair(a), Pair(a + 2), sum0[r], sum1[r]);
          Accumulate(high, Pair(a + 16), Pair(a + 18), sum0[r], sum1[r]);
        }
      }
    }
    const auto* s = reinterpret_cast<const hwy::float16_t*>(scales + b * kScaleBytes(type));
    const auto d_w = LoadHalf(df, s);
    for (size_t r = 0; r < R; ++r) {
      auto dot = hn::RearrangeToOddPlusEven(sum0[r], sum1[r]);
      if constexpr (kOffset(type) != 0) {
        const int16_t* halves = args.half_sums + ((row + r) * blocks + b) * 2;
        dot = hn::Sub(dot, hn::Set(di32, kOffset(type) * (halves[0] + halves[1])));
      }
      const auto scale = hn::Mul(d_w, hn::Set(df, args.d[(row + r) * blocks + b]));
      acc[r] = hn::MulAdd(hn::ConvertTo(df, dot), scale, acc[r]);
    }
    if constexpr (type == Type::kQ4_1) {
      const auto m_w = LoadHalf(df, s + 16);
      for (size_t r = 0; r < R; ++r) acc[r] = hn::MulAdd(m_w, hn::Set(df, args.sum[(row + r) * blocks + b]), acc[r]);
    }
  }
  const size_t first = strip * 16 + part * lanes;
  if (first >= args.outputs) return;
  const size_t valid = HWY_MIN(lanes, args.outputs - first);
  for (size_t r = 0; r < R; ++r) {
    float* out = args.y + (row + r) * args.y_stride + first;
    HWY_ALIGN float edge[16];
    hn::Store(acc[r], df, edge);
    for (size_t i = 0; i < valid; ++i) out[i] = args.accumulate ? out[i] + edge[i] : edge[i];
  }
}

template <Type type>
HWY_INLINE void MatMulOf(const MatMulStrips& args) {
  const size_t parts = 16 / hn::Lanes(F32());
  for (size_t strip = 0; strip < args.num_strips; ++strip) {
    for (size_t part = 0; part < parts; ++part) {
      size_t row = 0;
      for (; row + 4 <= args.rows; row += 4) Tile<type, 4>(args, strip, part, row);
      for (; row < args.rows; ++row) Tile<type, 1>(args, strip, part, row);
    }
  }
}

void MatMulQ8_0(const MatMulStrips& args) { MatMulOf<Type::kQ8_0>(args); }
void MatMulQ4_0(const MatMulStrips& args) { MatMulOf<Type::kQ4_0>(args); }
void MatMulQ4_1(const MatMulStrips& args) { MatMulOf<Type::kQ4_1>(args); }

}  // namespace
}  // namespace tidemill::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tidemill {

MatMulKernel PickInt16MatMul(DType dtype, Isa isa) {
  switch (dtype) {
    case DType::kQ8_0: return TIDEMILL_PICK(isa, MatMulQ8_0);
    case DType::kQ4_0: return TIDEMILL_PICK(isa, MatMulQ4_0);
    case DType::kQ4_1: return TIDEMILL_PICK(isa, MatMulQ4_1);
    default: break;
  }
  StopOnFailedCheck("a quantised type", __FILE__, __LINE__);
}

}  // namespace tidemill
#endif
