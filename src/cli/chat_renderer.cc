#include "cli/chat_renderer.h"

#include <ctime>
#include <utility>

#include "cli/errors.h"
#include "cli/files.h"
#include "cli/json.h"

namespace tidemill::cli {
namespace {

constexpr const char* kNameFlag = "--chat-template";
constexpr const char* kKwargsFlag = "--chat-template-kwargs";

const std::string* FindTemplate(const ModelText& text, std::string_view wanted) {
  for (const auto& [name, source] : text.chat_templates) {
    if (name == wanted) return &source;
  }
  return nullptr;
}

// A template of the model that cannot be parsed is a fault of the model's file, not of the command line.
Result<std::shared_ptr<const ChatTemplate>> ParseTemplate(std::string source, const std::string& what, bool is_models) {
  auto parsed = ChatTemplate::Parse(std::move(source));
  if (!parsed.ok()) {
    const bool is_corrupt = is_models && parsed.error().code() == ErrorCode::kInvalidArgument;
    return Error(is_corrupt ? ErrorCode::kCorruptFile : parsed.error().code(), what + ": " + parsed.error().message());
  }
  return std::make_shared<const ChatTemplate>(std::move(parsed).value());
}

Result<std::shared_ptr<const ChatTemplate>> ChooseTemplate(const ModelText& text, const std::string& name,
                                                           std::string_view model) {
  const std::string what = "render the chat: " + std::string(kNameFlag) + " " + Quoted(name);
  if (const std::string* source = FindTemplate(text, name)) return ParseTemplate(*source, what, true);
  auto file = ReadFile("read the chat template", name);
  if (!file.ok() && file.error().code() == ErrorCode::kNotFound) {
    std::string names;
    for (const auto& [known, source] : text.chat_templates) names += (names.empty() ? "" : ", ") + Quoted(known);
    return Error(ErrorCode::kNotFound, what + ": expected a template of " + std::string(model) + " (" +
                                           (names.empty() ? "it has none" : names) +
                                           ") or a file, found neither; name one of them or a .jinja file");
  }
  if (!file.ok()) return std::move(file).error();
  return ParseTemplate(std::move(file).value(), what, false);
}

bool HasTools(std::string_view json) {
  const auto document = ParseJson("read the chat", json);
  if (!document.ok() || !document->is_object()) return false;
  const auto tools = document->Member("tools");
  return tools && !tools->is_null();
}

}  // namespace

void ChatTemplateFlags::AddTo(FlagSet& flags) {
  flags.Text(kNameFlag, name, "NAME|FILE", "One of the model's chat templates by its name, or a file");
  flags.Text(kKwargsFlag, kwargs, "JSON", "Variables of the template, as in {\"enable_thinking\": false}");
}

Result<void> ChatTemplateFlags::Check() const {
  if (!kwargs) return {};
  const std::string expected = "expected a JSON object, as in '{\"enable_thinking\": false}', found ";
  const auto document = ParseJson("read the command line", *kwargs);
  if (!document.ok() && document.error().code() == ErrorCode::kOutOfMemory) return document.error();
  if (!document.ok()) return UsageError(kKwargsFlag, expected + Quoted(*kwargs));
  if (!document->is_object()) return UsageError(kKwargsFlag, expected + document->Describe());
  return {};
}

Result<ChatRenderer> ChatRenderer::Create(const ModelText& text, const ChatTemplateFlags& flags, std::string_view model,
                                          std::string_view otherwise) {
  ChatRenderer renderer(text);
  renderer.variables_ = flags.kwargs.value_or("");
  if (flags.name) {
    TIDEMILL_TRY(chosen, ChooseTemplate(text, *flags.name, model));
    renderer.chosen_ = std::move(chosen);
    return renderer;
  }
  // As transformers chooses: of several templates the one named tool_use where there are tools.
  if (const std::string* source = FindTemplate(text, "tool_use")) {
    auto tool_use = ParseTemplate(*source, "render the chat: " + std::string(model) + ": tool_use", true);
    if (tool_use.ok()) {
      renderer.tool_use_ = std::move(tool_use).value();
    } else {
      renderer.tool_use_trouble_ = std::move(tool_use).error();
    }
  }
  if (text.chat_template) return renderer;
  if (!text.chat_template_trouble.empty()) {
    const std::string choose = text.chat_templates.empty() ? "" : "choose one with --chat-template, or ";
    return Error(ErrorCode::kCorruptFile, "render the chat: " + std::string(model) + ": " + text.chat_template_trouble +
                                              "; " + choose + std::string(otherwise));
  }
  return Error(ErrorCode::kUnsupported,
               "render the chat: " + std::string(model) +
                   ": expected a chat template, found none; give one with --chat-template, or " +
                   std::string(otherwise));
}

ChatRenderInput ChatRenderer::Input() const {
  ChatRenderInput input;
  if (!text_->bos_token.empty()) input.bos_token = text_->bos_token;
  if (!text_->eos_token.empty()) input.eos_token = text_->eos_token;
  input.special_tokens = text_->special_tokens;
  input.variables_json = variables_;
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  if (localtime_r(&now, &local) != nullptr) {
    input.now = ChatTime{.year = local.tm_year + 1900,
                         .month = local.tm_mon + 1,
                         .day = local.tm_mday,
                         .hour = local.tm_hour,
                         .minute = local.tm_min,
                         .second = local.tm_sec > 59 ? 59 : local.tm_sec};
  }
  return input;
}

Result<PromptText> ChatRenderer::Render(std::vector<ChatMessage> messages) const {
  ChatRenderInput input = Input();
  input.messages = std::move(messages);
  return (chosen_ != nullptr ? *chosen_ : *text_->chat_template).Render(input);
}

Result<PromptText> ChatRenderer::RenderJson(std::string_view json) const {
  const bool uses_tools = (tool_use_ != nullptr || tool_use_trouble_) && HasTools(json);
  if (uses_tools && tool_use_trouble_) return *tool_use_trouble_;
  const ChatTemplate& chosen = uses_tools ? *tool_use_ : chosen_ != nullptr ? *chosen_ : *text_->chat_template;
  return chosen.RenderJson(json, Input());
}

}  // namespace tidemill::cli
