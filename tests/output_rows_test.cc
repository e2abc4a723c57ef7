// Rows whose result nobody reads: behind the last layer's keys and values they are not computed, and what is read has the same bits.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/cell_order.h"
#include "engine/segments.h"
#include "kernels/testing/compare.h"
#include "tests/fixtures_path.h"
#include "tests/support/any_order.h"
#include "tests/support/families.h"
#include "tests/support/model_runner.h"

namespace tidemill::output_rows_test {
namespace {

using testing::KeysOf;
using testing::ModelRunner;

std::string Fixture(const std::string& name) { return std::string(TIDEMILL_FIXTURES) + "/" + name; }

std::vector<int32_t> Ids(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) id = static_cast<int32_t>(3 + random() % 9);
  return ids;
}

// A sequence of a step: so many tokens behind `before` ones, and which rows want logits.
struct Part {
  size_t tokens;
  Wanted rows = Wanted::kNothing;
  size_t num_last = 1;
  size_t before = 2;

  size_t wanted() const {
    return rows == Wanted::kNothing ? 0 : rows == Wanted::kAll ? tokens : std::min(tokens, num_last);
  }
};

struct Outcome {
  std::map<std::pair<size_t, size_t>, std::vector<float>> logits;  // by sequence and token
  std::vector<std::vector<std::byte>> states;
  uint64_t product_rows = 0, attention_rows = 0;
};

// One step; `all`: every row wants logits.
Outcome RunStep(ModelRunner& runner, const std::vector<Part>& parts, bool all, CellOrder& order) {
  std::vector<std::unique_ptr<SequenceState>> states;
  std::vector<std::vector<int32_t>> ids;
  std::vector<StepSequence> step;
  for (size_t i = 0; i < parts.size(); ++i) {
    ids.push_back(Ids(parts[i].before + parts[i].tokens, i));
    states.push_back(runner.NewState());
    (void)runner.Feed(*states[i], std::span(ids[i]).first(parts[i].before), 4);
    EXPECT_TRUE(states[i]->Reserve(parts[i].tokens).ok());
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    step.push_back({.state = states[i].get(),
                    .tokens = std::span(ids[i]).subspan(parts[i].before),
                    .rows = all ? Wanted::kAll : parts[i].rows,
                    .num_last = parts[i].num_last});
  }
  Outcome outcome;
  const StepCounts before = runner.executor().counts();
  EXPECT_TRUE(runner.executor().Run(
      step,
      [&](size_t sequence, size_t token, std::span<float> row) {
        outcome.logits[{sequence, token}] = {row.begin(), row.end()};
      },
      nullptr, order));
  outcome.product_rows = runner.executor().counts().product_rows - before.product_rows;
  outcome.attention_rows = runner.executor().counts().attention_rows - before.attention_rows;
  for (size_t i = 0; i < parts.size(); ++i) {
    states[i]->Commit(KeysOf(std::span(ids[i]).subspan(parts[i].before)));
    outcome.states.push_back(states[i]->Checkpoint().value());
  }
  return outcome;
}

size_t NumProducts(const DecoderLayer& layer) {
  size_t count = 0;
  layer.ForEachWeight([&count](const WeightUse& use) { count += use.expert == 0 ? 1U : 0U; });
  return count;
}

void ExpectWhatIsRead(const std::vector<Part>& parts, const Outcome& all, const Outcome& found,
                      const std::string& where) {
  EXPECT_EQ(all.states, found.states) << where;
  size_t wanted = 0;
  for (const Part& part : parts) wanted += part.wanted();
  EXPECT_EQ(found.logits.size(), wanted) << where;
  for (const auto& [at, row] : found.logits) {
    EXPECT_TRUE(testing::SameBits(row, all.logits.at(at)))
        << where << ", sequence " << at.first << ", token " << at.second;
  }
}

// Whatever the family remembers in: what is read, and the states, are as if every row were.
TEST(OutputRows, WhatIsRead_HasTheBitsOfAllRows) {
  for (const char* family : testing::kFamilies) {
    ModelRunner runner(Fixture(std::string("families/") + family), {.threads = 2, .context = 64, .max_rows = 80});
    std::mt19937_64 random(11);
    size_t fewer = 0;
    for (size_t mix = 0; mix < 24; ++mix) {
      std::vector<Part> parts(1 + random() % 4);
      for (Part& part : parts) {
        part = {.tokens = 1 + random() % (mix % 2 == 0 ? 20 : 5),
                .rows = static_cast<Wanted>(random() % 3),
                .num_last = 1 + random() % 3,
                .before = random() % 4};
      }
      SequentialOrder sequential;
      testing::AnyOrder any(mix % 3 == 0, mix);
      const Outcome all = RunStep(runner, parts, true, sequential);
      const Outcome found = RunStep(runner, parts, false, mix % 2 == 0 ? static_cast<CellOrder&>(sequential) : any);
      ExpectWhatIsRead(parts, all, found, std::string(family) + ", mix " + std::to_string(mix));
      EXPECT_LE(found.product_rows, all.product_rows);
      fewer += found.product_rows < all.product_rows ? 1 : 0;
    }
    EXPECT_GT(fewer, 4U) << family;
    if (HasFailure()) return;
  }
}

// Of the last layer's seven products two are of all rows.
TEST(OutputRows, LastLayer_ComputesKeysAndValuesOfAllRowsAndTheRestOfThoseThatAreRead) {
  ModelRunner runner(Fixture("families/llama3_rope"), {.threads = 2, .context = 128, .max_rows = 128});
  const size_t layers = runner.model().layers.size();
  ASSERT_EQ(NumProducts(runner.model().layers.back()), 7U);
  struct Case {
    std::vector<Part> parts;
    size_t outputs;
  };
  const size_t apart = StepRows::kFewestApart;
  const Case cases[] = {
      {{{30}}, 0},
      {{{30, Wanted::kLast}}, 1},
      {{{30, Wanted::kLast, 4}}, 4},
      {{{30, Wanted::kAll}}, 30},
      {{{1, Wanted::kLast}, {1, Wanted::kLast}, {1, Wanted::kAll}}, 3},
      {{{30}, {1, Wanted::kLast}, {1, Wanted::kLast}}, 2},
      {{{30, Wanted::kLast}, {30, Wanted::kLast}}, 2},
      {{{5, Wanted::kLast}, {apart, Wanted::kLast}}, 1 + apart},  // a second product would read the weights again
      {{{5, Wanted::kLast}, {apart + 1, Wanted::kLast}}, 2},
      {{{5, Wanted::kLast}, {7}, {4}, {3, Wanted::kLast}}, 1 + 14},
      {{{5, Wanted::kLast}, {7}, {14}, {3, Wanted::kLast}}, 2},
      {{{5}, {4}, {3, Wanted::kLast, 2}, {20}}, 2},
  };
  for (const Case& c : cases) {
    size_t rows = 0;
    for (const Part& part : c.parts) rows += part.tokens;
    SequentialOrder order;
    const Outcome all = RunStep(runner, c.parts, true, order), found = RunStep(runner, c.parts, false, order);
    const std::string where = std::to_string(c.parts.size()) + " sequences, the first of " +
                              std::to_string(c.parts[0].tokens) + ", " + std::to_string(c.outputs) + " outputs";
    ExpectWhatIsRead(c.parts, all, found, where);
    EXPECT_EQ(all.product_rows, 7 * layers * rows) << where;
    EXPECT_EQ(found.product_rows, 7 * (layers - 1) * rows + 2 * rows + 5 * c.outputs) << where;
    EXPECT_EQ(found.attention_rows, (layers - 1) * rows + c.outputs) << where;
  }
}

// What predictions count is what runs: a weight says whether only outputs go through it in the last layer.
TEST(OutputRows, WeightsOfOutputs_AreThoseThatOutputsAloneGoThrough) {
  size_t families = 0;
  for (const char* family : testing::kFamilies) {
    ModelRunner runner(Fixture(std::string("families/") + family), {.context = 64, .max_rows = 64});
    const std::vector<DecoderLayer>& layers = runner.model().layers;
    size_t of_all = runner.model().project_in.present() ? 1 : 0, of_outputs = 0, experts = 0;
    for (const DecoderLayer& layer : layers) {
      layer.ForEachWeight([&](const WeightUse& use) {
        (&layer == &layers.back() && use.of_outputs ? of_outputs : of_all) += 1;
        experts = std::max(experts, use.experts);
      });
    }
    if (experts > 1) continue;  // rows choose which of them run
    ++families;
    SequentialOrder order;
    EXPECT_EQ(RunStep(runner, {{20}}, false, order).product_rows, 20 * of_all) << family;
    EXPECT_EQ(RunStep(runner, {{20, Wanted::kLast}}, false, order).product_rows, 20 * of_all + of_outputs) << family;
    EXPECT_EQ(RunStep(runner, {{20}}, true, order).product_rows, 20 * (of_all + of_outputs)) << family;
  }
  EXPECT_GT(families, 8U);
}

// Features of a draft head are the residual stream of all rows, whatever they want.
TEST(OutputRows, FeaturesBehindTheLastLayer_AreThoseOfAllRows) {
  ModelRunner runner(Fixture("families/llama3_rope"), {.context = 64, .max_rows = 64});
  const size_t layers = runner.model().layers.size(), hidden = runner.model().settings.hidden_size;
  const std::vector<size_t> taps = {1, layers, layers + 1};
  std::vector<float> features[2];
  for (const bool all : {false, true}) {
    std::vector<float>& out = features[all ? 1 : 0];
    out.resize(40 * taps.size() * hidden);
    const StepFeatures taken{.taps = taps, .out = {out.data(), 40, taps.size() * hidden}};
    TappedOrder order(&taken);
    (void)RunStep(runner, {{30, Wanted::kLast}, {10}}, all, order);
  }
  EXPECT_TRUE(testing::SameBits(features[0], features[1]));
}

// An early exit's last layer is the last one that runs.
TEST(OutputRows, EarlyExit_ComputesWhatIsReadOfItsLastLayer) {
  ModelRunner runner(Fixture("families/llama3_rope"), {.context = 64, .max_rows = 64});
  const std::vector<Part> parts = {{.tokens = 20, .rows = Wanted::kLast, .before = 0}};
  SequentialOrder first(1);
  const Outcome all = RunStep(runner, parts, true, first), found = RunStep(runner, parts, false, first);
  EXPECT_TRUE(testing::SameBits(all.logits.at({0, 19}), found.logits.at({0, 19})));
  EXPECT_EQ(found.product_rows, 2 * 20 + 5U);
}

// A segment of a prompt: of the last layer the memory rows alone go through the rest, and write the memory. What follows reads the same.
TEST(OutputRows, PrefixSegment_ComputesItsMemoryRowsOfTheLastLayer) {
  ModelRunner runner(Fixture("armt/llama"), {.context = 256, .max_rows = 64});
  const LanguageModel& model = runner.model();
  const MemoryRows memory(model);
  const size_t layers = model.layers.size(), size = model.settings.armt->segment_size, rows = size + memory.count();
  ASSERT_EQ(NumProducts(model.layers.back()), 11U);  // with one of the read and three of the write
  std::vector<std::byte> states[2];
  for (const bool all : {false, true}) {
    const auto state = runner.NewState();
    for (size_t segment = 0; segment < 3; ++segment) {
      const std::vector<int32_t> ids = Ids(size, segment);
      ASSERT_TRUE(state->Reserve(rows).ok());
      const StepSequence step[] = {{.state = state.get(), .tokens = ids, .rows = all ? Wanted::kAll : Wanted::kNothing},
                                   memory.Behind(*state, size)};
      const uint64_t before = runner.executor().counts().product_rows;
      ASSERT_TRUE(runner.executor().Run(
          step, [](size_t, size_t, std::span<float>) {}, nullptr));
      state->Commit(KeysOf(ids));
      const size_t read = segment == 0 ? 0 : layers * rows, write = 3 * layers * memory.count();
      const size_t last = all ? 7 * rows : 2 * rows + 5 * memory.count();
      EXPECT_EQ(runner.executor().counts().product_rows - before, read + write + 7 * (layers - 1) * rows + last);
    }
    states[all ? 1 : 0] = state->Checkpoint().value();
  }
  EXPECT_EQ(states[0], states[1]);
}

}  // namespace
}  // namespace tidemill::output_rows_test
