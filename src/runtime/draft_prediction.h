// The predicted costs of drafting, from the numbers of the machine and the models, before a request has times of its own.
#ifndef TIDEMILL_RUNTIME_DRAFT_PREDICTION_H_
#define TIDEMILL_RUNTIME_DRAFT_PREDICTION_H_

#include <cstddef>
#include <optional>

#include "decoding/num_draft_tokens.h"
#include "planner/draft_costs.h"
#include "planner/machine_profile.h"
#include "planner/predicted_costs.h"
#include "runtime/engine_impl.h"
#include "tidemill/engine.h"

namespace tidemill {

// The numbers of EngineOptions::profile_path where they are this machine's, else the nearest built-in ones.
MachineProfile ProfileOf(const Engine::Impl& engine);

// How a request with these options drafts; the engine has what it needs.
DraftOrder DraftOrderOf(const Engine::Impl& engine, const DraftOptions& draft);

// Of a sequence at `depth` with `others` batch mates, `together` of which draft with the same model.
DraftSetting SettingOf(const Engine::Impl& engine, const DraftOptions& draft, size_t depth, size_t others,
                       size_t together);
// What NumDraftTokens starts with.
DraftCosts PredictDrafts(const Engine::Impl& engine, const MachineProfile& profile, const DraftOptions& draft,
                         const DraftSetting& setting);

// The draft prefill of a prompt of so many tokens, of which a draft model's state has the first `known`. A draft model runs the rest if its
// context holds all of it, else nothing. No answer makes up for it if that context ends before such an answer would. A head runs what the
// target ran.
DraftPrefill DraftPrefillOf(const Engine::Impl& engine, const MachineProfile& profile, const DraftOptions& draft,
                            const DraftSetting& setting, size_t prompt, size_t known = 0);

// c of planner/growth_choice.h, of one sequence.
double PredictedGrowthOfRow(const Engine::Impl& engine, const MachineProfile& profile);

}  // namespace tidemill

#endif  // TIDEMILL_RUNTIME_DRAFT_PREDICTION_H_
