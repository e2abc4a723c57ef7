#include "planner/wave_order.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <utility>

namespace tidemill {
namespace {

using SegmentSeconds = PredictedCosts::SegmentSeconds;

double Straight(double at_one, double at_all, double part) { return at_one + (at_all - at_one) * part; }

// Two digits.
std::string Short(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2g", number);
  return text;
}

std::string Whole(double number) { return std::to_string(std::llround(number)); }

class WavePlanner {
 public:
  WavePlanner(const MachineProfile& profile, const ModelNumbers& model, const WaveInput& input)
      : in_(input),
        rows_(input.front_rows + input.segment_tokens + input.memory_rows),
        profile_threads_(static_cast<double>(profile.threads)),
        one_(profile, model, ThreadUse::kOne),
        all_(profile, model, input.threads == 1 ? ThreadUse::kOne : ThreadUse::kAll) {
    if (input.cache_bytes != 0) room_ = static_cast<double>(input.cache_bytes) / kCachePart;
    layer_bytes_ = all_.layer_bytes() / static_cast<double>(in_.layers);
    all_stay_ = all_.layer_bytes() <= room_;
  }

  WaveChoice Make() {
    pieces_ = 1;
    pieces_ = std::min(in_.pieces, WavePieces(Sequential()));
    WaveChoice choice;
    for (const WaveOrder order : kWaveOrders) {
      if (in_.front_rows != 0 && order != WaveOrder::kSequential) break;
      if (const auto best = Best(Candidates(order))) choice.predicted.push_back(*best);
    }
    choice.chosen = *Best(choice.predicted);
    choice.pieces = WavePieces(choice.chosen.seconds);
    const bool fits = choice.chosen.bytes <= in_.budget,
               is_sequential = choice.chosen.form.order == WaveOrder::kSequential;
    choice.as_steps =
        !fits || in_.front_rows != 0 || choice.pieces < 2 || (is_sequential && in_.segment_tokens <= in_.step_rows);
    choice.reason = fits || in_.front_rows != 0 ? Reason(choice.predicted.front(), choice.chosen)
                                                : "there is no memory for a wave's buffers";
    return choice;
  }

 private:
  size_t WavePieces(double segment_seconds) const {
    const size_t most = std::max<size_t>(1, kMaxWaveTokens / in_.segment_tokens);
    if (segment_seconds * static_cast<double>(most) <= kWaveSeconds) return most;
    return std::max<size_t>(1, static_cast<size_t>(kWaveSeconds / segment_seconds));
  }

  // Of the weights' bytes, what comes from memory where each is read for so many pieces at a time.
  double FromMemory(size_t pieces) const { return all_stay_ ? 0 : 1 / static_cast<double>(pieces); }

  double Lists(size_t in_flight) const {
    return static_cast<double>((pieces_ - 1) / in_flight * in_.layers + (pieces_ - 1) % in_flight + in_.layers);
  }

  double Sequential(size_t pieces_of_a_weight = 1) const {
    return all_.Segment(rows_, in_.memory_rows, FromMemory(pieces_of_a_weight)).total();
  }

  double Diagonal(size_t in_flight) const {
    const auto layers = static_cast<double>(in_.layers), pieces = static_cast<double>(pieces_);
    const double lists = Lists(in_flight), width = pieces * layers / lists;
    const auto side_by_side = static_cast<size_t>(std::max(1.0, std::round(width)));
    const SegmentSeconds s = all_.Segment(rows_, in_.memory_rows, FromMemory(1), side_by_side);
    return s.products + s.attention + s.row_work + s.loops * lists / (pieces * layers);
  }

  double Teams(size_t teams, size_t team_threads) const {
    // Neighbours are about a layer apart: the weights of as many layers are in use.
    const double from_memory = FromMemory(layer_bytes_ * static_cast<double>(teams) <= room_ ? teams : 1);
    const SegmentSeconds one = one_.Segment(rows_, in_.memory_rows, from_memory);
    const SegmentSeconds all = all_.Segment(rows_, in_.memory_rows, from_memory);
    const double products = std::max(one.products / profile_threads_, from_memory * all_.ReadingWeights());
    const double at_one = products + (one.attention + one.row_work + one.loops) / profile_threads_;
    const double part = static_cast<double>(team_threads - 1) / static_cast<double>(in_.threads - 1);
    const double all_teams = static_cast<double>(in_.threads / team_threads);
    const double cell = all_teams * Straight(at_one, all.total(), part) / static_cast<double>(in_.layers);
    return Lists(std::min(teams, in_.layers)) * cell / static_cast<double>(pieces_);
  }

