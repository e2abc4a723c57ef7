// libFuzzer target: any bytes as a chat template, rendered with one conversation; and any bytes as the conversation.
// Neither may crash, hang or grow without bound, and a prompt keeps its contract: ranges sorted, disjoint, within the text.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "tidemill/chat.h"

namespace tidemill {
namespace {

constexpr std::string_view kConversation = R"({"messages": [
  {"role": "system", "content": "Be terse. <|im_end|>"},
  {"role": "user", "content": "Grüße 日本 \"quoted\"\n\n  two lines "},
  {"role": "assistant", "content": null, "tool_calls": [{"type": "function", "id": "abcdefghi",
    "function": {"name": "f", "arguments": {"x": [1, 2.5, true, null], "y": {"z": "deep"}}}}]},
  {"role": "tool", "content": "42", "tool_call_id": "abcdefghi"},
  {"role": "user", "content": [{"type": "text", "text": "part"}, {"type": "image"}]}],
 "tools": [{"type": "function", "function": {"name": "f", "description": "d",
   "parameters": {"type": "object", "properties": {"x": {"type": "array", "items": {"type": "integer"}}}, "required": ["x"]}}}]})";

// Tighter than the defaults, so that one input takes milliseconds under sanitizers.
constexpr ChatTemplateLimits kLimits = {
    .steps = 20'000, .output_bytes = size_t{256} << 10, .value_bytes = size_t{4} << 20};

void CheckContract(const Result<PromptText>& prompt) {
  if (!prompt.ok()) {
    const ErrorCode code = prompt.error().code();
    TIDEMILL_CHECK(code == ErrorCode::kInvalidArgument || code == ErrorCode::kCorruptFile);
    TIDEMILL_CHECK(prompt.error().message().find('\n') == std::string::npos);
    return;
  }
  size_t end = 0;
  for (const ByteRange& range : prompt->caller) {
    TIDEMILL_CHECK(range.begin >= end && range.begin < range.end);
    end = range.end;
  }
  TIDEMILL_CHECK(end <= prompt->text.size());
}

void RenderAsTemplate(std::string_view bytes) {
  const Result<ChatTemplate> parsed = ChatTemplate::Parse(std::string(bytes), kLimits);
  if (!parsed.ok()) {
    TIDEMILL_CHECK(parsed.error().message().find('\n') == std::string::npos);
    return;
  }
  ChatRenderInput input;
  input.bos_token = "<s>";
  input.eos_token = "</s>";
  input.now = ChatTime{.year = 2024, .month = 2, .day = 29};
  CheckContract(parsed->RenderJson(kConversation, input));
}

void RenderAsConversation(std::string_view bytes) {
  static const Result<ChatTemplate> parsed = ChatTemplate::Parse(
      "{% for m in messages %}{{ m | tojson }}{{ m }}{% for k, v in m.items() %}{{ k }}={{ v | string | upper }}{% "
      "endfor %}{% endfor %}",
      kLimits);
  CheckContract(parsed->RenderJson(bytes, {}));
}

}  // namespace
}  // namespace tidemill

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  tidemill::RenderAsTemplate(bytes);
  if (!bytes.empty() && (bytes.front() == '[' || bytes.front() == '{')) tidemill::RenderAsConversation(bytes);
  return 0;
}
