#include "base/isa.h"

#include <string>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace tidemill {

std::string_view IsaName(Isa isa) {
  switch (isa) {
    case Isa::kBaseline: return "baseline";
    case Isa::kAvx2: return "avx2";
    case Isa::kAvx512: return "avx512";
    case Isa::kAvx512Vnni: return "avx512-vnni";
    case Isa::kAvx512Bf16: return "avx512-bf16";
  }
  return "unknown";
}

#if defined(__x86_64__)

std::vector<Isa> KnownIsas() { return {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Vnni, Isa::kAvx512Bf16}; }

Isa DetectIsa() {
  __builtin_cpu_init();
  const auto has_avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  if (!has_avx2) return Isa::kBaseline;
  const auto has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                          __builtin_cpu_supports("avx512vl");
  if (!has_avx512) return Isa::kAvx2;
  if (!__builtin_cpu_supports("avx512vnni")) return Isa::kAvx512;
  if (!__builtin_cpu_supports("avx512bf16")) return Isa::kAvx512Vnni;
  return Isa::kAvx512Bf16;
}

bool HasFma(Isa isa) { return isa != Isa::kBaseline; }

bool IsZen5() {  // GCC 12's __builtin_cpu_is does not know it
  unsigned highest = 0, family = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(0, &highest, &b, &c, &d) == 0 || b != signature_AMD_ebx) return false;
  if (__get_cpuid(1, &family, &b, &c, &d) == 0) return false;
  return (family >> 8 & 15) == 15 && (family >> 20 & 255) == 11;  // base and extended family: 15 + 11 = 1Ah
}

#else

std::vector<Isa> KnownIsas() { return {Isa::kBaseline}; }
Isa DetectIsa() { return Isa::kBaseline; }
bool HasFma(Isa) { return true; }
bool IsZen5() { return false; }

#endif

Result<Isa> ParseIsa(std::string_view name) {
  std::string known;
  for (const Isa isa : KnownIsas()) {
    if (IsaName(isa) == name) {
      if (isa <= DetectIsa()) return isa;
      return Error(ErrorCode::kUnsupported, "choose instruction set: " + std::string(name) +
                                                ": this CPU has only up to " + std::string(IsaName(DetectIsa())));
    }
    known += (known.empty() ? "" : ", ") + std::string(IsaName(isa));
  }
  return Error(ErrorCode::kInvalidArgument,
               "choose instruction set: '" + std::string(name) + "': expected one of " + known);
}

}  // namespace tidemill
