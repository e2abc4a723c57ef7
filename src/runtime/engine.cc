#include "tidemill/engine.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "base/available_memory.h"
#include "base/checked_math.h"
#include "base/out_of_memory.h"
#include "base/seconds_of.h"
#include "engine/segments.h"
#include "kernels/heavy_hitters.h"
#include "models/rope_override.h"
#include "planner/wave_order.h"
#include "runtime/draft_prediction.h"
#include "runtime/engine_impl.h"
#include "runtime/linear_class.h"
#include "runtime/sparse_stats.h"

namespace tidemill {
namespace {

static_assert(kMaxThreads == ThreadPool::kMaxThreads);

// Rows of one step where the caller does not say: enough for the matrix kernels, few enough that buffers stay small.
constexpr size_t kMaxStepRows = 512;
constexpr size_t kStepBufferBytes = size_t{32} << 20;

size_t DefaultStepRows(const LanguageModel& model, Isa isa, size_t max_batch) {
  const size_t rows = kStepBufferBytes / StepBuffers::RowBytes(model.step_shape(), isa);
  return std::clamp(rows, std::max<size_t>(32, max_batch), std::max(kMaxStepRows, max_batch));
}

// Tokens of a model that reads segments, where the caller does not say: their ids alone take memory.
constexpr size_t kSegmentsContext = size_t{1} << 24;

uint64_t HashText(std::string_view text) {
  uint64_t hash = 0;
  for (const char c : text) hash = ChainTokenHash(hash, static_cast<unsigned char>(c));
  return hash;
}

Result<void> CheckKvType(const LanguageModel& model, KvType type) {
  const auto fits = model.CheckKvType(DTypeOf(type));
  if (fits.ok()) return {};
  return Error(fits.error().code(), "start engine: --kv-dtype " + std::string(KvTypeName(type)) + ": " +
                                        fits.error().message() + "; choose f16, bf16 or f32");
}

const LanguageModel* SegmentModelOf(const LanguageModel& model) { return model.segments.present() ? &model : nullptr; }

// Where segments follow from the whole text, texts with the same beginning have other segments.
bool SharesPrefixes(const LanguageModel& model) {
  return !model.segments.present() || model.settings.armt->segment_alignment == SegmentAlignment::kLeft;
}

Result<void> CheckContext(const Model::Impl& model, size_t context) {
  const ModelSettings& settings = model.language_model->settings;
  if (context <= settings.longest_context()) return {};
  const size_t own = settings.max_position_embeddings, factor = (context - 1) / own + 1;
  std::string what = "start engine: --context " + std::to_string(context) + ": ";
  if (model.rope_scaling) {
    what += "expected at most " + std::to_string(settings.longest_context()) + ", what --rope-scaling " +
            RopeOverrideName(*model.rope_scaling) + " makes of the model's " + std::to_string(own) + " tokens";
  } else {
    what += "the model was made for " + std::to_string(own) + " tokens; choose at most that or leave the flag out";
    if (settings.rotary_dim != 0 && static_cast<double>(factor) <= kMaxRopeFactor)
      what += ", or stretch its positions with --rope-scaling yarn=" + std::to_string(factor);
  }
  return Error(ErrorCode::kInvalidArgument, what);
}

Result<std::unique_ptr<Engine::Impl>> CreateImpl(std::shared_ptr<const Model> model, const EngineOptions& options) {
  auto impl = std::make_unique<Engine::Impl>();
  impl->model = std::move(model);
  impl->options = options;
  EngineOptions& o = impl->options;
  const LanguageModel& language_model = impl->language_model();
  const size_t positions = language_model.settings.max_position_embeddings;
  if (o.context == 0) o.context = language_model.segments.present() ? kSegmentsContext : positions;
  TIDEMILL_TRY_VOID(CheckContext(impl->model->impl(), o.context));
  if (o.max_batch == 0 || o.max_batch > 1024) {
    return Error(ErrorCode::kInvalidArgument,
                 "start engine: --max-batch " + std::to_string(o.max_batch) + ": expected 1 to 1024");
  }
  if (o.kv_increment > o.context) {
    return Error(ErrorCode::kInvalidArgument, "start engine: --kv-increment " + std::to_string(o.kv_increment) +
                                                  ": expected at most the context of " + std::to_string(o.context));
  }
  impl->isa = DefaultIsa();
  if (!o.isa.empty()) {
    TIDEMILL_TRY(isa, ParseIsa(o.isa));
    impl->isa = isa;
  }
  if (!o.kv_type.has_value()) o.kv_type = impl->model->impl().f32 ? KvType::kF32 : KvType::kF16;
  TIDEMILL_TRY_VOID(CheckKvType(language_model, *o.kv_type));
  impl->kv_increment_given = o.kv_increment != 0;
  if (o.state_memory == 0) {
    DefaultStateMemory chosen = ChooseStateMemory(AvailableMemory());
    o.state_memory = chosen.bytes;
    impl->notice = std::move(chosen.notice);
  }
  if (o.kv_increment == 0) {
    EngineOptions of_cache = o;
    if (language_model.segments.present()) of_cache.context = std::min(o.context, positions);
    o.kv_increment = ChosenKvIncrement(language_model, of_cache);
  }
  if (o.threads == 0) o.threads = DefaultThreadCount();
  if (o.prefill_chunk == 0) o.prefill_chunk = DefaultStepRows(language_model, impl->isa, o.max_batch);
  if (o.prefill_chunk > 8192) {
    return Error(ErrorCode::kInvalidArgument,
                 "start engine: --prefill-chunk " + std::to_string(o.prefill_chunk) + ": expected 1 to 8192");
  }
  const bool bfloat16_products = language_model.step_shape().bfloat16_weights && HasBFloat16Products(impl->isa);
  impl->common_class = std::string(HasFma(impl->isa) ? "fma" : "baseline") + (bfloat16_products ? "+bf16" : "") +
                       (impl->model->impl().f32 ? "/f32" : "") + "/kv-" + std::string(KvTypeName(*o.kv_type));
  if (const auto& rope = impl->model->impl().rope_scaling) impl->common_class += "/rope-" + RopeOverrideName(*rope);
  TIDEMILL_TRY(own_class, impl->ClassOf({}).WithContext("start engine"));
  impl->own_class = own_class;
  TIDEMILL_TRY(threads, ThreadPool::Create(o.threads));
  impl->threads = std::move(threads);
  const size_t all_threads = impl->threads->num_threads();
  if (o.draft_threads > all_threads) {
    if (!impl->notice.empty()) impl->notice += "; ";
    impl->notice += "start engine: --draft-threads " + std::to_string(o.draft_threads) +
                    ": a draft model's steps share the engine's threads, and use all " + std::to_string(all_threads) +
                    "; --threads makes more";
  }
  if (o.draft_threads == 0 || o.draft_threads > all_threads) o.draft_threads = all_threads;
  TIDEMILL_TRY(ctx, ExecutionContext::Create(impl->isa, impl->threads.get(), language_model.scratch_bytes()));
  impl->ctx.emplace(std::move(ctx));
  const size_t max_rows = std::max(o.prefill_chunk, o.max_batch) + language_model.segments.rows_around();
  TIDEMILL_TRY(executor, StepExecutor::Create(language_model, *impl->ctx, max_rows));
  impl->executor = std::move(executor);
  if (o.kv_policy == KvPolicy::kReserve) {
    TIDEMILL_TRY(pages, PageCommitter::Create());
    impl->pages = std::move(pages);
  }
  impl->memory.emplace(o.state_memory);
  impl->scheduler.emplace(
      SchedulerLimits{.max_batch = o.max_batch,
                      .max_rows = impl->executor->max_rows(),
                      .prefill_chunk = o.prefill_chunk,
                      .spill_folder = o.spill_folder,
                      .prefix_cache = o.prefix_cache && SharesPrefixes(language_model),
                      .segments = SegmentModelOf(language_model),
                      .wave_tokens = language_model.segments.shape.front_rows == 0 ? kMaxWaveTokens : 0},
      *impl->memory);
  TIDEMILL_TRY_VOID(impl->PrepareDrafts());
  return impl;
}

}  // namespace

DefaultStateMemory ChooseStateMemory(std::optional<uint64_t> available) {
  if (available) return {.bytes = std::max<uint64_t>(*available / 2, 1)};
  constexpr uint64_t kBytes = kUnknownMemory / 2;
  return {.bytes = kBytes,
          .notice = "start engine: --state-memory: the system does not say how much memory is free; " +
                    std::to_string(kBytes >> 20) + " MiB are taken; give it where there is more or less"};
}

DType DTypeOf(KvType type) {
  switch (type) {
    case KvType::kF32: return DType::kF32;
    case KvType::kF16: return DType::kF16;
    case KvType::kBF16: return DType::kBF16;
    case KvType::kQ8_0: return DType::kQ8_0;
  }
  return DType::kF32;
}

Result<KvType> ParseKvType(std::string_view name) {
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kQ8_0}) {
    if (KvTypeName(type) == name) return type;
  }
  return Error(ErrorCode::kInvalidArgument,
               "choose KV type: '" + std::string(name) + "': expected f32, f16, bf16 or q8_0");
}

