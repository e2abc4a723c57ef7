// The attention of one decode step, sparse beside dense: 32 query heads of 128, F16, cold caches.
//
//   sparq_attention_step [--threads N] [--repeats N] [--r N] [--k N] [--most-mib N] [--rows] [--small-pages] [--groups 1 4 8] [--positions ...] [--batches ...]
//
// Dense attention reads key tiles, sparse attention rows and columns (--rows: rows and sums alone), of the same memory. Caches are flushed before
// each run, and each has queries of its own. Times are medians; bandwidth is that of reading one large buffer with as many threads.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/check.h"
#include "base/thread_pool.h"
#include "kernels/attention.h"
#include "kernels/sparse_attention.h"
#include "kernels/testing/seeded_inputs.h"

namespace tidemill::sparq {
namespace {

constexpr size_t kHeads = 32, kHeadDim = 128;
constexpr size_t kFlushBytes = size_t{128} << 20;  // read before each run that is timed

struct Options {
  size_t threads = 1, repeats = 9, r = 16, k = 128, most_mib = 4096;
  bool rows = false, small_pages = false;
  std::vector<size_t> groups = {1, 4, 8}, positions = {1024, 4096, 16384, 65536}, batches = {1, 4, 16};
};

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Halves below 2, of both signs.
void FillHalves(AlignedBuffer& buffer, uint64_t seed) {
  testing::Random random(seed);
  for (uint64_t& x : buffer.As<uint64_t>()) x = random.Next() & 0xBFFFBFFFBFFFBFFFU;
}

struct Context {
  AlignedBuffer k, v, columns, sums;
  KvSpan rows, tiles;
  std::vector<ColumnBlock> blocks;

