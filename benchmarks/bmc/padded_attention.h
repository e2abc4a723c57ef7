// Attention of one layer over every row that a cache has allocated, valid or not, as BMC proposes it for libraries of matrix products.
// The shape stays the same until the cache grows, and a mask takes out the rows that hold nothing. Through oneDNN; the engine does not
// use it, the sweep (attention_block.cc) measures it beside the engine's kernel, which reads valid rows only (kernels/attention.h).
//
//   S[b, h, i, c]   = scale * sum_d q[b, h, i, d] * k[b, h / group, c, d] + mask[b, i, c]      c over all `columns`
//   out[b, h, i, d] = sum_c softmax_c(S[b, h, i, c]) * v[b, h / group, c, d]
//   q, out : [batch, heads, len, head_dim] f32         K, V : [batch * kv_heads, stride, head_dim] dtype, the first `columns` rows of each
//   mask   : [1 or batch, 1 or len, columns] f32, 0 where a row is seen and kMasked where it is not
//
// Every row of the mask has a 0 at least. A masked row counts exp(-huge) = 0 times: its keys and values must be finite, and up to 1e4 in
// magnitude they change no bit of S or out where they are not seen.
// A mask of one row is the bias of the product of q and K; another is added to it by the library's loop over the result.
// Error: |out - exact| <= 1e-5 * max |v| in f32 for scores up to 30. In BF16 q and the weights are rounded to it, too: 2^-7 * max |v|.
#ifndef TIDEMILL_BENCHMARKS_BMC_PADDED_ATTENTION_H_
#define TIDEMILL_BENCHMARKS_BMC_PADDED_ATTENTION_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>

#include "tensor/dtype.h"
#include "tidemill/result.h"

namespace tidemill::bmc {

// Finite, so that the library never subtracts one infinity from another.
inline constexpr float kMasked = std::numeric_limits<float>::lowest();

struct PaddedShape {
  size_t batch = 1;
  size_t heads = 1;
  size_t kv_heads = 1;  // divides heads
  size_t head_dim = 1;
  float scale = 1;            // in (0, 1]
  DType dtype = DType::kF32;  // of K and V: F32, or BF16 where the CPU multiplies it
  size_t max_len = 1;         // of any call
  size_t max_columns = 1;
};

struct PaddedContext {
  const std::byte* k = nullptr;
  const std::byte* v = nullptr;
  size_t columns = 0;
  size_t stride = 0;  // rows from one head to the next, at least `columns`
};

struct PaddedMask {
  std::span<const float> values;  // [batch, rows, columns]
  size_t batch = 1;               // 1: the same for all sequences
  size_t rows = 1;                // 1: the same for all rows of a sequence
};

class PaddedAttention {
 public:
  // kUnsupported: a type that this CPU does not multiply.
  static Result<PaddedAttention> Create(const PaddedShape& shape);
  PaddedAttention(PaddedAttention&&) noexcept;
  PaddedAttention& operator=(PaddedAttention&&) noexcept;
  ~PaddedAttention();

  // kInternal: what the library says. The first call of a shape makes its primitives, which the next ones find again.
  Result<void> Run(const PaddedContext& context, const PaddedMask& mask, size_t len, std::span<const float> q,
                   std::span<float> out);

  // Sets of primitives made so far, and the time that took, compilation included: a part of the calls' time.
  uint64_t creations() const;
  double creation_s() const;

 private:
  struct Impl;
  explicit PaddedAttention(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace tidemill::bmc

#endif  // TIDEMILL_BENCHMARKS_BMC_PADDED_ATTENTION_H_
