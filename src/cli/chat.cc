// tidemill chat: a conversation. Every turn renders all messages through the model's template; the engine's prefix cache has what is the
// same as in the turns before.
#include <algorithm>
#include <csignal>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/chat_renderer.h"
#include "cli/command.h"
#include "cli/conversation.h"
#include "cli/errors.h"
#include "cli/files.h"
#include "cli/flag_groups.h"
#include "cli/flags.h"
#include "cli/generation_defaults.h"
#include "cli/line_source.h"
#include "cli/session.h"
#include "cli/text_source.h"

namespace tidemill::cli {
namespace {

constexpr char kHelp[] =
    "A line is a message. A message goes on in the next line after a \\ at the end of a line, and from \"\"\" to "
    "\"\"\".\n"
    "  /system TEXT   replace the system message; without TEXT show it\n"
    "  /reset         forget the conversation but the system message\n"
    "  /save FILE     write the conversation as JSON        /load FILE   read one back\n"
    "  /stats         times of the last answer, context     /help        this text\n"
    "  /quit          leave, as Ctrl-D does                 //...        a message that begins with /\n"
    "Ctrl-C stops an answer. Arrows edit and go back to earlier lines; Alt-Enter begins a line within a message.\n";

// An answer has room if its --max-new-tokens fit, or a quarter of the context if that is less.
constexpr size_t kAnswerShare = 4;
constexpr size_t kFillToWarn = 80;  // percent

class Chat {
 public:
  Chat(CommandContext& context, Session& session, ChatRenderer renderer, GenerationFlags flags,
       const DraftOptions& draft, std::optional<std::string> system, bool drops_turns)
      : context_(context),
        session_(session),
        renderer_(std::move(renderer)),
        flags_(std::move(flags)),
        options_(AnswerOptions(flags_, *session.model)),
        draft_(draft),
        system_(std::move(system)),
        drops_turns_(drops_turns),
        lines_("read a message", context.signals, context.messages) {}

  Result<void> Run();

 private:
  // None: the end.
  Result<std::optional<std::string>> ReadMessage();
  Result<void> Answer(const std::string& message);
  // The system message, messages_ from *left on and `message`, rendered and encoded. Where an answer would not fit, *left grows by the
  // oldest turns.
  Result<std::vector<int32_t>> Encode(const ChatMessage& message, size_t* left) const;
  Result<std::vector<int32_t>> EncodeFrom(size_t left, const ChatMessage& message) const;
  // After an answer, of so many tokens with its prompt.
  void WarnAboutFill(size_t tokens);
  std::string DescribeFill(size_t tokens) const;
  // False: leave.
  Result<bool> RunSlash(const std::string& line);
  void StartOver();  // with other messages
  Result<void> Save(const std::string& path);
  Result<void> Load(const std::string& path);
  // On a terminal an error is said and the conversation goes on; a script ends with it.
  Result<void> SayOrFail(Result<void> result);
  std::vector<ChatMessage> WithSystem(size_t first) const;  // the system message before them

