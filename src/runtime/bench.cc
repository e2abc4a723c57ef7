#include <algorithm>
#include <chrono>
#include <limits>
#include <new>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/checked_math.h"
#include "engine/segments.h"
#include "kernels/matmul.h"
#include "kernels/sparse_attention.h"
#include "runtime/engine_impl.h"
#include "runtime/process_usage.h"
#include "tidemill/measure.h"

namespace tidemill {

// Every sequence of a test: its state and its random tokens.
class BenchSequences {
 public:
  BenchSequences(Engine::Impl& impl, Engine::Impl::RequestClass request_class, uint64_t seed)
      : impl_(impl), class_(std::move(request_class)), random_(seed) {
    if (impl.language_model().segments.present()) memory_.emplace(impl.language_model());
  }

  const Engine::Impl::RequestClass& request_class() const { return class_; }

  // One more of `fill` positions: a copy of one that was filled with so many, or a fork that shares its rows, where there is one.
  Result<void> Add(size_t fill, bool shares = false) {
    const auto same = std::find_if(states_.begin(), states_.end(), [&](const auto& s) { return s->length() == fill; });
    const size_t from = static_cast<size_t>(same - states_.begin());
    const bool is_there = same != states_.end();
    TIDEMILL_TRY_VOID(impl_.ReserveSparse(class_.attention, impl_.options.context));
    states_.push_back(impl_.NewState(0, class_));
    if (!is_there) return Feed(*states_.back(), fill);
    if (shares) return states_[from]->ForkTo(*states_.back(), fill);
    TIDEMILL_TRY(filled, states_[from]->Checkpoint());
    return states_.back()->Restore(filled);
  }

  // Of the segment at hand, which a text of so many tokens continues. A segment that is full has a token to end behind.
  size_t EndOfSegment(SequenceState& state, size_t text) {
    const size_t end = SegmentEnd(*impl_.language_model().settings.armt, text, SegmentFirst(state));
    if (state.length() == end) TIDEMILL_CHECK(state.Rollback(end - 1).ok());
    return end;
  }

  // Runs `count` random tokens of one sequence as a prompt: whole segments as an engine runs them, others in chunks; logits of the last one only.
  Result<void> Feed(SequenceState& state, size_t count) {
    const size_t rows = EqualPart(count, impl_.options.prefill_chunk), text = state.length() + count;
    std::vector<int32_t> ids(rows);
    while (state.length() < text) {
      if (memory_) {
        TIDEMILL_TRY(ran, FeedWave(state, text));
        if (ran) continue;
      }
      const size_t end = memory_ ? EndOfSegment(state, text) : text;
      const std::span<int32_t> part = std::span(ids).first(std::min(rows, end - state.length()));
      Draw(part);
      const bool last = state.length() + part.size() == text, ends = !last && state.length() + part.size() == end;
      TIDEMILL_TRY_VOID(state.Reserve(part.size() + (memory_ ? memory_->CountAround(state, ends) : 0)));
      const StepSequence tokens = {.state = &state,
                                   .tokens = part,
                                   .rows = last ? Wanted::kLast : Wanted::kNothing,
                                   .sparse_from = class_.attention.SparseFrom(SIZE_MAX)};
      step_.clear();
      AddTokens(memory_ ? &*memory_ : nullptr, tokens, ends, &step_);
      Run(step_);
      keys_.assign(part.begin(), part.end());
      state.Commit(keys_);
    }
    return {};
  }

  // Whole segments of a text of so many tokens; false: steps are to run.
  Result<bool> FeedWave(SequenceState& state, size_t text) {
    const ArmtSettings& armt = *impl_.language_model().settings.armt;
    const bool all_threads = impl_.threads->num_threads() == impl_.threads->num_all_threads();
    if (state.length() != SegmentFirst(state) || !all_threads) return false;  // teams have threads of their own
    if (impl_.scheduler->wave_tokens() == 0) return false;
    size_t end = state.length(), segments = 0;
    for (size_t next = SegmentEnd(armt, text, end); next < text && next - state.length() <= most_tokens_; ++segments)
      next = SegmentEnd(armt, text, end = next);
    if (segments < 2) return false;
    if (!impl_.PrepareWaves(segments)) {
      most_tokens_ = 0;  // it is not asked again
      return false;
    }
    if (const size_t most = impl_.scheduler->wave_tokens(); end - state.length() > most) {
      most_tokens_ = most;
      return FeedWave(state, text);
    }
    std::vector<int32_t> ids(end - state.length());
    Draw(ids);
    TIDEMILL_TRY_VOID(state.Reserve(armt.segment_size + memory_->count()));
    TIDEMILL_TRY_VOID(state.ReserveKeys(ids.size()));
    SegmentText whole{.state = &state, .tokens = ids, .text = text};
    impl_.RunSegments({&whole, 1}, nullptr, std::numeric_limits<double>::infinity());
    keys_.assign(ids.begin(), ids.end());
    state.Commit(keys_);
    return true;
  }

