// Recurrent-memory transformers, segment by segment, against the plain reference (tests/fixtures/armt/README.md): logits of every token, and the
// memory of every layer.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/testing/levels.h"
#include "engine/segments.h"
#include "kernels/testing/compare.h"
#include "state/segment_kv_layer.h"
#include "tests/fixtures_path.h"
#include "tests/support/bits_hashes.h"
#include "tests/support/bits_levels.h"
#include "tests/support/bits_run.h"
#include "tests/support/golden_file.h"
#include "tests/support/model_runner.h"

namespace tidemill::armt_golden_test {
namespace {

using testing::GoldenFile;
using testing::ModelRunner;

constexpr const char* kFolders[] = {"center", "gpt2",     "gpt2_wrap", "llama", "no_correction", "qwen2",
                                    "recall", "rmt_gpt2", "rmt_llama", "right", "short_segments"};
constexpr double kTolerance = 1e-5;  // relative; or 8 times what f32 costs the reference

std::string Fixture(const std::string& name) { return std::string(TIDEMILL_FIXTURES) + "/armt/" + name; }

testing::RunnerOptions Options(Isa isa, size_t threads = 2) {
  return {.isa = isa, .threads = threads, .f32 = true, .context = 1024};
}

// Every segment ends, the last one, too. Behind each: ended(segment).
std::vector<float> Score(ModelRunner& runner, SequenceState& state, std::span<const int32_t> ids, size_t chunk,
                         const std::function<void(size_t)>& ended = nullptr) {
  const MemoryRows memory(runner.model());
  std::vector<float> logits;
  size_t segment = 0;
  while (state.length() < ids.size()) {
    const size_t end = SegmentEnd(*runner.model().settings.armt, ids.size(), SegmentFirst(state));
    const auto part = ids.subspan(state.length(), std::min(chunk, end - state.length()));
    const bool ends = state.length() + part.size() == end;
    EXPECT_TRUE(state.Reserve(part.size() + memory.CountAround(state, ends)).ok());
    std::vector<StepSequence> step;
    AddTokens(&memory, {.state = &state, .tokens = part, .rows = Wanted::kAll}, ends, &step);
    EXPECT_TRUE(runner.executor().Run(
        step, [&](size_t, size_t, std::span<float> row) { logits.insert(logits.end(), row.begin(), row.end()); },
        nullptr));
    state.Commit(testing::KeysOf(part));
    if (ends && ended) ended(segment);
    segment += ends ? 1 : 0;
  }
  return logits;
}

std::vector<float> MemoryOf(SequenceState& state, size_t layer) {
  const auto& kv = static_cast<SegmentKvLayer&>(state.layer(layer));
  if (kv.memory() == nullptr) return {};
  std::vector<float> values(kv.segments().memory_bytes() / sizeof(float));
  std::memcpy(values.data(), kv.memory(), values.size() * sizeof(float));
  return values;
}

// |found - expected| / |expected|, over all elements.
double Distance(std::span<const float> expected, std::span<const float> found) {
  if (expected.size() != found.size() || expected.empty()) return HUGE_VAL;
  double distance = 0, length = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const auto e = static_cast<double>(expected[i]), f = static_cast<double>(found[i]);
    distance += (e - f) * (e - f);
    length += e * e;
  }
  return std::sqrt(distance / length);  // NaN where there is one
}

class Golden {
 public:
  explicit Golden(const std::string& folder) : file_(Fixture(folder), "input") {}

  size_t num_inputs() const { return file_.num_prompts(); }
  std::vector<int32_t> Ids(size_t input) const { return file_.Ids(input, "input_ids"); }
  const nlohmann::json& About(size_t input) const { return file_.json().at("inputs")[input]; }
  void Expect(size_t input, const std::string& name, std::span<const float> found) const {
    const double spread = About(input).at("spread").at(name), distance = Distance(file_.Tensor(input, name), found);
    EXPECT_LE(distance, std::max(kTolerance, 8 * spread)) << "input " << input << ", " << name;
  }
  // Of all layers, as names end: A and z, or the rows that RMT carries.
  void ExpectMemories(size_t input, const std::string& end, SequenceState& state) const {
    const size_t last = state.num_layers() - 1;
    for (size_t layer = 0; layer <= last; ++layer) {
      const SegmentShape& shape = static_cast<SegmentKvLayer&>(state.layer(layer)).segments();
      const std::vector<float> found = MemoryOf(state, layer);
      if (shape.front_rows != 0) {
        ASSERT_EQ(found.empty(), layer != last);
        if (layer == last) Expect(input, "memory" + end, found);
        continue;
      }
      const size_t in_a = shape.memory.features() * shape.memory.hidden;
      ASSERT_EQ(found.size(), shape.memory.elements()) << end;
      Expect(input, "A." + std::to_string(layer) + end, std::span(found).first(in_a));
      Expect(input, "z." + std::to_string(layer) + end, std::span(found).subspan(in_a));
    }
  }

