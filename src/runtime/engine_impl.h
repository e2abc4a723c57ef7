// The public Engine's implementation: threads, executor and the requests in flight.
#ifndef TIDEMILL_RUNTIME_ENGINE_IMPL_H_
#define TIDEMILL_RUNTIME_ENGINE_IMPL_H_

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/page_committer.h"
#include "base/thread_pool.h"
#include "decoding/drafter.h"
#include "engine/segments.h"
#include "engine/step_executor.h"
#include "engine/wavefront.h"
#include "kernels/delta_rule.h"
#include "kernels/execution_context.h"
#include "planner/draft_costs.h"
#include "planner/machine_profile.h"
#include "planner/wave_order.h"
#include "runtime/active_request.h"
#include "runtime/eagle_drafter.h"
#include "runtime/model_drafter.h"
#include "runtime/model_impl.h"
#include "runtime/scheduler.h"
#include "runtime/sparse_class.h"
#include "runtime/state_memory.h"
#include "tidemill/engine.h"

namespace tidemill {

// Whole segments, from a state's end on, of a text of so many tokens.
struct SegmentText {
  SequenceState* state = nullptr;
  std::span<const int32_t> tokens = {};
  size_t text = 0;
  size_t read = 0;  // of the tokens: set by RunSegments
};

// How the state stores what the option names.
DType DTypeOf(KvType type);

// The growth increment if the options do not say; they have context and kv_type.
size_t ChosenKvIncrement(const LanguageModel& model, const EngineOptions& options);

// The default of EngineOptions::state_memory: half of the free memory. If that is unknown, half of kUnknownMemory, with a notice.
inline constexpr uint64_t kUnknownMemory = uint64_t{1} << 30;
struct DefaultStateMemory {
  uint64_t bytes = 0;  // at least 1
  std::string notice = {};
};
DefaultStateMemory ChooseStateMemory(std::optional<uint64_t> available);

// How whole segments run: an order that the planner chooses when the first ones do, and again where there are many more of them.
struct EngineWaves {
  std::unique_ptr<Wave> wave;           // null: not made yet
  WaveForm form;                        // its
  size_t ask_from = 0;                  // segments of a wave from which the planner is asked again
  std::optional<WaveForm> given = {};   // of tests: in place of the planner's choice
  std::optional<uint64_t> memory = {};  // of tests: bytes of buffers at most
  std::function<void(const WavePiece& piece, size_t layer)> passed = {};  // of tests: WaveHooks::passed
  double seconds = kWaveSeconds;        // in which segments of a wave begin; tests have others
  std::vector<SegmentText> texts = {};  // of the wave at hand
  bool was_interrupted = false;         // whether it was
  std::optional<MemoryRows> memory_rows;
};

struct Engine::Impl {
  std::shared_ptr<const Model> model;
  EngineOptions options;  // with every default filled in
  Isa isa = Isa::kBaseline;
  bool kv_increment_given = false;  // else the planner chose it
  // What changes bits of a request.
  struct RequestClass {
    DeltaClass linear = {};
    AttentionClass attention = {};
    std::string_view name = {};  // of class_names
  };
  std::string common_class;  // of all requests' classes, whose names begin with it
  RequestClass own_class;    // of requests that name none
  std::set<std::string> class_names;
  std::optional<uint64_t> vocabulary;  // its hash, from the first saved or resumed request on
  std::string notice;
  std::unique_ptr<ThreadPool> threads;
  std::optional<ExecutionContext> ctx;
  std::unique_ptr<StepExecutor> executor;
  EngineWaves waves;                        // of a model that reads segments
  std::unique_ptr<DraftModel> draft_model;  // of options.draft_model; may be null
  std::unique_ptr<EagleHead> draft_head;    // of options.draft_head; may be null
  std::optional<MachineProfile> profile;    // from the first request that drafts on

  std::unique_ptr<PageCommitter> pages;  // of `reserve`; outlives all states
  std::optional<StateMemory> memory;     // of options.state_memory; outlives all states but cached ones
  RequestId next_id = 1;
  std::vector<std::unique_ptr<ActiveRequest>> requests;  // oldest first; guarded by mutex against Cancel
  std::mutex mutex;
  std::atomic<bool> interrupt{false};  // a step in progress should stop early
  bool was_abandoned = false;          // the last step; the next one is completed whoever is cancelled
  std::vector<Event> events;           // of the last step
  std::vector<Event> more_events;      // empty; one of both has capacity for all events of a step
  // The drafter of a request whose state is `state`. Tests have others.
  std::function<std::unique_ptr<Drafter>(const Request&, size_t expected, SequenceState& state)> make_drafter =
      [this](const Request& request, size_t expected, SequenceState& state) {
        return NewDrafter(request.draft, expected, &state);
      };
  // Seconds of a step of so many rows; empty: by the clock. Tests have others.
  std::function<double(size_t rows)> step_seconds = {};
  double snapshot_share = SnapshotTimer::kShare;  // of the time; tests have others
  const RequestFaults* faults = nullptr;          // of tests: injected into requests submitted from now on
  std::optional<Scheduler> scheduler;

