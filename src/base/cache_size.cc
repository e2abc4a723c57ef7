#include "base/cache_size.h"

#include <fstream>
#include <locale>
#include <string>

#include "base/checked_math.h"

namespace tidemill {
namespace {

// "1024K", "32768K", "4M"; 0: something else.
uint64_t BytesIn(const std::string& path) {
  std::ifstream file(path);
  file.imbue(std::locale::classic());
  uint64_t number = 0, bytes = 0;
  if (!(file >> number)) return 0;
  char unit = 0;
  uint64_t factor = 1;
  if (file >> unit) factor = unit == 'K' ? uint64_t{1} << 10 : unit == 'M' ? uint64_t{1} << 20 : 0;
  return CheckedMul(number, factor, &bytes) ? bytes : 0;
}

}  // namespace

uint64_t LastCacheBytes(const std::string& root) {
  constexpr int kCaches = 16;  // of a core; machines have four
  int last = 0;
  uint64_t bytes = 0;
  for (int i = 0; i < kCaches; ++i) {
    const std::string folder = root + "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(i);
    std::ifstream level_file(folder + "/level"), type_file(folder + "/type");
    int level = 0;
    std::string type;
    if (!(level_file >> level) || !(type_file >> type)) continue;
    if (type == "Instruction" || level <= last) continue;
    last = level;
    bytes = BytesIn(folder + "/size");
  }
  return bytes;
}

}  // namespace tidemill
