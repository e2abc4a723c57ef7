// A model's own draft head (MTP) against the goldens of tests/fixtures/families: the rows of a prompt, and the chain behind it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/testing/levels.h"
#include "kernels/testing/compare.h"
#include "tests/fixtures_path.h"
#include "tests/support/draft_pair.h"
#include "tests/support/golden_file.h"

namespace tidemill::mtp_golden_test {
namespace {

using testing::DraftPair;
using testing::GoldenFile;
using testing::KeysOf;
using testing::Outputs;
using testing::Rows;
using testing::RunnerOptions;

constexpr double kTolerance = 1e-4;  // as family_golden_test.cc
constexpr const char* kFamilies[] = {"qwen3_next_mtp", "qwen3_5", "qwen3_5_moe"};

std::string Folder(const std::string& family) { return std::string(TIDEMILL_FIXTURES) + "/families/" + family; }
std::string Gguf(const std::string& family) { return Folder("gguf/" + family + ".gguf"); }

int32_t Best(std::span<const float> row) {
  return static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

struct Drafted {
  std::vector<float> rows, steps;  // logits: of the prompt's rows, of the further draft steps
  std::vector<int32_t> ids;
};

// `num_ids` draft tokens behind the prompt and the id that the target says next. Both models read the prompt in chunks.
Drafted Draft(DraftPair& pair, std::span<const int32_t> prompt, size_t num_ids, size_t chunk) {
  const auto target_state = pair.target().NewState(), state = pair.NewHeadState();
  Outputs seen;
  for (size_t first = 0; first < prompt.size(); first += chunk) {
    const auto part = prompt.subspan(first, std::min(chunk, prompt.size() - first));
    const Outputs out = pair.RunTarget(*target_state, part);
    target_state->Commit(KeysOf(part));
    seen.logits.width = out.logits.width;
    seen.features.width = out.features.width;
    seen.logits.Add(out.logits.values);
    seen.features.Add(out.features.values);
  }
  std::vector<int32_t> fed(prompt.begin() + 1, prompt.end());
  fed.push_back(Best(seen.logits.row(prompt.size() - 1)));
  Drafted drafted;
  Outputs last;
  for (size_t first = 0; first < fed.size(); first += chunk) {
    const size_t count = std::min(chunk, fed.size() - first);
    const auto part = std::span(fed).subspan(first, count);
    last = pair.RunHead(*state, part, seen.features.view().Rows(first, count));
    state->Commit(KeysOf(part));
    drafted.rows.insert(drafted.rows.end(), last.logits.values.begin(), last.logits.values.end());
  }
  while (true) {
    drafted.ids.push_back(Best(last.logits.row(last.logits.count() - 1)));
    if (drafted.ids.size() == num_ids) return drafted;
    Rows own{.width = last.features.width};
    own.Add(last.features.row(last.features.count() - 1));
    last = pair.RunHead(*state, std::span(drafted.ids).last(1), own.view());
    state->Commit(KeysOf(std::span(drafted.ids).last(1)));
    drafted.steps.insert(drafted.steps.end(), last.logits.values.begin(), last.logits.values.end());
  }
}

void ExpectGolden(const std::string& family, const std::string& path, RunnerOptions options, size_t chunk) {
  SCOPED_TRACE(path + " level " + std::string(IsaName(options.isa)) + " chunk " + std::to_string(chunk) +
               (options.mapped ? " mapped" : " packed"));
  options.context = 128;
  options.f32 = true;
  const GoldenFile golden(Folder(family));
  DraftPair pair(path, "", options);
  const auto within = [](size_t) { return kTolerance; };
  ASSERT_EQ(golden.num_prompts(), 2U);
  for (size_t p = 0; p < golden.num_prompts(); ++p) {
    SCOPED_TRACE("prompt " + std::to_string(p));
    const std::vector<int32_t> ids = golden.Ids(p, "mtp_draft_ids"), greedy = golden.Ids(p, "greedy_ids");
    ASSERT_EQ(ids.size(), 5U);
    const Drafted drafted = Draft(pair, golden.Ids(p, "input_ids"), ids.size(), chunk);
    EXPECT_TRUE(testing::Within(golden.Tensor(p, "mtp_logits"), drafted.rows, within));
    EXPECT_TRUE(testing::Within(golden.Tensor(p, "mtp_draft_logits"), drafted.steps, within));
    EXPECT_EQ(drafted.ids, ids);
    size_t accepted = 0;
    while (accepted < ids.size() && drafted.ids[accepted] == greedy[accepted + 1]) ++accepted;
    EXPECT_EQ(accepted, golden.json().at("prompts")[p].at("mtp_num_accepted").get<size_t>());
  }
}

TEST(MtpGolden, EveryLevel_FolderAndGguf_DraftsTheOriginals) {
  for (const std::string family : kFamilies) {
    for (const Isa isa : testing::LevelsHere()) {
      for (const std::string& path : {Folder(family), Gguf(family)})
        ExpectGolden(family, path, {.isa = isa, .threads = 2}, 64);
    }
  }
}

TEST(MtpGolden, MappedAndInSmallChunks_DraftsTheOriginals) {
  for (const std::string family : kFamilies) {
    for (const std::string& path : {Folder(family), Gguf(family)}) ExpectGolden(family, path, {.mapped = true}, 3);
  }
}

TEST(MtpGguf, EveryHead_GivesTheBitsOfItsFolder) {
  for (const std::string family : kFamilies) {
    const std::vector<int32_t> prompt = GoldenFile(Folder(family)).Ids(0, "input_ids");
    for (const Isa isa : testing::LevelsHere()) {
      for (const bool mapped : {false, true}) {
        SCOPED_TRACE(family + " level " + std::string(IsaName(isa)) + (mapped ? " mapped" : " packed"));
        const RunnerOptions options{.isa = isa, .mapped = mapped, .context = 128};
        DraftPair folder(Folder(family), "", options), gguf(Gguf(family), "", options);
        const Drafted expected = Draft(folder, prompt, 5, 5), found = Draft(gguf, prompt, 5, 5);
        EXPECT_EQ(found.ids, expected.ids);
        EXPECT_EQ(found.rows, expected.rows);
        EXPECT_EQ(found.steps, expected.steps);
      }
    }
  }
}

}  // namespace
}  // namespace tidemill::mtp_golden_test
