// memory_probe MODEL PACKED|MAPPED AUTO|F32 [CONTEXT POLICY | PROMPT]: loads a model through the public API, feeds 600 ids, generates 20 and
// prints what the process held at most. With CONTEXT and POLICY it feeds 100, and the engine does not know how many will follow; with
// PROMPT as many. A program of its own, so that nothing else counts.
#include <charconv>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "tidemill/engine.h"
#include "tidemill/model.h"

namespace {

constexpr size_t kPromptIds = 600, kShortPromptIds = 100;
constexpr int32_t kNewTokens = 20;

// The process's own high-water mark since it was started: VmHWM of proc(5), in bytes; 0 when the system does not say.
unsigned long long PeakResidentBytes() {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    unsigned long long kib = 0;
    if (std::sscanf(line.c_str(), "VmHWM: %llu kB", &kib) == 1) return kib * 1024;
  }
  return 0;
}

int Fail(const tidemill::Error& error) {
  std::fprintf(stderr, "memory_probe: %s\n", error.message().c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace tidemill;  // NOLINT(google-build-using-namespace): a program of one function
  if (argc < 4 || argc > 6) {
    std::fprintf(stderr, "memory_probe: expected MODEL PACKED|MAPPED AUTO|F32 [CONTEXT POLICY | PROMPT]\n");
    return 2;
  }
  LoadOptions load;
  load.weights = std::strcmp(argv[2], "MAPPED") == 0 ? WeightStorage::kMapped : WeightStorage::kPacked;
  load.f32 = std::strcmp(argv[3], "F32") == 0;
  auto model = Model::Load(argv[1], load);
  if (!model.ok()) return Fail(model.error());
  EngineOptions options{.threads = 2};
  if (argc == 6) {
    std::from_chars(argv[4], argv[4] + std::strlen(argv[4]), options.context);
    const auto policy = ParseKvPolicy(argv[5]);
    if (!policy.ok()) return Fail(policy.error());
    options.kv_policy = *policy;
  }
  auto engine = Engine::Create(model.value(), options);
  if (!engine.ok()) return Fail(engine.error());
  size_t prompt_ids = argc == 6 ? kShortPromptIds : kPromptIds;
  if (argc == 5) std::from_chars(argv[4], argv[4] + std::strlen(argv[4]), prompt_ids);
  std::vector<int32_t> prompt(prompt_ids);
  for (size_t i = 0; i < prompt.size(); ++i)
    prompt[i] = static_cast<int32_t>((3 + 7 * i) % model.value()->info().vocab_size);
  GenerationOptions generation{.ignore_eos = true};
  if (argc != 6) generation.max_new_tokens = kNewTokens;
  const auto id = engine.value()->Submit({.prompt = prompt, .generation = generation});
  if (!id.ok()) return Fail(id.error());
  RequestStats stats;
  int32_t tokens = 0;
  while (!engine.value()->idle()) {
    for (const Event& event : engine.value()->Step()) {
      if (event.error.has_value()) return Fail(*event.error);
      if (event.last()) stats = event.stats;
      if (event.token && ++tokens == kNewTokens) engine.value()->Cancel(*id);
    }
  }
  std::printf("%llu %llu %llu %zu\n", PeakResidentBytes(),
              static_cast<unsigned long long>(model.value()->resident_weight_bytes()),
              static_cast<unsigned long long>(stats.state_bytes), stats.generated_tokens);
  return 0;
}
