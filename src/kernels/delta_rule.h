// The gated delta rule over the rows of one sequence's step, from a state and the entries after it.    arXiv:2412.06464 eq. 10; the buffered
// form: the KVBuffer paper, eqs. 13 to 16
//
//   S~ = exp(g_t) S_{t-1};   u_t = beta_t (v_t - k_t S~);   S_t = S~ + k_t^T u_t;   y_t = q_t S_t          S : [key_dim, value_dim] by value head
//
// Boundaries stand at positions start, start + period, ... (DeltaClass). A row's u and y come from the state S0 at the last boundary that is
// not after the row, and from the entries (u, k, g) of its path since. Before `start` there is no state. With start = period = 1 this is
// the recurrent form, with period > 1 the buffered one, with start > period it begins with entries alone.
//
// Bits of one row depend on its path alone, whatever of it is state, entries or rows of this step:
//   d(t, i) = ((g_t + g_{t-1}) + ...) + g_{i+1} along the path, newest first; e(t, i) = exp(d(t, i)), e(t, t) = 1
//   k.k_i, q.k_i: 16 sums, lane r % 16, in ascending r, added by the fixed tree.       k S0, q S0: acc = MulAdd(k[r], S0[r], acc), r ascending
//   u: acc = e(t, B - 1) (k S0), or 0 without a state; for i ascending from B: acc = MulAdd((k.k_i) e(t, i), u_i, acc);  u = beta (v - acc)
//   y: the same with q, up to i = t
//   the state at the next boundary: s = e(t, B - 1) S0, or 0; for i ascending: s = MulAdd(k_i, e(t, i) u_i, s), t the last entry before it
// With entries in BF16, u and k are rounded to nearest even before anything reads them.
// Rows that are on no path may hold any bits, NaN too.
//
// Error: with entries in F32 within 1e-5 of the largest |y| of a head's row; in BF16 within 1e-2 of the largest of all rows (delta_rule_test.cc).
// Cost:  of 64 rows of a chain: the state is read once, and written once if one of them passes a boundary up to fold_to; every entry is read or
//        written once, entry_bytes() each. A row takes 4 state_floats() flops, an entry that it sees 4 (key_heads key_dim + value_heads
//        value_dim), an entry that is folded 2 state_floats(). A tree may fold the same entries for several rows.
// Threads: splits (task, key head) over ctx. Allocates nothing. Shapes were validated when the layer was bound.
#ifndef TIDEMILL_KERNELS_DELTA_RULE_H_
#define TIDEMILL_KERNELS_DELTA_RULE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/checked_math.h"
#include "kernels/execution_context.h"
#include "tensor/dtype.h"
#include "tensor/matrix.h"

namespace tidemill {

inline constexpr size_t kDeltaTile = 32;          // columns of a state that stand together
inline constexpr size_t kMaxDeltaDim = 256;       // of a head's keys and values
inline constexpr size_t kMaxDeltaPeriod = 512;    // and start
inline constexpr size_t kMaxDeltaEntries = 1024;  // of a task
inline constexpr size_t kMaxDeltaTree = 128;      // rows of a tree

// Where the boundaries stand, and how entries are stored: what changes bits.
struct DeltaClass {
  size_t start = 1, period = 1;  // 1 .. kMaxDeltaPeriod
  DType dtype = DType::kF32;     // of u and k: F32 or BF16

  size_t element_bytes() const { return InfoOf(dtype).block_bytes; }  // of u and k
  // The last one that is not after `position`; 0: there is none.
  size_t Boundary(size_t position) const { return position < start ? 0 : position - (position - start) % period; }
  size_t Next(size_t boundary) const { return boundary == 0 ? start : boundary + period; }
  friend bool operator==(const DeltaClass&, const DeltaClass&) = default;
};

struct DeltaShape {
  size_t key_heads = 1, value_heads = 1;  // the second is a multiple of the first
  size_t key_dim = 1, value_dim = 1;      // 1 .. kMaxDeltaDim
  bool tiled = false;  // value head h reads key head h % key_heads; else h / (value_heads / key_heads)
  DeltaClass form;

