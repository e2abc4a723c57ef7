#ifndef TIDEMILL_CLI_VERSION_H_
#define TIDEMILL_CLI_VERSION_H_

namespace tidemill::cli {

inline constexpr char kVersion[] = TIDEMILL_VERSION;  // of the CMake project

}  // namespace tidemill::cli

#endif  // TIDEMILL_CLI_VERSION_H_
