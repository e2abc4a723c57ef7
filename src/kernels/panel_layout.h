// Where the parts of a quantised panel stand (kernels/weight_matrix.h draws the panels). Plain constants without a
// standard-library class or a function, so that files compiled for one instruction-set level can include them.
#ifndef TIDEMILL_KERNELS_PANEL_LAYOUT_H_
#define TIDEMILL_KERNELS_PANEL_LAYOUT_H_

#include <stddef.h>
#include <stdint.h>

namespace tidemill {

enum class PanelType : uint8_t { kQ8_0, kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ4_K, kQ5_K, kQ6_K };

// A panel is one group behind another: the scales of its blocks of 32 columns, then their quants. So a panel is read as one stream.
struct PanelLayout {
  size_t quant_bytes;    // of one block of 32 columns of 16 rows
  size_t scale_blocks;   // blocks that have their scales in one group: 1, or 8 for K-quants
  size_t scale_bytes;    // of the scales of a group
  int32_t offset;        // the quant is the stored number minus this
  bool minimum = false;  // weights are d_w * q + m_w
};

inline constexpr PanelLayout kPanelLayouts[] = {
    {.quant_bytes = 512, .scale_blocks = 1, .scale_bytes = 32, .offset = 128},                  // Q8_0
    {.quant_bytes = 256, .scale_blocks = 1, .scale_bytes = 32, .offset = 8},                    // Q4_0
    {.quant_bytes = 256, .scale_blocks = 1, .scale_bytes = 64, .offset = 0, .minimum = true},   // Q4_1
    {.quant_bytes = 320, .scale_blocks = 1, .scale_bytes = 32, .offset = 16},                   // Q5_0
    {.quant_bytes = 320, .scale_blocks = 1, .scale_bytes = 64, .offset = 0, .minimum = true},   // Q5_1
    {.quant_bytes = 256, .scale_blocks = 8, .scale_bytes = 320, .offset = 0, .minimum = true},  // Q4_K
    {.quant_bytes = 320, .scale_blocks = 8, .scale_bytes = 320, .offset = 0, .minimum = true},  // Q5_K
    {.quant_bytes = 384, .scale_blocks = 8, .scale_bytes = 288, .offset = 32},                  // Q6_K
};
template <PanelType type>
inline constexpr PanelLayout kPanelLayout = kPanelLayouts[static_cast<size_t>(type)];
template <PanelType type>
inline constexpr size_t kGroupBytes =
    kPanelLayout<type>.scale_bytes + kPanelLayout<type>.scale_blocks* kPanelLayout<type>.quant_bytes;
// The fifth bits of a block's quants stand behind its nibbles.
template <PanelType type>
inline constexpr bool kFiveBits = type == PanelType::kQ5_0 || type == PanelType::kQ5_1 || type == PanelType::kQ5_K;
inline constexpr size_t kExpandedBlock = 32 * 16;  // bytes of a block of a panel, one for each weight
inline constexpr size_t kMaxExpandedCols = 16384;  // more would not stay in the L2 cache
// d and the minimum have a 6-bit factor for each block.
template <PanelType type>
inline constexpr bool kSixBitScales = type == PanelType::kQ4_K || type == PanelType::kQ5_K;

}  // namespace tidemill

#endif  // TIDEMILL_KERNELS_PANEL_LAYOUT_H_
