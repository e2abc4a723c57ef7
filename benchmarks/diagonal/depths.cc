// What a model with full attention takes at a depth, and a recurrent-memory model behind a text of that length. Rows of the cache up to the depth
// are zeros that nobody computed: what reads them takes the same time.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/diagonal/loaded_model.h"
#include "engine/segments.h"
#include "engine/step_executor.h"
#include "state/kv_layer.h"

namespace tidemill::diagonal {
namespace {

void ReserveOrRefuse(SequenceState& state, size_t rows) {
  const auto reserved = state.Reserve(rows);
  if (!reserved.ok()) Refuse("reserve " + std::to_string(rows) + " rows: " + reserved.error().message());
}

class Runner {
 public:
  Runner(const LoadedModel& loaded, size_t max_rows) : loaded_(loaded) {
    auto executor = StepExecutor::Create(*loaded.model, *loaded.ctx, max_rows);
    if (!executor.ok()) Refuse("make an executor: " + executor.error().message());
    executor_ = std::move(*executor);
  }

  // Seconds of a step of these tokens behind what is committed.
  double Step(SequenceState& state, std::span<const int32_t> ids, Wanted rows) {
    const StepSequence step{.state = &state, .tokens = ids, .rows = rows};
    return Run({&step, 1});
  }
  double Run(std::span<const StepSequence> step) {
    const double begin = Now();
    (void)executor_->Run(
        step, [](size_t, size_t, std::span<float>) {}, nullptr);
    return Now() - begin;
  }

  // A state with `depth` tokens, and room for `more`.
  std::unique_ptr<SequenceState> StateAt(size_t depth, size_t more) const {
    auto state = loaded_.NewState(depth + more);
    if (depth == 0) return state;
    ReserveOrRefuse(*state, depth + more);
    for (size_t i = 0; i < state->num_layers(); ++i) {
      if (!KvLayer::Holds(state->layer(i).checkpoint_kind())) Refuse("expected layers with a KV cache alone");
      auto& kv = static_cast<KvLayer&>(state->layer(i));
      const KvLayer::StepRows rows = kv.View();
      for (size_t head = 0; head < kv.shape().kv_heads; ++head) {
        const size_t at = RowBytes(kv.dtype(), head * rows.head_stride),
                     bytes = depth * kv.shape().RowBytes(kv.dtype());
        std::memset(rows.k + at, 0, bytes);
        std::memset(rows.v + at, 0, bytes);
      }
    }
    state->Commit(std::vector<RowKey>(depth, 1));
    return state;
  }