  // `steps` steps of one token for every sequence, as generated ones, with logits for all.
  Result<void> Decode(size_t steps) {
    std::vector<int32_t> ids(states_.size());
    std::vector<StepSequence> step;
    step.reserve(states_.size());
    for (size_t s = 0; s < steps; ++s) {
      Draw(ids);
      step.clear();
      for (size_t i = 0; i < states_.size(); ++i) {
        const size_t in_front = memory_ ? MemoryRows::CountInFront(*states_[i]) : 0;
        TIDEMILL_TRY_VOID(states_[i]->Reserve(1 + in_front));
        const StepSequence token = {.state = states_[i].get(),
                                    .tokens = std::span(ids).subspan(i, 1),
                                    .rows = Wanted::kLast,
                                    .sparse_from = class_.attention.SparseFrom(0)};
        if (in_front == 0) {
          step.push_back(token);
        } else {  // of a text that begins here: a step of its own has room for them
          step_.clear();
          AddTokens(&*memory_, token, false, &step_);
          Run(step_);
        }
      }
      if (!step.empty()) Run(step);
      for (size_t i = 0; i < states_.size(); ++i) {
        keys_.assign(1, static_cast<RowKey>(ids[i]));
        states_[i]->Commit(keys_);
      }
    }
    return {};
  }

  // What windows no longer have is filled again.
  Result<void> RollbackTo(std::span<const size_t> lengths) {
    for (size_t i = 0; i < states_.size(); ++i) {
      if (lengths[i] >= states_[i]->earliest_rollback()) {
        TIDEMILL_TRY_VOID(states_[i]->Rollback(lengths[i]));
      } else {
        states_[i]->Clear();
        TIDEMILL_TRY_VOID(Feed(*states_[i], lengths[i]));
      }
    }
    return {};
  }

  SequenceState& front() { return *states_.front(); }
  double state_bytes() const {
    double bytes = 0;
    for (const auto& state : states_) bytes += static_cast<double>(state->bytes().read_per_token);
    return bytes;
  }

 private:
  void Draw(std::span<int32_t> ids) {
    for (int32_t& id : ids) id = static_cast<int32_t>(random_() % impl_.language_model().settings.vocab_size);
  }
  void Run(std::span<const StepSequence> step) {
    impl_.executor->Run(
        step, [this](size_t, size_t, std::span<float> logits) { sink_ = logits[0]; }, nullptr);
  }

  Engine::Impl& impl_;
  Engine::Impl::RequestClass class_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<SequenceState>> states_;
  std::optional<MemoryRows> memory_;     // of a model that reads segments
  size_t most_tokens_ = kMaxWaveTokens;  // of a wave
  std::vector<StepSequence> step_;
  std::vector<RowKey> keys_;
  volatile float sink_ = 0;
};

struct BenchCaches::Impl {
  const Engine* engine = nullptr;
  BenchTest test;
  std::optional<BenchSequences> sequences;  // filled, perhaps with a few more tokens than the test fills
};

BenchCaches::BenchCaches() : impl_(std::make_unique<Impl>()) {}
BenchCaches::~BenchCaches() = default;
void BenchCaches::Drop() { impl_->sequences.reset(); }

namespace {

// Whether `test` can go on from what `filled` left.
bool GoesOn(const BenchTest& filled, const BenchTest& test) {
  return filled.test == test.test && filled.prompt_tokens == test.prompt_tokens && filled.depth <= test.depth &&
         filled.prompts == test.prompts && filled.shares == test.shares && filled.seed == test.seed;
}

// Fewer threads of a pool while it lives.
class ScopedThreads {
 public:
  ScopedThreads(ThreadPool& pool, size_t count) : pool_(pool), before_(pool.num_threads()) {
    if (count != 0) pool.Use(count);
  }
  ~ScopedThreads() { pool_.Use(before_); }
  ScopedThreads(const ScopedThreads&) = delete;
  ScopedThreads& operator=(const ScopedThreads&) = delete;

