#include "runtime/draft_prediction.h"

#include <optional>
#include <utility>

#include "decoding/acceptance_counts.h"
#include "runtime/layers_drafter.h"
#include "runtime/model_numbers.h"

namespace tidemill {
namespace {

// Between one thread and all nothing is measured.
ThreadUse UseOf(size_t threads) { return threads == 1 ? ThreadUse::kOne : ThreadUse::kAll; }

// The drafting model and its threads.
struct DrafterNumbers {
  ModelNumbers model;
  ThreadUse threads = ThreadUse::kAll;
};

// Whether layers of the model itself draft.
bool IsOwn(const DraftOptions& draft) {
  return draft.source == DraftSource::kLayers || draft.source == DraftSource::kSparq;
}

// None: the drafter takes no steps.
std::optional<DrafterNumbers> NumbersOfDrafter(const Engine::Impl& engine, const DraftOptions& draft) {
  if (draft.source == DraftSource::kNgram) return std::nullopt;
  const LanguageModel& model = IsOwn(draft)                   ? engine.language_model()
                               : engine.draft_head != nullptr ? engine.draft_head->model()
                                                              : engine.draft_model->model();
  const size_t layers = draft.source == DraftSource::kLayers ? draft.layers : SIZE_MAX;
  DrafterNumbers numbers{NumbersOf(model, DTypeOf(*engine.options.kv_type), layers),
                         UseOf(engine.options.draft_threads)};
  if (draft.source != DraftSource::kSparq) return numbers;
  const auto attention = engine.AttentionOfState(draft, {}, engine.options.context);
  if (attention.ok()) numbers.model = NumbersOf(model, DTypeOf(*engine.options.kv_type), *attention);
  return numbers;
}

}  // namespace

MachineProfile ProfileOf(const Engine::Impl& engine) {
  const size_t threads = engine.threads->num_threads();
  if (!engine.options.profile_path.empty()) {
    auto kept = LoadProfile(engine.options.profile_path);
    if (kept.ok() && kept->IsOf(engine.options.cpu, engine.isa, threads)) return std::move(kept).value();
  }
  return NearestBuiltIn(engine.isa, threads, engine.options.cpu);
}

DraftOrder DraftOrderOf(const Engine::Impl& engine, const DraftOptions& draft) {
  if (draft.tree != DraftTreeKind::kChain) return DraftOrder::kTree;
  const bool is_model = draft.source == DraftSource::kModel && engine.draft_model != nullptr;
  return is_model && engine.draft_model->model().settings.pard_token ? DraftOrder::kAtOnce : DraftOrder::kOneByOne;
}

DraftSetting SettingOf(const Engine::Impl& engine, const DraftOptions& draft, size_t depth, size_t others,
                       size_t together) {
  return {.depth = depth,
          .others = others,
          .together = together,
          .num_draft_tokens = draft.num_draft_tokens,
          .order = DraftOrderOf(engine, draft),
          .runs_draft_tokens_again = IsOwn(draft) && !LayersDrafter::KeepsRows(engine.language_model()),
          .acceptance = draft.source == DraftSource::kLayers ? DraftCosts().acceptance : kModelAcceptance};
}

double PredictedGrowthOfRow(const Engine::Impl& engine, const MachineProfile& profile) {
  const ModelNumbers model = NumbersOf(engine.language_model(), DTypeOf(*engine.options.kv_type));
  return PredictedCosts(profile, model, UseOf(engine.threads->num_threads())).GrowOneRow();
}

DraftCosts PredictDrafts(const Engine::Impl& engine, const MachineProfile& profile, const DraftOptions& draft,
                         const DraftSetting& setting) {
  const ModelNumbers model = NumbersOf(engine.language_model(), DTypeOf(*engine.options.kv_type));
  const PredictedCosts costs(profile, model, UseOf(engine.threads->num_threads()));
  const std::optional<DrafterNumbers> drafter = NumbersOfDrafter(engine, draft);
  if (!drafter) return PredictDraftCosts(costs, nullptr, setting);
  const PredictedCosts drafter_costs(profile, drafter->model, drafter->threads);
  if (setting.order != DraftOrder::kTree) return PredictDraftCosts(costs, &drafter_costs, setting);
  const auto acceptance = AcceptanceCounts().Rates();
  return PredictTreeCosts(costs, drafter_costs, setting, ShapeOf(draft.tree, acceptance, draft.num_draft_tokens),
                          acceptance);
}

DraftPrefill DraftPrefillOf(const Engine::Impl& engine, const MachineProfile& profile, const DraftOptions& draft,
                            const DraftSetting& setting, size_t prompt, size_t known) {
  if (draft.source != DraftSource::kModel || engine.draft_model == nullptr) return {};
  const size_t longest = engine.draft_model->model().settings.longest_context();
  if (prompt > longest) return {};  // it stops, and says why
  const ModelNumbers model = NumbersOf(engine.language_model(), DTypeOf(*engine.options.kv_type));
  const DrafterNumbers drafter = *NumbersOfDrafter(engine, draft);
  DraftPrefill reading = PredictDraftPrefill(PredictedCosts(profile, model, UseOf(engine.threads->num_threads())),
                                             PredictedCosts(profile, drafter.model, drafter.threads), setting,
                                             prompt - known, engine.draft_model->executor().max_rows());
  if (reading.min_answer_tokens && *reading.min_answer_tokens > longest - prompt) reading.min_answer_tokens.reset();
  return reading;
}

}  // namespace tidemill
