// One tile of attention: some query rows of one KV head's group over one chunk of positions. Filled by cpu/attention.cc.
#ifndef TIDEMILL_KERNELS_CPU_ATTENTION_TILE_H_
#define TIDEMILL_KERNELS_CPU_ATTENTION_TILE_H_

#include <cstddef>

#include "base/isa.h"
#include "kernels/attention.h"

namespace tidemill {

// Keys of a chunk that a query row sees: two disjoint ascending ranges, either possibly empty.
struct SeenRanges {
  size_t first_begin = 0, first_end = 0;  // sink positions
  size_t begin = 0, end = 0;              // the window, or everything
  bool empty() const { return first_begin == first_end && begin == end; }
};

// Memory of one tile; vectors are padded to 16 floats. r = row * group + head within the group.
struct AttentionTile {
  const AttentionShape* shape;
  size_t padded_dim;       // head_dim rounded up to 16
  size_t vectors;          // query rows x group
  const float* const* q;   // [vectors] -> [head_dim]
  const SeenRanges* seen;  // [vectors]
  const size_t* position;  // [vectors] of the query row
  const size_t* head;      // [vectors]
  size_t chunk_first;      // logical position of key 0
  size_t keys;             // loaded keys: 1..128
  size_t scored;           // of them, the first ones whose scores stand there already
  float* kt;      // [head_dim, 144]: transposed key tiles, 128 and a pad against cache aliasing; or of kKeptFloats
  float* v;       // [128, padded_dim]
  float* scores;  // [vectors, 128]
  float* m;       // [vectors] out: the chunk's maximum; unchanged where nothing is seen
  float* l;       // [vectors] out
  float* o;       // [vectors, padded_dim] out

  bool is_one_row() const { return vectors * shape->kv_heads == shape->heads; }
};

inline constexpr size_t kKeyStride = kAttentionChunk + 16;
// Keys that one step scores at most; it scores what stands behind the last of them, too.
inline constexpr size_t kScoredTogether = 64;
static_assert(kAttentionChunk % kScoredTogether == 0);
// Behind the first 16 * head_dim of kt kernels of few rows keep transposed keys: 64 columns of four vectors of 16.
inline constexpr size_t kKeptFloats = size_t{4} * 64 * 16;

// Where rows of keys stand: the first of them, or, if transposed, the tile that it is in and how many rows are in front of it there.
struct StoredKeys {
  const std::byte* at;
  bool transposed;
  size_t skip;
};

// Few query rows: keys and values are used where they stand. head_dim is a multiple of 16. next: as many bytes that
// are mostly read afterwards, which a kernel may prefetch and never reads: they may lie outside the context.
struct AttentionRowKernels {
  // Of keys [at, at + rows), also those that a vector does not see: softmax hides them. next: their values.
  void (*score)(const AttentionTile& tile, const StoredKeys& k, const std::byte* next, size_t at, size_t rows);
  // Onto o, of keys that all vectors of the tile see; v: the value of key `begin`; next: the keys behind these.
  void (*weigh)(const AttentionTile& tile, const std::byte* v, const std::byte* next, size_t begin, size_t end);
};

struct AttentionKernels {
  // More query rows: keys and values are loaded as f32 once for all vectors. `rows` rows of K and V to keys [at, at + rows) of
  // the tile: K transposed.
  void (*load)(const AttentionTile& tile, const StoredKeys& k, const std::byte* v, size_t at, size_t rows);
  void (*score)(const AttentionTile& tile);
  void (*weigh)(const AttentionTile& tile);  // onto o
  AttentionRowKernels row;
  // Between scores and weighted sums: scores become weights; m and l.
  void (*softmax)(const AttentionTile& tile);
  // Joins (m, l, o) of a chunk to the running (M, L, O) of one vector; the first is copied.
  void (*join)(bool first, size_t padded_dim, float m, float l, const float* o, float* M, float* L, float* O);
  // out[0, head_dim) = O / L
  void (*finish)(size_t head_dim, const float* O, float L, float* out);
};

AttentionKernels PickAttention(Isa isa, Tuning tuning);
AttentionRowKernels PickAttentionRow(Isa isa, Tuning tuning);

}  // namespace tidemill

#endif  // TIDEMILL_KERNELS_CPU_ATTENTION_TILE_H_
