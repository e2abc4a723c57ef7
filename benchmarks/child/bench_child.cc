#include "benchmarks/child/bench_child.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <istream>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <ostream>
#include <random>
#include <span>

#include "cli/cpu_info.h"
#include "cli/files.h"
#include "cli/json.h"
#include "cli/version.h"
#include "tidemill/engine.h"
#include "tidemill/measure.h"
#include "tidemill/model.h"

namespace tidemill::child {
namespace {

constexpr size_t kMaxTokens = size_t{1} << 22;

constexpr char kDoing[] = "read the bench settings";

using cli::CpuInfo;
using cli::IsaFeatures;
using cli::JsonLine;
using cli::kMaxInputBytes;
using cli::kVersion;
using cli::ParseJson;
using cli::ReadCpuInfo;

Error Wrong(const std::string& member, const std::string& what) {
  return Error(ErrorCode::kInvalidArgument, std::string(kDoing) + ": \"" + member + "\": " + what);
}

// The members of the settings that are there; the first one that is wrong.
class SettingsReader {
 public:
  explicit SettingsReader(const JsonValue& json) : json_(json) {}

  template <typename T>
  void Number(const char* name, T& target, uint64_t lowest, uint64_t highest) {
    const auto member = Find(name);
    if (!member) return;
    const auto number = member->GetUint("", lowest, highest);
    if (number.ok()) {
      target = static_cast<T>(*number);
    } else {
      Fail(name, "a whole number from " + std::to_string(lowest) + " to " + std::to_string(highest), *member);
    }
  }
  void List(const char* name, std::vector<size_t>& target, uint64_t lowest, uint64_t highest) {
    const auto member = Find(name);
    if (!member) return;
    target.clear();
    const std::string expected =
        "a list of whole numbers from " + std::to_string(lowest) + " to " + std::to_string(highest);
    if (!member->is_array()) Fail(name, expected, *member);
    for (const JsonValue& element : member->Elements()) {
      const auto number = element.GetUint("", lowest, highest);
      if (!number.ok()) return Fail(name, expected, element);
      target.push_back(*number);
    }
  }
  void Text(const char* name, std::string& target) {
    const auto member = Find(name);
    if (!member) return;
    if (!member->is_string()) return Fail(name, "a string", *member);
    target = member->text();
  }
  void Switch(const char* name, bool& target) {
    const auto member = Find(name);
    if (!member) return;
    const auto flag = member->GetBool("");
    if (!flag.ok()) return Fail(name, "true or false", *member);
    target = *flag;
  }
  const std::optional<Error>& error() const { return error_; }

 private:
  std::optional<JsonValue> Find(const char* name) const { return error_ ? std::nullopt : json_.Member(name); }
  void Fail(const char* name, const std::string& expected, const JsonValue& found) {
    error_ = Wrong(name, "expected " + expected + ", found " + found.Describe());
  }

  const JsonValue& json_;
  std::optional<Error> error_;
};

std::vector<int32_t> RandomIds(std::mt19937_64& random, size_t count, size_t vocab_size) {
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % vocab_size);
  return ids;
}

double Seconds(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
}

// Root mean square of a - b over the standard deviation of b.
double RelativeRms(std::span<const float> a, std::span<const float> b) {
  const auto n = static_cast<double>(b.size());
  double mean = 0, variance = 0, squares = 0;
  for (const float x : b) mean += static_cast<double>(x) / n;
  for (size_t i = 0; i < b.size(); ++i) {
    variance += (static_cast<double>(b[i]) - mean) * (static_cast<double>(b[i]) - mean) / n;
    squares += (static_cast<double>(a[i]) - static_cast<double>(b[i])) *
               (static_cast<double>(a[i]) - static_cast<double>(b[i])) / n;
  }
  if (squares == 0) return 0;
  const double rms = variance > 0 ? std::sqrt(squares / variance) : 1;
  return std::isfinite(rms) ? rms : 1e9;  // JSON has no such number, and what is missing reads as right
}

class Child {
 public:
  explicit Child(const std::string& isa) : isa_(isa) {}

