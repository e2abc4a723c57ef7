// The drafters of an engine's requests.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "runtime/draft_prediction.h"
#include "runtime/draft_vocabulary.h"
#include "runtime/engine_impl.h"
#include "runtime/layers_drafter.h"
#include "runtime/linear_class.h"
#include "state/sparse_kv_layer.h"

namespace tidemill {
namespace {

Error Wrong(const std::string& what) { return Error(ErrorCode::kInvalidArgument, what); }

bool HasSparseLayers(SequenceState& state) {
  for (size_t i = 0; i < state.num_layers(); ++i) {
    const SparseKvLayer* layer = SparseOf(state.layer(i));
    if (layer != nullptr && layer->form().kind != SparseKind::kDense) return true;
  }
  return false;
}

}  // namespace

Result<void> Engine::Impl::PrepareDrafts() {
  if (options.draft_head != nullptr) {
    if (options.draft_model != nullptr)
      return Wrong("start engine: expected a draft model or a draft head, found both; choose one");
    if (&options.draft_head->target() != model.get())
      return Wrong(
          "start engine: expected a draft head that was loaded for this model, found one of another; load it for this "
          "one");
    TIDEMILL_TRY(made, EagleHead::Create(*options.draft_head->impl().head, isa, *threads, executor->max_rows(),
                                         options.max_batch));
    draft_head = std::move(made);
  }
  if (options.draft_model == nullptr) return {};
  const Model& draft = *options.draft_model;
  if (draft.impl().language_model->segments.present()) {
    return Error(ErrorCode::kUnsupported, "start engine: draft model " + draft.info().path +
                                              ": expected a model that keeps what it reads, found one that reads it in "
                                              "segments; choose another, or draft with ngram or layers:M");
  }
  TIDEMILL_TRY_VOID(CheckDraftVocabulary(model->text().tokenizer, draft.text().tokenizer)
                        .WithContext("start engine: draft model " + draft.info().path));
  TIDEMILL_TRY(made, DraftModel::Create(*draft.impl().language_model, isa, *threads, options.max_batch));
  draft_model = std::move(made);
  return {};
}

Result<void> Engine::Impl::CheckDraft(const DraftOptions& draft) const {
  if (draft.num_draft_tokens > DraftOptions::kMax) {
    return Wrong("expected at most " + std::to_string(DraftOptions::kMax) + " draft tokens in a step, found " +
                 std::to_string(draft.num_draft_tokens) + "; lower num_draft_tokens");
  }
  if (draft.ngram_min == 0) return Wrong("expected a shortest n-gram of at least 1 token, found 0; raise ngram_min");
  if (draft.ngram_max != 0 && draft.ngram_max < draft.ngram_min) {
    return Wrong("expected a longest n-gram of at least the shortest, which has " + std::to_string(draft.ngram_min) +
                 " tokens, found " + std::to_string(draft.ngram_max) + "; raise ngram_max or lower ngram_min");
  }
  if (draft.min_draft_tokens > draft.num_draft_tokens) {
    return Wrong("expected min_draft_tokens of at most num_draft_tokens, which is " +
                 std::to_string(draft.num_draft_tokens) + ", found " + std::to_string(draft.min_draft_tokens));
  }
  if (!(draft.min_probability >= 0 && draft.min_probability <= 1))
    return Wrong("expected min_probability from 0 to 1, found " + std::to_string(draft.min_probability));
  if (draft.tree != DraftTreeKind::kChain && draft.source == DraftSource::kNgram)
    return Wrong(
        "expected a chain of DraftSource::kNgram, which drafts one continuation, found a tree; choose kModel, "
        "kLayers or kSparq");
  if (draft.num_draft_tokens == 0) return {};
  if (draft.source == DraftSource::kModel && draft_model == nullptr && draft_head == nullptr) {
    return Wrong(
        "expected an engine with a draft model, found one without; give it EngineOptions::draft_model or draft_head");
  }
  const size_t layers = language_model().layers.size();
  if (draft.source == DraftSource::kLayers && (draft.layers == 0 || draft.layers >= layers)) {
    return Wrong("expected at least 1 layer and fewer than the model's " + std::to_string(layers) + ", found " +
                 std::to_string(draft.layers));
  }
  return {};
}

Result<void> Engine::Impl::CheckDraft(const DraftOptions& draft, const AttentionClass& attention) {
  if (draft.num_draft_tokens == 0) return {};
  if (draft.source == DraftSource::kSparq && attention.is_sparse()) {
    return Wrong("expected dense attention, whose draft tokens a sparse one makes, found " + attention.name +
                 "; leave --attention out, or choose another --draft");
  }
  if (!attention.evicts()) return {};
  return Wrong("expected attention that keeps all positions, found " + attention.name +
               ", whose draft tokens cannot be taken back; draft nothing, or choose --attention sparq or topk");
}

// A layer with a window has sums that a plain one lacks: it drafts densely, so that states of both kinds go on from each other.
Result<AttentionClass> Engine::Impl::AttentionOfState(const DraftOptions& draft, const AttentionClass& own,
                                                      size_t length) const {
  if (draft.num_draft_tokens == 0 || draft.source != DraftSource::kSparq) return own;
  const AttentionPolicy& sparq = draft.sparq;
  const bool is_plain = !sparq.from && sparq.floors == AttentionFloors() && sparq.audit == 0;
  if (sparq.kind != AttentionKind::kSparq || !is_plain) {
    return Wrong(
        "expected DraftOptions::sparq of AttentionKind::kSparq without from, floors, shares and audits, found others; "
        "draft tokens are all sparse");
  }
  const DType kv_dtype = DTypeOf(*options.kv_type);
  auto resolved = ResolveAttentionPolicy(draft.sparq, language_model(), length, kv_dtype);
  if (!resolved.ok()) return WithoutFlags(resolved.error()).WithContext("sparq");
  AttentionClass drafting = std::move(resolved).value();
  const auto shapes = language_model().attention_shapes(kv_dtype);
  for (size_t i = 0; i < shapes.size(); ++i) {
    if (shapes[i] && shapes[i]->window != 0) drafting.layers[i].reset();
  }
  return drafting;
}

std::unique_ptr<SequenceState> Engine::Impl::NewDraftState(const LanguageModel& drafting, size_t expected,
                                                           size_t longest) {
  const KvType type = drafting.CheckKvType(DTypeOf(*options.kv_type)).ok() ? *options.kv_type : KvType::kF16;
  const std::optional<DeltaShape> shape = drafting.delta_shape();
  return drafting.MakeState({.kv_dtype = DTypeOf(type),
                             .growth = GrowthOf(expected),
                             .max_length = longest,
                             .linear = shape ? ChosenDeltaClass(*shape, false) : DeltaClass(),
                             .isa = isa,
                             .ledger = &memory->ledger()});
}

std::unique_ptr<Drafter> Engine::Impl::NewDrafter(const DraftOptions& draft, size_t expected, SequenceState* state) {
  if (draft.source == DraftSource::kNgram) {
    return std::make_unique<NgramDrafter>(draft.ngram_min, draft.ngram_max == 0 ? ~size_t{0} : draft.ngram_max,
                                          model->text().tokenizer.vocab_size());
  }
  DraftChoice::Options choice{.isa = isa,
                              .num_draft_tokens = draft.num_draft_tokens,
                              .vocab_size = model->text().tokenizer.vocab_size(),
                              .min_probability = draft.min_probability,
                              .tokenizer = &model->text().tokenizer};
  if (draft.source == DraftSource::kLayers || draft.source == DraftSource::kSparq) {
    const bool is_whole = draft.source == DraftSource::kSparq;
    return std::make_unique<LayersDrafter>(
        LayersDrafter::Options{.executor = executor.get(),
                               .num_layers = is_whole ? SIZE_MAX : draft.layers,
                               .is_sparse = HasSparseLayers(*state),
                               .keeps_rows = LayersDrafter::KeepsRows(language_model()),
                               .state = state,
                               .interrupt = &interrupt,
                               .tree = draft.tree,
                               .choice = choice});
  }
  if (draft_head != nullptr) {
    const LanguageModel& head = draft_head->model();
    auto draft_state = NewDraftState(head, expected, std::min(options.context, head.settings.longest_context()));
    choice.target_ids = head.features.target_ids;
    return std::make_unique<EagleDrafter>(EagleDrafter::Options{.head = draft_head.get(),
                                                                .context = options.context,
                                                                .memory = &*memory,
                                                                .interrupt = &interrupt,
                                                                .tree = draft.tree,
                                                                .choice = choice},
                                          std::move(draft_state));
  }
  const LanguageModel& drafting = draft_model->model();
  // The ids that both have a text for.
  choice.vocab_size = std::min(choice.vocab_size, options.draft_model->text().tokenizer.vocab_size());
  choice.never = drafting.settings.pard_token;
  const ModelDrafter::Options made{.model = &drafting,
                                   .executor = &draft_model->executor(),
                                   .memory = &*memory,
                                   .interrupt = &interrupt,
                                   .mask_token = choice.never,
                                   .tree = draft.tree,
                                   .choice = choice};
  const size_t longest = std::min(options.context, drafting.settings.longest_context());
  return std::make_unique<ModelDrafter>(made, NewDraftState(drafting, expected, longest));
}

DraftSetting Engine::Impl::SettingBesideOthers(const Request& request, Drafter& drafter) {
  if (!profile) profile = ProfileOf(*this);
  const size_t others = std::min(requests.size(), options.max_batch - 1);
  size_t together = 0;
  if (const StepDrafter* steps = StepDrafter::Of(&drafter)) {
    for (const auto& other : requests) together += other->DraftTokensOn(steps->forward()) ? 1U : 0U;
  }
  return SettingOf(*this, request.draft, request.prompt.size(), others, std::min(together, others));
}

DraftCosts Engine::Impl::PredictedDraftCosts(const Request& request, Drafter& drafter) {
  if (request.draft.num_draft_tokens == request.draft.min_draft_tokens) return {};  // nothing is chosen
  const DraftSetting setting = SettingBesideOthers(request, drafter);
  return PredictDrafts(*this, *profile, request.draft, setting);
}

bool Engine::Impl::DraftPrefillMayPay(const Request& request, uint64_t numeric_class, Drafter& drafter, size_t answer) {
  if (request.draft.min_draft_tokens != 0 || answer <= 1) return true;  // they are forced; or no step could have one
  const DraftSetting setting = SettingBesideOthers(request, drafter);
  const PrefixCache::Found found = memory->prefix_cache().Find(request.prompt, {request.cache_salt, numeric_class});
  const size_t known = found.draft == nullptr ? 0 : std::min(found.length, found.draft->length());
  const std::optional<size_t> min_answer_tokens =
      DraftPrefillOf(*this, *profile, request.draft, setting, request.prompt.size(), known).min_answer_tokens;
  return min_answer_tokens && answer >= *min_answer_tokens;
}

void Engine::Impl::TimeDrafts(double seconds, size_t tokens) {
  const std::span<const StepSequence> step = scheduler->step();
  double drafting = 0;
  if (step_seconds) {
    size_t rows = 0;
    for (const StepSequence& sequence : step) rows += sequence.tokens.size();
    seconds = step_seconds(rows);
  }
  for (size_t i = 0; i < scheduler->num_requests(); ++i) {
    const bool decodes = step[i].rows == Wanted::kAll || (step[i].rows == Wanted::kLast && step[i].tokens.size() == 1);
    const ActiveRequest& request = scheduler->request(i);
    if (!decodes || request.drafter_reads_text()) return;  // prefill, of the model or a drafter: no measure of decode
    drafting += request.drafting_seconds();
  }
  for (size_t i = 0; i < scheduler->num_requests(); ++i) scheduler->request(i).Took(seconds + drafting, tokens);
}

}  // namespace tidemill
