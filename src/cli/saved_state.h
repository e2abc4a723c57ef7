// --save-state and --load-state: a request that goes on in another run.
#ifndef TIDEMILL_CLI_SAVED_STATE_H_
#define TIDEMILL_CLI_SAVED_STATE_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/files.h"
#include "cli/flags.h"
#include "cli/output.h"
#include "tidemill/engine.h"
#include "tidemill/result.h"

namespace tidemill::cli {

struct StateFlags {
  std::optional<std::string> save_file, load_file;

  void AddTo(FlagSet& flags);
};

// Of --load-state, or nothing without it. Before a model of any size is loaded.
Result<std::optional<SavedRequest>> LoadState(const StateFlags& flags);

// The file of --save-state, which is complete or as it was. Without the flag it does nothing.
class StateOutput {
 public:
  static Result<StateOutput> Create(const StateFlags& flags, Output& out);

  bool is_wanted() const { return file_ != nullptr; }
  // `saved`: of a request with keep_state. kOutOfMemory where that brought none.
  Result<void> Write(const std::shared_ptr<const std::vector<std::byte>>& saved);

 private:
  std::string path_;
  std::unique_ptr<OutputFile> file_;
};

}  // namespace tidemill::cli

#endif  // TIDEMILL_CLI_SAVED_STATE_H_
