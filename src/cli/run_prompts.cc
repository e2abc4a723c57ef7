#include "cli/run_prompts.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "cli/answer.h"
#include "cli/errors.h"
#include "cli/files.h"
#include "cli/generation_defaults.h"
#include "cli/json.h"
#include "cli/memory_reserve.h"
#include "cli/profile_path.h"
#include "cli/prompt_line.h"
#include "cli/prompt_queue.h"
#include "cli/prompts_progress.h"
#include "cli/session.h"

namespace tidemill::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxInstances = 64;

double Milliseconds(Clock::duration duration) { return std::chrono::duration<double, std::milli>(duration).count(); }

// What --stats says of many requests.
struct ManyStats {
  size_t requests = 0, failed = 0, prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0, preemptions = 0;
  std::vector<float> ttft_ms, between_tokens_ms;
  RequestStats all;  // of all requests, what they say of drafts, attention and growth

  void AddGrowth(const StateGrowth& growth) {
    all.growth.growths += growth.growths;
    all.growth.bytes_copied += growth.bytes_copied;
    all.growth.fell_back = all.growth.fell_back || growth.fell_back;
    all.growth.gave_up_columns = all.growth.gave_up_columns || growth.gave_up_columns;
  }

  void Add(const RequestStats& stats) {
    ++requests;
    prompt_tokens += stats.prompt_tokens;
    cached_tokens += stats.cached_tokens;
    generated_tokens += stats.generated_tokens;
    preemptions += stats.preemptions;
    AddGrowth(stats.growth);
    AddDrafts(stats, &all);
    AddAttention(stats, &all);
    if (stats.generated_tokens != 0) ttft_ms.push_back(static_cast<float>(stats.ttft_ms));
  }
  void Add(const ManyStats& other) {
    requests += other.requests;
    failed += other.failed;
    prompt_tokens += other.prompt_tokens;
    cached_tokens += other.cached_tokens;
    generated_tokens += other.generated_tokens;
    preemptions += other.preemptions;
    AddGrowth(other.all.growth);
    AddDrafts(other.all, &all);
    AddAttention(other.all, &all);
    ttft_ms.insert(ttft_ms.end(), other.ttft_ms.begin(), other.ttft_ms.end());
    between_tokens_ms.insert(between_tokens_ms.end(), other.between_tokens_ms.begin(), other.between_tokens_ms.end());
  }
};

