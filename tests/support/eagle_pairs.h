// Checkpoints of tests/fixtures/eagle, as they are or changed, loaded: a target with a tokenizer, and heads for it.
#ifndef TIDEMILL_TESTS_SUPPORT_EAGLE_PAIRS_H_
#define TIDEMILL_TESTS_SUPPORT_EAGLE_PAIRS_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "tests/support/changed_checkpoint.h"
#include "tests/support/eagle_models.h"
#include "tests/support/model_folder.h"
#include "tidemill/engine.h"
#include "tidemill/model.h"

namespace tidemill::testing {

inline ChangedCheckpoint Fixture(const std::string& name) { return ChangedCheckpoint("eagle/" + name); }

inline std::shared_ptr<const Model> LoadTarget(const ChangedCheckpoint& checkpoint, bool f32 = false,
                                               const std::string& tokenizer = EagleTokenizer()) {
  ModelFolder folder;
  checkpoint.WriteTo(folder);
  folder.Write("tokenizer.json", tokenizer);
  LoadOptions options;
  options.f32 = f32;
  options.threads = 1;
  auto model = Model::Load(folder.path(), options);
  EXPECT_TRUE(model.ok()) << model.error().message();
  return std::move(model).value();
}

inline Result<std::shared_ptr<const DraftHead>> TryHead(const ChangedCheckpoint& checkpoint,
                                                        const std::shared_ptr<const Model>& target, bool f32 = false) {
  ModelFolder folder;
  checkpoint.WriteTo(folder);
  EXPECT_TRUE(DraftHead::IsAt(folder.path()).value());
  LoadOptions options;
  options.f32 = f32;
  options.threads = 1;
  return DraftHead::Load(folder.path(), target, options);
}

inline std::shared_ptr<const DraftHead> LoadHead(const ChangedCheckpoint& checkpoint,
                                                 const std::shared_ptr<const Model>& target, bool f32 = false) {
  auto head = TryHead(checkpoint, target, f32);
  EXPECT_TRUE(head.ok()) << head.error().message();
  return std::move(head).value();
}

inline DraftOptions OptionsOf(DraftTreeKind kind, size_t num_draft_tokens, size_t min_draft_tokens) {
  return {.num_draft_tokens = num_draft_tokens,
          .min_draft_tokens = min_draft_tokens,
          .source = DraftSource::kModel,
          .tree = kind};
}

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_EAGLE_PAIRS_H_
