#include "cli/saved_state.h"

#include <string_view>
#include <utility>

namespace tidemill::cli {
namespace {

constexpr char kSaveState[] = "save the state";
constexpr double kMaxSnapshotSeconds = 86400;

}  // namespace

void StateFlags::AddTo(FlagSet& flags) {
  flags.Text("--save-state", save_file, "FILE", "Where the answer ends, save what --load-state goes on from");
  flags.Text("--load-state", load_file, "FILE",
             "Go on from a saved state; only flags that are given differ from those it was saved with");
  flags.Number<double>("--snapshot-seconds", snapshot_seconds, 0, kMaxSnapshotSeconds,
                       "While a prompt is read, save it at most so often (30; 0: not before the end)");
  flags.Needs("--snapshot-seconds", "--save-state");
}

Result<std::optional<SavedRequest>> LoadState(const StateFlags& flags) {
  std::optional<SavedRequest> saved;
  if (!flags.load_file) return saved;
  TIDEMILL_TRY(opened, SavedRequest::Open(*flags.load_file));
  saved.emplace(std::move(opened));
  return saved;
}

Result<StateOutput> StateOutput::Create(const StateFlags& flags, Output& out) {
  StateOutput output;
  if (!flags.save_file) return output;
  output.path_ = *flags.save_file;
  TIDEMILL_TRY(file, OutputFile::Create(kSaveState, *flags.save_file, out));
  output.file_ = std::move(file);
  output.out_ = &out;
  if (output.file_->is_renamed())
    output.snapshot_seconds_ = flags.snapshot_seconds.value_or(StateFlags::kSnapshotSeconds);
  return output;
}

Result<void> StateOutput::Write(const std::shared_ptr<const std::vector<std::byte>>& saved) {
  if (!is_wanted()) return {};
  if (saved == nullptr) {
    return Error(ErrorCode::kOutOfMemory,
                 std::string(kSaveState) + ": " + path_ + ": the system has no memory for it; the file is as it was");
  }
  if (file_ == nullptr) {
    TIDEMILL_TRY(file, OutputFile::Create(kSaveState, path_, *out_));
    file_ = std::move(file);
  }
  const std::unique_ptr<OutputFile> file = std::move(file_);  // one that fails leaves nothing behind
  TIDEMILL_TRY_VOID(file->Write({reinterpret_cast<const char*>(saved->data()), saved->size()}));
  return file->Commit();
}

}  // namespace tidemill::cli
