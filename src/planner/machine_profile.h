// What operations take on one machine: numbers that are measured once and kept in a small JSON file.
//
//   {"version": 2, "date": "2026-11-22", "source": "measured by tidemill plan", "cpu": "...", "isa": "avx512-vnni", "threads": 2,
//    "copy_bytes_per_s", "touch_seconds_per_byte", "element_seconds",
//    "product_rows": [1, 2, 4, 8, 16, 32, 128], "attention_rows": [1, 2, 8, 32],
//    "one": {"loop_seconds",
//            "product_seconds_per_byte": {"F32": [7 numbers], ...: every type of weights},
//            "attention_seconds_per_kv_row": {"64x1": [4 numbers], ...: every head_dim of kAttentionDims x group of kAttentionGroups}},
//    "all": {the same}}
//
// "one" and "all": with one thread and with `threads`. A file with a number out of the reader's ranges is refused.
#ifndef TIDEMILL_PLANNER_MACHINE_PROFILE_H_
#define TIDEMILL_PLANNER_MACHINE_PROFILE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/isa.h"
#include "tensor/dtype.h"
#include "tidemill/result.h"

namespace tidemill {

// What is measured: rows of a product; query rows, head_dim and query heads per KV head of attention. Another list is another file version.
inline constexpr std::array<size_t, 7> kProductRows = {1, 2, 4, 8, 16, 32, 128};
inline constexpr std::array<size_t, 4> kAttentionRows = {1, 2, 8, 32};
inline constexpr std::array<size_t, 3> kAttentionDims = {64, 128, 256};
inline constexpr std::array<size_t, 2> kAttentionGroups = {1, 8};
using ProductSeconds = std::array<double, kProductRows.size()>;
using AttentionSeconds = std::array<double, kAttentionRows.size()>;

// With one number of threads.
struct OperationSeconds {
  double loop = 0;  // more for a product as a loop of its own than as a part of a long one
  std::array<ProductSeconds, kNumDTypes> product = {};  // by DType, for a byte of packed weights
  // For a token and a KV head: [kAttentionDims][kAttentionGroups].
  std::array<std::array<AttentionSeconds, kAttentionGroups.size()>, kAttentionDims.size()> attention = {};

  bool operator==(const OperationSeconds&) const = default;
};

struct MachineProfile {
  static constexpr uint64_t kVersion = 2;

  std::string date = {}, source = {}, cpu = {};
  Isa isa = Isa::kBaseline;
  size_t threads = 1;
  // Bytes a second from one KV buffer into another that is resident; one thread, as caches copy.
  double copy = 0;
  double touch = 0;    // seconds a byte until fresh memory is resident, and to give it back
  double element = 0;  // seconds of one thread to norm and quantise an element of a row
  OperationSeconds one, all;

  // Whether it was measured on such a machine with so many threads.
  bool IsOf(std::string_view a_cpu, Isa an_isa, size_t num_threads) const {
    return cpu == a_cpu && isa == an_isa && threads == num_threads;
  }
};

// `name` stands in front of every message. kCorruptFile, kUnsupported for another version.
Result<MachineProfile> ParseProfile(const std::string& name, std::string_view text);
std::string ProfileText(const MachineProfile& profile);  // which ParseProfile reads as the same

// kNotFound: no file; kIoError; kUnsupported: more than 64 KiB.
Result<MachineProfile> LoadProfile(const std::string& path);
// Makes the folders. The file is whole or unchanged. kIoError, kNoSpace.
Result<void> SaveProfile(const MachineProfile& profile, const std::string& path);

// The built-in profiles, src/planner/hardware/*.json, at least one.
std::span<const std::string_view> BuiltInProfiles();

// The nearest of at least one profile: by level, then by vendor and family of the CPU, then by threads; of equals the first.
//   cpu: a name as profiles have it, "AMD EPYC, family 26 model 2"; a name without vendor or family is of another family
const MachineProfile& NearestProfile(std::span<const MachineProfile> profiles, Isa isa, size_t threads,
                                     std::string_view cpu);
// Of the built-in ones.
MachineProfile NearestBuiltIn(Isa isa, size_t threads, std::string_view cpu);

}  // namespace tidemill

#endif  // TIDEMILL_PLANNER_MACHINE_PROFILE_H_
