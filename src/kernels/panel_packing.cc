#include "kernels/panel_packing.h"

#include <bit>
#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "tensor/half.h"
#include "tensor/six_bit_scales.h"

namespace tidemill {
namespace {

constexpr size_t kBlock = 32;
constexpr size_t kRows = 16;
constexpr size_t kWordStride = kRows * 4;  // the next four quants of the same lane

// 0x01010101 times a number below 256: that number in each byte.
constexpr uint32_t kBytes = 0x01010101U;

uint32_t LoadWord(const std::byte* from) {
  uint32_t word;
  std::memcpy(&word, from, 4);
  return word;
}

void StoreWord(std::byte* to, uint32_t word) { std::memcpy(to, &word, 4); }

float LoadHalf(const std::byte* from) {
  uint16_t bits;
  std::memcpy(&bits, from, 2);
  return HalfToFloat(bits);
}

// Group g of a block is its elements 4 * g ... 4 * g + 3. K-quants keep the nibbles of a block of 32 in 32 bytes that two blocks
// share: this puts groups g and g + 4 into one word. `upper`: the block's are the high nibbles.
void PackSharedNibbles(const std::byte* bytes, bool upper, std::byte* out) {
  for (size_t g = 0; g < 4; ++g) {
    const uint32_t first = LoadWord(bytes + 4 * g), second = LoadWord(bytes + 16 + 4 * g);
    const uint32_t word = upper ? (first >> 4 & 15 * kBytes) | (second & 240 * kBytes)
                                : (first & 15 * kBytes) | (second & 15 * kBytes) << 4;
    StoreWord(out + g * kWordStride, word);
  }
}

// Q8_0, Q4_0, Q4_1: four quants at a time; the file's nibbles already stand as the panel wants them.
void PackWords(const std::byte* quants, size_t words, uint32_t flip, std::byte* out) {
  for (size_t g = 0; g < words; ++g) StoreWord(out + g * kWordStride, LoadWord(quants + 4 * g) ^ flip);
}

// Q5_0, Q5_1: bit i of `high` goes to bit i / 4 of byte i % 4.
void PackFifthBits(uint32_t high, std::byte* out) {
  uint32_t word = 0;
  for (unsigned g = 0; g < 8; ++g) {
    const uint32_t four = high >> (4 * g) & 15U;
    word |= (four * 0x00204081U & kBytes) << g;  // copies 7 bits apart: bit i of copy i is bit 8 * i
  }
  StoreWord(out, word);
}

// Q5_K: bit `sub_block` of byte i goes to bit i / 4 of byte i % 4.
void PackFifthBits(const std::byte* high, size_t sub_block, std::byte* out) {
  uint32_t word = 0;
  for (unsigned g = 0; g < 8; ++g) word |= (LoadWord(high + 4 * g) >> sub_block & kBytes) << g;
  StoreWord(out, word);
}

// Q6_K: bits 2 * quarter and 2 * quarter + 1 of byte i go to bits 2 * (i / 4 % 4) and the next of byte i % 4 of word i / 16.
void PackUpperPairs(const std::byte* high, size_t quarter, std::byte* out) {
  for (unsigned half = 0; half < 2; ++half) {
    uint32_t word = 0;
    for (unsigned g = 0; g < 4; ++g)
      word |= (LoadWord(high + 16 * half + 4 * g) >> (2 * quarter) & 3 * kBytes) << (2 * g);
    StoreWord(out + half * kWordStride, word);
  }
}

// One block of the file: `quants` and `scales` are where those of its group begin, at this lane.
void PackFileBlock(PanelType type, const std::byte* in, std::byte* quants, std::byte* scales) {
  const size_t quant_bytes = kPanelLayouts[static_cast<size_t>(type)].quant_bytes;
  const auto copy_half = [&](size_t from, size_t to) { std::memcpy(scales + to * kRows * 2, in + from, 2); };
  switch (type) {
    case PanelType::kQ8_0:
      PackWords(in + 2, 8, 128 * kBytes, quants);  // int8 to u8 = q + 128
      return copy_half(0, 0);
    case PanelType::kQ4_0: PackWords(in + 2, 4, 0, quants); return copy_half(0, 0);
    case PanelType::kQ4_1:
      PackWords(in + 4, 4, 0, quants);
      copy_half(0, 0);
      return copy_half(2, 1);
    case PanelType::kQ5_0:
      PackWords(in + 6, 4, 0, quants);
      PackFifthBits(LoadWord(in + 2), quants + 4 * kWordStride);
      return copy_half(0, 0);
    case PanelType::kQ5_1:
      PackWords(in + 8, 4, 0, quants);
      PackFifthBits(LoadWord(in + 4), quants + 4 * kWordStride);
      copy_half(0, 0);
      return copy_half(2, 1);
    case PanelType::kQ4_K:
    case PanelType::kQ5_K:
      for (size_t j = 0; j < 8; ++j) {
        const std::byte* nibbles = in + (type == PanelType::kQ4_K ? 16 : 48) + j / 2 * 32;
        PackSharedNibbles(nibbles, j % 2 != 0, quants + j * quant_bytes);
        if (type == PanelType::kQ5_K) PackFifthBits(in + 16, j, quants + j * quant_bytes + 4 * kWordStride);
      }
      copy_half(0, 0);
      return copy_half(2, 1);
    case PanelType::kQ6_K:
      for (size_t j = 0; j < 8; ++j) {
        const size_t half = j / 4, quarter = j % 4;
        PackSharedNibbles(in + 64 * half + 32 * (quarter % 2), quarter >= 2, quants + j * quant_bytes);
        PackUpperPairs(in + 128 + 32 * half, quarter, quants + j * quant_bytes + 4 * kWordStride);
      }
      return copy_half(208, 0);
  }
}

// The bytes behind the halves of a group of eight blocks: `out` is at this lane.
void PackByteScales(PanelType type, const std::byte* in, std::byte* out) {
  for (size_t j = 0; j < 8; ++j) {
    if (type == PanelType::kQ6_K) {
      out[2 * j * kRows] = in[192 + 2 * j];
      out[(2 * j + 1) * kRows] = in[192 + 2 * j + 1];
    } else {
      const SixBitScale scale = ReadSixBitScale(in + 4, j);
      out[2 * j * kRows] = static_cast<std::byte>(scale.sc);
      out[(2 * j + 1) * kRows] = static_cast<std::byte>(scale.m);
    }
  }
}

constexpr size_t GroupBytes(const PanelLayout& layout) {
  return layout.scale_bytes + layout.scale_blocks * layout.quant_bytes;
}

// Bytes of halves in a group of scales.
constexpr size_t HalfBytes(PanelType type) {
  return kPanelLayouts[static_cast<size_t>(type)].minimum ? 4 * kRows : 2 * kRows;
}

// Element i of a block as stored; `block` is at its lane.
int StoredQuant(PanelType type, const std::byte* block, size_t i) {
  const size_t g = i / 4, j = i % 4;
  const auto byte = [&](size_t word) { return std::to_integer<int>(block[word * kWordStride + j]); };
  if (type == PanelType::kQ8_0) return byte(g);
  const int nibble = g < 4 ? byte(g) & 15 : byte(g - 4) >> 4;
  switch (type) {
    case PanelType::kQ5_0:
    case PanelType::kQ5_1:
    case PanelType::kQ5_K: return nibble + ((byte(4) >> g & 1) << 4);
    case PanelType::kQ6_K: return nibble + ((byte(4 + g / 4) >> (2 * (g % 4)) & 3) << 4);
    default: return nibble;
  }
}

}  // namespace

PanelType PanelTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kQ8_0: return PanelType::kQ8_0;
    case DType::kQ4_0: return PanelType::kQ4_0;
    case DType::kQ4_1: return PanelType::kQ4_1;
    case DType::kQ5_0: return PanelType::kQ5_0;
    case DType::kQ5_1: return PanelType::kQ5_1;
    case DType::kQ4_K: return PanelType::kQ4_K;
    case DType::kQ5_K: return PanelType::kQ5_K;
    case DType::kQ6_K: return PanelType::kQ6_K;
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16: break;
  }
  StopOnFailedCheck("a quantised type", __FILE__, __LINE__);
}

