// The one way in: requests are submitted, steps are made, events come out. Nothing blocks longer than one step.
//
//   auto engine = Engine::Create(model, {});
//   auto id = engine->Submit({.prompt = ids, .generation = {.max_new_tokens = 64}});
//   while (!engine->idle()) for (const Event& event : engine->Step()) std::cout << event.text;
#ifndef TIDEMILL_ENGINE_H_
#define TIDEMILL_ENGINE_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tidemill/generation.h"
#include "tidemill/model.h"
#include "tidemill/policies.h"
#include "tidemill/result.h"

namespace tidemill {

enum class KvType { kF32, kF16, kBF16, kQ8_0 };

// "f32", "f16", "bf16", "q8_0"; kInvalidArgument lists them.
Result<KvType> ParseKvType(std::string_view name);
std::string_view KvTypeName(KvType type);

inline constexpr size_t kMaxThreads = 256;

struct EngineOptions {
  size_t threads = 0;                  // 1 to kMaxThreads; 0: physical cores within affinity and cgroup quota
  size_t draft_threads = 0;            // of them, those that a drafter's steps use; 0: all; more are all, and a notice
  std::string isa = {};                // empty: the best the CPU has, but avx512-vnni on an Intel; else a name of --isa
  std::optional<KvType> kv_type = {};  // none: f16, or f32 for a model loaded with f32; q8_0: head_dim a multiple of 32
  size_t context = 0;  // positions of one sequence; 0: the model's own; more needs LoadOptions::rope_scaling
  KvPolicy kv_policy = KvPolicy::kBmc;
  size_t kv_increment = 0;   // rows; 0: chosen (tidemill/plan.h). At most the context
  LinearPolicy linear = {};  // of models with linear attention; of others only the default
  // Score reads prompts: only with AttentionPolicy::from it obeys this.
  AttentionPolicy attention = {};
  size_t max_batch = 32;  // sequences in one step
  // Rows of prompts in one step, fewer beside requests that decode; 0: chosen from the model's size, at most 512, or max_batch where that
  // is more
  size_t prefill_chunk = 0;
  // Bytes of all states together, with cached prefixes, drafters' states and keys (docs/prefix-cache.md); 0: half of the memory that is free
  // when the engine is made, or 512 MiB where the system does not say how much that is (Engine::notice). One more state, no more, is held
  // while one is preempted, saved, resumed or grows.
  uint64_t state_memory = 0;
  // Where the state of a request waits while older ones need its memory, in files without names; empty: it is computed again. What
  // cannot be written there is computed again, too.
  std::string spill_folder = {};
  // Whether prompts begin where earlier ones, and their answers, are kept: the same ids are computed once. Kept states take at most half of
  // state_memory, and leave before a request lacks memory.
  bool prefix_cache = true;
  // For requests whose draft tokens it makes (DraftOptions::source): a smaller model with the same vocabulary. Its states
  // count in state_memory and give way to requests' states; its context may be shorter. Where either is not enough, it makes no draft tokens.
  std::shared_ptr<const Model> draft_model = {};
  // In place of it: a draft head that was loaded for the engine's model. Where its context or the memory is full, it forgets and goes on.
  std::shared_ptr<const DraftHead> draft_head = {};
  // Where MakePlan keeps this machine's numbers (PlanOptions has the same two). They predict the initial number of draft tokens, and
  // the order of segments; the nearest built-in numbers do so where there are none, or another machine's. Read when the first such request comes.
  std::string profile_path = {}, cpu = {};
};

// Where draft tokens come from.
enum class DraftSource : uint8_t {
  kNgram,   // what followed the last tokens before, in prompt or answer
  kModel,   // EngineOptions::draft_model or draft_head: its most likely tokens
  kLayers,  // the model's own first layers, with its own head, in unused rows of the request's state
  kSparq,   // the model itself with sparse attention, in the same rows; the request's own attention is dense
};

// What shape draft tokens have. In a tree several stand at the same place, of which one may be accepted.
enum class DraftTreeKind : uint8_t {
  kChain,    // one after another
  kFixed,    // 25 nodes, five tokens deep, whatever the draft model says
  kDynamic,  // those that the draft model thinks likeliest, with all before them
  kOptimal,  // what would have been accepted most often in the text so far
};

// Draft tokens for the next tokens, which one step checks together: an accepted one saves a step, a rejected one costs its row. Answers are the same
// bits as without, also drawn ones: each token is drawn as if it had come alone.
struct DraftOptions {
  static constexpr size_t kMax = 64;