// The value below which a fraction of them lies; 0 for none.
double Percentile(std::vector<float>& values, double fraction) {
  if (values.empty()) return 0;
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(fraction * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

// Of this process, since its start.
PageFaults FaultsNow() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return {.minor = static_cast<uint64_t>(usage.ru_minflt), .major = static_cast<uint64_t>(usage.ru_majflt)};
}

std::string Describe(ManyStats& stats, double seconds, const PageFaults& faults) {
  char lines[768];
  std::snprintf(
      lines, sizeof lines,
      "requests     %10zu, %zu failed, %zu preemptions\n"
      "tokens       %10zu of prompts (%zu cached), %zu generated in %.1f s, %.1f tokens/s\n"
      "KV cache     grown %llu times, %.2f MiB copied; page faults: %llu minor, %llu major\n"
      "TTFT         %10.1f ms p50, %.1f ms p99\n"
      "inter-token  %10.1f ms p50, %.1f ms p99\n",
      stats.requests + stats.failed, stats.failed, stats.preemptions, stats.prompt_tokens, stats.cached_tokens,
      stats.generated_tokens, seconds, TokensPerSecond(static_cast<double>(stats.generated_tokens), seconds * 1000),
      static_cast<unsigned long long>(stats.all.growth.growths),
      static_cast<double>(stats.all.growth.bytes_copied) / (1 << 20), static_cast<unsigned long long>(faults.minor),
      static_cast<unsigned long long>(faults.major), Percentile(stats.ttft_ms, 0.5), Percentile(stats.ttft_ms, 0.99),
      Percentile(stats.between_tokens_ms, 0.5), Percentile(stats.between_tokens_ms, 0.99));
  return lines + DescribeDrafts(stats.all) + DescribeAttention(stats.all);
}

struct Descriptor {
  int fd;
  bool is_ours;

  ~Descriptor() {
    if (is_ours && fd >= 0) close(fd);
  }
};

// One engine and the requests that it runs. Only Cancel may be called from another thread.
class Instance {
 public:
  Instance(size_t index, const Session& session, const PromptEncoder& encoder, std::unique_ptr<Engine> engine,
           size_t most, PromptQueue& queue, PromptsProgress& progress, const RunFlags& flags, AttentionPolicy attention)
      : index_(index),
        session_(session),
        encoder_(encoder),
        engine_(std::move(engine)),
        max_(most),
        queue_(queue),
        progress_(progress),
        flags_(flags),
        draft_(flags.draft.options()),
        attention_(std::move(attention)) {}

  // Until no line is left and every request has ended. What runs when there is no memory fails, with the text that it has; lines behind it
  // are run. Throws std::bad_alloc where there is none to say so, or to read a line.
  void Run() {
    for (bool goes_on = true; goes_on;) {
      try {
        goes_on = StartAndStep();
      } catch (const std::bad_alloc&) {
        if (running_.empty()) throw;  // not even for reading a line: again would be for ever
        FailAll();
        MemoryReserve::Refill();
      }
    }
  }

  void CancelAll() {
    const std::lock_guard lock(mutex_);
    is_cancelled_ = true;
    for (const auto& [id, request] : running_) engine_->Cancel(id);
  }

  ManyStats& stats() { return stats_; }
  const Engine& engine() const { return *engine_; }

 private:
  struct Running {
    size_t line = 0;
    Json id;
    GenerationOptions options;
    Answer answer;
    std::optional<Clock::time_point> last_token;
  };

  bool StartAndStep() {
    while (running_.size() < max_) {
      std::optional<PromptQueue::Line> line = queue_.Take(index_, running_.empty());
      if (!line) break;
      Start(*line);
    }
    if (running_.empty()) return false;
    if (queue_.has_failed()) CancelAll();
    for (const Event& event : engine_->Step()) Take(event);
    return true;
  }

  static Error NoMemory() {
    return Error(ErrorCode::kOutOfMemory,
                 "run the line: memory: expected more than there is; give a smaller --max-batch or shorter lines");
  }

  void Start(const PromptQueue::Line& line) {
    Running running{.line = line.number, .id = nullptr, .options = {}, .answer = {}, .last_token = {}};
    std::optional<RequestId> submitted;
    try {
      Result<RequestId> id = Submit(line, &running);
      if (!id.ok()) return Fail(running, id.error());
      submitted = *id;
      const std::lock_guard lock(mutex_);
      if (is_cancelled_) engine_->Cancel(*id);
      running_.emplace(*id, std::move(running));
    } catch (const std::bad_alloc&) {
      if (submitted) engine_->Cancel(*submitted);
      Fail(running, NoMemory());
    }
  }

  Result<RequestId> Submit(const PromptQueue::Line& line, Running* running) {
    if (line.had_no_memory) return NoMemory();
    if (line.is_too_long) {
      return Error(ErrorCode::kInvalidArgument,
                   "read the line: expected at most " + std::to_string(kMaxInputBytes) + " bytes, found more");
    }
    TIDEMILL_TRY(prompt, ParsePromptLine(line.text, &running->id));
    const Model& model = *session_.model;
    running->options = prompt.ApplyTo(BatchOptions(flags_.generation, model));
    const bool is_bounded = flags_.generation.max_new_tokens || prompt.generation.max_new_tokens;
    BoundAnswer(is_bounded, &running->options);
    std::vector<int32_t> ids = std::move(prompt.ids);
    if (prompt.messages) {
      TIDEMILL_TRY(encoded, encoder_.EncodeJson(prompt.ChatJson()));
      ids = std::move(encoded);
    } else if (prompt.prompt) {
      TIDEMILL_TRY(encoded, encoder_.Encode(*prompt.prompt));
      ids = std::move(encoded);
    }
    return engine_->Submit({.prompt = std::move(ids),
                            .generation = running->options,
                            .draft = draft_,
                            .needs_room_for_all = is_bounded,
                            .attention = prompt.attention.Over(attention_)});
  }

  void Take(const Event& event) {
    const auto found = running_.find(event.request);
    if (found == running_.end()) return;  // failed for want of memory
    Running& running = found->second;
    running.answer.Add(event);
    if (event.token) {
      const Clock::time_point now = Clock::now();
      if (running.last_token)
        stats_.between_tokens_ms.push_back(static_cast<float>(Milliseconds(now - *running.last_token)));
      running.last_token = now;
      progress_.CountTokens(1);
    }
    if (!event.last()) return;
    if (event.error) {
      Fail(running, *event.error);
    } else {
      stats_.Add(event.stats);
      queue_.Finish(index_, running.line, JsonLine(ResultJson(running)));
      progress_.CountEnd(running.answer.finish == FinishReason::kCancelled ? PromptsProgress::End::kCut
                                                                           : PromptsProgress::End::kDone);
    }
    const std::lock_guard lock(mutex_);
    running_.erase(found);
  }

  void FailAll() {
    const std::lock_guard lock(mutex_);
    while (!running_.empty()) {
      const auto& [id, running] = *running_.begin();
      engine_->Cancel(id);
      Fail(running, NoMemory());
      running_.erase(running_.begin());
    }
  }

  void Fail(const Running& running, const Error& error) {
    ++stats_.failed;
    Json json = {{"id", running.id}, {"line", running.line}};
    json.update(FailureJson(running.answer, error));
    queue_.Finish(index_, running.line, JsonLine(json));
    progress_.CountEnd(PromptsProgress::End::kFailed);
  }

  Json ResultJson(const Running& running) const {
    Json json = {{"id", running.id}, {"line", running.line}};
    json.update(AnswerJson(running.answer, *session_.model, *engine_, session_.load_ms, running.options));
    return json;
  }

  size_t index_;
  const Session& session_;
  const PromptEncoder& encoder_;
  std::unique_ptr<Engine> engine_;
  size_t max_;  // requests at a time; of them, those that its memory has no room for wait in its engine
  PromptQueue& queue_;
  PromptsProgress& progress_;
  const RunFlags& flags_;
  DraftOptions draft_;
  AttentionPolicy attention_;  // of lines that say nothing of it
  std::mutex mutex_;           // guards changes of running_ against CancelAll
  std::map<RequestId, Running> running_;
  bool is_cancelled_ = false;
  ManyStats stats_;
};

}  // namespace

