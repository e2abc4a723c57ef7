#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "benchmarks/kernels/measure.h"

namespace tidemill::benchmarks {

Isa Level() {
  const char* name = std::getenv("TIDEMILL_ISA");
  if (name == nullptr) return DetectIsa();
  const Result<Isa> isa = ParseIsa(name);
  if (isa.ok()) return *isa;
  std::fprintf(stderr, "%s\n", isa.error().message().c_str());
  std::exit(2);
}

namespace {

// GB/s, then Gop/s of int8, f32 and BF16; zeros where TIDEMILL_LIMITS says nothing.
std::array<double, 4> Limits() {
  std::array<double, 4> limits{};
  const char* given = std::getenv("TIDEMILL_LIMITS");
  std::string_view text = given == nullptr ? "" : given;
  for (double& limit : limits) {
    const size_t comma = text.find(',');
    const char* const end = text.data() + std::min(comma, text.size());
    if (const auto read = std::from_chars(text.data(), end, limit);
        !text.empty() && (read.ec != std::errc() || read.ptr != end)) {
      std::fprintf(stderr, "TIDEMILL_LIMITS: expected numbers with commas between them, found \"%s\"\n", given);
      std::exit(2);
    }
    text = comma == std::string_view::npos ? "" : text.substr(comma + 1);
  }
  return limits;
}

}  // namespace

void Report(benchmark::State& state, const Cost& cost, bool from_memory) {
  using benchmark::Counter;
  const auto rate = [](double per_iteration) {
    return Counter(per_iteration * 1e-9, Counter::kIsIterationInvariantRate);
  };
  state.counters["GB/s"] = rate(cost.bytes);
  state.counters["Gop/s"] = rate(cost.flops + cost.int8_ops + cost.bfloat16_ops);
  const auto [bandwidth, int8, f32, bfloat16] = Limits();
  if (bandwidth == 0 || int8 == 0 || f32 == 0 || (bfloat16 == 0 && cost.bfloat16_ops != 0)) return;
  // The parts of the machine work side by side: the slowest bounds the time.
  const double memory = from_memory ? cost.bytes / bandwidth : 0;
  const double products = cost.bfloat16_ops == 0 ? cost.int8_ops / int8 : cost.bfloat16_ops / bfloat16;
  const double seconds = std::max({memory, products, cost.flops / f32}) * 1e-9;
  state.counters["limit"] = Counter(seconds, Counter::kIsIterationInvariantRate);
}

void Configure(benchmark::internal::Benchmark* benchmark) {
  benchmark->Unit(benchmark::kMicrosecond)->ComputeStatistics("min", [](const std::vector<double>& values) {
    return *std::min_element(values.begin(), values.end());
  });
}

}  // namespace tidemill::benchmarks

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::AddCustomContext("level", std::string(tidemill::IsaName(tidemill::benchmarks::Level())));
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
