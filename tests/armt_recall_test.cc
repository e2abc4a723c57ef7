// A trained recurrent-memory model (tests/fixtures/armt/README.md, recall): facts from earlier segments, as the reference recalls them, in every
// order of cells.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "engine/segments.h"
#include "engine/wavefront.h"
#include "formats/safetensors.h"
#include "tests/fixtures_path.h"
#include "tests/support/changed_checkpoint.h"
#include "tests/support/model_folder.h"
#include "tests/support/model_runner.h"

namespace tidemill::armt_recall_test {
namespace {

using testing::ChangedCheckpoint;
using testing::ModelFolder;
using testing::ModelRunner;

constexpr size_t kSegment = 8;
constexpr size_t kFacts[] = {2, 3, 4, 6, 8, 12, 15, 24, 31}, kEach[] = {1, 2, 4};
#ifdef TIDEMILL_FEW_TEXTS  // of each cell of the table
constexpr size_t kTexts = 4;
#else
constexpr size_t kTexts = 64;
#endif
constexpr float kNearTie = 1e-3F;  // of logits; f32 is 2e-6 away

// questions.safetensors: ids, answers and gaps of one cell of the table.
struct Questions {
  std::vector<std::vector<int32_t>> texts, answers;
  std::vector<std::vector<float>> gaps;
};

template <typename T>
std::vector<std::vector<T>> RowsOf(const FileTensor& tensor) {
  std::vector<std::vector<T>> rows(tensor.rows, std::vector<T>(tensor.cols));
  for (size_t r = 0; r < tensor.rows; ++r) {
    for (size_t c = 0; c < tensor.cols; ++c) {
      if constexpr (std::is_same_v<T, float>) {
        std::memcpy(&rows[r][c], tensor.bytes.data() + (r * tensor.cols + c) * sizeof(float), sizeof(float));
      } else {
        int16_t id = 0;
        std::memcpy(&id, tensor.bytes.data() + (r * tensor.cols + c) * sizeof(id), sizeof(id));
        rows[r][c] = id;
      }
    }
  }
  return rows;
}

Questions Read(const SafetensorsFile& file, size_t facts, size_t each) {
  const std::string cell = "facts" + std::to_string(facts) + "x" + std::to_string(each);
  const FileTensor *ids = file.FindTensor(cell + ".input_ids"), *answers = file.FindTensor(cell + ".answers"),
                   *gaps = file.FindTensor(cell + ".gaps");
  EXPECT_NE(ids, nullptr);
  EXPECT_NE(answers, nullptr);
  EXPECT_NE(gaps, nullptr);
  return {RowsOf<int32_t>(*ids), RowsOf<int32_t>(*answers), RowsOf<float>(*gaps)};
}

class Recall {
 public:
  explicit Recall(ModelRunner& runner) : runner_(runner), memory_(runner.model()) {}

  // The best ids where a value is asked for, of texts whose segments but the last ran before.
  std::vector<int32_t> Ask(SequenceState& state, std::span<const int32_t> last, size_t asked) {
    const std::vector<float> logits = runner_.Feed(state, last, last.size());
    const size_t vocab = runner_.model().settings.vocab_size;
    std::vector<int32_t> best;
    for (size_t i = 0; i < asked; ++i) {
      const auto row = std::span(logits).subspan(2 * i * vocab, vocab);
      best.push_back(static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin()));
    }
    return best;
  }
  void FoldOneByOne(SequenceState& state, std::span<const int32_t> ids) {
    for (size_t first = 0; first < ids.size(); first += kSegment) {
      const auto part = ids.subspan(first, kSegment);
      ASSERT_TRUE(state.Reserve(part.size() + memory_.count()).ok());
      const StepSequence step[] = {{.state = &state, .tokens = part}, memory_.Behind(state, part.size())};
      ASSERT_TRUE(runner_.executor().Run(step, nullptr, nullptr));
      state.Commit(testing::KeysOf(part));
    }
  }
  void FoldInWaves(Wave& wave, SequenceState& state, std::span<const int32_t> ids) {
    ASSERT_TRUE(state.Reserve(kSegment + memory_.count()).ok() && state.ReserveKeys(ids.size()).ok());
    size_t first = 0;
    const auto next = [&](WavePiece* piece) {
      if (first == ids.size()) return false;
      piece->text = 0;
      piece->rows = {{.state = &state, .tokens = ids.subspan(first, kSegment)}, memory_.Behind(state, kSegment)};
      first += kSegment;
      return true;
    };
    ASSERT_TRUE(wave.Run({.next = next}, nullptr));
    state.Commit(testing::KeysOf(ids));
  }

