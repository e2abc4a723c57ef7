// The instruction-set levels that kernels are shaped for, from slowest to fastest. A level includes all before it.
#ifndef TIDEMILL_BASE_ISA_H_
#define TIDEMILL_BASE_ISA_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tidemill/result.h"

namespace tidemill {

enum class Isa {
  kBaseline,    // x86-64-v2 with AES and CLMUL; on arm64 NEON
  kAvx2,        // AVX2, FMA, F16C
  kAvx512,      // F, BW, CD, DQ, VL
  kAvx512Vnni,  // and VNNI
  kAvx512Bf16,  // and BF16
};

std::string_view IsaName(Isa isa);  // as in --isa: "avx512-vnni"

// Every level this build knows, lowest first; arm64 knows only the baseline.
std::vector<Isa> KnownIsas();

// The best level this CPU (and its operating system) runs.
Isa DetectIsa();

// kInvalidArgument for an unknown name, kUnsupported for a level that this CPU lacks.
Result<Isa> ParseIsa(std::string_view name);

// FMA levels give equal bits; the baseline, without FMA, is a numeric class of its own. arm64's NEON has FMA.
bool HasFma(Isa isa);

// What kernels do otherwise on processors of one level, such as how they bring memory ahead of its use. Bits are the same.
enum class Tuning : uint8_t {
  kUsual,  // measured on a Zen 4
  kZen3,   // measured on a server (model 1); AMD family 19h but for its Zen 4
  kZen5,   // measured on a server (model 2); AMD family 1Ah
  kIntel,  // measured on an Emerald Rapids server (family 6 model 207); any Intel
};
Tuning DetectTuning();

struct Processor {
  std::string maker;  // "AuthenticAMD", "GenuineIntel"
  unsigned family = 0, model = 0;
};
// By what CPUID says: EBX, EDX and ECX of leaf 0, EAX of leaf 1.
Processor ProcessorOf(uint32_t ebx, uint32_t edx, uint32_t ecx, uint32_t signature);
Tuning TuningOf(const Processor& processor);

// What is taken where no level is asked for: the best, but on an Intel the level below its products of BF16. An Emerald Rapids makes these
// at half the rate of f32's MulAdds: a 1B BF16 model's prefill is 1.6 times as fast without (113, 117 tokens/s beside 71, 70), decode 0.95 to 0.99.
Isa DefaultIsa(Isa best = DetectIsa(), Tuning tuning = DetectTuning());

// Whether products of words are faster from biased blocks (kernels/biased_block.h), as measured on a Zen 3 and a Zen 4: AMD family 19h, and
// those above, which nobody measured.
bool GainsFromBiasedBlocks();

// The level multiplies BF16 itself; such products are a numeric class of their own.
constexpr bool HasBFloat16Products(Isa isa) { return isa >= Isa::kAvx512Bf16; }

}  // namespace tidemill

#endif  // TIDEMILL_BASE_ISA_H_
