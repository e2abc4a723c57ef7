// In which order the segments of a recurrent-memory model run as waves (engine/wavefront.h): predicted seconds of each, and the choice.
//
//   segment  = products, row work and attention of S + M rows, and loops (planner/predicted_costs.h)
//   N pieces, L layers, W in flight:  lists(W) = floor((N - 1) / W) L + (N - 1) mod W + L;  with W = L: N + L - 1
//   sequential      N * segment
//   layer-major     the same; one piece in W reads a layer's weights from memory, the others from the cache
//   diagonal        N * (products + attention) + row work of as many pieces side by side as a list has cells + lists(W) * loops / L
//   teams           lists(W) * (a piece's seconds of one team) / L
//
//   A piece's seconds, with all teams busy, lie straight between those with a thread a team, of which as many run as the profile has threads,
//   and those with all threads in one team. Teams read weights together no faster than memory gives them.
//   Weights that a cache gives save a part of the seconds of reading them that arithmetic does not hide (kCacheSpeed).
#ifndef TIDEMILL_PLANNER_WAVE_ORDER_H_
#define TIDEMILL_PLANNER_WAVE_ORDER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/wave_form.h"
#include "planner/machine_profile.h"
#include "planner/predicted_costs.h"

namespace tidemill {

// Predicted seconds of a wave at most: other requests wait no longer, and states are kept between waves. Not measured: what a reader may
// wait for without asking.
inline constexpr double kWaveSeconds = 2;
// Tokens of a wave at most, whose keys a state holds room for: about a megabyte.
inline constexpr size_t kMaxWaveTokens = 65536;
// Orders that are predicted to take as long, but for this part, are as good: the one with the least memory is taken. Predictions are no better.
inline constexpr double kWaveTie = 0.01;
// Of the free memory a wave's buffers take at most one part in so many, as a state's unused capacity does of its memory. Not measured.
inline constexpr uint64_t kWaveMemoryPart = 8;
// A layer's weights stay in the last-level cache if so many times their bytes fit, since rows and states pass through it, too: 20 MB of 32 MiB
// did (layer-major 1.35 times as fast, benchmarks/results/diagonal.md); larger parts were not measured.
inline constexpr double kCachePart = 1.5;
// Pieces of a layer-major wave at most: with so many, one in sixteen reads weights from memory.
inline constexpr size_t kMaxLayerMajorPieces = 16;

// What a plan says beside the choice.
inline constexpr std::string_view kWaveOrdersText =
    "On a CPU all orders read the same bytes; an order decides how often threads wait for each other, and how many "
    "bytes come from a cache.";

struct WaveInput {
  size_t layers = 1;
  size_t segment_tokens = 1, memory_rows = 0;  // S, M
  size_t front_rows = 0;                       // of RMT: segments run one after the other
  size_t pieces = 1;                           // whole segments to run; at least 1
  size_t threads = 1;
  uint64_t cache_bytes = 0;  // of the last-level cache; 0: unknown
  size_t step_rows = 0;      // of a step, which reads a segment of as many tokens or fewer at once
  uint64_t budget = UINT64_MAX;
  std::function<uint64_t(const WaveForm&)> bytes;  // what the form's buffers take
};

struct WavePrediction {
  WaveForm form;
  double seconds = 0;  // of a segment
  uint64_t bytes = 0;
};

struct WaveChoice {
  WavePrediction chosen;
  size_t pieces = 1;  // of a wave at most
  std::vector<WavePrediction>
      predicted;          // of each order the best form that fits, in the enum's order; sequential always
  std::string reason;     // one sentence
  bool as_steps = false;  // steps do as well, or no wave fits the budget or ends in time
};

// Both outlive the call.
WaveChoice ChooseWave(const MachineProfile& profile, const ModelNumbers& model, const WaveInput& input);

}  // namespace tidemill

#endif  // TIDEMILL_PLANNER_WAVE_ORDER_H_
