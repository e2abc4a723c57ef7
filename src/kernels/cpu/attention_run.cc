#include "kernels/cpu/attention_run.h"

#include <cstring>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace tidemill {
namespace {

// Up to so many use keys and values where they stand (kernels of rows): 1.3 to 2.4 times as fast as tiles that load them as f32 with 2 and 4 rows,
// 1.01 to 1.3 with 8 (one thread of a Zen 5 at depth 2048; benchmarks/results/kernel_attention.md).
constexpr size_t kRowVectors = 32;

// Floats of one thread's tile, in this order: kt, v, scores, o, O, then m, l, M, L.
struct ScratchLayout {
  size_t vectors, kt, v, scores, o, running, vector_floats;
  explicit ScratchLayout(const AttentionShape& shape)
      : vectors(TileRows(shape) * (shape.heads / shape.kv_heads)),
        kt(std::max(shape.head_dim * kKeyStride, 16 * shape.head_dim + kKeptFloats)),
        v(kAttentionChunk * PaddedDim(shape)),
        scores(vectors * kAttentionChunk),
        o(vectors * PaddedDim(shape)),
        running(vectors * PaddedDim(shape)),
        vector_floats(RoundUp<size_t>(vectors, 16)) {}
  size_t floats() const { return kt + v + scores + o + running + 4 * vector_floats; }
};

SeenRanges SeenBy(const AttentionShape& shape, const AttentionTask& task, size_t position, size_t chunk) {
  const size_t chunk_end = chunk + kAttentionChunk;
  const size_t context_begin = task.context.front().first;
  const size_t context_end = task.context.back().first + task.context.back().rows;
  const size_t end = task.visibility == Visibility::kCausal ? std::min(position + 1, context_end) : context_end;
  const size_t window_begin = shape.window == 0 || position + 1 < shape.window ? 0 : position + 1 - shape.window;
  const size_t sink_end = std::min({shape.sink, window_begin, end});
  const auto clip = [&](size_t x) { return std::clamp(x, chunk, chunk_end) - chunk; };
  SeenRanges seen{clip(context_begin), clip(sink_end), clip(std::max(window_begin, context_begin)), clip(end)};
  if (seen.begin >= seen.end) seen.begin = seen.end = 0;
  if (seen.first_begin >= seen.first_end) seen.first_begin = seen.first_end = 0;
  return seen;
}

}  // namespace

size_t AncestorsOf(std::span<const int32_t> parents, size_t row) {
  if (parents.empty()) return row;
  size_t count = 0;
  for (int32_t node = parents[row]; node >= 0; node = parents[static_cast<size_t>(node)]) ++count;
  return count;
}

TileRun::TileRun(const AttentionShape& shape, const AttentionKernels& kernels, const AttentionTask& task,
                 size_t kv_head, size_t row, size_t rows, std::span<std::byte> scratch, size_t first_row)
    : shape_(shape),
      kernels_(kernels),
      task_(task),
      kv_head_(kv_head),
      row_(row),
      group_(shape.heads / shape.kv_heads),
      by_row_(rows * group_ <= std::max(kRowVectors, group_) && shape.head_dim % 16 == 0) {
  const ScratchLayout layout(shape);
  TIDEMILL_DCHECK(layout.floats() * sizeof(float) <= scratch.size());
  auto* floats = reinterpret_cast<float*>(scratch.data());
  const auto take = [&floats](size_t count) { return std::exchange(floats, floats + count); };
  tile_ = {.shape = &shape,
           .padded_dim = PaddedDim(shape),
           .vectors = rows * group_,
           .q = q_,
           .seen = seen_,
           .position = position_,
           .head = head_,
           .chunk_first = 0,
           .keys = 0,
           .scored = 0,
           .kt = take(layout.kt),
           .v = take(layout.v),
           .scores = take(layout.scores),
           .m = nullptr,
           .l = nullptr,
           .o = take(layout.o)};
  running_ = take(layout.running);
  tile_.m = take(layout.vector_floats);
  tile_.l = take(layout.vector_floats);
  M_ = take(layout.vector_floats);
  L_ = take(layout.vector_floats);
  for (size_t i = 0; i < tile_.vectors; ++i) {
    head_[i] = kv_head * group_ + i % group_;
    position_[i] =
        i % group_ != 0 ? position_[i - 1] : task.first_position + AncestorsOf(task.parents, row + i / group_);
    q_[i] = task.q.row(row - first_row + i / group_) + head_[i] * shape.head_dim;
    out_[i] = task.out.row(row - first_row + i / group_) + head_[i] * shape.head_dim;
    any_[i] = false;
  }
}

