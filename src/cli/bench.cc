// tidemill bench: speed of prefill and decode, beside what the machine could do at most.
#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/bench_child.h"
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
  std::vector<size_t> prompt_tokens = {512};
  std::vector<size_t> depth = {0};
  std::vector<size_t> batch = {1};
  std::optional<size_t> gen_tokens, repeat;
  std::optional<uint64_t> seed;
  bool json = false;
  bool child = false;
  MachineFlags machine;
};

void AddFlags(FlagSet& set, BenchFlags& flags) {
  constexpr size_t kMostTokens = size_t{1} << 22;
  set.OptionalPositional("MODEL", flags.model, "A .gguf file or a model folder");
  set.Numbers("--prompt-tokens", flags.prompt_tokens, 1, kMostTokens, "Prefill of this many tokens (512)");
  set.Number<size_t>("--gen-tokens", flags.gen_tokens, 1, kMostTokens, "Decode steps that are timed (64)");
  set.Numbers("--depth", flags.depth, 0, kMostTokens,
              "Decode behind this many positions (0); past the model's context it runs and is marked");
  set.Numbers("--batch", flags.batch, 1, 1024, "Decode of this many sequences together, at each depth (1)");
  set.Number<size_t>("--repeat", flags.repeat, 1, 1000, "Times that each test is run (3)");
  set.Number<uint64_t>("--seed", flags.seed, 0, ~uint64_t{0}, "Of the random tokens (0)");
  set.Switch("--json", flags.json, "One JSON object");
  set.Switch("--child", flags.child,
             "Settings as a JSON object on standard input, MODEL among them; one JSON object back");
  flags.machine.AddTo(set);
}