  size_t heads_per_key() const { return value_heads / key_heads; }
  size_t value_head(size_t key_head, size_t i) const {  // the i-th that reads it
    return tiled ? i * key_heads + key_head : key_head * heads_per_key() + i;
  }
  size_t key_head(size_t value_head) const { return tiled ? value_head % key_heads : value_head / heads_per_key(); }
  size_t padded_value_dim() const { return RoundUp<size_t>(value_dim, kDeltaTile); }
  // Floats of a state: [value_heads, tiles, key_dim, kDeltaTile], columns past value_dim zero.
  size_t head_floats() const { return key_dim * padded_value_dim(); }
  size_t state_floats() const { return value_heads * head_floats(); }
  size_t state_bytes() const { return state_floats() * sizeof(float); }
  // Of an entry of that type, without u's columns past value_dim.
  size_t entry_bytes(DType dtype) const {
    return (key_heads * key_dim + value_heads * value_dim) * InfoOf(dtype).block_bytes + value_heads * sizeof(float);
  }
  friend bool operator==(const DeltaShape&, const DeltaShape&) = default;
};

// A ring of entries: number i stands in row (first + i) % capacity.
struct DeltaEntries {
  std::byte* u = nullptr;  // [value_heads, capacity, padded_value_dim()] of the class's type
  std::byte* k = nullptr;  // [key_heads, capacity, key_dim] of the class's type
  float* g = nullptr;      // [value_heads, capacity]
  size_t capacity = 0;
  size_t first = 0;
};

struct DeltaTask {
  const float* state = nullptr;  // at `base`; null: base is 0, and there is none
  // Gets the state at `fold_to`, a boundary, where that is above base; may be `state`.
  float* folded = nullptr;
  size_t base = 0, fold_to = 0;
  DeltaEntries entries;    // number i < num_entries: of position base + i
  size_t num_entries = 0;  // at most kMaxDeltaEntries
  size_t place = 0;        // num_entries, or less where entries from there on need not stay
  // The rows, at positions base + num_entries and on. All but q become entries:
  //   fold_to <= base + num_entries   row r: number num_entries + r, and all stay
  //   else                            a chain whose last row's boundary is fold_to: position p >= fold_to: number place + p - fold_to; of earlier
  //                                   rows none stays
  ConstMatrix<float> q = {}, k = {};      // [rows, key_heads * key_dim], k normalised, q scaled
  ConstMatrix<float> v = {};              // [rows, value_heads * value_dim]
  ConstMatrix<float> beta = {}, g = {};   // [rows, value_heads]; kMinDecay <= g <= 0
  Matrix<float> y = {};                   // [rows, value_heads * value_dim]
  std::span<const int32_t> parents = {};  // [rows <= kMaxDeltaTree] as AttentionTask::parents; empty: a chain
};

void DeltaRule(ExecutionContext& ctx, const DeltaShape& shape, std::span<const DeltaTask> tasks);

// Folds as a task without rows, of one value head, in the calling thread; fold_to <= base + num_entries. `scratch`: DeltaScratchBytes().
void FoldDelta(Isa isa, const DeltaShape& shape, const DeltaTask& task, size_t value_head,
               std::span<std::byte> scratch);

// Scratch a thread needs.
size_t DeltaScratchBytes();

namespace reference {
// The recurrence in double over a chain. state: [value_heads, key_dim, value_dim]; y: [rows, value_heads * value_dim].
void DeltaRule(const DeltaShape& shape, const DeltaTask& rows, std::vector<double>* state, std::vector<double>* y);
}  // namespace reference

}  // namespace tidemill

#endif  // TIDEMILL_KERNELS_DELTA_RULE_H_