bool TileRun::Attend(size_t chunk) {
  size_t seen_begin = kAttentionChunk, seen_end = 0;  // only what some vector sees is loaded
  for (size_t i = 0; i < tile_.vectors; ++i) {
    const SeenRanges& seen = seen_[i] = SeenBy(shape_, task_, position_[i], chunk);
    if (seen.empty()) continue;
    seen_begin = std::min(seen_begin, seen.first_begin < seen.first_end ? seen.first_begin : seen.begin);
    seen_end = std::max({seen_end, seen.first_end, seen.end});
  }
  if (seen_begin >= seen_end) return false;
  tile_.chunk_first = chunk;
  tile_.keys = 0;
  if (!task_.parents.empty() && chunk + seen_end > task_.first_position) {
    AttendPaths(chunk, seen_begin, seen_end);
    return true;
  }
  if (by_row_) {
    ForPieces(shape_, task_.context, kv_head_, chunk + seen_begin, chunk + seen_end, chunk,
              [&](const StoredKeys& k, const std::byte* v, size_t begin, size_t end) {
                kernels_.row.score(tile_, k, v, begin, end - begin);
                tile_.keys = end;
              });
  } else {
    LoadPieces(tile_, chunk + seen_begin, chunk + seen_end, chunk);
    ClearUnloadedKeys(seen_begin, seen_end);
    kernels_.score(tile_);
  }
  kernels_.softmax(tile_);
  std::memset(tile_.o, 0, tile_.vectors * tile_.padded_dim * sizeof(float));
  if (by_row_) {
    WeighRows(chunk);
  } else {
    kernels_.weigh(tile_);
  }
  return true;
}

void TileRun::Join(size_t vector, float m, float l, const float* o) {
  kernels_.join(!any_[vector], tile_.padded_dim, m, l, o, &M_[vector], &L_[vector],
                running_ + vector * tile_.padded_dim);
  any_[vector] = true;
}
void TileRun::JoinChunk() {
  for (size_t i = 0; i < tile_.vectors; ++i) {
    if (Sees(i)) Join(i, tile_.m[i], tile_.l[i], tile_.o + i * tile_.padded_dim);
  }
}

void TileRun::Finish() {
  for (size_t i = 0; i < tile_.vectors; ++i) {
    if (any_[i]) {
      kernels_.finish(shape_.head_dim, running_ + i * tile_.padded_dim, L_[i], out_[i]);
    } else {
      std::memset(out_[i], 0, shape_.head_dim * sizeof(float));  // a row that sees nothing
    }
  }
}

// Keys are scored from 0 on and in whole registers. Nobody sees the scores of those that are not loaded, but of the bytes that a product of
// matrices left there some are denormal numbers as f32, which an Intel multiplies many times as slowly: prefill of 512 of SmolLM2 Q4_1, unpacked
// there, 1.13 [1.05, 1.19] of what it is without this with one thread, 1.01 [0.84, 1.33] with two (Emerald Rapids, six pairs).
// So far keys from seen_begin on are loaded, or none.
void TileRun::ClearUnloadedKeys(size_t seen_begin, size_t seen_end) {
  const size_t front = std::min(seen_begin, tile_.keys), end = RoundUp(seen_end, kScoredTogether);
  float* row = tile_.kt;
  for (size_t i = 0; i < shape_.head_dim; ++i, row += kKeyStride) {
    std::fill(row, row + front, 0.0F);
    std::fill(row + tile_.keys, row + end, 0.0F);
  }
}

// The chunk in which the paths of a tree part, or one behind it: keys before first_position are loaded and scored once for all rows,
// then those of one path at a time, where its positions are.
void TileRun::AttendPaths(size_t chunk, size_t seen_begin, size_t seen_end) {
  const size_t first = task_.first_position;
  const bool shared = chunk + seen_begin < first;
  if (shared) LoadPieces(tile_, chunk + seen_begin, first, chunk);
  ClearUnloadedKeys(seen_begin, seen_end);
  if (shared) kernels_.score(tile_);
  std::memset(tile_.o, 0, tile_.vectors * tile_.padded_dim * sizeof(float));
  std::fill(std::begin(on_path_), std::end(on_path_), -1);
  for (size_t vector = 0; vector < tile_.vectors; vector += group_) {
    if (!Sees(vector)) continue;
    AttentionTile row = RowOfTile(vector);
    LoadPath(row, row_ + vector / group_, position_[vector]);
    kernels_.score(row);
    kernels_.softmax(row);
    kernels_.weigh(row);
  }
}

