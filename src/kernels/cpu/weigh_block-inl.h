// The weighted sum of values, for a few query vectors and a few registers of head_dim at once.
// Per-target include guard: foreach_target compiles this once for each target.
#if defined(TIDEMILL_KERNELS_CPU_WEIGH_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TIDEMILL_KERNELS_CPU_WEIGH_BLOCK_INL_H_
#undef TIDEMILL_KERNELS_CPU_WEIGH_BLOCK_INL_H_
#else
#define TIDEMILL_KERNELS_CPU_WEIGH_BLOCK_INL_H_
#endif

#include "hwy/highway.h"
#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/outer_product-inl.h"
#include "kernels/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tidemill::HWY_NAMESPACE {
namespace {

// o[vector..][dim..] += p * v over keys [begin, end), kQ vectors and kRegisters registers at once. v: the value of key `begin`; the
// others follow `stride` elements apart. dim: as LoadElements wants it. Fetch: one of attention_fetch.h.
template <size_t kQ, size_t kRegisters, class Fetch, typename T>
HWY_INLINE void WeighBlock(const AttentionTile& tile, size_t vector, size_t dim, const T* v, size_t stride,
                           size_t begin, size_t end, Fetch& fetch) {
  const Lane16 d;
  const size_t lanes = hn::Lanes(d);
  Vec16 acc[kQ][kRegisters];
  for (size_t r = 0; r < kQ; ++r) {
    for (size_t c = 0; c < kRegisters; ++c)
      acc[r][c] = hn::Load(d, tile.o + (vector + r) * tile.padded_dim + dim + c * lanes);
  }
  const float* p = tile.scores + vector * kAttentionChunk;
  const T* row = v + dim / kPerStored<T>;
  for (size_t key = begin; key < end; ++key, row += stride / kPerStored<T>) {
    fetch.Values(row, kRegisters * lanes * sizeof(T) / kPerStored<T>, kQ * kRegisters);
    AddOuterProduct([&](size_t r) HWY_ATTR { return hn::Set(d, p[r * kAttentionChunk + key]); },
                    [&](size_t c) HWY_ATTR { return LoadElements(row, dim % kPerStored<T> + c * lanes); }, acc);
  }
  for (size_t r = 0; r < kQ; ++r) {
    for (size_t c = 0; c < kRegisters; ++c)
      hn::Store(acc[r][c], d, tile.o + (vector + r) * tile.padded_dim + dim + c * lanes);
  }
}

}  // namespace
}  // namespace tidemill::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
