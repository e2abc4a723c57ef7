#include "cli/eval_calibration.h"

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <utility>
#include <vector>

#include "cli/files.h"
#include "cli/json.h"
#include "cli/messages.h"

namespace tidemill::cli {
namespace {

constexpr char kDoing[] = "write the floors of attention";

// The shortest number in decimals that is read as this float.
Json Shares(const std::vector<float>& shares) {
  Json list = Json::array();
  for (const float share : shares) list.push_back(std::round(static_cast<double>(share) * 1000) / 1000);
  return list;
}

template <typename T>
Json List(const std::vector<T>& numbers) {
  Json list = Json::array();
  for (const T number : numbers) list.push_back(number);
  return list;
}

std::string Hexadecimal(uint64_t number) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(number));
  return text;
}

Json FileJson(const EvalCalibration& made, const CalibrationRun& run, const Session& session,
              const EvalOptions& options) {
  const FloorOrigin& origin = *made.floors.origin;
  return {{"model", std::filesystem::path(session.model->info().path).filename().string()},
          {"model_hash", Hexadecimal(origin.model)},
          {"attention",
           {{"kind", AttentionKindName(AttentionKind::kSparq)},
            {"r", origin.r},
            {"k", origin.k},
            {"local", origin.local},
            {"rule", origin.rule == SparqRule::kEval ? "eval" : "paper"},
            {"mean", origin.reallocate}}},
          {"max_error", run.max_error},
          {"context_tokens", List(options.context_tokens)},
          {"seed", options.seed},
          {"rows", List(made.rows)},
          {"correlation", List(made.correlations)},
          {"floors", Shares(made.floors.alphas)},
          {"dense_share", Shares(made.floors.dense_shares)},
          {"error", List(made.errors)}};
}

std::string Table(const EvalCalibration& made) {
  std::string text = "layer    rows  floor  dense  error  correlation\n";
  for (size_t i = 0; i < made.floors.alphas.size(); ++i) {
    char line[96];
    std::snprintf(line, sizeof line, "%5zu%8zu%7.3f%7.3f%7.3f%13.3f\n", i, made.rows[i],
                  static_cast<double>(made.floors.alphas[i]), static_cast<double>(made.floors.dense_shares[i]),
                  made.errors[i], made.correlations[i]);
    text += line;
  }
  return text;
}

// What CalibrateFloors has to do.
std::string WorkText(const EvalOptions& options) {
  const size_t of_length = 2 * options.tasks.size() * options.contexts;
  size_t contexts = 0, tokens = 0;
  for (const size_t length : options.context_tokens) {
    contexts += of_length;
    tokens += of_length * length;
  }
  return "calibrating reads " + std::to_string(contexts) + " contexts of " + std::to_string(tokens) +
         " tokens together, and at most " + std::to_string(contexts * options.questions) + " answers of " +
         std::to_string(options.answer_tokens) +
         " tokens, each compared with dense attention; fewer --tasks, --contexts or --context-tokens take less time";
}

}  // namespace

Result<void> Calibrate(const CalibrationRun& run, const Session& session, const EvalOptions& options,
                       const std::atomic<bool>& interrupt, CommandContext& context) {
  TIDEMILL_TRY(file, OutputFile::Create(kDoing, run.path, context.out));
  EvalCalibration made;
  {
    ProgressBar bar(context.messages, "calibrating");
    ProgressLines lines(context.messages, "calibrating", "contexts");
    const auto show = [&](size_t done, size_t all) {
      if (done == 0) context.messages.Note(WorkText(options));
      bar.Show(static_cast<double>(done) / static_cast<double>(all));
      lines.Show(done, all);
    };
    TIDEMILL_TRY(found, CalibrateFloors(*session.engine, *session.model, options, run.max_error, show, &interrupt));
    made = std::move(found);
  }
  const std::string line = JsonLine(FileJson(made, run, session, options));
  TIDEMILL_TRY_VOID(file->Write(line));
  TIDEMILL_TRY_VOID(file->Commit());
  return context.out.Write(run.json ? line : Table(made));
}

}  // namespace tidemill::cli
