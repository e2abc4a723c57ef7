// tidemill plan: what the engine chooses for a model on this machine, what that costs, and why.
#include "tidemill/plan.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "cli/command.h"
#include "cli/cpu_info.h"
#include "cli/errors.h"
#include "cli/flag_groups.h"
#include "cli/flags.h"
#include "cli/json.h"
#include "cli/profile_path.h"
#include "cli/session.h"

namespace tidemill::cli {
namespace {

struct PlanFlags {
  std::string model;
  std::optional<size_t> batch;
  bool recalibrate = false;
  bool json = false;
  DraftFlags draft;
  MachineFlags machine;
};

Json AlternativeJson(const Alternative& alternative) {
  return {{"value", alternative.value}, {"cost", alternative.cost}};
}

Json DraftsJson(const PredictedDrafts& drafts) {
  Json steps = Json::array(), widths = Json::array();
  for (const PredictedDrafts::Step& step : drafts.steps) {
    steps.push_back({{"guesses", step.guesses},
                     {"rows", step.guesses + 1},
                     {"seconds", step.seconds},
                     {"break_even", step.break_even ? Json(*step.break_even) : Json(nullptr)}});
  }
  for (const PredictedDrafts::Width& width : drafts.widths)
    widths.push_back({{"right", width.share}, {"guesses", width.guesses}, {"seconds_per_token", width.seconds}});
  return {{"planned", drafts.is_planned},
          {"guess_seconds", drafts.guess_seconds},
          {"all_at_once", drafts.all_at_once},
          {"reading_seconds", drafts.reading_seconds},
          {"least_answer", drafts.least_answer ? Json(*drafts.least_answer) : Json(nullptr)},
          {"steps", std::move(steps)},
          {"widths", std::move(widths)}};
}

Json PlanJson(const Plan& plan, const ModelInfo& model) {
  Json json;
  json["machine"] = {{"cpu", plan.profile.cpu},       {"isa", plan.profile.isa},   {"threads", plan.profile.threads},
                     {"source", plan.profile.source}, {"date", plan.profile.date}, {"measured", plan.profile.measured}};
  json["model"] = {{"path", model.path}, {"family", model.family}};
  json["context"] = plan.context;
  json["batch"] = plan.batch;
  json["state_bytes_per_position"] = plan.state_row_bytes;
  json["state_memory_bytes"] = plan.state_memory_bytes;
  json["choices"] = Json::array();
  for (const Choice& choice : plan.choices) {
    json["choices"].push_back({{"name", choice.name},
                               {"chosen", AlternativeJson(choice.chosen)},
                               {"runner_up", choice.runner_up ? AlternativeJson(*choice.runner_up) : Json(nullptr)},
                               {"unit", "seconds"},
                               {"of", choice.of},
                               {"reason", choice.reason}});
  }
  json["predicted"]["decode"] = Json::array();
  for (const PredictedDecode& step : plan.decode) {
    json["predicted"]["decode"].push_back({{"depth", step.depth},
                                           {"seconds", step.seconds},
                                           {"tokens_per_s", static_cast<double>(plan.batch) / step.seconds}});
  }
  json["predicted"]["prefill"] = {{"tokens", plan.context},
                                  {"seconds", plan.prefill_seconds},
                                  {"tokens_per_s", static_cast<double>(plan.context) / plan.prefill_seconds}};
  json["drafts"] = DraftsJson(plan.drafts);
  json["warnings"] = plan.warnings;
  return json;
}

Result<Plan> MakeShowingProgress(Engine& engine, PlanOptions& options, Messages& messages) {
  ProgressBar bar(messages, "measuring this machine");
  options.progress = [&bar](double part) { bar.Show(part); };
  return MakePlan(engine, options);
}

}  // namespace

Result<void> PlanCommand(CommandContext& context) {
  PlanFlags flags;
  FlagSet set("plan", "What the engine chooses for a model on this machine, what it costs, and why");
  set.Positional("MODEL", flags.model, "A .gguf file or a model folder");
  set.Number<size_t>("--batch", flags.batch, 1, 1024, "Sequences that run together (1)");
  set.Switch("--recalibrate", flags.recalibrate, "Measure the machine again");
  set.Switch("--json", flags.json, "One JSON object");
  flags.draft.AddSourceTo(set);
  set.Removed("--draft-tree", "trees are an option of run and chat, which plan does not predict; leave it out");
  flags.machine.AddTo(set);
  flags.machine.AddSharingTo(set);
  TIDEMILL_TRY(go_on, set.Parse(context));
  if (!go_on) return {};
  TIDEMILL_TRY_VOID(flags.draft.Check());
  PlanOptions options{.batch = flags.batch.value_or(1)};
  options.recalibrate = flags.recalibrate;
  options.cpu = ReadCpuInfo().name;
  options.profile_path = ProfilePath();
  if (flags.draft.source) options.draft = flags.draft.options();
  TIDEMILL_TRY(engine_options, flags.machine.engine_options());
  engine_options.max_batch = std::max(engine_options.max_batch, options.batch);
  LoadOptions load = flags.machine.load_options();
  load.weights = WeightStorage::kMapped;  // a plan needs their shapes only
  TIDEMILL_TRY(session, OpenSession(flags.model, std::move(load), engine_options, flags.draft, context));
  TIDEMILL_TRY(plan, MakeShowingProgress(*session.engine, options, context.messages));
  for (const std::string& warning : plan.warnings) context.messages.Warning(warning);
  if (flags.json) return context.out.Write(JsonLine(PlanJson(plan, session.model->info())));
  for (std::string* text : {&plan.profile.cpu, &plan.profile.source, &plan.profile.date})
    *text = Printable(*text);  // a file said so
  return context.out.Write(PlanText(plan));
}

}  // namespace tidemill::cli