  Context(size_t kv_heads, size_t positions, uint64_t seed, bool large_pages) {
    BufferArena arena;
    const size_t bytes = kv_heads * positions * kHeadDim * 2, num_blocks = positions / kColumnRows;
    const size_t sum_floats = kColumnRows / kSumRows * kv_heads * kHeadDim;
    for (AlignedBuffer* buffer : {&k, &v, &columns}) {
      *buffer = (large_pages ? arena.Allocate(bytes) : AlignedBuffer::Create(bytes)).value();
      FillHalves(*buffer, ++seed);
    }
    sums = AlignedBuffer::Create(num_blocks * sum_floats * sizeof(double)).value();
    rows = {.k = k.data(), .v = v.data(), .head_stride = positions * kHeadDim, .first = 0, .rows = positions};
    tiles = rows;
    tiles.transposed = positions;
    for (size_t i = 0; i < num_blocks; ++i)
      blocks.push_back({.columns = columns.data() + i * kv_heads * kHeadDim * kColumnRows * 2,
                        .sums = sums.As<double>().data() + i * sum_floats});
  }
};

// Drives everything else from the caches.
void Flush() {
  static AlignedBuffer buffer = AlignedBuffer::Create(kFlushBytes).value();
  static uint64_t sum = 0;
  for (uint64_t& word : buffer.As<uint64_t>()) word = ++sum;
}

// Seconds of a run, the median.
template <class Run>
double Median(size_t repeats, const Run& run) {
  std::vector<double> seconds(repeats);
  for (size_t i = 0; i < repeats; ++i) {
    Flush();
    const double begin = Now();
    run(i);
    seconds[i] = Now() - begin;
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[repeats / 2];
}

double ReadBandwidth(ThreadPool& threads) {
  AlignedBuffer buffer = AlignedBuffer::Create(size_t{512} << 20).value();
  const std::span<uint64_t> words = buffer.As<uint64_t>();
  std::fill(words.begin(), words.end(), 1);
  constexpr size_t kParts = 64;
  uint64_t sums[kParts];
  const double seconds = Median(5, [&](size_t) {
    threads.ParallelFor(kParts, [&](size_t part, size_t) {
      const size_t count = words.size() / kParts;
      uint64_t sum[32] = {};
      for (size_t i = 0; i < count; i += 32) {
        for (size_t l = 0; l < 32; ++l) sum[l] += words[part * count + i + l];
      }
      for (size_t l = 1; l < 32; ++l) sum[0] += sum[l];
      sums[part] = sum[0];
    });
  });
  for (const uint64_t sum : sums) TIDEMILL_CHECK(sum == words.size() / kParts);
  return static_cast<double>(buffer.size()) / seconds;
}

void Measure(const Options& options, ThreadPool& threads, double bandwidth, size_t group, size_t positions,
             size_t batch) {
  const AttentionShape shape{.heads = kHeads,
                             .kv_heads = kHeads / group,
                             .head_dim = kHeadDim,
                             .scale = 1 / std::sqrt(static_cast<float>(kHeadDim)),
                             .kv_dtype = DType::kF16,
                             .bias = {}};
  const size_t context_bytes = shape.kv_heads * positions * kHeadDim * 2;
  if (3 * context_bytes * batch > options.most_mib << 20) return;
  ExecutionContext ctx =
      ExecutionContext::Create(DetectIsa(), &threads, std::max(SparseScratchBytes(shape), AttentionScratchBytes(shape)))
          .value();
  TIDEMILL_CHECK(ctx.ReserveShared(SparseSharedBytes(shape, positions) * threads.num_threads() * 4).ok());
  std::vector<std::unique_ptr<Context>> contexts;
  for (size_t i = 0; i < batch; ++i)
    contexts.push_back(std::make_unique<Context>(shape.kv_heads, positions, 3 * i, !options.small_pages));
  const size_t cols = kHeads * kHeadDim, queries = options.repeats + 1;
  std::vector<float> q = testing::RandomFloats(1, queries * batch * cols, 2), out(batch * cols);
  const SparseForm form{.kind = SparseKind::kSparq, .r = options.r, .k = options.k, .local = options.k / 4};
  const size_t filled = (positions - 1) / kSumRows * kSumRows;
  for (const auto& context : contexts) {
    for (ColumnBlock& block : context->blocks) block.columns = options.rows ? nullptr : block.columns;
  }
  std::vector<SparseTask> sparse(batch);
  std::vector<AttentionTask> dense(batch);
  const auto both = [&](size_t turn, bool is_sparse) {
    for (size_t b = 0; b < batch; ++b) {
      Context& context = *contexts[b];
      float* query = q.data() + (turn % queries * batch + b) * cols;
      sparse[b] = {.form = &form,
                   .context = {&context.rows, 1},
                   .first_position = positions - 1,
                   .q = query,
                   .out = out.data() + b * cols};
      sparse[b].columns = {.blocks = context.blocks, .first = 0, .filled = filled};
      dense[b] = {.context = {&context.tiles, 1},
                  .first_position = positions - 1,
                  .q = ConstMatrix<float>(query, 1, cols),
                  .out = Matrix<float>(out.data() + b * cols, 1, cols)};
    }
    if (is_sparse) {
      SparseAttention(ctx, shape, sparse);
    } else {
      Attention(ctx, shape, dense);
    }
  };
  both(options.repeats, false);
  const double dense_seconds = Median(options.repeats, [&](size_t i) { both(i, false); });
  both(options.repeats, true);
  const double sparse_seconds = Median(options.repeats, [&](size_t i) { both(i, true); });
  const auto b = static_cast<double>(batch);
  const double sparse_bytes = b * SparseCost(shape, form, positions, filled, !options.rows).bytes;
  const double dense_bytes = b * AttentionCost(shape, 1, positions, positions).bytes;
  std::printf(
      "group %zu  n %6zu  batch %2zu   dense %10.0f us (%.2f of bandwidth)   sparse %9.0f us (%.2f)   bytes %.3f   "
      "%5.2fx\n",
      group, positions, batch, dense_seconds * 1e6, dense_bytes / dense_seconds / bandwidth, sparse_seconds * 1e6,
      sparse_bytes / sparse_seconds / bandwidth, sparse_bytes / dense_bytes, dense_seconds / sparse_seconds);
}

}  // namespace
}  // namespace tidemill::sparq

int main(int argc, char** argv) {
  using namespace tidemill;
  using namespace tidemill::sparq;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  CLI::App app("What a step of sparse attention costs");
  Options options;
  app.add_option("--threads", options.threads)->check(CLI::PositiveNumber);
  app.add_option("--repeats", options.repeats)->check(CLI::PositiveNumber);
  app.add_option("--r", options.r)->check(CLI::Range(1, 128));
  app.add_option("--k", options.k)->check(CLI::Range(4, 65536));
  app.add_option("--most-mib", options.most_mib)->check(CLI::PositiveNumber);
  app.add_option("--groups", options.groups);
  app.add_option("--positions", options.positions);
  app.add_option("--batches", options.batches);
  app.add_flag("--rows", options.rows);
  app.add_flag("--small-pages", options.small_pages);
  CLI11_PARSE(app, argc, argv);
  auto threads = ThreadPool::Create(options.threads).value();
  const double bandwidth = ReadBandwidth(*threads);
  std::printf("%zu thread(s), %.1f GB/s, r %zu, k %zu, blocks of %zu\n", options.threads, bandwidth / 1e9, options.r,
              options.k, kColumnRows);
  for (const size_t group : options.groups) {
    for (const size_t positions : options.positions) {
      for (const size_t batch : options.batches) Measure(options, *threads, bandwidth, group, positions, batch);
    }
  }
  return 0;
}
