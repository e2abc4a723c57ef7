// Checkpoints of tests/fixtures/families with linear layers and a draft head of their own, loaded with a tokenizer.
#ifndef TIDEMILL_TESTS_SUPPORT_HYBRID_MODELS_H_
#define TIDEMILL_TESTS_SUPPORT_HYBRID_MODELS_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/fixtures_path.h"
#include "tests/support/byte_level_tokenizer.h"
#include "tests/support/changed_checkpoint.h"
#include "tests/support/model_folder.h"
#include "tidemill/model.h"

namespace tidemill::testing {

inline constexpr int kHybridVocab = 128, kHybridSpecials = 3;
inline constexpr size_t kHybridContext = 128;

inline std::string HybridFolder(const std::string& family) {
  return std::string(TIDEMILL_FIXTURES) + "/families/" + family;
}

// A byte-level tokenizer.json: "<0>" to "<2>", which are special, then one character each, then two.
inline std::string HybridTokenizer() {
  constexpr int kCharacters = 94;  // '!' to '~'
  std::vector<std::string> tokens;
  for (int id = 0; id < kHybridVocab; ++id) {
    std::string token(1, static_cast<char>('!' + id % kCharacters));
    if (id < kHybridSpecials) token = "<" + std::to_string(id) + ">";
    tokens.push_back(id < kCharacters ? token : token + token);
  }
  return ByteLevelTokenizer(tokens, [](size_t id) { return id < kHybridSpecials; }, {});
}

inline std::shared_ptr<const Model> LoadHybrid(const std::string& family, bool f32 = false) {
  ModelFolder folder;
  ChangedCheckpoint("families/" + family).WriteTo(folder);
  folder.Write("tokenizer.json", HybridTokenizer());
  LoadOptions options;
  options.f32 = f32;
  options.threads = 1;
  auto model = Model::Load(folder.path(), options);
  EXPECT_TRUE(model.ok()) << model.error().message();
  return std::move(model).value();
}

inline std::shared_ptr<const DraftHead> LoadOwnHead(const std::shared_ptr<const Model>& model, bool f32 = false) {
  LoadOptions options;
  options.f32 = f32;
  options.threads = 1;
  auto head = DraftHead::LoadOwn(model, options);
  EXPECT_TRUE(head.ok()) << head.error().message();
  return std::move(head).value();
}

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_HYBRID_MODELS_H_