  Result<Json> Measure(ChildSettings settings);

 private:
  Result<void> Load();
  Result<void> MakeEngine();
  Result<Json> RunTest(const BenchTest& test);
  Result<double> PrefillDisagreement(size_t prompt_tokens);
  Result<double> BatchDisagreement(const std::vector<size_t>& prompts);
  // The logits of each position.
  Result<std::vector<std::vector<float>>> LogitsOf(std::span<const int32_t> ids, Engine& engine);
  // The most probable tokens of the first step after each prompt, all prompts in one batch.
  Result<std::vector<std::vector<TokenLogprob>>> FirstSteps(const std::vector<std::vector<int32_t>>& prompts);

  std::string isa_;
  ChildSettings settings_;
  EngineOptions options_;
  std::string loaded_path_;
  Json times_;  // of the last load
  std::shared_ptr<const Model> model_;
  std::unique_ptr<Engine> engine_;
  BenchCaches caches_;            // borrows engine_
  double last_disagreement_ = 0;  // of the test that caches_ holds
};

// With all of the machine's threads, which fill caches, and more if asked; what is timed uses as many as asked.
Result<void> Child::MakeEngine() {
  caches_.Drop();
  engine_.reset();
  TIDEMILL_TRY(engine, Engine::Create(model_, options_));
  engine_ = std::move(engine);
  if (engine_->threads() >= settings_.threads) return {};
  options_.threads = settings_.threads;
  TIDEMILL_TRY(larger, Engine::Create(model_, options_));
  engine_ = std::move(larger);
  return {};
}

// Loads as often as asked, and keeps the last one; nothing if it is there.
Result<void> Child::Load() {
  TIDEMILL_TRY(kv_type, ParseKvType(settings_.kv_type));
  EngineOptions options;
  options.kv_type = kv_type;
  options.isa = isa_;
  options.prefix_cache = false;  // a repeat is computed again
  for (const size_t batch : settings_.batch) options.max_batch = std::max(options.max_batch, batch);
  if (engine_ && loaded_path_ == settings_.model) {
    // Of as many threads as were asked for the system may have given fewer.
    if (options.kv_type == options_.kv_type && settings_.threads <= std::max(engine_->threads(), options_.threads) &&
        options.max_batch <= options_.max_batch) {
      return {};
    }
    options_ = options;
    return MakeEngine();
  }
  options_ = options;
  loaded_path_ = settings_.model;
  times_["load_s"] = Json::array();
  times_["ttft_s"] = Json::array();
  for (size_t i = 0; i < settings_.repeats; ++i) {
    caches_.Drop();
    engine_.reset();
    model_.reset();
    const auto start = std::chrono::steady_clock::now();
    LoadOptions load;
    load.threads = settings_.threads;
    TIDEMILL_TRY(model, Model::Load(settings_.model, load));
    times_["load_s"].push_back(Seconds(start));
    model_ = std::move(model);
    TIDEMILL_TRY_VOID(MakeEngine());
    const int32_t first[] = {0};
    TIDEMILL_TRY_VOID(engine_->Score(first, true, [](size_t, std::span<const float>) { return Result<void>(); }));
    times_["ttft_s"].push_back(Seconds(start));
  }
  return {};
}

Result<std::vector<std::vector<float>>> Child::LogitsOf(std::span<const int32_t> ids, Engine& engine) {
  std::vector<std::vector<float>> rows;
  TIDEMILL_TRY_VOID(engine.Score(ids, false, [&](size_t, std::span<const float> logits) -> Result<void> {
    rows.emplace_back(logits.begin(), logits.end());
    return {};
  }));
  return rows;
}

// At once against one by one: the median of the last 8 positions.
Result<double> Child::PrefillDisagreement(size_t prompt_tokens) {
  std::mt19937_64 random(settings_.seed);
  const size_t count = std::min({prompt_tokens, size_t{64}, engine_->context()});
  const std::vector<int32_t> ids = RandomIds(random, count, model_->info().vocab_size);
  EngineOptions one_by_one = options_;
  one_by_one.prefill_chunk = 1;
  TIDEMILL_TRY(engine, Engine::Create(model_, one_by_one));
  TIDEMILL_TRY(together, LogitsOf(ids, *engine_));
  TIDEMILL_TRY(single, LogitsOf(ids, *engine));
  std::vector<double> worst;
  for (size_t i = count - std::min<size_t>(count, 8); i < count; ++i)
    worst.push_back(RelativeRms(together[i], single[i]));
  std::nth_element(worst.begin(), worst.begin() + static_cast<std::ptrdiff_t>(worst.size() / 2), worst.end());
  return worst[worst.size() / 2];
}

Result<std::vector<std::vector<TokenLogprob>>> Child::FirstSteps(const std::vector<std::vector<int32_t>>& prompts) {
  std::vector<RequestId> ids;
  for (const std::vector<int32_t>& prompt : prompts) {
    GenerationOptions generation;
    generation.max_new_tokens = 2;  // the first comes from the prompt's own step, the second from one step for all
    generation.ignore_eos = true;
    generation.logprobs = 20;
    TIDEMILL_TRY(id, engine_->Submit({.prompt = prompt, .generation = generation}));
    ids.push_back(id);
  }
  std::vector<std::vector<TokenLogprob>> last(prompts.size());
  while (!engine_->idle()) {
    for (const Event& event : engine_->Step()) {
      if (event.error) return *event.error;
      const auto place = std::find(ids.begin(), ids.end(), event.request) - ids.begin();
      if (event.token) last[static_cast<size_t>(place)] = event.top_logprobs;
    }
  }
  return last;
}

// One step for all against each alone, over the most probable tokens: the worst of three sequences. Prompts are cut short: what
// is looked for is a mix-up of sequences.
Result<double> Child::BatchDisagreement(const std::vector<size_t>& lengths) {
  if (lengths.size() < 2) return 0.0;
  if (engine_->context() < 3) {
    return Error(ErrorCode::kUnsupported,
                 "check a batch against each sequence alone: expected a context of 3 tokens, found " +
                     std::to_string(engine_->context()) + "; measure a model with a longer one");
  }
  std::mt19937_64 random(settings_.seed);
  std::vector<std::vector<int32_t>> prompts;
  for (const size_t length : lengths) {
    const size_t longest = std::min(size_t{64}, engine_->context() - 2);
    prompts.push_back(RandomIds(random, std::clamp<size_t>(length, 1, longest), model_->info().vocab_size));
  }
  TIDEMILL_TRY(together, FirstSteps(prompts));
  double worst = 0;
  for (const size_t i : {size_t{0}, lengths.size() / 2, lengths.size() - 1}) {
    TIDEMILL_TRY(alone, FirstSteps({prompts[i]}));
    std::vector<float> a, b;
    bool same_tokens = together[i].size() == alone[0].size();
    for (size_t k = 0; same_tokens && k < alone[0].size(); ++k) {
      same_tokens = together[i][k].id == alone[0][k].id;
      a.push_back(together[i][k].logprob);
      b.push_back(alone[0][k].logprob);
    }
    worst = std::max(worst, same_tokens ? RelativeRms(a, b) : 1.0);
  }
  return worst;
}

Result<Json> Child::RunTest(const BenchTest& test) {
  TIDEMILL_TRY(measured, RunBench(*engine_, test, &caches_));
  Json json;
  json["test"] = test.test;
  json["flash_attn"] = settings_.flash_attn;
  if (test.test == "prefill") {
    json["prompt_tokens"] = test.prompt_tokens;
  } else if (test.test == "decode") {
    json["depth"] = test.depth;
    json["gen_tokens"] = test.gen_tokens;
  } else {
    const auto [shortest, longest] = std::minmax_element(test.prompts.begin(), test.prompts.end());
    json["batch"] = test.prompts.size();
    json["prompt_tokens"] = {*shortest, *longest};
    json["gen_tokens"] = test.gen_tokens;
  }
  json["samples"] = Json::array();
  for (const BenchSample& sample : measured.samples) {
    json["samples"].push_back({{"tokens_per_s", sample.tokens_per_s},
                               {"tokens_per_cpu_s", sample.tokens_per_cpu_s},
                               {"seconds", sample.seconds},
                               {"others_cores", sample.others_cores}});
  }
  constexpr double kMib = 1 << 20;
  json["peak_rss_mib"] = static_cast<double>(measured.peak_rss_bytes) / kMib;
  json["anon_rss_mib"] = static_cast<double>(measured.anonymous_rss_bytes) / kMib;
  json["beyond_trained_context"] = measured.beyond_context;
  if (test.test == "decode") {
    if (!settings_.read_rate) return json;
    const double bytes = measured.products.bytes + measured.attention.bytes;
    TIDEMILL_TRY(rate, ReadRateNow(*engine_, bytes, settings_.threads));
    json["bytes_per_step"] = bytes;
    json["read_gb_per_s"] = rate;
    return json;
  }
  if (!measured.kept) {
    TIDEMILL_TRY(disagreement,
                 test.test == "prefill" ? PrefillDisagreement(test.prompt_tokens) : BatchDisagreement(test.prompts));
    last_disagreement_ = disagreement;
  }
  json["disagreement"] = last_disagreement_;
  return json;
}

Result<Json> Child::Measure(ChildSettings settings) {
  settings_ = std::move(settings);
  TIDEMILL_TRY_VOID(Load());
  const CpuInfo cpu = ReadCpuInfo();
  const IsaFeatures features = FeaturesOf(cpu, engine_->isa());
  const ModelInfo& info = model_->info();
  uint64_t tensor_bytes = 0;
  for (const TensorInfo& tensor : info.tensors) tensor_bytes += tensor.bytes;
  Json result;
  result["engine"] = settings_.engine;
  result["version"] = kVersion;
  result["threads"] = settings_.threads == 0 ? engine_->threads() : std::min(settings_.threads, engine_->threads());
  result["system_info"] = cpu.name + ", " + engine_->isa() + ", " + engine_->numeric_class();
  result["isa"] = {{"used", features.used}, {"unused", features.unused}};
  result["model"] = {{"description", info.family + " " + info.name},
                     {"parameters", info.parameters},
                     {"tensor_bytes", tensor_bytes},
                     {"vocab_size", info.vocab_size},
                     {"trained_context", info.max_position_embeddings}};
  result.update(times_);
  result["tests"] = Json::array();
  BenchTest test;
  test.gen_tokens = settings_.gen_tokens;
  test.repeat = settings_.repeats;
  test.threads = settings_.threads;
  test.seed = settings_.seed;
  test.shares = settings_.shared;
  const auto run = [&](const char* name) -> Result<void> {
    test.test = name;
    TIDEMILL_TRY(json, RunTest(test));
    result["tests"].push_back(std::move(json));
    return {};
  };
  for (const size_t prompt_tokens : settings_.prompt_tokens) {
    test.prompt_tokens = prompt_tokens;
    TIDEMILL_TRY_VOID(run("prefill"));
  }
  for (const size_t depth : settings_.depth) {
    test.depth = depth;
    TIDEMILL_TRY_VOID(run("decode"));
  }
  for (const size_t batch : settings_.batch) {
    test.prompts = BatchPrompts(settings_, batch);
    TIDEMILL_TRY_VOID(run("batch"));
  }
  return result;
}

}  // namespace