void PromptsFlags::AddTo(FlagSet& flags) {
  flags.Group("Many prompts");
  flags.Text(
      "--prompts", file, "FILE.jsonl",
      "A request on each line, as {\"id\", \"prompt\", flags...}; a JSON result on each line, in their order; - is "
      "standard input");
  flags.Switch("--as-completed", as_completed, "Results as they come, whatever the order of the lines");
  flags.Number<size_t>("--instances", instances, 1, kMaxInstances,
                       "Engines that share the weights and divide the threads and the state's memory (1)");
  flags.Needs("--as-completed", "--prompts");
  flags.Needs("--instances", "--prompts");
}

Result<void> RunPrompts(const RunFlags& flags, CommandContext& context) {
  const PromptsFlags& prompts = flags.prompts;
  const bool is_file = *prompts.file != "-";
  const Descriptor input{is_file ? open(prompts.file->c_str(), O_RDONLY | O_CLOEXEC) : STDIN_FILENO, is_file};
  if (input.fd < 0) return SystemError("read the prompts", *prompts.file, errno);
  TIDEMILL_TRY(session, OpenSession(flags.model, flags.machine, flags.draft, context));
  TIDEMILL_TRY(encoder, PromptEncoder::Create(*session.model, flags.form));
  WarnAboutIdleFlags(flags.generation, BatchOptions(flags.generation, *session.model),
                     " but in lines that give another one", context.messages);
  TIDEMILL_TRY(options, flags.machine.engine_options());
  const size_t count = prompts.instances.value_or(1);
  options.draft_model = session.draft_model;
  options.draft_head = session.draft_head;
  options.threads = std::max<size_t>(1, session.engine->threads() / count);
  NameProfile(options);
  options.draft_threads = std::min(flags.draft.threads.value_or(0), options.threads);
  options.state_memory = std::max<uint64_t>(1, session.engine->state_memory() / count);

  PromptQueue queue(input.fd, is_file ? *prompts.file : "standard input", context.signals, context.out,
                    prompts.as_completed, count);
  const bool shows = context.messages.shows_progress() && !context.out.is_terminal();
  PromptsProgress progress(context.messages, shows, is_file && shows ? CountPromptLines(*prompts.file) : std::nullopt);
  std::vector<std::unique_ptr<Instance>> instances;
  for (size_t i = 0; i < count; ++i) {
    std::unique_ptr<Engine> engine = std::move(session.engine);  // the first one is there
    if (count > 1) {
      TIDEMILL_TRY(made, Engine::Create(session.model, options));
      engine = std::move(made);
    }
    instances.push_back(std::make_unique<Instance>(i, session, encoder, std::move(engine), options.max_batch, queue,
                                                   progress, flags, options.attention));
  }
  const Clock::time_point start = Clock::now();
  const PageFaults before = FaultsNow();
  std::atomic<bool> out_of_memory = false;
  {
    const SignalWatch::Grace grace(context.signals, [&] {
      queue.Stop();
      for (const auto& instance : instances) instance->CancelAll();
    });
    const auto run = [&](Instance& instance) {
      try {
        instance.Run();
      } catch (const std::exception&) {  // std::bad_alloc
        out_of_memory.store(true);
        queue.Stop();
      }
    };
    std::vector<std::thread> threads;
    try {
      for (size_t i = 1; i < count; ++i) threads.emplace_back(run, std::ref(*instances[i]));
    } catch (const std::exception&) {  // fewer run: they take all lines
      for (size_t i = threads.size() + 1; i < count; ++i) queue.Leave(i);
    }
    run(*instances[0]);
    for (std::thread& thread : threads) thread.join();
    TIDEMILL_TRY_VOID(queue.Close());
  }
  if (out_of_memory.load()) {
    return Error(ErrorCode::kOutOfMemory, "run the prompts: the system has no more memory; give a smaller --max-batch");
  }
  ManyStats all;
  for (const auto& instance : instances) all.Add(instance->stats());
  context.some_failed = all.failed != 0;
  progress.Stop();
  if (context.signals.received() != 0) context.messages.Warning("stopped by a signal: " + progress.Summary());
  WarnAboutGrowth(all.all, context.messages);
  WarnAboutDrafts(all.all, context.messages);
  if (flags.stats) {
    const PageFaults now = FaultsNow();
    PrefixCacheStats prefixes;
    for (const auto& instance : instances) {
      const PrefixCacheStats of_one = instance->engine().prefix_cache();
      prefixes.states += of_one.states;
      prefixes.bytes += of_one.bytes;
      prefixes.hits += of_one.hits;
      prefixes.evictions += of_one.evictions;
    }
    context.messages.Say(Describe(all, Milliseconds(Clock::now() - start) / 1000,
                                  {.minor = now.minor - before.minor, .major = now.major - before.major}) +
                         DescribePrefixCache(prefixes));
  }
  return {};
}

}  // namespace tidemill::cli