size_t QuantizedPanelBytes(DType dtype, size_t cols) {
  const PanelLayout& layout = kPanelLayouts[static_cast<size_t>(PanelTypeOf(dtype))];
  const size_t blocks = cols / kBlock;
  return blocks / layout.scale_blocks * GroupBytes(layout);
}

void PackPanelRow(DType dtype, const std::byte* row, size_t cols, size_t lane, std::byte* panel) {
  const PanelType type = PanelTypeOf(dtype);
  const PanelLayout& layout = kPanelLayouts[static_cast<size_t>(type)];
  const size_t file_block = InfoOf(dtype).block_bytes;
  const size_t groups = cols / kBlock / layout.scale_blocks;  // each is one block of the file
  for (size_t i = 0; i < groups; ++i) {
    const std::byte* in = row + i * file_block;
    std::byte* group = panel + i * GroupBytes(layout);
    PackFileBlock(type, in, group + layout.scale_bytes + lane * 4, group + lane * 2);
    if (layout.scale_blocks != 1) PackByteScales(type, in, group + HalfBytes(type) + lane);
  }
}

void ReadPanelRow(DType dtype, const std::byte* panel, size_t lane, std::span<float> out) {
  const PanelType type = PanelTypeOf(dtype);
  const PanelLayout& layout = kPanelLayouts[static_cast<size_t>(type)];
  const size_t blocks = out.size() / kBlock;
  for (size_t b = 0; b < blocks; ++b) {
    const std::byte* group = panel + b / layout.scale_blocks * GroupBytes(layout);
    const std::byte* quants = group + layout.scale_bytes + b % layout.scale_blocks * layout.quant_bytes + lane * 4;
    float d[2], m = 0;  // d of each half of the block
    d[0] = d[1] = LoadHalf(group + lane * 2);
    if (layout.minimum) m = LoadHalf(group + (kRows + lane) * 2);
    if (layout.scale_blocks != 1) {
      const std::byte* bytes = group + HalfBytes(type) + b % layout.scale_blocks * 2 * kRows + lane;
      if (type == PanelType::kQ6_K) {
        d[0] *= static_cast<float>(std::bit_cast<int8_t>(bytes[0]));
        d[1] *= static_cast<float>(std::bit_cast<int8_t>(bytes[kRows]));
      } else {
        d[0] = d[1] = d[0] * static_cast<float>(std::to_integer<int>(bytes[0]));
        m = -(m * static_cast<float>(std::to_integer<int>(bytes[kRows])));
      }
    }
    for (size_t i = 0; i < kBlock; ++i) {
      const float product = d[i / 16] * static_cast<float>(StoredQuant(type, quants, i) - layout.offset);
      out[b * kBlock + i] = layout.minimum ? product + m : product;
    }
  }
}

}  // namespace tidemill
