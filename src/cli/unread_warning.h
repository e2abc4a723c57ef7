// The warning about keys of a model's settings files that have no effect here.
#ifndef TIDEMILL_CLI_UNREAD_WARNING_H_
#define TIDEMILL_CLI_UNREAD_WARNING_H_

#include <span>
#include <string_view>

#include "cli/messages.h"
#include "tidemill/model.h"

namespace tidemill::cli {

// One line for each file: "config.json: 2 keys are not known here and have no effect: a, b.c"; of many keys the first ones. `whose`: before
// it, as "draft model: ".
void WarnAboutUnread(std::span<const UnreadSettings> files, std::string_view whose, Messages& messages);

}  // namespace tidemill::cli

#endif  // TIDEMILL_CLI_UNREAD_WARNING_H_
