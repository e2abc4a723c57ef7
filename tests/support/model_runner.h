// Runs a model file through the executor in any way a test asks for: levels, threads, chunks, packed or mapped, batch mates.
#ifndef TIDEMILL_TESTS_SUPPORT_MODEL_RUNNER_H_
#define TIDEMILL_TESTS_SUPPORT_MODEL_RUNNER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/step_executor.h"
#include "formats/model_files.h"
#include "kernels/delta_rule.h"
#include "models/language_model.h"
#include "tidemill/policies.h"

namespace tidemill::testing {

struct RunnerOptions {
  Isa isa = DetectIsa();
  size_t threads = 1;
  bool f32 = false;
  bool mapped = false;
  DType kv_dtype = DType::kF32;
  KvGrowth growth = {};
  size_t context = 4096;
  size_t max_rows = 512;
  std::optional<RopeOverride> rope_scaling = {};
  std::optional<SparseLayer> sparse = {};          // every layer of a state
  size_t sparse_from = SIZE_MAX;                   // StepSequence's, of what Feed and bits_run.h feed
  void (*change)(LanguageModel& model) = nullptr;  // before anything is made for it
};

// Stops the test program with a message when something cannot be loaded: a fixture that is missing is a failure, not a skip.
class ModelRunner {
 public:
  ModelRunner(const std::string& path, const RunnerOptions& options);

  const LanguageModel& model() const { return *model_; }
  StepExecutor& executor() { return *executor_; }
  ExecutionContext& ctx() { return *ctx_; }
  size_t sparse_from() const { return options_.sparse_from; }
  std::unique_ptr<SequenceState> NewState() const { return NewState(DeltaClass()); }
  std::unique_ptr<SequenceState> NewState(const DeltaClass& linear) const;

  // Feeds `ids` in chunks and commits; returns logits [ids, vocab], one row after another (only the last row if last_only).
  std::vector<float> Feed(SequenceState& state, std::span<const int32_t> ids, size_t chunk, bool last_only = false);

  // The next `count` ids, greedily, after `state`'s content and `logits` of its last position.
  std::vector<int32_t> Greedy(SequenceState& state, std::vector<float> logits, size_t count);

 private:
  RunnerOptions options_;
  std::optional<ModelFiles> files_;
  std::unique_ptr<ThreadPool> threads_;
  std::unique_ptr<LanguageModel> model_;
  std::unique_ptr<ExecutionContext> ctx_;
  std::unique_ptr<StepExecutor> executor_;
};

std::vector<RowKey> KeysOf(std::span<const int32_t> ids);

// Writes `bytes` to a file of its own in the test's temporary folder; returns its path.
std::string WriteTemporary(const std::string& name, const std::string& bytes);

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_MODEL_RUNNER_H_
