#include "benchmarks/bmc/cell_record.h"

#include <sys/utsname.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <utility>

#include "base/isa.h"

namespace tidemill::bmc {
namespace {

using Json = nlohmann::ordered_json;

std::string FirstLine(const char* path, const char* begins) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(begins, 0) != 0) continue;
    const size_t colon = line.find(": ");
    return colon == std::string::npos ? line : line.substr(colon + 2);
  }
  return "unknown";
}

struct Weighted {
  double value, weight;
};

// The smallest value below which `part` of the weight lies; 0 where there is none.
double Percentile(std::vector<Weighted> values, double part) {
  std::sort(values.begin(), values.end(), [](const Weighted& a, const Weighted& b) { return a.value < b.value; });
  double all = 0, below = 0;
  for (const Weighted& value : values) all += value.weight;
  for (const Weighted& value : values) {
    below += value.weight;
    if (below >= part * all) return value.value;
  }
  return 0;
}

}  // namespace

Json MachineRecord() {
  utsname system = {};
  uname(&system);
#ifdef TIDEMILL_ONEDNN
  const bool onednn = true;
#else
  const bool onednn = false;
#endif
  return {{"cpu", FirstLine("/proc/cpuinfo", "model name") + ", family " + FirstLine("/proc/cpuinfo", "cpu family") +
                      " model " + FirstLine("/proc/cpuinfo", "model\t")},
          {"level", IsaName(DetectIsa())},
          {"kernel", std::string(system.release)},
          {"large_pages", FirstLine("/sys/kernel/mm/transparent_hugepage/enabled", "")},
          {"onednn", onednn}};
}

Json DescriptionOf(const Cell& cell) {
  return {{"shape", cell.shape.name},
          {"heads", cell.shape.heads},
          {"kv_heads", cell.shape.kv_heads},
          {"head_dim", cell.shape.head_dim},
          {"tokens", cell.tokens},
          {"batch", cell.batch},
          {"policy", cell.PolicyName()},
          {"increment", cell.increment},
          {"allocations", cell.Allocations()},
          {"backend", BackendName(cell.backend)},
          {"kv_dtype", InfoOf(cell.dtype).name},
          {"threads", cell.threads},
          {"draft", cell.draft},
          {"accept", cell.accept},
          {"pages", cell.pages}};
}

Json RecordOf(const std::vector<Sample>& samples, bool points) {
  StepSeconds sum;
  double creations = 0, steps = 0, minor = 0, major = 0, tlb = 0;
  bool has_tlb = true;
  std::vector<Weighted> all, growth, between;
  Json list = Json::array();
  for (const Sample& sample : samples) {
    const double w = sample.weight;
    sum.allocate += w * sample.seconds.allocate;
    sum.copy += w * sample.seconds.copy;
    sum.update += w * sample.seconds.update;
    sum.attention += w * sample.seconds.attention;
    sum.create += w * sample.seconds.create;
    creations += w * static_cast<double>(sample.seconds.creations);
    steps += w;
    minor += w * static_cast<double>(sample.events.minor_faults);
    major += w * static_cast<double>(sample.events.major_faults);
    has_tlb = has_tlb && sample.events.tlb_misses.has_value();
    tlb += w * static_cast<double>(sample.events.tlb_misses.value_or(0));
    const double latency_us = sample.seconds.total() * 1e6;
    all.push_back({latency_us, w});
    // A sampled growth may stand for steps between growths, too; its own time is a growth's.
    (sample.step.grows() ? growth : between).push_back({latency_us, w});
    list.push_back({sample.step.rows_before + 1, std::round(10 * latency_us) / 10, sample.step.grows()});
  }
  Json record = {{"seconds",
                  {{"allocate", sum.allocate},
                   {"copy", sum.copy},
                   {"update", sum.update},
                   {"attention", sum.attention},
                   {"create", sum.create},
                   {"total", sum.total()}}},
                 {"creations", std::round(creations)},
                 {"steps", std::round(steps)},
                 {"minor_faults", std::round(minor)},
                 {"major_faults", std::round(major)},
                 {"tlb_misses", has_tlb ? Json(std::round(tlb)) : Json(nullptr)},
                 {"latency_us",
                  {{"p50", Percentile(all, 0.5)},
                   {"p99", Percentile(all, 0.99)},
                   {"max", Percentile(all, 1)},
                   {"growth_p50", Percentile(growth, 0.5)},
                   {"between_p50", Percentile(between, 0.5)}}}};
  if (points) record["points"] = list;
  return record;
}

}  // namespace tidemill::bmc
