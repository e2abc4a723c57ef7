// One line of `run --prompts`: a request as a JSON object.
//   {"id": "a", "prompt": "Why is ...", "max_new_tokens": 20, "temperature": 0.7, "stop": ["\n"]}
#ifndef TIDEMILL_CLI_PROMPT_LINE_H_
#define TIDEMILL_CLI_PROMPT_LINE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/flag_groups.h"
#include "cli/json.h"
#include "cli/prompt_attention.h"
#include "tidemill/result.h"

namespace tidemill::cli {

// Exactly one of prompt, messages and ids is there.
struct PromptLine {
  Json id;                                                    // a string or a number as it was given, else null
  std::optional<std::string> prompt;                          // to be encoded like the prompt of a single run
  std::optional<Json> messages, tools, chat_template_kwargs;  // of a chat, as ChatTemplate::RenderJson has them
  std::vector<int32_t> ids;
  GenerationFlags generation;  // of it, what the line asks for, but for what can be asked for as none:
  std::optional<std::vector<std::string>> stop;
  std::optional<std::vector<std::pair<int32_t, float>>> logit_bias;
  std::optional<bool> ignore_eos;
  PromptAttention attention;

  GenerationOptions ApplyTo(GenerationOptions options) const;
  std::string ChatJson() const;  // messages and what goes with them
};

// kInvalidArgument names the member, what was expected and what was found. `id`, where it could be read, is set in any case.
Result<PromptLine> ParsePromptLine(std::string_view json, Json* id);

}  // namespace tidemill::cli

#endif  // TIDEMILL_CLI_PROMPT_LINE_H_
