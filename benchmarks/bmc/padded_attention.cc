#include "benchmarks/bmc/padded_attention.h"

#include <algorithm>
#include <chrono>
#include <compare>
#include <cstring>
#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/aligned_buffer.h"
#include "base/check.h"
#include "base/isa.h"

namespace tidemill::bmc {
namespace {

using dnnl::memory;
using Dims = memory::dims;
using Arguments = std::unordered_map<int, memory>;

// Shapes that are kept. An iterative cache has a new one at each step and never comes back to the old ones.
constexpr size_t kMaxShapes = 64;

struct Key {
  size_t columns, stride, len, mask_batch, mask_rows;
  auto operator<=>(const Key&) const = default;
};

struct Primitives {
  dnnl::matmul scores, weighted;
  dnnl::softmax_forward softmax;
  dnnl::reorder round_q, round_weights;  // BF16 only
  // Without memory of their own; Run says where each stands.
  memory q, f32_q, k, v, mask, s, rows_of_s, rounded_s, out;
};

memory::dim Dim(size_t n) { return static_cast<memory::dim>(n); }

Dims DenseStrides(const Dims& dims) {
  Dims strides(dims.size(), 1);
  for (size_t i = dims.size() - 1; i > 0; --i) strides[i - 1] = strides[i] * dims[i];
  return strides;
}

}  // namespace

struct PaddedAttention::Impl {
  PaddedShape shape;
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::map<Key, Primitives> cache;
  AlignedBuffer scores, rounded_q, rounded_scores, group_mask;
  uint64_t creations = 0;
  double creation_s = 0;

  size_t group() const { return shape.heads / shape.kv_heads; }
  bool bfloat16() const { return shape.dtype == DType::kBF16; }
  memory::data_type stored() const { return bfloat16() ? memory::data_type::bf16 : memory::data_type::f32; }

