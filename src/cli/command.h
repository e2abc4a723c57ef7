// What a command gets, and the commands.
#ifndef TIDEMILL_CLI_COMMAND_H_
#define TIDEMILL_CLI_COMMAND_H_

#include <string>
#include <vector>

#include "cli/messages.h"
#include "cli/output.h"
#include "cli/signals.h"
#include "tidemill/result.h"

namespace tidemill::cli {

struct CommandContext {
  Output& out;
  Messages& messages;
  SignalWatch& signals;
  std::vector<std::string> arguments;  // behind the command's name
  bool some_failed = false;            // of many inputs; each has said so in its own place
};

// An error of a command ends the program with its line and exit code; one of kCancelled after a signal without a line.
Result<void> RunCommand(CommandContext& context);
Result<void> ChatCommand(CommandContext& context);
Result<void> InspectCommand(CommandContext& context);
Result<void> TokenizeCommand(CommandContext& context);
Result<void> DetokenizeCommand(CommandContext& context);
Result<void> LogitsCommand(CommandContext& context);
Result<void> PerplexityCommand(CommandContext& context);
Result<void> EvalCommand(CommandContext& context);
Result<void> BenchCommand(CommandContext& context);
Result<void> PlanCommand(CommandContext& context);

// The whole program: returns the exit code. Catches what the standard library throws.
int Main(int argc, char** argv);

}  // namespace tidemill::cli

#endif  // TIDEMILL_CLI_COMMAND_H_
