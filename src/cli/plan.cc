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
  bool verbose = false;
  DraftFlags draft;
  MachineFlags machine;
};

Json AlternativeJson(const Alternative& alternative) {
  return {{"value", alternative.value}, {"cost", alternative.cost}};
}

Json ChoiceJson(const Choice& choice) {
  return {{"name", choice.name},
          {"chosen", AlternativeJson(choice.chosen)},
          {"alternative", choice.runner_up ? AlternativeJson(*choice.runner_up) : Json(nullptr)},
          {"option", choice.option},
          {"unit", "seconds"},
          {"of", choice.of},
          {"reason", choice.reason}};
}

template <typename T>
Json OrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json MemoryJson(const PlannedMemory& memory) {
  return {{"weight_bytes", memory.weights},
          {"kv_cache_bytes", memory.kv_cache},
          {"unused_capacity_bytes", memory.unused_capacity},
          {"work_bytes", memory.work},
          {"total_bytes", memory.total()},
          {"free_bytes", OrNull(memory.free)},
          {"fits", OrNull(memory.fits())}};
}

Json DraftsJson(const PredictedDrafts& drafts) {
  Json steps = Json::array(), best = Json::array();
  for (const PredictedDrafts::Step& step : drafts.steps) {
    steps.push_back({{"num_draft_tokens", step.num_draft_tokens},
                     {"rows", step.num_draft_tokens + 1},
                     {"seconds", step.seconds},
                     {"break_even_acceptance_rate", OrNull(step.break_even)}});
  }
  for (const PredictedDrafts::Best& one : drafts.best) {
    best.push_back({{"acceptance_rate", one.acceptance_rate},
                    {"num_draft_tokens", one.num_draft_tokens},
                    {"seconds_per_token", one.seconds}});
  }
  return {{"planned", drafts.is_planned},
          {"draft_seconds", drafts.draft_token_seconds},
          {"all_at_once", drafts.all_at_once},
          {"draft_prefill_seconds", drafts.draft_prefill_seconds},
          {"min_answer_tokens", OrNull(drafts.min_answer_tokens)},
          {"steps", std::move(steps)},
          {"best", std::move(best)}};
}

Json SegmentsJson(const PredictedSegments& segments) {
  Json orders = Json::array();
  for (const PredictedSegments::Order& order : segments.orders) {
    orders.push_back({{"name", order.name},
                      {"segment_seconds", order.segment_seconds},
                      {"prompt_seconds", order.prompt_seconds},
                      {"tokens_per_s", static_cast<double>(segments.prompt_tokens) / order.prompt_seconds},
                      {"buffer_bytes", order.buffer_bytes}});
  }
  return {{"segment_tokens", segments.segment_tokens},
          {"memory_tokens", segments.memory_tokens},
          {"prompt_tokens", segments.prompt_tokens},
          {"whole_segments", segments.whole_segments},
          {"memory_bytes", segments.memory_bytes},
          {"tail_bytes", segments.tail_bytes},
          {"wave_segments", segments.wave_segments},
          {"orders", std::move(orders)},
          {"chosen", segments.chosen},
          {"reason", segments.reason},
          {"note", segments.note}};
}

Json PlanJson(const Plan& plan, const ModelInfo& model) {
  const auto batch = static_cast<double>(plan.batch), context = static_cast<double>(plan.context);
  Json json;
  json["machine"] = {{"cpu", plan.profile.cpu},       {"isa", plan.profile.isa},   {"threads", plan.profile.threads},
                     {"source", plan.profile.source}, {"date", plan.profile.date}, {"measured", plan.profile.measured}};
  json["model"] = {{"path", model.path}, {"family", model.family}};
  json["context_size"] = plan.context;
  json["batch"] = plan.batch;
  json["state_bytes_per_token"] = plan.state_row_bytes;
  json["state_memory_bytes"] = plan.state_memory_bytes;
  json["memory"] = MemoryJson(plan.memory);
  json["choices"] = Json::array();
  for (const Choice& choice : plan.choices) json["choices"].push_back(ChoiceJson(choice));
  json["predicted"]["decode"] = Json::array();
  for (const PredictedDecode& step : plan.decode) {
    json["predicted"]["decode"].push_back(
        {{"depth", step.depth}, {"seconds", step.seconds}, {"tokens_per_s", batch / step.seconds}});
  }
  json["predicted"]["prefill"] = {
      {"tokens", plan.context}, {"seconds", plan.prefill_seconds}, {"tokens_per_s", context / plan.prefill_seconds}};
  json["drafts"] = DraftsJson(plan.drafts);
  json["segments"] = plan.segments ? SegmentsJson(*plan.segments) : Json(nullptr);
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
  set.Switch("--verbose", flags.verbose, "Also why each choice was made, and what draft tokens cost");
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
  load.text =
      flags.draft.source == DraftSource::kModel && !flags.draft.model.empty();  // whose vocabularies are compared
  options.weights = std::exchange(load.weights, WeightStorage::kMapped);        // a plan needs their shapes only
  TIDEMILL_TRY(session, OpenSession(flags.model, std::move(load), engine_options, flags.draft, context));
  TIDEMILL_TRY(plan, MakeShowingProgress(*session.engine, options, context.messages));
  for (const std::string& warning : plan.warnings) context.messages.Warning(warning);
  if (flags.json) return context.out.Write(JsonLine(PlanJson(plan, session.model->info())));
  for (std::string* text : {&plan.profile.cpu, &plan.profile.source, &plan.profile.date})
    *text = Printable(*text);  // a file said so
  return context.out.Write(PlanText(plan, flags.verbose));
}

}  // namespace tidemill::cli
