// Requests of models that read segments, at their limits: positions of the last segment, cuts that move, states of others, numbers that overflow.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "tests/support/changed_checkpoint.h"
#include "tests/support/drafting_models.h"
#include "tests/support/engine_driver.h"
#include "tests/support/recurrent_model.h"
#include "tests/support/resumed_requests.h"
#include "tests/support/tiny_tokenizer_json.h"
#include "tidemill/measure.h"

namespace tidemill::segment_limits_test {
namespace {

using testing::ChangedCheckpoint;
using testing::EngineDriver;
using testing::ExpectSame;
using ::testing::HasSubstr;
using testing::LoadRecurrent;
using testing::Outcome;
using testing::RandomPrompt;
using testing::Recurrent;

constexpr size_t kSegment = 7, kPositions = 64;  // of the fixtures

// Of three ids, so that what comes next has often stood before.
GenerationOptions FewIds(int32_t tokens) {
  GenerationOptions generation{.max_new_tokens = tokens, .temperature = 0, .ignore_eos = true};
  generation.stop_at_repetition = false;
  generation.logit_bias = {{20, 40.0F}, {21, 40.0F}, {22, 40.0F}};
  return generation;
}

// Draft tokens near a segment's last position are no more than it has room for.
TEST(SegmentLimits, DraftTokens_EndWithTheSegment) {
  for (const size_t length : {size_t{3}, kSegment, 10 * kSegment + 3}) {
    const size_t tail = length - (length - 1) / kSegment * kSegment;
    EngineDriver plain(Recurrent(), {.threads = 1}), drafting(Recurrent(), {.threads = 2});
    const Outcome expected = plain.Run(RandomPrompt(length, 5), FewIds(1000));
    const RequestId id = drafting.Submit({.prompt = RandomPrompt(length, 5),
                                          .generation = FewIds(1000),
                                          .draft = {.num_draft_tokens = 16, .min_draft_tokens = 16, .ngram_min = 1}});
    drafting.RunUntilIdle();
    const Outcome& found = drafting.outcome(id);
    ExpectSame(found, expected, std::to_string(length) + " tokens");
    EXPECT_GT(found.stats.accepted_tokens, 10U);
    EXPECT_EQ(found.ids.size(), kPositions - tail + 1);
    EXPECT_EQ(found.finish, FinishReason::kLength);
    EXPECT_EQ(found.stats.context, length - tail + kPositions);
  }
}

TEST(SegmentLimits, FullSegment_GoesOnWithAPromptOnly) {
  EngineDriver driver(Recurrent(), {.threads = 1});
  const Outcome full = testing::RunAndSave(driver, RandomPrompt(20, 1), FewIds(1000));
  ASSERT_NE(full.saved, nullptr) << full.message;
  const SavedRequest saved = testing::ReadSaved(full);
  const auto refused = driver.engine().Resume(saved, {.generation = FewIds(2000)});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused.error().message(), HasSubstr("its segment has all of the model's 64 positions; give a prompt"));
  const Outcome more = testing::ResumeSaved(driver, full, {.generation = FewIds(5), .more_prompt = RandomPrompt(9, 2)});
  std::vector<int32_t> joined = RandomPrompt(20, 1);
  joined.insert(joined.end(), full.ids.begin(), full.ids.end());
  const std::vector<int32_t> behind = RandomPrompt(9, 2);
  joined.insert(joined.end(), behind.begin(), behind.end());
  EngineDriver other(Recurrent(), {.threads = 1, .prefix_cache = false});
  ExpectSame(more, other.Run(joined, FewIds(5)), "more prompt");
}

// With more prompt the segments of these begin elsewhere.
TEST(SegmentLimits, CutsThatMove_AreReadAgain) {
  for (const std::string fixture : {"armt/right", "armt/center"}) {
    const auto model = LoadRecurrent(ChangedCheckpoint(fixture));
    for (const size_t length : {5, 20, 33}) {
      EngineDriver first(model, {.threads = 1}), second(model, {.threads = 2}), whole(model, {.threads = 1});
      const std::vector<int32_t> prompt = RandomPrompt(length, 1), more = RandomPrompt(6, 2);
      const Outcome begun = testing::RunAndSave(first, prompt, FewIds(4));
      ASSERT_NE(begun.saved, nullptr) << begun.message;
      std::vector<int32_t> joined = prompt;
      joined.insert(joined.end(), begun.ids.begin(), begun.ids.end());
      joined.insert(joined.end(), more.begin(), more.end());
      ExpectSame(testing::ResumeSaved(second, begun, {.generation = FewIds(6), .more_prompt = more}),
                 whole.Run(joined, FewIds(6)), fixture + ", " + std::to_string(length) + " tokens");
    }
  }
}

TEST(SegmentLimits, StateOfAnotherBlock_IsRefused) {
  EngineDriver driver(Recurrent(), {.threads = 1});
  const Outcome saved = testing::RunAndSave(driver, RandomPrompt(20, 1), FewIds(4));
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"\"segment_size\": 7", "\"segment_size\": 8"},
           {"\"correction\": true", "\"correction\": false"},
           {"\"d_mem\": 6", "\"memory_dtype\": \"bfloat16\", \"d_mem\": 6"},
           {"\"segment_alignment\": \"left\"", "\"segment_alignment\": \"right\""}}) {
    EngineDriver other(LoadRecurrent(ChangedCheckpoint("armt/llama").Replace(from, to)), {.threads = 1});
    const auto resumed = other.engine().Resume(testing::ReadSaved(saved), {});
    ASSERT_FALSE(resumed.ok()) << to;
    EXPECT_THAT(resumed.error().message(), HasSubstr("it was saved with another model")) << to;
  }
}

