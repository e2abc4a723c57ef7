// Sparse attention of one query row and one KV head: its memory, and the steps that it is made of.
#ifndef TIDEMILL_KERNELS_CPU_SPARSE_UNIT_H_
#define TIDEMILL_KERNELS_CPU_SPARSE_UNIT_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cpu/attention_run.h"
#include "kernels/cpu/sparse_kernels.h"
#include "kernels/sparse_attention.h"

namespace tidemill {

struct SparseTools {
  explicit SparseTools(const ExecutionContext& ctx)
      : attention(PickAttention(ctx.isa(), ctx.tuning())), sparse(PickSparse(ctx.isa())) {}
  AttentionKernels attention;
  SparseKernels sparse;
};

// Where the key and the value of a position of one row's context stand. `transposed`: k is the first element, the next one 16 further on.
struct StoredRow {
  const std::byte *k, *v;
  bool transposed;
};

// The context that one query row sees: rows by logical position.
struct RowContext {
  std::span<const KvSpan> spans;
  std::span<const int32_t> parents;
  size_t first_position, row;
  size_t position;    // of the row
  size_t begin, end;  // seen positions

  RowContext(const AttentionShape& shape, std::span<const KvSpan> context, size_t first_position,
             std::span<const int32_t> parents, size_t row);
  // Positions before it stand where they count; those from it on, of a tree, somewhere behind it.
  size_t shared_end() const { return parents.empty() ? end : first_position; }
  // The stored row of a position.
  size_t StoredAt(size_t position_of_row) const;
  StoredRow At(const AttentionShape& shape, size_t kv_head, size_t position_of_row) const;

 private:
  mutable size_t span_ = 0;  // of the last one that was asked for
};

// What a thread needs for one unit.
struct SparseScratch {
  std::span<std::byte> tile;
  std::byte *k, *v;  // [kAttentionChunk] rows
  float* gathered;   // [head_dim, 16]
  int32_t* select;   // [kSelectInts]
  float* row;        // [head_dim]
  double* sums;      // [2, head_dim rounded up]
  float* dense;      // [heads * head_dim]

  SparseScratch(const AttentionShape& shape, std::span<std::byte> bytes);
  static size_t Bytes(const AttentionShape& shape);
};

// y of the header: attention over positions [kv_head's own], as if they stood at 0, 1, ...; out and q: of all heads.
void AttendPositions(const AttentionShape& shape, const SparseTools& tools, const RowContext& context, size_t kv_head,
                     std::span<const uint32_t> positions, const float* q, float* out, SparseScratch& scratch);

// The key of a row, for one that is stored as rows are.
void CopyKey(const AttentionShape& shape, const StoredRow& row, std::byte* to);

class SparseUnit {
 public:
  // `memory`: Bytes of the row's positions, for this unit alone, from Prepare to the end.
  SparseUnit(const AttentionShape& shape, const SparseTools& tools, const SparseTask& task, size_t kv_head,
             std::byte* memory);
  static size_t Bytes(const AttentionShape& shape, size_t positions);

  // Nothing is chosen: the row sees k positions or fewer, or its form says so.
  bool is_dense() const { return dense_; }
  size_t chunks() const { return num_chunks_; }

  // In this order, chunks in any; others may do them.
  void Prepare();
  void Score(size_t first_chunk, size_t end_chunk, SparseScratch& scratch);
  void Finish(SparseScratch& scratch);

  // In place of Finish: sums over the group of what each position weighs.
  void Weights(float* weights);

  // After Finish. Scores of all components take the place of the others, then the three numbers of SparseAudit over this group.
  void PrepareExact();
  struct Difference {
    double kept_mass = 0;              // sum over heads
    double difference = 0, dense = 0;  // squares
    double agreement = 0;
  };
  Difference Audit(SparseScratch& scratch);

 private:
  struct Memory {
    Memory(const AttentionShape& shape, size_t chunks, std::byte* at);
    size_t bytes;
    uint32_t *index, *natural;   // chosen components; 0, 1, ...
    float *q, *c;                // [group, r], [group]
    float *m, *l;                // [chunks, stride]; m becomes w
    float* p;                    // [chunks, group, kAttentionChunk]
    int32_t *keys, *exact_keys;  // [chunks * kAttentionChunk] of scores, then positions
  };

  size_t stride() const { return RoundUp<size_t>(group_, 16); }
  bool in_columns() const { return !task_.columns.blocks.empty() && task_.columns.blocks.front().columns != nullptr; }
  void ScoreChunk(size_t chunk, SparseScratch& scratch);
  void ScoreStored(AttentionTile& tile, size_t from, size_t to);
  void ScoreColumns(size_t base, size_t from, size_t to, float* scores);
  void ScoreRows(size_t base, size_t from, size_t to, float* scores, SparseScratch& scratch);
  // i2, in the memory of the scores.
  std::span<const uint32_t> Choose(SparseScratch& scratch);
  float MassOf(std::span<const uint32_t> positions, size_t head) const;
  void Dense(float* out, SparseScratch& scratch) const;
  void Mean(SparseScratch& scratch) const;
  // Sum of the values of positions before `end`, or of [begin, end) alone.
  void SumBefore(size_t end, double* sum, SparseScratch& scratch) const;
  void SumRows(size_t begin, size_t end, double* sum, SparseScratch& scratch) const;

  const AttentionShape& shape_;
  const SparseTools& tools_;
  const SparseTask& task_;
  size_t kv_head_, group_;
  RowContext context_;
  size_t seen_, first_chunk_, num_chunks_;
  bool dense_;
  size_t r_;
  Memory memory_;
  int32_t* keys_;  // those of the header's scores, or the exact ones
};

}  // namespace tidemill

#endif  // TIDEMILL_KERNELS_CPU_SPARSE_UNIT_H_
