#include "runtime/draft_prediction.h"

#include <optional>
#include <utility>

#include "planner/draft_costs.h"
#include "runtime/model_numbers.h"

namespace tidemill {
namespace {

// Between one thread and all nothing is measured.
ThreadUse UseOf(size_t threads) { return threads == 1 ? ThreadUse::kOne : ThreadUse::kAll; }

}  // namespace

MachineProfile ProfileOf(const Engine::Impl& engine) {
  const size_t threads = engine.threads->num_threads();
  if (!engine.options.profile_path.empty()) {
    auto kept = LoadProfile(engine.options.profile_path);
    if (kept.ok() && kept->IsOf(engine.options.cpu, engine.isa, threads)) return std::move(kept).value();
  }
  return NearestBuiltIn(engine.isa, threads);
}

GuessOrder GuessOrderOf(const Engine::Impl& engine, const DraftOptions& draft) {
  if (draft.tree != DraftTreeKind::kChain) return GuessOrder::kTree;
  const bool is_model = draft.source == DraftSource::kModel && engine.draft_model != nullptr;
  return is_model && engine.draft_model->model().settings.pard_token ? GuessOrder::kAtOnce : GuessOrder::kOneByOne;
}

DraftCosts PredictDrafts(const Engine::Impl& engine, const MachineProfile& profile, const DraftOptions& draft,
                         size_t depth, size_t others) {
  const DType kv_type = DTypeOf(*engine.options.kv_type);
  const ModelNumbers model = NumbersOf(engine.language_model(), kv_type);
  const PredictedCosts costs(profile, model, UseOf(engine.threads->num_threads()));
  const DraftSetting setting{
      .depth = depth, .others = others, .most = draft.most, .order = GuessOrderOf(engine, draft)};
  if (draft.source == DraftSource::kNgram) return PredictDraftCosts(costs, nullptr, setting);
  const bool own = draft.source == DraftSource::kLayers;
  if (!own && engine.draft_model == nullptr) return {};
  const ModelNumbers drafter =
      own ? NumbersOf(engine.language_model(), kv_type, draft.layers) : NumbersOf(engine.draft_model->model(), kv_type);
  const PredictedCosts drafter_costs(profile, drafter, UseOf(engine.options.draft_threads));
  return PredictDraftCosts(costs, &drafter_costs, setting);
}

}  // namespace tidemill
