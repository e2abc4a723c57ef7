#include "models/rope_override.h"

#include <charconv>
#include <cmath>

namespace tidemill {
namespace {

// The shortest text that reads back as `value`.
std::string NumberText(double value) {
  char digits[32];
  return std::string(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
}

}  // namespace

std::string RopeOverrideName(const RopeOverride& wanted) {
  return (wanted.kind == RopeKind::kLinear ? "linear=" : "yarn=") + NumberText(wanted.factor);
}

Result<void> OverrideRope(const RopeOverride& wanted, ModelSettings& settings) {
  const std::string what = "--rope-scaling " + RopeOverrideName(wanted) + ": expected ";
  if (!(wanted.factor > 1 && wanted.factor <= kMaxRopeFactor)) {
    return Error(ErrorCode::kInvalidArgument, what + "a factor above 1 and at most " + NumberText(kMaxRopeFactor) +
                                                  ", found " + NumberText(wanted.factor));
  }
  if (settings.rotary_dim == 0) {
    return Error(ErrorCode::kUnsupported, what + "a model with rotary positions, found " + settings.architecture +
                                              " with a learned vector for each of its " +
                                              std::to_string(settings.max_position_embeddings) +
                                              " positions; leave the flag out");
  }
  RopeSettings rope{.theta = settings.rope.theta, .factor = wanted.factor};
  switch (wanted.kind) {
    case RopeKind::kLinear: rope.scaling = RopeScaling::kLinear; break;
    case RopeKind::kYarn:
      rope.scaling = RopeScaling::kYarn;
      rope.original_max_position_embeddings = static_cast<double>(settings.max_position_embeddings);
      rope.attention_factor = 0.1 * std::log(wanted.factor) + 1;
      break;
  }
  settings.rope = rope;
  settings.rope_override_factor = wanted.factor;
  return {};
}

}  // namespace tidemill
