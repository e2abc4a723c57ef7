// Drives an Engine from its events and keeps what became of each request.
#ifndef TIDEMILL_TESTS_SUPPORT_ENGINE_DRIVER_H_
#define TIDEMILL_TESTS_SUPPORT_ENGINE_DRIVER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tidemill/engine.h"

namespace tidemill::testing {

struct Outcome {
  std::vector<int32_t> ids;
  std::string text;
  std::vector<uint32_t> logprob_bits;  // of each id; then of its top_logprobs, (id, bits) each
  std::optional<FinishReason> finish;
  std::optional<ErrorCode> error;
  std::string message;
  RequestStats stats;
  std::shared_ptr<const std::vector<std::byte>> saved;
  std::vector<std::shared_ptr<const std::vector<std::byte>>> snapshots;  // Event::saved before the end
  size_t last_events = 0;
  std::string fault;  // in the order of events

  bool ended() const { return last_events != 0; }
};

// Writes the bytes to a temporary file and loads it; stops the test program when that fails.
std::shared_ptr<const Model> LoadModel(const std::string& name, const std::string& gguf, bool f32 = false,
                                       const std::optional<RopeOverride>& rope_scaling = std::nullopt);

class EngineDriver {
 public:
  // Stops the test program when the engine cannot be made.
  EngineDriver(std::shared_ptr<const Model> model, const EngineOptions& options);

  Engine& engine() { return *engine_; }
  RequestId Submit(std::vector<int32_t> prompt, const GenerationOptions& generation);  // must succeed
  RequestId Submit(Request request);                                                   // must succeed
  void Consume(std::span<const Event> events);
  // One step; its number of events.
  size_t Step();
  void RunUntilIdle();
  const Outcome& outcome(RequestId id) { return outcomes_[id]; }
  uint64_t held_bytes() const;  // by the states of all requests
  // What is wrong with the memory that the engine counts; empty: nothing. Step checks it.
  std::string MemoryFault() const;
  // Alone, from its submission to its end.
  Outcome Run(std::vector<int32_t> prompt, const GenerationOptions& generation);

 private:
  std::unique_ptr<Engine> engine_;
  std::map<RequestId, Outcome> outcomes_;
};

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_ENGINE_DRIVER_H_
