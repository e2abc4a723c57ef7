// Linear attention over 16,384 tokens: its state in every class beside the recurrence in double, and the likelihood that a model gives a text.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/delta_rule.h"
#include "kernels/execution_context.h"
#include "state/linear_layer.h"
#include "tests/support/changed_checkpoint.h"
#include "tests/support/linear_classes.h"
#include "tests/support/model_folder.h"
#include "tests/support/model_runner.h"

namespace tidemill::linear_long_test {
namespace {

using testing::ChangedCheckpoint;
using testing::LinearClasses;
using testing::ModelFolder;
using testing::ModelRunner;
using testing::NameOf;

constexpr size_t kTokens = 16384;
#ifdef TIDEMILL_FEW_POSITIONS  // emulated or sanitized
constexpr size_t kTextTokens = 1024;
#else
constexpr size_t kTextTokens = kTokens;
#endif

// --- The state ---

constexpr DeltaShape kShape = {.key_heads = 2, .value_heads = 4, .key_dim = 32, .value_dim = 24, .form = {}};

// Rows as a model makes them: keys of length 1, gates of heads that remember for a few tokens, and for thousands.
struct Rows {
  std::vector<float> q, k, v, beta, g;

  Rows() {
    std::mt19937_64 random(1);
    const auto uniform = [&] { return static_cast<float>(static_cast<double>(random() >> 11) * 0x1p-52 - 1); };
    const auto fill = [&](std::vector<float>& x, size_t width) {
      x.resize(kTokens * width);
      for (float& value : x) value = uniform();
    };
    const auto unit = [](std::vector<float>& x, float length) {
      for (size_t at = 0; at < x.size(); at += kShape.key_dim) {
        double squares = 0;
        for (size_t i = 0; i < kShape.key_dim; ++i)
          squares += static_cast<double>(x[at + i]) * static_cast<double>(x[at + i]);
        for (size_t i = 0; i < kShape.key_dim; ++i) x[at + i] *= length / static_cast<float>(std::sqrt(squares));
      }
    };
    fill(q, kShape.key_heads * kShape.key_dim);
    fill(k, kShape.key_heads * kShape.key_dim);
    fill(v, kShape.value_heads * kShape.value_dim);
    fill(beta, kShape.value_heads);
    fill(g, kShape.value_heads);
    unit(q, 1 / std::sqrt(static_cast<float>(kShape.key_dim)));
    unit(k, 1);
    for (float& b : beta) b = (b + 1) / 2;
    constexpr std::array<float, kShape.value_heads> kForgets = {0.0003F, 0.003F, 0.05F, 0.7F};
    for (size_t i = 0; i < g.size(); ++i) g[i] = -kForgets[i % kForgets.size()] * (g[i] + 1);
  }

  void Set(DeltaTask& task, size_t first, size_t rows) const {
    const auto part = [&](const std::vector<float>& x) {
      const size_t width = x.size() / kTokens;
      return ConstMatrix<float>(x.data() + first * width, rows, width);
    };
    task.q = part(q);
    task.k = part(k);
    task.v = part(v);
    task.beta = part(beta);
    task.g = part(g);
  }
};

// The recurrence's states, [value_heads, key_dim, value_dim], at the positions where classes have boundaries: the last few up to each stop.
class Recurrence {
 public:
  static constexpr size_t kStops = 16, kStop = kTokens / kStops, kNear = 3;

  explicit Recurrence(const Rows& rows) {
    std::vector<double> state, y;
    DeltaTask task;
    for (size_t at = 0; at < kTokens; ++at) {
      rows.Set(task, at, 1);
      reference::DeltaRule(kShape, task, &state, &y);
      const size_t length = at + 1, behind = (kStop - length % kStop) % kStop;
      if (behind < kNear) states_[(length + behind) / kStop - 1][behind] = state;
    }
  }
  const std::vector<double>& At(size_t position) const {
    const size_t stop = (position + kStop - 1) / kStop, behind = stop * kStop - position;
    return states_.at(stop - 1).at(behind);
  }

