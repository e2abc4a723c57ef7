// What a process that generates holds at most: its packed weights, its state and 64 MiB, whatever the file's size.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>

#include "tests/support/model_folder.h"
#include "tests/support/model_runner.h"
#include "tests/support/seeded_armt.h"
#include "tests/support/tiny_model.h"

namespace tidemill::memory_test {
namespace {

constexpr uint64_t kSlackBytes = uint64_t{64} << 20;

struct Held {
  unsigned long long peak = 0;     // resident, with file pages
  unsigned long long weights = 0;  // in memory of the process's own
  unsigned long long state = 0;
  size_t tokens = 0;
};

// What the probe prints, run as a fresh process: nothing that this test program did counts.
std::string RunProbe(const char* model, const char* storage, const char* dtype, const char* context,
                     const char* policy) {  // the last two as the probe's, null: none
  int ends[2];
  if (pipe(ends) != 0) return "";
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    close(ends[0]);
    close(ends[1]);
    execl(TIDEMILL_MEMORY_PROBE, TIDEMILL_MEMORY_PROBE, model, storage, dtype, context, policy,
          static_cast<char*>(nullptr));
    _exit(127);
  }
  close(ends[1]);
  std::string out;
  char buffer[256];
  for (ssize_t n = 0; child > 0 && (n = read(ends[0], buffer, sizeof(buffer))) > 0;) {
    out.append(buffer, static_cast<size_t>(n));
  }
  close(ends[0]);
  int status = -1;
  if (child > 0) waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << TIDEMILL_MEMORY_PROBE;
  return out;
}

// `context` and `policy` of the probe, a prompt's tokens in place of the first without a policy, or neither.
Held Probe(const std::string& model, const char* storage, const char* dtype, const char* context = nullptr,
           const char* policy = nullptr) {
  Held held;
  std::istringstream out(RunProbe(model.c_str(), storage, dtype, context, policy));
  EXPECT_TRUE(out >> held.peak >> held.weights >> held.state >> held.tokens) << out.str();
  EXPECT_EQ(held.tokens, 20U);
  EXPECT_GT(held.state, 0U);
  std::printf("%s, %s%s%s%s%s: peak %.1f MiB, weights %.1f MiB, state %.1f MiB\n", storage, dtype,
              context == nullptr  ? ""
              : policy == nullptr ? ", prompt "
                                  : ", context ",
              context == nullptr ? "" : context, policy == nullptr ? "" : ", ", policy == nullptr ? "" : policy,
              static_cast<double>(held.peak) / (1 << 20), static_cast<double>(held.weights) / (1 << 20),
              static_cast<double>(held.state) / (1 << 20));
  return held;
}

void ExpectBounded(const Held& held, uint64_t min_weight_bytes) {
  EXPECT_GE(held.weights, min_weight_bytes);
  EXPECT_GE(held.peak, held.weights) << "the system's count cannot be right";
  EXPECT_LE(held.peak, held.weights + held.state + kSlackBytes);
}

#if defined(TIDEMILL_MEMORY_OF_SMOLLM2)

std::string ModelPath() {
  const char* path = std::getenv("TIDEMILL_SMOLLM2");
  if (path == nullptr) {
    std::fprintf(
        stderr, "TIDEMILL_SMOLLM2 is not set: expected the path of the SmolLM2 file that tools/get_model.py fetches\n");
    std::exit(1);
  }
  return path;
}

TEST(Memory, SmolLm2_IsWeightsAndStateAndSlack) {
  ExpectBounded(Probe(ModelPath(), "PACKED", "AUTO"), uint64_t{80} << 20);
}

TEST(Memory, SmolLm2InF32_IsWeightsAndStateAndSlack) {
  ExpectBounded(Probe(ModelPath(), "PACKED", "F32"), uint64_t{500} << 20);
}

#else

// 97 MiB of weights: if the file's pages stayed behind the packed ones, the bound would be passed by 33 MiB.
TEST(Memory, SmallModel_IsWeightsAndStateAndSlack) {
  const std::string bytes = testing::BuildTinyLlama(
      {.hidden = 512, .layers = 6, .heads = 8, .kv_heads = 4, .head_dim = 64, .ffn = 2048, .context = 1024});
  const std::string path = testing::WriteTemporary("memory.gguf", bytes);
  ExpectBounded(Probe(path, "PACKED", "AUTO"), kSlackBytes + (uint64_t{24} << 20));
  const Held mapped = Probe(path, "MAPPED", "AUTO");
  EXPECT_LT(mapped.weights, uint64_t{1} << 20);                       // the norms
  EXPECT_LE(mapped.peak, bytes.size() + mapped.state + kSlackBytes);  // the file's own pages, once
  std::remove(path.c_str());
}

// 102 MiB of weights, a state of 12 KiB a token of a segment and 3 MiB of memories: no more for 48 segments than for 3, but for the ids.
TEST(Memory, RecurrentModel_TakesNoMoreForALongText) {
  testing::ModelFolder folder;
  testing::WriteSeededArmt({}, folder);
  const Held few = Probe(folder.path(), "PACKED", "F32", "400");
  const Held many = Probe(folder.path(), "PACKED", "F32", "6160");
  for (const Held& held : {few, many}) ExpectBounded(held, uint64_t{100} << 20);
  EXPECT_EQ(many.state, few.state);
  constexpr uint64_t kBytesOfId = 64;  // in the prompt, the request, its history and its keys
  EXPECT_LE(many.peak, few.peak + (uint64_t{1} << 20) + 5760 * kBytesOfId);
}

// Whether the system gives large pages unasked or not: /sys/kernel/mm/transparent_hugepage/enabled.
TEST(Memory, ShortRequest_TakesNoMoreInALongContext) {
  const std::string path = testing::WriteTemporary(
      "memory_context.gguf",
      testing::BuildTinyLlama(
          {.hidden = 256, .layers = 8, .heads = 8, .kv_heads = 8, .head_dim = 64, .ffn = 512, .context = 131072}));
  for (const char* policy : {"bmc", "geometric", "reserve", "paged", "upfront"}) {
    const Held in_short = Probe(path, "PACKED", "AUTO", "512", policy);
    const Held in_long = Probe(path, "PACKED", "AUTO", "131072", policy);
    EXPECT_LE(in_long.peak, in_short.peak + (uint64_t{4} << 20)) << policy;
  }
  std::remove(path.c_str());
}

#endif

}  // namespace
}  // namespace tidemill::memory_test
