// Sanitizers get tiles of two rows: every access is of the same kind, and instrumented unrolled code takes minutes to compile.
#ifndef TIDEMILL_KERNELS_CPU_LOW_TILES_H_
#define TIDEMILL_KERNELS_CPU_LOW_TILES_H_

namespace tidemill {

#ifdef TIDEMILL_LOW_TILES
inline constexpr bool kLowTiles = true;
#else
inline constexpr bool kLowTiles = false;
#endif

}  // namespace tidemill

#endif  // TIDEMILL_KERNELS_CPU_LOW_TILES_H_