 private:
  std::array<std::array<std::vector<double>, kNear>, kStops> states_;
};

// Of the state at `position`, a boundary up to which the layer has all: by the root of the sum of squares.
double RelativeError(const LinearLayer& layer, size_t position, const std::vector<double>& expected) {
  const DeltaShape& shape = layer.shape().delta;
  std::vector<std::byte> bytes;
  layer.AppendTo(&bytes, position);
  std::vector<float> state(shape.state_floats());
  std::memcpy(state.data(), bytes.data(), state.size() * sizeof(float));
  double error = 0, sum = 0;
  for (size_t h = 0; h < shape.value_heads; ++h) {
    for (size_t r = 0; r < shape.key_dim; ++r) {
      for (size_t c = 0; c < shape.value_dim; ++c) {
        const size_t tile = h * shape.head_floats() + c / kDeltaTile * shape.key_dim * kDeltaTile;
        const double found = static_cast<double>(state[tile + r * kDeltaTile + c % kDeltaTile]);
        const double wanted = expected[(h * shape.key_dim + r) * shape.value_dim + c];
        error += (found - wanted) * (found - wanted);
        sum += wanted * wanted;
      }
    }
  }
  return std::sqrt(error / sum);
}

TEST(LinearLong, State_StaysThatOfTheRecurrenceInDouble) {
  const Rows rows;
  const Recurrence recurrence(rows);
  const std::unique_ptr<ThreadPool> threads = std::move(ThreadPool::Create(1)).value();
  ExecutionContext ctx = std::move(ExecutionContext::Create(DetectIsa(), threads.get(), DeltaScratchBytes())).value();
  const std::vector<float> zeros(kTokens);  // the convolution is left out, but its inputs are kept
  std::vector<float> y(kTokens * kShape.value_heads * kShape.value_dim);
  for (const DeltaClass& form : LinearClasses()) {
    DeltaShape shape = kShape;
    shape.form = form;
    LinearLayer layer({.delta = shape, .channels = 1, .conv_width = 2}, {.isa = DetectIsa()});
    std::vector<const float*> taps(2 * kTokens);
    std::array<double, Recurrence::kStops> errors = {};
    size_t length = 0, steps = 0;
    for (size_t stop = 0; stop < Recurrence::kStops; ++stop) {
      const size_t measured = form.Boundary((stop + 1) * Recurrence::kStop);
      while (length < measured) {  // mostly one token, now and then a chunk that is staged or whole
        const size_t wanted = ++steps % 64 != 0 ? 1 : steps % 128 == 0 ? 100 : 7;
        const size_t n = std::min(wanted, measured - length);
        ASSERT_TRUE(layer.Reserve(n, length, nullptr).ok());
        const ConstMatrix<float> x(zeros.data(), n, 1);
        layer.ConvInputs(0, x, {}, std::span(taps).first(2 * n));
        DeltaTask task = layer.Task(0, n);
        rows.Set(task, length, n);
        task.y = Matrix<float>(y.data(), n, kShape.value_heads * kShape.value_dim);
        DeltaRule(ctx, shape, {&task, 1});
        layer.EndRows(0, x);
        layer.Commit(n);
        length += n;
      }
      errors[stop] = RelativeError(layer, measured, recurrence.At(measured));
    }
    const double most = *std::max_element(errors.begin(), errors.end());
    const double third = *std::max_element(errors.begin() + 8, errors.begin() + 12);
    const double fourth = *std::max_element(errors.begin() + 12, errors.end());
    std::printf("  %-10s state error: largest %.2e; third quarter %.2e, last %.2e\n", NameOf(form).c_str(), most, third,
                fourth);
    EXPECT_LE(most, form.dtype == DType::kF32 ? 1e-3 : 1e-2) << NameOf(form);
    EXPECT_LE(fourth, 1.5 * third) << NameOf(form) << ": it grows";
  }
}

// --- The text ---

double MeanNll(ModelRunner& runner, const DeltaClass& form, const std::vector<int32_t>& ids) {
  constexpr size_t kChunk = 512;
  const auto state = runner.NewState(form);
  double sum = 0;
  for (size_t at = 0; at < ids.size(); at += kChunk) {
    const std::span<const int32_t> part = std::span(ids).subspan(at, std::min(kChunk, ids.size() - at));
    EXPECT_TRUE(state->Reserve(part.size()).ok());
    const StepSequence step{.state = state.get(), .tokens = part, .rows = Wanted::kAll};
    (void)runner.executor().Run(
        {&step, 1},
        [&](size_t, size_t row, std::span<float> logits) {
          if (at + row + 1 == ids.size()) return;
          double all = 0;
          for (const float logit : logits) all += std::exp(static_cast<double>(logit));
          sum += std::log(all) - static_cast<double>(logits[static_cast<size_t>(ids[at + row + 1])]);
        },
        nullptr);
    state->Commit(testing::KeysOf(part));
  }
  return sum / static_cast<double>(ids.size() - 1);
}

// A small model with room for 32,768 positions, forced along a text that it half expects: each token is among its likely ones or is not.
TEST(LinearLong, LikelihoodOfAText_IsThatOfTheRecurrentForm) {
  ModelFolder folder;
  ChangedCheckpoint("families/qwen3_5_text_even")
      .Replace("\"max_position_embeddings\": 128", "\"max_position_embeddings\": 32768")
      .WriteTo(folder);
  ModelRunner runner(folder.path(), {.threads = 2, .context = 32768});
  std::mt19937_64 random(3);
  std::vector<int32_t> ids(kTextTokens);
  for (size_t i = 0; i < ids.size(); ++i) {
    const bool repeats = i >= 40 && random() % 2 == 0;
    ids[i] = repeats ? ids[i - 40] : static_cast<int32_t>(3 + random() % 120);
  }
  const double recurrent = MeanNll(runner, {}, ids);
  std::printf("  mean NLL of %zu tokens: recurrent %.6f\n", ids.size(), recurrent);
  for (const DeltaClass& form : {DeltaClass{.start = 8, .period = 8}, DeltaClass{.start = 64, .period = 16},
                                 DeltaClass{.start = 16, .period = 16, .dtype = DType::kBF16}}) {
    const double nll = MeanNll(runner, form, ids);
    std::printf("  %-10s %.6f, %+.1e\n", NameOf(form).c_str(), nll, nll - recurrent);
    const double bound = form.dtype == DType::kF32 ? 1e-4 : 1;
    EXPECT_NEAR(nll, recurrent, bound) << NameOf(form);
  }
}

}  // namespace
}  // namespace tidemill::linear_long_test
