// What guesses are predicted to cost an engine: from the machine's numbers and its models', before a request has times of its own.
#ifndef TIDEMILL_RUNTIME_DRAFT_PREDICTION_H_
#define TIDEMILL_RUNTIME_DRAFT_PREDICTION_H_

#include <cstddef>

#include "decoding/draft_width.h"
#include "planner/machine_profile.h"
#include "runtime/engine_impl.h"
#include "tidemill/engine.h"

namespace tidemill {

// The numbers of EngineOptions::profile_path where they are this machine's, else the nearest built-in ones.
MachineProfile ProfileOf(const Engine::Impl& engine);

// How a request with these options makes its guesses; the engine has what they need.
GuessOrder GuessOrderOf(const Engine::Impl& engine, const DraftOptions& draft);

// Of a sequence that holds `depth` positions beside `others`. Nothing of trees, nor where what guesses is neither n-grams, the draft
// model nor first layers.
DraftCosts PredictDrafts(const Engine::Impl& engine, const MachineProfile& profile, const DraftOptions& draft,
                         size_t depth, size_t others);

}  // namespace tidemill

#endif  // TIDEMILL_RUNTIME_DRAFT_PREDICTION_H_
