// tidemill perplexity: how well a model predicts a text.
#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>

#include "cli/command.h"
#include "cli/errors.h"
#include "cli/flag_groups.h"
#include "cli/flags.h"
#include "cli/json.h"
#include "cli/session.h"
#include "cli/text_source.h"
#include "tidemill/measure.h"

namespace tidemill::cli {

Result<void> PerplexityCommand(CommandContext& context) {
  constexpr size_t kDefaultWindow = 512;
  std::string path;
  TextSource source;
  std::optional<std::string> score;
  bool json = false;
  MachineFlags machine;
  FlagSet set("perplexity", "Perplexity of a text, in windows that do not overlap; special tokens in it are text");
  set.Positional("MODEL", path, "A .gguf file or a model folder");
  source.AddTo(set, false);
  set.Choice("--score", score, {"half", "all"}, "Score the second half of each window, or all of it (half)");
  set.Switch("--json", json, "One JSON object");
  machine.AddTo(set,
                "Tokens of a window (512, or the context of the model if that is less; all where it reads segments)");
  TIDEMILL_TRY(go_on, set.Parse(context));
  if (!go_on) return {};
  TIDEMILL_TRY_VOID(CheckReadsPrompts(machine.attention));
  TIDEMILL_TRY(text, source.Read("read the text", "give one with -f FILE"));
  TIDEMILL_TRY(session, OpenSession(path, machine, context));
  const Tokenizer& tokenizer = session.model->text().tokenizer;
  TIDEMILL_TRY(ids, tokenizer.Encode(text, {.add_special = false, .parse_special = false}));
  const bool reads_segments = session.model->info().segment_size != 0;
  const size_t whole = ids.size() + (tokenizer.adds_bos() ? 1 : 0);
  const size_t most = reads_segments ? std::max(kDefaultWindow, whole) : kDefaultWindow;
  const size_t window = machine.context.value_or(std::min(most, session.engine->context()));

  const PerplexityOptions options = {.context = window, .score_all = score == "all"};
  ProgressBar progress(context.messages, "scoring");
  TIDEMILL_TRY(result, Perplexity(*session.engine, *session.model, ids, options, [&](size_t done, size_t windows) {
                 progress.Show(static_cast<double>(done) / static_cast<double>(windows));
               }));
  if (json) {
    Json object;
    object["perplexity"] = result.perplexity;
    object["mean_nll"] = result.mean_nll;
    object["standard_error"] = result.standard_error;
    object["scored_tokens"] = result.scored_tokens;
    object["windows"] = result.windows;
    object["context"] = window;
    object["score"] = score.value_or("half");
    object["numeric_class"] = session.engine->numeric_class();
    return context.out.Write(JsonLine(object));
  }
  char line[256];
  std::snprintf(line, sizeof line,
                "perplexity %.4f (mean %.5f +- %.5f nats per token, %zu tokens scored in %zu windows of %zu)\n",
                result.perplexity, result.mean_nll, result.standard_error, result.scored_tokens, result.windows,
                window);
  return context.out.Write(line);
}

}  // namespace tidemill::cli
