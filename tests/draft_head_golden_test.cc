// Draft heads beside their target against what tests/fixtures/eagle has of them: a fixed tree at a time, of which the target takes up a path.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/testing/levels.h"
#include "formats/f8.h"
#include "kernels/testing/compare.h"
#include "tensor/half.h"
#include "tests/support/changed_checkpoint.h"
#include "tests/support/draft_pair.h"
#include "tests/support/eagle_golden.h"
#include "tests/support/model_runner.h"

namespace tidemill::draft_head_golden_test {
namespace {

using testing::DraftPair;
using testing::EagleGolden;
using testing::KeysOf;
using testing::Outputs;
using testing::Rows;
using testing::RunnerOptions;

size_t ArgMax(std::span<const float> row) {
  return static_cast<size_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

// Ids by their logits, the greatest first.
std::vector<size_t> Ranked(std::span<const float> row) {
  std::vector<size_t> ids(row.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::sort(ids.begin(), ids.end(), [&](size_t a, size_t b) { return row[a] > row[b]; });
  return ids;
}

void ExpectNear(const std::vector<float>& expected, const std::vector<float>& found, const std::string& what) {
  EXPECT_TRUE(testing::Within(expected, found, [](size_t) { return EagleGolden::kTolerance; })) << what;
}

struct Drafted {
  std::vector<int32_t> ids;
  Outputs nodes;
};

// The tree behind `last`, the head's last row: level by level, each a step of all nodes so far, whose rows are written again.
Drafted DraftTree(DraftPair& pair, SequenceState& state, std::span<const int32_t> parents, const Outputs& last) {
  Drafted drafted;
  std::vector<size_t> children(parents.size() + 1);
  Rows read{.width = pair.head().settings.hidden_size};
  while (true) {
    for (size_t i = drafted.ids.size(); i < parents.size(); ++i) {
      const bool first = parents[i] < 0;
      const auto parent = static_cast<size_t>(parents[i] + 1);
      if (!first && parent > drafted.nodes.features.values.size() / read.width) break;  // it has not run yet
      const Rows& logits = first ? last.logits : drafted.nodes.logits;
      const Rows& features = first ? last.features : drafted.nodes.features;
      const size_t row = first ? logits.count() - 1 : parent - 1;
      drafted.ids.push_back(pair.TargetId(Ranked(logits.row(row))[children[parent]++]));
      read.Add(features.row(row));
    }
    const bool all = drafted.ids.size() == parents.size();
    drafted.nodes = pair.RunHead(state, drafted.ids, read.view(), parents.first(drafted.ids.size()));
    if (all) return drafted;
  }
}

void ExpectGolden(const std::string& name, const RunnerOptions& options, size_t chunk) {
  SCOPED_TRACE(name + " level " + std::string(IsaName(options.isa)) + " chunk " + std::to_string(chunk) +
               (options.mapped ? " mapped" : " packed"));
  const EagleGolden golden(name);
  DraftPair pair(EagleGolden::Folder("target"), EagleGolden::Folder(name), options);
  const std::vector<int32_t> parents = golden.Parents();
  std::vector<int32_t> verified_parents = {-1};  // the last sampled token, then the nodes
  for (const int32_t parent : parents) verified_parents.push_back(parent + 1);
  for (size_t p = 0; p < golden.num_prompts(); ++p) {
    SCOPED_TRACE("prompt " + std::to_string(p));
    const std::vector<int32_t> prompt = golden.Ids(p, "input_ids");
    const auto target_state = pair.target().NewState(), head_state = pair.NewHeadState();
    Outputs seen = pair.RunTarget(*target_state, prompt);
    target_state->Commit(KeysOf(prompt));
    std::vector<int32_t> fed(prompt.begin() + 1, prompt.end()), greedy;
    for (size_t step = 0; step < golden.num_steps(p); ++step) {
      const std::string at = "step" + std::to_string(step);
      const auto pending = static_cast<int32_t>(ArgMax(seen.logits.row(seen.logits.count() - 1)));
      greedy.push_back(pending);
      fed.push_back(pending);
      ASSERT_EQ(fed.size(), seen.features.count());
      Outputs context{.logits = {.width = pair.head().head_or_tied().rows()}};
      Outputs last;
      for (size_t first = 0; first < fed.size(); first += chunk) {
        const size_t count = std::min(chunk, fed.size() - first);
        const auto part = std::span(fed).subspan(first, count);
        last = pair.RunHead(*head_state, part, seen.features.view().Rows(first, count));
        context.logits.Add(last.logits.values);
        head_state->Commit(KeysOf(part));
      }
      ExpectNear(golden.Tensor(p, at + ".fed_logits"), context.logits.values, at + " rows of the context");

      const Drafted drafted = DraftTree(pair, *head_state, parents, last);
      ASSERT_EQ(drafted.ids, golden.Nodes(p, step, "node_ids")) << at;
      ExpectNear(golden.Tensor(p, at + ".node_logits"), drafted.nodes.logits.values, at + " logits of the nodes");
      ExpectNear(golden.Tensor(p, at + ".node_hidden"), drafted.nodes.features.values, at + " features of the nodes");

      std::vector<int32_t> checked = {pending};
      checked.insert(checked.end(), drafted.ids.begin(), drafted.ids.end());
      const Outputs answers = pair.RunTarget(*target_state, checked, verified_parents);
      std::vector<uint32_t> path = {0};
      std::vector<int32_t> accepted;
      while (true) {
        const auto next = static_cast<int32_t>(ArgMax(answers.logits.row(path.back())));
        size_t node = 1;
        while (node < checked.size() &&
               !(verified_parents[node] == static_cast<int32_t>(path.back()) && checked[node] == next))
          ++node;
        if (node == checked.size()) break;
        path.push_back(static_cast<uint32_t>(node));
        accepted.push_back(static_cast<int32_t>(node) - 1);
        greedy.push_back(next);
      }
      EXPECT_EQ(accepted, golden.Nodes(p, step, "accepted_nodes")) << at;
      seen = {.logits = {.width = answers.logits.width}, .features = {.width = answers.features.width}};
      fed.clear();
      std::vector<int32_t> taken;
      for (const uint32_t row : path) {
        seen.logits.Add(answers.logits.row(row));
        seen.features.Add(answers.features.row(row));
        taken.push_back(checked[row]);
      }
      fed.assign(taken.begin() + 1, taken.end());
      target_state->CommitPath(path, KeysOf(taken));
    }
    greedy.push_back(static_cast<int32_t>(ArgMax(seen.logits.row(seen.logits.count() - 1))));
    EXPECT_EQ(greedy, golden.Ids(p, "greedy_ids"));
  }
}

constexpr const char* kHeads[] = {"eagle1", "eagle3"};

TEST(DraftHeadGolden, EveryLevel_DraftsTheOriginalsTrees) {
  for (const char* head : kHeads) {
    for (const Isa isa : testing::LevelsHere()) {
      ExpectGolden(head, {.isa = isa, .threads = 2, .f32 = true, .context = 64, .max_rows = 64}, 64);
    }
  }
}

TEST(DraftHeadGolden, MappedAndInSmallChunks_DraftsTheOriginalsTrees) {
  for (const char* head : kHeads) ExpectGolden(head, {.mapped = true, .context = 64, .max_rows = 64}, 3);
}

// A type of weights that is narrower than F32.
struct Narrow {
  const char* type;
  size_t bytes;
  std::function<uint16_t(float)> code;
  std::function<float(uint16_t)> number;
};

// The code of the nearest number, of 256.
Narrow Float8(const char* type, uint16_t (*half)(uint8_t)) {
  const auto number = [half](uint16_t code) { return HalfToFloat(half(static_cast<uint8_t>(code))); };
  const auto code = [number](float value) {
    uint16_t best = 0;
    for (uint16_t i = 1; i < 256; ++i) {
      if (std::abs(number(i) - value) < std::abs(number(best) - value)) best = i;
    }
    return best;
  };
  return {type, 1, code, number};
}

std::string Codes(const std::string& floats, const Narrow& narrow) {
  std::string out;
  for (size_t i = 0; i < floats.size(); i += sizeof(float)) {
    float value = 0;
    std::memcpy(&value, floats.data() + i, sizeof value);
    const uint16_t code = narrow.code(value);
    out.append(reinterpret_cast<const char*>(&code), narrow.bytes);  // little-endian
  }
  return out;
}

std::string Numbers(const std::string& codes, const Narrow& narrow) {
  std::string out;
  for (size_t i = 0; i < codes.size(); i += narrow.bytes) {
    uint16_t code = 0;
    std::memcpy(&code, codes.data() + i, narrow.bytes);
    const float value = narrow.number(code);
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  return out;
}

// Heads whose weights have fewer bits than F32, as they are published or once they are converted, beside F32 ones with the same numbers,
// which the originals' trees are compared with above: the same bits. And mapped the same as packed, as both are computed by default.
TEST(DraftHead, NarrowWeights_AreTheNumbersThatTheySay) {
  const Narrow kinds[] = {{"F16", 2, FloatToHalf, HalfToFloat},
                          {"BF16", 2, FloatToBFloat16, BFloat16ToFloat},
                          Float8("F8_E4M3", F8E4M3ToHalf),
                          Float8("F8_E5M2", F8E5M2ToHalf)};
  const std::vector<int32_t> prompt = {7, 1, 44, 90, 3, 8};
  for (const std::string name : kHeads) {
    for (const Narrow& narrow : kinds) {
      SCOPED_TRACE(name + ", " + narrow.type);
      testing::ModelFolder narrow_folder, wide_folder;
      const auto codes = [&](const std::string& floats) { return Codes(floats, narrow); };
      testing::ChangedCheckpoint("eagle/" + name).Convert(narrow.type, codes).WriteTo(narrow_folder);
      testing::ChangedCheckpoint("eagle/" + name)
          .Convert("F32", [&](const std::string& floats) { return Numbers(codes(floats), narrow); })
          .WriteTo(wide_folder);
      const auto logits = [&](const std::string& folder, bool f32, bool mapped) {
        DraftPair pair(EagleGolden::Folder("target"), folder,
                       {.threads = 2, .f32 = f32, .mapped = mapped, .context = 64, .max_rows = 64});
        const auto target_state = pair.target().NewState(), state = pair.NewHeadState();
        const Outputs seen = pair.RunTarget(*target_state, prompt);
        Outputs out = pair.RunHead(*state, prompt, seen.features.view());
        out.logits.Add(out.features.values);
        return out.logits.values;
      };
      const auto found = logits(narrow_folder.path(), true, false);
      EXPECT_EQ(found, logits(wide_folder.path(), true, false));
      EXPECT_NE(found, logits(EagleGolden::Folder(name), true, false)) << "rounding shows";
      EXPECT_EQ(logits(narrow_folder.path(), false, false), logits(narrow_folder.path(), false, true));
    }
  }
}

// In one step: rows of a prompt with the target's features, a row with the head's own, and another prompt's.
TEST(DraftHead, RowsWithBatchMatesAndInChunks_HaveTheSameBits) {
  for (const std::string name : kHeads) {
    SCOPED_TRACE(name);
    DraftPair pair(EagleGolden::Folder("target"), EagleGolden::Folder(name),
                   {.threads = 2, .context = 64, .max_rows = 64});
    const std::vector<int32_t> ids = {7, 1, 44, 90, 3, 8}, next = {12};
    const auto target_state = pair.target().NewState();
    const Outputs seen = pair.RunTarget(*target_state, ids);
    const ConstMatrix<float> features = seen.features.view();

    const auto whole = pair.NewHeadState(), chunks = pair.NewHeadState(), other = pair.NewHeadState();
    const Outputs at_once = pair.RunHead(*whole, ids, features);
    whole->Commit(KeysOf(ids));
    Rows own{.width = pair.head().settings.hidden_size};
    own.Add(at_once.features.row(5));
    const Outputs then = pair.RunHead(*whole, next, own.view());

    Rows logits{.width = at_once.logits.width};
    for (const auto& [first, count] : {std::pair<size_t, size_t>{0, 1}, {1, 3}, {4, 2}}) {
      const auto part = std::span(ids).subspan(first, count);
      logits.Add(pair.RunHead(*chunks, part, features.Rows(first, count)).logits.values);
      chunks->Commit(KeysOf(part));
    }
    EXPECT_EQ(logits.values, at_once.logits.values);

    ASSERT_TRUE(chunks->Reserve(1).ok() && other->Reserve(ids.size()).ok());
    const StepSequence both[] = {{.state = other.get(), .tokens = ids, .rows = Wanted::kAll, .features = features},
                                 {.state = chunks.get(), .tokens = next, .rows = Wanted::kAll, .features = own.view()}};
    Rows together{.width = at_once.logits.width};
    EXPECT_TRUE(pair.executor().Run(
        both, [&](size_t, size_t, std::span<float> row) { together.Add(row); }, nullptr));
    Rows expected = at_once.logits;
    expected.Add(then.logits.values);
    EXPECT_EQ(together.values, expected.values);
  }
}

}  // namespace
}  // namespace tidemill::draft_head_golden_test
