#include <algorithm>
#include <cstdio>
#include <string>

#include "planner/plan.h"

namespace tidemill {
namespace {

constexpr size_t kNameWidth = 18, kValueWidth = 15, kCostWidth = 10;

std::string Scaled(double value, double unit, const char* name) {
  char text[64];
  const double scaled = value / unit;
  const int digits = scaled >= 99.95 ? 0 : scaled >= 9.995 ? 1 : 2;
  std::snprintf(text, sizeof text, "%.*f %s", digits, scaled, name);
  return text;
}

std::string Padded(std::string text, size_t width) {
  text.resize(std::max(text.size() + 1, width), ' ');
  return text;
}

std::string Line(const std::string& name, const std::string& text) { return Padded(name, kNameWidth) + text + "\n"; }

std::string Bytes(uint64_t bytes) { return BytesText(static_cast<double>(bytes)); }

std::string MemoryText(const Plan& plan) {
  const PlannedMemory& memory = plan.memory;
  std::string line = "weights " + Bytes(memory.weights) + " + KV cache " + Bytes(memory.kv_cache) + " + work " +
                     Bytes(memory.work) + " = " + Bytes(memory.total());
  if (const auto fits = memory.fits())
    line += (*fits ? "; fits in " : "; does not fit in ") + Bytes(*memory.free) + " free";
  std::string text = Line("memory", line);
  if (memory.kv_cache > plan.state_memory_bytes) {
    text += Line(
        "", "the KV cache is larger than --state-memory, " + Bytes(plan.state_memory_bytes) + ": " +
                (memory.kv_cache / plan.batch > plan.state_memory_bytes ? "one sequence of this context size is refused"
                                                                        : "some sequences will wait"));
  }
  return text;
}

std::string SpeedText(const Plan& plan) {
  std::string line;
  for (const PredictedDecode& step : plan.decode) {
    const bool first = &step == &plan.decode.front();
    line += (first ? "" : ", ") +
            Scaled(static_cast<double>(plan.batch) / step.seconds, 1, first ? "tokens/s at depth " : "at ") +
            std::to_string(step.depth);
  }
  return Line("decode", line) +
         Line("prefill", Scaled(static_cast<double>(plan.context) / plan.prefill_seconds, 1, "tokens/s: ") +
                             std::to_string(plan.context) + " tokens in " + SecondsText(plan.prefill_seconds));
}

std::string ChoiceRow(const std::string& name, const std::string& chosen, const std::string& cost,
                      const std::string& other, const std::string& other_cost, const std::string& of) {
  return Padded(name, kNameWidth) + Padded(chosen, kValueWidth) + Padded(cost, kCostWidth) +
         Padded(other, kValueWidth) + Padded(other_cost, kCostWidth) + of + "\n";
}

std::string ChoicesText(const Plan& plan) {
  std::string text = ChoiceRow("choice", "chosen", "cost", "alternative", "cost", "cost is the time of"), cheaper;
  for (const Choice& choice : plan.choices) {
    text += ChoiceRow(choice.name, choice.chosen.value, SecondsText(choice.chosen.cost),
                      choice.runner_up ? choice.runner_up->value : "-",
                      choice.runner_up ? SecondsText(choice.runner_up->cost) : "-", choice.of);
    if (!choice.runner_up_is_cheaper()) continue;
    cheaper += choice.option + " would save " + SecondsText(choice.chosen.cost - choice.runner_up->cost) + "; " +
               choice.chosen.value + " is kept: " + choice.reason + "\n";
  }
  return text + cheaper;
}

std::string SegmentsText(const PredictedSegments& segments) {
  std::string text =
      "\n" + Line("segments", std::to_string(segments.segment_tokens) + " + " + std::to_string(segments.memory_tokens) +
                                  " memory tokens; a state keeps at any length " + Bytes(segments.memory_bytes) +
                                  " of memory and " + Bytes(segments.tail_bytes) + " of the segment at hand");
  char line[160];
  text += Line("", "order                 a segment  prompt tokens/s   buffers");
  for (const PredictedSegments::Order& order : segments.orders) {
    std::snprintf(
        line, sizeof line, "%-20s %10s  %15.1f  %8s", order.name.c_str(), SecondsText(order.segment_seconds).c_str(),
        static_cast<double>(segments.prompt_tokens) / order.prompt_seconds, Bytes(order.buffer_bytes).c_str());
    text += Line("", line);
  }
  text += Line("", segments.chosen +
                       (segments.wave_segments == 0
                            ? ", in steps: "
                            : ", at most " + std::to_string(segments.wave_segments) + " segments at a time: ") +
                       segments.reason);
  return text + Line("", segments.note);
}

std::string DraftText(const PredictedDrafts& drafts) {
  if (drafts.steps.empty()) return "";
  std::string text =
      "\n" + Line("draft tokens", drafts.draft_token_seconds == 0 ? "take no draft step, as of prompt lookup"
                                  : drafts.all_at_once
                                      ? "all of a step take " + SecondsText(drafts.draft_token_seconds) + " together"
                                      : "one takes " + SecondsText(drafts.draft_token_seconds));
  if (drafts.draft_prefill_seconds > 0) {
    text += Line("draft prefill",
                 SecondsText(drafts.draft_prefill_seconds) + " for half the context; " +
                     (drafts.min_answer_tokens
                          ? "pays in answers of at least " + std::to_string(*drafts.min_answer_tokens) + " tokens"
                          : "no answer is long enough to make up for it"));
  }
  char line[160];
  text += Line("", "drafted     one step  break-even acceptance rate");
  for (const PredictedDrafts::Step& step : drafts.steps) {
    std::snprintf(line, sizeof line, "%7zu  %11s  ", step.num_draft_tokens, SecondsText(step.seconds).c_str());
    std::string row = line;
    if (step.break_even) {
      std::snprintf(line, sizeof line, "%.3f", *step.break_even);
      row += line;
    } else {
      row += step.num_draft_tokens == 0 ? "-" : "never pays";
    }
    text += Line("", row);
  }
  text += Line("", "acceptance rate  best number of draft tokens  one token");
  for (const PredictedDrafts::Best& best : drafts.best) {
    std::snprintf(line, sizeof line, "%15.1f  %28zu  %9s", best.acceptance_rate, best.num_draft_tokens,
                  SecondsText(best.seconds).c_str());
    text += Line("", line);
  }
  return text;
}

// What is left out without --verbose.
std::string Details(const Plan& plan) {
  std::string text = "\n" + Line("numbers", plan.profile.source + ", " + plan.profile.date);
  text += Line("state memory", Bytes(plan.state_memory_bytes) + " for the KV caches of all requests");
  text += Line("KV cache", Bytes(plan.state_row_bytes) + " a token; at most " + Bytes(plan.memory.unused_capacity) +
                               " of unused capacity");
  text += "\n";
  for (const Choice& choice : plan.choices) text += Line(choice.name, choice.reason);
  return text + DraftText(plan.drafts);
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

std::string PlanText(const Plan& plan, bool verbose) {
  const ProfileInfo& profile = plan.profile;
  std::string text = Line("machine", profile.cpu + ", " + std::to_string(profile.threads) +
                                         (profile.threads == 1 ? " thread, " : " threads, ") + profile.isa);
  text += Line("request", "context size " + std::to_string(plan.context) + ", batch " + std::to_string(plan.batch));
  text += MemoryText(plan) + SpeedText(plan) + "\n" + ChoicesText(plan);
  if (plan.segments) text += SegmentsText(*plan.segments);
  return text + (verbose ? Details(plan) : "\n--verbose says why, and what draft tokens cost\n");
}

}  // namespace tidemill
