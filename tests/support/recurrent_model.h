// The seeded recurrent-memory models (tests/fixtures/armt) in an engine, and prompts of their ids.
#ifndef TIDEMILL_TESTS_SUPPORT_RECURRENT_MODEL_H_
#define TIDEMILL_TESTS_SUPPORT_RECURRENT_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "tests/support/changed_checkpoint.h"
#include "tests/support/drafting_models.h"
#include "tests/support/tiny_tokenizer_json.h"

namespace tidemill::testing {

inline std::shared_ptr<const Model> LoadRecurrent(const ChangedCheckpoint& checkpoint) {
  return LoadFolder(checkpoint, TinyTokenizerJson(96));
}

// Five layers, segments of 7 tokens and 3 memory tokens, 64 positions.
inline std::shared_ptr<const Model> Recurrent() {
  static const auto model = LoadRecurrent(ChangedCheckpoint("armt/llama"));
  return model;
}

inline std::vector<int32_t> RandomPrompt(size_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int32_t> ids(size);
  for (int32_t& id : ids) id = static_cast<int32_t>(3 + random() % 90);
  return ids;
}

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_RECURRENT_MODEL_H_
