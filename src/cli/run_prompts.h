// run --prompts: a request on each line of a file, a result on each line of standard output.
#ifndef TIDEMILL_CLI_RUN_PROMPTS_H_
#define TIDEMILL_CLI_RUN_PROMPTS_H_

#include <cstddef>
#include <optional>
#include <string>

#include "cli/command.h"
#include "cli/flag_groups.h"
#include "cli/flags.h"
#include "cli/prompt_form.h"
#include "cli/saved_state.h"
#include "cli/text_source.h"
#include "tidemill/result.h"

namespace tidemill::cli {

struct PromptsFlags {
  std::optional<std::string> file;  // "-": standard input
  std::optional<size_t> instances;
  bool as_completed = false;

  void AddTo(FlagSet& flags);
};

struct RunFlags {
  std::string model;
  TextSource text;
  PromptForm form;
  PromptsFlags prompts;
  bool stats = false;
  bool json = false;
  StateFlags state;
  GenerationFlags generation;
  DraftFlags draft;
  MachineFlags machine;
};

// flags.prompts.file is there. Lines are read as requests end, so that neither a long file nor its results are in memory as a whole. A
// line that cannot be run costs only its own result. A signal cancels what runs, and what was generated is written.
Result<void> RunPrompts(const RunFlags& flags, CommandContext& context);

}  // namespace tidemill::cli

#endif  // TIDEMILL_CLI_RUN_PROMPTS_H_
