// Attention of one tile: some query rows of one KV head, chunk after chunk. Attention and sparse attention are made of it.
#ifndef TIDEMILL_KERNELS_CPU_ATTENTION_RUN_H_
#define TIDEMILL_KERNELS_CPU_ATTENTION_RUN_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/checked_math.h"
#include "kernels/attention.h"
#include "kernels/cpu/attention_tile.h"
#include "kernels/key_tiles.h"

namespace tidemill {

// Query vectors of one tile: enough that transposing K is a small part of the work, few enough that scores stay in L1.
inline constexpr size_t kTileVectors = 48;

inline size_t TileRows(const AttentionShape& shape) {
  return std::max<size_t>(1, kTileVectors / (shape.heads / shape.kv_heads));
}

inline size_t PaddedDim(const AttentionShape& shape) { return RoundUp<size_t>(shape.head_dim, 16); }

inline constexpr size_t kMaxVectors = std::max(kTileVectors, kMaxGroup);

// Rows between that of `row` and the step's first one which it follows.
size_t AncestorsOf(std::span<const int32_t> parents, size_t row);

// Calls f(K, V, begin, end) for the pieces of a KV head's stored rows [rows_begin, rows_end) that stand together and in one way; K and V are
// at the first. The row at `origin` is key 0.
template <class F>
void ForPieces(const AttentionShape& shape, std::span<const KvSpan> context, size_t kv_head, size_t rows_begin,
               size_t rows_end, size_t origin, const F& f) {
  for (const KvSpan& span : context) {
    const size_t begin = std::max(span.first, rows_begin), end = std::min(span.first + span.rows, rows_end);
    if (begin >= end) continue;
    const size_t turn = std::clamp(span.first + span.transposed, begin, end);
    const auto piece = [&](bool transposed, size_t first, size_t last) {
      if (first >= last) return;
      const size_t row = first - span.first, skip = transposed ? row % kKeyTileRows : 0;
      const auto at = [&](size_t r) {
        return RowBytes(shape.kv_dtype, kv_head * span.head_stride + r * shape.head_dim);
      };
      f(StoredKeys{span.k + at(row - skip), transposed, skip}, span.v + at(row), first - origin, last - origin);
    };
    piece(true, begin, turn);
    piece(false, turn, end);
  }
}

// One tile: query rows [row, row + rows) of a step, one KV head. The task's q and out begin with the step's row `first_row`.
class TileRun {
 public:
  TileRun(const AttentionShape& shape, const AttentionKernels& kernels, const AttentionTask& task, size_t kv_head,
          size_t row, size_t rows, std::span<std::byte> scratch, size_t first_row = 0);
  TileRun(const TileRun&) = delete;
  TileRun& operator=(const TileRun&) = delete;

  const AttentionTile& tile() const { return tile_; }

  // Loads and attends one chunk; false when no vector sees any of it.
  bool Attend(size_t chunk);
  bool Sees(size_t vector) const { return !seen_[vector].empty(); }

  // Joins the partial result of one vector to its running one.
  void Join(size_t vector, float m, float l, const float* o);
  void JoinChunk();
  void Finish();

 private:
  void ClearUnloadedKeys(size_t seen_begin, size_t seen_end);
  void AttendPaths(size_t chunk, size_t seen_begin, size_t seen_end);
  void WeighRows(size_t chunk);
  AttentionTile RowOfTile(size_t vector) const;
  void LoadPath(AttentionTile& tile, size_t row, size_t position);
  void LoadPieces(AttentionTile& tile, size_t begin, size_t end, size_t origin) const;

  const AttentionShape& shape_;
  const AttentionKernels& kernels_;
  const AttentionTask& task_;
  size_t kv_head_, row_, group_;
  bool by_row_;
  AttentionTile tile_;
  float *running_, *M_, *L_;
  const float* q_[kMaxVectors];
  float* out_[kMaxVectors];
  SeenRanges seen_[kMaxVectors];
  size_t position_[kMaxVectors];
  size_t head_[kMaxVectors];
  bool any_[kMaxVectors];
  int32_t on_path_[kAttentionChunk];  // of a tree: the row whose key stands there
};

// First and one past the last chunk that any row of [row, row + rows) of a step may see; sinks start at 0.
struct ChunkRange {
  size_t begin, end;
};
ChunkRange ChunksOf(const AttentionShape& shape, const AttentionTask& task, size_t row, size_t rows);

// Scratch of a TileRun.
size_t TileRunBytes(const AttentionShape& shape);

}  // namespace tidemill

#endif  // TIDEMILL_KERNELS_CPU_ATTENTION_RUN_H_