  CommandContext& context_;
  Session& session_;
  ChatRenderer renderer_;
  GenerationFlags flags_;
  GenerationOptions options_;
  DraftOptions draft_;
  std::optional<std::string> system_;
  std::vector<ChatMessage> loaded_system_;  // of a file, those with other members, too; empty where there is system_
  std::vector<ChatMessage> messages_;       // without the system message
  size_t left_ = 0;                         // of them, the first that are not rendered any more
  bool drops_turns_;                        // where the context is full
  LineSource lines_;
  std::string last_stats_;
  bool warned_about_drafts_ = false, warned_about_growth_ = false, warned_about_fill_ = false;
};

std::vector<ChatMessage> Chat::WithSystem(size_t first) const {
  std::vector<ChatMessage> all(loaded_system_);
  if (system_) all.push_back({.role = "system", .content = *system_, .more_json = ""});
  all.insert(all.end(), messages_.begin() + static_cast<std::ptrdiff_t>(first), messages_.end());
  return all;
}

Result<std::vector<int32_t>> Chat::EncodeFrom(size_t left, const ChatMessage& message) const {
  const ModelText& text = session_.model->text();
  std::vector<ChatMessage> asked = WithSystem(left);
  asked.push_back(message);
  TIDEMILL_TRY(rendered, renderer_.Render(std::move(asked)));
  return text.tokenizer.Encode(rendered, {.add_special = false, .parse_special = true});
}

Result<std::vector<int32_t>> Chat::Encode(const ChatMessage& message, size_t* left) const {
  const bool is_bounded_whole = !options_.max_new_tokens && options_.max_length;
  const auto bound = static_cast<size_t>(is_bounded_whole ? *options_.max_length : std::numeric_limits<int32_t>::max());
  const size_t context = std::min(session_.engine->context(), bound);
  const auto answer = static_cast<size_t>(options_.max_new_tokens.value_or(kDefaultMaxNewTokens));
  TIDEMILL_TRY(ids, EncodeFrom(*left, message));
  if (ids.size() <= context - std::min(answer, context / kAnswerShare)) return ids;
  std::vector<size_t> turns;  // where those begin that may stay
  for (size_t turn = *left; turn != messages_.size(); turns.push_back(turn)) turn = EndOfTurn(messages_, turn);
  if (turns.empty()) return ids;
  if (!drops_turns_) {
    if (ids.size() <= context) return ids;
    return Error(ErrorCode::kContextFull, "answer: the conversation has " + std::to_string(ids.size()) +
                                              " tokens: the context holds " + std::to_string(context) +
                                              "; /reset starts over, --context-full drop lets the oldest turns leave");
  }
  // The fewest that leave, by halves: a long conversation is not rendered for each of its turns.
  size_t first = 0, last = turns.size() - 1;
  while (first < last) {
    const size_t middle = (first + last) / 2;
    TIDEMILL_TRY(rest, EncodeFrom(turns[middle], message));
    if (rest.size() <= context / 2) {
      last = middle;
    } else {
      first = middle + 1;
    }
  }
  *left = turns[first];
  return EncodeFrom(*left, message);
}

std::string Chat::DescribeFill(size_t tokens) const {
  const size_t context = session_.engine->context();
  return std::to_string(100 * tokens / context) + " % of the context of " + std::to_string(context) + " tokens";
}

void Chat::WarnAboutFill(size_t tokens) {
  const bool is_nearly_full = 100 * tokens >= kFillToWarn * session_.engine->context();
  if (is_nearly_full && !warned_about_fill_) {
    context_.messages.Warning("the conversation takes " + DescribeFill(tokens) +
                              (drops_turns_ ? "; when it is full the oldest turns leave it"
                                            : "; when it is full answers end, and /reset starts over"));
  }
  warned_about_fill_ = warned_about_fill_ || is_nearly_full;
}

Result<void> Chat::SayOrFail(Result<void> result) {
  const bool is_ours =
      !result.ok() && result.error().code() != ErrorCode::kCancelled && result.error().code() != ErrorCode::kInternal;
  if (!is_ours || !lines_.is_terminal()) return result;
  context_.messages.Error(result.error().message());
  return {};
}

Result<std::optional<std::string>> Chat::ReadMessage() {
  std::string message;
  bool is_block = false, is_continued = false;
  while (true) {
    TIDEMILL_TRY(line, lines_.Read(is_block || is_continued ? "... " : ">>> "));
    if (line.kind == LineSource::Line::Kind::kAbandoned) {  // start over
      message.clear();
      is_block = is_continued = false;
      continue;
    }
    if (line.kind == LineSource::Line::Kind::kEnd) {
      if (message.empty()) return std::optional<std::string>();
      return std::optional<std::string>(std::move(message));
    }
    std::string_view text = line.text;
    if (!is_block && !is_continued && text.starts_with("\"\"\"")) {
      is_block = true;
      text.remove_prefix(3);
      if (text.empty()) continue;
    }
    if (is_block && text.ends_with("\"\"\"")) {
      text.remove_suffix(3);
      message += text;
      if (text.empty() && message.ends_with('\n')) message.pop_back();
      return std::optional<std::string>(std::move(message));
    }
    is_continued = !is_block && text.ends_with('\\');
    if (is_continued) text.remove_suffix(1);
    message += text;
    if (!is_block && !is_continued) return std::optional<std::string>(std::move(message));
    message += '\n';
  }
}

Result<void> Chat::Answer(const std::string& message) {
  TIDEMILL_TRY_VOID(CheckUtf8("read a message", "standard input", message));
  const ChatMessage asked{.role = "user", .content = message, .more_json = ""};
  size_t left = left_;
  TIDEMILL_TRY(ids, Encode(asked, &left));
  const auto show = [&](const std::string& piece) { return context_.out.WriteModelText(piece); };
  TIDEMILL_TRY(id, session_.engine->Submit({.prompt = ids,
                                            .generation = options_,
                                            .draft = draft_,
                                            .needs_room_for_all = flags_.max_new_tokens.has_value()}));
  cli::Answer answer;
  std::shared_ptr<const std::vector<std::byte>> saved;
  Result<void> generated = Generate(*session_.engine, id, context_.signals, show, &answer, &saved);
  const bool is_given_up = !generated.ok() && generated.error().code() == ErrorCode::kCancelled;  // nobody reads
  // It was for the answer.
  if (context_.signals.received() == SIGINT && !is_given_up) context_.signals.Forget();
  // What was said stays, also where it was stopped or failed; what said nothing was not asked.
  if (!answer.text.empty() || (generated.ok() && answer.finish != FinishReason::kCancelled)) {
    messages_.push_back(asked);
    messages_.push_back({.role = "assistant", .content = answer.text, .more_json = ""});
  }
  TIDEMILL_TRY_VOID(std::move(generated));
  TIDEMILL_TRY_VOID(context_.out.Write("\n"));
  if (!warned_about_growth_) WarnAboutGrowth(answer.stats, context_.messages);
  warned_about_growth_ = warned_about_growth_ || answer.stats.growth.fell_back || answer.stats.growth.gave_up_columns;
  if (!warned_about_drafts_) WarnAboutDrafts(answer.stats, context_.messages);
  warned_about_drafts_ = warned_about_drafts_ || !answer.stats.draft_trouble.empty();
  const size_t tokens = answer.stats.prompt_tokens + answer.stats.generated_tokens;
  last_stats_ = DescribeAnswer(answer, session_, options_) + "context      " + std::to_string(tokens) + " of " +
                std::to_string(session_.engine->context()) + " tokens\n" +
                DescribePrefixCache(session_.engine->prefix_cache());
  if (left != left_) {
    context_.messages.Warning("the oldest turns, " + std::to_string(left - left_) + " messages, left the context of " +
                              std::to_string(session_.engine->context()) + " tokens; /save still writes them");
    left_ = left;
  }
  WarnAboutFill(tokens);
  WarnAboutEnd(answer, flags_, options_, *session_.engine, context_.messages,
               drops_turns_ ? "; with the next message the oldest turns leave it" : "; /reset starts over");
  if (context_.signals.received() != 0) return Error(ErrorCode::kCancelled, "chat: ended by a signal");
  return {};
}

void Chat::StartOver() {
  left_ = 0;
  warned_about_fill_ = false;
  last_stats_.clear();
  session_.engine->ClearPrefixCache();
}

Result<void> Chat::Save(const std::string& path) {
  TIDEMILL_TRY(file, OutputFile::Create("save the conversation", path, context_.out));
  TIDEMILL_TRY_VOID(file->Write(MessagesToJson(WithSystem(0))));
  return file->Commit();
}

Result<void> Chat::Load(const std::string& path) {
  TIDEMILL_TRY(json, ReadFile("read the conversation", path));
  TIDEMILL_TRY(messages, MessagesFromJson(path, json));
  system_.reset();
  const auto first = std::find_if(messages.begin(), messages.end(),
                                  [](const ChatMessage& message) { return message.role != "system"; });
  loaded_system_.assign(messages.begin(), first);
  if (loaded_system_.size() == 1 && loaded_system_[0].more_json.empty()) {
    system_ = loaded_system_[0].content;
    loaded_system_.clear();
  }
  messages_.assign(first, messages.end());
  StartOver();
  return {};
}

Result<bool> Chat::RunSlash(const std::string& line) {
  const size_t blank = line.find(' ');
  const std::string name = line.substr(0, blank);
  const size_t word = line.find_first_not_of(' ', blank);
  const std::string argument = word == std::string::npos ? "" : line.substr(word);
  Messages& say = context_.messages;
  if (name == "/quit") return false;
  if (name == "/help") {
    say.Say(kHelp);
  } else if (name == "/stats") {
    say.Say(last_stats_.empty() ? "no answer yet\n" : last_stats_);
  } else if (name == "/reset") {
    messages_.clear();
    StartOver();
  } else if (name == "/system") {
    if (argument.empty()) {
      if (!system_ && loaded_system_.empty()) say.Say("no system message\n");
      if (system_) say.Say(Printable(*system_) + "\n");
      for (const ChatMessage& message : loaded_system_) say.Say(Printable(message.content) + "\n");
    } else {
      auto valid = CheckUtf8("read the system message", "/system", argument);
      if (valid.ok()) {
        system_ = argument;
        loaded_system_.clear();
      }
      TIDEMILL_TRY_VOID(SayOrFail(std::move(valid)));
    }
  } else if (name == "/save" || name == "/load") {
    if (argument.empty()) {
      TIDEMILL_TRY_VOID(SayOrFail(UsageError(name, "expected a file name, found none")));
    } else {
      TIDEMILL_TRY_VOID(SayOrFail(name == "/save" ? Save(argument) : Load(argument)));
    }
  } else {
    TIDEMILL_TRY_VOID(
        SayOrFail(UsageError(Quoted(name), "no such command of chat; /help lists them, // begins a message with /")));
  }
  return true;
}

Result<void> Chat::Run() {
  WarnAboutIdleFlags(flags_, options_, "", context_.messages);
  if (lines_.is_terminal()) context_.messages.Say("/help lists the commands, Ctrl-D leaves.\n");
  while (true) {
    TIDEMILL_TRY(message, ReadMessage());
    if (!message) return {};
    if (message->empty()) continue;
    if (message->starts_with('/') && !message->starts_with("//")) {
      TIDEMILL_TRY(go_on, RunSlash(*message));
      if (!go_on) return {};
      continue;
    }
    const bool is_escaped = message->starts_with("//");
    TIDEMILL_TRY_VOID(SayOrFail(Answer(is_escaped ? message->substr(1) : *message)));
  }
}

}  // namespace

Result<void> ChatCommand(CommandContext& context) {
  std::string path;
  std::optional<std::string> system, context_full;
  ChatTemplateFlags chat_template;
  GenerationFlags generation;
  DraftFlags draft;
  MachineFlags machine;
  FlagSet set("chat", "A conversation in the terminal; lines of standard input elsewhere");
  set.Positional("MODEL", path, "A .gguf file or a model folder");
  set.Text("--system", system, "TEXT", "The system message");
  chat_template.AddTo(set);
  set.Choice("--context-full", context_full, {"drop", "stop"},
             "When the context is full the oldest turns leave it, or answers end (drop)");
  generation.AddTo(set);
  set.Hide("--logprobs");
  draft.AddTo(set);
  machine.AddTo(set);
  machine.AddPrefixCacheTo(set);
  TIDEMILL_TRY(go_on, set.Parse(context));
  if (!go_on) return {};
  TIDEMILL_TRY_VOID(generation.CheckRanges());
  TIDEMILL_TRY_VOID(draft.Check());
  if (generation.logprobs) return UsageError("--logprobs", "shown by tidemill run --json only; leave it out");
  if (system) TIDEMILL_TRY_VOID(CheckUtf8("read the system message", "--system", *system));
  TIDEMILL_TRY_VOID(chat_template.Check());
  TIDEMILL_TRY(session, OpenSession(path, machine, draft, context));
  TIDEMILL_TRY(renderer, ChatRenderer::Create(session.model->text(), chat_template, path, "use tidemill run --raw"));
  return Chat(context, session, std::move(renderer), std::move(generation), draft.options(), std::move(system),
              context_full.value_or("drop") == "drop")
      .Run();
}

}  // namespace tidemill::cli