 private:
  ThreadPool& pool_;
  size_t before_;
};

template <typename Work>
Result<BenchSample> TakeSample(size_t tokens, const Work& work) {
  const double cpu = ProcessCpuSeconds(), busy = MachineBusySeconds();
  const auto start = std::chrono::steady_clock::now();
  TIDEMILL_TRY_VOID(work());
  BenchSample sample;
  sample.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const double own = ProcessCpuSeconds() - cpu, all = MachineBusySeconds() - busy;
  sample.tokens_per_s = static_cast<double>(tokens) / sample.seconds;
  sample.tokens_per_cpu_s = own > 0 ? static_cast<double>(tokens) / own : 0;
  // Clocks tick coarsely: a sample shorter than a tick may seem to have more cores than there are.
  const double cores = std::max(1U, std::thread::hardware_concurrency());
  sample.others_cores = std::clamp((all - own) / sample.seconds, 0.0, cores);
  return sample;
}

// Bytes and operations of all matrix products for `rows` rows, of which `head_rows` go through the head, and for memory rows. Both have a
// result of the last layer.
Cost WeightCost(const LanguageModel& model, size_t rows, size_t memory_rows, size_t head_rows, Isa isa) {
  Cost cost;
  for (const DecoderLayer& layer : model.layers) {
    const size_t outputs = &layer == &model.layers.back() ? head_rows + memory_rows : SIZE_MAX;
    cost += layer.ProductCost(rows + memory_rows, isa, memory_rows, outputs);
  }
  return cost += MatMulCost(model.head_or_tied(), head_rows, isa);
}

// Segments of a text that end before it does.
size_t WholeSegments(const LanguageModel& model, size_t text) {
  return model.segments.present() && text != 0 ? (text - 1) / model.segments.shape.segment_tokens : 0;
}

// Of those tokens, what the last one of a text of so many sees.
size_t TailOf(const LanguageModel& model, size_t text) {
  return text - WholeSegments(model, text) * model.segments.shape.segment_tokens;
}

Cost AttentionCostOf(const LanguageModel& model, DType kv, size_t len, size_t first) {
  Cost all;
  for (const DecoderLayer& layer : model.layers) {
    for (const AttentionShape& shape : layer.Work(kv).attention) {
      // A row sees at most its window; the rows in front of it are read once for all.
      const size_t window = shape.window == 0 ? first + len : shape.window;
      size_t seen = 0;
      for (size_t i = 0; i < len; ++i) seen += std::min(first + i + 1, window);
      all += AttentionCost(shape, len, seen, std::min(first + len, window + len - 1));
    }
  }
  return all;
}

// Of a prompt. What its segments' rows read of the segments before is left out: their matrices are small.
Cost PromptAttentionCost(const LanguageModel& model, DType kv, size_t tokens) {
  Cost all = AttentionCostOf(model, kv, model.segments.shape.RowsOf(TailOf(model, tokens)), 0);
  const size_t whole = WholeSegments(model, tokens);
  if (whole == 0) return all;
  const SegmentShape& shape = model.segments.shape;
  const Cost of_one = AttentionCostOf(model, kv, shape.whole_rows(), 0);
  for (size_t i = 0; i < whole; ++i) all += of_one;
  return all;
}

// Of one generated token behind `first` positions.
Cost TokenAttentionCost(const LanguageModel& model, const AttentionClass& attention, DType kv, size_t first) {
  if (!attention.is_sparse()) return AttentionCostOf(model, kv, 1, first);
  Cost all;
  const auto shapes = model.attention_shapes(kv);
  for (size_t i = 0; i < shapes.size(); ++i) {
    if (!shapes[i]) continue;
    const AttentionShape& shape = *shapes[i];
    const size_t seen = shape.window == 0 ? first + 1 : std::min(first + 1, shape.window);
    const std::optional<SparseLayer>& sparse = attention.layers[i];
    const size_t filled = first / kSumRows * kSumRows, unseen = first + 1 - seen;
    all += sparse ? SparseCost(shape, sparse->form, seen, filled - std::min(filled, unseen), sparse->columns)
                  : AttentionCost(shape, 1, seen, seen);
  }
  return all;
}

StepWork WorkOf(const Cost& cost) {
  return {.bytes = cost.bytes, .int8_ops = cost.int8_ops, .bfloat16_ops = cost.bfloat16_ops, .flops = cost.flops};
}

// `kept`: where the filled sequences are, if they are, and where they are left. Of a decode test they hold `filled` positions.
Result<BenchResult> BenchPrefill(Engine::Impl& impl, const Engine::Impl::RequestClass& request_class,
                                 const BenchTest& test, std::optional<BenchSequences>& kept) {
  BenchResult result;
  result.prompt_tokens = test.prompt_tokens;
  result.kept = kept.has_value();
  BenchSequences& sequences = kept ? *kept : kept.emplace(impl, request_class, test.seed);
  if (!result.kept) TIDEMILL_TRY_VOID(sequences.Add(test.prompt_tokens));  // warm-up
  const ScopedThreads threads(*impl.threads, test.threads);
  const size_t empty[] = {0};
  for (size_t i = 0; i < test.repeat; ++i) {
    TIDEMILL_TRY_VOID(sequences.RollbackTo(empty));
    TIDEMILL_TRY(sample,
                 TakeSample(test.prompt_tokens, [&] { return sequences.Feed(sequences.front(), test.prompt_tokens); }));
    result.samples.push_back(sample);
  }
  const LanguageModel& model = impl.language_model();
  const size_t whole = WholeSegments(model, test.prompt_tokens);
  result.products = WorkOf(WeightCost(model, test.prompt_tokens + (whole + 1) * model.segments.shape.front_rows,
                                      whole * model.segments.memory_rows(), 1, impl.isa));
  result.weight_bytes_per_token = result.products.bytes / static_cast<double>(test.prompt_tokens);
  const Cost attention = PromptAttentionCost(model, DTypeOf(*impl.options.kv_type), test.prompt_tokens);
  result.state_bytes_per_token = attention.bytes / static_cast<double>(test.prompt_tokens);
  result.attention = WorkOf(attention);
  return result;
}

Result<BenchResult> BenchDecode(Engine::Impl& impl, const Engine::Impl::RequestClass& request_class,
                                const BenchTest& test, size_t filled, std::optional<BenchSequences>& kept) {
  BenchResult result;
  const std::vector<size_t> depths = test.test == "batch" ? test.prompts : std::vector<size_t>{test.depth};
  result.batch = depths.size();
  result.depth = *std::max_element(depths.begin(), depths.end());
  result.gen_tokens = test.gen_tokens;
  result.kept = kept.has_value();
  BenchSequences& sequences = kept ? *kept : kept.emplace(impl, request_class, test.seed);
  if (!result.kept) {
    for (const size_t depth : depths) TIDEMILL_TRY_VOID(sequences.Add(depth, test.shares));
  } else if (test.test == "batch") {
    TIDEMILL_TRY_VOID(sequences.RollbackTo(depths));
  } else {
    TIDEMILL_TRY_VOID(sequences.RollbackTo({&filled, 1}));
    TIDEMILL_TRY_VOID(sequences.Feed(sequences.front(), test.depth - filled));
  }
  const ScopedThreads threads(*impl.threads, test.threads);
  TIDEMILL_TRY_VOID(sequences.Decode(std::min<size_t>(result.kept ? 2 : 8, test.gen_tokens)));  // warm-up
  for (size_t i = 0; i < test.repeat; ++i) {
    TIDEMILL_TRY_VOID(sequences.RollbackTo(depths));
    TIDEMILL_TRY(sample,
                 TakeSample(test.gen_tokens * depths.size(), [&] { return sequences.Decode(test.gen_tokens); }));
    result.samples.push_back(sample);
  }
  const LanguageModel& model = impl.language_model();
  const Cost cost = WeightCost(model, depths.size(), 0, depths.size(), impl.isa);
  result.weight_bytes_per_token = cost.bytes / static_cast<double>(depths.size());
  result.state_bytes_per_token = sequences.state_bytes() / static_cast<double>(depths.size());
  const size_t front = model.segments.shape.front_rows;
  for (const size_t depth : depths)
    result.attention += WorkOf(TokenAttentionCost(model, request_class.attention, DTypeOf(*impl.options.kv_type),
                                                  front + TailOf(model, depth) + test.gen_tokens / 2));
  result.products = WorkOf(cost);
  return result;
}

constexpr size_t kPromptTokens = 512, kPromptSegments = 8;  // where the caller does not say

Error BenchError(const std::string& what) { return Error(ErrorCode::kInvalidArgument, "bench: " + what); }

}  // namespace

size_t DefaultPromptTokens(Engine& engine) {
  const LanguageModel& model = engine.impl().language_model();
  return model.segments.present() ? kPromptSegments * model.segments.shape.segment_tokens : kPromptTokens;
}

Result<BenchResult> RunBench(Engine& engine, const BenchTest& test, BenchCaches* caches) {
  Engine::Impl& impl = engine.impl();
  if (!engine.idle())
    return Error(ErrorCode::kFailedPrecondition, "bench: requests are in flight; finish or cancel them first");
  const bool prefill = test.test == "prefill", batch = test.test == "batch";
  if (!prefill && !batch && test.test != "decode")
    return BenchError("test '" + test.test + "': expected prefill, decode or batch");
  if (test.repeat == 0 || test.repeat > 1000)
    return BenchError("--repeat " + std::to_string(test.repeat) + ": expected 1 to 1000");
  if ((prefill ? test.prompt_tokens : test.gen_tokens) == 0)
    return BenchError(std::string(prefill ? "--prompt-tokens" : "--gen-tokens") + " 0: expected at least 1");
  if (batch && (test.prompts.empty() || test.prompts.size() > impl.options.max_batch)) {
    return BenchError("--batch " + std::to_string(test.prompts.size()) + ": expected 1 to " +
                      std::to_string(impl.options.max_batch));
  }
  const size_t deepest = batch ? *std::max_element(test.prompts.begin(), test.prompts.end()) : test.depth;
  const size_t decoded = prefill ? 0 : test.gen_tokens, filled_first = prefill ? test.prompt_tokens : deepest;
  constexpr size_t kLongest = size_t{1} << 22;
  if (filled_first > kLongest || decoded > kLongest - filled_first)
    return BenchError("a test of " + std::to_string(filled_first) + " and " + std::to_string(decoded) +
                      " tokens: expected at most " + std::to_string(kLongest));
  const size_t longest = filled_first + decoded, context = impl.options.context;
  const LanguageModel& model = impl.language_model();
  if (model.position_embedding.rows() != 0 && longest > model.settings.longest_context())
    return BenchError("a test of " + std::to_string(filled_first) + " and " + std::to_string(decoded) +
                      " tokens: expected at most " + std::to_string(model.settings.longest_context()) +
                      ", since the model has learned no others");
  const size_t positions = model.settings.max_position_embeddings - model.segments.shape.front_rows;
  size_t tail = TailOf(model, filled_first);
  for (const size_t prompt : test.prompts) tail = std::max(tail, TailOf(model, prompt));
  if (model.segments.present() && tail + decoded > positions) {
    return BenchError("a last segment of " + std::to_string(tail) + " and " + std::to_string(decoded) +
                      " tokens: expected at most " + std::to_string(positions) +
                      " of the model's positions; give fewer --gen-tokens or a --depth of whole segments");
  }
  TIDEMILL_TRY(request_class, impl.ClassOf({}, {}, longest).WithContext("bench"));
  // A speed past the context of any other model is still a speed: room is made for it, and the result is marked.
  impl.options.context = std::max(context, longest);
  BenchCaches own;
  BenchCaches::Impl& kept = (caches != nullptr ? *caches : own).impl();
  bool goes_on = kept.engine == &engine && kept.sequences && GoesOn(kept.test, test);
  goes_on = goes_on && kept.sequences->request_class().name == request_class.name;
  if (!goes_on || kept.sequences->front().max_length() < longest) kept.sequences.reset();
  const size_t filled = kept.test.depth;
  kept.engine = &engine;
  kept.test = test;
  ResetPeakResident();
  Result<BenchResult> result = Error(ErrorCode::kOutOfMemory, "bench: the system has no more memory");
  try {
    result = prefill ? BenchPrefill(impl, request_class, test, kept.sequences)
                     : BenchDecode(impl, request_class, test, filled, kept.sequences);
  } catch (const std::bad_alloc&) {  // as initialised
  }
  impl.options.context = context;
  if (!result.ok()) {
    kept.sequences.reset();
    return std::move(result).WithContext("bench");
  }
  result->test = test.test;
  result->beyond_context = longest > model.settings.longest_context();
  result->peak_rss_bytes = PeakResidentBytes();
  result->anonymous_rss_bytes = AnonymousResidentBytes();
  return result;
}

}  // namespace tidemill
