// What guesses are predicted to cost an engine: from the machine's numbers and its models', before a request has times of its own.
#ifndef TIDEMILL_RUNTIME_DRAFT_PREDICTION_H_
#define TIDEMILL_RUNTIME_DRAFT_PREDICTION_H_

#include <cstddef>
#include <optional>

#include "decoding/draft_width.h"
#include "planner/draft_costs.h"
#include "planner/machine_profile.h"
#include "planner/predicted_costs.h"
#include "runtime/engine_impl.h"
#include "tidemill/engine.h"

namespace tidemill {

// The numbers of EngineOptions::profile_path where they are this machine's, else the nearest built-in ones.
MachineProfile ProfileOf(const Engine::Impl& engine);

// How a request with these options makes its guesses; the engine has what they need.
GuessOrder GuessOrderOf(const Engine::Impl& engine, const DraftOptions& draft);

// What makes the guesses, with which threads.
struct DrafterNumbers {
  ModelNumbers model;
  ThreadUse threads = ThreadUse::kAll;
};
// None where that takes no steps.
std::optional<DrafterNumbers> NumbersOfDrafter(const Engine::Impl& engine, const DraftOptions& draft);

// Of a sequence that holds `depth` positions beside `others`, `together` of which guess by the same model.
DraftSetting SettingOf(const Engine::Impl& engine, const DraftOptions& draft, size_t depth, size_t others,
                       size_t together);
// What DraftWidth begins with.
DraftCosts PredictDrafts(const Engine::Impl& engine, const MachineProfile& profile, const DraftOptions& draft,
                         const DraftSetting& setting);

// What the drafter reads of so many tokens before it guesses: a draft model all of them, if its context holds them, else nothing; none makes
// up for it where that context ends before such an answer would. A head runs what the model ran.
DraftReading ReadingOf(const Engine::Impl& engine, const MachineProfile& profile, const DraftOptions& draft,
                       const DraftSetting& setting, size_t prompt);

// c of planner/growth_choice.h, of one sequence.
double PredictedGrowthOfRow(const Engine::Impl& engine, const MachineProfile& profile);

}  // namespace tidemill

#endif  // TIDEMILL_RUNTIME_DRAFT_PREDICTION_H_
