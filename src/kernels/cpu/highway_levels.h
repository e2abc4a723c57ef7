// Choosing among the instruction-set levels that Highway compiled a file for. Include after hwy/highway.h.
//
// A kernel file defines its functions once per Highway target (namespace tidemill::HWY_NAMESPACE); one function outside picks
// by our own level, so that the level is an argument of an engine and not a property of the process.
#ifndef TIDEMILL_KERNELS_CPU_HIGHWAY_LEVELS_H_
#define TIDEMILL_KERNELS_CPU_HIGHWAY_LEVELS_H_

#include "base/isa.h"

#if HWY_ARCH_X86
#define TIDEMILL_PICK(isa, function)                     \
  ((isa) >= ::tidemill::Isa::kAvx512 ? &N_AVX3::function \
   : (isa) == ::tidemill::Isa::kAvx2 ? &N_AVX2::function \
                                     : &N_SSE4::function)
#else
// One level; a conditional, too, since it gives the address of a template's instance the type that the caller wants.
#define TIDEMILL_PICK(isa, function) \
  ((isa) == ::tidemill::Isa::kBaseline ? &HWY_STATIC_DISPATCH(function) : &HWY_STATIC_DISPATCH(function))
#endif

#endif  // TIDEMILL_KERNELS_CPU_HIGHWAY_LEVELS_H_
