#include "cli/cpu_info.h"

#include <algorithm>

#include "cli/files.h"

namespace tidemill::cli {
namespace {

struct Feature {
  std::string_view name, flag;  // ours, the kernel's
  int level;                    // of kLevels, from which on kernels use it; -1: none does
};
constexpr std::string_view kLevels[] = {"baseline", "avx2", "avx512", "avx512-vnni", "avx512-bf16"};
constexpr Feature kFeatures[] = {
    {"AVX2", "avx2", 1},
    {"FMA", "fma", 1},
    {"F16C", "f16c", 1},
    {"AVX_VNNI", "avx_vnni", -1},
    {"AVX512", "avx512f", 2},
    {"AVX512_VBMI", "avx512vbmi", -1},
    {"AVX512_VNNI", "avx512_vnni", 3},
    {"AVX512_BF16", "avx512_bf16", 4},
    {"AMX_INT8", "amx_int8", -1},
};

std::string_view Trimmed(std::string_view text) {
  while (text.starts_with(' ') || text.starts_with('\t')) text.remove_prefix(1);
  while (text.ends_with(' ') || text.ends_with('\t')) text.remove_suffix(1);
  return text;
}

}  // namespace

CpuInfo ParseCpuInfo(std::string_view text) {
  CpuInfo info{.name = "unknown CPU", .flags = {}};
  std::string_view family, model;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) {
      if (!info.flags.empty()) break;  // the first CPU is read
      continue;
    }
    const std::string_view key = Trimmed(line.substr(0, colon));
    std::string_view value = Trimmed(line.substr(colon + 1));
    if (key == "model name") info.name = value;
    if (key == "cpu family") family = value;
    if (key == "model") model = value;
    if (key != "flags") continue;
    while (!value.empty()) {
      const size_t blank = std::min(value.find(' '), value.size());
      info.flags.emplace_back(value.substr(0, blank));
      value.remove_prefix(std::min(blank + 1, value.size()));
    }
  }
  if (!family.empty() && !model.empty()) info.name.append(", family ").append(family).append(" model ").append(model);
  return info;
}

CpuInfo ReadCpuInfo() {
  const auto text = ReadFile("read the CPU's name", "/proc/cpuinfo");
  return ParseCpuInfo(text.ok() ? std::string_view(text.value()) : std::string_view());
}

IsaFeatures FeaturesOf(const CpuInfo& cpu, std::string_view isa) {
  const auto level = std::find(std::begin(kLevels), std::end(kLevels), isa) - std::begin(kLevels);
  IsaFeatures features;
  for (const Feature& feature : kFeatures) {
    if (std::find(cpu.flags.begin(), cpu.flags.end(), feature.flag) == cpu.flags.end()) continue;
    const bool is_used = feature.level >= 0 && feature.level <= level && level < std::ssize(kLevels);
    (is_used ? features.used : features.unused).emplace_back(feature.name);
  }
  return features;
}

}  // namespace tidemill::cli
