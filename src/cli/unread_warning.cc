#include "cli/unread_warning.h"

#include <algorithm>
#include <string>

#include "cli/errors.h"

namespace tidemill::cli {
namespace {

constexpr size_t kMaxKeys = 20, kMaxKeyBytes = 80;

std::string DescribeUnread(const UnreadSettings& unread) {
  const bool is_one = unread.keys.size() == 1;
  std::string line =
      unread.file + ": " + std::to_string(unread.keys.size()) +
      (is_one ? " key is not known here and has no effect: " : " keys are not known here and have no effect: ");
  for (size_t i = 0; i < std::min(unread.keys.size(), kMaxKeys); ++i) {
    const std::string& key = unread.keys[i];
    line += (i == 0 ? "" : ", ") + Printable(std::string_view(key).substr(0, kMaxKeyBytes)) +
            (key.size() > kMaxKeyBytes ? "..." : "");
  }
  return line + (unread.keys.size() > kMaxKeys ? ", ..." : "");
}

}  // namespace

void WarnAboutUnread(std::span<const UnreadSettings> files, std::string_view whose, Messages& messages) {
  for (const UnreadSettings& unread : files) messages.Warning(std::string(whose) + DescribeUnread(unread));
}

}  // namespace tidemill::cli
