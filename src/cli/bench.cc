// tidemill bench: speed of prefill and decode, beside what the machine could do at most.
#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "cli/cpu_info.h"
#include "cli/errors.h"
#include "cli/flag_groups.h"
#include "cli/flags.h"
#include "cli/json.h"
#include "cli/session.h"
#include "tidemill/measure.h"

namespace tidemill::cli {
namespace {

struct BenchFlags {
  std::optional<std::string> model;
  std::vector<size_t> prompt_tokens = {};
  std::vector<size_t> depth = {0};
  std::vector<size_t> batch = {1};
  std::optional<size_t> gen_tokens, repeat;
  std::optional<uint64_t> seed;
  bool json = false;
  bool verbose = false;
  MachineFlags machine;
};

void AddFlags(FlagSet& set, BenchFlags& flags) {
  constexpr size_t kMaxTokens = size_t{1} << 22;
  set.OptionalPositional("MODEL", flags.model, "A .gguf file or a model folder");
  set.Numbers("--prompt-tokens", flags.prompt_tokens, 1, kMaxTokens,
              "Prefill of this many tokens (512, or eight segments)");
  set.Number<size_t>("--gen-tokens", flags.gen_tokens, 1, kMaxTokens, "Decode steps that are timed (64)");
  set.Numbers("--depth", flags.depth, 0, kMaxTokens,
              "Decode at these depths (0); past the model's context size it runs and is marked");
  set.Numbers("--batch", flags.batch, 1, 1024, "Decode of batches of so many sequences, at each depth (1)");
  set.Number<size_t>("--repeat", flags.repeat, 1, 1000, "Times that each test is run (3)");
  set.Number<uint64_t>("--seed", flags.seed, 0, ~uint64_t{0}, "Of the random tokens (0)");
  set.Switch("--json", flags.json, "One JSON object");
  set.Switch("--verbose", flags.verbose, "Also work and rates of each test, and both loops of each limit");
  set.Removed("--child", "build with -DTIDEMILL_BENCHMARKS=ON and run bench_child");
  flags.machine.AddTo(set);
}

std::vector<BenchTest> TestsOf(const BenchFlags& flags, Engine& engine) {
  std::vector<BenchTest> tests;
  BenchTest test;
  test.gen_tokens = flags.gen_tokens.value_or(test.gen_tokens);
  test.repeat = flags.repeat.value_or(test.repeat);
  test.seed = flags.seed.value_or(0);
  const std::vector<size_t> prompts =
      flags.prompt_tokens.empty() ? std::vector{DefaultPromptTokens(engine)} : flags.prompt_tokens;
  for (const size_t prompt_tokens : prompts) {
    test.test = "prefill";
    test.prompt_tokens = prompt_tokens;
    tests.push_back(test);
  }
  for (const size_t batch : flags.batch) {
    for (const size_t depth : flags.depth) {
      test.test = batch == 1 ? "decode" : "batch";
      test.depth = depth;
      test.prompts.assign(batch == 1 ? 0 : batch, depth);
      tests.push_back(test);
    }
  }
  return tests;
}

struct Spread {
  double min = 0, median = 0, max = 0;
};

Spread SpreadOf(std::vector<double> rates) {
  if (rates.empty()) return {};
  std::sort(rates.begin(), rates.end());
  const size_t half = rates.size() / 2;
  const double median = rates.size() % 2 == 1 ? rates[half] : (rates[half - 1] + rates[half]) / 2;
  return {rates.front(), median, rates.back()};
}

// One row of the table: a result beside the limits that it is held against.
struct Figure {
  BenchResult result;
  Spread rate;
  StepWork work;       // of one token
  double seconds = 0;  // of one step, at the median
  LimitSet limits;     // with the read limit of as many bytes
  LimitShares shares;
  // Of a decode: what a plain loop read right behind each sample, and how much of that the sample reached. Medians; 0: not measured.
  double loop_gb_per_s = 0, loop_share = 0;

