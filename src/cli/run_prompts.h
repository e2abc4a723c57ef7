// run --prompts: a request on each line of a file, a result on each line of standard output.
#ifndef TIDEMILL_CLI_RUN_PROMPTS_H_
#define TIDEMILL_CLI_RUN_PROMPTS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "cli/command.h"
#include "cli/flag_groups.h"
#include "cli/flags.h"
#include "cli/prompt_form.h"
#include "tidemill/result.h"

namespace tidemill::cli {

struct PromptsFlags {
  std::optional<std::string> file;  // "-": standard input
  std::optional<size_t> instances;
  bool as_completed = false;

  void AddTo(FlagSet& flags);
};

// Lines are read as requests end, so that neither a long file nor its results are in memory as a whole. A line that cannot be run costs
// only its own result. A signal cancels what runs, and what was generated is written.
Result<void> RunPrompts(const std::string& model, const PromptsFlags& prompts, const PromptForm& form,
                        const GenerationFlags& generation, const DraftFlags& draft, const MachineFlags& machine,
                        bool stats, CommandContext& context);

}  // namespace tidemill::cli

#endif  // TIDEMILL_CLI_RUN_PROMPTS_H_