 private:
  ModelRunner& runner_;
  MemoryRows memory_;
};

// What was found of the reference's answers, in all cells of the table.
struct Found {
  size_t answers = 0, near_ties = 0, equal = 0, right = 0;
};

// Segment after segment, or in the order of `fold`; each question's best ids beside the reference's.
Found AskAll(ModelRunner& runner, const std::function<void(Recall&, SequenceState&, std::span<const int32_t>)>& fold,
             const std::function<void(const std::string& where)>& differs) {
  const MappedFile mapped =
      std::move(MappedFile::Open(std::string(TIDEMILL_FIXTURES) + "/armt/recall/questions.safetensors")).value();
  const SafetensorsFile file = std::move(SafetensorsFile::Parse(mapped.bytes())).value();
  Recall recall(runner);
  Found all;
  for (const size_t facts : kFacts) {
    for (const size_t each : kEach) {
      const Questions questions = Read(file, facts, each);
      EXPECT_EQ(questions.texts.size(), 64U);
      size_t right = 0, asked = 0, equal = 0;
      for (size_t i = 0; i < kTexts; ++i) {
        const std::span<const int32_t> text = questions.texts[i], known = text.first(facts * kSegment),
                                       last = text.subspan(facts * kSegment);
        const std::vector<int32_t>& expected = questions.answers[i];
        const auto state = runner.NewState();
        fold(recall, *state, known);
        const std::vector<int32_t> found = recall.Ask(*state, last, expected.size());
        for (size_t q = 0; q < expected.size(); ++q) {
          ++asked;
          right += found[q] == last[2 * q + 1] ? 1 : 0;
          equal += found[q] == expected[q] ? 1 : 0;
          if (questions.gaps[i][q] < kNearTie) {
            ++all.near_ties;
          } else if (found[q] != expected[q]) {
            differs(std::to_string(facts) + " segments of " + std::to_string(each) + ", text " + std::to_string(i) +
                    ", question " + std::to_string(q));
          }
        }
      }
      std::printf("  %2zu segments of %zu facts: %zu of %zu right, %zu as the reference\n", facts, each, right, asked,
                  equal);
      all.answers += asked;
      all.right += right;
      all.equal += equal;
    }
  }
  std::printf("  %zu answers: %zu right, %zu as the reference, %zu near ties\n", all.answers, all.right, all.equal,
              all.near_ties);
  return all;
}

TEST(ArmtRecall, EveryAnswer_IsTheReferencesInEveryOrder) {
  ModelRunner runner(std::string(TIDEMILL_FIXTURES) + "/armt/recall", {.threads = 2, .f32 = true, .context = 1024});
  const size_t rows = kSegment + runner.model().segments.memory_rows();
  std::vector<std::unique_ptr<Wave>> waves;
  for (const WaveForm& form : {WaveForm{}, WaveForm{WaveOrder::kDiagonal, 3}, WaveForm{WaveOrder::kLayerMajor, 3},
                               WaveForm{WaveOrder::kTeams, 2, 1}})
    waves.push_back(CreateWave(runner.model(), runner.ctx(), rows, form).value());
  const Found found = AskAll(
      runner,
      [&](Recall& recall, SequenceState& state, std::span<const int32_t> known) {
        recall.FoldOneByOne(state, known);
        for (const auto& wave : waves) {
          const auto other = runner.NewState();
          recall.FoldInWaves(*wave, *other, known);
          ASSERT_EQ(state.Checkpoint().value(), other->Checkpoint().value());
        }
      },
      [](const std::string& where) { ADD_FAILURE() << where; });
  EXPECT_EQ(found.answers, kTexts * 96);
  EXPECT_EQ(found.equal, found.answers);
  EXPECT_EQ(found.near_ties, 0U);
}

// A and z rounded to BF16 behind each segment: half the bytes, and nearly the same answers.
TEST(ArmtRecall, MemoryInBf16_GivesNearlyAllOfThem) {
  ModelFolder folder;
  ChangedCheckpoint("armt/recall").Replace("\"d_mem\"", "\"memory_dtype\": \"bfloat16\", \"d_mem\"").WriteTo(folder);
  ModelRunner runner(folder.path(), {.threads = 2, .f32 = true, .context = 1024});
  EXPECT_EQ(runner.model().segments.shape.memory.dtype, DType::kBF16);
  const Found found = AskAll(
      runner,
      [](Recall& recall, SequenceState& state, std::span<const int32_t> known) { recall.FoldOneByOne(state, known); },
      [](const std::string& where) { std::printf("  another answer: %s\n", where.c_str()); });
  EXPECT_GE(found.equal, found.answers - (found.answers + 499) / 500);
}

}  // namespace
}  // namespace tidemill::armt_recall_test