  size_t num_draft_tokens = 0;  // draft tokens in a step, at most kMax; 0: none are made
  // At most `num_draft_tokens`: between the two, as many as make most tokens a second, by what was accepted so far and what steps took.
  // Where it is 0, a draft model that would read the prompt for longer than accepted draft tokens can make up for in this answer is not used.
  size_t min_draft_tokens = 0;
  DraftSource source = DraftSource::kNgram;
  size_t ngram_min = 3;  // of kNgram: the last tokens that must have stood there before; at least 1
  // And at most: where more of them stood there, the place is the latest of so many; at least ngram_min. 0: as many as did.
  size_t ngram_max = 0;
  size_t layers = 0;  // of kLayers: how many, at least 1 and fewer than the model has
  // Of kSparq: r, k, local, rule, reallocate, columns, dense_layers.
  AttentionPolicy sparq = {.kind = AttentionKind::kSparq};
  // Of all but kNgram: draft tokens end before one that the drafter thinks less likely. 0 to 1.
  float min_probability = 0;
  // Of all but kNgram. Draft tokens are the tree's nodes then; special tokens are none of them.
  DraftTreeKind tree = DraftTreeKind::kChain;
};

struct Request {
  std::vector<int32_t> prompt = {};  // not empty, ids < vocab_size, not longer than the context
  GenerationOptions generation = {};
  DraftOptions draft = {};
  bool keep_state = false;  // the last event brings Event::saved; its step takes memory for two more states
  // While the prompt is read, events bring Event::saved, too: so many seconds apart or more, so that those of each request take at most a fiftieth of the time,
  // which what the caller does until the next step is part of. 0: none. A step without memory for one goes on without.
  double snapshot_seconds = 0;
  bool store = true;  // prompt and answer stay in the prefix cache
  // Only requests of one salt share a prefix. How long a prompt takes tells a caller what others of its salt have asked.
  std::string cache_salt = {};
  // Submit refuses max_new_tokens whose state has no room. Off: they are a limit that few answers reach, and it does not look.
  bool needs_room_for_all = true;
  // In place of EngineOptions::linear. Only requests of one class share a prefix.
  std::optional<LinearPolicy> linear = {};
  // In place of EngineOptions::attention. AttentionKind::kAuto chooses by prompt and max_new_tokens. Rows of such requests are shared up to where
  // they are sparse, of kH2o and kWindow none, which take no draft tokens either.
  std::optional<AttentionPolicy> attention = {};
};

using RequestId = uint64_t;

// What a request's state took and what its growth cost.
struct StateGrowth {
  uint64_t allocated_bytes = 0;  // held, at the end
  uint64_t growths = 0;          // buffers made, or enlarged
  uint64_t bytes_copied = 0;     // from one buffer to the next
  bool fell_back = false;        // `reserve` grew geometrically, for want of addresses
  // Sparse attention read keys from rows, for want of memory: more slowly, the same answer.
  bool gave_up_columns = false;
};

// What became of a request's linear attention (docs/linear-attention.md): of all layers together.
struct LinearStats {
  LinearForm form = LinearForm::kRecurrent;  // any but kAuto
  size_t start = 1, buffer = 1;              // tokens
  bool bfloat16 = false;                     // what is kept until then
  uint64_t boundaries = 0;                   // that later tokens have passed
  uint64_t state_writes = 0;                 // at most one for each layer and step
  uint64_t state_bytes = 0;                  // of states, at the end; none before `start` tokens
};

// What became of a request's sparse attention (docs/sparse-attention.md).
struct SparseStats {
  // Rows are those of generated tokens, or from AttentionPolicy::from on; those of draft tokens and what was computed again count, too.
  struct Counts {
    uint64_t rows = 0;
    uint64_t short_rows = 0;  // of them, those that saw no more than k positions, and read all
    // Of the other rows, mean over heads: estimate of the attention that fell on what was read.
    double alpha_estimate = 0;
    double dense_share = 0;    // of their KV heads: those that read all, since the estimate was not above the floor
    uint64_t bytes = 0;        // of keys and values that all rows read, in whole cache lines
    uint64_t dense_bytes = 0;  // that dense attention would have read
    uint64_t audits = 0;       // rows that were compared with dense attention, of which the next three are means
    double kept_mass = 0;      // attention on what was read
    double error = 0;          // |sparse - dense| / |dense|
    double agreement = 0;      // share of what was read that exact scores would have chosen
  };
  struct Layer {
    size_t layer = 0;  // of the model
    Counts counts = {};
  };

  AttentionKind kind = AttentionKind::kSparq;  // any but kDense and kAuto
  size_t r = 0, k = 0, local = 0;              // as the first such layer has them; r of kSparq
  SparqRule rule = SparqRule::kPaper;
  bool reallocate = true;
  bool columns = false;            // keys stood in columns
  Counts all = {};                 // of all layers
  std::vector<Layer> layers = {};  // that are sparse; empty for want of memory
};

// Pages that the system gave to a process at their first touch; major: that it had to read.
struct PageFaults {
  uint64_t minor = 0;
  uint64_t major = 0;
};

// How draft tokens fared in the steps that could have had some.
struct DraftStats {
  static constexpr size_t kPositions = 8, kStepCounts = 10;

