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
  static constexpr double kSnapshotSeconds = 30;

  std::optional<std::string> save_file, load_file;
  std::optional<double> snapshot_seconds;

  void AddTo(FlagSet& flags);
};

// Of --load-state, or nothing without it. Before a model of any size is loaded.
Result<std::optional<SavedRequest>> LoadState(const StateFlags& flags);

// The file of --save-state: at any time all of one state, or as it was. Without the flag it does nothing.
class StateOutput {
 public:
  // Fails at once where the file cannot be written.
  static Result<StateOutput> Create(const StateFlags& flags, Output& out);

  bool is_wanted() const { return out_ != nullptr; }
  // Request::snapshot_seconds; 0 where the place takes one state only, as a pipe does.
  double snapshot_seconds() const { return snapshot_seconds_; }
  // In place of what was written before. `saved`: of a request with keep_state, or a snapshot. kOutOfMemory where that brought none.
  Result<void> Write(const std::shared_ptr<const std::vector<std::byte>>& saved);

 private:
  std::string path_;
  double snapshot_seconds_ = 0;
  Output* out_ = nullptr;
  std::unique_ptr<OutputFile> file_;  // the next one, where it is open
};

}  // namespace tidemill::cli

#endif  // TIDEMILL_CLI_SAVED_STATE_H_
