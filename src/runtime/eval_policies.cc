#include "runtime/eval_policies.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <string>
#include <utility>

#include "kernels/sparse_attention.h"

namespace tidemill {
namespace {

constexpr size_t kMaxCompression = 1024, kMaxRows = size_t{1} << 22, kMaxComponents = 1024;

std::optional<size_t> NumberOf(std::string_view text, size_t lowest, size_t highest) {
  size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < lowest || value > highest)
    return std::nullopt;
  return value;
}

Error BadPolicy(std::string_view text) {
  return Error(ErrorCode::kInvalidArgument,
               "read the policies: '" + std::string(text) +
                   "': expected dense, or one of sparq topk h2o window, perhaps with :1/N or :k=N; "
                   "sparq with :1/N or :r=N:k=N");
}

// "dense", "sparq", "sparq:1/8", "sparq:r=32:k=128", "h2o:k=64"; compression 0: not said.
Result<EvalPolicy> ParsePolicy(std::string_view text) {
  const size_t colon = std::min(text.find(':'), text.size());
  const auto kind = ParseAttentionKind(text.substr(0, colon));
  if (!kind.ok() || *kind == AttentionKind::kAuto) return BadPolicy(text);
  EvalPolicy policy = {.kind = *kind, .compression = 0};
  for (std::string_view rest = text.substr(colon); !rest.empty();) {
    rest.remove_prefix(1);
    const std::string_view part = rest.substr(0, rest.find(':'));
    rest.remove_prefix(part.size());
    const auto number = NumberOf(part.substr(std::min<size_t>(2, part.size())), 1, kMaxRows);
    size_t& target = part.starts_with("1/") ? policy.compression : part.starts_with("r=") ? policy.r : policy.k;
    const bool is_known = part.starts_with("1/") || part.starts_with("r=") || part.starts_with("k=");
    if (!is_known || !number || target != 0) return BadPolicy(text);
    target = *number;
  }
  const bool is_dense = policy.kind == AttentionKind::kDense, is_sparq = policy.kind == AttentionKind::kSparq;
  const bool is_given = policy.k != 0 || policy.r != 0;
  if (is_given && (policy.k == 0 || (policy.r != 0) != is_sparq || policy.compression != 0)) return BadPolicy(text);
  if (policy.r > kMaxComponents || policy.compression == 1 || policy.compression > kMaxCompression)
    return BadPolicy(text);
  if (is_dense && (is_given || policy.compression != 0)) return BadPolicy(text);
  if (is_dense) policy.compression = 1;
  return policy;
}

}  // namespace

std::string EvalPolicy::name() const {
  std::string text(AttentionKindName(kind));
  if (kind == AttentionKind::kDense) return text;
  if (k == 0) return text + ":1/" + std::to_string(compression);
  return text + (r == 0 ? "" : ":r=" + std::to_string(r)) + ":k=" + std::to_string(k);
}

Result<std::vector<EvalPolicy>> ParseEvalPolicies(std::string_view names, std::span<const size_t> compressions) {
  std::vector<EvalPolicy> policies = {EvalPolicy()};
  bool dense_is_named = false;
  for (size_t begin = 0; begin <= names.size();) {
    const std::string_view text = names.substr(begin, names.find(',', begin) - begin);
    begin += text.size() + 1;
    TIDEMILL_TRY(policy, ParsePolicy(text));
    std::vector<EvalPolicy> meant = {policy};
    if (policy.compression == 0 && policy.k == 0) {
      meant.clear();
      for (const size_t compression : compressions) {
        policy.compression = compression;
        meant.push_back(policy);
      }
    }
    for (EvalPolicy& one : meant) {
      if (one.k != 0) one.compression = 1;
      if (one == policies.front() && !std::exchange(dense_is_named, true)) continue;
      if (std::find(policies.begin(), policies.end(), one) != policies.end())
        return Error(ErrorCode::kInvalidArgument,
                     "read the policies: '" + one.name() + "' is there twice; name it once");
      policies.push_back(one);
    }
  }
  if (policies.size() > kMaxEvalPolicies)
    return Error(ErrorCode::kInvalidArgument,
                 "read the policies: expected at most " + std::to_string(kMaxEvalPolicies) + ", found " +
                     std::to_string(policies.size()) + "; name fewer, or fewer of --compression");
  return policies;
}

bool ReadsComponents(AttentionKind kind) { return kind == AttentionKind::kSparq || kind == AttentionKind::kTopk; }

AttentionPolicy EvalAttentionOf(const EvalPolicy& policy, size_t head_dim, size_t positions) {
  AttentionPolicy attention = {.kind = policy.kind};
  if (policy.kind == AttentionKind::kDense) return attention;
  const bool is_sparq = policy.kind == AttentionKind::kSparq;
  if (policy.k != 0) {
    attention.k = policy.k;
    if (is_sparq) attention.r = policy.r;
    return attention;
  }
  if (!ReadsComponents(policy.kind)) {
    // More than the first positions that a window keeps.
    const size_t fewest = policy.kind == AttentionKind::kWindow ? kSparseSinks + 1 : 1;
    attention.k = std::max(fewest, positions / policy.compression);
    return attention;
  }
  // In elements: a share, what k rows of keys and values take of it, and what is left for r components of all keys.
  const size_t share = 2 * positions * head_dim / policy.compression;
  const auto components = [&](size_t k) {
    return share <= 2 * k * head_dim ? 0 : (share - 2 * k * head_dim) / positions;
  };
  size_t k = kDefaultSparseTokens;
  if (components(k) < DefaultSparseComponents(head_dim))
    k = std::min(kDefaultSparseTokens, std::bit_floor(std::max<size_t>(1, share / (4 * head_dim))));
  attention.k = k;
  if (is_sparq) attention.r = std::clamp<size_t>(components(k), 1, head_dim);
  return attention;
}

double EvalShareOfDense(const AttentionPolicy& attention, size_t head_dim, size_t positions) {
  if (attention.kind == AttentionKind::kDense) return 1;
  // H2O's own row counts as one of the k, as a window's does.
  const SparseForm form{.kind = ReadsComponents(attention.kind) ? SparseKind::kSparq : SparseKind::kWindow,
                        .reallocate = false,
                        .r = attention.r.value_or(head_dim),
                        .k = *attention.k};
  const AttentionShape shape{.head_dim = head_dim, .kv_dtype = DType::kF32, .bias = {}};
  return SparseReadsOf(shape, form, positions, 0, false).asked / SparseReadsOf(shape, {}, positions, 0, false).asked;
}

size_t SparseHeadDim(const LanguageModel& model, DType kv_dtype) {
  for (const auto& shape : model.attention_shapes(kv_dtype)) {
    if (shape && CanBeSparse(*shape, SparseKind::kSparq)) return shape->head_dim;
  }
  return 0;
}

}  // namespace tidemill
