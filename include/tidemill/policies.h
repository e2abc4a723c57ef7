// Choices of the caller that are obeyed far below the engine: how a cache grows, how positions are stretched, when linear attention
// writes its state.
#ifndef TIDEMILL_POLICIES_H_
#define TIDEMILL_POLICIES_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

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

}  // namespace tidemill

#endif  // TIDEMILL_POLICIES_H_