 private:
  GoldenFile file_;
};

TEST(ArmtGolden, LogitsAndMemories_MatchTheReference) {
  for (const std::string folder : kFolders) {
    const Golden golden(folder);
    for (const Isa isa : testing::LevelsHere()) {
      ModelRunner runner(Fixture(folder), Options(isa));
      for (size_t input = 0; input < golden.num_inputs(); ++input) {
        SCOPED_TRACE(folder + " level " + std::string(IsaName(isa)));
        const std::string states = golden.About(input).at("states");
        const auto state = runner.NewState();
        const std::vector<float> logits = Score(runner, *state, golden.Ids(input), 1000, [&](size_t segment) {
          if (states == "all") golden.ExpectMemories(input, "." + std::to_string(segment), *state);
        });
        golden.Expect(input, "logits", logits);
        if (states != "none") golden.ExpectMemories(input, "", *state);
      }
    }
  }
}

// Logits, A and z of the first input, as they are kept for each numeric class (tests/fixtures/bits/README.md).
TEST(ArmtGolden, Bits_AreThoseThatAreKept) {
  for (const std::string folder : kFolders) {
    const Golden golden(folder);
    for (const testing::NumericClass c : testing::kNumericClasses) {
      const std::optional<Isa> isa = testing::BestLevelOfClass(c, DType::kF32);
      if (!isa) continue;
      ModelRunner runner(Fixture(folder), Options(*isa));
      const auto state = runner.NewState();
      testing::FnvHash logits, memories;
      const std::vector<float> found = Score(runner, *state, golden.Ids(0), 1000);
      logits.Add(std::as_bytes(std::span(found)));
      for (size_t layer = 0; layer < runner.model().layers.size(); ++layer) {
        const std::vector<float> memory = MemoryOf(*state, layer);
        memories.Add(std::as_bytes(std::span(memory)));
      }
      const std::string entry = folder + ", " + testing::ClassName(c);
      testing::ExpectStoredHash("armt", entry, "logits", logits.value());
      testing::ExpectStoredHash("armt", entry, "memories", memories.value());
    }
  }
}

// The last segment reads and does not end: greedy ids, with the logits that they follow from.
TEST(ArmtGolden, Answers_AreTheReferences) {
  for (const std::string folder : kFolders) {
    const Golden golden(folder);
    ModelRunner runner(Fixture(folder), Options(DetectIsa()));
    const ArmtSettings& armt = *runner.model().settings.armt;
    for (size_t input = 0; input < golden.num_inputs(); ++input) {
      SCOPED_TRACE(folder + " input " + std::to_string(input));
      const std::vector<int32_t> ids = golden.Ids(input), expected = golden.About(input).at("greedy_ids");
      size_t first = 0;  // of the last segment
      while (SegmentEnd(armt, ids.size(), first) < ids.size()) first = SegmentEnd(armt, ids.size(), first);
      const auto state = runner.NewState();
      if (armt.segment_alignment == SegmentAlignment::kLeft) {
        Score(runner, *state, std::span(ids).first(first), 1000);
      } else {  // the cuts are those of the whole text
        const MemoryRows memory(runner.model());
        for (size_t begin = 0; begin < first;) {
          const size_t end = SegmentEnd(armt, ids.size(), begin);
          const auto part = std::span(ids).subspan(begin, end - begin);
          ASSERT_TRUE(state->Reserve(part.size() + memory.CountAround(*state, true)).ok());
          std::vector<StepSequence> step;
          AddTokens(&memory, {.state = state.get(), .tokens = part}, true, &step);
          ASSERT_TRUE(runner.executor().Run(step, nullptr, nullptr));
          state->Commit(testing::KeysOf(part));
          begin = end;
        }
      }
      std::vector<float> logits = runner.Feed(*state, std::span(ids).subspan(first), 1000, true), steps = logits;
      std::vector<int32_t> greedy;
      while (greedy.size() < expected.size()) {
        const auto row = std::span(logits).last(runner.model().settings.vocab_size);
        greedy.push_back(static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin()));
        if (greedy.size() == expected.size()) break;
        logits = runner.Feed(*state, std::span(greedy).last(1), 1);
        steps.insert(steps.end(), logits.begin(), logits.end());
      }
      EXPECT_EQ(greedy, expected);
      golden.Expect(input, "step_logits", steps);
      EXPECT_EQ(SegmentFirst(*state), first);
    }
  }
}

TEST(ArmtGolden, ChunksAndThreads_ChangeNoBit) {
  for (const std::string folder : {"llama", "gpt2_wrap", "right", "rmt_gpt2"}) {
    const Golden golden(folder);
    const std::vector<int32_t> ids = golden.Ids(0);
    ModelRunner one(Fixture(folder), Options(DetectIsa(), 1)), three(Fixture(folder), Options(DetectIsa(), 3));
    const auto state = one.NewState();
    const std::vector<float> expected = Score(one, *state, ids, 1000);
    for (ModelRunner* runner : {&one, &three}) {
      for (const size_t chunk : {1, 2, 5, 1000}) {
        const auto other = runner->NewState();
        EXPECT_TRUE(testing::SameBits(expected, Score(*runner, *other, ids, chunk))) << folder << " chunk " << chunk;
        for (size_t layer = 0; layer < one.model().layers.size(); ++layer)
          EXPECT_TRUE(testing::SameBits(MemoryOf(*state, layer), MemoryOf(*other, layer)))
              << folder << " chunk " << chunk;
      }
    }
  }
}

}  // namespace
}  // namespace tidemill::armt_golden_test
