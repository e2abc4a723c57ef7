// Conversations to prompts: the templates that models bring along, in the language that Hugging Face transformers renders
// them with (Jinja 3.1, trim_blocks and lstrip_blocks on, loop controls, immutable sandbox).
//
// Messages reach a template as transformers' apply_chat_template hands them over: a member that is null is none, and what
// the model thought (reasoning_content, thinking, reasoning) stands under both names that templates look for.
//
// A template is a stranger's program and the messages are a stranger's text. So the program can read nothing but what is
// passed in, its work and memory are bounded, and every byte of the result says where it came from. What the caller
// supplied (contents, roles, names, tools, and whatever the template made of them) lies in `PromptText::caller`. There a
// tokenizer recognises no special tokens. The template's own text and the special tokens passed in lie outside. So does a
// role that is one of the plain words system, developer, user, assistant, tool, function, ipython, model: templates build
// special tokens from those ('<|' + message.role + '|>'), and they cannot smuggle anything in.
#ifndef TIDEMILL_CHAT_H_
#define TIDEMILL_CHAT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tidemill/result.h"
#include "tidemill/tokenizer.h"

namespace tidemill {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant", "tool": what the template knows
  std::string content;
  std::string more_json;  // further members as a JSON object (tool_calls, name, ...), or empty
};

// A moment on somebody's wall clock, for templates that print the date. The library never reads a clock.
struct ChatTime {
  int year = 1970;
  int month = 1;  // 1 to 12
  int day = 1;    // 1 to 31
  int hour = 0;   // 0 to 23
  int minute = 0;
  int second = 0;
};

// All are counted; going past one is an error of the template, never an exhausted machine. A published template meets none of
// them within a context of 256k tokens, also where it looks through all messages for each of them (5000 of 52 tokens).
struct ChatTemplateLimits {
  size_t source_bytes = size_t{1} << 20;
  int nesting = 64;              // brackets and blocks within one another
  int call_depth = 64;           // macros within macros
  uint64_t steps = 150'000'000;  // a second or two
  size_t output_bytes = size_t{16} << 20;
  size_t value_bytes = size_t{256} << 20;  // everything made while rendering, also what was thrown away
  size_t input_bytes = size_t{16} << 20;   // of JSON
  size_t input_values = 1'000'000;         // in JSON
  int input_depth = 64;                    // of JSON
};

struct ChatRenderInput {
  std::vector<ChatMessage> messages;
  bool add_generation_prompt = true;
  // The template's own, so not marked as the caller's. Without a value the template finds the variable undefined.
  std::optional<std::string> bos_token;
  std::optional<std::string> eos_token;
  std::vector<std::pair<std::string, std::string>> special_tokens;  // more such variables: {"pad_token", "<pad>"}
  std::string tools_json;                                           // a JSON list, or empty: none
  std::string documents_json;                                       // a JSON list, or empty: none
  std::string variables_json;   // a JSON object of further variables ({"enable_thinking": false}), or empty
  std::optional<ChatTime> now;  // what strftime_now() prints; without it the template finds that function undefined
};

// Immutable: any number of threads may render at once.
class ChatTemplate {
 public:
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // kInvalidArgument with line and column for a template that is too long, not UTF-8 or not well formed. Nothing is run.
  static Result<ChatTemplate> Parse(std::string source, const ChatTemplateLimits& limits = {});

  // kCorruptFile, with line and column, for what goes wrong while the template runs: also when it passes a limit or names a
  // filter, test or function that does not exist. kInvalidArgument, with line and column, when it refuses the conversation
  // (raise_exception). Also for input that is not UTF-8 or not JSON, and for a variable that has the name of a function or
  // of another input.
  // Cost: about 15 ms for an agent's 2600 messages, 1 MB (Zen 4).
  Result<PromptText> Render(const ChatRenderInput& input) const;
  // The same with messages from JSON: a list of messages, or an object with `messages` and, each optional, `tools`,
  // `documents`, `chat_template_kwargs` and `add_generation_prompt`. `options.messages` is empty, and so is every other field
  // that the JSON brings; its add_generation_prompt and its variables go before those of the options.
  Result<PromptText> RenderJson(std::string_view json, const ChatRenderInput& options) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace tidemill

#endif  // TIDEMILL_CHAT_H_