// Where they stand: together over what all query rows see, one by one before and after it; keys ascend for each row.
void TileRun::WeighRows(size_t chunk) {
  const auto weigh = [&](const AttentionTile& tile, size_t begin, size_t end) {
    ForPieces(shape_, task_.context, kv_head_, chunk + begin, chunk + end, chunk,
              [&](const StoredKeys& k, const std::byte* v, size_t first, size_t last) {
                const size_t keys = RowBytes(shape_.kv_dtype, (k.skip + last - first) * shape_.head_dim);
                kernels_.row.weigh(tile, v, k.at + keys, first, last);
              });
  };
  const auto weigh_row = [&](size_t vector, size_t begin, size_t end) {
    if (begin < end) weigh(RowOfTile(vector), begin, end);
  };
  size_t begin = 0, end = kAttentionChunk;
  for (size_t vector = 0; vector < tile_.vectors; vector += group_) {
    const SeenRanges& seen = seen_[vector];
    begin = std::max(begin, seen.begin);
    end = seen.first_begin < seen.first_end ? 0 : std::min(end, seen.end);
  }
  end = std::max(begin, end);
  for (size_t vector = 0; vector < tile_.vectors; vector += group_) {
    const SeenRanges& seen = seen_[vector];
    weigh_row(vector, seen.first_begin, seen.first_end);
    weigh_row(vector, seen.begin, begin < end ? begin : seen.end);
  }
  if (begin >= end) return;
  weigh(tile_, begin, end);
  for (size_t vector = 0; vector < tile_.vectors; vector += group_) weigh_row(vector, end, seen_[vector].end);
}

// The vectors of one query row, behind keys that are scored.
AttentionTile TileRun::RowOfTile(size_t vector) const {
  AttentionTile row = tile_;
  row.vectors = group_;
  row.q += vector;
  row.seen += vector;
  row.position += vector;
  row.head += vector;
  row.scored = tile_.keys;
  row.scores += vector * kAttentionChunk;
  row.m += vector;
  row.l += vector;
  row.o += vector * tile_.padded_dim;
  return row;
}

// Those of a row's ancestors and of itself that stand in the chunk; the ones that it shares with rows before it are there already.
void TileRun::LoadPath(AttentionTile& tile, size_t row, size_t position) {
  const size_t chunk = tile.chunk_first;
  const size_t keys = std::min(position + 1 - chunk, kAttentionChunk);
  for (auto node = static_cast<int32_t>(row); node >= 0 && position >= chunk; --position) {
    const size_t key = position - chunk, stored = task_.first_position + static_cast<size_t>(node);
    if (key < kAttentionChunk && on_path_[key] != node) {
      LoadPieces(tile, stored, stored + 1, stored - key);
      on_path_[key] = node;
    }
    node = task_.parents[static_cast<size_t>(node)];
  }
  tile.keys = keys;
}

void TileRun::LoadPieces(AttentionTile& tile, size_t begin, size_t end, size_t origin) const {
  ForPieces(shape_, task_.context, kv_head_, begin, end, origin,
            [&](const StoredKeys& k, const std::byte* v, size_t first, size_t last) {
              kernels_.load(tile, k, v, first, last - first);
              tile.keys = last;
            });
}

ChunkRange ChunksOf(const AttentionShape& shape, const AttentionTask& task, size_t row, size_t rows) {
  const size_t context_end = task.context.back().first + task.context.back().rows;
  const size_t last = task.first_position + row + rows;
  const size_t end = task.visibility == Visibility::kCausal ? std::min(last, context_end) : context_end;
  size_t begin = task.context.front().first;
  if (shape.window != 0 && shape.sink == 0) {
    const size_t first = task.first_position + (task.parents.empty() ? row : 0) + 1;
    begin = std::max(begin, first < shape.window ? 0 : first - shape.window);
  }
  return {begin / kAttentionChunk, DivideRoundUp(end, kAttentionChunk)};
}

size_t TileRunBytes(const AttentionShape& shape) { return ScratchLayout(shape).floats() * sizeof(float); }

}  // namespace tidemill
