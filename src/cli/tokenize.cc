// tidemill tokenize: text to ids.
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/chat_renderer.h"
#include "cli/command.h"
#include "cli/errors.h"
#include "cli/flag_groups.h"
#include "cli/flags.h"
#include "cli/json.h"
#include "cli/session.h"
#include "cli/text_source.h"
#include "tidemill/model.h"

namespace tidemill::cli {
namespace {

struct TokenizeFlags {
  std::string model;
  TextSource text;
  std::optional<std::string> chat_file;
  ChatTemplateFlags chat_template;
  bool json = false;
  bool lines = false;
  bool render = false;
  bool no_add_special = false;
  bool no_parse_special = false;
  MachineFlags machine;  // every command takes them
};

void AddFlags(FlagSet& set, TokenizeFlags& flags) {
  set.Positional("MODEL", flags.model, "A .gguf file or a model folder");
  set.OptionalPositional("TEXT", flags.text.positional, "The text; - is standard input");
  flags.text.AddTo(set, false);
  set.Switch("--lines", flags.lines, "Each line is a text; one JSON object a line");
  set.Text(
      "--chat", flags.chat_file, "FILE",
      "JSON list of messages, or an object with messages and tools, rendered by the template; - is standard input");
  for (const char* other : {"TEXT", "--file", "--lines"}) set.Excludes("--chat", other);
  flags.chat_template.AddTo(set);
  set.Needs("--chat-template", "--chat");
  set.Needs("--chat-template-kwargs", "--chat");
  set.Switch("--json", flags.json, "{\"ids\": [...], \"tokens\": [...]}");
  set.Switch("--render", flags.render, "With --chat: print the rendered prompt only");
  set.Needs("--render", "--chat");
  set.Excludes("--render", "--json");
  set.Switch("--no-add-special", flags.no_add_special, "No beginning- or end-of-sequence token is added");
  set.Switch("--no-parse-special", flags.no_parse_special, "Text that spells a special token stays text");
  flags.machine.AddTo(set);
}

Json TokensJson(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  Json tokens = Json::array();
  for (const int32_t id : ids) tokens.push_back(tokenizer.TokenName(id));
  return {{"ids", ids}, {"tokens", std::move(tokens)}};
}

Result<void> PrintIds(const ModelText& model, const std::vector<int32_t>& ids, bool json, Output& out) {
  if (json) return out.Write(JsonLine(TokensJson(model.tokenizer, ids)));
  std::string line;
  for (const int32_t id : ids) line += (line.empty() ? "" : " ") + std::to_string(id);
  return out.Write(line + "\n");
}

Result<void> TokenizeLines(const ModelText& model, std::string_view text, EncodeOptions options, Output& out) {
  std::string printed;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    TIDEMILL_TRY(ids, model.tokenizer.Encode(text.substr(0, end), options));
    printed += JsonLine(TokensJson(model.tokenizer, ids));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (printed.size() > 65536 || text.empty()) {
      TIDEMILL_TRY_VOID(out.Write(printed));
      printed.clear();
    }
  }
  return {};
}

Result<void> TokenizeChat(const ModelText& model, const TokenizeFlags& flags, Output& out) {
  TextSource source;
  source.file = flags.chat_file;
  TIDEMILL_TRY(json, source.Read("read the chat", ""));
  TIDEMILL_TRY(renderer, ChatRenderer::Create(model, flags.chat_template, flags.model, "tokenize a text instead"));
  TIDEMILL_TRY(rendered, renderer.RenderJson(json));
  if (flags.render) return out.Write(rendered.text);
  TIDEMILL_TRY(ids, model.tokenizer.Encode(rendered, {.add_special = false, .parse_special = !flags.no_parse_special}));
  return PrintIds(model, ids, flags.json, out);
}

}  // namespace

Result<void> TokenizeCommand(CommandContext& context) {
  TokenizeFlags flags;
  FlagSet set("tokenize", "Print the token ids of a text");
  AddFlags(set, flags);
  TIDEMILL_TRY(go_on, set.Parse(context));
  if (!go_on) return {};
  TIDEMILL_TRY_VOID(flags.chat_template.Check());
  if (flags.chat_file) {
    TIDEMILL_TRY(model, LoadTextOnly(flags.model, context.messages));
    return TokenizeChat(model, flags, context.out);
  }
  TIDEMILL_TRY(text, flags.text.Read("read the text", "give one as an argument or with -f FILE"));
  TIDEMILL_TRY(model, LoadTextOnly(flags.model, context.messages));
  const EncodeOptions options = {.add_special = !flags.no_add_special, .parse_special = !flags.no_parse_special};
  if (flags.lines) return TokenizeLines(model, text, options, context.out);
  TIDEMILL_TRY(ids, model.tokenizer.Encode(text, options));
  return PrintIds(model, ids, flags.json, context.out);
}

}  // namespace tidemill::cli
