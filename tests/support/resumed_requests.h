// Requests that are saved and resumed in engines of their own.
#ifndef TIDEMILL_TESTS_SUPPORT_RESUMED_REQUESTS_H_
#define TIDEMILL_TESTS_SUPPORT_RESUMED_REQUESTS_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/engine_driver.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_vocabulary.h"
#include "tidemill/engine.h"

namespace tidemill::testing {

inline constexpr size_t kResumedContext = 96;
inline constexpr int kResumedVocab = 400;

inline const TinyLlamaSpec kResumedSpec = {.vocab = kResumedVocab,
                                           .heads = 2,
                                           .kv_heads = 1,
                                           .head_dim = 32,
                                           .context = kResumedContext,
                                           .dtype = DType::kQ8_0,
                                           .seed = 5};

inline std::shared_ptr<const Model> ResumedModel() {
  static const auto model = LoadModel("resumed_requests", BuildTinyLlama(kResumedSpec));
  return model;
}

inline int32_t ByteToken(int byte) { return kTinyFirstByteToken + byte; }

inline std::vector<int32_t> ResumedPrompt() {
  std::vector<int32_t> prompt(9);
  std::iota(prompt.begin(), prompt.end(), 40);
  return prompt;
}

inline std::span<const std::byte> SavedBytes(const Outcome& outcome) { return *outcome.saved; }

inline SavedRequest ReadSaved(const Outcome& outcome) {  // borrows it
  Result<SavedRequest> saved = SavedRequest::Read(SavedBytes(outcome));
  EXPECT_TRUE(saved.ok()) << saved.error().message();
  return std::move(saved).value();
}

// Runs a request to its end and keeps its state.
inline Outcome RunAndSave(EngineDriver& driver, std::vector<int32_t> prompt, const GenerationOptions& generation) {
  const RequestId id = driver.Submit({.prompt = std::move(prompt), .generation = generation, .keep_state = true});
  driver.RunUntilIdle();
  return driver.outcome(id);
}

// Goes on from what was saved, whose bytes are gone when Resume has returned.
inline Outcome ResumeSaved(EngineDriver& driver, const Outcome& from, ResumeOptions options) {
  Result<RequestId> id = Error(ErrorCode::kInternal, "");
  {
    const std::vector<std::byte> bytes(from.saved->begin(), from.saved->end());
    const Result<SavedRequest> saved = SavedRequest::Read(bytes);
    EXPECT_TRUE(saved.ok()) << saved.error().message();
    id = driver.engine().Resume(*saved, std::move(options));
  }
  EXPECT_TRUE(id.ok()) << id.error().message();
  if (!id.ok()) return {};
  driver.RunUntilIdle();
  return driver.outcome(*id);
}

// That two answers are one, cut in two.
inline void ExpectJoined(const Outcome& first, const Outcome& second, const Outcome& whole, const std::string& where) {
  auto ids = first.ids;
  ids.insert(ids.end(), second.ids.begin(), second.ids.end());
  EXPECT_EQ(ids, whole.ids) << where;
  EXPECT_EQ(first.text + second.text, whole.text) << where;
  auto bits = first.logprob_bits;
  bits.insert(bits.end(), second.logprob_bits.begin(), second.logprob_bits.end());
  EXPECT_EQ(bits, whole.logprob_bits) << where;
  EXPECT_EQ(second.finish, whole.finish) << where;
  EXPECT_EQ(second.fault, "") << where;
}

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_RESUMED_REQUESTS_H_
