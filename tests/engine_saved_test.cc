// What Resume refuses, and how requests that were saved go on otherwise than they would have.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "runtime/engine_impl.h"
#include "runtime/request_record.h"
#include "tests/support/allocation_probe.h"
#include "tests/support/engine_driver.h"
#include "tests/support/model_runner.h"
#include "tests/support/resumed_requests.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_vocabulary.h"

namespace tidemill::engine_saved_test {
namespace {

using testing::BuildCountingModel;
using testing::BuildTinyLlama;
using testing::EngineDriver;
using testing::ExpectJoined;
using testing::FailAllocations;
using ::testing::HasSubstr;
using testing::LoadModel;
using testing::Outcome;
using testing::ReadSaved;
using testing::SavedBytes;

// After token t comes t + 1.
std::shared_ptr<const Model> CountingModel() {
  static const auto model = LoadModel(
      "engine_saved_counting", BuildCountingModel({.vocab = testing::kResumedVocab, .context = 64, .eos_token = 300}));
  return model;
}

Outcome Resume(const Outcome& from, const EngineOptions& engine, ResumeOptions options,
               const std::shared_ptr<const Model>& model) {
  EngineDriver driver(model, engine);
  return testing::ResumeSaved(driver, from, std::move(options));
}

// The code and message of Resume; "ok", and the request is gone.
std::string Answer(EngineDriver& driver, const SavedRequest& saved, ResumeOptions options = {}) {
  const Result<RequestId> id = driver.engine().Resume(saved, std::move(options));
  if (!id.ok()) return std::string(ErrorCodeName(id.error().code())) + ": " + id.error().message();
  driver.engine().Cancel(*id);
  driver.RunUntilIdle();
  return "ok";
}

Outcome SaveWith(const std::shared_ptr<const Model>& model, const EngineOptions& engine, std::vector<int32_t> prompt,
                 const GenerationOptions& generation) {
  EngineDriver driver(model, engine);
  return testing::RunAndSave(driver, std::move(prompt), generation);
}

TEST(SavedRequest, AnswersThatHaveEnded_SayWhatIsNeeded) {
  EngineDriver driver(CountingModel(), {.threads = 1});
  const auto saved = [](std::vector<int32_t> prompt, const GenerationOptions& generation) {
    return SaveWith(CountingModel(), {.threads = 1}, std::move(prompt), generation);
  };
  const Outcome at_length = saved({10}, {.max_new_tokens = 4});
  const SavedRequest length = ReadSaved(at_length);
  EXPECT_THAT(Answer(driver, length),
              HasSubstr("the answer has ended: it has 4 of at most 4 tokens; give a larger --max-new-tokens"));
  EXPECT_EQ(Answer(driver, length, {.generation = GenerationOptions{.max_new_tokens = 5}}), "ok");
  EXPECT_EQ(Answer(driver, length, {.more_prompt = {20}}), "ok");

  const Outcome at_eos = saved({298}, {.max_new_tokens = 9});
  ASSERT_EQ(at_eos.finish, FinishReason::kEos);
  const SavedRequest eos = ReadSaved(at_eos);
  EXPECT_THAT(Answer(driver, eos), HasSubstr("InvalidArgument: resume request: "));
  EXPECT_THAT(Answer(driver, eos), HasSubstr("by an end-of-sequence token; give --ignore-eos or a prompt"));
  EXPECT_EQ(Answer(driver, eos, {.more_prompt = {20}}), "ok");
  GenerationOptions ignoring = eos.generation();
  ignoring.ignore_eos = true;
  EXPECT_EQ(Resume(at_eos, {.threads = 1}, {.generation = ignoring}, CountingModel()).ids,
            (std::vector<int32_t>{301, 302, 303, 304, 305, 306, 307}));  // 9 with those before

  const Outcome at_stop = saved({testing::ByteToken('a')}, {.max_new_tokens = 9, .stop = {"ef"}});
  ASSERT_EQ(at_stop.finish, FinishReason::kStop);
  const SavedRequest stop = ReadSaved(at_stop);
  EXPECT_THAT(Answer(driver, stop), HasSubstr("by a stop text; give another --stop or a prompt"));
  EXPECT_EQ(Answer(driver, stop, {.more_prompt = {20}}), "ok");
  GenerationOptions other = stop.generation();
  other.stop = {"ij"};
  const Outcome on = Resume(at_stop, {.threads = 1}, {.generation = other}, CountingModel());
  EXPECT_EQ(on.text, "gh");
  EXPECT_EQ(on.finish, FinishReason::kStop);
}

// What one --stop held back and another does not.
TEST(SavedRequest, OtherStopTexts_GiveOutWhatWasHeldBack) {
  const Outcome first =
      SaveWith(CountingModel(), {.threads = 1}, {testing::ByteToken('a')}, {.max_new_tokens = 3, .stop = {"cdX"}});
  ASSERT_EQ(first.text, "b");
  const auto text = [&](std::vector<std::string> stop) {
    return Resume(first, {.threads = 1},
                  {.generation = GenerationOptions{.max_new_tokens = 5, .stop = std::move(stop)}}, CountingModel())
        .text;
  };
  EXPECT_EQ(text({"cdX"}), "cdef");
  EXPECT_EQ(text({}), "cdef");
  EXPECT_EQ(text({"de"}), "c");
  EXPECT_EQ(text({"d"}), "c");
}

TEST(SavedRequest, AnotherEngine_IsRefusedByReason) {
  const GenerationOptions generation = {.max_new_tokens = 4, .ignore_eos = true};
  const Outcome outcome = SaveWith(testing::ResumedModel(), {.threads = 1}, testing::ResumedPrompt(), generation);
  const SavedRequest saved = ReadSaved(outcome);
  const ResumeOptions more = {.generation = GenerationOptions{.max_new_tokens = 8, .ignore_eos = true}};
  const auto answer = [&](const std::shared_ptr<const Model>& model, const EngineOptions& options) {
    EngineDriver driver(model, options);
    return Answer(driver, saved, more);
  };
  EXPECT_EQ(answer(testing::ResumedModel(), {.threads = 1}), "ok");
  for (const KvType type : {KvType::kF32, KvType::kBF16, KvType::kQ8_0}) {
    const std::string message = answer(testing::ResumedModel(), {.threads = 1, .kv_type = type});
    EXPECT_THAT(message, HasSubstr("FailedPrecondition: resume request: "));
    EXPECT_THAT(message, HasSubstr("/kv-" + std::string(KvTypeName(type)) + "; choose --kv-dtype"));
  }
  const Isa other = HasFma(DetectIsa()) ? Isa::kBaseline : DetectIsa();
  if (other != DetectIsa()) {
    EXPECT_THAT(answer(testing::ResumedModel(), {.threads = 1, .isa = std::string(IsaName(other))}),
                HasSubstr("found baseline/kv-f16; choose"));
  }
  const auto f32 = LoadModel("engine_saved_f32", BuildTinyLlama(testing::kResumedSpec), true);
  EXPECT_THAT(answer(f32, {.threads = 1, .kv_type = KvType::kF16}), HasSubstr("/f32/kv-f16; choose --kv-dtype"));

  testing::TinyLlamaSpec spec = testing::kResumedSpec;
  spec.rope_theta = 20000.0f;
  EXPECT_THAT(answer(LoadModel("engine_saved_rope", BuildTinyLlama(spec)), {.threads = 1}),
              HasSubstr("FailedPrecondition: resume request: "));
  spec = testing::kResumedSpec;
  spec.seed = 6;
  EXPECT_THAT(answer(LoadModel("engine_saved_weights", BuildTinyLlama(spec)), {.threads = 1}),
              HasSubstr("it was saved with another model than"));
  std::string renamed = BuildTinyLlama(testing::kResumedSpec);  // one token is spelled otherwise
  const size_t word = renamed.find("<|endoftext|>");
  ASSERT_NE(word, std::string::npos);
  renamed[word + 2] = 'E';
  EXPECT_THAT(answer(LoadModel("engine_saved_words", renamed), {.threads = 1}),
              HasSubstr("it was saved with another tokenizer than"));
  EXPECT_THAT(answer(testing::ResumedModel(), {.threads = 1, .context = 12}),
              HasSubstr("ContextFull: resume request: "));
}

// The whole context was used: the last token has no position yet, and a larger context goes on.
TEST(SavedRequest, FullContext_GoesOnInALargerOne) {
  const Outcome first =
      SaveWith(testing::ResumedModel(), {.threads = 1, .context = 16}, testing::ResumedPrompt(), {.ignore_eos = true});
  ASSERT_EQ(first.finish, FinishReason::kLength);
  ASSERT_EQ(first.ids.size(), 8U);
  EngineDriver same(testing::ResumedModel(), {.threads = 1, .context = 16});
  EXPECT_THAT(Answer(same, ReadSaved(first)), HasSubstr("17 tokens: the context holds 16; choose a larger --context"));
  EngineDriver driver(testing::ResumedModel(), {.threads = 1, .context = 20});
  const Outcome whole = driver.Run(testing::ResumedPrompt(), {.ignore_eos = true});
  ExpectJoined(first, Resume(first, {.threads = 1, .context = 20}, {}, testing::ResumedModel()), whole,
               "a larger context");
}

TEST(SavedRequest, Forgeries_AreCorruptFiles) {
  const Outcome outcome = SaveWith(testing::ResumedModel(), {.threads = 1}, testing::ResumedPrompt(),
                                   {.max_new_tokens = 4, .ignore_eos = true});
  EngineDriver driver(testing::ResumedModel(), {.threads = 1});
  const auto answer = [&](const std::function<void(RequestRecord&)>& change) {
    RequestRecord record = DecodeRequest(SavedBytes(outcome)).value();
    record.generation.max_new_tokens = 8;
    change(record);
    const std::vector<std::byte> bytes = EncodeRequest(record);
    const auto saved = SavedRequest::Read(bytes);
    return saved.ok() ? Answer(driver, *saved) : "unread";
  };
  EXPECT_EQ(answer([](RequestRecord&) {}), "ok");
  const auto expect_corrupt = [&](const char* what, const std::function<void(RequestRecord&)>& change) {
    const std::string found = answer(change);
    EXPECT_THAT(found, HasSubstr("CorruptFile: resume request: ")) << what;
    EXPECT_THAT(found, HasSubstr(what));
  };
  expect_corrupt("token 1: expected an id below 400, found -1", [](RequestRecord& r) { r.ids[1] = -1; });
  expect_corrupt("token 12: expected an id below 400", [](RequestRecord& r) { r.ids[12] = 400; });
  expect_corrupt("other tokens", [](RequestRecord& r) { r.ids[2] = 77; });
  expect_corrupt("fewer tokens than the 12 tokens", [](RequestRecord& r) { r.ids.resize(12); });
  expect_corrupt("truncated or damaged", [](RequestRecord& r) { r.state = {}; });
  expect_corrupt("truncated or damaged", [](RequestRecord& r) { r.state = r.state.first(r.state.size() - 1); });
}

TEST(SavedRequest, Files_AreOpenedAndRefused) {
  const Outcome outcome = SaveWith(testing::ResumedModel(), {.threads = 1}, testing::ResumedPrompt(),
                                   {.max_new_tokens = 4, .ignore_eos = true});
  const std::string bytes(reinterpret_cast<const char*>(outcome.saved->data()), outcome.saved->size());
  const std::string path = testing::WriteTemporary("saved.tms", bytes);
  const auto saved = SavedRequest::Open(path);
  ASSERT_TRUE(saved.ok()) << saved.error().message();
  EXPECT_EQ(saved->prompt_tokens(), testing::ResumedPrompt().size());
  EXPECT_EQ(saved->ids().size(), testing::ResumedPrompt().size() + 4);
  EXPECT_EQ(saved->generation().max_new_tokens, 4);
  EngineDriver driver(testing::ResumedModel(), {.threads = 1});
  EXPECT_EQ(Answer(driver, *saved, {.more_prompt = {20}}), "ok");
  const auto refusal = [](const std::string& name) {
    const auto result = SavedRequest::Open(name);
    return result.ok() ? std::string("ok")
                       : std::string(ErrorCodeName(result.error().code())) + ": " + result.error().message();
  };
  EXPECT_THAT(refusal(path + ".missing"), HasSubstr("NotFound: load a saved request: open "));
  EXPECT_THAT(refusal("/dev/zero"), HasSubstr("IoError: load a saved request: open /dev/zero"));
  const std::string cut = testing::WriteTemporary("saved_cut.tms", bytes.substr(0, bytes.size() - 1));
  EXPECT_EQ(refusal(cut), "CorruptFile: load a saved request: " + cut + ": byte 16: size: expected " +
                              std::to_string(bytes.size()) + " bytes, found " + std::to_string(bytes.size() - 1) +
                              "; the file is truncated or damaged");
}

// The text that was held back for the continuation comes with the last event where there will be none.
TEST(SavedRequest, SavingWithoutMemory_LosesNoText) {
  size_t unsaved = 0;
  for (const size_t count : {size_t{1}, FailAllocations::kAllFurther}) {
    for (size_t n = 0;; ++n) {
      ASSERT_LT(n, 2000U);
      EngineDriver driver(CountingModel(), {.threads = 1});
      const RequestId id = driver.Submit({.prompt = {testing::ByteToken('a')},
                                          .generation = {.max_new_tokens = 2, .stop = {"cdX"}},
                                          .keep_state = true});
      driver.Step();
      FailAllocations failure(n, count);
      const auto events = driver.engine().Step();
      const bool reached = failure.Stop();
      driver.Consume(events);
      const Outcome& outcome = driver.outcome(id);
      ASSERT_EQ(outcome.last_events, 1U) << n;
      if (outcome.error.has_value()) {
        EXPECT_EQ(outcome.error, ErrorCode::kOutOfMemory) << n;
      } else {
        EXPECT_EQ(outcome.text, outcome.saved == nullptr ? "bc" : "b") << n;
        unsaved += outcome.saved == nullptr ? 1 : 0;
      }
      if (!reached) {
        EXPECT_NE(outcome.saved, nullptr);
        break;
      }
    }
  }
  EXPECT_GT(unsaved, 10U);
}

TEST(SavedRequest, ResumeWithoutMemory_IsOutOfMemory) {
  const Outcome outcome = SaveWith(testing::ResumedModel(), {.threads = 1}, testing::ResumedPrompt(),
                                   {.max_new_tokens = 4, .ignore_eos = true});
  EngineDriver driver(testing::ResumedModel(), {.threads = 1});
  for (const size_t count : {size_t{1}, FailAllocations::kAllFurther}) {
    size_t refusals = 0;
    for (size_t n = 0;; ++n) {
      ASSERT_LT(n, 5000U);
      ResumeOptions options = {.more_prompt = {60, 61}};
      FailAllocations failure(n, count);
      const auto saved = SavedRequest::Read(SavedBytes(outcome));
      const auto id =
          saved.ok() ? driver.engine().Resume(*saved, std::move(options)) : Result<RequestId>(saved.error());
      if (!failure.Stop()) {
        ASSERT_TRUE(id.ok()) << id.error().message();
        break;
      }
      ASSERT_FALSE(id.ok()) << n;
      ASSERT_EQ(id.error().code(), ErrorCode::kOutOfMemory) << n;
      ++refusals;
    }
    EXPECT_GT(refusals, 20U);
  }
  driver.RunUntilIdle();
}

// Those that wait have a state each, beside those that run.
TEST(SavedRequest, ResumedThatWait_HaveABound) {
  const Outcome outcome = SaveWith(testing::ResumedModel(), {.threads = 1}, testing::ResumedPrompt(),
                                   {.max_new_tokens = 4, .ignore_eos = true});
  const auto saved = SavedRequest::Read(SavedBytes(outcome));
  ASSERT_TRUE(saved.ok());
  for (const KvPolicy policy : {KvPolicy::kBmc, KvPolicy::kUpfront}) {  // the second holds more than was saved
    EngineDriver measured(testing::ResumedModel(), {.threads = 1, .kv_policy = policy});
    const uint64_t state = measured.engine().impl().NewState()->LedgerGrowth(testing::ResumedPrompt().size() + 8,
                                                                             testing::ResumedPrompt().size() + 8);
    const uint64_t bound = 4 * state + state / 2;  // the half has room for what was saved, not for a state
    EngineDriver driver(testing::ResumedModel(), {.threads = 1, .kv_policy = policy, .state_memory = bound});
    const Outcome expected = testing::ResumeSaved(measured, outcome, {.more_prompt = {60, 61}});
    std::vector<RequestId> ids;
    for (int i = 0; i < 40; ++i) {
      const auto id = driver.engine().Resume(*saved, {.more_prompt = {60, 61}});
      ASSERT_TRUE(id.ok()) << id.error().message();
      ids.push_back(*id);
      EXPECT_EQ(driver.MemoryFault(), "");
    }
    const auto& requests = driver.engine().impl().requests;
    const auto held = std::count_if(requests.begin(), requests.end(),
                                    [](const auto& request) { return request->state().length() != 0; });
    EXPECT_GE(held, 3);
    EXPECT_LT(held, 40) << "the others are computed again";
    driver.RunUntilIdle();
    for (const RequestId id : ids) {
      EXPECT_EQ(driver.outcome(id).ids, expected.ids);
      EXPECT_EQ(driver.outcome(id).logprob_bits, expected.logprob_bits);
    }
  }
}

TEST(SavedRequest, WithoutKeepState_NothingIsSaved) {
  EngineDriver driver(CountingModel(), {.threads = 1});
  EXPECT_EQ(driver.Run({10}, {.max_new_tokens = 3}).saved, nullptr);
  // An answer that is whole gives out all of its text, saved or not.
  EXPECT_EQ(SaveWith(CountingModel(), {.threads = 1}, {297}, {.max_new_tokens = 9}).text,
            driver.Run({297}, {.max_new_tokens = 9}).text);
}

}  // namespace
}  // namespace tidemill::engine_saved_test
