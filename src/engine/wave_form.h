// The orders in which a wave runs its cells, by the names that engine, planner and tests share (engine/wavefront.h runs them).
#ifndef TIDEMILL_ENGINE_WAVE_FORM_H_
#define TIDEMILL_ENGINE_WAVE_FORM_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tidemill {

enum class WaveOrder : uint8_t {
  kSequential,  // piece after piece, each cell with all threads
  kDiagonal,    // all ready cells as grouped operations, with all threads
  kLayerMajor,  // pieces in flight through one layer before the next, each cell with all threads
  kTeams,       // teams of threads carry a piece each
};
inline constexpr std::array kWaveOrders = {WaveOrder::kSequential, WaveOrder::kDiagonal, WaveOrder::kLayerMajor,
                                           WaveOrder::kTeams};

constexpr std::string_view WaveOrderName(WaveOrder order) {
  switch (order) {
    case WaveOrder::kSequential: return "sequential";
    case WaveOrder::kDiagonal: return "diagonal";
    case WaveOrder::kLayerMajor: return "layer-major";
    case WaveOrder::kTeams: return "teams";
  }
  return "unknown";
}

struct WaveForm {
  WaveOrder order = WaveOrder::kSequential;
  size_t in_flight = 1;     // pieces; of kSequential 1, of kTeams the teams
  size_t team_threads = 0;  // of kTeams, at least 1; else 0: all

  friend bool operator==(const WaveForm&, const WaveForm&) = default;
};

// "sequential", "diagonal 16", "teams 8 x 2": of two threads each.
inline std::string WaveFormName(const WaveForm& form) {
  std::string name(WaveOrderName(form.order));
  if (form.order != WaveOrder::kSequential) name += " " + std::to_string(form.in_flight);
  if (form.order == WaveOrder::kTeams) name += " x " + std::to_string(form.team_threads);
  return name;
}

// The form to try where there is no memory for this one: half as many pieces in flight, at last piece after piece. None: it has the least.
inline std::optional<WaveForm> SmallerWave(const WaveForm& form) {
  if (form.order == WaveOrder::kSequential) return std::nullopt;
  if (form.in_flight < 4) return WaveForm();
  WaveForm smaller = form;
  smaller.in_flight = form.in_flight / 2;
  return smaller;
}

}  // namespace tidemill

#endif  // TIDEMILL_ENGINE_WAVE_FORM_H_
