#include "cli/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <utility>

#include "cli/errors.h"
#include "cli/version.h"

namespace tidemill::cli {
namespace {

// Edits between two words; a swap of neighbours counts once.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0U : 1U)});
      const bool is_swap = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (is_swap) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    std::swap(before_last, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

Error UnknownArgument(const CLI::App& app, const std::string& argument) {
  const std::string name = argument.substr(0, argument.find('='));
  if (name.size() < 2 || name[0] != '-') {
    return UsageError(Quoted(argument), "expected no further argument; quote a text that contains blanks");
  }
  std::vector<std::string> known;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;  // hidden
    for (const std::string& long_name : option->get_lnames()) known.push_back("--" + long_name);
  }
  std::string what = "no such flag of " + app.get_name();
  if (const auto nearest = name.starts_with("--") ? Nearest(name, known) : std::nullopt) {
    what += "; did you mean " + *nearest + "?";
  } else {
    what += "; " + app.get_name() + " --help lists them";
  }
  if (app.get_option_no_throw("--prompt") != nullptr && !name.starts_with("--"))
    what += "; a text that begins with - goes after -p";
  return UsageError(Quoted(name), what);
}

// What people type who come from llama.cpp, and what to give instead. CLI11 reads -ngl as -n gl.
struct ForeignName {
  std::string_view name, instead;
};
constexpr std::string_view kNoGpu = "it runs on no GPU; leave it out";
constexpr std::string_view kModelFirst = "MODEL comes first and without a flag";
constexpr std::string_view kChat = "tidemill chat MODEL is a conversation, and --raw takes a prompt as it is";
constexpr ForeignName kForeignNames[] = {
    {"-ngl", kNoGpu},
    {"--n-gpu-layers", kNoGpu},
    {"--gpu-layers", kNoGpu},
    {"-fa", "attention needs no choice; leave it out"},
    {"--flash-attn", "attention needs no choice; leave it out"},
    {"-np", "give --max-batch"},
    {"--parallel", "give --max-batch"},
    {"-b", "give --prefill-chunk"},
    {"-ub", "give --prefill-chunk"},
    {"--batch-size", "give --prefill-chunk"},
    {"--ubatch-size", "give --prefill-chunk"},
    {"-ctk", "give --kv-dtype"},
    {"-ctv", "give --kv-dtype"},
    {"--cache-type-k", "give --kv-dtype"},
    {"--cache-type-v", "give --kv-dtype"},
    {"-cnv", kChat},
    {"-no-cnv", kChat},
    {"-m", kModelFirst},
    {"--model", kModelFirst},
    {"-md", "give --draft PATH"},
    {"--model-draft", "give --draft PATH"},
    {"-s", "give --seed"},
    {"-sys", "give --system"},
    {"-r", "give --stop"},
    {"--reverse-prompt", "give --stop"},
    {"--n-predict", "give --max-new-tokens"},
    {"--predict", "give --max-new-tokens"},
    {"--max-tokens", "give --max-new-tokens"},
    {"--ctx-size", "give --context"},
    {"--repeat-penalty", "give --repetition-penalty"},
    {"--no-mmap", "--weights packed, the default, copies the weights"},
    {"--jinja", "chat templates are rendered anyway; leave it out"},
};

// Where a command line was refused: the first name of another program in it.
std::optional<Error> FindForeignName(const CLI::App& app, const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    const std::string name = argument.substr(0, argument.find('='));
    if (name == "--") break;
    const auto* found =
        std::find_if(std::begin(kForeignNames), std::end(kForeignNames), [&](const auto& f) { return f.name == name; });
    if (found == std::end(kForeignNames) || app.get_option_no_throw(name) != nullptr) continue;
    // Not every command has the flag that takes its place.
    constexpr std::string_view kGive = "give ";
    const bool names_ours = found->instead.starts_with(kGive);
    const std::string ours(found->instead.substr(names_ours ? kGive.size() : 0));
    const bool has_ours = !names_ours || app.get_option_no_throw(ours.substr(0, ours.find(' '))) != nullptr;
    return UsageError(Quoted(name),
                      "no such flag of " + app.get_name() + "; " +
                          (has_ours ? std::string(found->instead) : app.get_name() + " --help lists them"));
  }
  return std::nullopt;
}

std::string LongName(const std::string& names) {
  const size_t begin = names.find("--");
  if (begin == std::string::npos) return names;
  return names.substr(begin, names.find(',', begin) - begin);
}

// CLI11 takes "--prompt=" for a flag whose value comes next: the empty value gets an argument of its own.
std::vector<std::string> WithEmptyValues(const CLI::App& app, const std::vector<std::string>& arguments) {
  std::vector<std::string> split;
  bool are_flags = true;
  for (const std::string& argument : arguments) {
    are_flags = are_flags && argument != "--";
    const std::string name = argument.substr(0, argument.find('='));
    const bool is_empty = are_flags && name.starts_with("--") && name.size() + 1 == argument.size();
    if (is_empty && app.get_option_no_throw(name) != nullptr) {
      split.push_back(name);
      split.emplace_back();
    } else {
      split.push_back(argument);
    }
  }
  return split;
}

// CLI11 is left by an exception when a value is wrong; Parse makes an Error of it.
void ReadOrThrow(const FlagSet::Reader& read, const std::string& flag, const std::string& text) {
  const std::string expected = read(text);
  if (!expected.empty()) throw CLI::ValidationError(flag, "expected " + expected + ", found " + Quoted(text));
}

}  // namespace