  void Share() { shares = SharesOf(result.products, result.attention, seconds, limits); }
  bool prefill() const { return result.test == "prefill"; }
  std::string name() const {
    if (prefill()) return "bench: prefill of " + std::to_string(result.prompt_tokens) + " tokens";
    return "bench: decode at batch " + std::to_string(result.batch) + ", depth " + std::to_string(result.depth);
  }
};

// A result, and the rates of ReadRateNow behind its samples, if they were measured.
Figure FigureOf(BenchResult result, const std::vector<double>& loops) {
  Figure figure;
  std::vector<double> rates, shares;
  for (const BenchSample& sample : result.samples) rates.push_back(sample.tokens_per_s);
  figure.rate = SpreadOf(rates);
  const auto tokens = static_cast<double>(result.test == "prefill" ? result.prompt_tokens : result.batch);
  figure.seconds = tokens / figure.rate.median;
  figure.work = result.products;
  figure.work += result.attention;
  StepWork& work = figure.work;
  for (double* amount : {&work.bytes, &work.int8_ops, &work.bfloat16_ops, &work.flops}) *amount /= tokens;
  for (size_t i = 0; i < loops.size(); ++i) shares.push_back(work.bytes * rates[i] * 1e-9 / loops[i]);
  figure.loop_gb_per_s = SpreadOf(loops).median;
  figure.loop_share = SpreadOf(shares).median;
  figure.result = std::move(result);
  return figure;
}

// A decode sample by sample, since neighbours come and go, with what a plain loop of a step's bytes reads behind each. Without memory for
// the loop there is none.
Result<Figure> DecodeBesideLoop(Engine& engine, BenchTest test) {
  BenchCaches caches;
  std::optional<BenchResult> all;
  std::vector<double> loops;
  const size_t repeat = std::exchange(test.repeat, 1);
  for (size_t i = 0; i < repeat; ++i) {
    TIDEMILL_TRY(result, RunBench(engine, test, &caches));
    const Result<double> loop = ReadRateNow(engine, result.products.bytes + result.attention.bytes, 0);
    if (loop.ok()) loops.push_back(*loop);
    if (all) {
      all->samples.push_back(result.samples.front());
      all->peak_rss_bytes = std::max(all->peak_rss_bytes, result.peak_rss_bytes);
    } else {
      all = std::move(result);
    }
  }
  if (loops.size() < repeat) loops.clear();
  return FigureOf(std::move(*all), loops);
}

Result<Figure> Measure(Engine& engine, const BenchTest& test) {
  if (test.test != "prefill") return DecodeBesideLoop(engine, test);
  TIDEMILL_TRY(result, RunBench(engine, test));
  return FigureOf(std::move(result), {});
}

// Gives the figure its shares. A share of more than 100 % has the limits measured again.
Result<void> HoldAgainst(MachineLimits& limits, Engine& engine, Figure& figure) {
  constexpr int kTries = 4;
  const double bytes = figure.result.products.bytes + figure.result.attention.bytes;
  for (int i = 0; i < kTries; ++i) {
    if (i > 0) TIDEMILL_TRY_VOID(MeasureLimits(engine, WhichLimits::kAll, limits));
    figure.limits = limits.all;
    if (bytes < limits.all.read_bytes) TIDEMILL_TRY_VOID(RaiseReadLimit(engine, bytes, figure.limits));
    figure.Share();
    if (figure.shares.share() <= 1) break;
  }
  return {};
}

std::string Percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.0f %%", share * 100);
  return text;
}

// With --verbose also the other loop's best.
std::string LimitsLine(const LimitSet& limits, bool verbose) {
  std::string line = std::to_string(limits.threads) + (limits.threads == 1 ? " thread: " : " threads:");
  for (const Limit limit : kLimits) {
    const LimitRate& rate = limits.of(limit);
    if (rate.absent) continue;
    char text[96];
    std::snprintf(text, sizeof text, "%s %s %.1f %s", limit == kLimits.front() ? "" : ",",
                  std::string(LimitName(limit)).c_str(), rate.best(), std::string(LimitUnit(limit)).c_str());
    line += text;
    if (!verbose) continue;
    std::snprintf(text, sizeof text, " (%.1f)", std::min(rate.first, rate.second));
    line += text;
  }
  return line + "\n";
}

std::string LimitsText(const MachineLimits& limits, bool verbose) {
  std::string text = "limits   " + LimitsLine(limits.one, verbose);
  if (limits.all.threads > 1) text += "         " + LimitsLine(limits.all, verbose);
  return text;
}

// A row has at most 100 columns.
std::string Header(const Session& session) {
  const ModelInfo& info = session.model->info();
  const size_t threads = session.engine->threads();
  return "machine  " + Printable(ReadCpuInfo().name) + ", " + std::to_string(threads) +
         (threads == 1 ? " thread, " : " threads, ") + session.engine->isa() + "\nmodel    " + Printable(info.path) +
         "\n         " + info.family + ", numeric class " + session.engine->numeric_class() + "\n";
}

constexpr const char* kColumns =
    "test      tokens    depth  batch  tokens/s       min       max    GB/s  % of limit  limit  peak MiB\n";

std::string Row(const Figure& figure) {
  const BenchResult& result = figure.result;
  const Spread& rate = figure.rate;
  const std::string depth = figure.prefill() ? "-" : std::to_string(result.depth) + (result.beyond_context ? "*" : "");
  char text[256];
  std::snprintf(text, sizeof text, "%-8s%8zu%9s%7zu%10.1f%10.1f%10.1f%8.1f%12.0f%7s%10.0f\n",
                figure.prefill() ? "prefill" : "decode", figure.prefill() ? result.prompt_tokens : result.gen_tokens,
                depth.c_str(), result.batch, rate.median, rate.min, rate.max, figure.work.bytes * rate.median * 1e-9,
                figure.shares.share() * 100, std::string(LimitName(figure.shares.binding)).c_str(),
                static_cast<double>(result.peak_rss_bytes) / (1 << 20));
  return text;
}

// Below a row, with --verbose.
std::string WorkLine(const Figure& figure) {
  const double operations = figure.work.operations() * 1e-9;
  char text[256];
  std::snprintf(text, sizeof text, "         a token: %.3f MB, %.3f Gop; %.1f Gop/s; bandwidth %s, arithmetic %s",
                figure.work.bytes * 1e-6, operations, operations * figure.rate.median,
                Percent(figure.shares.bandwidth).c_str(), Percent(figure.shares.arithmetic).c_str());
  std::string line = text;
  if (figure.loop_gb_per_s > 0) {
    std::snprintf(text, sizeof text, "; loop %.1f GB/s, %s of it", figure.loop_gb_per_s,
                  Percent(figure.loop_share).c_str());
    line += text;
  }
  return line + "\n";
}

Json FigureJson(const Figure& figure, size_t threads) {
  const BenchResult& result = figure.result;
  const Spread& rate = figure.rate;
  const double operations = figure.work.operations();
  Json json = {{"test", figure.prefill() ? "prefill" : "decode"},
               {"threads", threads},
               {"batch", result.batch},
               {"depth", result.depth},
               {"prompt_tokens", result.prompt_tokens},
               {"gen_tokens", result.gen_tokens},
               {"tokens_per_s", {{"min", rate.min}, {"median", rate.median}, {"max", rate.max}}},
               {"weight_bytes_per_token", result.weight_bytes_per_token},
               {"state_bytes_per_token", result.state_bytes_per_token},
               {"bytes_per_token", figure.work.bytes},
               {"int8_ops_per_token", figure.work.int8_ops},
               {"bf16_ops_per_token", figure.work.bfloat16_ops},
               {"flops_per_token", figure.work.flops},
               {"gb_per_s", figure.work.bytes * rate.median * 1e-9},
               {"gop_per_s", operations * rate.median * 1e-9},
               {"read_limit_gb_per_s", figure.limits.of(Limit::kRead).best()},
               {"bandwidth_share", figure.shares.bandwidth},
               {"arithmetic_share", figure.shares.arithmetic},
               {"limit", LimitName(figure.shares.binding)},
               {"peak_rss_bytes", result.peak_rss_bytes},
               {"beyond_context", result.beyond_context}};
  if (figure.loop_gb_per_s > 0) {
    json["read_loop_gb_per_s"] = figure.loop_gb_per_s;
    json["read_loop_share"] = figure.loop_share;
  }
  return json;
}

Json LimitsJson(const LimitSet& limits) {
  Json json = {{"threads", limits.threads}};
  for (const Limit limit : kLimits) {
    const LimitRate& rate = limits.of(limit);
    if (rate.absent) continue;
    json[std::string(LimitName(limit))] = {{"best", rate.best()}, {"loops", {rate.first, rate.second}}};
    if (rate.clock_ghz > 0)
      json[std::string(LimitName(limit))]["instructions_per_cycle"] = rate.instructions_per_cycle();
  }
  return json;
}

Json SummaryJson(const Session& session, const MachineLimits& limits, const std::vector<Figure>& figures) {
  const ModelInfo& info = session.model->info();
  Json json;
  json["machine"] = {{"cpu", ReadCpuInfo().name},
                     {"threads", session.engine->threads()},
                     {"isa", session.engine->isa()},
                     {"read_gb_per_s", limits.all.of(Limit::kRead).best()},
                     {"int8_gops", limits.all.of(Limit::kInt8).best()},
                     {"bf16_gops", limits.all.of(Limit::kBFloat16).best()},
                     {"f32_gflops", limits.all.of(Limit::kF32).best()}};
  json["machine"]["limits"] = Json::array({LimitsJson(limits.one)});
  if (limits.all.threads > 1) json["machine"]["limits"].push_back(LimitsJson(limits.all));
  json["model"] = {{"path", info.path},
                   {"family", info.family},
                   {"parameters", info.parameters},
                   {"file_bytes", info.file_bytes},
                   {"resident_weight_bytes", session.model->resident_weight_bytes()},
                   {"max_position_embeddings", info.max_position_embeddings},
                   {"numeric_class", session.engine->numeric_class()}};
  json["results"] = Json::array();
  for (const Figure& figure : figures) json["results"].push_back(FigureJson(figure, session.engine->threads()));
  return json;
}

// What the tests ended with: the first limit that is not known, even measured again, or share of more than 100 %. Limits that rose
// since a figure was held against them give it lower shares.
Result<void> CheckAll(MachineLimits& limits, Engine& engine, std::vector<Figure>& figures) {
  constexpr int kTries = 3;
  for (int i = 0; i < kTries && !CheckLimits(limits).ok(); ++i)
    TIDEMILL_TRY_VOID(MeasureLimits(engine, WhichLimits::kUnknown, limits));
  for (Figure& figure : figures) {
    for (const Limit limit : kLimits) {
      LimitRate& held = figure.limits.of(limit);
      if (limits.all.of(limit).best() > held.best()) held = limits.all.of(limit);
    }
    figure.Share();
    TIDEMILL_TRY_VOID(CheckShare(figure.name(), figure.shares, figure.limits));
  }
  TIDEMILL_TRY_VOID(CheckLimits(limits).WithContext("bench"));
  // Those of fewer bytes than the machine's read limit was measured on have one of their own.
  for (const Figure& figure : figures)
    TIDEMILL_TRY_VOID(
        CheckLimit(Limit::kRead, figure.limits.threads, figure.limits.of(Limit::kRead)).WithContext("bench"));
  return {};
}

}  // namespace

