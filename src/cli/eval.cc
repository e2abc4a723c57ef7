// tidemill eval: what sparse attention costs in quality.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "cli/errors.h"
#include "cli/eval_calibration.h"
#include "cli/eval_file.h"
#include "cli/files.h"
#include "cli/flag_groups.h"
#include "cli/flags.h"
#include "cli/json.h"
#include "cli/numbers.h"
#include "cli/session.h"
#include "cli/text_source.h"
#include "tidemill/eval.h"

namespace tidemill::cli {
namespace {

struct EvalFlags {
  std::string model;
  std::vector<EvalTask> tasks;
  std::vector<size_t> context_tokens = {1024};
  std::vector<size_t> compressions = {2, 8};
  std::optional<std::string> policies, sparse_from, out;
  TextSource text;
  std::optional<size_t> contexts, questions, answer_tokens, audit;
  std::optional<std::string> calibrate;
  std::optional<double> max_error;
  std::optional<uint64_t> seed;
  bool quick = false, json = false;
  MachineFlags machine;
};

// Calls `take` with each part between commas; the first text that it returns ends it.
template <typename Take>
std::string ForEachPart(std::string_view list, const Take& take) {
  for (size_t begin = 0; begin <= list.size();) {
    const std::string_view part = list.substr(begin, list.find(',', begin) - begin);
    begin += part.size() + 1;
    if (std::string expected = take(part); !expected.empty()) return expected;
  }
  return {};
}

std::string ReadTasks(std::string_view list, std::vector<EvalTask>* tasks) {
  return ForEachPart(list, [&](std::string_view name) -> std::string {
    const auto task = ParseEvalTask(name);
    if (task.ok() && std::find(tasks->begin(), tasks->end(), *task) == tasks->end()) {
      tasks->push_back(*task);
      return {};
    }
    std::string all;
    for (const EvalTask own : kEvalTasks) all += " " + std::string(EvalTaskName(own));
    return "names with commas between, each once, of" + all;
  });
}

std::string ReadCompressions(std::string_view list, std::vector<size_t>* compressions) {
  compressions->clear();
  return ForEachPart(list, [&](std::string_view part) -> std::string {
    const auto value = part.starts_with("1/") ? ParseNumber<size_t>(part.substr(2)) : std::nullopt;
    if (!value || *value < 2 || *value > 1024) return "shares from 1/2 to 1/1024 with commas between";
    compressions->push_back(*value);
    return {};
  });
}

void AddFlags(FlagSet& set, EvalFlags& flags) {
  constexpr size_t kMaxTokens = size_t{1} << 22, kMaxCount = 100000;
  set.Positional("MODEL", flags.model, "A .gguf file or a model folder");
  set.Value("--tasks", "TASK,...",
            "repetition passkey codes choice notes functions bpc (all but functions; bpc with -f only)",
            [&](const std::string& text) { return ReadTasks(text, &flags.tasks); });
  set.Numbers("--context-tokens", flags.context_tokens, 1, kMaxTokens, "Tokens of a context (1024)");
  set.Number<size_t>("--contexts", flags.contexts, 1, kMaxCount, "Contexts of each task and length (8)");
  set.Number<size_t>("--questions", flags.questions, 1, kMaxCount, "Questions of a context, at most (4)");
  set.Number<size_t>("--answer-tokens", flags.answer_tokens, 8, 4096, "Tokens of an answer, at most (64)");
  set.Text("--policies", flags.policies, "POLICY,...",
           "dense sparq topk h2o window, as sparq:1/8, sparq:r=16:k=128 or h2o:k=64 (dense,sparq,topk,h2o,window)");
  set.Value("--compression", "1/N,...",
            "Of policies that do not say it: attention reads this share of the bytes (1/2,1/8)",
            [&](const std::string& text) { return ReadCompressions(text, &flags.compressions); });
  set.Choice("--sparse-from", flags.sparse_from, {"answer", "question"},
             "What is read sparsely, with all behind it (answer)");
  flags.text.AddTo(set, false);
  set.Number<uint64_t>("--seed", flags.seed, 0, ~uint64_t{0}, "Of contexts and questions (0)");
  set.Text("--out", flags.out, "FILE",
           "Append records as JSON lines; what is in the file already is not computed again");
  set.Switch("--quick", flags.quick,
             "4 contexts of each task and 2 questions of a context, where nothing else is said");
  set.Number<size_t>("--audit", flags.audit, 1, kMaxTokens,
                     "Of sparq and topk: compare each Nth position with dense attention (none)");
  set.Text("--calibrate", flags.calibrate, "FILE",
           "Fit floors for one sparq policy (r an eighth of a head, k 128), for --attention-floor FILE");
  set.Number<double>("--max-error", flags.max_error, 0, 1,
                     "Relative error of a layer's attention that --calibrate allows in the mean (0.1)");
  set.Switch("--json", flags.json, "One JSON object");
  set.Excludes("--calibrate", "--out");
  set.Excludes("--calibrate", "--audit");
  set.Needs("--max-error", "--calibrate");
  flags.machine.AddWithoutAttentionTo(set);
}

Result<EvalOptions> OptionsOf(const EvalFlags& flags, std::string_view text) {
  EvalOptions options;
  options.tasks = flags.tasks;
  if (options.tasks.empty()) {
    for (const EvalTask task : kEvalTasks) {
      if (task != EvalTask::kFunctions && (task != EvalTask::kBpc || !text.empty())) options.tasks.push_back(task);
    }
  }
  options.context_tokens = flags.context_tokens;
  options.contexts = flags.contexts.value_or(flags.quick ? 4 : 8);
  options.questions = flags.questions.value_or(flags.quick ? 2 : 4);
  options.answer_tokens = flags.answer_tokens.value_or(options.answer_tokens);
  const std::string all = flags.calibrate ? "dense" : "dense,sparq,topk,h2o,window";
  TIDEMILL_TRY(policies, ParseEvalPolicies(flags.policies.value_or(all), flags.compressions));
  options.policies = std::move(policies);
  options.text = text;
  options.seed = flags.seed.value_or(0);
  options.sparse_question = flags.sparse_from == "question";
  options.audit = flags.audit.value_or(0);
  return options;
}

// FNV-1a, which tells one text from another.
uint64_t HashOf(std::string_view text) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return hash;
}

// All that records depend on beside their keys.
Json EvalHeader(const Session& session, const EvalOptions& options) {
  const ModelInfo& info = session.model->info();
  return {{"eval", 1},
          {"family", info.family},
          {"parameters", info.parameters},
          {"file_bytes", info.file_bytes},
          {"numeric_class", session.engine->numeric_class()},
          {"text", HashOf(options.text)},
          {"seed", options.seed},
          {"answer_tokens", options.answer_tokens},
          {"sparse_from", options.sparse_question ? "question" : "answer"},
          {"audit", options.audit}};
}

// Of the records that were asked for; a file may have more.
std::vector<EvalRow> RowsOf(const EvalFile& file, const EvalOptions& options) {
  std::set<std::string> names;
  for (const EvalPolicy& policy : options.policies) names.insert(policy.name());
  const auto has = [](const auto& list, const auto& value) {
    return std::find(list.begin(), list.end(), value) != list.end();
  };
  std::vector<EvalRecord> records;
  for (const EvalRecord& record : file.records()) {
    const EvalKey& key = record.key;
    if (has(options.tasks, key.task) && has(options.context_tokens, key.context_tokens) &&
        key.context < options.contexts && key.question < options.questions && names.contains(key.policy))
      records.push_back(record);
  }
  return SummarizeEval(records, options.seed);
}

std::string Fixed(double value, int decimals) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

// A row has at most 100 columns. `other`: characters before greedy decoding leaves the answer, ROUGE-L, or bits per character.
std::string Table(const std::vector<EvalRow>& rows) {
  std::string text = "task      tokens policy          bytes   n   nll     kl top-1 exact other alpha ratio to dense\n";
  for (const EvalRow& row : rows) {
    char line[256];
    std::string other = "-", alpha = "-";
    if (row.task == EvalTask::kRepetition) other = Fixed(row.matched_characters, 1);
    if (row.rouge_l) other = Fixed(*row.rouge_l, 3);
    if (row.bits_per_character) other = Fixed(*row.bits_per_character, 3);
    if (row.attention.alpha_estimate) alpha = Fixed(*row.attention.alpha_estimate, 3);
    std::snprintf(line, sizeof line, "%-10s%6zu %-16s%5.2f%4zu %5s %6s%6.3f%6.2f%6s%6s %.3f [%.3f, %.3f]\n",
                  std::string(EvalTaskName(row.task)).c_str(), row.context_tokens, row.policy.c_str(), row.bytes,
                  row.questions, Fixed(row.nll, row.nll < 10 ? 3 : 2).c_str(),
                  Fixed(row.kl, row.kl < 10 ? 4 : 3).c_str(), row.agreement, row.exact, other.c_str(), alpha.c_str(),
                  row.ratio, row.ratio_low, row.ratio_high);
    text += line;
  }
  return text;
}

// Of rows that were compared with dense attention; empty: none was.
std::string AuditTable(const std::vector<EvalRow>& rows) {
  std::string text;
  for (const EvalRow& row : rows) {
    const EvalAttention& attention = row.attention;
    if (attention.audits == 0) continue;
    if (text.empty()) text = "\ntask      tokens policy             audits  alpha   kept  error overlap\n";
    char line[256];
    std::snprintf(line, sizeof line, "%-10s%6zu %-16s%9zu%7.3f%7.3f%7.3f%8.3f\n",
                  std::string(EvalTaskName(row.task)).c_str(), row.context_tokens, row.policy.c_str(), attention.audits,
                  attention.alpha_estimate.value_or(0), attention.kept_mass, attention.error, attention.overlap);
    text += line;
  }
  return text;
}

Json RowJson(const EvalRow& row) {
  Json json = {{"task", EvalTaskName(row.task)},
               {"context_tokens", row.context_tokens},
               {"policy", row.policy},
               {"contexts", row.contexts},
               {"questions", row.questions},
               {"bytes", row.bytes},
               {"nll", row.nll},
               {"kl", row.kl},
               {"agreement", row.agreement},
               {"exact", row.exact},
               {"matched_characters", row.matched_characters},
               {"ratio", row.ratio},
               {"ratio_interval", {row.ratio_low, row.ratio_high}}};
  if (row.rouge_l) json["rouge_l"] = *row.rouge_l;
  if (row.bits_per_character) json["bits_per_character"] = *row.bits_per_character;
  AddAttention(row.attention, &json);
  return json;
}

}  // namespace

