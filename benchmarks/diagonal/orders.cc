// A text of whole segments in every order. A round runs each order once, in random order: ratios within a round are paired.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/diagonal/loaded_model.h"
#include "engine/segments.h"
#include "engine/wavefront.h"
#include "tensor/half.h"

namespace tidemill::diagonal {
namespace {

// What a run leaves: every layer's A and z, and of each segment what its last token gave.
struct Outcome {
  double seconds = 0;
  std::vector<float> memories, values;
  double max_a = 0, max_z = 0;
};

float ElementAt(DType dtype, const std::byte* memory, size_t i) {
  if (dtype == DType::kBF16) {
    uint16_t bits = 0;
    std::memcpy(&bits, memory + i * sizeof(bits), sizeof(bits));
    return BFloat16ToFloat(bits);
  }
  float value = 0;
  std::memcpy(&value, memory + i * sizeof(value), sizeof(value));
  return value;
}

constexpr double kNotFinite = 1e300;  // JSON has no infinity

double MaxOf(std::span<const float> values) {
  double most = 0;
  for (const float x : values) most = std::isfinite(x) ? std::max(most, std::fabs(static_cast<double>(x))) : kNotFinite;
  return most;
}

// |found - expected| / |expected|; 0 only for equal bits.
double Error(std::span<const float> expected, std::span<const float> found) {
  if (expected.size() == found.size() && std::memcmp(expected.data(), found.data(), expected.size_bytes()) == 0)
    return 0;
  if (expected.size() != found.size()) return kNotFinite;
  double distance = 0, length = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const auto e = static_cast<double>(expected[i]), f = static_cast<double>(found[i]);
    distance += (e - f) * (e - f);
    length += e * e;
  }
  const double error = std::sqrt(distance / length);
  return std::isfinite(error) ? std::max(error, 1e-300) : kNotFinite;
}

class Text {
 public:
  Text(const LoadedModel& loaded, const Options& options)
      : loaded_(loaded),
        want_(options.want),
        size_(loaded.model->segments.shape.segment_tokens),
        ids_(RandomIds(*loaded.model, options.segments * size_, 1)),
        memory_(*loaded.model) {}

  Outcome Run(Wave& wave) {
    const auto state = loaded_.NewState(ids_.size() + piece_rows());
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
    (void)wave.Run(hooks, nullptr);
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
      const std::byte* const memory = static_cast<SegmentKvLayer&>(state.layer(i)).memory();
      for (size_t e = 0; e < values.size(); ++e) values[e] = ElementAt(shape.dtype, memory, e);
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

std::vector<WaveForm> FormsOf(const LoadedModel& loaded, const Options& options) {
  const size_t layers = loaded.model->layers.size(), diagonal = std::min(layers, options.segments);
  std::vector<WaveForm> forms = {
      {},
      {.order = WaveOrder::kDiagonal, .in_flight = diagonal},
      {.order = WaveOrder::kLayerMajor, .in_flight = options.in_flight == 0 ? diagonal : options.in_flight}};
  for (size_t team = 1; team <= std::min<size_t>(2, options.threads); ++team)
    forms.push_back({.order = WaveOrder::kTeams, .in_flight = options.threads / team, .team_threads = team});
  return forms;
}

}  // namespace

int RunOrders(const Options& options) {
  const LoadedModel loaded = Load(options);
  if (!loaded.model->segments.present()) Refuse(options.model + ": expected a model with an armt block in config.json");
  Text text(loaded, options);
  const std::vector<WaveForm> forms = FormsOf(loaded, options);
  std::vector<std::unique_ptr<Wave>> waves;
  for (const WaveForm& form : forms) {
    auto wave = CreateWave(*loaded.model, *loaded.ctx, text.piece_rows(), form);
    if (!wave.ok()) Refuse("make a wave, " + WaveFormName(form) + ": " + wave.error().message());
    waves.push_back(std::move(*wave));
  }
  const Outcome expected = text.Run(*waves.front());
  bool is_equal = true;
  std::mt19937_64 random(1);
  for (size_t round = 0; round <= options.rounds; ++round) {  // the first is not counted: its memory is new
    std::vector<size_t> shuffled(forms.size());
    std::iota(shuffled.begin(), shuffled.end(), size_t{0});
    std::shuffle(shuffled.begin(), shuffled.end(), random);
    for (const size_t order : shuffled) {
      const Outcome found = text.Run(*waves[order]);
      const double error = std::max(Error(expected.memories, found.memories), Error(expected.values, found.values));
      is_equal = is_equal && error == 0;
      if (round == 0) continue;
      nlohmann::ordered_json line = loaded.Line("orders");
      line.update({{"segments", options.segments},
                   {"want", options.want},
                   {"order", WaveFormName(forms[order])},
                   {"round", round}});
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