  std::optional<WavePrediction> Fitting(WaveForm form) const {
    std::optional<WaveForm> smaller = form;
    while (smaller && smaller->order == form.order) {
      const uint64_t bytes = in_.bytes(*smaller);
      if (bytes <= in_.budget || form.order == WaveOrder::kSequential) return WavePrediction{*smaller, 0, bytes};
      smaller = SmallerWave(*smaller);
    }
    return std::nullopt;
  }

  std::vector<WavePrediction> Candidates(WaveOrder order) const {
    std::vector<WavePrediction> candidates;
    const auto add = [&](size_t in_flight, size_t team_threads, const auto& seconds) {
      if (order != WaveOrder::kSequential && in_flight < 2) return;
      auto fitting = Fitting({order, in_flight, team_threads});
      if (!fitting) return;
      fitting->seconds = seconds(fitting->form.in_flight);
      candidates.push_back(*fitting);
    };
    switch (order) {
      case WaveOrder::kSequential: add(1, 0, [&](size_t) { return Sequential(); }); break;
      case WaveOrder::kDiagonal:
        add(std::min(in_.layers, pieces_), 0, [&](size_t in_flight) { return Diagonal(in_flight); });
        break;
      case WaveOrder::kLayerMajor:
        if (layer_bytes_ > room_) break;
        add(std::min(kMaxLayerMajorPieces, pieces_), 0, [&](size_t in_flight) { return Sequential(in_flight); });
        break;
      case WaveOrder::kTeams:
        for (size_t threads = 1; 2 * threads <= in_.threads; ++threads) {
          if (in_.threads % threads != 0) continue;
          add(std::min({in_.threads / threads, pieces_, in_.layers}), threads,
              [&](size_t teams) { return Teams(teams, threads); });
        }
        break;
    }
    return candidates;
  }

  static std::optional<WavePrediction> Best(const std::vector<WavePrediction>& candidates) {
    if (candidates.empty()) return std::nullopt;
    const auto fastest = std::min_element(candidates.begin(), candidates.end(),
                                          [](const auto& a, const auto& b) { return a.seconds < b.seconds; });
    const WavePrediction* best = &*fastest;
    for (const WavePrediction& other : candidates) {
      if (other.seconds * (1 - kWaveTie) <= fastest->seconds && other.bytes < best->bytes) best = &other;
    }
    return *best;
  }

  std::string Reason(const WavePrediction& sequential, const WavePrediction& chosen) const {
    const std::string saves = "it is predicted to save " + Short(100 * (1 - chosen.seconds / sequential.seconds)) +
                              " % of the sequential order's time: ";
    const auto cells = static_cast<double>(pieces_ * in_.layers);
    switch (chosen.form.order) {
      case WaveOrder::kSequential: break;
      case WaveOrder::kDiagonal:
        return saves + "threads wait for each other in " + Whole(Lists(chosen.form.in_flight)) +
               " groups of cells, not in " + Whole(cells) + " cells";
      case WaveOrder::kLayerMajor:
        return saves + "a layer's weights, " + Short(layer_bytes_ * 1e-6) + " MB, stay in the cache for " +
               std::to_string(chosen.form.in_flight) + " segments";
      case WaveOrder::kTeams: return saves + "a team waits for no other but in front of a cell that is not ready";
    }
    if (in_.front_rows != 0) return "a segment's first rows come from the last layer of the segment before it";
    if (in_.pieces < 2) return "a segment alone has none to run beside";
    if (pieces_ < 2) {
      return "a segment takes " + Short(chosen.seconds) + " s, so no second one ends within the " +
             Short(kWaveSeconds) + " s that other requests wait at most";
    }
    return "no other order that fits is predicted to save " + Short(100 * kWaveTie) +
           " % or more, and this one takes the least memory";
  }

  const WaveInput& in_;
  size_t rows_, pieces_ = 1;
  double profile_threads_;
  PredictedCosts one_, all_;
  double room_ = 0;  // of the last-level cache, for weights
  double layer_bytes_ = 0;
  bool all_stay_ = false;
};

}  // namespace

WaveChoice ChooseWave(const MachineProfile& profile, const ModelNumbers& model, const WaveInput& input) {
  return WavePlanner(profile, model, input).Make();
}

}  // namespace tidemill