Result<void> EvalCommand(CommandContext& context) {
  EvalFlags flags;
  FlagSet set("eval", "What sparse attention costs in quality, beside dense attention on the same contexts");
  AddFlags(set, flags);
  TIDEMILL_TRY(go_on, set.Parse(context));
  if (!go_on) return {};
  std::string text;
  if (flags.text.file) {
    TIDEMILL_TRY(bytes, flags.text.Read("read the text", "give one with -f FILE"));
    text = std::move(bytes);
  }
  TIDEMILL_TRY(options, OptionsOf(flags, text));
  TIDEMILL_TRY(session, OpenSession(flags.model, flags.machine, context));
  std::atomic<bool> is_interrupted = false;
  const SignalWatch::Grace grace(context.signals, [&is_interrupted] { is_interrupted = true; });
  if (flags.calibrate) {
    const CalibrationRun run = {
        .path = *flags.calibrate, .max_error = flags.max_error.value_or(0.1), .json = flags.json};
    return Calibrate(run, session, options, is_interrupted, context);
  }
  const Json header = EvalHeader(session, options);
  TIDEMILL_TRY(file, flags.out ? EvalFile::Open(*flags.out, header) : Result<EvalFile>(EvalFile()));
  {
    ProgressBar progress(context.messages, "evaluating");
    const EvalCallbacks callbacks = {
        .is_done = [&](const EvalKey& key) { return file.Has(key); },
        .sink = [&](const EvalRecord& record) { return file.Append(record); },
        .progress = [&](size_t done,
                        size_t all) { progress.Show(static_cast<double>(done) / static_cast<double>(all)); }};
    TIDEMILL_TRY_VOID(Evaluate(*session.engine, *session.model, options, callbacks, &is_interrupted));
  }
  const std::vector<EvalRow> rows = RowsOf(file, options);
  if (!flags.json) return context.out.Write(Table(rows) + AuditTable(rows));
  Json object = header;
  object["rows"] = Json::array();
  for (const EvalRow& row : rows) object["rows"].push_back(RowJson(row));
  return context.out.Write(JsonLine(object));
}

}  // namespace tidemill::cli
