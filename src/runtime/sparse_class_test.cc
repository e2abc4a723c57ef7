#include "runtime/sparse_class.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "models/layers/attention_branch.h"
#include "models/layers/delta_branch.h"
#include "runtime/request_record.h"

namespace tidemill::sparse_class_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr size_t kContext = 32768;

struct OneLayer {
  size_t window = 0;
  size_t head_dim = 128;
};

// A model without weights, of these layers.
LanguageModel ModelOf(const std::vector<OneLayer>& layers) {
  LanguageModel model;
  model.settings.architecture = "llama";
  for (const OneLayer& layer : layers) {
    model.layers.emplace_back().Add(
        Norm(), Norm(),
        AttentionBranch({.heads = 8, .kv_heads = 2, .head_dim = layer.head_dim, .window = layer.window}));
  }
  return model;
}

LanguageModel Plain(size_t layers = 4, size_t head_dim = 128) {
  return ModelOf(std::vector<OneLayer>(layers, {.head_dim = head_dim}));
}

// Of a class, or the error.
std::string NameIn(const LanguageModel& model, const AttentionPolicy& policy, size_t length = kContext,
                   DType kv = DType::kF16) {
  const Result<AttentionClass> found = ResolveAttentionPolicy(policy, model, length, kv);
  if (found.ok()) return found->name;
  EXPECT_EQ(found.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(found.error().message().find('\n'), std::string::npos);
  EXPECT_TRUE(found.error().message().starts_with("--")) << found.error().message();
  return found.error().message();
}

std::vector<size_t> SparseLayersOf(const AttentionClass& attention) {
  std::vector<size_t> sparse;
  for (size_t i = 0; i < attention.layers.size(); ++i) {
    if (attention.layers[i]) sparse.push_back(i);
  }
  return sparse;
}

TEST(ResolveAttentionPolicy, Kinds_GiveTheirClasses) {
  const LanguageModel model = Plain();
  const auto name = [&](const AttentionPolicy& policy) { return NameIn(model, policy); };
  using enum AttentionKind;
  EXPECT_EQ(name({}), "");
  EXPECT_EQ(name({.kind = kSparq}), "sparq-r16-k128-l32");
  EXPECT_EQ(name({.kind = kSparq, .r = 128, .k = 7, .local = 7}), "sparq-r128-k7-l7");
  EXPECT_EQ(name({.kind = kSparq, .k = 1}), "sparq-r16-k1-l1");
  EXPECT_EQ(name({.kind = kSparq, .k = size_t{1} << 30}), "sparq-r16-k1073741824-l268435456");
  EXPECT_EQ(name({.kind = kSparq, .rule = SparqRule::kEval}), "sparq-r16-k128-l32-eval");
  EXPECT_EQ(name({.kind = kSparq, .reallocate = false}), "sparq-r16-k128-l32-nomean");
  EXPECT_EQ(name({.kind = kSparq, .from = 4096}), "sparq-r16-k128-l32-from4096");
  EXPECT_EQ(name({.kind = kSparq, .dense_layers = {3, 0}}), "sparq-r16-k128-l32-dense0,3");
  EXPECT_EQ(name({.kind = kSparq, .floors = {.alphas = {0.9F}}}), "sparq-r16-k128-l32-floor0.9");
  EXPECT_EQ(name({.kind = kSparq,
                  .rule = SparqRule::kEval,
                  .reallocate = false,
                  .from = 0,
                  .dense_layers = {1},
                  .floors = {.alphas = {0.25F, 1, 0.25F, 0.25F}}}),
            "sparq-r16-k128-l32-eval-nomean-from0-dense1-floor0.25");
  EXPECT_EQ(name({.kind = kTopk}), "topk-k128-l32");
  EXPECT_EQ(name({.kind = kTopk, .k = 9, .local = 2, .rule = SparqRule::kEval}), "topk-k9-l2-eval");
  EXPECT_EQ(name({.kind = kH2o, .k = 64}), "h2o-k64-l16");
  EXPECT_EQ(name({.kind = kWindow, .k = 17}), "window-k17");
  EXPECT_EQ(name({.kind = kAuto}), "sparq-r16-k128-l32");
  EXPECT_EQ(NameIn(Plain(1, 4), {.kind = kSparq}), "sparq-r1-k128-l32");
  EXPECT_EQ(NameIn(ModelOf({{.head_dim = 256}, {.head_dim = 512}, {.head_dim = 256}}), {.kind = kSparq}),
            "sparq-r32,64-k128-l32");
  // The same bits, the same class.
  EXPECT_EQ(name({.kind = kSparq, .columns = KeyColumns::kNone, .audit = 7}), "sparq-r16-k128-l32");
  EXPECT_EQ(name({.kind = kSparq, .r = 16, .k = 128, .local = 32, .floors = {.alphas = {0, 0, 0, 0}}}),
            "sparq-r16-k128-l32");
  // Different floors, different classes.
  const std::string floors = name({.kind = kSparq, .floors = {.alphas = {0.5F, 0.5F, 0.5F, 0.25F}}});
  EXPECT_TRUE(floors.starts_with("sparq-r16-k128-l32-floors")) << floors;
  EXPECT_NE(name({.kind = kSparq, .floors = {.alphas = {0.5F, 0.5F, 0.25F, 0.5F}}}), floors);
}

TEST(ResolveAttentionPolicy, Forms_AreTheirs) {
  const LanguageModel model = Plain(2);
  const auto form = [&](const AttentionPolicy& policy) {
    return ResolveAttentionPolicy(policy, model, kContext, DType::kF16)->layers[1]->form;
  };
  using enum AttentionKind;
  EXPECT_EQ(form({.kind = kSparq, .floors = {.alphas = {0.5F, 0.75F}}}),
            (SparseForm{.kind = SparseKind::kSparq, .r = 16, .k = 128, .local = 32, .floor = 0.75F}));
  EXPECT_EQ(
      form({.kind = kSparq, .rule = SparqRule::kEval, .reallocate = false}),
      (SparseForm{
          .kind = SparseKind::kSparq, .rule = SparseRule::kEval, .reallocate = false, .r = 16, .k = 128, .local = 32}));
  EXPECT_EQ(form({.kind = kTopk}),
            (SparseForm{.kind = SparseKind::kTopk, .reallocate = false, .r = 128, .k = 128, .local = 32}));
  EXPECT_EQ(form({.kind = kH2o, .k = 8}),
            (SparseForm{.kind = SparseKind::kH2o, .reallocate = false, .k = 8, .local = 2}));
  EXPECT_EQ(form({.kind = kWindow, .k = 20}),
            (SparseForm{.kind = SparseKind::kWindow, .reallocate = false, .k = 20, .local = 4}));
}

TEST(ResolveAttentionPolicy, Columns_AreKeptWhereSparqReadsThem) {
  const LanguageModel model = Plain(1);
  const auto columns = [&](AttentionKind kind, KeyColumns wanted, DType kv) {
    return ResolveAttentionPolicy({.kind = kind, .columns = wanted}, model, kContext, kv)->layers[0]->columns;
  };
  using enum AttentionKind;
  EXPECT_TRUE(columns(kSparq, KeyColumns::kAuto, DType::kF16));
  EXPECT_TRUE(columns(kSparq, KeyColumns::kCache, DType::kF32));
  EXPECT_FALSE(columns(kSparq, KeyColumns::kNone, DType::kF16));
  EXPECT_FALSE(columns(kSparq, KeyColumns::kAuto, DType::kQ8_0));
  EXPECT_FALSE(columns(kSparq, KeyColumns::kNone, DType::kQ8_0));
  for (const AttentionKind kind : {kTopk, kH2o, kWindow}) EXPECT_FALSE(columns(kind, KeyColumns::kAuto, DType::kF16));
}

TEST(ResolveAttentionPolicy, LayersThatSeeLittle_StayDense) {
  LanguageModel model = ModelOf({{.window = 1024}, {}, {.window = 512}, {.window = 1025}, {}});
  model.layers.emplace_back().Add(
      Norm(), Norm(),
      DeltaBranch({.key_heads = 16, .value_heads = 32, .key_dim = 128, .value_dim = 128, .conv_width = 4}));
  const auto resolve = [&](const AttentionPolicy& policy) {
    return ResolveAttentionPolicy(policy, model, kContext, DType::kF16).value();
  };
  const AttentionClass all = resolve({.kind = AttentionKind::kSparq});
  EXPECT_EQ(all.layers.size(), 6U);
  EXPECT_THAT(SparseLayersOf(all), ElementsAre(1, 3, 4));
  // Those that are dense anyway are not in the name.
  const AttentionClass some = resolve({.kind = AttentionKind::kSparq, .dense_layers = {0, 3, 5}});
  EXPECT_THAT(SparseLayersOf(some), ElementsAre(1, 4));
  EXPECT_EQ(some.name, "sparq-r16-k128-l32-dense3");
  EXPECT_EQ(resolve({.kind = AttentionKind::kSparq, .dense_layers = {0, 5}}).name, all.name);
  EXPECT_EQ(resolve({.kind = AttentionKind::kSparq, .floors = {.alphas = {0.1F, 0.5F, 0.2F, 0.5F, 0.5F, 0.3F}}}).name,
            "sparq-r16-k128-l32-floor0.5");
  // No model, or none that is left.
  const std::string nothing = ": expected a layer whose attention sees more than 1024 positions";
  for (const size_t window : {64, 2000}) {
    EXPECT_EQ(NameIn(ModelOf({{.window = window}}), {.kind = AttentionKind::kH2o}),
              "--attention h2o: expected a layer whose attention has no window, found none in a model of family llama; "
              "choose dense");
  }
  EXPECT_EQ(NameIn(Plain(2), {.kind = AttentionKind::kSparq, .dense_layers = {1, 0}}),
            "--attention sparq" + nothing +
                " and that --sparq-dense-layers does not name, found none in a model of family llama; choose dense");
  EXPECT_EQ(NameIn(ModelOf({{.window = 64}}), {.kind = AttentionKind::kAuto}), "");
}

// Of heads of 128 elements sparq reads 16n + 2 * 128 * 128 of dense attention's 256n, and without columns 128n instead of 16n.
TEST(ResolveAttentionPolicy, LayersThatWouldReadMoreThanDense_AreDense) {
  const LanguageModel model = Plain(4);
  const auto name = [&](size_t length, std::vector<float> shares, AttentionPolicy policy = {}) {
    policy.kind = policy.kind == AttentionKind::kDense ? AttentionKind::kSparq : policy.kind;
    policy.floors.dense_shares = std::move(shares);
    return NameIn(model, policy, length);
  };
  const std::string form = "sparq-r16-k128-l32";
  EXPECT_EQ(name(kContext, {0.5F, 0.7F, 0.95F, 0}), form + "-dense2");
  EXPECT_EQ(name(512, {0.5F, 0.7F, 0.95F, 0}), form + "-dense1,2");
  EXPECT_EQ(name(512, {0.6875F, 0.6876F, 0, 0}), form + "-dense1") << "as much is not more";
  EXPECT_EQ(name(128, {0.5F, 0.7F, 0.95F, 1}), form) << "all rows see what k reads";
  EXPECT_EQ(name(512, {1, 1, 1, 1}), "");
  EXPECT_EQ(name(512, {1, 0, 0, 1}, {.dense_layers = {3, 1}}), form + "-dense0,1,3");
  EXPECT_EQ(name(kContext, {0.5F, 0.4F, 0, 0}, {.columns = KeyColumns::kNone}), form + "-dense0");
  EXPECT_EQ(name(kContext, {0.95F, 0, 0, 0}, {.floors = {.alphas = {0.5F, 0.25F, 0.25F, 0.25F}}}),
            form + "-dense0-floor0.25");
  EXPECT_EQ(name(kContext, {1, 1, 1, 1}, {.kind = AttentionKind::kAuto}), "");
  EXPECT_EQ(name(4096, {1, 0, 0, 0}, {.kind = AttentionKind::kAuto}), form + "-dense0");
  EXPECT_EQ(name(4096, {1, 0.75F, 0.75F, 0}, {.kind = AttentionKind::kAuto}), "") << "all layers read more than half";
  const AttentionClass all =
      ResolveAttentionPolicy({.kind = AttentionKind::kSparq, .floors = {.dense_shares = {1, 1, 1, 0}}}, model, kContext,
                             DType::kF16)
          .value();
  EXPECT_THAT(SparseLayersOf(all), ElementsAre(3));
  EXPECT_EQ(name(512, {0, 0}), "--attention-floor: expected a dense share for each of the model's 4 layers, found 2");
  EXPECT_EQ(name(512, {0, 0, 2, 0}), "--attention-floor: expected dense shares from 0 to 1, found 2");
  EXPECT_THAT(name(512, {0, 0, 0, 0}, {.kind = AttentionKind::kTopk}),
              HasSubstr("--attention-floor: expected --attention sparq or auto"));
}

TEST(ResolveAttentionPolicy, FloorsOfAnotherModelOrForm_AreRefused) {
  LanguageModel model = Plain(2);
  model.id = 7;
  const FloorOrigin origin{.model = 7, .r = 16, .k = 64, .local = 16};
  const auto found = [&](const FloorOrigin& of, AttentionPolicy policy = {}) {
    policy.kind = AttentionKind::kSparq;
    policy.k = 64;
    policy.floors.origin = of;
    return NameIn(model, policy);
  };
  EXPECT_EQ(found(origin), "sparq-r16-k64-l16");
  FloorOrigin other = origin;
  other.model = 8;
  EXPECT_EQ(found(other),
            "--attention-floor: expected floors of this model, found those of one with other weights; choose another "
            "file, or make one with tidemill eval --calibrate");
  // Also where the number of layers is another.
  EXPECT_EQ(found(other, {.floors = {.alphas = std::vector<float>(9, 0.5F)}}), found(other));
  EXPECT_EQ(found(origin, {.r = 8}),
            "--attention-floor: expected r 16, k 64, local 16, rule paper, mean on, for which the floors were fitted, "
            "found r 8, k 64, local 16, rule paper, mean on; choose those, or another file");
  EXPECT_THAT(found(origin, {.local = 1}), HasSubstr("found r 16, k 64, local 1,"));
  EXPECT_THAT(found(origin, {.rule = SparqRule::kEval}), HasSubstr("rule eval, mean on; choose"));
  EXPECT_THAT(found(origin, {.reallocate = false}), HasSubstr("rule paper, mean off; choose"));
  other = origin;
  other.k = 128;
  EXPECT_THAT(found(other), HasSubstr("expected r 16, k 128"));
}

TEST(WithoutFlags, Errors_NameTheNumbersAlone) {
  const auto words = [](const AttentionPolicy& policy) {
    return WithoutFlags(ResolveAttentionPolicy(policy, Plain(), kContext, DType::kF16).error()).message();
  };
  EXPECT_EQ(words({.kind = AttentionKind::kSparq, .r = 129}),
            "r 129: expected at most the model's head_dim, which is 128");
  EXPECT_EQ(words({.kind = AttentionKind::kSparq, .local = 129}), "local 129: expected at most k, which is 128");
  EXPECT_EQ(words({.kind = AttentionKind::kWindow, .k = 16}),
            "k 16: expected more than 16 with window, which keeps so many first positions");
}

TEST(ChoicesByLength, EachOf_ThemIsSomeLengths) {
  const AttentionPolicy plain{.kind = AttentionKind::kTopk, .k = 5};
  EXPECT_THAT(ChoicesByLength(plain), ElementsAre(plain));
  const AttentionPolicy sparq{.kind = AttentionKind::kSparq, .k = 5};
  AttentionPolicy any = sparq;
  any.kind = AttentionKind::kAuto;
  EXPECT_THAT(ChoicesByLength(any), ElementsAre(AttentionPolicy(), sparq));
  AttentionPolicy shares = sparq;
  shares.dense_layers = {3};
  const AttentionPolicy none = shares;
  shares.floors.dense_shares = {0.5F, 0.75F, 0.5F, 1};
  AttentionPolicy three = none, one = none, named = none;
  three.dense_layers = {3, 0, 1, 2};
  one.dense_layers = {3, 1};
  EXPECT_THAT(ChoicesByLength(shares), ElementsAre(AttentionPolicy(), none, three, one, named));
}

TEST(ResolveAttentionPolicy, WrongValues_AreNamed) {
  const LanguageModel model = Plain();
  const auto error = [&](const AttentionPolicy& policy, DType kv = DType::kF16) {
    return NameIn(model, policy, kContext, kv);
  };
  using enum AttentionKind;
  for (const AttentionKind kind : {kSparq, kAuto}) {
    EXPECT_EQ(error({.kind = kind, .r = 0}), "--sparq-r 0: expected 1 to 128");
    EXPECT_EQ(error({.kind = kind, .r = 129}), "--sparq-r 129: expected at most the model's head_dim, which is 128");
    EXPECT_EQ(error({.kind = kind, .k = 0}), "--sparq-k 0: expected at least 1");
    EXPECT_EQ(error({.kind = kind, .k = 64, .local = 0}), "--sparq-local 0: expected 1 to 64");
    EXPECT_EQ(error({.kind = kind, .k = 64, .local = 65}), "--sparq-local 65: expected at most --sparq-k, which is 64");
    EXPECT_EQ(error({.kind = kind, .local = 129}), "--sparq-local 129: expected at most --sparq-k, which is 128");
  }
  EXPECT_EQ(error({.kind = kH2o, .k = 0}), "--sparq-k 0: expected at least 1");
  EXPECT_EQ(error({.kind = kH2o, .k = 8, .local = 9}), "--sparq-local 9: expected at most --sparq-k, which is 8");
  EXPECT_EQ(error({.kind = kWindow, .k = 16}),
            "--sparq-k 16: expected more than 16 with --attention window, which keeps so many first positions");
  EXPECT_EQ(error({.kind = kSparq, .dense_layers = {4}}), "--sparq-dense-layers 4: expected a layer from 0 to 3");
  EXPECT_EQ(error({.kind = kSparq, .dense_layers = {2, 1, 2}}),
            "--sparq-dense-layers 2: expected each layer once, found it twice");
  for (const float floor : {-0.5F, 1.5F, std::numeric_limits<float>::quiet_NaN()})
    EXPECT_THAT(error({.kind = kSparq, .floors = {.alphas = {0.5F, floor, 0, 0}}}), HasSubstr(": expected 0 to 1"))
        << floor;
  EXPECT_EQ(error({.kind = kSparq, .floors = {.alphas = {1.5F}}}), "--attention-floor 1.5: expected 0 to 1");
  EXPECT_EQ(error({.kind = kSparq, .floors = {.alphas = {0.5F, 0.5F}}}),
            "--attention-floor: expected 1 number or one for each of the model's 4 layers, found 2");
  EXPECT_EQ(error({.kind = kSparq, .columns = KeyColumns::kCache}, DType::kQ8_0),
            "--sparq-columns cache: expected --kv-dtype f16, bf16 or f32, found q8_0, whose columns are not kept; "
            "choose auto or none");
}

TEST(ResolveAttentionPolicy, WhatAKindDoesNotRead_IsRefused) {
  const LanguageModel model = Plain();
  const auto error = [&](const AttentionPolicy& policy) { return NameIn(model, policy); };
  using enum AttentionKind;
  EXPECT_EQ(error({.k = 5}),
            "--sparq-k and its like: expected --attention sparq, topk, h2o, window or auto, found dense; leave it out");
  for (const AttentionKind kind : {kTopk, kH2o, kWindow}) {
    const std::string found =
        ": expected --attention sparq or auto, found " + std::string(AttentionKindName(kind)) + "; leave it out";
    EXPECT_EQ(error({.kind = kind, .r = 5}), "--sparq-r" + found);
    EXPECT_EQ(error({.kind = kind, .reallocate = false}), "--sparq-mean" + found);
    EXPECT_EQ(error({.kind = kind, .columns = KeyColumns::kNone}), "--sparq-columns" + found);
    EXPECT_EQ(error({.kind = kind, .floors = {.alphas = {0.5F}}}), "--attention-floor" + found);
  }
  for (const AttentionKind kind : {kH2o, kWindow}) {
    const std::string found =
        ": expected --attention sparq, topk or auto, found " + std::string(AttentionKindName(kind)) + "; leave it out";
    EXPECT_EQ(error({.kind = kind, .rule = SparqRule::kEval}), "--sparq-rule" + found);
    EXPECT_EQ(error({.kind = kind, .audit = 5}), "--attention-audit" + found);
  }
  EXPECT_EQ(error({.kind = kWindow, .local = 5}),
            "--sparq-local: expected --attention sparq, topk, h2o or auto, found window; leave it out");
  EXPECT_EQ(error({.kind = kTopk, .audit = 5}), "topk-k128-l32");
}

TEST(ResolveAttentionPolicy, Auto_IsSparqWhereItReadsHalfAtMost) {
  const LanguageModel model = Plain();
  const auto chosen = [&](size_t length, AttentionPolicy policy = {}, DType kv = DType::kF16) {
    policy.kind = AttentionKind::kAuto;
    return NameIn(model, policy, length, kv);
  };
  EXPECT_EQ(chosen(4095), "");
  EXPECT_EQ(chosen(4096), "sparq-r16-k128-l32");
  EXPECT_EQ(chosen(kContext, {.r = 8, .k = 64}), "sparq-r8-k64-l16");
  // 16 n + 256 k against 256 n: half of it at n = 4096 for k = 1792.
  EXPECT_EQ(chosen(4096, {.k = 1792}), "sparq-r16-k1792-l448");
  EXPECT_EQ(chosen(4096, {.k = 1793}), "");
  // Without columns the keys are read whole.
  EXPECT_EQ(chosen(kContext, {}, DType::kQ8_0), "");
  EXPECT_EQ(chosen(kContext, {.columns = KeyColumns::kNone}), "");
  // Layers with windows read what they read.
  const LanguageModel windows = ModelOf({{.window = 1024}, {.window = 1024}, {.window = 1024}, {.window = 1024}, {}});
  EXPECT_EQ(NameIn(windows, {.kind = AttentionKind::kAuto}, 4096), "");
  EXPECT_EQ(NameIn(windows, {.kind = AttentionKind::kAuto}, kContext), "sparq-r16-k128-l32");
}

TEST(ResolveAttentionPolicy, ChoiceByLength_SaysWhatDecided) {
  const auto why = [](const LanguageModel& model, const AttentionPolicy& policy, size_t length) {
    return std::string(ResolveAttentionPolicy(policy, model, length, DType::kF16)->reason);
  };
  const AttentionPolicy any{.kind = AttentionKind::kAuto};
  EXPECT_EQ(why(Plain(), any, 4095), "--attention auto: fewer than 4096 positions");
  EXPECT_EQ(why(Plain(), any, 4096), "--attention auto: sparq reads at most half of what dense attention reads");
  EXPECT_EQ(why(Plain(), {.kind = AttentionKind::kAuto, .k = 4000}, 4096),
            "--attention auto: sparq would read more than half of what dense attention reads");
  EXPECT_EQ(why(ModelOf({{.window = 512}}), any, 8192), "--attention auto: no layer is left that can be sparse");
  EXPECT_EQ(why(Plain(2), {.kind = AttentionKind::kSparq, .floors = {.dense_shares = {1, 1}}}, 8192),
            "--attention-floor: with its dense shares every layer would read more than dense attention");
  EXPECT_EQ(why(Plain(2), {.kind = AttentionKind::kSparq, .floors = {.dense_shares = {1, 0}}}, 8192), "");
  EXPECT_EQ(why(Plain(), {.kind = AttentionKind::kSparq}, 8192), "");
  EXPECT_EQ(why(Plain(), {}, 8192), "");
}

TEST(AttentionClass, Borders_FollowThePromptUnlessGiven) {
  const LanguageModel model = Plain();
  const auto resolve = [&](const AttentionPolicy& policy) {
    return ResolveAttentionPolicy(policy, model, kContext, DType::kF16).value();
  };
  const AttentionClass dense = resolve({}), sparq = resolve({.kind = AttentionKind::kSparq}),
                       from = resolve({.kind = AttentionKind::kTopk, .from = 30}),
                       h2o = resolve({.kind = AttentionKind::kH2o, .from = 30}),
                       window = resolve({.kind = AttentionKind::kWindow});
  EXPECT_EQ(dense.SparseFrom(50), SIZE_MAX);
  EXPECT_EQ(dense.SharedPositions(50), SIZE_MAX);
  EXPECT_EQ(sparq.SparseFrom(50), 50U);
  EXPECT_EQ(sparq.SharedPositions(50), 50U);
  EXPECT_EQ(from.SparseFrom(50), 30U);
  EXPECT_EQ(from.SharedPositions(50), 30U);
  EXPECT_EQ(h2o.SparseFrom(50), 30U);
  EXPECT_EQ(h2o.SharedPositions(50), 0U);
  EXPECT_EQ(window.SparseFrom(50), 50U);
  EXPECT_EQ(window.SharedPositions(50), 0U);
  EXPECT_FALSE(sparq.evicts());
  EXPECT_TRUE(h2o.evicts());
  EXPECT_TRUE(window.evicts());
}

TEST(AttentionClass, LongestName_IsSaved) {
  const size_t layers = 200, most = size_t{1} << 30;
  AttentionPolicy policy{.kind = AttentionKind::kSparq,
                         .k = most,
                         .local = most,
                         .rule = SparqRule::kEval,
                         .reallocate = false,
                         .from = most,
                         .floors = {.alphas = std::vector<float>(layers, 0.1F)}};
  for (size_t i = 0; i < layers; i += 2) policy.dense_layers.push_back(i);
  policy.floors.alphas[1] = 0.2F;
  const std::string name = NameIn(Plain(layers), policy), begin = "baseline+bf16/kv-q8_0/rope-linear=1023.123456/";
  EXPECT_THAT(name, HasSubstr("-dense"));
  EXPECT_LE(begin.size() + std::string("linear-512-512-bf16/").size() + name.size(), RequestRecord::kMaxClassBytes);
  policy.dense_layers.pop_back();
  EXPECT_NE(NameIn(Plain(layers), policy), name);
}

TEST(AttentionKind, Names_AreRead) {
  for (const AttentionKind kind : kAttentionKinds) EXPECT_EQ(ParseAttentionKind(AttentionKindName(kind)).value(), kind);
  EXPECT_EQ(AttentionKindName(AttentionKind::kWindow), "window");
  EXPECT_EQ(ParseAttentionKind("Dense").error().message(),
            "choose attention: 'Dense': expected dense, sparq, topk, h2o, window or auto");
}

}  // namespace
}  // namespace tidemill::sparse_class_test
