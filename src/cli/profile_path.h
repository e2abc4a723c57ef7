// Where the numbers of this machine are kept.
#ifndef TIDEMILL_CLI_PROFILE_PATH_H_
#define TIDEMILL_CLI_PROFILE_PATH_H_

#include <string>

#include "tidemill/engine.h"

namespace tidemill::cli {

// By the XDG base directory specification, which has relative paths ignored. Empty: nowhere.
std::string ProfilePath();

// Has the engine read them, if they are of this CPU.
void NameProfile(EngineOptions& options);

}  // namespace tidemill::cli

#endif  // TIDEMILL_CLI_PROFILE_PATH_H_
