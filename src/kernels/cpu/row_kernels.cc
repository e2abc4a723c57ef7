// The kernels that go over rows of floats, in one file for each level: of the 5 s that one of them takes to compile, 4 are Highway's headers.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/row_kernels.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "kernels/cpu/activation-inl.h"
#include "kernels/cpu/append_kv-inl.h"
#include "kernels/cpu/delta_inputs-inl.h"
#include "kernels/cpu/elementwise-inl.h"
#include "kernels/cpu/expert_routing-inl.h"
#include "kernels/cpu/layer_norm-inl.h"
#include "kernels/cpu/quantize_rows-inl.h"
#include "kernels/cpu/rms_norm-inl.h"
#include "kernels/cpu/short_convolution-inl.h"
