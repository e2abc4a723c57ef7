// Scaled dot-product attention: k query rows over one context, with a visibility relation.        arXiv:1706.03762 eq. 1
//
//   score[h, j] = cap(scale * sum_d q[h, d] * k[h / group, j, d]) + bias[h, distance]     cap(x) = soft_cap * tanh(x / soft_cap)
//   out[h]      = sum_j softmax_j(score[h, j]) * v[h / group, j]                          j over the positions that the row sees
//   q, out : [len, heads * head_dim] f32, no overlap          K, V : per KV head [positions, head_dim], group = heads / kv_heads
//   k and v are the stored elements as f32: those of F16 and BF16, and of Q8_0 float(d) * q, are exact
//
// A context is an ordered list of spans (where a run of logical positions is stored); one span is the common case. It may begin
// after position 0; what stands before it is not seen.
//
// Bits of one output row depend on its query, on the keys and values it sees and on their logical positions. They do not depend on spans,
// chunking of the prompt, batch mates, threads, or the row of a draft in which a key is stored:
//   score: acc = 0; for d ascending: acc = MulAdd(q[d], k[d], acc); then acc * scale, then cap and bias where there are any.
//   Positions are cut into chunks of 128 at multiples of 128; a chunk in which the row sees nothing is skipped; a row that sees
//   nothing at all gives zeros. In each chunk
//     m = max score;  p[j] = exp(score[j] - m);  l = tree over s[j % 16] += p[j] in ascending j;
//     o[d] = 0; for j ascending, seen ones only: o[d] = MulAdd(p[j], v[j][d], o[d])
//   Chunks join in ascending order:  M' = max(M, m);  a = exp(M - M');  b = exp(m - M');
//     L' = MulAdd(L, a, l * b);  O'[d] = MulAdd(O[d], a, o[d] * b);     the first chunk is taken as it is
//   out[d] = O[d] / L.
// Rows that are not seen may hold any bits, NaN too. Transposed key tiles give the same bits.
//
// Error: |out - exact| <= AttentionTolerance(head_dim, positions, score magnitude, soft_cap) * max_j |v[j]|,
//        score magnitude = max_j (|scale| * sum_d |q[d] * k[j, d]| + |bias|).
// Cost:  AttentionCost.    Allocates nothing. Shapes were validated when the layer was bound.
// Threads: (task, KV head, tile of query rows), and chunks where there are few rows.
#ifndef TIDEMILL_KERNELS_ATTENTION_H_
#define TIDEMILL_KERNELS_ATTENTION_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cost.h"
#include "kernels/execution_context.h"
#include "tensor/dtype.h"
#include "tensor/matrix.h"

namespace tidemill {

inline constexpr size_t kAttentionChunk = 128;
inline constexpr size_t kMaxHeadDim = 512;
inline constexpr size_t kMaxGroup = 128;  // query heads of one KV head

struct AttentionShape {
  size_t heads = 1;
  size_t kv_heads = 1;  // divides heads
  size_t head_dim = 1;  // at most kMaxHeadDim
  float scale = 1;
  DType kv_dtype = DType::kF32;  // F32, F16, BF16, or Q8_0 where head_dim is a multiple of 32
  float soft_cap = 0;            // 0: none
  size_t window = 0;             // a row sees the last `window` positions, itself included; 0: all
  size_t sink = 0;               // and always the first `sink` positions
  // [heads, distances]: added by distance = query position - key position, the last one for all beyond; keys behind the query
  // get none; empty: none. Finite: window and visibility are what hides keys.
  std::span<const float> bias;
};

// Logical positions [first, first + rows). K and V of KV head h, row r start at element h * head_stride + r * head_dim, which is
// byte RowBytes(kv_dtype, element); but the first `transposed` rows of K, a multiple of 16, stand in tiles (kernels/key_tiles.h).
struct KvSpan {
  const std::byte* k = nullptr;
  const std::byte* v = nullptr;
  size_t head_stride = 0;  // elements; of whole blocks
  size_t first = 0;
  size_t rows = 0;
  size_t transposed = 0;  // may be more than rows; 0 unless HasKeyTiles(kv_dtype)
};

enum class Visibility {
  kCausal,  // positions up to the row's own
  kAll,     // every position of the context
};

struct AttentionTask {
  std::span<const KvSpan> context;  // at least one; ascending, without gaps or overlap
  size_t first_position = 0;        // of query row 0; the others follow
  Visibility visibility = Visibility::kCausal;
  ConstMatrix<float> q;
  Matrix<float> out;
  // [len], where the query rows are nodes of trees, with kCausal: query row i is stored at first_position + i of the context, and follows
  // row parents[i] < i, or with -1 what stands before first_position. It sees that, its ancestors and itself, and its logical position
  // is first_position + the number of its ancestors. Empty: each row follows the one before it.
  std::span<const int32_t> parents = {};
};

void Attention(ExecutionContext& ctx, const AttentionShape& shape, std::span<const AttentionTask> tasks);

// Scratch a thread needs.
size_t AttentionScratchBytes(const AttentionShape& shape);

// `positions`: sum over query rows of the positions they see; `kv_rows`: positions of the context, read once.
Cost AttentionCost(const AttentionShape& shape, size_t len, size_t positions, size_t kv_rows);

// Scores err by gamma(2 head_dim + 4) * magnitude, and by 2^-21 of the cap where there is one; exp turns that into a relative error
// of the weights. The sums over positions and the joins of chunks add one rounding each.
constexpr double AttentionTolerance(size_t head_dim, size_t positions, double score_magnitude, double soft_cap = 0) {
  const double u = 0x1p-24;
  const double score = (2.0 * static_cast<double>(head_dim) + 4) * u * (score_magnitude + 1) + 8 * u * soft_cap;
  const double chunks = static_cast<double>(positions) / static_cast<double>(kAttentionChunk) + 1;
  return 2 * score + (2.0 * static_cast<double>(kAttentionChunk) + 12 * chunks + 16) * u;
}

namespace reference {
void Attention(const AttentionShape& shape, std::span<const AttentionTask> tasks);
}  // namespace reference

}  // namespace tidemill

#endif  // TIDEMILL_KERNELS_ATTENTION_H_
