// A model and an engine as the flags ask for them, and one answer of them.
#ifndef TIDEMILL_CLI_SESSION_H_
#define TIDEMILL_CLI_SESSION_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cli/answer.h"
#include "cli/attention_flags.h"
#include "cli/command.h"
#include "cli/flag_groups.h"
#include "tidemill/engine.h"
#include "tidemill/model.h"
#include "tidemill/result.h"

namespace tidemill::cli {

struct Session {
  std::shared_ptr<const Model> model;
  std::shared_ptr<const Model> draft_model;     // of --draft MODEL; may be null
  std::shared_ptr<const DraftHead> draft_head;  // of --draft HEAD or mtp; may be null
  std::unique_ptr<Engine> engine;               // uses them
  double load_ms = 0;                           // of all
};

// Loads with a progress bar. What is wrong with --kv-dtype whatever the model comes before the load.
Result<Session> OpenSession(const std::string& path, const MachineFlags& flags, CommandContext& context);
// With the draft model that --draft names, if it names one. kInvalidArgument for more layers than there are.
Result<Session> OpenSession(const std::string& path, const MachineFlags& flags, const DraftFlags& draft,
                            CommandContext& context);
// The same for commands that change what the flags ask for.
Result<Session> OpenSession(const std::string& path, LoadOptions load, const EngineOptions& options,
                            CommandContext& context);
Result<Session> OpenSession(const std::string& path, LoadOptions load, const EngineOptions& options,
                            const DraftFlags& draft, CommandContext& context);

// Tokenizer and template alone, with a warning where its ids are in doubt, and one where keys have no effect.
Result<ModelText> LoadTextOnly(const std::string& path, Messages& messages);

// What else happens to a request. `reads`: at first, and after each step before its text: tokens of the prompt that have been read; SIZE_MAX: it has
// ended. `snapshot`: Event::saved before the end.
struct RequestHooks {
  std::function<void(size_t read)> reads = {};
  std::function<void(const std::shared_ptr<const std::vector<std::byte>>& saved)> snapshot = {};
};

// Runs one request to its end; a signal cancels it, also one that a Grace around the call took. `on_text` gets each new
// text; its error cancels the request and is returned, like the error of the request itself. The second one runs a request
// that the engine has taken; `answer`, empty before, and `saved`, Event::saved, have what there is where it fails, too.
Result<Answer> Generate(Engine& engine, Request request, SignalWatch& signals,
                        const std::function<Result<void>(const std::string&)>& on_text);
Result<void> Generate(Engine& engine, RequestId id, SignalWatch& signals,
                      const std::function<Result<void>(const std::string&)>& on_text, Answer* answer,
                      std::shared_ptr<const std::vector<std::byte>>* saved, const RequestHooks& hooks = {});

// Says that `reserve`, or columns of keys, could not be had, if so.
void WarnAboutGrowth(const RequestStats& stats, Messages& messages);
// Says why draft tokens that were asked for were not made, if so.
void WarnAboutDrafts(const RequestStats& stats, Messages& messages);

// Says that the answer may be another than with dense attention, or which flags did nothing, if so.
void NoteAttention(const RequestStats& stats, const AttentionFlags& flags, Messages& messages);

// The lines of --stats and /stats.
std::string DescribeAnswer(const Answer& answer, const Session& session, const GenerationOptions& options);
std::string DescribePrefixCache(const PrefixCacheStats& stats);

}  // namespace tidemill::cli

#endif  // TIDEMILL_CLI_SESSION_H_
