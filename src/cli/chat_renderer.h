// What a conversation is rendered with: one of the model's chat templates or a file's, and what the template is given beside the
// messages.
#ifndef TIDEMILL_CLI_CHAT_RENDERER_H_
#define TIDEMILL_CLI_CHAT_RENDERER_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/flags.h"
#include "tidemill/chat.h"
#include "tidemill/model.h"
#include "tidemill/result.h"

namespace tidemill::cli {

struct ChatTemplateFlags {
  std::optional<std::string> name;    // --chat-template, a name or a file
  std::optional<std::string> kwargs;  // --chat-template-kwargs, a JSON object

  void AddTo(FlagSet& flags);
  Result<void> Check() const;
  bool is_given() const { return name || kwargs; }
};

// Copies share their templates.
class ChatRenderer {
 public:
  // `text` is borrowed. kUnsupported without a template, kCorruptFile for one that cannot be used; `model` and `otherwise` say in the
  // message whose it is and what to do. kNotFound for a --chat-template that is neither a template of the model nor a file.
  static Result<ChatRenderer> Create(const ModelText& text, const ChatTemplateFlags& flags, std::string_view model,
                                     std::string_view otherwise);

  // Ready for Tokenizer::Encode with add_special off.
  Result<PromptText> Render(std::vector<ChatMessage> messages) const;
  // Of JSON, as ChatTemplate::RenderJson reads it; its chat_template_kwargs go before those of the flags.
  Result<PromptText> RenderJson(std::string_view json) const;

 private:
  explicit ChatRenderer(const ModelText& text) : text_(&text) {}
  ChatRenderInput Input() const;

  const ModelText* text_;
  std::shared_ptr<const ChatTemplate> chosen_;    // null: the model's own
  std::shared_ptr<const ChatTemplate> tool_use_;  // of conversations with tools; null: as of others
  std::optional<Error> tool_use_trouble_;         // or why it cannot be used
  std::string variables_;
};

}  // namespace tidemill::cli

#endif  // TIDEMILL_CLI_CHAT_RENDERER_H_