struct FlagSet::Impl {
  Impl(const std::string& description, const std::string& command) : app(description, command) {}

  CLI::App app;
  std::string heading = "Options";

  void Add(CLI::Option* option, const std::string& type) const {
    if (!type.empty()) option->type_name(type);
    option->group(heading);
  }
};

FlagSet::FlagSet(std::string command, const std::string& description)
    : impl_(std::make_unique<Impl>(description, "tidemill " + command)) {
  impl_->app.set_help_flag("-h,--help", "Show this help");
  impl_->app.set_version_flag("--version", std::string(kVersion), "Show the version");
}

FlagSet::~FlagSet() = default;

void FlagSet::Group(const std::string& heading) { impl_->heading = heading; }

void FlagSet::Positional(const std::string& name, std::string& target, const std::string& help) {
  impl_->app.add_option(name, target, help)->required()->type_name("");
}

void FlagSet::OptionalPositional(const std::string& name, std::optional<std::string>& target, const std::string& help) {
  impl_->app
      .add_option_function<std::string>(
          name, [&target](const std::string& text) { target = text; }, help)
      ->type_name("");
}

void FlagSet::Positionals(const std::string& name, std::vector<std::string>& target, const std::string& help) {
  impl_->app.add_option(name, target, help)->type_name("");
}

void FlagSet::Switch(const std::string& names, bool& target, const std::string& help) {
  impl_->Add(impl_->app.add_flag(names, target, help), "");
}

void FlagSet::Text(const std::string& names, std::optional<std::string>& target, const std::string& type,
                   const std::string& help) {
  Value(names, type, help, [&target](const std::string& text) {
    target = text;
    return std::string();
  });
}

void FlagSet::RequiredText(const std::string& names, std::string& target, const std::string& type,
                           const std::string& help) {
  CLI::Option* option = impl_->app.add_option(names, target, help);
  impl_->Add(option->required(), type);
}

void FlagSet::Texts(const std::string& names, std::vector<std::string>& target, const std::string& type,
                    const std::string& help) {
  RepeatedValue(names, type, help, [&target](const std::string& text) {
    target.push_back(text);
    return std::string();
  });
}

void FlagSet::Choice(const std::string& names, std::optional<std::string>& target,
                     const std::vector<std::string>& choices, const std::string& help) {
  std::string list;
  for (const std::string& choice : choices) list += (list.empty() ? "" : "|") + choice;
  Value(names, list, help, [&target, choices, list](const std::string& text) {
    if (std::find(choices.begin(), choices.end(), text) == choices.end()) return list;
    target = text;
    return std::string();
  });
}

void FlagSet::Numbers(const std::string& names, std::vector<size_t>& target, size_t lowest, size_t highest,
                      const std::string& help) {
  Value(names, "N,N,...", help, [&target, lowest, highest](const std::string& text) {
    std::vector<size_t> numbers;
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find(',', begin), text.size());
      const auto value = ParseNumber<size_t>(std::string_view(text).substr(begin, end - begin));
      if (!value || *value < lowest || *value > highest) {
        return "whole numbers from " + NumberText(lowest) + " to " + NumberText(highest) + " with commas between";
      }
      numbers.push_back(*value);
      begin = end + 1;
    }
    target = std::move(numbers);
    return std::string();
  });
}