Result<void> BenchCommand(CommandContext& context) {
  BenchFlags flags;
  FlagSet set("bench", "Speed of prefill and decode beside the limits of the machine");
  AddFlags(set, flags);
  TIDEMILL_TRY(go_on, set.Parse(context));
  if (!go_on) return {};
  if (!flags.model) return UsageError("MODEL", "expected a model file, found none");
  TIDEMILL_TRY(options, flags.machine.engine_options());
  options.max_batch = std::max(options.max_batch, *std::max_element(flags.batch.begin(), flags.batch.end()));
  LoadOptions load = flags.machine.load_options();
  load.text = false;
  TIDEMILL_TRY(session, OpenSession(*flags.model, std::move(load), options, context));
  Engine& engine = *session.engine;
  MachineLimits limits;
  TIDEMILL_TRY_VOID(MeasureLimits(engine, WhichLimits::kAll, limits));
  const std::string limits_before = LimitsText(limits, flags.verbose);
  if (!flags.json) TIDEMILL_TRY_VOID(context.out.Write(Header(session) + limits_before + "\n" + kColumns));
  std::vector<Figure> figures;
  for (const BenchTest& test : TestsOf(flags, engine)) {
    TIDEMILL_TRY(figure, Measure(engine, test));
    TIDEMILL_TRY_VOID(HoldAgainst(limits, engine, figure));
    if (!flags.json) TIDEMILL_TRY_VOID(context.out.Write(Row(figure) + (flags.verbose ? WorkLine(figure) : "")));
    figures.push_back(std::move(figure));
  }
  // What was measured is printed whatever the check says.
  const Result<void> checked = CheckAll(limits, engine, figures);
  const auto is_beyond = [](const Figure& figure) { return figure.result.beyond_context; };
  std::string end;
  if (flags.json) {
    end = JsonLine(SummaryJson(session, limits, figures));
  } else {
    if (std::any_of(figures.begin(), figures.end(), is_beyond)) end += "* past the model's context size\n";
    const std::string limits_now = LimitsText(limits, flags.verbose);
    if (limits_now != limits_before) end += "\n" + limits_now;  // measured again
  }
  TIDEMILL_TRY_VOID(context.out.Write(end));
  return checked;
}

}  // namespace tidemill::cli
