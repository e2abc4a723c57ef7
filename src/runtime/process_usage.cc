#include "runtime/process_usage.h"

#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

namespace tidemill {
namespace {

// The number of kB behind `field` in a file of the system's; 0 where there is none.
uint64_t BytesOf(const char* file, const std::string& field) {
  std::ifstream status(file);
  std::string line;
  while (std::getline(status, line)) {
    if (line.compare(0, field.size(), field) != 0) continue;
    std::istringstream rest(line.substr(field.size()));
    uint64_t kilobytes = 0;
    rest >> kilobytes;
    return kilobytes * 1024;
  }
  return 0;
}

}  // namespace

double ProcessCpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

PageFaults ProcessPageFaults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return {.minor = static_cast<uint64_t>(usage.ru_minflt), .major = static_cast<uint64_t>(usage.ru_majflt)};
}

double MachineBusySeconds() {
  std::ifstream stat("/proc/stat");
  std::string name;
  double user = 0, nice = 0, system = 0, idle = 0, io_wait = 0, irq = 0, soft_irq = 0, steal = 0;
  if (!(stat >> name >> user >> nice >> system >> idle >> io_wait >> irq >> soft_irq >> steal)) return 0;
  return (user + nice + system + irq + soft_irq + steal) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

uint64_t PeakResidentBytes() { return BytesOf("/proc/self/status", "VmHWM:"); }
uint64_t AnonymousResidentBytes() { return BytesOf("/proc/self/status", "RssAnon:"); }
void ResetPeakResident() { std::ofstream("/proc/self/clear_refs") << "5"; }

}  // namespace tidemill