std::vector<BenchTest> TestsOf(const BenchFlags& flags) {
  std::vector<BenchTest> tests;
  BenchTest test;
  test.gen_tokens = flags.gen_tokens.value_or(test.gen_tokens);
  test.repeat = flags.repeat.value_or(test.repeat);
  test.seed = flags.seed.value_or(0);
  for (const size_t prompt_tokens : flags.prompt_tokens) {
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

Spread SpreadOf(const BenchResult& result) {
  std::vector<double> rates;
  for (const BenchSample& sample : result.samples) rates.push_back(sample.tokens_per_s);
  if (rates.empty()) return {};
  std::sort(rates.begin(), rates.end());
  const size_t half = rates.size() / 2;
  const double median = rates.size() % 2 == 1 ? rates[half] : (rates[half - 1] + rates[half]) / 2;
  return {rates.front(), median, rates.back()};
}

// A share of 0 stands for one that is not known.
std::string Percent(double share) {
  if (share <= 0) return "-";
  char text[32];
  std::snprintf(text, sizeof text, "%.0f %%", share * 100);
  return text;
}

std::string Header(const Session& session, const MachineLimits& limits) {
  const ModelInfo& info = session.model->info();
  char text[256];
  std::snprintf(text, sizeof text,
                "limits   read %.1f GB/s, int8 %.0f Gop/s, f32 %.0f Gflop/s (measured with these threads)\n",
                limits.read_gb_per_s, limits.int8_gops, limits.f32_gflops);
  return "machine  " + Printable(ReadCpuInfo().name) + ", " + std::to_string(session.engine->threads()) + " threads, " +
         session.engine->isa() + ", numeric class " + session.engine->numeric_class() + "\n" + text + "model    " +
         Printable(info.path) + ", " + info.family + "\n\n" +
         "test      prompt   depth  batch    gen   tokens/s       min       max  bandwidth  arithmetic  peak MiB\n";
}

std::string Row(const BenchResult& result) {
  const Spread rate = SpreadOf(result);
  const bool is_prefill = result.test == "prefill";
  const auto cell = [](size_t value, bool is_there) { return is_there ? std::to_string(value) : std::string("-"); };
  char text[256];
  std::snprintf(text, sizeof text, "%-8s %7s %7s %6zu %6s %10.1f %9.1f %9.1f %10s %11s %9.0f%s\n",
                is_prefill ? "prefill" : "decode", cell(result.prompt_tokens, is_prefill).c_str(),
                cell(result.depth, !is_prefill).c_str(), result.batch, cell(result.gen_tokens, !is_prefill).c_str(),
                rate.median, rate.min, rate.max, Percent(result.bandwidth_share).c_str(),
                Percent(result.arithmetic_share).c_str(), static_cast<double>(result.peak_rss_bytes) / (1 << 20),
                result.beyond_context ? "  past the model's context" : "");
  return text;
}

Json ResultJson(const BenchResult& result, size_t threads) {
  const Spread rate = SpreadOf(result);
  return {{"test", result.test == "prefill" ? "prefill" : "decode"},
          {"threads", threads},
          {"batch", result.batch},
          {"depth", result.depth},
          {"prompt_tokens", result.prompt_tokens},
          {"gen_tokens", result.gen_tokens},
          {"tokens_per_s", {{"min", rate.min}, {"median", rate.median}, {"max", rate.max}}},
          {"weight_bytes_per_token", result.weight_bytes_per_token},
          {"state_bytes_per_token", result.state_bytes_per_token},
          {"bandwidth_share", result.bandwidth_share},
          {"arithmetic_share", result.arithmetic_share},
          {"peak_rss_bytes", result.peak_rss_bytes},
          {"beyond_context", result.beyond_context}};
}

Json SummaryJson(const Session& session, const MachineLimits& limits, const std::vector<BenchResult>& results) {
  const ModelInfo& info = session.model->info();
  Json json;
  json["machine"] = {{"cpu", ReadCpuInfo().name},     {"threads", session.engine->threads()},
                     {"isa", session.engine->isa()},  {"read_gb_per_s", limits.read_gb_per_s},
                     {"int8_gops", limits.int8_gops}, {"f32_gflops", limits.f32_gflops}};
  json["model"] = {{"path", info.path},
                   {"family", info.family},
                   {"parameters", info.parameters},
                   {"file_bytes", info.file_bytes},
                   {"resident_weight_bytes", session.model->resident_weight_bytes()},
                   {"max_position_embeddings", info.max_position_embeddings},
                   {"numeric_class", session.engine->numeric_class()}};
  json["results"] = Json::array();
  for (const BenchResult& result : results) json["results"].push_back(ResultJson(result, session.engine->threads()));
  return json;
}

}  // namespace

Result<void> BenchCommand(CommandContext& context) {
  BenchFlags flags;
  FlagSet set("bench", "Speed of prefill and decode beside the limits of the machine");
  AddFlags(set, flags);
  TIDEMILL_TRY(go_on, set.Parse(context));
  if (!go_on) return {};
  if (flags.child) {
    if (flags.model)
      return UsageError("MODEL", "expected none, since --child reads it from standard input; leave it out");
    return RunBenchChild(context);
  }
  if (!flags.model) return UsageError("MODEL", "expected a model file, found none");
  TIDEMILL_TRY(options, flags.machine.engine_options());
  options.max_batch = std::max(options.max_batch, *std::max_element(flags.batch.begin(), flags.batch.end()));
  TIDEMILL_TRY(session, OpenSession(*flags.model, flags.machine.load_options(), options, context));
  TIDEMILL_TRY(limits, MeasureLimits(*session.engine));
  if (!flags.json) TIDEMILL_TRY_VOID(context.out.Write(Header(session, limits)));
  std::vector<BenchResult> results;
  for (const BenchTest& test : TestsOf(flags)) {
    TIDEMILL_TRY(result, RunBench(*session.engine, test, limits));
    if (!flags.json) TIDEMILL_TRY_VOID(context.out.Write(Row(result)));
    results.push_back(std::move(result));
  }
  if (!flags.json) return {};
  return context.out.Write(JsonLine(SummaryJson(session, limits, results)));
}

}  // namespace tidemill::cli
