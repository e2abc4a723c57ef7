#include "runtime/linear_class.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/layers/delta_branch.h"

namespace tidemill::linear_class_test {
namespace {

using ::testing::HasSubstr;

DeltaShape Shape(size_t key_heads, size_t value_heads, size_t dim) {
  return {.key_heads = key_heads, .value_heads = value_heads, .key_dim = dim, .value_dim = dim, .form = {}};
}

// A model of one layer without weights.
LanguageModel Hybrid() {
  LanguageModel model;
  model.layers.emplace_back().Add(
      Norm(), Norm(),
      DeltaBranch({.key_heads = 16, .value_heads = 32, .key_dim = 128, .value_dim = 128, .conv_width = 4}));
  return model;
}

TEST(ChosenDeltaClass, ReleasedShapes_GiveTheTable) {
  const auto period = [](const DeltaShape& shape, bool bfloat16) { return ChosenDeltaClass(shape, bfloat16).period; };
  EXPECT_EQ(period(Shape(16, 32, 128), false), 8U);  // Qwen3-Next-80B, Qwen3.5-4B
  EXPECT_EQ(period(Shape(16, 16, 128), false), 8U);  // Qwen3.5-0.8B
  EXPECT_EQ(period(Shape(16, 48, 128), false), 8U);  // Qwen3.5-27B
  EXPECT_EQ(period(Shape(16, 32, 128), true), 12U);
  EXPECT_EQ(period(Shape(2, 4, 8), false), 4U);
  EXPECT_EQ(ChosenDeltaClass(Shape(16, 32, 128), true).dtype, DType::kBF16);
}

TEST(ResolveLinearPolicy, Forms_GiveTheirClasses) {
  const LanguageModel model = Hybrid();
  const auto name = [&](const LinearPolicy& policy, size_t context = 4096) {
    const Result<DeltaClass> form = ResolveLinearPolicy(policy, model, context);
    return form.ok() ? DeltaClassName(*form) : form.error().message();
  };
  EXPECT_EQ(name({}), "linear-8");
  EXPECT_EQ(name({}, 5), "linear-8");  // of any context, since a state goes on in another
  EXPECT_EQ(name({.bfloat16 = true}), "linear-12-bf16");
  EXPECT_EQ(name({.form = LinearForm::kRecurrent}), "linear-1");
  EXPECT_EQ(name({.form = LinearForm::kRecurrent, .buffer = 1}), "linear-1");
  EXPECT_EQ(name({.buffer = 24}), "linear-24");
  EXPECT_EQ(name({.form = LinearForm::kBuffered, .buffer = 24, .bfloat16 = true}), "linear-24-bf16");
  EXPECT_EQ(name({.start = 100}), "linear-100-8");
  EXPECT_EQ(name({.form = LinearForm::kKv}), "linear-80-8");
  EXPECT_EQ(name({.form = LinearForm::kKv, .buffer = 16, .start = 64}), "linear-64-16");
  EXPECT_EQ(name({.form = LinearForm::kKv, .buffer = 96}), "linear-96");  // a start is never below the buffer
  EXPECT_THAT(name({.buffer = 513}), HasSubstr("--linear-buffer 513: expected 1 to 512"));
  EXPECT_THAT(name({.buffer = 65}, 64), HasSubstr("--linear-buffer 65: expected 1 to 64"));
  EXPECT_THAT(name({.start = 513}), HasSubstr("--linear-start 513: expected 1 to 512"));
  EXPECT_THAT(name({.buffer = 16, .start = 8}), HasSubstr("--linear-start 8: expected at least the buffer's 16"));
  EXPECT_THAT(name({.form = LinearForm::kRecurrent, .buffer = 2}), HasSubstr("expected 1 or none"));
  EXPECT_THAT(name({.form = LinearForm::kBuffered, .start = 64}), HasSubstr("that is the form kv"));
}

TEST(ResolveLinearPolicy, ModelWithoutLinearAttention_TakesTheDefaultAlone) {
  LanguageModel model;
  model.settings.architecture = "llama";
  EXPECT_TRUE(ResolveLinearPolicy({}, model, 64).ok());
  EXPECT_THAT(ResolveLinearPolicy({.buffer = 8}, model, 64).error().message(),
              HasSubstr("expected a model with linear attention, found one of family llama"));
}

TEST(LinearForm, Names_AreRead) {
  for (const LinearForm form : {LinearForm::kAuto, LinearForm::kRecurrent, LinearForm::kBuffered, LinearForm::kKv})
    EXPECT_EQ(ParseLinearForm(LinearFormName(form)).value(), form);
  EXPECT_THAT(ParseLinearForm("Auto").error().message(), HasSubstr("expected auto, recurrent, buffered or kv"));
}

}  // namespace
}  // namespace tidemill::linear_class_test