std::string_view KvTypeName(KvType type) {
  switch (type) {
    case KvType::kF32: return "f32";
    case KvType::kF16: return "f16";
    case KvType::kBF16: return "bf16";
    case KvType::kQ8_0: return "q8_0";
  }
  return "unknown";
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::Create(std::shared_ptr<const Model> model, const EngineOptions& options) {
  try {
    TIDEMILL_TRY(impl, CreateImpl(std::move(model), options));
    return std::make_unique<Engine>(std::move(impl));
  } catch (const std::exception&) {  // std::bad_alloc
    return OutOfMemoryError("start engine");
  }
}

Result<RequestId> Engine::Submit(Request request) {
  try {
    TIDEMILL_TRY(active, impl_->NewRequest(std::move(request)));
    return impl_->Admit(std::move(active));
  } catch (const std::exception&) {  // std::bad_alloc
    return OutOfMemoryError("submit request");
  }
}

namespace {

// max_length as max_new_tokens. `prompt_tokens`: without what is answered already.
Result<void> ResolveMaxLength(size_t prompt_tokens, GenerationOptions& options) {
  if (options.max_new_tokens || !options.max_length || *options.max_length < 1) return {};
  const auto length = static_cast<size_t>(*options.max_length);
  if (prompt_tokens >= length) {
    return Error(ErrorCode::kContextFull, "submit request: the prompt has " + std::to_string(prompt_tokens) +
                                              " tokens: max_length, of prompt and answer, is " +
                                              std::to_string(length) + "; shorten it or give --max-new-tokens");
  }
  options.max_new_tokens = static_cast<int32_t>(length - prompt_tokens);
  options.min_new_tokens = std::min(options.min_new_tokens, *options.max_new_tokens);
  return {};
}

}  // namespace

Result<std::unique_ptr<ActiveRequest>> Engine::Impl::NewRequest(Request request, size_t answered) {
  const Model::Impl& shared = model->impl();
  const size_t vocab = shared.info.vocab_size;
  if (shared.text.tokenizer.vocab_size() == 0) {
    return Error(ErrorCode::kFailedPrecondition,
                 "submit request: the model was loaded without its tokenizer; load it with LoadOptions::text");
  }
  if (request.prompt.empty()) return Error(ErrorCode::kInvalidArgument, "submit request: the prompt is empty");
  for (size_t i = 0; i < request.prompt.size(); ++i) {
    if (request.prompt[i] >= 0 && static_cast<size_t>(request.prompt[i]) < vocab) continue;
    return Error(ErrorCode::kInvalidArgument, "submit request: token " + std::to_string(i) + " of the prompt: id " +
                                                  std::to_string(request.prompt[i]) + ": expected 0 to " +
                                                  std::to_string(vocab - 1));
  }
  if (request.prompt.size() > options.context) {
    return Error(ErrorCode::kContextFull, "submit request: the prompt has " + std::to_string(request.prompt.size()) +
                                              " tokens: the context holds " + std::to_string(options.context) +
                                              "; shorten it or choose a larger --context");
  }
  if (!(request.snapshot_seconds >= 0))
    return Error(ErrorCode::kInvalidArgument, "submit request: snapshot_seconds: expected at least 0, found " +
                                                  std::to_string(request.snapshot_seconds));
  TIDEMILL_TRY_VOID(ResolveMaxLength(request.prompt.size() - answered, request.generation));
  TIDEMILL_TRY_VOID(CheckDraft(request.draft).WithContext("submit request: draft"));
  // Padded rows of the head (Qwen's) have no text: they are never sampled.
  const Tokenizer& tokenizer = shared.text.tokenizer;
  TIDEMILL_TRY(sampler, Sampler::Create(request.generation,
                                        {.vocab_size = tokenizer.vocab_size(),
                                         .eos_ids = tokenizer.end_of_generation_ids(),
                                         .sequence = 0,
                                         .isa = isa,
                                         .max_positions = options.context + 1,  // the last token has no position
                                         .threads = threads.get()}));
  const bool stated = request.generation.max_new_tokens.has_value();
  const auto max_new = static_cast<size_t>(request.generation.max_new_tokens.value_or(0));
  const size_t expected = request.prompt.size() + max_new - std::min(max_new, answered);
  const size_t prompt_tokens = request.prompt.size() - answered, context = ContextOf(prompt_tokens);
  if (request.prompt.size() > context) {
    return Error(ErrorCode::kInvalidArgument,
                 "submit request: the answer has ended: its segment has all of the model's " +
                     std::to_string(language_model().settings.max_position_embeddings) + " positions; give a prompt");
  }
  const size_t end = stated ? std::min(expected, context) : context;
  TIDEMILL_TRY(request_class, ClassOf(request.linear, request.attention, end).WithContext("submit request"));
  const AttentionClass& attention = request_class.attention;
  TIDEMILL_TRY_VOID(CheckDraft(request.draft, attention).WithContext("submit request: draft"));
  RequestClass of_state = request_class;
  TIDEMILL_TRY(drafts_too, AttentionOfState(request.draft, attention, end).WithContext("submit request: draft"));
  of_state.attention = std::move(drafts_too);
  TIDEMILL_TRY_VOID(ReserveSparse(of_state.attention, end).WithContext("submit request"));
  auto state = NewState(stated ? expected : 0, of_state, prompt_tokens);
  const size_t with_room = request.needs_room_for_all ? expected : 0;
  const size_t positions = std::min(std::max(with_room, request.prompt.size() + 1) - 1, context);  // the last has none
  auto drafter = request.draft.num_draft_tokens == 0 ? nullptr : make_drafter(request, stated ? expected : 0, *state);
  const uint64_t features = drafter == nullptr ? 0 : drafter->feature_bytes();
  const auto needed = [&] {
    uint64_t need = 0;
    return CheckedAdd(state->LedgerGrowth(positions, options.prefill_chunk), features, &need) ? need : UINT64_MAX;
  };
  if (needed() > options.state_memory) (void)GiveUpColumns(*state);
  if (const uint64_t need = needed(); need > options.state_memory)
    return StateTooLarge("submit request", positions, need, features, options.state_memory);
  const DraftCosts costs = drafter == nullptr ? DraftCosts() : PredictedDraftCosts(request, *drafter);
  const bool may_pay = drafter == nullptr || DraftPrefillMayPay(request, state->identity().numeric_class, *drafter,
                                                                end - request.prompt.size());
  const bool chooses = drafter != nullptr && request.draft.num_draft_tokens != request.draft.min_draft_tokens;
  auto made =
      std::make_unique<ActiveRequest>(next_id++, std::move(request),
                                      ActiveRequest::Parts{.sampler = std::move(sampler),
                                                           .tokenizer = tokenizer,
                                                           .state = std::move(state),
                                                           .context = context,
                                                           .drafter = std::move(drafter),
                                                           .costs = costs,
                                                           .sparse_from = attention.SparseFrom(prompt_tokens),
                                                           .max_shared = attention.SharedPositions(prompt_tokens),
                                                           .numeric_class = request_class.name,
                                                           .attention_reason = attention.reason,
                                                           .segments = SegmentModelOf(language_model())});
  if (chooses) {
    made->PriceGrowth({.growth = GrowthOf(stated ? expected : 0),
                       .most = context,
                       .row_seconds = PredictedGrowthOfRow(*this, *profile)});
  }
  if (!may_pay)
    made->GiveUpDrafter(
        "the draft prefill takes longer than accepted draft tokens can make up for; --draft-min 1 drafts anyway");
  if (step_seconds) made->LeaveOutDrafting();
  made->Inject(faults);
  return made;
}

size_t Engine::Impl::ContextOf(size_t prompt_tokens) const {
  const ModelSettings& settings = language_model().settings;
  if (!settings.armt || prompt_tokens == 0) return options.context;
  const size_t positions = settings.max_position_embeddings - language_model().segments.shape.front_rows;
  return std::min(options.context, LastSegment(*settings.armt, prompt_tokens) + positions);
}

RequestId Engine::Impl::Admit(std::unique_ptr<ActiveRequest> request) {
  // Not in `events`: the caller may still read those of the last step.
  const size_t room = std::max(events.capacity(), more_events.capacity());
  size_t most = request->max_events();
  for (const auto& other : requests) most += other->max_events();
  if (room < most) more_events.reserve(2 * most);
  const std::lock_guard lock(mutex);
  requests.push_back(std::move(request));
  return requests.back()->id();
}

KvGrowth Engine::Impl::GrowthOf(size_t expected) const {
  return {.policy = options.kv_policy, .increment = options.kv_increment, .expected = expected};
}

Result<Engine::Impl::RequestClass> Engine::Impl::ClassOf(const std::optional<LinearPolicy>& linear,
                                                         const std::optional<AttentionPolicy>& attention,
                                                         size_t length) {
  const bool is_own = !linear && !attention && options.attention.kind != AttentionKind::kAuto &&
                      options.attention.floors.dense_shares.empty();
  if (is_own && !own_class.name.empty()) return own_class;
  Result<DeltaClass> resolved = ResolveLinearPolicy(linear.value_or(options.linear), language_model(), options.context);
  if (!resolved.ok() && linear) return Error(resolved.error()).WithContext("linear");
  TIDEMILL_TRY(form, std::move(resolved));
  Result<AttentionClass> chosen =
      ResolveAttentionPolicy(attention.value_or(options.attention), language_model(),
                             length == 0 ? options.context : length, DTypeOf(*options.kv_type));
  if (!chosen.ok() && attention) return Error(chosen.error()).WithContext("attention");
  TIDEMILL_TRY(sparse, std::move(chosen));
  const std::string name = common_class + (language_model().delta_shape() ? "/" + DeltaClassName(form) : "") +
                           (sparse.is_sparse() ? "/" + sparse.name : "");
  return RequestClass{.linear = form, .attention = std::move(sparse), .name = *class_names.insert(name).first};
}

Result<void> Engine::Impl::ReserveSparse(const AttentionClass& attention, size_t positions) {
  if (!attention.is_sparse()) return {};
  const auto shapes = language_model().attention_shapes(DTypeOf(*options.kv_type));
  size_t bytes = 0;
  positions += DraftOptions::kMax;  // of draft tokens that are checked
  for (size_t i = 0; i < shapes.size(); ++i) {
    if (!attention.layers[i]) continue;
    const AttentionShape& shape = *shapes[i];
    const size_t heads = std::min(shape.kv_heads, threads->num_threads());  // side by side
    const SparseForm& form = attention.layers[i]->form;
    executor->ReserveSparse(shape, form.kind == SparseKind::kWindow ? std::min(form.k, positions) : 0);
    bytes = std::max(bytes, form.kind == SparseKind::kH2o ? heads * HeavyHitterSharedBytes(shape, positions)
                                                          : SparseSharedBytes(shape, positions));
  }
  return ctx->ReserveShared(bytes);
}

Result<Engine::Impl::RequestClass> Engine::Impl::ClassOfPrompts() {
  if (options.attention.from) return own_class;
  return ClassOf({}, AttentionPolicy());
}

std::unique_ptr<SequenceState> Engine::Impl::NewState(size_t expected, const RequestClass& request_class,
                                                      size_t prompt_tokens) {
  const auto& armt = language_model().settings.armt;
  return language_model().MakeState(
      {.kv_dtype = DTypeOf(*options.kv_type),
       .growth = GrowthOf(expected),
       .max_length = options.context + language_model().segments.rows_around(),
       .numeric_class = HashText(request_class.name),
       .linear = request_class.linear,
       .sparse = request_class.attention.layers,
       .last_segment = armt && prompt_tokens != 0 ? LastSegment(*armt, prompt_tokens) : SIZE_MAX,
       .isa = isa,
       .pages = pages.get(),
       .ledger = &memory->ledger()});
}

void Engine::Impl::EndCancelled() {
  interrupt.store(false);
  for (const auto& request : requests) {
    if (request->cancelled.load() && !request->done()) request->Cancel(&events);
  }
  DropFinished();
}

void Engine::Impl::DropFinished() {
  SaveFinished();
  for (const auto& request : requests) {
    if (request->done()) scheduler->Keep(*request);
  }
  const std::lock_guard lock(mutex);
  std::erase_if(requests, [](const auto& request) { return request->done(); });
}

std::span<const Event> Engine::Step() {
  Impl& impl = *impl_;
  impl.EndSnapshots();
  impl.events.clear();
  if (impl.events.capacity() < impl.more_events.capacity()) impl.events.swap(impl.more_events);
  impl.EndCancelled();
  Scheduler& scheduler = *impl.scheduler;
  const size_t all_threads = impl.threads->num_threads();
  impl.threads->Use(impl.options.draft_threads);  // what Plan does with threads is drafting
  scheduler.Plan(impl.requests, &impl.events);
  impl.threads->Use(all_threads);
  const std::span<const StepSequence> step = scheduler.step();
  if (const std::span<const Scheduler::WavePart> wave = scheduler.wave(); !wave.empty()) {
    const bool complete = impl.RunWave(wave);
    impl.was_abandoned = impl.waves.was_interrupted;
    if (complete) {
      for (size_t i = 0; i < wave.size(); ++i) {
        if (const size_t read = impl.waves.texts[i].read; read != 0) wave[i].request->AdvanceWave(read, &impl.events);
      }
      scheduler.KeepSnapshots();
    } else {
      impl.EndCancelled();
    }
  } else if (!step.empty()) {
    bool complete = false, reads_features = false;
    const size_t first = scheduler.first_of_requests();
    for (size_t i = 0; i < scheduler.num_requests(); ++i)
      reads_features = reads_features || scheduler.request(i).reads_features();
    const StepFeatures* features = reads_features ? &impl.draft_head->target_features() : nullptr;
    const double seconds = SecondsOf([&] {
      TappedOrder order(features);
      complete = impl.executor->Run(
          step,
          [&](size_t sequence, size_t row, std::span<float> logits) {
            scheduler.request(sequence - first).Sample(row, logits);
          },
          impl.was_abandoned ? nullptr : &impl.interrupt, order);
    });
    impl.was_abandoned = !complete;
    if (complete) {
      const size_t before = impl.events.size();
      size_t row = 0;
      for (const StepSequence& rows : step.first(first)) row += rows.num_rows();
      impl.threads->Use(impl.options.draft_threads);  // of a head, which may run its waiting rows
      for (size_t i = 0; i < scheduler.num_requests(); ++i) {
        const size_t rows = step[first + i].tokens.size();
        scheduler.request(i).Advance(&impl.events,
                                     features == nullptr ? ConstMatrix<float>() : features->out.Rows(row, rows));
        row += rows;
      }
      impl.threads->Use(all_threads);
      impl.TimeDrafts(seconds, impl.events.size() - before);
      scheduler.KeepSnapshots();
    } else {
      for (size_t i = 0; i < scheduler.num_requests(); ++i) scheduler.request(i).Abandon();
      impl.EndCancelled();  // nothing was committed: the others repeat this step
    }
  }
  impl.SaveSnapshots();
  impl.DropFinished();
  return impl.events;
}

void Engine::Cancel(RequestId request) {
  const std::lock_guard lock(impl_->mutex);
  for (const auto& active : impl_->requests) {
    if (active->id() != request) continue;
    active->cancelled.store(true);
    impl_->interrupt.store(true);
  }
}

std::optional<size_t> Engine::prompt_read(RequestId request) const {
  for (const auto& active : impl_->requests) {
    if (active->id() == request) return std::min(active->num_prompt_tokens(), active->state().length());
  }
  return std::nullopt;
}

bool Engine::idle() const { return impl_->requests.empty(); }
size_t Engine::threads() const { return impl_->threads->num_threads(); }
std::string Engine::isa() const { return std::string(IsaName(impl_->isa)); }
size_t Engine::context() const { return impl_->options.context; }
KvPolicy Engine::kv_policy() const { return impl_->options.kv_policy; }
uint64_t Engine::state_memory() const { return impl_->options.state_memory; }
PrefixCacheStats Engine::prefix_cache() const {
  const PrefixCache& cache = impl_->memory->prefix_cache();
  return {.states = cache.size(), .bytes = cache.bytes(), .hits = cache.hits(), .evictions = cache.evictions()};
}
void Engine::ClearPrefixCache() { impl_->memory->prefix_cache().Clear(); }
const std::string& Engine::notice() const { return impl_->notice; }
std::string Engine::numeric_class() const { return std::string(impl_->own_class.name); }

Result<void> Engine::Score(std::span<const int32_t> ids, bool last_only, const LogitSink& sink,
                           const std::atomic<bool>* interrupt) {
  Impl& impl = *impl_;
  if (!idle())
    return Error(ErrorCode::kFailedPrecondition, "score tokens: requests are in flight; finish or cancel them first");
  if (ids.empty()) return Error(ErrorCode::kInvalidArgument, "score tokens: the list of ids is empty");
  const size_t vocab = impl.model->impl().info.vocab_size;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && static_cast<size_t>(ids[i]) < vocab) continue;
    return Error(ErrorCode::kInvalidArgument, "score tokens: token " + std::to_string(i) + ": id " +
                                                  std::to_string(ids[i]) + ": expected 0 to " +
                                                  std::to_string(vocab - 1));
  }
  if (ids.size() > impl.options.context) {
    return Error(ErrorCode::kContextFull, "score tokens: " + std::to_string(ids.size()) +
                                              " tokens: the context holds " + std::to_string(impl.options.context));
  }
  try {
    TIDEMILL_TRY(prompts, impl.ClassOfPrompts().WithContext("score tokens"));
    TIDEMILL_TRY_VOID(impl.ReserveSparse(prompts.attention, ids.size()).WithContext("score tokens"));
    const auto state = impl.NewState(ids.size(), prompts, ids.size());
    Result<void> result;
    std::vector<RowKey> keys;
    const LanguageModel* segments = SegmentModelOf(impl.language_model());
    std::optional<MemoryRows> memory;
    if (segments != nullptr) memory.emplace(*segments);
    const size_t rows = EqualPart(ids.size(), impl.options.prefill_chunk);
    for (size_t first = 0; first < ids.size() && result.ok(); first += keys.size()) {
      const size_t segment = segments == nullptr ? 0 : SegmentFirst(*state);
      const size_t end = segments == nullptr ? ids.size() : SegmentEnd(*segments->settings.armt, ids.size(), segment);
      const auto part = ids.subspan(first, std::min(rows, end - first));
      const bool last = first + part.size() == ids.size(), ends = first + part.size() == end && !last;
      std::vector<StepSequence> step;
      TIDEMILL_TRY_VOID(
          state->Reserve(part.size() + (memory ? memory->CountAround(*state, ends) : 0)).WithContext("score tokens"));
      const StepSequence of_tokens = {.state = state.get(),
                                      .tokens = part,
                                      .rows = !last_only ? Wanted::kAll
                                              : last     ? Wanted::kLast
                                                         : Wanted::kNothing,
                                      .sparse_from = prompts.attention.SparseFrom(ids.size())};
      AddTokens(memory ? &*memory : nullptr, of_tokens, ends, &step);
      const bool complete = impl.executor->Run(
          step,
          [&](size_t, size_t token, std::span<float> logits) {
            if (result.ok()) result = sink(first + token, logits);
          },
          interrupt);
      if (!complete) return Error(ErrorCode::kCancelled, "score tokens: interrupted by the caller");
      keys.assign(part.begin(), part.end());
      state->Commit(keys);
      if (ends) TIDEMILL_TRY_VOID(CheckMemories(*state, segment).WithContext("score tokens"));
    }
    return result;
  } catch (const std::exception&) {  // std::bad_alloc
    return OutOfMemoryError("score tokens");
  }
}

}  // namespace tidemill