Result<ChildSettings> ParseChildSettings(std::string_view text) {
  TIDEMILL_TRY(json, ParseJson(kDoing, text));
  if (!json.is_object())
    return Error(ErrorCode::kInvalidArgument,
                 std::string(kDoing) + ": expected one JSON object, found " + json.Describe());
  ChildSettings settings;
  SettingsReader reader(json);
  reader.Text("engine", settings.engine);
  reader.Switch("info", settings.info);
  reader.Text("model", settings.model);
  reader.Number("threads", settings.threads, 1, kMaxThreads);
  reader.List("prompt_tokens", settings.prompt_tokens, 1, kMaxTokens);
  reader.List("depth", settings.depth, 0, kMaxTokens);
  reader.List("batch", settings.batch, 1, 1024);
  reader.Number("gen_tokens", settings.gen_tokens, 1, kMaxTokens);
  std::vector<size_t> range = {settings.batch_prompt.first, settings.batch_prompt.second};
  reader.List("batch_prompt", range, 0, kMaxTokens);
  reader.Number("repeats", settings.repeats, 1, 1000);
  reader.Number("seed", settings.seed, 0, std::numeric_limits<uint64_t>::max());
  reader.Switch("shared", settings.shared);
  reader.Switch("flash_attn", settings.flash_attn);
  reader.Text("kv_type", settings.kv_type);
  reader.Switch("read_rate", settings.read_rate);
  if (reader.error()) return *reader.error();
  if (range.size() != 2 || range[0] > range[1]) return Wrong("batch_prompt", "expected [lowest, highest]");
  settings.batch_prompt = {range[0], range[1]};
  if (json.Has("text")) {
    return Error(ErrorCode::kUnsupported,
                 std::string(kDoing) + ": \"text\": the tests draw random tokens; leave it out");
  }
  if (!settings.info && settings.model.empty()) return Wrong("model", "expected the path of a model, found none");
  if (settings.model.find('\0') != std::string::npos) return Wrong("model", "expected a path, found a zero byte in it");
  return settings;
}

