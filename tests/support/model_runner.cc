#include "tests/support/model_runner.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <type_traits>

#include "engine/segments.h"
#include "models/registry.h"

namespace tidemill::testing {
namespace {

template <typename T>
T OrStop(Result<T> result, const std::string& what) {
  if (!result.ok()) {
    std::fprintf(stderr, "%s: %s\n", what.c_str(), result.error().message().c_str());
    std::exit(1);
  }
  if constexpr (!std::is_void_v<T>) return std::move(result).value();
}

}  // namespace

ModelRunner::ModelRunner(const std::string& path, const RunnerOptions& options) : options_(options) {
  files_ = OrStop(ModelFiles::Open(path), path);
  threads_ = OrStop(ThreadPool::Create(options.threads), "threads");
  LoadSettings settings;
  settings.f32 = options.f32;
  settings.mapped = options.mapped;
  settings.threads = threads_.get();
  model_ = OrStop(LoadLanguageModel(*files_, settings, options.rope_scaling), path);
  if (options.change != nullptr) options.change(*model_);
  ctx_ = std::make_unique<ExecutionContext>(
      OrStop(ExecutionContext::Create(options.isa, threads_.get(), model_->scratch_bytes()), "context"));
  executor_ = OrStop(StepExecutor::Create(*model_, *ctx_, options.max_rows), "executor");
}

std::unique_ptr<SequenceState> ModelRunner::NewState(const DeltaClass& linear) const {
  const std::vector<std::optional<SparseLayer>> sparse(options_.sparse ? model_->layers.size() : 0, options_.sparse);
  return model_->MakeState({.kv_dtype = options_.kv_dtype,
                            .growth = options_.growth,
                            .max_length = options_.context,
                            .numeric_class = 0,
                            .linear = linear,
                            .sparse = sparse,
                            .isa = options_.isa});
}

std::vector<RowKey> KeysOf(std::span<const int32_t> ids) { return {ids.begin(), ids.end()}; }

std::vector<float> ModelRunner::Feed(SequenceState& state, std::span<const int32_t> ids, size_t chunk, bool last_only) {
  std::vector<float> logits;
  std::optional<MemoryRows> memory;
  if (model_->segments.present()) memory.emplace(*model_);
  std::vector<StepSequence> steps;
  for (size_t first = 0; first < ids.size(); first += chunk) {
    const auto part = ids.subspan(first, std::min(chunk, ids.size() - first));
    const bool last = first + part.size() == ids.size();
    OrStop(state.Reserve(part.size() + (memory ? MemoryRows::CountInFront(state) : 0)), "reserve");
    const StepSequence step{.state = &state,
                            .tokens = part,
                            .rows = !last_only ? Wanted::kAll
                                    : last     ? Wanted::kLast
                                               : Wanted::kNothing,
                            .sparse_from = options_.sparse_from};
    steps.clear();
    AddTokens(memory ? &*memory : nullptr, step, false, &steps);
    executor_->Run(
        steps, [&](size_t, size_t, std::span<float> row) { logits.insert(logits.end(), row.begin(), row.end()); },
        nullptr);
    state.Commit(KeysOf(part));
  }
  return logits;
}

std::vector<int32_t> ModelRunner::Greedy(SequenceState& state, std::vector<float> logits, size_t count) {
  std::vector<int32_t> ids;
  const size_t vocab = model_->settings.vocab_size;
  while (ids.size() < count) {
    const auto row = std::span(logits).last(vocab);
    ids.push_back(static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin()));
    logits = Feed(state, std::span(ids).last(1), 1);
  }
  return ids;
}

std::string WriteTemporary(const std::string& name, const std::string& bytes) {
  const std::string path = ::testing::TempDir() + "tidemill_" + std::to_string(getpid()) + "_" + name;
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!out.flush()) {
    std::fprintf(stderr, "test model: %s: cannot be written\n", path.c_str());
    std::exit(1);
  }
  return path;
}

}  // namespace tidemill::testing
