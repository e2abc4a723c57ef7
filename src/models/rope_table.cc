#include "models/rope_table.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "base/check.h"
#include "kernels/attention.h"
#include "kernels/elementwise.h"
#include "kernels/rope.h"

namespace tidemill {
namespace {

double Llama3Frequency(const RopeSettings& s, double f) {
  const double wavelength = 2 * std::numbers::pi / f, length = s.original_max_position_embeddings;
  if (wavelength < length / s.high_freq_factor) return f;
  if (wavelength > length / s.low_freq_factor) return f / s.factor;
  const double smooth = (length / wavelength - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
  return (1 - smooth) * f / s.factor + smooth * f;
}

struct YarnRamp {
  YarnRamp(const RopeSettings& s, size_t rotary_dim) {
    const double dim = static_cast<double>(rotary_dim);
    const auto dimension_of = [&](double turns) {
      return dim * std::log(s.original_max_position_embeddings / (turns * 2 * std::numbers::pi)) /
             (2 * std::log(s.theta));
    };
    low = dimension_of(s.beta_fast);
    high = dimension_of(s.beta_slow);
    if (s.truncate) {
      low = std::floor(low);
      high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, dim - 1);
    if (low == high) high += 0.001;
  }
  double At(size_t i) const { return std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0); }

  double low = 0, high = 0;
};

}  // namespace

RopeTable MakeRopeTable(const RopeSettings& settings, size_t rotary_dim, std::span<const float> divisors) {
  TIDEMILL_CHECK(divisors.empty() || divisors.size() == rotary_dim / 2);
  RopeTable table{.inv_freq = std::vector<float>(rotary_dim / 2), .settings = settings};
  const YarnRamp ramp(settings, rotary_dim);
  for (size_t i = 0; i < table.inv_freq.size(); ++i) {
    double f = RopeFrequency(settings.theta, i, rotary_dim);
    switch (settings.scaling) {
      case RopeScaling::kLinear: f /= settings.factor; break;
      case RopeScaling::kLlama3: f = Llama3Frequency(settings, f); break;
      case RopeScaling::kYarn: f = f / settings.factor * ramp.At(i) + f * (1 - ramp.At(i)); break;
      case RopeScaling::kNone:
      case RopeScaling::kDynamic: break;
    }
    if (!divisors.empty()) f /= static_cast<double>(divisors[i]);
    table.inv_freq[i] = static_cast<float>(f);
  }
  return table;
}

void FillRopeRows(ExecutionContext& ctx, const RopeTable& table, std::span<const uint32_t> positions, Matrix<float> cos,
                  Matrix<float> sin) {
  const RopeSettings& s = table.settings;
  RopeAngles(ctx, positions, table.inv_freq, cos, sin);
  if (s.scaling == RopeScaling::kYarn && s.attention_factor != 1) {
    ScaleRows(ctx, static_cast<float>(s.attention_factor), cos);
    ScaleRows(ctx, static_cast<float>(s.attention_factor), sin);
  }
  if (s.scaling != RopeScaling::kDynamic) return;
  const double dim = static_cast<double>(table.rotary_dim());
  std::array<float, kMaxHeadDim / 2> own;
  for (size_t row = 0; row < positions.size(); ++row) {
    const double length = static_cast<double>(positions[row]) + 1;
    if (length <= s.original_max_position_embeddings) continue;
    const double stretch = s.factor * length / s.original_max_position_embeddings - (s.factor - 1);
    const double theta = s.theta * std::pow(stretch, dim / (dim - 2));
    for (size_t i = 0; i < table.inv_freq.size(); ++i)
      own[i] = static_cast<float>(RopeFrequency(theta, i, table.rotary_dim()));
    RopeAngles(ctx, positions.subspan(row, 1), std::span(own).first(table.inv_freq.size()), cos.Rows(row, 1),
               sin.Rows(row, 1));
  }
}

}  // namespace tidemill
