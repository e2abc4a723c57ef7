// What one machine needs for the operations that a plan weighs: numbers that were measured once and are kept in a small JSON file.
//
//   {"version": 1, "date": "2026-11-22", "source": "tidemill plan", "cpu": "...", "isa": "avx512-vnni", "threads": 2,
//    "one": {"read_bytes_per_s", "int8_ops_per_s", "bf16_ops_per_s", "f32_flops_per_s"}, "all": {the same},
//    "copy_bytes_per_s", "touch_seconds_per_byte",
//    "rows": [1, 2, 4, 8, 16, 32], "attention_seconds_per_kv_row": [6 numbers], "product_seconds": [6 numbers]}
//
// "one" and "all" are rates with one thread and with `threads` of them (tidemill/measure.h); bf16 is 0 where the level has no such
// products. Whatever a file says, its numbers are in the ranges below or the file is refused.
#ifndef TIDEMILL_PLANNER_MACHINE_PROFILE_H_
#define TIDEMILL_PLANNER_MACHINE_PROFILE_H_

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "base/isa.h"
#include "kernels/attention.h"
#include "kernels/cost.h"
#include "tidemill/result.h"

namespace tidemill {

// Query rows of attention, and rows of a product, that are measured.
inline constexpr std::array<size_t, 6> kProfileRows = {1, 2, 4, 8, 16, 32};
using PerRows = std::array<double, kProfileRows.size()>;

// What stands for all shapes; another sample is another version of the file. The context fits into a last cache, the weight does not:
// that is how either is mostly met.
inline constexpr size_t kSamplePositions = 1024;
inline constexpr size_t kSampleWeightRows = 16384, kSampleWeightCols = 4096;  // Q8_0
AttentionShape SampleAttention();  // 32 heads, 8 for keys and values, of 128, F16
Cost SampleProduct();              // of one row

struct MachineRates {
  double read = 0;                         // bytes a second
  double int8 = 0, bfloat16 = 0, f32 = 0;  // operations a second; bfloat16 may be 0

  // The least seconds of the arithmetic: forms of operations may run side by side.
  double ArithmeticSeconds(const Cost& cost) const;
};

struct MachineProfile {
  static constexpr uint64_t kVersion = 1;

  std::string date = {}, source = {}, cpu = {};
  Isa isa = Isa::kBaseline;
  size_t threads = 1;
  MachineRates one, all;
  double copy =
      0;  // bytes a second from one buffer of keys and values into another that is resident; by one thread, as caches copy
  double touch = 0;        // seconds a byte until fresh memory is resident, and to give it back
  PerRows attention = {};  // seconds for each position of SampleAttention(), with all threads
  PerRows product = {};    // seconds of SampleProduct()'s weight, with all threads
};

// `name` stands in front of every message. kCorruptFile, kUnsupported for another version.
Result<MachineProfile> ParseProfile(const std::string& name, std::string_view text);
std::string ProfileText(const MachineProfile& profile);  // which ParseProfile reads as the same

// kNotFound where there is no file; kIoError; kUnsupported for more than 64 KiB.
Result<MachineProfile> LoadProfile(const std::string& path);
// Makes the folders. The file is complete or as it was. kIoError, kNoSpace.
Result<void> SaveProfile(const MachineProfile& profile, const std::string& path);

// The built-in profiles, src/planner/hardware/*.json, at least one.
std::span<const std::string_view> BuiltInProfiles();
// Of them the one with the nearest level, then the nearest number of threads.
MachineProfile NearestBuiltIn(Isa isa, size_t threads);

}  // namespace tidemill

#endif  // TIDEMILL_PLANNER_MACHINE_PROFILE_H_
