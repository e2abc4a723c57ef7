// What kernel tests and kernel benchmarks build their inputs with: the same numbers on every machine, for ever, because hashes of
// the results are kept. Nothing here uses the standard library's distributions, which differ between libraries.
#ifndef TIDEMILL_KERNELS_TESTING_SEEDED_INPUTS_H_
#define TIDEMILL_KERNELS_TESTING_SEEDED_INPUTS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "base/isa.h"
#include "base/testing/levels.h"
#include "base/thread_pool.h"
#include "kernels/execution_context.h"
#include "kernels/weight_matrix.h"
#include "tensor/dtype.h"
#include "tensor/half.h"

namespace tidemill::testing {

inline constexpr std::array kAllTypes = {DType::kF32,  DType::kF16,  DType::kBF16, DType::kQ8_0,
                                         DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1,
                                         DType::kQ4_K, DType::kQ5_K, DType::kQ6_K};

// All of them where any kernel of the level knows one; the baseline's, which emulated and old processors run, know none.
inline std::span<const Tuning> TuningsOf(Isa isa) {
  static constexpr Tuning kAll[] = {Tuning::kUsual, Tuning::kZen3, Tuning::kZen5, Tuning::kIntel};
  return std::span(kAll).first(isa >= Isa::kAvx2 ? std::size(kAll) : 1);
}
constexpr const char* TuningName(Tuning tuning) {
  switch (tuning) {
    case Tuning::kUsual: return "usual";
    case Tuning::kZen3: return "Zen 3";
    case Tuning::kZen5: return "Zen 5";
    case Tuning::kIntel: return "Intel";
  }
  return "unknown";
}

// SplitMix64: a counter through a mixing function.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15U) {}
  uint64_t Next() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15U;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
  }
  size_t Below(size_t n) { return static_cast<size_t>(Next() % n); }
  // Uniform in [-amax, amax), 24 bits: exact but for one product.
  float Uniform(float amax) {
    return amax * (static_cast<float>(static_cast<int64_t>(Next() >> 40) - (int64_t{1} << 23)) * 0x1p-23F);
  }

 private:
  uint64_t state_;
};

inline std::vector<float> RandomFloats(uint64_t seed, size_t count, float amax = 1) {
  Random random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = random.Uniform(amax);
  return values;
}

// The largest minimum |m| of a RandomWeight's blocks, as part of amax.
constexpr float RandomMinimum(DType dtype) {
  switch (dtype) {
    case DType::kQ4_1:
    case DType::kQ5_1: return 0.1F;
    case DType::kQ4_K:
    case DType::kQ5_K: return 0.063F;
    default: return 0;
  }
}

// A weight as a file would hold it: any quants, scales of both signs about `amax` / 100 (a few subnormal halves among them). K-quants:
// halves about amax / 1000 and any scales for them.
struct RandomWeight {
  std::vector<std::byte> bytes;
  WeightSource source;

  RandomWeight(DType dtype, size_t rows, size_t cols, uint64_t seed, float amax = 1) {
    Random random(seed);
    const DTypeInfo info = InfoOf(dtype);
    bytes.resize(rows * RowBytes(dtype, cols));
    const auto half = [&](std::byte* at, float value) {
      const uint16_t bits = FloatToHalf(value);
      std::memcpy(at, &bits, 2);
    };
    for (std::byte* block = bytes.data(); block < bytes.data() + bytes.size(); block += info.block_bytes) {
      if (dtype == DType::kF32) {
        const float value = random.Uniform(amax);
        std::memcpy(block, &value, 4);
      } else if (dtype == DType::kF16) {
        half(block, random.Uniform(amax));
      } else if (dtype == DType::kBF16) {
        const uint16_t bits = FloatToBFloat16(random.Uniform(amax));
        std::memcpy(block, &bits, 2);
      } else {
        for (size_t i = 0; i < info.block_bytes; ++i) block[i] = static_cast<std::byte>(random.Next());
        const bool k_quant = info.block_elements == 256;
        half(block + (dtype == DType::kQ6_K ? 208 : 0),
             random.Uniform(random.Below(16) == 0 ? 0x1p-15F : amax / (k_quant ? 1000 : 100)));
        if (RandomMinimum(dtype) != 0) half(block + 2, random.Uniform(amax / (k_quant ? 1000 : 10)));
      }
    }
    source = {.dtype = dtype, .rows = rows, .cols = cols, .bytes = bytes, .order = {}};
  }
  RandomWeight(const RandomWeight&) = delete;
  RandomWeight& operator=(const RandomWeight&) = delete;
};

// At least `cols` columns: the next whole number of the type's blocks.
constexpr size_t WholeBlocks(DType dtype, size_t cols) {
  const size_t block = InfoOf(dtype).block_elements;
  return (cols + block - 1) / block * block;
}

// A level with threads to run on. The pools and scratch behind it are made once per (level, threads, tuning) and shared by all tests of a
// program. Scratch is uninitialised by contract, so it begins as NaN and then holds whatever the test before left there.
class TestContext {
 public:
  explicit TestContext(Isa isa, size_t threads = 1, Tuning tuning = DetectTuning())
      : shared_(Find(isa, threads, tuning)) {}
  ExecutionContext& operator*() { return shared_.context; }
  ThreadPool& threads() { return *shared_.threads; }

 private:
  static constexpr size_t kScratchBytes = size_t{4} << 20;

  struct Shared {
    std::unique_ptr<ThreadPool> threads;
    ExecutionContext context;

    Shared(Isa isa, size_t num_threads, Tuning tuning)
        : threads(ThreadPool::Create(num_threads).value()),
          context(ExecutionContext::Create(isa, threads.get(), kScratchBytes, tuning).value()) {
      for (size_t i = 0; i < num_threads; ++i) Fill(context.scratch(i));
      Fill(context.shared_scratch());
    }
    static void Fill(std::span<std::byte> bytes) { std::memset(bytes.data(), 0xFF, bytes.size()); }
  };

  static Shared& Find(Isa isa, size_t threads, Tuning tuning) {
    static std::map<std::tuple<Isa, size_t, Tuning>, std::unique_ptr<Shared>> all;
    std::unique_ptr<Shared>& found = all[{isa, threads, tuning}];
    if (found == nullptr) found = std::make_unique<Shared>(isa, threads, tuning);
    return *found;
  }

  Shared& shared_;
};

// FNV-1a over the bytes, little-endian.
template <typename T>
uint64_t HashOf(std::span<const T> values, uint64_t hash = 0xCBF29CE484222325U) {
  for (const std::byte byte : std::as_bytes(values)) hash = (hash ^ std::to_integer<uint64_t>(byte)) * 0x100000001B3U;
  return hash;
}

}  // namespace tidemill::testing

#endif  // TIDEMILL_KERNELS_TESTING_SEEDED_INPUTS_H_