  memory Unbound(const memory::desc& desc) const { return memory(desc, engine, nullptr); }
  Primitives Make(const Key& key) const;
  const Primitives& Find(const Key& key);
  const float* RowsOfGroup(const PaddedMask& mask, size_t len, size_t columns);
};

// The dimensions of a batch are (sequences, KV heads) where sequences have masks of their own, else (1, all heads of all sequences): those
// are the two forms in which the library's fast loops add a mask. The query heads of a group are rows of one product.
Primitives PaddedAttention::Impl::Make(const Key& key) const {
  const bool own_masks = key.mask_batch != 1;
  const auto outer = Dim(own_masks ? shape.batch : 1),
             inner = Dim(own_masks ? shape.kv_heads : shape.batch * shape.kv_heads);
  const auto rows = Dim(group() * key.len), columns = Dim(key.columns), head_dim = Dim(shape.head_dim);
  const auto head = Dim(key.stride) * head_dim;
  const auto f32 = memory::data_type::f32;
  const auto dense = [](const Dims& dims, memory::data_type type) {
    return memory::desc(dims, type, DenseStrides(dims));
  };

  const memory::desc q = dense({outer, inner, rows, head_dim}, stored());
  const memory::desc k({outer, inner, head_dim, columns}, stored(), {inner * head, head, 1, head_dim});  // transposed
  const memory::desc v({outer, inner, columns, head_dim}, stored(), {inner * head, head, head_dim, 1});
  const memory::desc s = dense({outer, inner, rows, columns}, f32);
  const memory::desc weights = dense({outer, inner, rows, columns}, stored());
  const memory::desc out = dense({outer, inner, rows, head_dim}, f32);
  const memory::desc flat = dense({outer * inner * rows, columns}, f32);
  const bool bias = !own_masks && key.mask_rows == 1;
  const memory::desc mask = dense({outer, 1, key.mask_rows == 1 ? 1 : rows, columns}, f32);

  Primitives made;
  dnnl::primitive_attr attributes;
  attributes.set_output_scales(0, {shape.scale});  // of product and bias: scale * kMasked is as good as kMasked
  if (bias) {
    made.scores = dnnl::matmul({dnnl::matmul::desc(q, k, mask, s), attributes, engine});
  } else {
    dnnl::post_ops add;
    add.append_binary(dnnl::algorithm::binary_add, mask);
    attributes.set_post_ops(add);
    made.scores = dnnl::matmul({dnnl::matmul::desc(q, k, s), attributes, engine});
  }
  made.softmax = dnnl::softmax_forward({{dnnl::prop_kind::forward_inference, flat, 1}, engine});
  made.weighted = dnnl::matmul({dnnl::matmul::desc(weights, v, out), engine});
  made.q = Unbound(q);
  made.k = Unbound(k);
  made.v = Unbound(v);
  made.mask = Unbound(mask);
  made.s = Unbound(s);
  made.rows_of_s = Unbound(flat);
  made.out = Unbound(out);
  if (bfloat16()) {
    made.f32_q = Unbound(dense({outer, inner, rows, head_dim}, f32));
    made.rounded_s = Unbound(weights);
    made.round_q = dnnl::reorder(made.f32_q, made.q);
    made.round_weights = dnnl::reorder(made.s, made.rounded_s);
  }
  return made;
}

const Primitives& PaddedAttention::Impl::Find(const Key& key) {
  const auto found = cache.find(key);
  if (found != cache.end()) return found->second;
  if (cache.size() == kMaxShapes) cache.clear();
  const auto start = std::chrono::steady_clock::now();
  const Primitives& made = cache.emplace(key, Make(key)).first->second;
  creation_s += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  ++creations;
  return made;
}

// Rows of a product are (query head of the group, row), so that a mask of several rows stands there once for each of those heads.
const float* PaddedAttention::Impl::RowsOfGroup(const PaddedMask& mask, size_t len, size_t columns) {
  if (mask.rows == 1 || group() == 1) return mask.values.data();
  const std::span<float> repeated = group_mask.As<float>();
  for (size_t b = 0; b < mask.batch; ++b) {
    for (size_t head = 0; head < group(); ++head) {
      std::copy_n(mask.values.data() + b * len * columns, len * columns,
                  repeated.data() + (b * group() + head) * len * columns);
    }
  }
  return repeated.data();
}

Result<PaddedAttention> PaddedAttention::Create(const PaddedShape& shape) {
  TIDEMILL_CHECK(shape.kv_heads != 0 && shape.heads % shape.kv_heads == 0);
  const bool known = shape.dtype == DType::kF32 || (shape.dtype == DType::kBF16 && HasBFloat16Products(DetectIsa()));
  if (!known) {
    return Error(ErrorCode::kUnsupported, "padded attention: keys and values in " +
                                              std::string(InfoOf(shape.dtype).name) +
                                              ": expected F32, or BF16 on a CPU with AVX512_BF16");
  }
  try {
    auto impl = std::make_unique<Impl>();
    impl->shape = shape;
    dnnl::set_primitive_cache_capacity(0);  // the library's own: it would hide what a new shape costs
    const size_t rows = shape.batch * shape.heads * shape.max_len;
    TIDEMILL_TRY(scores, AlignedBuffer::Create(rows * shape.max_columns * sizeof(float)));
    impl->scores = std::move(scores);
    std::memset(impl->scores.data(), 0, impl->scores.size());  // its pages are not to be a part of anybody's first step
    if (impl->bfloat16()) {
      TIDEMILL_TRY(rounded_q, AlignedBuffer::Create(rows * shape.head_dim * sizeof(uint16_t)));
      TIDEMILL_TRY(rounded_scores, AlignedBuffer::Create(rows * shape.max_columns * sizeof(uint16_t)));
      impl->rounded_q = std::move(rounded_q);
      impl->rounded_scores = std::move(rounded_scores);
      std::memset(impl->rounded_scores.data(), 0, impl->rounded_scores.size());
    }
    if (shape.max_len > 1 && impl->group() > 1) {
      const size_t values = shape.batch * impl->group() * shape.max_len * shape.max_columns;
      TIDEMILL_TRY(group_mask, AlignedBuffer::Create(values * sizeof(float)));
      impl->group_mask = std::move(group_mask);
    }
    return PaddedAttention(std::move(impl));
  } catch (const dnnl::error& error) {
    return Error(ErrorCode::kInternal, std::string("padded attention: start oneDNN: ") + error.what());
  }
}

Result<void> PaddedAttention::Run(const PaddedContext& context, const PaddedMask& mask, size_t len,
                                  std::span<const float> q, std::span<float> out) {
  const PaddedShape& shape = impl_->shape;
  TIDEMILL_CHECK(len <= shape.max_len && context.columns <= shape.max_columns && context.columns <= context.stride);
  TIDEMILL_CHECK((mask.batch == 1 || mask.batch == shape.batch) && (mask.rows == 1 || mask.rows == len));
  TIDEMILL_CHECK(mask.values.size() == mask.batch * mask.rows * context.columns);
  TIDEMILL_CHECK(q.size() == shape.batch * shape.heads * len * shape.head_dim && out.size() == q.size());
  try {
    const Primitives& p = impl_->Find({context.columns, context.stride, len, mask.batch, mask.rows});
    // The library takes its inputs through the same kind of pointer as its results.
    const auto bind = [](const memory& what, const void* at) { what.set_data_handle(const_cast<void*>(at)); };
    bind(p.k, context.k);
    bind(p.v, context.v);
    bind(p.mask, impl_->RowsOfGroup(mask, len, context.columns));
    bind(p.s, impl_->scores.data());
    bind(p.rows_of_s, impl_->scores.data());
    bind(p.out, out.data());
    if (impl_->bfloat16()) {
      bind(p.f32_q, q.data());
      bind(p.q, impl_->rounded_q.data());
      bind(p.rounded_s, impl_->rounded_scores.data());
      p.round_q.execute(impl_->stream, Arguments{{DNNL_ARG_FROM, p.f32_q}, {DNNL_ARG_TO, p.q}});
    } else {
      bind(p.q, q.data());
    }
    const bool bias = mask.batch == 1 && mask.rows == 1;
    const int mask_argument = bias ? DNNL_ARG_BIAS : DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1;
    p.scores.execute(
        impl_->stream,
        Arguments{{DNNL_ARG_SRC, p.q}, {DNNL_ARG_WEIGHTS, p.k}, {mask_argument, p.mask}, {DNNL_ARG_DST, p.s}});
    p.softmax.execute(impl_->stream, Arguments{{DNNL_ARG_SRC, p.rows_of_s}, {DNNL_ARG_DST, p.rows_of_s}});
    if (impl_->bfloat16()) {
      p.round_weights.execute(impl_->stream, Arguments{{DNNL_ARG_FROM, p.s}, {DNNL_ARG_TO, p.rounded_s}});
    }
    p.weighted.execute(impl_->stream, Arguments{{DNNL_ARG_SRC, impl_->bfloat16() ? p.rounded_s : p.s},
                                                {DNNL_ARG_WEIGHTS, p.v},
                                                {DNNL_ARG_DST, p.out}});
    impl_->stream.wait();
  } catch (const dnnl::error& error) {
    return Error(ErrorCode::kInternal,
                 "padded attention over " + std::to_string(context.columns) + " rows: oneDNN: " + error.what());
  }
  return {};
}

uint64_t PaddedAttention::creations() const { return impl_->creations; }
double PaddedAttention::creation_s() const { return impl_->creation_s; }

PaddedAttention::PaddedAttention(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PaddedAttention::PaddedAttention(PaddedAttention&&) noexcept = default;
PaddedAttention& PaddedAttention::operator=(PaddedAttention&&) noexcept = default;
PaddedAttention::~PaddedAttention() = default;

}  // namespace tidemill::bmc
