// What one cell of the sweep is: the attention block of one layer while a batch generates `tokens` tokens, under one policy of growth.
#ifndef TIDEMILL_BENCHMARKS_BMC_CELL_H_
#define TIDEMILL_BENCHMARKS_BMC_CELL_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "state/kv_growth.h"
#include "tensor/dtype.h"
#include "tidemill/result.h"

namespace tidemill::bmc {

struct ModelShape {
  std::string_view name;
  size_t heads = 1, kv_heads = 1, head_dim = 1;
};

inline constexpr ModelShape kModelShapes[] = {
    {"opt-2.7b", 32, 32, 80},    {"opt-6.7b", 32, 32, 128},   {"opt-13b", 40, 40, 128},
    {"llama-3-8b", 32, 8, 128},  {"llama-2-7b", 32, 32, 128},  // the second for drafts
    {"heads-of-16", 32, 32, 16},                               // the paper's long contexts
};
Result<ModelShape> FindModelShape(std::string_view name);

enum class Backend {
  kPadded,   // oneDNN over every allocated row, K and V of all sequences in one block: the paper's
  kStrided,  // oneDNN over the valid rows of the same block, whose stride is its capacity: another shape at each step
  kExact,    // the engine's kernel over valid rows, a block for each sequence, all keys in rows
  kEngine,  // on the engine's own caches (state/kv_layer.h), whose keys are transposed; what growth costs is not told apart
};
// Whose rows go through oneDNN: K and V of all sequences stand in one block.
inline bool UsesLibrary(Backend backend) { return backend == Backend::kPadded || backend == Backend::kStrided; }
std::string_view BackendName(Backend backend);
Result<Backend> ParseBackend(std::string_view name);

// Where blocks come from.
enum class Memory {
  kSystem,    // the allocator as the system sets it up
  kPool,      // blocks go back to a pool, which hands them out again
  kReserved,  // addresses once, pages as they are needed
};

struct Cell {
  ModelShape shape;
  size_t tokens = 1;  // N
  size_t batch = 1;   // B
  KvPolicy policy = KvPolicy::kBmc;
  Memory memory = Memory::kSystem;
  size_t increment = 1;  // r, of bmc, reserve and paged
  Backend backend = Backend::kExact;
  DType dtype = DType::kF32;
  size_t threads = 1;
  size_t draft = 1;               // rows of a step, k; 1: no drafts
  size_t accept = 1;              // of them, as many stay on average, m
  std::string pages = "default";  // or small, large

  size_t KvHeadsOfBatch() const { return batch * shape.kv_heads; }
  size_t PositionBytes() const {
    return 2 * KvHeadsOfBatch() * RowBytes(dtype, shape.head_dim);
  }  // K and V, all sequences
  // As the paper counts: blocks that a generation needs, T.
  size_t Allocations() const;
  std::string PolicyName() const;  // "bmc", "iterative, pool"
  std::string Key() const;         // the cell's name in a journal
  // The most that it needs at once: two blocks while one is copied into the next, and scratch.
  double NeededBytes() const;
};

// One step: `len` rows are written behind `rows_before`, all of them attend, `accepted` stay.
struct Step {
  size_t rows_before = 0;
  size_t len = 1;
  size_t accepted = 1;
  size_t capacity_before = 0;
  size_t capacity = 0;  // more than capacity_before: the cache grows first

  bool grows() const { return capacity != capacity_before; }
};

// The steps of the whole generation from an empty cache. Drafts are cut to the rows that are free, and where none is, the cache grows: so
// the paper has it. How many rows of a draft are accepted is drawn from 1 to 2 m - 1, the same for all policies.
std::vector<Step> MakeScript(const Cell& cell);

// Which steps are timed, and how many steps each stands for.
struct PlannedStep {
  size_t index = 0;  // in the script
  double weight = 1;
};

// samples == 0: all of them. Else up to `samples` growths, each in the middle of those that it stands for, and about twice as many steps
// between growths, in runs of up to 8. Runs, because a page holds several rows of a head, and one write in several takes the page fault.
// Weights add up to the number of steps.
std::vector<PlannedStep> PlanSteps(const std::vector<Step>& script, size_t samples);

}  // namespace tidemill::bmc

#endif  // TIDEMILL_BENCHMARKS_BMC_CELL_H_
