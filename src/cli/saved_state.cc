#include "cli/saved_state.h"

#include <string_view>
#include <utility>

namespace tidemill::cli {
namespace {

constexpr char kSaveState[] = "save the state";

}  // namespace

void StateFlags::AddTo(FlagSet& flags) {
  flags.Text("--save-state", save_file, "FILE", "Where the answer ends, save what --load-state goes on from");
  flags.Text("--load-state", load_file, "FILE",
             "Go on from a saved state; only flags that are given differ from those it was saved with");
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
  return output;
}

Result<void> StateOutput::Write(const std::shared_ptr<const std::vector<std::byte>>& saved) {
  if (file_ == nullptr) return {};
  if (saved == nullptr) {
    return Error(ErrorCode::kOutOfMemory,
                 std::string(kSaveState) + ": " + path_ + ": the system has no memory for it; the file is as it was");
  }
  TIDEMILL_TRY_VOID(file_->Write({reinterpret_cast<const char*>(saved->data()), saved->size()}));
  return file_->Commit();
}

}  // namespace tidemill::cli
