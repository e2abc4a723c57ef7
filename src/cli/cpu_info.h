// What the operating system says about the CPU, for reports.
#ifndef TIDEMILL_CLI_CPU_INFO_H_
#define TIDEMILL_CLI_CPU_INFO_H_

#include <string>
#include <string_view>
#include <vector>

namespace tidemill::cli {

struct CpuInfo {
  // "AMD EPYC 9354, family 25 model 17": virtual machines may name CPUs of several generations alike, "AMD EPYC". "unknown CPU"
  // where the system has no name; without family and model where it has none, as on arm64.
  std::string name;
  std::vector<std::string> flags;  // of the first CPU: "avx2", "fma"
};

// The text of /proc/cpuinfo; ReadCpuInfo reads the file.
CpuInfo ParseCpuInfo(std::string_view text);
CpuInfo ReadCpuInfo();

// Instruction-set features by the names that comparisons use ("AVX512_VNNI"): those that a level of --isa uses, and those that
// the CPU has besides.
struct IsaFeatures {
  std::vector<std::string> used, unused;
};
IsaFeatures FeaturesOf(const CpuInfo& cpu, std::string_view isa);

}  // namespace tidemill::cli

#endif  // TIDEMILL_CLI_CPU_INFO_H_
