#include "tidemill/plan.h"

#include <algorithm>
#include <ctime>
#include <exception>
#include <utility>
#include <vector>

#include "base/available_memory.h"
#include "base/checked_math.h"
#include "base/out_of_memory.h"
#include "planner/growth_choice.h"
#include "planner/machine_measurement.h"
#include "planner/machine_profile.h"
#include "planner/plan.h"
#include "runtime/draft_prediction.h"
#include "runtime/engine_impl.h"
#include "runtime/model_numbers.h"
#include "state/kv_growth.h"

namespace tidemill {
namespace {

constexpr const char* kBuiltIn = "built-in numbers serve";

std::string Today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  char text[32] = "";
  if (gmtime_r(&now, &utc) != nullptr) std::strftime(text, sizeof text, "%Y-%m-%d", &utc);
  return text;
}

std::string Describe(const MachineProfile& profile) {
  return profile.cpu + ", " + std::string(IsaName(profile.isa)) + ", threads " + std::to_string(profile.threads);
}

// The numbers that a plan is made from, and where they come from.
class ProfileSource {
 public:
  ProfileSource(Engine& engine, const PlanOptions& options) : engine_(engine), options_(options) {}

  // Adds to warnings().
  MachineProfile Get() {
    const Engine::Impl& impl = engine_.impl();
    if (!options_.profile_path.empty() && !options_.recalibrate) {
      auto kept = LoadProfile(options_.profile_path);
      if (kept.ok()) {
        if (kept->IsOf(options_.cpu, impl.isa, impl.threads->num_threads())) return Described(std::move(kept).value());
        MachineProfile wanted;
        wanted.cpu = options_.cpu;
        wanted.isa = impl.isa;
        wanted.threads = impl.threads->num_threads();
        warnings_.push_back("use the machine's profile: " + options_.profile_path + ": expected one of " +
                            Describe(wanted) + "; found one of " + Describe(*kept) + "; " + kBuiltIn +
                            ", --recalibrate measures this machine");
        return BuiltIn();
      }
      if (kept.error().code() != ErrorCode::kNotFound) {
        warnings_.push_back(kept.error().message() + "; " + kBuiltIn + ", --recalibrate writes a new one");
        return BuiltIn();
      }
    }
    auto measured = Measure();
    if (measured.ok()) return Described(std::move(measured).value());
    warnings_.push_back(measured.error().message() + "; " + kBuiltIn);
    return BuiltIn();
  }

  const ProfileInfo& info() const { return info_; }
  std::vector<std::string>& warnings() { return warnings_; }

 private:
  MachineProfile BuiltIn() {
    const Engine::Impl& impl = engine_.impl();
    return Described(NearestBuiltIn(impl.isa, impl.threads->num_threads(), options_.cpu));
  }

  MachineProfile Described(MachineProfile profile) {
    info_.cpu = profile.cpu;
    info_.isa = IsaName(profile.isa);
    info_.threads = profile.threads;
    info_.date = profile.date;
    info_.source = profile.source;
    return profile;
  }

  Result<MachineProfile> Measure() {
    Engine::Impl& impl = engine_.impl();
    MeasureOptions measure{.progress = options_.progress};
    const uint64_t available = AvailableMemory().value_or(UINT64_MAX);
    measure.bytes = std::clamp<size_t>(available / 8, MeasureOptions::kFewestBytes, measure.bytes);
    TIDEMILL_TRY(profile, MeasureMachine(impl.isa, *impl.threads, measure));
    profile.cpu = options_.cpu;
    profile.date = Today();
    profile.source = "measured by tidemill plan";
    // What no file could say is not used either.
    TIDEMILL_TRY(checked, ParseProfile("measure the machine", ProfileText(profile)));
    info_.measured = true;
    if (!options_.profile_path.empty()) {
      const Result<void> saved = SaveProfile(checked, options_.profile_path);
      if (!saved.ok()) warnings_.push_back(saved.error().message() + "; the next plan measures again");
    }
    return checked;
  }

  Engine& engine_;
  const PlanOptions& options_;
  ProfileInfo info_;
  std::vector<std::string> warnings_;
};

// Of `batch` sequences that hold as many tokens as they can.
uint64_t KvCacheBytes(const SequenceState& state, size_t tokens, size_t chunk, size_t batch) {
  uint64_t bytes = 0;
  return CheckedMul<uint64_t>(state.GrowthBytes(tokens, chunk), batch, &bytes) ? bytes : UINT64_MAX;
}

uint64_t SaturatingAdd(uint64_t a, uint64_t b) {
  uint64_t sum = 0;
  return CheckedAdd(a, b, &sum) ? sum : UINT64_MAX;
}

uint64_t WeightBytes(const Model& model, WeightStorage storage) {
  return storage == WeightStorage::kPacked ? model.impl().language_model->packed_bytes() : model.info().file_bytes;
}

// All but unused capacity.
PlannedMemory MemoryOf(Engine::Impl& impl, const PlanOptions& options) {
  const EngineOptions& o = impl.options;
  PlannedMemory memory{.weights = WeightBytes(*impl.model, options.weights),
                       .kv_cache = KvCacheBytes(*impl.NewState(), o.context, o.prefill_chunk, options.batch),
                       .work = impl.executor->work_bytes(),
                       .free = AvailableMemory()};
  if (!options.draft || options.draft->source != DraftSource::kModel) return memory;
  const bool is_head = impl.draft_head != nullptr;
  const LanguageModel& drafting = is_head ? impl.draft_head->model() : impl.draft_model->model();
  const size_t longest = std::min(o.context, drafting.settings.longest_context());
  memory.weights += is_head ? drafting.packed_bytes() : WeightBytes(*o.draft_model, options.weights);
  memory.work += is_head ? impl.draft_head->work_bytes() : impl.draft_model->executor().work_bytes();
  memory.kv_cache = SaturatingAdd(memory.kv_cache, KvCacheBytes(*impl.NewDraftState(drafting, 0, longest), longest,
                                                                o.prefill_chunk, options.batch));
  return memory;
}

SegmentPlan SegmentsOf(const Engine::Impl& impl, const MachineProfile& profile) {
  const SegmentShape& shape = impl.language_model().segments.shape;
  SegmentPlan plan;
  plan.segment_tokens = shape.segment_tokens;
  plan.memory_tokens = shape.memory_rows;
  plan.front_tokens = shape.front_rows;
  plan.prompt_tokens = impl.options.context;
  plan.whole_segments = (plan.prompt_tokens - 1) / plan.segment_tokens;
  plan.memory_bytes = impl.language_model().segments.memory_bytes(impl.language_model().layers.size());
  plan.waves = impl.PredictWaves(profile, std::max<size_t>(1, plan.whole_segments));
  return plan;
}

}  // namespace

