// Prompts of models that read segments, several segments at a time.
#include <exception>
#include <utility>

#include "engine/segments.h"
#include "runtime/engine_impl.h"

namespace tidemill {

bool Engine::Impl::RunWave(const Scheduler::Wave& planned) {
  const LanguageModel& recurrent = language_model();
  const ArmtSettings& armt = *recurrent.settings.armt;
  if (wave == nullptr) {
    try {
      auto made = TeamWave::Create(recurrent, isa, armt.segment_size + armt.num_mem_tokens, threads->num_threads(), 1);
      if (made.ok()) wave = std::move(*made);
    } catch (const std::exception&) {  // std::bad_alloc
    }
    if (wave == nullptr) {  // steps need less memory
      scheduler->StopWaves();
      return false;
    }
  }
  SequenceState& state = planned.request->state();
  const MemoryRows memory_rows(recurrent);
  const size_t begin = state.length(), end = begin + planned.tokens, text = planned.request->num_prompt_tokens();
  size_t next = begin;
  const auto give = [&](WavePiece* piece) {
    if (next == end) return false;
    const size_t first = std::exchange(next, SegmentEnd(armt, text, next));
    piece->text = 0;
    piece->rows.push_back({.state = &state, .tokens = planned.request->tokens().subspan(first, next - first)});
    piece->rows.push_back(memory_rows.Behind(state, next - first));
    return true;
  };
  return wave->Run({.next = give}, was_abandoned ? nullptr : &interrupt);
}

}  // namespace tidemill
