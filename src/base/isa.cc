#include "base/isa.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace tidemill {
namespace {
constexpr std::string_view kAmd = "AuthenticAMD";
}

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

namespace {
// What Highway's AVX2 target compiles with besides: a virtual machine may hide one. GCC 12's __builtin_cpu_supports does not know them all.
bool HasSmallPartsOfAvx2() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & bit_F16C) == 0 || (c & bit_MOVBE) == 0) return false;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (b & bit_BMI) == 0) return false;
  return __get_cpuid(0x80000001, &a, &b, &c, &d) != 0 && (c & bit_LZCNT) != 0;
}

// GCC 12's __builtin_cpu_is does not know them all.
Processor DetectProcessor() {
  unsigned highest = 0, b = 0, c = 0, d = 0, signature = 0, unused = 0;
  if (__get_cpuid(0, &highest, &b, &c, &d) == 0) return {};
  if (__get_cpuid(1, &signature, &unused, &unused, &unused) == 0) return {};
  return ProcessorOf(b, d, c, signature);
}

}  // namespace

Isa DetectIsa() {
  __builtin_cpu_init();
  const auto has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                        __builtin_cpu_supports("bmi2") && HasSmallPartsOfAvx2();
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

Tuning DetectTuning() { return TuningOf(DetectProcessor()); }

bool GainsFromBiasedBlocks() {
  const Processor processor = DetectProcessor();
  return processor.maker == kAmd && processor.family >= 0x19;
}

#else

std::vector<Isa> KnownIsas() { return {Isa::kBaseline}; }
Isa DetectIsa() { return Isa::kBaseline; }
bool HasFma(Isa) { return true; }
Tuning DetectTuning() { return Tuning::kUsual; }
bool GainsFromBiasedBlocks() { return false; }

#endif

Processor ProcessorOf(uint32_t ebx, uint32_t edx, uint32_t ecx, uint32_t signature) {
  Processor found;
  for (const uint32_t four : {ebx, edx, ecx}) {
    for (unsigned at = 0; at < 32; at += 8) found.maker += static_cast<char>(four >> at & 255);
  }
  found.family = signature >> 8 & 15, found.model = signature >> 4 & 15;
  if (found.family == 15 || found.family == 6) found.model += signature >> 12 & 0xF0;
  if (found.family == 15) found.family += signature >> 20 & 255;
  return found;
}

Tuning TuningOf(const Processor& processor) {
  const auto& [maker, family, model] = processor;
  if (maker == "GenuineIntel") return Tuning::kIntel;
  if (maker != kAmd) return Tuning::kUsual;
  if (family == 0x1A) return Tuning::kZen5;
  // The other models of this family are Zen 4.
  const bool zen3 = family == 0x19 && (model < 0x10 || (model >= 0x20 && model < 0x60));
  return zen3 ? Tuning::kZen3 : Tuning::kUsual;
}

Isa DefaultIsa(Isa best, Tuning tuning) {
  return HasBFloat16Products(best) && tuning == Tuning::kIntel ? Isa::kAvx512Vnni : best;
}

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
