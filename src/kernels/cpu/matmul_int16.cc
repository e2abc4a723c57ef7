// Quantised weights on the baseline and on arm64; higher levels have kernels of their own. Bytes widen to 16 bits inside the register
// (even bytes by a mask, odd ones by a shift), and the pairwise 16-bit product does the rest. Activations come as pairs in that order.
#ifndef HWY_COMPILE_ONLY_STATIC  // the arm64 build has it throughout
#define HWY_COMPILE_ONLY_STATIC  // one level: what the compiler may use everywhere
#endif
#include "base/check.h"
#include "kernels/cpu/matmul_levels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul_int16.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "kernels/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tidemill::HWY_NAMESPACE {
namespace {

using F32 = hn::CappedTag<float, 16>;
using I32 = hn::RebindToSigned<F32>;
using I16 = hn::Repartition<int16_t, I32>;
using U16 = hn::Repartition<uint16_t, I32>;
using U8 = hn::Repartition<uint8_t, I32>;

constexpr size_t kTileRows = kLowTiles ? 2 : 4;

// Bits [from, from + ...) of each byte to bit 4; bits of the neighbouring byte that come along are for the caller to mask.
template <size_t from>
HWY_INLINE hn::Vec<U8> ToBit4(hn::Vec<U8> bytes) {
  const U8 du8;
  const U16 du16;
  if constexpr (from < 4) {
    return hn::BitCast(du8, hn::ShiftLeft<4 - from>(hn::BitCast(du16, bytes)));
  } else if constexpr (from > 4) {
    return hn::BitCast(du8, hn::ShiftRight<from - 4>(hn::BitCast(du16, bytes)));
  } else {
    return bytes;
  }
}

// Group g of a block of one register: four stored quants of each lane.
template <PanelType type, size_t g>
HWY_INLINE hn::Vec<U8> LoadGroup(const uint8_t* block) {
  const U8 du8;
  if constexpr (type == PanelType::kQ8_0) {
    return hn::LoadU(du8, block + g * 64);
  } else {
    auto w = hn::LoadU(du8, block + g % 4 * 64);
    if constexpr (g >= 4) w = ToBit4<8>(w);
    w = hn::And(w, hn::Set(du8, uint8_t{15}));
    if constexpr (kFiveBits<type>) {
      const auto high = ToBit4<g>(hn::LoadU(du8, block + 256));
      w = hn::Or(w, hn::And(high, hn::Set(du8, uint8_t{16})));
    }
    if constexpr (type == PanelType::kQ6_K) {
      const auto high = ToBit4<g % 4 * 2>(hn::LoadU(du8, block + 256 + g / 4 * 64));
      w = hn::Or(w, hn::And(high, hn::Set(du8, uint8_t{48})));
    }
    return w;
  }
}

HWY_INLINE hn::Vec<I16> Pair(const int16_t* pairs) {
  const I32 di32;
  const I16 di16;
  int32_t word;
  hwy::CopyBytes<4>(pairs, &word);
  return hn::BitCast(di16, hn::Set(di32, word));
}

// sum0[r] (and sum1[r] where the pairwise product leaves its halves apart) += group g of a block . the same columns of row r;
// `pairs` is at the first row's block.
template <PanelType type, size_t g, size_t R>
HWY_INLINE void AddGroup(const uint8_t* block, const int16_t* pairs, size_t cols, hn::Vec<I32> (&sum0)[R],
                         hn::Vec<I32> (&sum1)[R]) {
  const I32 di32;
  const I16 di16;
  const U16 du16;
  const auto bytes = hn::BitCast(du16, LoadGroup<type, g>(block));
  const auto even = hn::BitCast(di16, hn::And(bytes, hn::Set(du16, uint16_t{255})));
  const auto odd = hn::BitCast(di16, hn::ShiftRight<8>(bytes));
  for (size_t r = 0; r < R; ++r) {
    const int16_t* a = pairs + r * cols + g * 4;
    sum0[r] = hn::ReorderWidenMulAccumulate(di32, even, Pair(a), sum0[r], sum1[r]);
    sum0[r] = hn::ReorderWidenMulAccumulate(di32, odd, Pair(a + 2), sum0[r], sum1[r]);
  }
}

// One byte of each lane as f32.
template <typename T>
HWY_INLINE hn::Vec<F32> LoadBytes(const uint8_t* at) {
  const F32 df;
  const I32 di32;
  return hn::ConvertTo(df, hn::PromoteTo(di32, hn::LoadU(hn::Rebind<T, I32>(), reinterpret_cast<const T*>(at))));
}

HWY_INLINE hn::Vec<F32> LoadHalves(const uint8_t* at) {
  return LoadF32(F32(), reinterpret_cast<const hwy::float16_t*>(at));
}

// One register (a panel or a part of one) times R rows.
template <PanelType type, size_t R>
HWY_INLINE void Tile(const MatMulPanels& args, size_t panel, size_t part, size_t row) {
  constexpr PanelLayout kLayout = kPanelLayout<type>;
  const F32 df;
  const I32 di32;
  const size_t lanes = hn::Lanes(df);
  const size_t blocks = args.cols / 32;
  const uint8_t* group = args.panels + panel * args.panel_bytes;

  hn::Vec<F32> acc[R];
  for (size_t r = 0; r < R; ++r) acc[r] = hn::Zero(df);
  for (size_t b = 0; b < blocks; group += kGroupBytes<type>) {
    for (size_t i = 0; i < kLayout.scale_blocks; ++i, ++b) {
      const uint8_t* block = group + kLayout.scale_bytes + i * kLayout.quant_bytes + part * lanes * 4;
      const int16_t* pairs = args.pairs + row * args.cols + b * 32;
      const int16_t* half_sums = args.half_sums + (row * blocks + b) * 2;
      const uint8_t* halves = group + part * lanes * 2;
      const uint8_t* byte_scales = group + (kLayout.minimum ? 64 : 32) + i * 32 + part * lanes;
      hn::Vec<I32> sum0[R], sum1[R];
      hn::Vec<F32> s[R];
      for (size_t r = 0; r < R; ++r) sum0[r] = sum1[r] = hn::Zero(di32);
      AddGroup<type, 0>(block, pairs, args.cols, sum0, sum1);
      AddGroup<type, 1>(block, pairs, args.cols, sum0, sum1);
      AddGroup<type, 2>(block, pairs, args.cols, sum0, sum1);
      AddGroup<type, 3>(block, pairs, args.cols, sum0, sum1);
      if constexpr (type == PanelType::kQ6_K) {
        const auto sc = LoadBytes<int8_t>(byte_scales);
        for (size_t r = 0; r < R; ++r) {
          const auto offset = hn::Set(di32, kLayout.offset * half_sums[r * blocks * 2]);
          const auto dot = hn::Sub(hn::RearrangeToOddPlusEven(sum0[r], sum1[r]), offset);
          s[r] = hn::Mul(hn::ConvertTo(df, dot), sc);
          sum0[r] = sum1[r] = hn::Zero(di32);
        }
      }
      AddGroup<type, 4>(block, pairs, args.cols, sum0, sum1);
      AddGroup<type, 5>(block, pairs, args.cols, sum0, sum1);
      AddGroup<type, 6>(block, pairs, args.cols, sum0, sum1);
      AddGroup<type, 7>(block, pairs, args.cols, sum0, sum1);
      for (size_t r = 0; r < R; ++r) {
        auto dot = hn::RearrangeToOddPlusEven(sum0[r], sum1[r]);
        const int16_t* half = half_sums + r * blocks * 2;
        if constexpr (type == PanelType::kQ6_K) {
          dot = hn::Sub(dot, hn::Set(di32, kLayout.offset * half[1]));
          s[r] = hn::MulAdd(hn::ConvertTo(df, dot), LoadBytes<int8_t>(byte_scales + 16), s[r]);  // exact: below 2^24
        } else {
          if constexpr (kLayout.offset != 0) dot = hn::Sub(dot, hn::Set(di32, kLayout.offset * (half[0] + half[1])));
          s[r] = hn::ConvertTo(df, dot);
        }
      }
      auto d_w = LoadHalves(halves);
      if constexpr (kSixBitScales<type>) d_w = hn::Mul(d_w, LoadBytes<uint8_t>(byte_scales));
      for (size_t r = 0; r < R; ++r) {
        const auto scale = hn::Mul(d_w, hn::Set(df, args.d[(row + r) * blocks + b]));
        acc[r] = hn::MulAdd(s[r], scale, acc[r]);
      }
      if constexpr (kSixBitScales<type>) {  // m_w is minus this
        const auto m = hn::Mul(LoadHalves(halves + 32), LoadBytes<uint8_t>(byte_scales + 16));
        for (size_t r = 0; r < R; ++r) acc[r] = hn::NegMulAdd(m, hn::Set(df, args.sum[(row + r) * blocks + b]), acc[r]);
      } else if constexpr (kLayout.minimum) {
        const auto m_w = LoadHalves(halves + 32);
        for (size_t r = 0; r < R; ++r) acc[r] = hn::MulAdd(m_w, hn::Set(df, args.sum[(row + r) * blocks + b]), acc[r]);
      }
    }
  }
  const size_t first = panel * 16 + part * lanes;
  if (first >= args.outputs) return;
  const size_t valid = HWY_MIN(lanes, args.outputs - first);
  for (size_t r = 0; r < R; ++r) {
    float* out = args.y + (row + r) * args.y_stride + first;
    HWY_ALIGN float edge[16];
    hn::Store(acc[r], df, edge);
    for (size_t i = 0; i < valid; ++i) out[i] = args.accumulate ? out[i] + edge[i] : edge[i];
  }
}

template <PanelType type>
HWY_INLINE void MatMulOf(const MatMulPanels& args) {
  const size_t parts = 16 / hn::Lanes(F32());
  for (size_t panel = 0; panel < args.num_panels; ++panel) {
    for (size_t part = 0; part < parts; ++part) {
      size_t row = 0;
      for (; row + kTileRows <= args.rows; row += kTileRows) Tile<type, kTileRows>(args, panel, part, row);
      for (; row < args.rows; ++row) Tile<type, 1>(args, panel, part, row);
    }
  }
}

void MatMulQ8_0(const MatMulPanels& args) { MatMulOf<PanelType::kQ8_0>(args); }
void MatMulQ4_0(const MatMulPanels& args) { MatMulOf<PanelType::kQ4_0>(args); }
void MatMulQ4_1(const MatMulPanels& args) { MatMulOf<PanelType::kQ4_1>(args); }
void MatMulQ5_0(const MatMulPanels& args) { MatMulOf<PanelType::kQ5_0>(args); }
void MatMulQ5_1(const MatMulPanels& args) { MatMulOf<PanelType::kQ5_1>(args); }
void MatMulQ4_K(const MatMulPanels& args) { MatMulOf<PanelType::kQ4_K>(args); }
void MatMulQ5_K(const MatMulPanels& args) { MatMulOf<PanelType::kQ5_K>(args); }
void MatMulQ6_K(const MatMulPanels& args) { MatMulOf<PanelType::kQ6_K>(args); }

}  // namespace
}  // namespace tidemill::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tidemill {

MatMulKernel PickInt16MatMul(PanelType type) {
  switch (type) {
    case PanelType::kQ8_0: return &HWY_STATIC_DISPATCH(MatMulQ8_0);
    case PanelType::kQ4_0: return &HWY_STATIC_DISPATCH(MatMulQ4_0);
    case PanelType::kQ4_1: return &HWY_STATIC_DISPATCH(MatMulQ4_1);
    case PanelType::kQ5_0: return &HWY_STATIC_DISPATCH(MatMulQ5_0);
    case PanelType::kQ5_1: return &HWY_STATIC_DISPATCH(MatMulQ5_1);
    case PanelType::kQ4_K: return &HWY_STATIC_DISPATCH(MatMulQ4_K);
    case PanelType::kQ5_K: return &HWY_STATIC_DISPATCH(MatMulQ5_K);
    case PanelType::kQ6_K: return &HWY_STATIC_DISPATCH(MatMulQ6_K);
  }
  StopOnFailedCheck("a panel type with a kernel", __FILE__, __LINE__);
}

}  // namespace tidemill
#endif
