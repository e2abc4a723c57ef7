// Evaluate on tiny models: what it scores is what Engine::Score and Submit say of the same texts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "kernels/sparse_attention.h"
#include "runtime/engine_impl.h"
#include "runtime/eval_metrics.h"
#include "runtime/eval_tasks.h"
#include "tests/support/engine_driver.h"
#include "tests/support/random_requests.h"
#include "tests/support/tiny_model.h"
#include "tidemill/eval.h"

namespace tidemill::eval_test {
namespace {

using testing::EngineDriver;
using ::testing::HasSubstr;

constexpr EncodeOptions kPlain = {.add_special = false, .parse_special = false};

std::shared_ptr<const Model> TinyModel() {
  static const auto model = testing::LoadModel("eval_tiny", testing::BuildTinyLlama({.vocab = 600, .context = 2048}));
  return model;
}

EvalOptions OptionsOf(std::vector<EvalTask> tasks) {
  return {.tasks = std::move(tasks),
          .context_tokens = {700},
          .contexts = 2,
          .questions = 2,
          .answer_tokens = 24,
          .policies = {EvalPolicy()},
          .seed = 3};
}

// Records of a run that must succeed, in their order.
std::vector<EvalRecord> Records(EngineDriver& driver, const EvalOptions& options,
                                std::function<bool(const EvalKey&)> is_done = {}) {
  std::vector<EvalRecord> records;
  const auto result = Evaluate(driver.engine(), *TinyModel(), options,
                               {.is_done = std::move(is_done), .sink = [&](const EvalRecord& record) -> Result<void> {
                                  records.push_back(record);
                                  return {};
                                }});
  EXPECT_TRUE(result.ok()) << result.error().message();
  return records;
}

struct Texts {
  std::vector<int32_t> prompt, answer;
};

// The first question of the first context, as ids.
Texts FirstQuestion(const EvalOptions& options) {
  const Tokenizer& tokenizer = TinyModel()->text().tokenizer;
  const auto ids = [&](const std::string& text) { return tokenizer.Encode(text, kPlain).value(); };
  const auto item =
      MakeEvalItem({.task = options.tasks[0],
                    .seed = options.seed,
                    .context_tokens = options.context_tokens[0],
                    .num_questions = options.questions,
                    .answer_tokens = options.answer_tokens},
                   [&](std::string_view text) -> Result<size_t> { return ids(std::string(text)).size(); });
  const EvalQuestion& question = item->questions[0];
  Texts texts = {.prompt = ids(item->context), .answer = ids(question.text + question.answer)};
  if (tokenizer.adds_bos()) texts.prompt.insert(texts.prompt.begin(), *tokenizer.bos_id());
  // Bytes are tokens of their own at the edge between both.
  const auto asked = static_cast<std::ptrdiff_t>(ids(question.text).size());
  texts.prompt.insert(texts.prompt.end(), texts.answer.begin(), texts.answer.begin() + asked);
  texts.answer.erase(texts.answer.begin(), texts.answer.begin() + asked);
  texts.answer.resize(std::min(texts.answer.size(), options.answer_tokens));
  return texts;
}

TEST(Eval, DenseRecord_IsWhatScoreSaysOfTheText) {
  EngineDriver driver(TinyModel(), {.threads = 1});
  for (const bool sparse_question : {false, true}) {
    EvalOptions options = OptionsOf({EvalTask::kCodes});
    options.sparse_question = sparse_question;
    const std::vector<EvalRecord> records = Records(driver, options);
    ASSERT_EQ(records.size(), 4U);
    const Texts texts = FirstQuestion(options);
    std::vector<int32_t> all = texts.prompt;
    all.insert(all.end(), texts.answer.begin(), texts.answer.end());
    double nll = 0;
    size_t matched = 0;
    bool matches = true;
    const size_t first = texts.prompt.size() - 1;
    ASSERT_TRUE(driver.engine()
                    .Score(all, false,
                           [&](size_t position, std::span<const float> logits) -> Result<void> {
                             if (position < first || position + 1 == all.size()) return {};
                             matches = matches && static_cast<int32_t>(ArgMax(logits)) == all[position + 1];
                             matched += matches ? 1 : 0;
                             if (position > first || sparse_question)
                               nll += NegativeLogLikelihood(logits, all[position + 1]);
                             return {};
                           })
                    .ok());
    EXPECT_EQ(records[0].prompt_tokens, texts.prompt.size());
    EXPECT_EQ(records[0].scored_tokens, texts.answer.size() - (sparse_question ? 0 : 1));
    EXPECT_EQ(records[0].nll, nll / static_cast<double>(records[0].scored_tokens));
    EXPECT_EQ(records[0].exact, matches);
    EXPECT_EQ(records[0].kl, 0.0);
    EXPECT_EQ(records[0].agreement, 1.0);
    EXPECT_EQ(records[0].bytes, 1.0);
  }
}

// After a byte comes the next one: of a text that counts from '!' to '~' and begins again, each but the '!'.
TEST(Eval, CountingModel_MatchesUntilTheCountBeginsAgain) {
  const auto model = testing::LoadModel("eval_counting", testing::BuildCountingModel({.vocab = 259, .context = 2048}));
  EngineDriver driver(model, {.threads = 1});
  std::string text;
  for (int i = 0; i < 2000; ++i) text += static_cast<char>('!' + i % 94);
  EvalOptions options = OptionsOf({EvalTask::kBpc});
  options.text = text;
  options.contexts = 1;
  options.context_tokens = {200};
  for (const size_t tokens : {12, 60}) {
    options.answer_tokens = tokens;
    std::vector<EvalRecord> records;
    const auto result =
        Evaluate(driver.engine(), *model, options, {.sink = [&](const EvalRecord& record) -> Result<void> {
                   records.push_back(record);
                   return {};
                 }});
    ASSERT_TRUE(result.ok()) << result.error().message();
    ASSERT_EQ(records.size(), 1U);
    // The prompt has no special token, so that the answer begins at byte `prompt_tokens`.
    const size_t begin = records[0].prompt_tokens, matched = text.find('~', begin) + 1 - begin;
    EXPECT_EQ(records[0].exact, tokens <= matched);
    EXPECT_EQ(records[0].matched_characters, std::min(tokens, matched)) << begin;
    ASSERT_TRUE(records[0].bits_per_character);  // of the scored tokens, which have a character each
    EXPECT_NEAR(*records[0].bits_per_character, records[0].nll / std::log(2.0), 1e-12);
  }
}

// A second dense policy is another sequence in each step, and has the same bits.
TEST(Eval, PoliciesOfOneQuestion_ShareStepsAndBits) {
  EngineDriver driver(TinyModel(), {.threads = 1});
  EvalOptions options = OptionsOf({EvalTask::kCodes, EvalTask::kNotes});
  const std::vector<EvalRecord> alone = Records(driver, options);
  options.policies = {EvalPolicy(), EvalPolicy(), EvalPolicy()};
  const std::vector<EvalRecord> together = Records(driver, options);
  ASSERT_EQ(alone.size(), 6U);  // notes have one question
  ASSERT_EQ(together.size(), 18U);
  for (size_t i = 0; i < together.size(); ++i) {
    EXPECT_EQ(together[i].key, alone[i / 3].key);
    EXPECT_EQ(together[i].nll, alone[i / 3].nll);
    EXPECT_EQ(together[i].kl, 0.0);
    EXPECT_EQ(together[i].rouge_l, alone[i / 3].rouge_l);
  }
}

// Policies that read all there is give dense attention's bits; others do not, and that shows.
TEST(Eval, Policies_LoseNothingOrSomething) {
  EngineDriver driver(TinyModel(), {.threads = 1});
  EvalOptions options = OptionsOf({EvalTask::kCodes});
  options.contexts = 1;
  const std::vector<size_t> compressions = {8};
  options.policies = ParseEvalPolicies("topk:k=2000,sparq:r=4:k=2000,h2o:k=2000,window:k=2000", compressions).value();
  for (const EvalRecord& record : Records(driver, options)) {
    EXPECT_EQ(record.kl, 0.0) << record.key.policy;
    EXPECT_EQ(record.agreement, 1.0) << record.key.policy;
    EXPECT_EQ(record.bytes, 1.0) << record.key.policy;
  }
  options.policies = ParseEvalPolicies("sparq,topk,h2o,window", compressions).value();
  std::vector<EvalRecord> records = Records(driver, options);
  ASSERT_EQ(records.size(), 10U);
  for (size_t i = 0; i < records.size(); ++i) {
    if (i % 5 == 0) continue;
    EXPECT_GT(records[i].kl, 0.0) << records[i].key.policy;
    EXPECT_GT(records[i].k, 0U);
    EXPECT_LT(records[i].bytes, 0.7) << records[i].key.policy;
  }
  // No policy's bits depend on its company.
  for (size_t i = 1; i < 5; ++i) {
    EvalOptions alone = options;
    alone.policies = {EvalPolicy(), options.policies[i]};
    const std::vector<EvalRecord> own = Records(driver, alone);
    ASSERT_EQ(own.size(), 4U);
    EXPECT_EQ(own[0].nll, records[0].nll);
    EXPECT_EQ(own[1].nll, records[i].nll) << own[1].key.policy;
    EXPECT_EQ(own[1].kl, records[i].kl) << own[1].key.policy;
  }
  // A question that is read sparsely has lost something before its answer begins.
  options.sparse_question = true;
  const std::vector<EvalRecord> sparse_questions = Records(driver, options);
  for (size_t i = 1; i < 5; ++i) {
    EXPECT_EQ(sparse_questions[i].scored_tokens, records[i].scored_tokens + 1);
    EXPECT_NE(sparse_questions[i].kl, records[i].kl) << records[i].key.policy;
  }
}

TEST(Eval, PolicyThatTheModelCannotHave_IsNamed) {
  EngineDriver driver(TinyModel(), {.threads = 1});
  EvalOptions options = OptionsOf({EvalTask::kCodes});
  options.policies = {EvalPolicy(), {.kind = AttentionKind::kSparq, .r = 17, .k = 8}};
  const auto result =
      Evaluate(driver.engine(), *TinyModel(), options, {.sink = [](const EvalRecord&) -> Result<void> { return {}; }});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(result.error().message(),
            "evaluate: sparq:r=17:k=8: r 17: expected at most the model's head_dim, which is 16");
}

TEST(Eval, WhatIsDone_IsNotDoneAgain) {
  EngineDriver driver(TinyModel(), {.threads = 1});
  const EvalOptions options = OptionsOf({EvalTask::kCodes, EvalTask::kPasskey});
  const std::vector<EvalRecord> all = Records(driver, options);
  ASSERT_EQ(all.size(), 6U);
  std::set<EvalKey> done = {all[0].key, all[3].key, all[5].key};
  const std::vector<EvalRecord> rest = Records(driver, options, [&](const EvalKey& key) { return done.contains(key); });
  ASSERT_EQ(rest.size(), 3U);
  for (size_t i = 0; i < 3; ++i) {
    const EvalRecord& same = all[i == 2 ? 4 : i + 1];
    EXPECT_EQ(rest[i].key, same.key);
    EXPECT_EQ(rest[i].nll, same.nll);
  }
  EXPECT_TRUE(Records(driver, options, [](const EvalKey&) { return true; }).empty());
}

TEST(Eval, AnswersInWords_AreThoseOfARequest) {
  EngineDriver driver(TinyModel(), {.threads = 1});
  EvalOptions options = OptionsOf({EvalTask::kNotes});
  const std::vector<EvalRecord> records = Records(driver, options);
  const Texts texts = FirstQuestion(options);
  const Tokenizer& tokenizer = TinyModel()->text().tokenizer;
  const auto outcome =
      driver.Run(texts.prompt, {.max_new_tokens = static_cast<int32_t>(texts.answer.size()), .temperature = 0.0f});
  ASSERT_EQ(outcome.fault, "");
  ASSERT_TRUE(records[0].rouge_l);
  EXPECT_DOUBLE_EQ(*records[0].rouge_l,
                   RougeL(tokenizer.Decode(texts.answer, false).value(), tokenizer.Decode(outcome.ids, false).value()));
  options.generate = false;
  EXPECT_FALSE(Records(driver, options)[0].rouge_l);
}

// What a layer keeps of a row that it audits, and the estimate of it, are those of the records.
TEST(Eval, Audits_AreOfEachRowAndLayer) {
  EngineDriver driver(TinyModel(), {.threads = 1});
  EvalOptions options = OptionsOf({EvalTask::kCodes});
  options.contexts = 1;
  options.questions = 1;
  options.policies = {EvalPolicy(), EvalPolicy{.kind = AttentionKind::kSparq, .r = 4, .k = 64},
                      EvalPolicy{.kind = AttentionKind::kTopk, .k = 64},
                      EvalPolicy{.kind = AttentionKind::kWindow, .k = 64}};
  const std::vector<EvalRecord> plain = Records(driver, options);
  options.audit = 1;
  std::vector<EvalRecord> records;
  std::vector<EvalLayerRow> told;
  EvalCallbacks callbacks = {.sink = [&](const EvalRecord& record) -> Result<void> {
                               records.push_back(record);
                               return {};
                             },
                             .layer_row = [&](const EvalLayerRow& row) { told.push_back(row); }};
  ASSERT_TRUE(Evaluate(driver.engine(), *TinyModel(), options, callbacks).ok());
  ASSERT_EQ(records.size(), 4U);
  const size_t layers = TinyModel()->info().num_hidden_layers, rows = records[0].scored_tokens;
  ASSERT_EQ(told.size(), 2 * layers * rows);
  EvalAttention sums[2] = {{.alpha_estimate = 0}, {.alpha_estimate = 0}};
  for (size_t i = 0; i < told.size(); ++i) {
    EXPECT_EQ(told[i].layer, i % layers);
    EXPECT_TRUE(told[i].is_audited);
    EXPECT_EQ(told[i].dense_share, 0.0);
    EvalAttention& sum = sums[i / layers % 2];  // sparq, then topk, in each step
    *sum.alpha_estimate += told[i].alpha_estimate;
    sum.kept_mass += told[i].kept_mass;
    sum.error += told[i].error;
    ++sum.audits;
  }
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(records[i].nll, plain[i].nll) << "audits change nothing";
    EXPECT_EQ(plain[i].attention.audits, 0U);
    EXPECT_EQ(plain[i].attention.alpha_estimate, records[i].attention.alpha_estimate);
    EXPECT_EQ(records[i].attention.alpha_estimate.has_value(), i == 1 || i == 2);
    if (i != 1 && i != 2) continue;
    const EvalAttention &sum = sums[i - 1], &found = records[i].attention;
    const auto n = static_cast<double>(sum.audits);
    EXPECT_EQ(found.audits, sum.audits);
    EXPECT_NEAR(*found.alpha_estimate, *sum.alpha_estimate / n, 1e-9);
    EXPECT_NEAR(found.kept_mass, sum.kept_mass / n, 1e-9);
    EXPECT_NEAR(found.error, sum.error / n, 1e-9);
    EXPECT_GT(found.error, 0.0);
  }
  EXPECT_NEAR(records[2].attention.kept_mass, *records[2].attention.alpha_estimate, 1e-5) << "topk's scores are exact";
  EXPECT_EQ(records[2].attention.overlap, 1.0);
  EXPECT_LT(records[1].attention.overlap, 1.0);
  options.audit = 1000000;  // no position is a multiple
  EXPECT_EQ(Records(driver, options)[1].attention.audits, 0U);
}

// So many query heads of one KV head that their scores at 8300 positions take more shared scratch than an engine begins with.
TEST(Eval, LongContexts_HaveTheScratchOfTheirLength) {
  const auto model = testing::LoadModel(
      "eval_long", testing::BuildTinyLlama(
                       {.vocab = 600, .layers = 1, .heads = 128, .kv_heads = 1, .head_dim = 4, .context = 8800}));
  EngineDriver driver(model, {.threads = 1});
  const AttentionShape shape = *driver.engine().impl().language_model().attention_shapes(DType::kF16)[0];
  ASSERT_GT(SparseSharedBytes(shape, 8300), ExecutionContext::kSharedScratchBytes);
  EvalOptions options = OptionsOf({EvalTask::kPasskey});
  options.contexts = 1;
  options.context_tokens = {500, 8500};
  options.policies = {EvalPolicy(), EvalPolicy{.kind = AttentionKind::kSparq, .r = 2, .k = 64}};
  std::vector<EvalRecord> records;
  const auto result =
      Evaluate(driver.engine(), *model, options, {.sink = [&](const EvalRecord& record) -> Result<void> {
                 records.push_back(record);
                 return {};
               }});
  ASSERT_TRUE(result.ok()) << result.error().message();
  ASSERT_EQ(records.size(), 4U);
  EXPECT_GT(records[3].prompt_tokens, 8300U);
  EXPECT_GT(records[1].kl, 0.0);
  EXPECT_GT(records[3].kl, 0.0);
}

TEST(Eval, WhatCannotBeDone_IsNamed) {
  EngineDriver driver(TinyModel(), {.threads = 1, .context = 720});
  const auto sink = [](const EvalRecord&) -> Result<void> { return {}; };
  const auto error = [&](const EvalOptions& options, const EvalCallbacks& callbacks,
                         const std::atomic<bool>* interrupt = nullptr) {
    const auto result = Evaluate(driver.engine(), *TinyModel(), options, callbacks, interrupt);
    EXPECT_FALSE(result.ok());
    return result.ok() ? Error(ErrorCode::kInternal, "") : result.error();
  };
  const EvalOptions options = OptionsOf({EvalTask::kCodes});
  const Error full = error(options, {.sink = sink});
  EXPECT_EQ(full.code(), ErrorCode::kContextFull);
  EXPECT_THAT(full.message(), HasSubstr("the engine holds 720"));
  EvalOptions bad = options;
  bad.contexts = 0;
  EXPECT_EQ(error(bad, {.sink = sink}).message(), "evaluate: contexts: expected 1 to 100000, found 0");
  bad = options;
  bad.answer_tokens = 7;
  EXPECT_EQ(error(bad, {.sink = sink}).message(), "evaluate: answer_tokens: expected 8 to 4096, found 7");
  bad = options;
  bad.policies = {EvalPolicy{.kind = AttentionKind::kWindow, .k = 8}};
  EXPECT_THAT(error(bad, {.sink = sink}).message(), HasSubstr("expected dense as the first, found window:k=8"));
  EvalOptions fits = options;
  fits.context_tokens = {600};
  std::atomic<bool> interrupt = true;
  EXPECT_EQ(error(fits, {.sink = sink}, &interrupt).code(), ErrorCode::kCancelled);
  const auto refusing = [](const EvalRecord&) -> Result<void> { return Error(ErrorCode::kNoSpace, "full"); };
  EXPECT_EQ(error(fits, {.sink = refusing}).code(), ErrorCode::kNoSpace);
  driver.Submit({1, 2, 3}, {.max_new_tokens = 2});
  EXPECT_EQ(error(fits, {.sink = sink}).code(), ErrorCode::kFailedPrecondition);
}

}  // namespace
}  // namespace tidemill::eval_test
