#include "benchmarks/diagonal/loaded_model.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <utility>

#include "models/registry.h"

namespace tidemill::diagonal {
namespace {

template <typename T>
T OrRefuse(Result<T> result, const std::string& what) {
  if (!result.ok()) Refuse(what + ": " + result.error().message());
  return std::move(result).value();
}

}  // namespace

void Refuse(const std::string& message) {
  std::fprintf(stderr, "diagonal_orders: %s\n", message.c_str());
  std::exit(2);
}

LoadedModel Load(const Options& options) {
  LoadedModel loaded;
  loaded.name = std::filesystem::path(options.model).lexically_normal().filename().string();
  loaded.files = OrRefuse(ModelFiles::Open(options.model), "open " + options.model);
  loaded.threads = OrRefuse(ThreadPool::Create(options.threads), "start threads");
  LoadSettings settings;
  settings.threads = loaded.threads.get();
  loaded.model = OrRefuse(LoadLanguageModel(*loaded.files, settings), "load " + options.model);
  loaded.ctx = std::make_unique<ExecutionContext>(
      OrRefuse(ExecutionContext::Create(DetectIsa(), loaded.threads.get(), loaded.model->scratch_bytes()),
               "take scratch memory"));
  return loaded;
}

std::unique_ptr<SequenceState> LoadedModel::NewState(size_t max_length) const {
  return model->MakeState({.kv_dtype = DType::kF16, .max_length = max_length, .isa = ctx->isa()});
}

nlohmann::ordered_json LoadedModel::Line(const std::string& mode) const {
  nlohmann::ordered_json line = {{"mode", mode}, {"model", name}};
  if (model->segments.present()) {
    line["segment"] = model->segments.shape.segment_tokens;
    line["memory"] = model->segments.shape.memory_rows;
  }
  line["threads"] = threads->num_all_threads();
  line["isa"] = std::string(IsaName(ctx->isa()));
  return line;
}

void Print(const nlohmann::ordered_json& line) { std::printf("%s\n", line.dump().c_str()); }

std::vector<int32_t> RandomIds(const LanguageModel& model, size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % model.settings.vocab_size);
  return ids;
}

std::vector<RowKey> KeysOf(std::span<const int32_t> ids) { return {ids.begin(), ids.end()}; }

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 != 0 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace tidemill::diagonal