  std::array<uint32_t, kPositions> drafted =
      {};  // steps that checked a first, second, ... draft token; of a tree: by depth
  std::array<uint32_t, kPositions> accepted =
      {};  // of them, those in which it was accepted, or one of those at that depth
  std::array<uint32_t, kStepCounts> steps_by_draft_tokens =
      {};                       // steps with 0, 1, ... draft tokens; the last one: with that many or more
  uint32_t cut = 0;             // steps whose last draft tokens had no free rows, and were left out
  uint32_t grown = 0;           // steps for whose draft tokens the state grew before the text needed it
  uint32_t bonuses = 0;         // tokens after accepted draft tokens: one of each step that had draft tokens
  double draft_prefill_ms = 0;  // of a draft model, until draft tokens were checked: it read the text, and made those
  uint32_t later_siblings =
      0;  // accepted draft tokens that were not the first at their place: a chain would not have had them

  double AcceptanceRate(size_t position) const {
    return drafted[position] == 0 ? 0
                                  : static_cast<double>(accepted[position]) / static_cast<double>(drafted[position]);
  }
};

struct RequestStats {
  size_t prompt_tokens = 0;  // of one that was resumed: all tokens before
  size_t cached_tokens = 0;  // of them: not computed before the first step; from the prefix cache, or a saved state
  size_t generated_tokens = 0;
  size_t context = 0;          // of tokens that a state has: the engine's, or what the prompt's last segment leaves
  double prefill_ms = 0;       // from the first step to the first token
  size_t drafted_tokens = 0;   // draft tokens that were checked
  size_t accepted_tokens = 0;  // of them, those that were accepted
  DraftStats drafts;
  // Why draft tokens that were asked for were not made, for a while or any more: static text, or nothing.
  std::string_view draft_trouble = {};
  size_t preemptions = 0;    // times it gave its memory to older requests
  double ttft_ms = 0;        // from Submit
  double decode_ms = 0;      // from the first token to the last
  uint64_t state_bytes = 0;  // committed, at the end
  StateGrowth growth;
  std::optional<LinearStats> linear;     // none: the model has no linear attention
  std::optional<SparseStats> attention;  // none: it was dense
  // What decided where a policy chooses by length: "--attention auto: fewer than 4096 positions". Static text; empty: the policy alone.
  std::string_view attention_reason = {};
  // As Engine::numeric_class, which it is without Request::linear and attention; lives as long as the engine.
  std::string_view numeric_class = {};
  PageFaults faults;  // of the whole process, from Submit to the end
};

// What happened to one request in one step. Tokens come one event each, in their order. Text may lag behind them (half a character, the
// beginning of a stop text); what was held back comes with the last event. Where that is kLength, kRepetition or kCancelled and brings
// `saved`, it comes with the events of the request that goes on from it.
struct Event {
  RequestId request = 0;
  std::optional<int32_t> token;  // none in an event that only ends the request
  std::string text;              // new text: valid UTF-8
  float logprob = 0;             // of `token`, where logprobs were asked for
  std::vector<TokenLogprob> top_logprobs;
  std::optional<FinishReason> finish;  // set in the last event of a request that went well
  std::optional<Error> error;          // or of one that did not
  RequestStats stats;                  // complete in the last event
  // What SavedRequest::Read takes. In the last event of a request with keep_state that went well, where null is no memory for it; in an event
  // that brings nothing else, what has been read of a prompt (Request::snapshot_seconds).
  std::shared_ptr<const std::vector<std::byte>> saved;

  bool last() const { return finish.has_value() || error.has_value(); }
};

// A request that ended, or was saved in its prompt, and can go on: its tokens, what it remembers of them, and its options. Any engine of the same model,
// vocabulary and numeric class goes on from it with the ids, texts and log-probabilities that it would have had: with other threads,
// another growth policy, another level of the class, with other batch mates.
class SavedRequest {
 public:
  struct Impl;
  explicit SavedRequest(std::unique_ptr<const Impl> impl);  // Open and Read make it
  SavedRequest(SavedRequest&&) noexcept;
  SavedRequest& operator=(SavedRequest&&) noexcept;
  ~SavedRequest();

  // A file with the bytes of Event::saved, mapped while this lives. kNotFound, kIoError; as Read's.
  static Result<SavedRequest> Open(const std::string& path);
  // kCorruptFile: other bytes than were written; kFailedPrecondition: another version's; kOutOfMemory. Borrows `bytes`.
  static Result<SavedRequest> Read(std::span<const std::byte> bytes);

  std::span<const int32_t> ids() const;  // prompt and answer
  size_t prompt_tokens() const;          // of them, the prompt
  // Whether it was saved before its first token: its prompt is still to be read, from where its state ends.
  bool is_in_prompt() const { return ids().size() == prompt_tokens(); }
  const GenerationOptions& generation() const;

