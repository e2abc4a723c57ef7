// What all figures of benchmarks/diagonal begin with: their options, a loaded model, and their lines of JSON.
#ifndef TIDEMILL_BENCHMARKS_DIAGONAL_LOADED_MODEL_H_
#define TIDEMILL_BENCHMARKS_DIAGONAL_LOADED_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "formats/model_files.h"
#include "kernels/execution_context.h"
#include "models/language_model.h"
#include "state/sequence_state.h"

namespace tidemill::diagonal {

struct Options {
  std::string model;
  size_t threads = 1;
  size_t rounds = 5;
  // orders
  size_t segments = 32;
  size_t in_flight = 0;  // of layer-major; 0: as many as layers
  std::string want = "nothing";
  // full, decode
  std::vector<size_t> lengths = {4096, 8192, 16384, 32768, 65536, 131072};
  size_t chunk = 512;
  bool whole = false;
  size_t tokens = 131072;
  size_t steps = 32;
  // rates
  size_t rows = 0;  // of a task; 0: a segment with its memory rows, or 512
};

struct LoadedModel {
  std::string name;  // of its folder
  std::optional<ModelFiles> files;
  std::unique_ptr<ThreadPool> threads;
  std::unique_ptr<LanguageModel> model;
  std::unique_ptr<ExecutionContext> ctx;

  // Of at most so many tokens, with a cache of F16.
  std::unique_ptr<SequenceState> NewState(size_t max_length) const;
  // `mode` and what every line says: the model, its S and M where it has segments, threads and level.
  nlohmann::ordered_json Line(const std::string& mode) const;
};

// Ends the program with a message where it cannot be loaded.
LoadedModel Load(const Options& options);

// Ends the program: exit code 2.
[[noreturn]] void Refuse(const std::string& message);

void Print(const nlohmann::ordered_json& line);

std::vector<int32_t> RandomIds(const LanguageModel& model, size_t count, uint64_t seed);
std::vector<RowKey> KeysOf(std::span<const int32_t> ids);

double Now();
double Median(std::vector<double> values);

// The modes; each returns the program's exit code.
int RunOrders(const Options& options);
int RunFull(const Options& options);
int RunDecode(const Options& options);
int RunRates(const Options& options);

}  // namespace tidemill::diagonal

#endif  // TIDEMILL_BENCHMARKS_DIAGONAL_LOADED_MODEL_H_
