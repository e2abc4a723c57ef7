#include <algorithm>
#include <cstdio>
#include <string>

#include "planner/plan.h"

namespace tidemill {
namespace {

constexpr size_t kIndent = 20;

std::string Scaled(double value, double unit, const char* name) {
  char text[64];
  const double scaled = value / unit;
  const int digits = scaled >= 99.95 ? 0 : scaled >= 9.995 ? 1 : 2;
  std::snprintf(text, sizeof text, "%.*f %s", digits, scaled, name);
  return text;
}

std::string Line(std::string name, const std::string& text) {
  name.resize(std::max(name.size() + 1, kIndent), ' ');
  return name + text + "\n";
}

std::string DraftText(const PredictedDrafts& drafts) {
  if (drafts.steps.empty()) return "";
  std::string text =
      Line("drafts", drafts.guess_seconds == 0 ? "a guess takes no step of its own, as of prompt lookup"
                     : drafts.all_at_once      ? "all guesses take " + SecondsText(drafts.guess_seconds) + " together"
                                               : "a guess takes " + SecondsText(drafts.guess_seconds));
  if (drafts.reading_seconds > 0) {
    text += Line("", "half the context is read in " + SecondsText(drafts.reading_seconds) + ": " +
                         (drafts.least_answer ? "answers of at least " + std::to_string(*drafts.least_answer) +
                                                    " tokens can make up for that if nearly all guesses are right"
                                              : "no answer can make up for that"));
  }
  char line[160];
  for (const PredictedDrafts::Step& step : drafts.steps) {
    std::snprintf(line, sizeof line, "%zu %s: %s a step", step.guesses + 1, step.guesses == 0 ? "row" : "rows",
                  SecondsText(step.seconds).c_str());
    std::string row = line;
    if (step.break_even) {
      std::snprintf(line, sizeof line, ", pays where %.1f %% of the guesses are right", 100 * *step.break_even);
      row += line;
    } else if (step.guesses != 0) {
      row += ", never pays";
    }
    text += Line("", row);
  }
  for (const PredictedDrafts::Width& width : drafts.widths) {
    std::snprintf(line, sizeof line, "%.0f %% right: %zu %s, %s a token", 100 * width.share, width.guesses,
                  width.guesses == 1 ? "guess" : "guesses", SecondsText(width.seconds).c_str());
    text += Line("", line);
  }
  return text;
}

}  // namespace

std::string SecondsText(double seconds) {
  if (seconds >= 0.9995) return Scaled(seconds, 1, "s");
  if (seconds >= 0.9995e-3) return Scaled(seconds, 1e-3, "ms");
  if (seconds >= 0.9995e-6) return Scaled(seconds, 1e-6, "us");
  return Scaled(seconds, 1e-9, "ns");
}

std::string BytesText(double bytes) {
  if (bytes >= 0.9995e9) return Scaled(bytes, 1e9, "GB");
  if (bytes >= 0.9995e6) return Scaled(bytes, 1e6, "MB");
  if (bytes >= 0.9995e3) return Scaled(bytes, 1e3, "kB");
  return std::to_string(static_cast<long long>(bytes)) + " B";
}

std::string PlanText(const Plan& plan) {
  const ProfileInfo& profile = plan.profile;
  std::string text = Line("machine", profile.cpu + ", " + std::to_string(profile.threads) +
                                         (profile.threads == 1 ? " thread, " : " threads, ") + profile.isa);
  text += Line("numbers", profile.source + ", " + profile.date);
  text += Line("asked for", "context " + std::to_string(plan.context) + ", batch " + std::to_string(plan.batch) + ", " +
                                BytesText(static_cast<double>(plan.state_memory_bytes)) + " of state memory, " +
                                BytesText(static_cast<double>(plan.state_row_bytes)) + " of state a position");
  text += "\n";
  for (const Choice& choice : plan.choices) {
    std::string line = choice.chosen.value + ": " + SecondsText(choice.chosen.cost);
    if (choice.runner_up) line += "; runner-up " + choice.runner_up->value + ": " + SecondsText(choice.runner_up->cost);
    text += Line(choice.name, line);
    text += Line("", "cost of " + choice.of);
    text += Line("", choice.reason);
  }
  text += "\n";
  for (const PredictedDecode& step : plan.decode) {
    text += Line(&step == &plan.decode.front() ? "predicted" : "",
                 "decode at depth " + std::to_string(step.depth) + ": " + SecondsText(step.seconds) + " a step, " +
                     Scaled(static_cast<double>(plan.batch) / step.seconds, 1, "tokens/s"));
  }
  text += Line("", "prefill of " + std::to_string(plan.context) + " tokens: " + SecondsText(plan.prefill_seconds) +
                       ", " + Scaled(static_cast<double>(plan.context) / plan.prefill_seconds, 1, "tokens/s"));
  return text + DraftText(plan.drafts);
}

}  // namespace tidemill