std::vector<size_t> BatchPrompts(const ChildSettings& settings, size_t batch) {
  const auto [lowest, highest] = settings.batch_prompt;
  std::vector<size_t> lengths;
  for (size_t b = 0; b < batch; ++b) lengths.push_back(lowest + (highest - lowest) * (2 * b + 1) / (2 * batch));
  std::mt19937_64 random(settings.seed);
  std::shuffle(lengths.begin(), lengths.end(), random);
  return lengths;
}

void JsonBrackets::Add(std::string_view line) {
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (in_text_) {
      if (c == '\\') ++i;
      in_text_ = c != '"';
    } else if (c == '"') {
      in_text_ = true;
    } else {
      depth_ += c == '{' || c == '[' ? 1 : c == '}' || c == ']' ? -1 : 0;
    }
  }
}

Result<void> AnswerAll(std::istream& in, std::ostream& out, const std::string& isa) {
  Child child(isa);
  std::string text;
  JsonBrackets brackets;
  bool answered = false;
  while (true) {
    std::string line;
    const bool end = !std::getline(in, line);
    text += line;
    brackets.Add(line);
    if (text.size() > kMaxInputBytes)
      return Error(ErrorCode::kInvalidArgument,
                   std::string(kDoing) + ": expected at most 64 MiB in an object, found more");
    if (text.find_first_not_of(" \t\r\n") == std::string::npos) {
      if (end && answered) return {};
      text.clear();
      if (!end) continue;
    }
    if (!end && brackets.open()) {  // an object over several lines: wait for the one that ends it
      text += '\n';
      continue;
    }
    TIDEMILL_TRY(settings, ParseChildSettings(text));
    Json result;
    if (settings.info) {
      const CpuInfo cpu = ReadCpuInfo();
      const IsaFeatures features = FeaturesOf(cpu, isa.empty() ? "avx512-bf16" : isa);  // the highest level
      const Json extensions = {{"used", features.used}, {"unused", features.unused}};
      result = {{"engine", settings.engine}, {"version", kVersion}, {"system_info", cpu.name}, {"isa", extensions}};
    } else {
      TIDEMILL_TRY(measured, child.Measure(std::move(settings)));
      result = std::move(measured);
    }
    out << JsonLine(result) << std::flush;
    if (!out) return Error(ErrorCode::kIoError, "write the answer: standard output: cannot be written");
    if (end) return {};
    answered = true;
    text.clear();
    brackets = {};
  }
}

}  // namespace tidemill::child