  const Impl& impl() const { return *impl_; }  // for engines

 private:
  std::unique_ptr<const Impl> impl_;
};

struct ResumeOptions {
  // In place of the saved ones; none: those. Limits count the whole answer, what was saved of it included.
  std::optional<GenerationOptions> generation = {};
  // Put behind all saved tokens, which are prompt then, and a new answer begins: as if all of it had been submitted.
  std::vector<int32_t> more_prompt = {};
  DraftOptions draft = {};
  bool keep_state = false;
  double snapshot_seconds = 0;              // as Request's
  bool needs_room_for_all = true;           // the same
  std::optional<LinearPolicy> linear = {};  // the same; what it was saved with
  // The same. kAuto is what it was saved with, dense or not. With more_prompt what was sparse is computed again.
  std::optional<AttentionPolicy> attention = {};
};

// Of states that requests left (EngineOptions::prefix_cache).
struct PrefixCacheStats {
  uint64_t states = 0;
  uint64_t bytes = 0;      // of state_memory
  uint64_t hits = 0;       // requests that began with rows of an earlier one
  uint64_t evictions = 0;  // states that went for lack of room
};

class Engine {
 public:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);  // Create makes it
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // kInvalidArgument for options out of range, for a draft model of another vocabulary and a draft head of another model; kUnsupported,
  // kOutOfMemory.
  static Result<std::unique_ptr<Engine>> Create(std::shared_ptr<const Model> model, const EngineOptions& options);

  // kInvalidArgument: empty prompt, id out of range, options out of range, no such drafter. kContextFull: the prompt does not fit, with both
  // numbers. kOutOfMemory: the state of the prompt and of max_new_tokens, where that is given and needs room, is more than
  // state_memory. Takes no memory for state yet.
  // Only tokens of the model's tokenizer are generated, also where the model has more rows than that; a prompt may name any row.
  Result<RequestId> Submit(Request request);

  // Goes on from a saved request, of which nothing is needed any more when this returns. Without more_prompt the answer goes on:
  // kInvalidArgument where it has an end (all its tokens, an end-of-sequence token without ignore_eos, a repetition with
  // stop_at_repetition, a stop text that is still one of `stop`). kFailedPrecondition: another model, vocabulary or numeric class;
  // kCorruptFile: saved for something else than it says; kContextFull, kOutOfMemory: as Submit's.
  // Takes the memory of the saved state where there is room; else, or if others need it before the request starts, it is computed again.
  Result<RequestId> Resume(const SavedRequest& saved, ResumeOptions options);

  // One step of the model for the oldest requests in flight, at most max_batch and as many as have room in state_memory: a part of a
  // prompt, a token each, or both. Of a model that reads segments it may be whole segments of prompts, for some two seconds. The events stay valid until the next call. A request that fails gets an event with its error; the
  // others go on. Where room is short, the youngest of those that run gives its memory to the older ones and waits: the oldest always
  // goes on, and no answer changes.
  std::span<const Event> Step();

  // From any thread, also while Step runs: the request ends with FinishReason::kCancelled at the next step, and a step that
  // is in a long prompt stops early, but never two steps in a row. Unknown or finished requests are ignored.
  void Cancel(RequestId request);

  // Tokens of a request's prompt that have been read; none: it is not in flight. Not while Step runs.
  std::optional<size_t> prompt_read(RequestId request) const;

  bool idle() const;  // no request in flight
  size_t threads() const;
  std::string isa() const;
  size_t context() const;
  KvPolicy kv_policy() const;
  uint64_t state_memory() const;
  // What a program should tell its user, a line; usually empty: a default that was chosen for want of knowledge, threads that are not there.
  const std::string& notice() const;
  PrefixCacheStats prefix_cache() const;
  void ClearPrefixCache();
  // Of requests without Request::linear and attention, as long as the context; choices that change bits: "fma+bf16/kv-f16",
  // "baseline/f32/kv-f32/rope-yarn=4/sparq-r16-k128-l32".
  std::string numeric_class() const;

  // Logits of every position of `ids` (or of the last one), in order, in chunks: sink(position, logits [vocab]). Only when
  // idle (else kFailedPrecondition). An error of the sink ends it. kNumericalError is left to the caller to look for.
  // kCancelled soon after `interrupt`, which may be null and which any thread or a signal handler may set, became true.
  using LogitSink = std::function<Result<void>(size_t position, std::span<const float> logits)>;
  Result<void> Score(std::span<const int32_t> ids, bool last_only, const LogitSink& sink,
                     const std::atomic<bool>* interrupt = nullptr);

  Impl& impl() { return *impl_; }  // for measurements

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace tidemill

#endif  // TIDEMILL_ENGINE_H_