TEST(SegmentLimits, RecurrentDraftModel_IsRefused) {
  const auto engine =
      Engine::Create(LoadRecurrent(ChangedCheckpoint("armt/llama")), {.threads = 1, .draft_model = Recurrent()});
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.error().code(), ErrorCode::kUnsupported);
  EXPECT_THAT(engine.error().message(), HasSubstr("expected a model that keeps what it reads"));
}

TEST(SegmentLimits, DraftHead_IsRefused) {
  const auto head = DraftHead::Load(std::string(TIDEMILL_FIXTURES) + "/eagle/eagle1", Recurrent(), {});
  ASSERT_FALSE(head.ok());
  EXPECT_EQ(head.error().code(), ErrorCode::kUnsupported);
  EXPECT_THAT(head.error().message(), HasSubstr("expected a target that reads its text whole"));
}

TEST(SegmentLimits, BenchPastTheLastPosition_IsRefused) {
  for (const std::string fixture : {"armt/llama", "armt/gpt2"}) {
    EngineDriver driver(LoadRecurrent(ChangedCheckpoint(fixture)), {.threads = 2});
    const auto refused = RunBench(
        driver.engine(), {.test = "decode", .depth = 6, .gen_tokens = kPositions - 5, .prompts = {}, .repeat = 1});
    ASSERT_FALSE(refused.ok()) << fixture;
    EXPECT_THAT(refused.error().message(), HasSubstr("expected at most 64 of the model's positions"));
    const auto fits = RunBench(
        driver.engine(), {.test = "decode", .depth = 6, .gen_tokens = kPositions - 6, .prompts = {}, .repeat = 1});
    EXPECT_TRUE(fits.ok()) << fits.error().message();
  }
}

// Values of layer 2 that overflow in the memory: no answer is made of them.
TEST(SegmentLimits, MemoryThatOverflows_NamesItsLayer) {
  ChangedCheckpoint checkpoint("armt/llama");
  const std::string name = "memory_cell.model.model.layers.2.W_mv.weight";
  std::string bytes = checkpoint.BytesOf(name);
  for (size_t at = 0; at < bytes.size(); at += sizeof(float)) {
    float value = 0;
    std::memcpy(&value, bytes.data() + at, sizeof(value));
    value *= 1e38F;
    std::memcpy(bytes.data() + at, &value, sizeof(value));
  }
  checkpoint.Remove(name).Add(name, "F32", {40, 40}, bytes);
  const auto model = LoadRecurrent(checkpoint);
  for (const size_t threads : {1, 2}) {
    EngineDriver driver(model, {.threads = threads});
    const Outcome outcome = driver.Run(RandomPrompt(40, 1), FewIds(4));
    ASSERT_TRUE(outcome.error.has_value()) << threads;
    EXPECT_EQ(*outcome.error, ErrorCode::kNumericalError);
    EXPECT_THAT(outcome.message,
                HasSubstr("layer 2: expected a finite memory, found an element that is not since tokens "));
    EXPECT_TRUE(outcome.ids.empty());
    const Outcome within = driver.Run(RandomPrompt(kSegment, 1), FewIds(4));  // no segment ends
    EXPECT_FALSE(within.error.has_value()) << within.message;
  }
}

std::string LoadErrorOf(const ChangedCheckpoint& checkpoint, const LoadOptions& options = {}) {
  testing::ModelFolder folder;
  checkpoint.WriteTo(folder);
  folder.Write("tokenizer.json", testing::TinyTokenizerJson(96));
  const auto model = Model::Load(folder.path(), options);
  return model.ok() ? "" : model.error().message();
}

TEST(SegmentLimits, WhatStretchesPositions_IsRefused) {
  LoadOptions stretched;
  stretched.rope_scaling = RopeOverride{.kind = RopeKind::kYarn, .factor = 2};
  EXPECT_THAT(LoadErrorOf(ChangedCheckpoint("armt/llama"), stretched),
              HasSubstr("expected a model whose positions go on through the text"));
  EXPECT_THAT(LoadErrorOf(ChangedCheckpoint("armt/llama").Replace("\"llama\"", "\"mistral\"")),
              HasSubstr("\"armt\": expected around llama, qwen2 or gpt2, found it around \"mistral\""));
  EXPECT_THAT(LoadErrorOf(ChangedCheckpoint("armt/qwen2")
                              .Replace("\"sliding_window\": null", "\"sliding_window\": 4")
                              .Replace("\"max_window_layers\": 28", "\"max_window_layers\": 0")
                              .Replace("\"use_sliding_window\": false", "\"use_sliding_window\": true")),
              HasSubstr("expected a base model whose rows see all of a segment, found sliding windows"));
}

TEST(SegmentLimits, Inspect_TellsSegments) {
  const auto info = Inspect(std::string(TIDEMILL_FIXTURES) + "/armt/llama");
  ASSERT_TRUE(info.ok()) << info.error().message();
  EXPECT_EQ(info->segment_size, kSegment);
  EXPECT_EQ(info->num_mem_tokens, 3U);
  EXPECT_EQ(info->memory_bytes, 5U * 36 * (40 + 1) * 4);
}

}  // namespace
}  // namespace tidemill::segment_limits_test
