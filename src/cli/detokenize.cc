// tidemill detokenize: ids to text.
#include <unistd.h>

#include <cstdint>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "cli/errors.h"
#include "cli/files.h"
#include "cli/flag_groups.h"
#include "cli/flags.h"
#include "cli/id_lists.h"
#include "cli/session.h"

namespace tidemill::cli {
namespace {

// The words of standard input; between them are blanks and newlines, as tokenize prints them.
Result<std::vector<std::string>> WordsOfStandardInput() {
  TIDEMILL_TRY(text, ReadStandardInput(kReadIds));
  std::istringstream stream(std::move(text));
  return std::vector<std::string>(std::istream_iterator<std::string>(stream), {});
}

}  // namespace

Result<void> DetokenizeCommand(CommandContext& context) {
  std::string path;
  std::vector<std::string> words;
  bool keep_special = false;
  MachineFlags machine;  // every command takes them
  FlagSet set("detokenize", "Print the text of token ids");
  set.Positional("MODEL", path, "A .gguf file or a model folder");
  set.Positionals("ID", words, "Token ids, as tokenize prints them; without any, standard input");
  set.Switch("--keep-special", keep_special, "Special tokens are printed as they are spelled");
  machine.AddTo(set);
  TIDEMILL_TRY(go_on, set.Parse(context));
  if (!go_on) return {};
  const bool is_input = words.empty();
  if (is_input) {
    if (isatty(STDIN_FILENO) == 1) return UsageError("ids", "expected at least one; give ids or pipe them in");
    TIDEMILL_TRY(piped, WordsOfStandardInput());
    words = std::move(piped);
  }
  std::vector<int32_t> ids;
  for (const std::string& word : words) {
    const auto id = ParseNumber<int32_t>(word);
    if (!id || *id < 0) {
      const std::string what = "expected token ids as tokenize prints them, found " + Quoted(word);
      if (!is_input) return UsageError("ID", what);
      return Error(ErrorCode::kInvalidArgument, std::string(kReadIds) + ": standard input: " + what);
    }
    ids.push_back(*id);
  }
  TIDEMILL_TRY(model, LoadTextOnly(path, context.messages));
  TIDEMILL_TRY(text, model.tokenizer.DecodeText(ids, keep_special));
  TIDEMILL_TRY_VOID(context.out.WriteModelText(text));
  return context.out.EndLineOnTerminal(text);
}

}  // namespace tidemill::cli
