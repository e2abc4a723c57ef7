#include "benchmarks/bmc/grid.h"

#include <algorithm>
#include <utility>

namespace tidemill::bmc {
namespace {

struct Size {
  std::string shape;
  size_t tokens, batch;
  size_t draft = 1, accept = 1;
  friend bool operator==(const Size&, const Size&) = default;
};

// 2048 tokens in a batch of 8 of each shape first, which all that is claimed is about; then the paper's figures 5 and 7 to 9, then the
// rest.
std::vector<Size> SizesOf(const GridOptions& options) {
  const size_t draft = options.draft, accept = options.accept;
  if (options.ci) {
    return {{"opt-2.7b", 128, 1, draft, accept},
            {"opt-2.7b", 128, 8, draft, accept},
            {"llama-3-8b", 128, 8, draft, accept}};
  }
  if (options.drafts) {
    const std::string small = options.shapes.empty() ? "llama-2-7b" : options.shapes.front();
    const std::string large = options.shapes.empty() ? "opt-13b" : options.shapes.front();
    const size_t n = options.tokens.empty() ? 4096 : options.tokens.front();
    const size_t b = options.batches.empty() ? 32 : options.batches.front();
    std::vector<Size> sizes;
    for (const Size& size :
         {Size{small, n, 1, 26, 4}, Size{large, n, b, 26, 8}, Size{small, n, 1, 26, 8}, Size{large, n, b, 26, 4}}) {
      if (std::find(sizes.begin(), sizes.end(), size) == sizes.end()) sizes.push_back(size);
    }
    return sizes;
  }
  const bool drafts = draft > 1;
  const auto or_else = [](auto given, auto otherwise) { return given.empty() ? otherwise : given; };
  std::vector<std::string> shapes = {"opt-2.7b", "opt-6.7b", "opt-13b", "llama-3-8b"};
  std::vector<size_t> tokens = {128, 512, 1024, 2048, 4096}, batches = {1, 8, 32};
  if (options.long_contexts) {
    shapes = {"heads-of-16"};
    tokens = {1024, 2048, 4096, 8192, 16384};
    batches = {4, 16};
  } else if (drafts) {
    shapes = {"llama-2-7b"};
    tokens = {4096};
    batches = {1};
  } else if (options.latency) {
    shapes = {"opt-2.7b"};
    tokens = {2048};
    batches = {32};
  }
  shapes = or_else(options.shapes, shapes);
  tokens = or_else(options.tokens, tokens);
  batches = or_else(options.batches, batches);
  const auto wanted = [&](const Size& size) {
    const auto in = [](const auto& list, const auto& value) {
      return std::find(list.begin(), list.end(), value) != list.end();
    };
    return in(shapes, size.shape) && in(tokens, size.tokens) && in(batches, size.batch);
  };
  std::vector<Size> sizes;
  for (Size size :
       {Size{"opt-2.7b", 2048, 8}, Size{"opt-6.7b", 2048, 8}, Size{"llama-3-8b", 2048, 8}, Size{"opt-13b", 2048, 8},
        Size{"opt-6.7b", 512, 8}, Size{"opt-2.7b", 512, 8}, Size{"opt-13b", 512, 8}, Size{"opt-6.7b", 128, 8},
        Size{"opt-13b", 1024, 8}, Size{"llama-3-8b", 1024, 32}, Size{"llama-3-8b", 4096, 32}}) {
    size.draft = draft;
    size.accept = accept;
    if (wanted(size)) sizes.push_back(size);
  }
  for (const size_t n : tokens) {
    for (const size_t b : batches) {
      for (const std::string& shape : shapes) {
        const Size size{shape, n, b, draft, accept};
        if (std::find(sizes.begin(), sizes.end(), size) == sizes.end()) sizes.push_back(size);
      }
    }
  }
  return sizes;
}

Group PoliciesOf(const GridOptions& options, const Cell& base) {
  Group group;
  const auto add = [&](KvPolicy policy, Memory memory, size_t increment) {
    Cell cell = base;
    cell.policy = policy;
    cell.memory = memory;
    cell.increment = increment;
    // Large pages are asked for in blocks of the allocator alone.
    if (cell.pages == "large" && (memory == Memory::kReserved || cell.backend == Backend::kEngine)) return;
    const std::vector<std::string>& wanted = options.policies;
    if (wanted.empty() || std::find(wanted.begin(), wanted.end(), cell.PolicyName()) != wanted.end())
      group.push_back(cell);
  };
  const bool padded = base.backend == Backend::kPadded, library = UsesLibrary(base.backend),
             engine = base.backend == Backend::kEngine;
  add(KvPolicy::kIterative, Memory::kSystem, 1);
  if (!engine) add(KvPolicy::kIterative, Memory::kPool, 1);
  add(KvPolicy::kUpfront, Memory::kSystem, 1);
  // T = 1 is upfront and T = N iterative; the paper's tables have none between N / 4 and N, and what they would take is most of a sweep's
  // time. Exact attention costs the same whatever is allocated: three T are enough to see the copies.
  for (size_t allocations = 2; allocations <= base.tokens / 4; allocations *= 2) {
    const bool few = !padded || options.latency || options.long_contexts;
    const bool wanted = !few || allocations == 4 || allocations == 16 || allocations == 64;
    if (wanted && base.tokens % allocations == 0) {
      add(KvPolicy::kBmc, Memory::kSystem, base.tokens / allocations);
    }
  }
  add(KvPolicy::kGeometric, Memory::kSystem, 1);
  add(KvPolicy::kReserve, Memory::kReserved, std::max<size_t>(1, std::min<size_t>(256, base.tokens / 8)));
  if (!library) {  // a product of matrices wants its rows in one piece
    add(KvPolicy::kPaged, Memory::kSystem, 16);
    add(KvPolicy::kPaged, Memory::kSystem, 32);
  }
  return group;
}

}  // namespace

Result<std::vector<Group>> MakeGrid(const GridOptions& options) {
  Cell base;
  base.threads = options.threads;
  base.pages = options.pages;
  base.dtype = options.kv_dtype == "bf16" ? DType::kBF16 : DType::kF32;
  if (options.accept == 0 || options.accept > options.draft) {
    return Error(ErrorCode::kInvalidArgument, "--accept " + std::to_string(options.accept) +
                                                  ": expected 1 to --draft, which is " + std::to_string(options.draft));
  }
  std::vector<std::string> backends = options.backends;
  if (backends.empty()) {
#ifdef TIDEMILL_ONEDNN
    backends.emplace_back("padded");
#endif
    backends.emplace_back("exact");
  }
  std::vector<Group> groups;
  for (const Size& size : SizesOf(options)) {
    for (const std::string& name : backends) {
      TIDEMILL_TRY(backend, ParseBackend(name));
      TIDEMILL_TRY(shape, FindModelShape(size.shape));
      base.shape = shape;
      base.tokens = size.tokens;
      base.batch = size.batch;
      base.draft = size.draft;
      base.accept = size.accept;
      base.backend = backend;
      Group group = PoliciesOf(options, base);
      if (!group.empty()) groups.push_back(std::move(group));
    }
  }
  if (groups.empty()) {
    return Error(
        ErrorCode::kInvalidArgument,
        "--policy: expected iterative, 'iterative, pool', upfront, bmc, geometric, reserve or paged, as far as "
        "the back end has it, and sizes of the grid; found no cell of them");
  }
  return groups;
}

size_t SamplesOf(const Cell& cell) {
  constexpr size_t kMax = 32, kFewest = 4;
  constexpr double kReadInFull = 10e9, kPlaced = 12e9;
  const double tokens = static_cast<double>(cell.tokens), bytes = static_cast<double>(cell.PositionBytes()) * tokens;
  if (bytes * tokens / 2 <= kReadInFull) return 0;
  return std::clamp(static_cast<size_t>(kPlaced / bytes), kFewest, kMax);
}

}  // namespace tidemill::bmc