 private:
  const LoadedModel& loaded_;
  std::unique_ptr<StepExecutor> executor_;
};

// Seconds of a chunk at each depth, straight between those that were timed.
double Between(std::span<const size_t> depths, std::span<const double> seconds, size_t depth) {
  size_t i = 1;
  while (i + 1 < depths.size() && depths[i] < depth) ++i;
  if (depths.size() == 1 || depths[i] == depths[i - 1]) return seconds[i - 1];
  const double part = static_cast<double>(depth - depths[i - 1]) / static_cast<double>(depths[i] - depths[i - 1]);
  return seconds[i - 1] + part * (seconds[i] - seconds[i - 1]);
}

void PrintFull(const LoadedModel& loaded, const Options& options, size_t length) {
  Runner runner(loaded, options.chunk);
  const std::vector<int32_t> ids = RandomIds(*loaded.model, length, 1);
  nlohmann::ordered_json line = loaded.Line("full");
  line.update({{"tokens", length}, {"chunk", options.chunk}, {"whole", options.whole}});
  double seconds = 0;
  if (options.whole) {
    const auto state = loaded.NewState(length);
    for (size_t first = 0; first < length; first += options.chunk) {
      const auto part = std::span(ids).subspan(first, std::min(options.chunk, length - first));
      ReserveOrRefuse(*state, part.size());
      seconds += runner.Step(*state, part, first + part.size() == length ? Wanted::kLast : Wanted::kNothing);
      state->Commit(KeysOf(part));
    }
  } else {
    constexpr size_t kDepths = 5;
    const size_t chunks = length / options.chunk;
    std::vector<size_t> depths;
    std::vector<double> timed;
    for (size_t i = 0; i < std::min(kDepths, chunks); ++i) {
      const size_t depth = chunks == 1 ? 0 : i * (chunks - 1) / (std::min(kDepths, chunks) - 1) * options.chunk;
      const auto state = runner.StateAt(depth, options.chunk);
      ReserveOrRefuse(*state, options.chunk);
      const auto part = std::span(ids).first(options.chunk);
      (void)runner.Step(*state, part, Wanted::kNothing);  // it also transposes keys, once
      std::vector<double> rounds;
      for (size_t round = 0; round < options.rounds; ++round)
        rounds.push_back(runner.Step(*state, part, Wanted::kNothing));
      depths.push_back(depth);
      timed.push_back(Median(rounds));
    }
    for (size_t i = 0; i < chunks; ++i) seconds += Between(depths, timed, i * options.chunk);
    line.update({{"depths", depths}, {"chunk_seconds", timed}});
  }
  line["seconds"] = seconds;
  Print(line);
}

}  // namespace

int RunFull(const Options& options) {
  const LoadedModel loaded = Load(options);
  if (loaded.model->segments.present())
    Refuse(options.model + ": expected a model without segments, as --base of make_synthetic_model.py writes it");
  for (const size_t length : options.lengths) {
    if (length < options.chunk || length % options.chunk != 0 ||
        length > loaded.model->settings.max_position_embeddings) {
      Refuse("--lengths " + std::to_string(length) + ": expected a multiple of --chunk " +
             std::to_string(options.chunk) + " of at most the model's " +
             std::to_string(loaded.model->settings.max_position_embeddings) + " positions");
    }
  }
  for (const size_t length : options.lengths) PrintFull(loaded, options, length);
  return 0;
}

// Behind any number of segments a tail reads the same bytes, so that two stand for all of them.
int RunDecode(const Options& options) {
  const LoadedModel loaded = Load(options);
  const LanguageModel& model = *loaded.model;
  const size_t rounds = 1 + options.rounds, generated = rounds * options.steps;
  nlohmann::ordered_json line = loaded.Line("decode");
  line.update({{"tokens", options.tokens}, {"steps", options.steps}});
  std::unique_ptr<SequenceState> state;
  Runner runner(loaded, std::max(options.chunk, model.segments.memory_rows()) + model.segments.memory_rows());
  if (model.segments.present()) {
    const MemoryRows memory(model);
    const size_t size = model.segments.shape.segment_tokens, whole = std::min<size_t>(2, (options.tokens - 1) / size),
                 tail = (options.tokens - 1) % size + 1;
    if (tail + generated > model.settings.max_position_embeddings) {
      Refuse("--steps " + std::to_string(options.steps) + ": expected " + std::to_string(generated) +
             " tokens behind a tail of " + std::to_string(tail) + " to be at most the model's positions");
    }
    const std::vector<int32_t> ids = RandomIds(model, whole * size + tail, 1);
    state = loaded.NewState(ids.size() + generated);
    for (size_t first = 0; first < ids.size();) {
      const size_t end = std::min(ids.size(), first - first % size + size);
      const auto part = std::span(ids).subspan(first, std::min(options.chunk, end - first));
      const bool ends = first + part.size() == end && end <= whole * size;
      std::vector<StepSequence> step = {{.state = state.get(), .tokens = part}};
      if (ends) step.push_back(memory.Behind(*state, part.size()));
      ReserveOrRefuse(*state, part.size() + (ends ? memory.count() : 0));
      (void)runner.Run(step);
      state->Commit(KeysOf(part));
      first += part.size();
    }
    line["tail"] = tail;
  } else {
    if (options.tokens + generated > model.settings.max_position_embeddings)
      Refuse("--tokens " + std::to_string(options.tokens) + ": expected with the steps at most the model's positions");
    state = runner.StateAt(options.tokens, generated);
  }
  const std::vector<int32_t> ids = RandomIds(model, generated, 2);
  for (size_t round = 0; round < rounds; ++round) {
    double seconds = 0;
    for (size_t i = 0; i < options.steps; ++i) {
      const auto token = std::span(ids).subspan(round * options.steps + i, 1);
      ReserveOrRefuse(*state, 1);
      seconds += runner.Step(*state, token, Wanted::kLast);
      state->Commit(KeysOf(token));
    }
    if (round == 0) continue;  // it also transposes keys, once
    line["round"] = round;
    line["seconds"] = seconds / static_cast<double>(options.steps);
    Print(line);
  }
  return 0;
}

}  // namespace tidemill::diagonal
