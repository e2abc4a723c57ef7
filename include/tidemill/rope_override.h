// Rope scaling that the caller asks for in place of the model file's own, so that a model goes past its own positions.
#ifndef TIDEMILL_ROPE_OVERRIDE_H_
#define TIDEMILL_ROPE_OVERRIDE_H_

#include <cstdint>

namespace tidemill {

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

}  // namespace tidemill

#endif  // TIDEMILL_ROPE_OVERRIDE_H_
