// The state of one layer of linear attention: what a step takes in every class, beside what its memory traffic allows.
//
//   kvbuffer_layer decode              a token a step, m = 1 .. 64, batch 1, 4, 16 and 64, beside the traffic model
//   kvbuffer_layer verify              1 .. 16 drafts, beside a recurrent kernel that writes a state for each
//   kvbuffer_layer start               recurrent, buffered and without a state, over the first 8 .. 511 tokens
//   kvbuffer_layer memory              bytes of a sequence in a layer that verifies 4 drafts a step, beside a state for each
//
//   --shape 80b|0.8b   --threads N   --most-batch N   --hot (one layer's states again and again; else as many as a model has)
// Times are of the delta rule and of what the layer does around it, without projections and convolution: the median of --repeats runs.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/check.h"
#include "base/isa.h"
#include "base/thread_pool.h"
#include "kernels/delta_rule.h"
#include "kernels/execution_context.h"
#include "kernels/testing/seeded_inputs.h"
#include "state/linear_layer.h"

namespace tidemill::kvbuffer {
namespace {

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Seconds of a run: the median of `repeats`, after one that is not counted.
template <typename Run>
double MedianSeconds(size_t repeats, const Run& run) {
  run();
  std::vector<double> seconds(repeats);
  for (double& s : seconds) {
    const double begin = Now();
    run();
    s = Now() - begin;
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[repeats / 2];
}

struct Options {
  std::string shape = "80b";
  size_t threads = 1, repeats = 5, most_batch = 64;
  bool hot = false;
};

// Qwen3-Next-80B, and a Qwen3.5 of 0.8B.
LinearShape ShapeOf(const Options& options, const DeltaClass& form) {
  const bool large = options.shape == "80b";
  DeltaShape delta{
      .key_heads = 16, .value_heads = large ? size_t{32} : 16, .key_dim = 128, .value_dim = 128, .form = form};
  return {.delta = delta, .channels = 1, .conv_width = 1};
}
size_t LayersOf(const Options& options) { return options.shape == "80b" ? 36 : 18; }

// Rows that all sequences and layers read: their content costs no time.
struct Rows {
  std::vector<float> q, k, v, beta, g, y, x;
  size_t count;

  Rows(const LinearShape& s, size_t rows)
      : q(testing::RandomFloats(1, rows * s.delta.key_heads * s.delta.key_dim, 0.1F)),
        k(testing::RandomFloats(2, q.size(), 0.1F)),
        v(testing::RandomFloats(3, rows * s.delta.value_heads * s.delta.value_dim)),
        beta(testing::RandomFloats(4, rows * s.delta.value_heads)),
        g(testing::RandomFloats(5, beta.size(), 0.1F)),
        y(v.size()),
        x(rows),
        count(rows) {
    for (float& b : beta) b = std::fabs(b);
    for (float& d : g) d = -std::fabs(d);
  }
  void Fill(const LinearShape& s, size_t first, size_t num, DeltaTask* task) {
    const auto rows = [&](std::vector<float>& data, size_t width) {
      return Matrix<float>(data.data() + first * width, num, width);
    };
    task->q = rows(q, s.delta.key_heads * s.delta.key_dim);
    task->k = rows(k, s.delta.key_heads * s.delta.key_dim);
    task->v = rows(v, s.delta.value_heads * s.delta.value_dim);
    task->beta = rows(beta, s.delta.value_heads);
    task->g = rows(g, s.delta.value_heads);
    task->y = rows(y, s.delta.value_heads * s.delta.value_dim);
  }
};

class Bench {
 public:
  Bench(const Options& options, const DeltaClass& form, size_t batch, size_t rows_of_a_step)
      : options_(options),
        shape_(ShapeOf(options, form)),
        threads_(ThreadPool::Create(options.threads).value()),
        ctx_(ExecutionContext::Create(DetectIsa(), threads_.get(), DeltaScratchBytes()).value()),
        rows_(shape_, batch * std::max(rows_of_a_step, size_t{1})),
        batch_(batch) {
    const size_t layers = options.hot ? 1 : LayersOf(options);
    for (size_t i = 0; i < layers * batch; ++i)
      sequences_.push_back(std::make_unique<LinearLayer>(shape_, LinearOptions{.isa = DetectIsa()}));
    tasks_.resize(batch);
  }

  size_t num_layers() const { return sequences_.size() / batch_; }

  // One layer's step of num rows a sequence, of which `kept` stay.
  void Step(size_t layer, size_t num, size_t kept) {
    TIDEMILL_CHECK(batch_ * num <= rows_.count);
    for (size_t s = 0; s < batch_; ++s) {
      LinearLayer& state = *sequences_[layer * batch_ + s];
      if (!state.Reserve(num, SIZE_MAX, nullptr).ok()) std::abort();
      inputs_.resize(num);
      state.ConvInputs(0, Matrix<float>(rows_.x.data(), num, 1), {}, inputs_);
      tasks_[s] = state.Task(0, num);
      rows_.Fill(shape_, s * num, num, &tasks_[s]);
    }
    DeltaRule(ctx_, shape_.delta, tasks_);
    for (size_t s = 0; s < batch_; ++s) {
      LinearLayer& state = *sequences_[layer * batch_ + s];
      state.EndRows(0, Matrix<float>(rows_.x.data(), num, 1));
      state.Commit(kept);
    }
  }

  // Seconds of a layer's step, over rounds of `steps` steps of all layers.
  double Seconds(size_t steps, size_t num, size_t kept) {
    const double seconds = MedianSeconds(options_.repeats, [&] {
      for (size_t step = 0; step < steps; ++step) {
        for (size_t layer = 0; layer < num_layers(); ++layer) Step(layer, num, kept);
      }
    });
    return seconds / static_cast<double>(steps * num_layers());
  }
  ExecutionContext& ctx() { return ctx_; }
  const LinearShape& shape() const { return shape_; }
  Rows& rows() { return rows_; }

 private:
  Options options_;
  LinearShape shape_;
  std::unique_ptr<ThreadPool> threads_;
  ExecutionContext ctx_;
  Rows rows_;
  size_t batch_;
  std::vector<std::unique_ptr<LinearLayer>> sequences_;
  std::vector<DeltaTask> tasks_;
  std::vector<const float*> inputs_;
};

// Seconds to read `bytes` of as many places as a model has states, and to update them in place; by all threads.
struct Traffic {
  double read = 0, update = 0;
};
Traffic MeasureTraffic(const Options& options, uint64_t bytes, size_t places) {
  auto threads = ThreadPool::Create(options.threads).value();
  std::vector<std::vector<float>> data(places, std::vector<float>(bytes / 4, 1.0F));
  std::vector<float> sums(256);
  const auto run = [&](bool update) {
    const double seconds = MedianSeconds(options.repeats, [&] {
      for (std::vector<float>& place : data) {
        constexpr size_t kParts = 32;
        threads->ParallelFor(kParts, [&](size_t part, size_t) {
          float* const at = place.data() + part * (place.size() / kParts);
          const size_t n = place.size() / kParts;
          float sum[64] = {};
          for (size_t i = 0; i + 64 <= n; i += 64) {
            for (size_t j = 0; j < 64; ++j) {
              if (update) at[i + j] = at[i + j] * 0.999F + 1e-3F;
              sum[j] += at[i + j];
            }
          }
          for (const float s : sum) sums[part] += s;
        });
      }
    });
    return seconds / static_cast<double>(places);
  };
  return {.read = run(false), .update = run(true)};
}

void Decode(const Options& options) {
  const LinearShape shape = ShapeOf(options, {});
  const uint64_t bytes = shape.delta.state_bytes();
  std::printf("one token a step, %s, %s, %zu thread(s); us a layer and sequence\n", options.shape.c_str(),
              options.hot ? "hot" : "cold", options.threads);
  for (size_t batch = 1; batch <= options.most_batch; batch *= 4) {
    const Traffic traffic = MeasureTraffic(options, bytes, (options.hot ? 1 : LayersOf(options)) * batch);
    std::printf("batch %3zu   state read %6.1f updated %6.1f (%.2f)\n", batch, traffic.read * 1e6, traffic.update * 1e6,
                traffic.update / traffic.read);
    double recurrent = 0;
    for (const size_t m : {1, 2, 4, 8, 12, 16, 24, 32, 64}) {
      Bench bench(options, {.start = m, .period = m}, batch, m + 1);
      for (size_t layer = 0; layer < bench.num_layers(); ++layer) bench.Step(layer, m + 1, m + 1);
      const size_t cycles = std::max<size_t>(1, 64 / m);
      const double seconds = bench.Seconds(cycles * m, 1, 1) / static_cast<double>(batch);
      if (m == 1) recurrent = seconds;
      const auto entry = static_cast<double>(shape.delta.entry_bytes(DType::kF32));
      const double model = traffic.read + (traffic.update - traffic.read) / static_cast<double>(m) +
                           traffic.read * entry * static_cast<double>(m + 1) / 2 / static_cast<double>(bytes);
      std::printf("  m %2zu  %7.1f us  %.3f of recurrent   model %7.1f us, share %.2f\n", m, seconds * 1e6,
                  seconds / recurrent, model * 1e6, model / seconds);
    }
  }
}

// A recurrent kernel that writes a state for each draft, in one pass over the state for each: the step of the class m = 1 from one place into
// another.
double StatesPerDraft(Bench& bench, const Options& options, size_t drafts) {
  const DeltaShape& shape = bench.shape().delta;
  const size_t layers = options.hot ? 1 : LayersOf(options);
  std::vector<AlignedBuffer> states, rings;
  for (size_t i = 0; i < layers * (drafts + 1); ++i)
    states.push_back(std::move(AlignedBuffer::Create(shape.state_bytes())).value());
  const size_t capacity = drafts + 2;
  const size_t u = shape.value_heads * capacity * shape.padded_value_dim() * 4,
               k = shape.key_heads * capacity * shape.key_dim * 4;
  for (size_t i = 0; i < layers; ++i)
    rings.push_back(std::move(AlignedBuffer::Create(u + k + shape.value_heads * capacity * 4)).value());
  const double seconds = MedianSeconds(options.repeats, [&] {
    for (size_t layer = 0; layer < layers; ++layer) {
      for (size_t d = 0; d < drafts; ++d) {
        DeltaTask task{.state = states[layer * (drafts + 1) + d].As<float>().data(),
                       .folded = states[layer * (drafts + 1) + d + 1].As<float>().data(),
                       .base = 100 + d,
                       .fold_to = 101 + d,
                       .entries = {rings[layer].data(), rings[layer].data() + u,
                                   reinterpret_cast<float*>(rings[layer].data() + u + k), capacity, d},
                       .num_entries = 1,
                       .place = 1};
        bench.rows().Fill(bench.shape(), d, 1, &task);
        DeltaRule(bench.ctx(), shape, {&task, 1});
      }
    }
  });
  return seconds / static_cast<double>(layers);
}

void Verify(const Options& options) {
  std::printf("verification at batch 1, %s, %s, %zu thread(s); us a layer\n", options.shape.c_str(),
              options.hot ? "hot" : "cold", options.threads);
  for (const size_t drafts : {1, 2, 4, 8, 12, 16}) {
    Bench recurrent(options, {.start = 1, .period = 1}, 1, drafts);
    const double states = StatesPerDraft(recurrent, options, drafts);
    std::printf("drafts %2zu  a state each %7.1f", drafts, states * 1e6);
    for (const size_t m : {1, 8, 16, 32}) {
      Bench bench(options, {.start = m, .period = m}, 1, std::max(drafts, m));
      for (size_t layer = 0; layer < bench.num_layers(); ++layer) bench.Step(layer, m, m);
      // Two of three drafts are accepted: entries come and go.
      const double seconds = bench.Seconds(16, drafts, std::max<size_t>(1, drafts * 2 / 3));
      std::printf("   m %2zu %7.1f (%.2fx)", m, seconds * 1e6, states / seconds);
    }
    std::printf("\n");
  }
}

void Start(const Options& options) {
  std::printf("the first tokens, %s, %s, %zu thread(s); us a layer and token at length L\n", options.shape.c_str(),
              options.hot ? "hot" : "cold", options.threads);
  for (const size_t length : {8, 16, 32, 64, 96, 128, 192, 256, 384, 511}) {
    std::printf("L %3zu", length);
    for (const auto& [name, form] : {std::pair{"recurrent", DeltaClass{1, 1}},
                                     {"buffered", DeltaClass{16, 16}},
                                     {"no state", DeltaClass{512, 16}}}) {
      Bench bench(options, form, 1, length);
      for (size_t layer = 0; layer < bench.num_layers(); ++layer) bench.Step(layer, length, length);
      const double seconds = bench.Seconds(form.start == 512 ? 1 : 16, 1, form.start == 512 ? 0 : 1);
      std::printf("   %s %7.1f", name, seconds * 1e6);
    }
    std::printf("\n");
  }
}

// Once steps of five rows, of which one to five stay, have been made for a while.
void Memory(const Options& options) {
  constexpr size_t kDrafts = 4, kRows = kDrafts + 1;
  std::printf("bytes of a sequence in a layer, %s, %zu drafts a step\n", options.shape.c_str(), kDrafts);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const size_t m : {1, 4, 8, 12, 16}) {
      LinearShape shape = ShapeOf(options, {.start = m, .period = m, .dtype = dtype});
      const DeltaShape& d = shape.delta;
      shape.conv_width = 4;
      shape.channels = 2 * d.key_heads * d.key_dim + d.value_heads * d.value_dim;
      LinearLayer layer(shape, {.isa = DetectIsa()});
      auto threads = ThreadPool::Create(1).value();
      auto ctx = ExecutionContext::Create(DetectIsa(), threads.get(), DeltaScratchBytes()).value();
      Rows rows(shape, kRows);
      const std::vector<float> x(kRows * shape.channels);
      std::vector<const float*> inputs(kRows * shape.conv_width);
      uint64_t most = 0;
      for (size_t step = 0; step < 200; ++step) {
        if (!layer.Reserve(kRows, SIZE_MAX, nullptr).ok()) std::abort();
        const ConstMatrix<float> own(x.data(), kRows, shape.channels);
        layer.ConvInputs(0, own, {}, inputs);
        DeltaTask task = layer.Task(0, kRows);
        rows.Fill(shape, 0, kRows, &task);
        DeltaRule(ctx, d, {&task, 1});
        layer.EndRows(0, own);
        layer.Commit(1 + step % kRows);
        if (step >= 20) most = std::max(most, layer.reserved_bytes());
      }
      const auto state = static_cast<double>(d.state_bytes());
      const double window = static_cast<double>(shape.channels * sizeof(float)) * 3;
      const double each = (kDrafts + 1) * (state + window);
      std::printf("%s m %2zu  %8.0f KiB   a state and window for each row %8.0f KiB   %.2f times as many requests\n",
                  dtype == DType::kF32 ? "f32 " : "bf16", m, static_cast<double>(most) / 1024, each / 1024,
                  each / static_cast<double>(most));
    }
  }
}

}  // namespace
}  // namespace tidemill::kvbuffer

int main(int argc, char** argv) {
  using namespace tidemill::kvbuffer;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  CLI::App app("What the state of linear attention costs");
  Options options;
  app.add_option("--shape", options.shape)->check(CLI::IsMember({"80b", "0.8b"}));
  app.add_option("--threads", options.threads)->check(CLI::PositiveNumber);
  app.add_option("--repeats", options.repeats)->check(CLI::PositiveNumber);
  app.add_option("--most-batch", options.most_batch)->check(CLI::PositiveNumber);
  app.add_flag("--hot", options.hot);
  const std::vector<std::pair<const char*, void (*)(const Options&)>> figures = {
      {"decode", Decode}, {"verify", Verify}, {"start", Start}, {"memory", Memory}};
  for (const auto& [name, run] : figures) {
    app.add_subcommand(name)->fallthrough()->final_callback([&options, run = run] { run(options); });
  }
  app.require_subcommand(1);
  CLI11_PARSE(app, argc, argv);
  return 0;
}
