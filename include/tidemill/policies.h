// Choices of the caller that are obeyed far below the engine: how a cache grows, how positions are stretched, when linear attention
// writes its state, how much of a cache attention reads.
#ifndef TIDEMILL_POLICIES_H_
#define TIDEMILL_POLICIES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "tidemill/result.h"

namespace tidemill {

// How far ahead of a sequence its key/value cache is allocated. No policy changes an answer, only its cost in time and memory.
enum class KvPolicy : uint8_t {
  kIterative,  // a new buffer and a copy of everything at each step, as frameworks do that append by concatenation
  kUpfront,    // all rows that the request may need, at once
  kBmc,        // the next multiple of the growth increment, copied into a larger buffer when it is full
  kGeometric,  // the next power of two of rows
  kReserve,    // addresses for all rows at once, memory one growth increment ahead; nothing is copied
  kPaged,      // blocks of one growth increment that stay where they are
};

// "iterative", "upfront", "bmc", "geometric", "reserve", "paged"; kInvalidArgument lists them.
Result<KvPolicy> ParseKvPolicy(std::string_view name);
std::string_view KvPolicyName(KvPolicy policy);

// Rope scaling that the caller asks for in place of the model file's own, so that a model goes past its own positions.
enum class RopeKind : uint8_t {
  kLinear,  // every frequency divided by the factor
  kYarn,    // low frequencies divided, high ones kept, attention sharpened: arXiv:2309.00071
};

inline constexpr double kMaxRopeFactor = 1024;

// As transformers' rope_scaling = {"rope_type": kind, "factor": factor}, everything else at its default.
struct RopeOverride {
  RopeKind kind = RopeKind::kYarn;
  double factor = 2;  // above 1, at most kMaxRopeFactor: the longest context is as many times the model's own
};

// When linear attention writes its state (docs/linear-attention.md). Unlike a growth policy this changes bits, and is part of a request's
// numeric class.
enum class LinearForm : uint8_t {
  kAuto,       // by a table of model shapes
  kRecurrent,  // after each token
  kBuffered,   // after `buffer` tokens, whose keys and values are kept until then
  kKv,         // the same, but the first `start` tokens are kept without a state
};

// "auto", "recurrent", "buffered", "kv"; kInvalidArgument lists them.
Result<LinearForm> ParseLinearForm(std::string_view name);
std::string_view LinearFormName(LinearForm form);

struct LinearPolicy {
  static constexpr size_t kMaxTokens = 512;

  LinearForm form = LinearForm::kAuto;
  size_t buffer = 0;      // 1 to kMaxTokens; 0: by the table
  size_t start = 0;       // the same, at least `buffer`
  bool bfloat16 = false;  // what is kept until then
  friend bool operator==(const LinearPolicy&, const LinearPolicy&) = default;
};

// What the attention of a generated token reads (docs/sparse-attention.md). All but kDense give up something and change bits: the policy is part of
// a request's numeric class. Prompts are read densely.
enum class AttentionKind : uint8_t {
  kDense,   // every position
  kSparq,   // the positions that a few components of the query score highest: arXiv:2312.04985
  kTopk,    // the positions of highest exact scores, for which every key is read
  kH2o,     // the last positions, and those that most was attended to so far; others are evicted: arXiv:2306.14048
  kWindow,  // the first 16 positions and the last ones: arXiv:2309.17453
  kAuto,    // kSparq where it reads much less at the request's length, else kDense; by a table
};
inline constexpr std::array kAttentionKinds = {AttentionKind::kDense, AttentionKind::kSparq,  AttentionKind::kTopk,
                                               AttentionKind::kH2o,   AttentionKind::kWindow, AttentionKind::kAuto};

// "dense", "sparq", "topk", "h2o", "window", "auto"; kInvalidArgument lists them.
Result<AttentionKind> ParseAttentionKind(std::string_view name);
std::string_view AttentionKindName(AttentionKind kind);

// How the scores of a group of query heads make one: kPaper sums their softmaxes, kEval their logits, as the authors' tables do.
enum class SparqRule : uint8_t { kPaper, kEval };

// How kSparq reads components of keys.
enum class KeyColumns : uint8_t {
  kAuto,   // kCache, or kNone for q8_0
  kNone,   // from rows: no memory, and every key is read
  kCache,  // from a second copy in the cache's type: half as much memory again
};

// What floors were fitted for. Under anything else they say nothing.
struct FloorOrigin {
  uint64_t model = 0;  // as EvalCalibration::origin has it
  size_t r = 0, k = 0, local = 0;
  SparqRule rule = SparqRule::kPaper;
  bool reallocate = true;
  friend bool operator==(const FloorOrigin&, const FloorOrigin&) = default;
};

// Where kSparq turns dense for a step; CalibrateFloors (tidemill/eval.h) fits them.
struct AttentionFloors {
  // A KV head is dense in a step unless the estimate of the mass that is kept is above this for all its query heads. One for all layers, or one for
  // each; 0 to 1; empty: none is.
  std::vector<float> alphas = {};
  // How often that is to be expected: of each layer the share of KV heads and steps, 0 to 1; empty: unknown. A layer that would so read more than
  // dense attention does at the request's length is dense.
  std::vector<float> dense_shares = {};
  std::optional<FloorOrigin> origin = {};  // another model or form is refused; none: any will do
  friend bool operator==(const AttentionFloors&, const AttentionFloors&) = default;
};

struct AttentionPolicy {
  static constexpr size_t kMaxDenseWindow = 1024;  // layers that see no more positions than this stay dense

  AttentionKind kind = AttentionKind::kDense;
  std::optional<size_t> r = {};      // of kSparq: components of a query, at most head_dim; none: an eighth of it
  std::optional<size_t> k = {};      // positions that are read, 1 or more; none: 128
  std::optional<size_t> local = {};  // of them, the last ones; none: k / 4
  SparqRule rule = SparqRule::kPaper;
  bool reallocate = true;  // of kSparq: the mean of all values stands for what is not read
  KeyColumns columns = KeyColumns::kAuto;
  std::optional<size_t> from = {};  // rows of tokens from this position on are sparse; none: those of generated tokens
  std::vector<size_t> dense_layers = {};  // those stay dense, too
  size_t audit = 0;                       // of every so many positions, one is compared with dense attention; 0: none
  AttentionFloors floors = {};            // of kSparq
  friend bool operator==(const AttentionPolicy&, const AttentionPolicy&) = default;
};

}  // namespace tidemill

#endif  // TIDEMILL_POLICIES_H_
