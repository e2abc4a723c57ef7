#include "cli/command.h"

#include <unistd.h>

#include <exception>
#include <new>
#include <optional>
#include <string_view>

#include "cli/errors.h"
#include "cli/flags.h"
#include "cli/memory_reserve.h"
#include "cli/version.h"

namespace tidemill::cli {
namespace {

struct Command {
  const char* name;
  const char* summary;
  Result<void> (*run)(CommandContext& context);
};

constexpr Command kCommands[] = {
    {"run", "one completion", RunCommand},
    {"chat", "a conversation", ChatCommand},
    {"inspect", "what is in a model file", InspectCommand},
    {"tokenize", "text to token ids", TokenizeCommand},
    {"detokenize", "token ids to text", DetokenizeCommand},
    {"logits", "the logits of every position, as safetensors", LogitsCommand},
    {"perplexity", "how well a model predicts a text", PerplexityCommand},
    {"eval", "what sparse attention costs in quality", EvalCommand},
    {"bench", "speed of prefill and decode", BenchCommand},
    {"plan", "what the engine chooses on this machine, and why", PlanCommand},
};

std::string Overview() {
  std::string text = "Generates text with transformers on CPUs.\nUsage: tidemill COMMAND MODEL [FLAGS]\n\nCommands:\n";
  for (const Command& command : kCommands) {
    std::string line = "  " + std::string(command.name);
    line.resize(14, ' ');
    text += line + command.summary + "\n";
  }
  return text + "\ntidemill COMMAND --help lists the flags of a command; tidemill --version shows the version.\n";
}

Result<void> Dispatch(std::string_view name, CommandContext& context) {
  if (name == "--help" || name == "-h" || name == "help") return context.out.Write(Overview());
  if (name == "--version") return context.out.Write("tidemill " + std::string(kVersion) + "\n");
  std::vector<std::string> names;
  for (const Command& command : kCommands) {
    if (name == command.name) return command.run(context);
    names.emplace_back(command.name);
  }
  const auto nearest = Nearest(name, names);
  return UsageError(Quoted(name),
                    "no such command; " + (nearest ? "did you mean " + *nearest + "?" : "tidemill --help lists them"));
}

Result<void> RunCatching(std::string_view name, CommandContext& context) {
  try {
    return Dispatch(name, context);
  } catch (const std::bad_alloc&) {
    return Error(
        ErrorCode::kOutOfMemory,
        std::string(name) + ": memory: expected more than there is; close other programs or use a smaller --context");
  } catch (const std::exception& exception) {
    return Error(ErrorCode::kInternal, std::string(name) + ": " + exception.what() + "; please report it");
  }
}

int ExitCode(const Result<void>& result, const CommandContext& context) {
  if (context.out.reader_gone()) return kExitReaderGone;
  const int signal_number = context.signals.received();
  if (signal_number != 0 && (result.ok() || result.error().code() == ErrorCode::kCancelled)) {
    return kExitSignalBase + signal_number;
  }
  if (result.ok()) return context.some_failed ? kExitSomeFailed : 0;
  context.messages.Error(result.error().message());
  return ExitCodeFor(result.error().code());
}

}  // namespace

int Main(int argc, char** argv) {
  Messages messages(STDERR_FILENO);
  try {
    OccupyStandardDescriptors();
    const MemoryReserve reserve;
    SignalWatch signals;
    Output out(STDOUT_FILENO, signals);
    if (argc < 2) {
      messages.Say(Overview());
      return ExitCodeFor(ErrorCode::kInvalidArgument);
    }
    CommandContext context{out, messages, signals, std::vector<std::string>(argv + 2, argv + argc)};
    return ExitCode(RunCatching(argv[1], context), context);
  } catch (const std::exception& exception) {  // no thread for signals, no memory for a message
    messages.Error(std::string("start: the system refused: ") + exception.what());
    return ExitCodeFor(ErrorCode::kOutOfMemory);
  }
}

}  // namespace tidemill::cli