size_t ChosenKvIncrement(const LanguageModel& model, const EngineOptions& options) {
  const uint64_t share = options.state_memory / options.max_batch;
  return ChooseIncrement(options.kv_policy, options.context, model.state_row_bytes(DTypeOf(*options.kv_type)), share);
}

Result<Plan> MakePlan(Engine& engine, const PlanOptions& options) {
  if (!engine.idle())
    return Error(ErrorCode::kFailedPrecondition, "plan: requests are in flight; finish or cancel them first");
  if (options.batch == 0) return Error(ErrorCode::kInvalidArgument, "plan: --batch 0: expected at least 1");
  try {
    Engine::Impl& impl = engine.impl();
    const EngineOptions& o = impl.options;
    if (options.draft) {
      TIDEMILL_TRY_VOID(impl.CheckDraft(*options.draft).WithContext("plan: draft"));
      TIDEMILL_TRY_VOID(impl.CheckDraft(*options.draft, impl.own_class.attention).WithContext("plan: draft"));
      if (options.draft->tree != DraftTreeKind::kChain) {
        return Error(ErrorCode::kInvalidArgument,
                     "plan: draft: expected a chain of draft tokens, found a tree, which no plan predicts");
      }
      if (options.draft->num_draft_tokens == 0) {
        return Error(ErrorCode::kInvalidArgument,
                     "plan: draft: expected at least 1 draft token in a step, found 0; give --draft-max");
      }
    }
    PlanInput input;
    input.state_memory = o.state_memory;
    input.sequences = o.max_batch;
    input.memory = MemoryOf(impl, options);
    ProfileSource source(engine, options);
    input.profile = source.Get();
    const DType kv_dtype = DTypeOf(*o.kv_type);
    input.model = NumbersOf(impl.language_model(), kv_dtype, impl.own_class.attention);
    input.model.linear.shape.form = impl.own_class.linear;
    input.linear_given = o.linear != LinearPolicy();
    input.attention_reason = impl.own_class.attention.reason;
    AttentionPolicy other = o.attention.kind == AttentionKind::kAuto ? o.attention : AttentionPolicy();
    other.kind = AttentionKind::kSparq;
    other.floors.dense_shares.clear();  // by which all could be dense
    const auto sparq = impl.ClassOf({}, other);
    if (sparq.ok()) input.other_attention = NumbersOf(impl.language_model(), kv_dtype, sparq->attention).attention;
    const bool has_segments = impl.language_model().segments.present();
    input.context =
        has_segments ? std::min(o.context, impl.language_model().settings.max_position_embeddings) : o.context;
    if (has_segments) {
      input.segments = SegmentsOf(impl, input.profile);
      const WaveChoice& waves = input.segments->waves;
      if (!waves.as_steps) input.memory.work += waves.chosen.bytes;
    }
    input.batch = options.batch;
    input.policy = o.kv_policy;
    input.increment_given = impl.kv_increment_given;
    input.increment = o.kv_increment;
    input.prefill_chunk = o.prefill_chunk;
    input.threads = engine.threads();
    const DraftOptions draft = options.draft.value_or(DraftOptions{.num_draft_tokens = 1});
    const size_t others = options.batch - 1;  // which do the same
    input.drafts = {
        .is_planned = options.draft.has_value(),
        .order = DraftOrderOf(impl, draft),
        .min_draft_tokens = draft.min_draft_tokens,
        .num_draft_tokens = draft.num_draft_tokens,
    };
    const DraftSetting setting =
        SettingOf(impl, draft, input.context / 2, others, draft.source == DraftSource::kNgram ? 0 : others);
    input.drafts.costs = PredictDrafts(impl, input.profile, draft, setting);
    input.drafts.prefill = DraftPrefillOf(impl, input.profile, draft, setting, o.context / 2);
    Plan plan = ChoosePlan(input);
    plan.profile = source.info();
    plan.warnings = std::move(source.warnings());
    if (draft.source == DraftSource::kModel && impl.draft_model != nullptr) {
      const size_t longest = impl.draft_model->model().settings.longest_context();
      if (longest < o.context) {
        plan.warnings.push_back("draft: the draft model's context has " + std::to_string(longest) +
                                " tokens, the model's " + std::to_string(o.context) +
                                "; behind the first of them nothing is drafted");
      }
    }
    return plan;
  } catch (const std::exception&) {  // std::bad_alloc
    return OutOfMemoryError("plan");
  }
}

}  // namespace tidemill
