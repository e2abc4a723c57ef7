#include "benchmarks/bmc/cell.h"

#include <algorithm>
#include <array>
#include <utility>

#include "kernels/testing/seeded_inputs.h"

namespace tidemill::bmc {
namespace {

constexpr std::array<std::pair<Backend, std::string_view>, 4> kBackends = {{{Backend::kPadded, "padded"},
                                                                            {Backend::kStrided, "strided"},
                                                                            {Backend::kExact, "exact"},
                                                                            {Backend::kEngine, "engine"}}};

}  // namespace

Result<ModelShape> FindModelShape(std::string_view name) {
  std::string known;
  for (const ModelShape& shape : kModelShapes) {
    if (shape.name == name) return shape;
    known += (known.empty() ? "" : ", ") + std::string(shape.name);
  }
  return Error(ErrorCode::kInvalidArgument, "--shape " + std::string(name) + ": expected one of " + known);
}

std::string_view BackendName(Backend backend) {
  for (const auto& [value, name] : kBackends) {
    if (value == backend) return name;
  }
  return "unknown";
}

Result<Backend> ParseBackend(std::string_view name) {
  for (const auto& [value, known] : kBackends) {
    if (known == name) return value;
  }
  return Error(ErrorCode::kInvalidArgument,
               "--backend " + std::string(name) + ": expected padded, strided, exact or engine");
}

size_t Cell::Allocations() const {
  const std::vector<Step> script = MakeScript(*this);
  return static_cast<size_t>(
      std::count_if(script.begin(), script.end(), [](const Step& step) { return step.grows(); }));
}

std::string Cell::PolicyName() const {
  return std::string(KvPolicyName(policy)) + (memory == Memory::kPool ? ", pool" : "");
}

std::string Cell::Key() const {
  const bool has_increment = policy == KvPolicy::kBmc || policy == KvPolicy::kReserve || policy == KvPolicy::kPaged;
  return std::string(shape.name) + "/tokens:" + std::to_string(tokens) + "/batch:" + std::to_string(batch) +
         "/policy:" + PolicyName() + (has_increment ? "/increment:" + std::to_string(increment) : "") +
         "/backend:" + std::string(BackendName(backend)) + "/kv:" + std::string(InfoOf(dtype).name) +
         "/threads:" + std::to_string(threads) +
         (draft > 1 ? "/draft:" + std::to_string(draft) + "/accept:" + std::to_string(accept) : "") + "/pages:" + pages;
}

double Cell::NeededBytes() const {
  const double rows = static_cast<double>(PositionBytes()) * static_cast<double>(tokens);
  const double query_rows = static_cast<double>(batch * shape.heads * draft);
  const double scores = UsesLibrary(backend) ? query_rows * static_cast<double>(tokens) * 6 : 0;  // f32 and BF16
  const bool copies = memory != Memory::kReserved && policy != KvPolicy::kPaged && policy != KvPolicy::kUpfront;
  return rows * (copies ? 2 : 1) + scores;
}

std::vector<Step> MakeScript(const Cell& cell) {
  const KvGrowth growth{.policy = cell.policy, .increment = cell.increment, .expected = cell.tokens};
  testing::Random random(1);
  std::vector<Step> script;
  size_t capacity = 0;
  for (size_t rows = 0; rows < cell.tokens;) {
    const size_t wanted = std::min(cell.draft, cell.tokens - rows);
    Step step{.rows_before = rows, .len = wanted, .accepted = 1, .capacity_before = capacity, .capacity = capacity};
    if (cell.policy == KvPolicy::kIterative) {
      step.capacity = rows + wanted;
    } else if (rows == capacity && cell.policy == KvPolicy::kReserve) {
      step.capacity = std::min(cell.tokens, rows + 1 + cell.increment);  // pages, an increment ahead of the step's row
    } else if (rows == capacity && cell.policy == KvPolicy::kPaged) {
      step.capacity = std::min(cell.tokens, rows + cell.increment);
    } else if (rows == capacity) {
      step.capacity = growth.Capacity(0, rows + 1, cell.tokens);
    }
    capacity = step.capacity;
    step.len = std::min(wanted, capacity - rows);
    const size_t drawn = cell.draft == 1 ? 1 : 1 + random.Below(2 * cell.accept - 1);
    step.accepted = std::min(step.len, drawn);
    rows += step.accepted;
    script.push_back(step);
  }
  return script;
}

std::vector<PlannedStep> PlanSteps(const std::vector<Step>& script, size_t samples) {
  std::vector<PlannedStep> plan;
  if (samples == 0 || script.size() <= samples) {
    for (size_t i = 0; i < script.size(); ++i) plan.push_back({i, 1});
    return plan;
  }
  std::vector<size_t> begins;  // of blocks, and the end of the last one
  for (size_t i = 0; i < script.size(); ++i) {
    if (i == 0 || script[i].grows()) begins.push_back(i);
  }
  const size_t blocks = begins.size(), chosen = std::min(blocks, samples);
  begins.push_back(script.size());
  for (size_t part = 0; part < chosen; ++part) {
    const size_t first = part * blocks / chosen, end = (part + 1) * blocks / chosen, block = (first + end) / 2;
    const size_t growths = end - first, between = begins[end] - begins[first] - growths;
    const size_t begin = begins[block], inner = begins[block + 1] - begin - 1;
    const size_t runs = std::max<size_t>(1, samples / 4 / chosen);
    const size_t wanted = std::clamp<size_t>(2 * samples / (chosen * runs), 1, 8);  // steps of a run
    const bool all = runs * wanted >= inner;
    const size_t taken = all ? inner : runs * wanted;
    const double left = taken == 0 ? static_cast<double>(between) : 0;  // steps that no other stands for
    plan.push_back({begin, static_cast<double>(growths) + left});
    for (size_t i = 0; i < taken; ++i) {
      const size_t middle = (2 * (i / wanted) + 1) * inner / (2 * runs);  // of the run's part of the block
      const size_t at = all ? i : middle - wanted / 2 + i % wanted;
      plan.push_back({begin + 1 + at, static_cast<double>(between) / static_cast<double>(taken)});
    }
  }
  return plan;
}

}  // namespace tidemill::bmc
