// What `run` completes: a text, or a file and a question behind it, alone or behind a saved state.
#ifndef TIDEMILL_CLI_RUN_TEXT_H_
#define TIDEMILL_CLI_RUN_TEXT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/messages.h"
#include "cli/run_prompts.h"
#include "tidemill/engine.h"
#include "tidemill/model.h"
#include "tidemill/result.h"

namespace tidemill::cli {

struct RunText {
  std::optional<std::string> text;      // none: behind a saved state there need be none
  std::optional<std::string> question;  // behind it
};

// Before the model is loaded. kInvalidArgument: two texts where the model reads no segments, or as a chat; as TextSource::Read.
Result<RunText> ReadRunText(const RunFlags& flags);

// The prompt's ids, or those that come behind the tokens of `saved`, which may be null. A state that was saved in its prompt goes on with that
// prompt: none come, and a text that is given must be the same: kInvalidArgument names the first token that differs.
Result<std::vector<int32_t>> EncodeRunText(const RunText& text, const RunFlags& flags, const Model& model,
                                           const SavedRequest* saved);

// A vocabulary may lack bytes; the tokenizer leaves them out, and the user should know.
void WarnAboutDroppedBytes(const Tokenizer& tokenizer, const RunText& text, Messages& messages);

}  // namespace tidemill::cli

#endif  // TIDEMILL_CLI_RUN_TEXT_H_
