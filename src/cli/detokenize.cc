// tidemill detokenize: ids to text.
#include <cstdint>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/errors.h"
#include "cli/flag_groups.h"
#include "cli/flags.h"
#include "tidemill/model.h"

namespace tidemill::cli {

Result<void> DetokenizeCommand(CommandContext& context) {
  std::string path;
  std::vector<std::string> words;
  bool keep_special = false;
  MachineFlags machine;  // every command takes them
  FlagSet set("detokenize", "Print the text of token ids");
  set.Positional("MODEL", path, "A .gguf file");
  set.Positionals("ID", words, "Token ids, as tokenize prints them");
  set.Switch("--keep-special", keep_special, "Special tokens are printed as they are spelled");
  machine.AddTo(set);
  TIDEMILL_TRY(go_on, set.Parse(context));
  if (!go_on) return {};
  std::vector<int32_t> ids;
  for (const std::string& word : words) {
    const auto id = ParseNumber<int32_t>(word);
    if (!id || *id < 0) return UsageError("ID", "expected a token id, found " + Quoted(word));
    ids.push_back(*id);
  }
  TIDEMILL_TRY(model, LoadText(path));
  TIDEMILL_TRY(text, model.tokenizer.Decode(ids, keep_special));
  TIDEMILL_TRY_VOID(context.out.WriteModelText(text));
  return context.out.EndLineOnTerminal(text);
}

}  // namespace tidemill::cli
