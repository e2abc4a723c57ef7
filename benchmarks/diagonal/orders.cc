// A text of whole segments in every order. A round runs each order once, in random order: ratios within a round are paired.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/diagonal/loaded_model.h"
#include "engine/segments.h"
#include "engine/wavefront.h"

namespace tidemill::diagonal {
namespace {

// What a run leaves: every layer's A and z, and of each segment what its last token gave.
struct Outcome {
  double seconds = 0;
  std::vector<float> memories, values;
  double max_a = 0, max_z = 0;
};

struct Order {
  std::string name;
  std::unique_ptr<GroupedWave> grouped;
  std::unique_ptr<TeamWave> teams;
};

double MaxOf(std::span<const float> values) {
  double most = 0;
  for (const float x : values) most = std::isfinite(x) ? std::max(most, std::fabs(static_cast<double>(x))) : INFINITY;
  return most;
}

// |found - expected| / |expected|; 0 only for equal bits.
double Error(std::span<const float> expected, std::span<const float> found) {
  if (expected.size() == found.size() && std::memcmp(expected.data(), found.data(), expected.size_bytes()) == 0)
    return 0;
  if (expected.size() != found.size()) return INFINITY;
  double distance = 0, length = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const auto e = static_cast<double>(expected[i]), f = static_cast<double>(found[i]);
    distance += (e - f) * (e - f);
    length += e * e;
  }
  return std::max(std::sqrt(distance / length), 1e-300);
}

class Text {
 public:
  Text(const LoadedModel& loaded, const Options& options)
      : loaded_(loaded),
        want_(options.want),
        size_(loaded.model->segments.shape.segment_tokens),
        ids_(RandomIds(*loaded.model, options.segments * size_, 1)),
        memory_(*loaded.model) {}

  Outcome Run(const Order& order) {
    const auto state = loaded_.NewState(ids_.size());
    const auto reserved = state->Reserve(piece_rows());
    if (!reserved.ok()) Refuse("reserve a segment: " + reserved.error().message());
    Outcome outcome;
    size_t next = 0;
    const WaveHooks hooks{
        .next =
            [&](WavePiece* piece) {
              if (next == ids_.size()) return false;
              piece->text = 0;
              piece->rows.push_back({.state = state.get(),
                                     .tokens = std::span(ids_).subspan(next, size_),
                                     .rows = want_ == "nothing" ? Wanted::kNothing : Wanted::kAll,
                                     .want = want_ == "hidden" ? RowWant::kHidden : RowWant::kLogits});
              piece->rows.push_back(memory_.Behind(*state, size_));
              next += size_;
              return true;
            },
        .sink =
            [&](const WavePiece&, size_t, size_t token, std::span<float> values) {
              if (token + 1 == size_) outcome.values.insert(outcome.values.end(), values.begin(), values.end());
            }};
    const double begin = Now();
    (void)(order.grouped != nullptr ? order.grouped->Run(hooks, nullptr) : order.teams->Run(hooks, nullptr));
    outcome.seconds = Now() - begin;
    state->Commit(KeysOf(ids_));
    TakeMemories(*state, &outcome);
    return outcome;
  }

  size_t piece_rows() const { return size_ + memory_.count(); }

 private:
  void TakeMemories(SequenceState& state, Outcome* outcome) const {
    const MemoryShape& shape = loaded_.model->segments.shape.memory;
    const size_t in_a = shape.features() * shape.hidden;
    std::vector<float> values(shape.elements());
    for (size_t i = 0; i < state.num_layers(); ++i) {
      std::memcpy(values.data(), static_cast<SegmentKvLayer&>(state.layer(i)).memory(), values.size() * sizeof(float));
      outcome->max_a = std::max(outcome->max_a, MaxOf(std::span(values).first(in_a)));
      outcome->max_z = std::max(outcome->max_z, MaxOf(std::span(values).subspan(in_a)));
      outcome->memories.insert(outcome->memories.end(), values.begin(), values.end());
    }
  }

  const LoadedModel& loaded_;
  std::string want_;
  size_t size_;
  std::vector<int32_t> ids_;
  MemoryRows memory_;
};

std::vector<Order> OrdersOf(const LoadedModel& loaded, const Options& options, size_t piece_rows) {
  std::vector<Order> orders;
  const size_t layers = loaded.model->layers.size(), diagonal = std::min(layers, options.segments);
  const auto grouped = [&](const char* name, WaveOrder order, size_t in_flight) {
    auto wave = GroupedWave::Create(*loaded.model, *loaded.ctx, piece_rows, in_flight, order);
    if (!wave.ok()) Refuse(std::string("make ") + name + ": " + wave.error().message());
    orders.push_back({.name = name, .grouped = std::move(*wave), .teams = nullptr});
  };
  grouped("sequential", WaveOrder::kOldest, 1);
  grouped("diagonal", WaveOrder::kAllReady, diagonal);
  grouped("layer-major", WaveOrder::kLowestLayer, options.in_flight == 0 ? diagonal : options.in_flight);
  for (size_t team = 1; team <= std::min<size_t>(2, options.threads); ++team) {
    auto wave = TeamWave::Create(*loaded.model, loaded.ctx->isa(), piece_rows, options.threads / team, team);
    if (!wave.ok()) Refuse("make teams: " + wave.error().message());
    orders.push_back({.name = "teams of " + std::to_string(team), .grouped = nullptr, .teams = std::move(*wave)});
  }
  return orders;
}

}  // namespace

int RunOrders(const Options& options) {
  const LoadedModel loaded = Load(options);
  if (!loaded.model->segments.present()) Refuse(options.model + ": expected a model with an armt block in config.json");
  Text text(loaded, options);
  const std::vector<Order> orders = OrdersOf(loaded, options, text.piece_rows());
  const Outcome expected = text.Run(orders.front());
  bool is_equal = true;
  std::mt19937_64 random(1);
  for (size_t round = 0; round <= options.rounds; ++round) {  // the first is not counted: its memory is new
    std::vector<const Order*> shuffled;
    for (const Order& order : orders) shuffled.push_back(&order);
    std::shuffle(shuffled.begin(), shuffled.end(), random);
    for (const Order* order : shuffled) {
      const Outcome found = text.Run(*order);
      const double error = std::max(Error(expected.memories, found.memories), Error(expected.values, found.values));
      is_equal = is_equal && error == 0;
      if (round == 0) continue;
      nlohmann::ordered_json line = loaded.Line("orders");
      line.update({{"segments", options.segments}, {"want", options.want}, {"order", order->name}, {"round", round}});
      line.update({{"seconds", found.seconds}, {"error", error}, {"max_a", found.max_a}, {"max_z", found.max_z}});
      Print(line);
    }
  }
  if (!is_equal)
    std::fprintf(stderr,
                 "diagonal_orders: orders: expected the bits of the sequential order in every order, found others\n");
  return is_equal ? 0 : 1;
}

}  // namespace tidemill::diagonal