void FlagSet::Value(const std::string& names, const std::string& type, const std::string& help, Reader read) {
  const auto take = [read = std::move(read), flag = LongName(names)](const std::string& text) {
    ReadOrThrow(read, flag, text);
  };
  impl_->Add(impl_->app.add_option_function<std::string>(names, take, help), type);
}

void FlagSet::RepeatedValue(const std::string& names, const std::string& type, const std::string& help, Reader read) {
  const auto take = [read = std::move(read), flag = LongName(names)](const std::vector<std::string>& texts) {
    for (const std::string& text : texts) ReadOrThrow(read, flag, text);
  };
  CLI::Option* option = impl_->app.add_option_function<std::vector<std::string>>(names, take, help);
  // One value each time it is given; and a value in brackets is a value, not a list.
  impl_->Add(
      option->type_size(1)->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)->allow_extra_args(false),
      type);
}

void FlagSet::Excludes(const std::string& one, const std::string& other) {
  impl_->app.get_option(one)->excludes(impl_->app.get_option(other));
}

void FlagSet::Needs(const std::string& one, const std::string& other) {
  impl_->app.get_option(one)->needs(impl_->app.get_option(other));
}

void FlagSet::Hide(const std::string& name) { impl_->app.get_option(name)->group(""); }

void FlagSet::Removed(const std::string& name, const std::string& instead) {
  const auto refuse = [name, instead](const std::string&) {
    throw CLI::ValidationError(name, "expected no such flag, which was removed: " + instead);
  };
  impl_->app.add_option_function<std::string>(name, refuse)
      ->expected(0, 1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->group("");
}

Result<bool> FlagSet::Parse(CommandContext& context) {
  CLI::App& app = impl_->app;
  bool quiet = false;
  std::optional<std::string> level;
  Group("Messages");
  Choice("--log-level", level, {"error", "warning", "info"}, "What to say on stderr (warning)");
  Switch("-q,--quiet", quiet, "No warnings, no progress");
  std::vector<std::string> arguments = WithEmptyValues(app, context.arguments);
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::CallForHelp&) {
    // "-hello" is for CLI11 -h and more.
    const auto asks = [](const std::string& argument) { return argument == "-h" || argument == "--help"; };
    const auto is_word = [](const std::string& argument) { return argument.starts_with("-h") && argument.size() > 2; };
    const auto word = std::find_if(context.arguments.begin(), context.arguments.end(), is_word);
    if (word != context.arguments.end() && std::none_of(context.arguments.begin(), context.arguments.end(), asks))
      return UnknownArgument(app, *word);
    TIDEMILL_TRY_VOID(context.out.Write(app.help()));
    return false;
  } catch (const CLI::CallForVersion&) {
    TIDEMILL_TRY_VOID(context.out.Write("tidemill " + std::string(kVersion) + "\n"));
    return false;
  } catch (const CLI::ParseError& error) {
    if (std::optional<Error> foreign = FindForeignName(app, context.arguments)) return *foreign;
    // A misspelt flag is named first, since its value may be what the parser stumbled over.
    const std::vector<std::string> left = app.remaining();
    const auto is_flag = [](const std::string& argument) { return argument.size() > 1 && argument[0] == '-'; };
    const auto flag = std::find_if(left.begin(), left.end(), is_flag);
    if (flag != left.end()) return UnknownArgument(app, *flag);
    if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr && !left.empty()) {
      return UnknownArgument(app, left.front());
    }
    std::string what = error.what();
    if (const size_t at = what.find("At Most 1 required but received"); at != std::string::npos)
      what = what.substr(0, at) + "expected it once, found it again";
    return Error(ErrorCode::kInvalidArgument, "read the command line: " + what + "; see " + app.get_name() + " --help");
  }
  if (level == "error") context.messages.set_level(LogLevel::kError);
  if (level == "info") context.messages.set_level(LogLevel::kInfo);
  if (quiet) context.messages.set_quiet();
  return true;
}

std::optional<std::string> Nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::optional<std::string> nearest;
  if (word.size() > 64) return nearest;
  const size_t letters = word.size() - std::min(word.find_first_not_of('-'), word.size());
  size_t least = letters / 4 + 2;  // one past what still counts as a slip
  for (const std::string& candidate : candidates) {
    const size_t distance = letters > 3 && candidate.starts_with(word) ? 1 : EditDistance(word, candidate);
    if (distance < least) {
      least = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

}  // namespace tidemill::cli
