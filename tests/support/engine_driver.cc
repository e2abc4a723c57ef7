#include "tests/support/engine_driver.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "base/check.h"
#include "runtime/engine_impl.h"
#include "tests/support/model_runner.h"

namespace tidemill::testing {
namespace {

template <typename T>
T OrStop(Result<T> result) {
  if (!result.ok()) {
    std::fprintf(stderr, "engine driver: %s\n", result.error().message().c_str());
    std::exit(1);
  }
  return std::move(result).value();
}

}  // namespace

std::shared_ptr<const Model> LoadModel(const std::string& name, const std::string& gguf, bool f32,
                                       const std::optional<RopeOverride>& rope_scaling) {
  const std::string path = WriteTemporary(name + ".gguf", gguf);
  LoadOptions options;
  options.f32 = f32;
  options.threads = 1;
  options.rope_scaling = rope_scaling;
  auto model = OrStop(Model::Load(path, options));
  std::remove(path.c_str());  // the mapping keeps it
  return model;
}

EngineDriver::EngineDriver(std::shared_ptr<const Model> model, const EngineOptions& options)
    : engine_(OrStop(Engine::Create(std::move(model), options))) {}

RequestId EngineDriver::Submit(std::vector<int32_t> prompt, const GenerationOptions& generation) {
  return Submit({.prompt = std::move(prompt), .generation = generation});
}

RequestId EngineDriver::Submit(Request request) { return OrStop(engine_->Submit(std::move(request))); }

size_t EngineDriver::Step() {
  const std::span<const Event> events = engine_->Step();
  Consume(events);
  if (const std::string fault = MemoryFault(); !fault.empty()) ADD_FAILURE() << fault;
  return events.size();
}

void EngineDriver::Consume(std::span<const Event> events) {
  for (const Event& event : events) {
    Outcome& o = outcomes_[event.request];
    if (o.ended()) o.fault = "an event after the last one";
    if (!event.token.has_value() && !event.last() && event.saved == nullptr) o.fault = "an event that says nothing";
    if (!event.last() && event.saved != nullptr) o.snapshots.push_back(event.saved);
    if (event.finish.has_value() && event.error.has_value()) o.fault = "an end and an error";
    o.text += event.text;
    if (event.token.has_value()) {
      o.ids.push_back(*event.token);
      o.logprob_bits.push_back(std::bit_cast<uint32_t>(event.logprob));
      for (const TokenLogprob& top : event.top_logprobs) {
        o.logprob_bits.push_back(static_cast<uint32_t>(top.id));
        o.logprob_bits.push_back(std::bit_cast<uint32_t>(top.logprob));
      }
    }
    if (!event.last()) continue;
    ++o.last_events;
    o.finish = event.finish;
    o.stats = event.stats;
    o.saved = event.saved;
    if (event.error.has_value()) {
      o.error = event.error->code();
      o.message = event.error->message();
    }
    if (o.stats.generated_tokens != o.ids.size()) o.fault = "stats count other tokens than events bring";
  }
}

uint64_t EngineDriver::held_bytes() const {
  uint64_t bytes = 0;
  for (const auto& request : engine_->impl().requests) bytes += request->state().bytes().reserved;
  return bytes;
}

std::string EngineDriver::MemoryFault() const {
  const Engine::Impl& impl = engine_->impl();
  std::map<const void*, uint64_t> blocks;
  const auto visit = [&](const void* block, uint64_t bytes) { blocks[block] = bytes; };
  for (const auto& request : impl.requests) request->ForEachBlock(visit);
  impl.memory->prefix_cache().ForEachBlock(visit);
  uint64_t sum = 0;
  for (const auto& [block, bytes] : blocks) sum += bytes;
  const uint64_t held = impl.memory->held(), promised = impl.memory->promised(), limit = impl.memory->limit();
  if (sum != held) return "expected the " + std::to_string(sum) + " bytes of all blocks, held " + std::to_string(held);
  if (promised <= limit && held <= limit - promised) return {};
  return "held " + std::to_string(held) + ", promised " + std::to_string(promised) + " of " + std::to_string(limit);
}

void EngineDriver::RunUntilIdle() {
  for (size_t steps = 0; !engine_->idle(); ++steps) {
    TIDEMILL_CHECK(steps < 100000);
    Step();
  }
}

Outcome EngineDriver::Run(std::vector<int32_t> prompt, const GenerationOptions& generation) {
  const RequestId id = Submit(std::move(prompt), generation);
  RunUntilIdle();
  return outcomes_[id];
}

}  // namespace tidemill::testing
