// How `run` and `chat` generate where the flags do not say, and what they tell the user of how an answer was made and ended.
#ifndef TIDEMILL_CLI_GENERATION_DEFAULTS_H_
#define TIDEMILL_CLI_GENERATION_DEFAULTS_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "cli/answer.h"
#include "cli/flag_groups.h"
#include "cli/messages.h"
#include "tidemill/engine.h"
#include "tidemill/generation.h"
#include "tidemill/model.h"

namespace tidemill::cli {

inline constexpr int32_t kDefaultMaxNewTokens = 2048;

// Of `run` and `chat`: the flags, then what the model's files recommend, then temperature 0.8, top-k 40, top-p 0.95, min-p 0.05. Where the
// files recommend the likeliest token, the last three still serve who gives a temperature. An answer that is drawn without --seed has a
// random one. It has kDefaultMaxNewTokens at most, and ends where it only repeats itself.
GenerationOptions AnswerOptions(const GenerationFlags& flags, const Model& model);

// Of `run --prompts`, before a line's own: the flags, then what the files recommend, else greedy; seed 0.
GenerationOptions BatchOptions(const GenerationFlags& flags, const Model& model);
// Where no --max-new-tokens is given: to what the files recommend, else to kDefaultMaxNewTokens unless they have a max_length, or to
// min_new_tokens where those are more.
void BoundAnswer(bool is_given, GenerationOptions* options);

// A line if flags were given that do nothing at temperature 0. `but`: where they do, in many prompts.
void WarnAboutIdleFlags(const GenerationFlags& flags, const GenerationOptions& options, std::string_view but,
                        Messages& messages);
// A line if the answer ended in a repetition, at a bound that nobody asked for, or with the context. `when_full`: what to do then.
void WarnAboutEnd(const Answer& answer, const GenerationFlags& flags, const GenerationOptions& options,
                  const Engine& engine, Messages& messages, std::string_view when_full = "");

// "seed 1, temperature 0.8, top-k 40, top-p 0.95, min-p 0.05"; "seed 0, greedy".
std::string DescribeSampling(const GenerationOptions& options);

}  // namespace tidemill::cli

#endif  // TIDEMILL_CLI_GENERATION_DEFAULTS_H_