  const LanguageModel& language_model() const { return *model->impl().language_model; }
  // `expected`: tokens it will have; `prompt_tokens`: of them, those of the prompt. 0: unknown.
  std::unique_ptr<SequenceState> NewState(size_t expected = 0) { return NewState(expected, own_class); }
  std::unique_ptr<SequenceState> NewState(size_t expected, const RequestClass& request_class, size_t prompt_tokens = 0);
  // Of policies that stand in place of the engine's, where there are some. As ResolveLinearPolicy and ResolveAttentionPolicy. `length`: positions
  // of the request; 0: the context.
  Result<RequestClass> ClassOf(const std::optional<LinearPolicy>& linear,
                               const std::optional<AttentionPolicy>& attention = {}, size_t length = 0);
  // Positions that a request may have: behind the beginning of its prompt's last segment no more than the model has.
  size_t ContextOf(size_t prompt_tokens) const;
  // Of tokens that are no request's.
  Result<RequestClass> ClassOfPrompts();
  // Scratch for sparse rows of a sequence of so many positions. kOutOfMemory, or std::bad_alloc.
  Result<void> ReserveSparse(const AttentionClass& attention, size_t positions);
  KvGrowth GrowthOf(size_t expected) const;

  // Parts of Submit. These throw std::bad_alloc, and then nothing has changed but perhaps next_id.
  // `answered`: how many of the prompt's last tokens max_new_tokens counts.
  Result<std::unique_ptr<ActiveRequest>> NewRequest(Request request, size_t answered = 0);
  RequestId Admit(std::unique_ptr<ActiveRequest> request);
  // engine_drafts.cc: draft models' buffers, a check of a request's options, and its drafter.
  Result<void> PrepareDrafts();
  Result<void> CheckDraft(const DraftOptions& draft) const;
  static Result<void> CheckDraft(const DraftOptions& draft, const AttentionClass& attention);
  // What the layers of a request's state are read with: its own attention, or that of its draft tokens beside dense attention. As
  // ResolveAttentionPolicy.
  Result<AttentionClass> AttentionOfState(const DraftOptions& draft, const AttentionClass& own, size_t length) const;
  // expected: as NewState. state: the request's, which outlives the drafter; null where only a draft model or a head drafts.
  std::unique_ptr<Drafter> NewDrafter(const DraftOptions& draft, size_t expected, SequenceState* state);
  // What its draft tokens are predicted to cost, beside the requests that there are.
  DraftCosts PredictedDraftCosts(const Request& request, Drafter& drafter);
  // Whether an answer of at most so many tokens can make up for the draft prefill.
  bool DraftPrefillMayPay(const Request& request, uint64_t numeric_class, Drafter& drafter, size_t answer);
  std::unique_ptr<SequenceState> NewDraftState(const LanguageModel& drafting, size_t expected, size_t longest);
  // Tells the committed step's requests its time and tokens, from which they choose their next number of draft tokens.
  void TimeDrafts(double seconds, size_t tokens);
  // How the request will draft, with the present requests as batch mates. Fills `profile`.
  DraftSetting SettingBesideOthers(const Request& request, Drafter& drafter);
  // saved_request.cc: fills Event::saved of those that are done.
  void SaveFinished();
  // The same file, behind a step: an event for each request that reads a prompt and is to be saved. EndSnapshots: what became of those events.
  void SaveSnapshots();
  void EndSnapshots();

  // engine_waves.cc: whole segments of requests. False: nothing has changed, since it was interrupted, or other waves or steps are to run in its
  // place.
  bool RunWave(std::span<const Scheduler::WavePart> wave);
  // Predicted orders of prompts with so many whole segments. May throw std::bad_alloc.
  WaveChoice PredictWaves(const MachineProfile& machine, size_t segments) const;
  // Makes `waves` ready for so many. False: steps are better, or there is no memory.
  bool PrepareWaves(size_t segments);
  // Of texts whose states have reserved them; `waves` is ready. After so many seconds no further segment begins, but the first does. False:
  // interrupted. Throws std::bad_alloc.
  bool RunSegments(std::span<SegmentText> texts, const std::atomic<bool>* stops, double seconds);

  void EndCancelled();
  void DropFinished();
};

}  // namespace tidemill

#endif  // TIDEMILL_RUNTIME_ENGINE_IMPL_H_
