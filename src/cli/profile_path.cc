#include "cli/profile_path.h"

#include <cstdlib>

#include "cli/cpu_info.h"

namespace tidemill::cli {

std::string ProfilePath() {
  const auto absolute = [](const char* name) -> std::string {
    const char* value = std::getenv(name);
    return value != nullptr && value[0] == '/' ? value : "";
  };
  const std::string cache = absolute("XDG_CACHE_HOME"), home = absolute("HOME");
  if (!cache.empty()) return cache + "/tidemill/machine.json";
  if (!home.empty()) return home + "/.cache/tidemill/machine.json";
  return "";
}

void NameProfile(EngineOptions& options) {
  options.profile_path = ProfilePath();
  options.cpu = ReadCpuInfo().name;
}

}  // namespace tidemill::cli
