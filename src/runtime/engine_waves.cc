// Prompts of models that read segments, several segments at a time.
#include <algorithm>
#include <exception>
#include <utility>

#include "base/available_memory.h"
#include "base/cache_size.h"
#include "runtime/draft_prediction.h"
#include "runtime/engine_impl.h"
#include "runtime/model_numbers.h"

namespace tidemill {
namespace {

size_t PieceRows(const LanguageModel& model) { return model.segments.shape.whole_rows(); }

// This form, or one that takes less memory; null: there is none for any. form: what was made.
std::unique_ptr<Wave> MakeWave(const LanguageModel& model, ExecutionContext& ctx, WaveForm* form) {
  for (std::optional<WaveForm> next = *form; next; next = SmallerWave(*next)) {
    try {
      auto made = CreateWave(model, ctx, PieceRows(model), *next);
      if (!made.ok()) continue;
      *form = *next;
      return std::move(*made);
    } catch (const std::exception&) {  // std::bad_alloc
    }
  }
  return nullptr;
}

}  // namespace

WaveChoice Engine::Impl::PredictWaves(const MachineProfile& machine, size_t segments) const {
  const LanguageModel& recurrent = language_model();
  WaveInput input;
  input.layers = recurrent.layers.size();
  input.segment_tokens = recurrent.segments.shape.segment_tokens;
  input.memory_rows = recurrent.segments.memory_rows();
  input.front_rows = recurrent.segments.shape.front_rows;
  input.pieces = segments;
  input.threads = threads->num_threads();
  input.cache_bytes = LastCacheBytes();
  input.step_rows = options.prefill_chunk;
  const uint64_t held = waves.wave == nullptr ? 0 : waves.wave->work_bytes();  // which another one takes the place of
  input.budget = waves.memory.value_or((AvailableMemory().value_or(kUnknownMemory) + held) / kWaveMemoryPart);
  input.bytes = [&](const WaveForm& form) {  // of RMT steps run
    return input.front_rows == 0 ? WaveBytes(recurrent, isa, PieceRows(recurrent), form) : 0;
  };
  return ChooseWave(machine, NumbersOf(recurrent, DTypeOf(*options.kv_type)), input);
}

bool Engine::Impl::PrepareWaves(size_t segments) {
  if (waves.wave != nullptr && segments < waves.ask_from) return true;
  const size_t tokens = language_model().segments.shape.segment_tokens;
  try {
    if (!waves.memory_rows) waves.memory_rows.emplace(language_model());
    WaveForm form;
    waves.ask_from = SIZE_MAX;
    if (waves.given) {
      form = *waves.given;
    } else {
      if (!profile) profile = ProfileOf(*this);
      const WaveChoice choice = PredictWaves(*profile, segments);
      form = choice.chosen.form;
      if (segments < choice.pieces) waves.ask_from = 2 * segments;
      if (choice.as_steps) {
        waves.wave.reset();
        if (waves.ask_from == SIZE_MAX) {
          scheduler->StopWaves();
        } else {
          scheduler->LimitWaves(kMaxWaveTokens, waves.ask_from);
        }
        return false;
      }
      scheduler->LimitWaves(choice.pieces * tokens, 2);
    }
    if (waves.wave != nullptr && waves.form == form) return true;
    waves.wave.reset();
    waves.wave = MakeWave(language_model(), *ctx, &form);
    waves.form = form;
  } catch (const std::exception&) {  // std::bad_alloc
    waves.wave.reset();
  }
  if (waves.wave == nullptr) scheduler->StopWaves();  // steps need less memory
  return waves.wave != nullptr;
}

bool Engine::Impl::RunSegments(std::span<SegmentText> texts, const std::atomic<bool>* stops, double seconds) {
  const ArmtSettings& armt = *language_model().settings.armt;
  const SnapshotTimer::Clock::time_point begin = SnapshotTimer::Clock::now();
  for (SegmentText& text : texts) text.read = 0;
  size_t text = 0;
  const auto give = [&](WavePiece* piece) {
    if (text < texts.size() && texts[text].read == texts[text].tokens.size()) ++text;
    if (text == texts.size()) return false;
    SegmentText& of = texts[text];
    const bool is_first = text == 0 && of.read == 0;
    if (!is_first && SnapshotTimer::Clock::now() - begin >= SnapshotTimer::Seconds(seconds)) return false;
    const size_t first = of.state->length() + of.read, count = SegmentEnd(armt, of.text, first) - first;
    piece->text = text;
    piece->rows.push_back({.state = of.state, .tokens = of.tokens.subspan(of.read, count)});
    piece->rows.push_back(waves.memory_rows->Behind(*of.state, count));
    of.read += count;
    return true;
  };
  try {
    return waves.wave->Run({.next = give, .passed = waves.passed}, stops);
  } catch (const std::exception&) {  // std::bad_alloc
    waves.wave.reset();
    throw;
  }
}

bool Engine::Impl::RunWave(std::span<const Scheduler::WavePart> wave) {
  size_t segments = 0, tokens = 0;
  waves.was_interrupted = false;
  for (const Scheduler::WavePart& part : wave) {
    segments += part.segments;
    tokens += part.tokens;
  }
  if (!PrepareWaves(segments) || tokens > scheduler->wave_tokens()) return false;
  double seconds = waves.seconds;
  try {
    waves.texts.clear();
    const SnapshotTimer::Clock::time_point now = SnapshotTimer::Clock::now();
    for (const Scheduler::WavePart& part : wave) {
      seconds = std::min(seconds, part.request->snapshots().SecondsLeft(now, snapshot_share));
      SequenceState& state = part.request->state();
      waves.texts.push_back({.state = &state,
                             .tokens = part.request->tokens().subspan(state.length(), part.tokens),
                             .text = part.request->num_prompt_tokens()});
    }
    waves.was_interrupted = !RunSegments(waves.texts, was_abandoned ? nullptr : &interrupt, seconds);
    return !waves.was_interrupted;
  } catch (const std::exception&) {  // std::bad_alloc
    scheduler->StopWaves();
    return false;
  }
}

}  // namespace tidemill
