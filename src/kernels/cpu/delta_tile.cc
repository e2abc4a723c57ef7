// A tile of 32 columns is 16 KiB for key_dim 128: a task's rows and folds go over it while it is in the cache, column by column independent of
// the other tiles.
#include "kernels/cpu/delta_tile.h"

#include <cstring>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/delta_tile.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "kernels/cpu/highway_levels.h"
#include "kernels/cpu/vector_math-inl.h"
#include "kernels/delta_rule.h"
#include "tensor/half.h"

HWY_BEFORE_NAMESPACE();
namespace tidemill::HWY_NAMESPACE {
namespace {

constexpr size_t kLanes = hn::MaxLanes(Lane16());
constexpr size_t kVectors = kDeltaTile / kLanes;  // of a tile's row

// Of a row of 32 columns, in registers.
struct Columns {
  HWY_INLINE Columns() {}  // an implicit one would be compiled for the baseline, which NEON's vectors refuse
  Vec16 at[kVectors];
};
template <typename T>
HWY_INLINE Columns LoadColumns(const T* from) {
  Columns c;
  for (size_t v = 0; v < kVectors; ++v) c.at[v] = LoadF32(Lane16(), from + v * kLanes);
  return c;
}
HWY_INLINE void StoreColumns(const Columns& c, float* to) {
  for (size_t v = 0; v < kVectors; ++v) hn::StoreU(c.at[v], Lane16(), to + v * kLanes);
}
HWY_INLINE Columns Zeros() {
  Columns c;
  for (size_t v = 0; v < kVectors; ++v) c.at[v] = hn::Zero(Lane16());
  return c;
}
HWY_INLINE Columns Times(float factor, const Columns& c) {
  Columns product;
  for (size_t v = 0; v < kVectors; ++v) product.at[v] = hn::Mul(hn::Set(Lane16(), factor), c.at[v]);
  return product;
}
HWY_INLINE void AddProduct(float factor, const Columns& c, Columns& sum) {
  const auto f = hn::Set(Lane16(), factor);
  for (size_t v = 0; v < kVectors; ++v) sum.at[v] = hn::MulAdd(f, c.at[v], sum.at[v]);
}

// Entries of F32 or BF16.
template <bool kBFloat16>
using Stored = std::conditional_t<kBFloat16, hwy::bfloat16_t, float>;

template <bool kBFloat16>
void Store(const float* from, size_t n, std::byte* to) {
  if constexpr (!kBFloat16) {
    std::memcpy(to, from, n * sizeof(float));
  } else {
    for (size_t i = 0; i < n; ++i) {
      const uint16_t bits = FloatToBFloat16(from[i]);
      std::memcpy(to + i * sizeof(bits), &bits, sizeof(bits));
    }
  }
}

template <bool kBFloat16>
HWY_INLINE Stored<kBFloat16>* RowOf(const DeltaTileEntries& entries, size_t entry) {
  return reinterpret_cast<Stored<kBFloat16>*>(entries.u) + entries.u_rows[entry] * entries.stride;
}

void WidenBFloat16(const std::byte* from, size_t n, float* to) {
  for (size_t i = 0; i < n; ++i) {
    uint16_t bits;
    std::memcpy(&bits, from + i * sizeof(bits), sizeof(bits));
    to[i] = BFloat16ToFloat(bits);
  }
}

void Dots(const float* k, const float* q, const uint16_t* entries, size_t n, const float* const* keys, size_t key_dim,
          float* kk, float* qk) {
  const Lane16 d;
  constexpr size_t kParts = 16 / kLanes;
  for (size_t i = 0; i < n; ++i) {
    const float* key = keys[entries[i]];
    Vec16 k_sums[kParts], q_sums[kParts];
    for (size_t p = 0; p < kParts; ++p) k_sums[p] = q_sums[p] = hn::Zero(d);
    size_t r = 0;
    for (; r + 16 <= key_dim; r += 16) {
      for (size_t p = 0; p < kParts; ++p) {
        const auto x = hn::LoadU(d, key + r + p * kLanes);
        k_sums[p] = hn::MulAdd(hn::LoadU(d, k + r + p * kLanes), x, k_sums[p]);
        q_sums[p] = hn::MulAdd(hn::LoadU(d, q + r + p * kLanes), x, q_sums[p]);
      }
    }
    if (r < key_dim) {  // padded copies
      HWY_ALIGN float tail[3][16] = {};
      for (size_t j = 0; r + j < key_dim; ++j) {
        tail[0][j] = key[r + j];
        tail[1][j] = k[r + j];
        tail[2][j] = q[r + j];
      }
      for (size_t p = 0; p < kParts; ++p) {
        const auto x = hn::Load(d, tail[0] + p * kLanes);
        k_sums[p] = hn::MulAdd(hn::Load(d, tail[1] + p * kLanes), x, k_sums[p]);
        q_sums[p] = hn::MulAdd(hn::Load(d, tail[2] + p * kLanes), x, q_sums[p]);
      }
    }
    kk[i] = TreeSum16(k_sums);
    qk[i] = TreeSum16(q_sums);
  }
}

void Decay(float* d, size_t n) {
  const Lane16 lanes;
  for (size_t i = 0; i < n; i += kLanes) hn::StoreU(ExpUpTo0(lanes, hn::LoadU(lanes, d + i)), lanes, d + i);
}

template <size_t kRows>
HWY_INLINE void ProductsOf(const float* const* x, const float* s, size_t key_dim, const float* next, float* out) {
  Columns sums[kRows];
  for (size_t row = 0; row < kRows; ++row) sums[row] = Zeros();
  for (size_t r = 0; r < key_dim; ++r) {
    const Columns c = LoadColumns(s + r * kDeltaTile);
    if (next != nullptr) {
      __builtin_prefetch(next + r * kDeltaTile);
      __builtin_prefetch(next + r * kDeltaTile + 16);
    }
    for (size_t row = 0; row < kRows; ++row) AddProduct(x[row][r], c, sums[row]);
  }
  for (size_t row = 0; row < kRows; ++row) StoreColumns(sums[row], out + row * kDeltaTile);
}

// As many rows at a time as registers hold.
void Products(const float* const* x, size_t rows, const float* s, size_t key_dim, const float* next, float* out) {
  constexpr size_t kMaxAtOnce = HWY_MAX_BYTES >= 64 ? 8 : 2;
  for (size_t row = 0; row < rows;) {
    const size_t left = rows - row;
    size_t taken = 1;
    if (kMaxAtOnce == 8 && left >= 8) {
      ProductsOf<kMaxAtOnce>(x + row, s, key_dim, next, out + row * kDeltaTile);
      taken = kMaxAtOnce;
    } else if (kMaxAtOnce == 8 && left >= 4) {
      ProductsOf<kMaxAtOnce / 2>(x + row, s, key_dim, next, out + row * kDeltaTile);
      taken = kMaxAtOnce / 2;
    } else if (left >= 2) {
      ProductsOf<2>(x + row, s, key_dim, next, out + row * kDeltaTile);
      taken = 2;
    } else {
      ProductsOf<1>(x + row, s, key_dim, next, out + row * kDeltaTile);
    }
    row += taken;
    next = nullptr;
  }
}

template <bool kBFloat16>
void Solve(const DeltaRow& row, const DeltaTileEntries& entries) {
  Columns k_sum = Zeros(), q_sum = Zeros();
  if (row.products != nullptr) {
    k_sum = Times(row.state_decay, LoadColumns(row.products));
    q_sum = Times(row.state_decay, LoadColumns(row.products + kDeltaTile));
  }
  const size_t before = row.num - 1;
  for (size_t i = 0; i < before; ++i) {
    const Columns u = LoadColumns(RowOf<kBFloat16>(entries, row.visible[i]));
    AddProduct(row.k_weights[i], u, k_sum);
    AddProduct(row.q_weights[i], u, q_sum);
  }
  Columns u = LoadColumns(row.v);
  for (size_t v = 0; v < kVectors; ++v) u.at[v] = hn::Mul(hn::Set(Lane16(), row.beta), hn::Sub(u.at[v], k_sum.at[v]));
  HWY_ALIGN float rounded[kDeltaTile];
  StoreColumns(u, rounded);
  auto* const to = RowOf<kBFloat16>(entries, row.visible[before]);
  Store<kBFloat16>(rounded, kDeltaTile, reinterpret_cast<std::byte*>(to));
  AddProduct(row.q_weights[before], LoadColumns(to), q_sum);
  StoreColumns(q_sum, row.y);
}

// Rows r and on of the state, kRows of them, and `n` entries with their weighted u.
template <size_t kRows>
HWY_INLINE void FoldRows(const DeltaFold& fold, const DeltaTileEntries& entries, size_t r, size_t first, size_t n,
                         const float* weighted) {
  Columns s[kRows];
  for (size_t i = 0; i < kRows; ++i) {
    if (first != 0) {
      s[i] = LoadColumns(fold.to + (r + i) * kDeltaTile);
    } else {
      s[i] = fold.from == nullptr ? Zeros() : Times(fold.state_decay, LoadColumns(fold.from + (r + i) * kDeltaTile));
    }
  }
  for (size_t e = 0; e < n; ++e) {
    const float* key = entries.keys[fold.entries[first + e]] + r;
    const Columns u = LoadColumns(weighted + e * kDeltaTile);
    for (size_t i = 0; i < kRows; ++i) AddProduct(key[i], u, s[i]);
  }
  for (size_t i = 0; i < kRows; ++i) StoreColumns(s[i], fold.to + (r + i) * kDeltaTile);
}

template <bool kBFloat16>
void FoldTile(const DeltaFold& fold, const DeltaTileEntries& entries, float* scratch) {
  constexpr size_t kMaxAtOnce = HWY_MAX_BYTES >= 64 ? 4 : 2;
  for (size_t first = 0; first < fold.num; first += kDeltaFoldEntries) {
    const size_t n = HWY_MIN(kDeltaFoldEntries, fold.num - first);
    for (size_t e = 0; e < n; ++e) {
      StoreColumns(Times(fold.weights[first + e], LoadColumns(RowOf<kBFloat16>(entries, fold.entries[first + e]))),
                   scratch + e * kDeltaTile);
    }
    size_t r = 0;
    for (; r + kMaxAtOnce <= fold.key_dim; r += kMaxAtOnce) FoldRows<kMaxAtOnce>(fold, entries, r, first, n, scratch);
    for (; r < fold.key_dim; ++r) FoldRows<1>(fold, entries, r, first, n, scratch);
  }
}

}  // namespace
}  // namespace tidemill::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tidemill {

DeltaKernels PickDelta(Isa isa, DType dtype) {
  if (dtype == DType::kBF16) {
    return {TIDEMILL_PICK(isa, Dots),        TIDEMILL_PICK(isa, Decay),          TIDEMILL_PICK(isa, Products),
            TIDEMILL_PICK(isa, Solve<true>), TIDEMILL_PICK(isa, FoldTile<true>), TIDEMILL_PICK(isa, WidenBFloat16),
            TIDEMILL_PICK(isa, Store<true>)};
  }
  return {TIDEMILL_PICK(isa, Dots),         TIDEMILL_PICK(isa, Decay),           TIDEMILL_PICK(isa, Products),
          TIDEMILL_PICK(isa, Solve<false>), TIDEMILL_PICK(isa, FoldTile<false>), TIDEMILL_PICK(isa, WidenBFloat16),
          TIDEMILL_PICK(isa, Store<false>)};
}

}  // namespace tidemill
#endif
