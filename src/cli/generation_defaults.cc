#include "cli/generation_defaults.h"

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cli/numbers.h"

namespace tidemill::cli {
namespace {

// llama.cpp's.
constexpr float kTemperature = 0.8f, kTopP = 0.95f, kMinP = 0.05f;
constexpr int32_t kTopK = 40;

// The context is full after it, whatever else ended it.
bool HasFullContext(const RequestStats& stats) {
  return stats.prompt_tokens + stats.generated_tokens > stats.context;  // the last token is in no state
}

}  // namespace

void BoundAnswer(bool is_given, GenerationOptions* options) {
  if (is_given || (!options->max_new_tokens && options->max_length)) return;
  options->max_new_tokens = std::max(options->max_new_tokens.value_or(kDefaultMaxNewTokens), options->min_new_tokens);
}

GenerationOptions AnswerOptions(const GenerationFlags& flags, const Model& model) {
  GenerationOptions options = model.default_generation();
  if (options.temperature == 0) {
    options.temperature = model.has_sampling_defaults() ? 0.0f : kTemperature;
    options.top_k = kTopK;
    options.top_p = kTopP;
    options.min_p = kMinP;
  }
  options.stop_at_repetition = true;
  options = flags.ApplyTo(std::move(options));
  BoundAnswer(flags.max_new_tokens.has_value(), &options);
  // 32 bits: short enough to type, and exact in every reader of JSON.
  if (options.temperature != 0 && !flags.seed) options.seed = std::random_device()();
  return options;
}

GenerationOptions BatchOptions(const GenerationFlags& flags, const Model& model) {
  return flags.ApplyTo(model.default_generation());
}

void WarnAboutIdleFlags(const GenerationFlags& flags, const GenerationOptions& options, std::string_view but,
                        Messages& messages) {
  if (options.temperature != 0) return;
  std::vector<std::string> idle;
  if (flags.top_k) idle.emplace_back("--top-k");
  if (flags.top_p) idle.emplace_back("--top-p");
  if (flags.min_p) idle.emplace_back("--min-p");
  if (flags.seed) idle.emplace_back("--seed");
  if (idle.empty()) return;
  std::string list = idle.front();
  for (size_t i = 1; i < idle.size(); ++i) list += (i + 1 == idle.size() ? " and " : ", ") + idle[i];
  messages.Warning(list + (idle.size() == 1 ? " has" : " have") + " no effect at temperature 0" + std::string(but));
}

void WarnAboutEnd(const Answer& answer, const GenerationFlags& flags, const GenerationOptions& options,
                  const Engine& engine, Messages& messages, std::string_view when_full) {
  if (answer.finish == FinishReason::kRepetition) {
    messages.Warning("the answer was ended because it only repeats itself; --allow-repetition lets it go on");
  }
  if (answer.finish != FinishReason::kLength) return;
  if (HasFullContext(answer.stats) && answer.stats.context < engine.context()) {
    messages.Warning(
        "the answer was ended because its segment has all positions of the model; a prompt behind it ("
        "--load-state with --prompt) begins another");
  } else if (HasFullContext(answer.stats)) {
    messages.Warning("the answer was ended because the context of " + std::to_string(engine.context()) +
                     " tokens is full" + std::string(when_full));
  } else if (!options.max_new_tokens) {
    messages.Warning("the answer was ended at the model's max_length of " +
                     std::to_string(options.max_length.value_or(0)) +
                     " tokens with the prompt; --max-new-tokens N allows more");
  } else if (!flags.max_new_tokens) {
    messages.Warning("the answer was ended at " + std::to_string(*options.max_new_tokens) +
                     " tokens; --max-new-tokens N allows more");
  }
}

std::string DescribeSampling(const GenerationOptions& options) {
  const std::string seed = "seed " + std::to_string(options.seed);
  if (options.temperature == 0) return seed + ", greedy";
  return seed + ", temperature " + NumberText(options.temperature) + ", top-k " + NumberText(options.top_k) +
         ", top-p " + NumberText(options.top_p) + ", min-p " + NumberText(options.min_p);
}

}  // namespace tidemill::cli
