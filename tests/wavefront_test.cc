// Texts through the layers in pieces, in every order that there is: the bits are those of piece after piece.
//
// By hand: TIDEMILL_MIXES=1000 for so many mixes, TIDEMILL_INTERRUPTS=1000, TIDEMILL_SEED for other ones.
#include "engine/wavefront.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <new>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/segments.h"
#include "kernels/testing/compare.h"
#include "tests/fixtures_path.h"
#include "tests/support/count_by_hand.h"
#include "tests/support/model_runner.h"

namespace tidemill::wavefront_test {
namespace {

using testing::KeysOf;
using testing::ModelRunner;

std::string Fixture(const std::string& name) { return std::string(TIDEMILL_FIXTURES) + "/" + name; }

testing::RunnerOptions Options(size_t threads = 2) {
  return {.threads = threads, .kv_dtype = DType::kF16, .context = 1024, .max_rows = 64};
}

std::vector<int32_t> Ids(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) id = static_cast<int32_t>(3 + random() % 90);
  return ids;
}

// Some texts, whose pieces come in any mix. Of a model with segments these are pieces, else chunks of `chunk` tokens.
class Texts {
 public:
  Texts(ModelRunner& runner, const std::vector<size_t>& lengths, size_t chunk = 5) : runner_(runner), chunk_(chunk) {
    if (model().segments.present()) memory_.emplace(model());
    for (size_t i = 0; i < lengths.size(); ++i)
      texts_.push_back({.ids = Ids(lengths[i], 7 * i + lengths[i]), .state = runner.NewState()});
  }

  void WantNothing() { wanted_ = Wanted::kNothing; }  // states alone
  const LanguageModel& model() const { return runner_.model(); }
  size_t num_pieces() const {
    size_t count = 0;
    for (const Text& text : texts_) {
      for (size_t first = 0; first < text.ids.size(); ++count) first = EndOf(text, first);
    }
    return count;
  }
  size_t piece_rows() const { return memory_ ? model().settings.armt->segment_size + memory_->count() : chunk_; }

  // Piece after piece, a step each.
  void RunOneByOne() {
    Begin();
    WavePiece piece;
    while (Next(&piece)) {
      const std::vector<StepSequence> rows = piece.rows;
      const size_t text = piece.text;
      EXPECT_TRUE(runner_.executor().Run(
          rows, [&](size_t, size_t, std::span<float> values) { Take(text, values); }, nullptr));
      if (memory_) Commit(texts_[text], rows.front().tokens);
      piece.rows.clear();
    }
    if (!memory_) CommitAll();
  }
  template <typename Wave>
  bool Run(Wave& wave, const std::atomic<bool>* interrupt = nullptr, uint64_t seed = 0,
           size_t pieces_before_no_memory = SIZE_MAX) {
    Begin();
    std::atomic<size_t> taken{0};
    random_.seed(seed);
    const WaveHooks hooks{
        .next =
            [&](WavePiece* piece) {
              if (taken++ == pieces_before_no_memory) throw std::bad_alloc();
              return Next(piece);
            },
        .sink = [this](const WavePiece& piece, size_t, size_t, std::span<float> values) { Take(piece.text, values); },
        .passed = passed_};
    if (!wave.Run(hooks, interrupt)) return false;
    CommitAll();
    return true;
  }

  // Logits of every token, and what the states have come to.
  void ExpectSame(Texts& other, const std::string& where) {
    for (size_t i = 0; i < texts_.size(); ++i) {
      EXPECT_TRUE(testing::SameBits(texts_[i].logits, other.texts_[i].logits)) << where << ", text " << i;
      EXPECT_EQ(texts_[i].state->Checkpoint().value(), other.texts_[i].state->Checkpoint().value())
          << where << ", text " << i;
    }
  }
  SequenceState& state(size_t text) { return *texts_[text].state; }
  void set_passed(std::function<void(const WavePiece& piece, size_t layer)> passed) { passed_ = std::move(passed); }

 private:
  struct Text {
    std::vector<int32_t> ids;
    std::unique_ptr<SequenceState> state;
    size_t given = 0;
    std::vector<float> logits = {};
  };

  size_t EndOf(const Text& text, size_t first) const {
    return memory_ ? SegmentEnd(*model().settings.armt, text.ids.size(), first)
                   : std::min(text.ids.size(), first + chunk_);
  }
  void Begin() {
    for (Text& text : texts_) {
      text.given = 0;
      text.logits.clear();
      EXPECT_TRUE(text.state->Reserve(memory_ ? piece_rows() : text.ids.size()).ok());
    }
  }
  // Of any text that has one left.
  bool Next(WavePiece* piece) {
    std::vector<size_t> left;
    for (size_t i = 0; i < texts_.size(); ++i) {
      if (texts_[i].given < texts_[i].ids.size()) left.push_back(i);
    }
    if (left.empty()) return false;
    piece->text = left[random_() % left.size()];
    Text& text = texts_[piece->text];
    const size_t end = EndOf(text, text.given);
    const auto tokens = std::span(text.ids).subspan(text.given, end - text.given);
    piece->rows.push_back(
        {.state = text.state.get(), .tokens = tokens, .rows = wanted_, .slot = memory_ ? 0 : text.given});
    if (memory_) piece->rows.push_back(memory_->Behind(*text.state, tokens.size()));
    text.given = end;
    return true;
  }
  void Take(size_t text, std::span<float> values) {
    std::vector<float>& logits = texts_[text].logits;
    logits.insert(logits.end(), values.begin(), values.end());
  }
  void Commit(Text& text, std::span<const int32_t> tokens) {
    text.state->Commit(KeysOf(tokens));
    const bool more = text.given < text.ids.size();
    EXPECT_TRUE(!more || text.state->Reserve(piece_rows()).ok());
  }
  void CommitAll() {
    for (Text& text : texts_) text.state->Commit(KeysOf(text.ids));
  }

  ModelRunner& runner_;
  size_t chunk_;
  Wanted wanted_ = Wanted::kAll;
  std::optional<MemoryRows> memory_;
  std::vector<Text> texts_;
  std::function<void(const WavePiece& piece, size_t layer)> passed_;
  std::mt19937_64 random_;
};

std::unique_ptr<GroupedWave> Grouped(ModelRunner& runner, const Texts& texts, size_t in_flight, WaveOrder order) {
  return GroupedWave::Create(runner.model(), runner.ctx(), texts.piece_rows(), in_flight, order).value();
}

// A recurrent-memory model, a transformer and one with linear attention.
const char* const kModels[] = {"armt/llama", "armt/gpt2", "families/llama3_rope", "families/qwen3_5_text_ratio3"};

TEST(Wavefront, EveryOrder_GivesTheBitsOfPieceAfterPiece) {
  for (const std::string model : kModels) {
    ModelRunner runner(Fixture(model), Options());
    for (const std::vector<size_t>& lengths : {std::vector<size_t>{3}, {7}, {80}, {61, 7, 22}}) {
      Texts alone(runner, lengths);
      alone.RunOneByOne();
      for (const WaveOrder order : {WaveOrder::kSequential, WaveOrder::kDiagonal, WaveOrder::kLayerMajor}) {
        for (const size_t in_flight : {1, 2, 3, 8}) {
          Texts texts(runner, lengths);
          const auto wave = Grouped(runner, texts, in_flight, order);
          ASSERT_TRUE(texts.Run(*wave, nullptr, in_flight));
          texts.ExpectSame(alone, model + ", " + WaveFormName({.order = order, .in_flight = in_flight}) +
                                      ", first text " + std::to_string(lengths[0]));
          EXPECT_EQ(wave->cells(), texts.num_pieces() * runner.model().layers.size());
        }
      }
      for (const size_t teams : {1, 2, 3}) {
        Texts texts(runner, lengths);
        const auto wave =
            TeamWave::Create(runner.model(), DetectIsa(), texts.piece_rows(), teams, teams == 2 ? 2 : 1).value();
        ASSERT_TRUE(texts.Run(*wave, nullptr, teams));
        texts.ExpectSame(alone,
                         model + ", teams " + std::to_string(teams) + ", first text " + std::to_string(lengths[0]));
      }
      if (HasFailure()) return;
    }
  }
}

TEST(Wavefront, Created_RunsItsFormInTheBytesThatAreSaid) {
  for (const std::string model : kModels) {
    ModelRunner runner(Fixture(model), Options());
    Texts alone(runner, {61, 7, 22});
    alone.RunOneByOne();
    for (const WaveForm& form : {WaveForm(), WaveForm{WaveOrder::kDiagonal, 3, 0},
                                 WaveForm{WaveOrder::kDiagonal, 20, 0}, WaveForm{WaveOrder::kLayerMajor, 4, 0},
                                 WaveForm{WaveOrder::kTeams, 3, 1}, WaveForm{WaveOrder::kTeams, 2, 2}}) {
      const std::string where = model + ", " + WaveFormName(form);
      Texts texts(runner, {61, 7, 22});
      const auto wave = CreateWave(runner.model(), runner.ctx(), texts.piece_rows(), form).value();
      EXPECT_EQ(wave->work_bytes(), WaveBytes(runner.model(), DetectIsa(), texts.piece_rows(), form)) << where;
      ASSERT_TRUE(texts.Run(*wave));
      texts.ExpectSame(alone, where);
    }
  }
}

// Whichever thread lacks it: a team's thread passes nothing on by itself.
TEST(Wavefront, WithoutMemory_Throws) {
  ModelRunner runner(Fixture("armt/llama"), Options());
  for (const WaveForm& form : {WaveForm{WaveOrder::kDiagonal, 3, 0}, WaveForm{WaveOrder::kTeams, 3, 1}}) {
    for (const size_t given : {0, 1, 5}) {
      Texts texts(runner, {61, 30, 80});
      const auto wave = CreateWave(runner.model(), runner.ctx(), texts.piece_rows(), form).value();
      EXPECT_THROW(texts.Run(*wave, nullptr, 0, given), std::bad_alloc) << WaveFormName(form) << ", " << given;
      for (size_t i = 0; i < 3; ++i) EXPECT_EQ(texts.state(i).length(), 0U);
    }
  }
}

// One text of n segments: n + layers - 1 lists, as wide as there are layers or segments.
TEST(Wavefront, Diagonals_AreAsManyAsSegmentsAndLayersLessOne) {
  ModelRunner runner(Fixture("armt/llama"), Options());
  const size_t layers = runner.model().layers.size();
  for (const size_t segments : {size_t{1}, size_t{2}, layers - 1, layers, layers + 1, 3 * layers}) {
    Texts texts(runner, {7 * segments});
    const auto wave = Grouped(runner, texts, layers, WaveOrder::kDiagonal);
    std::vector<size_t> widths;
    wave->set_choose([&](std::vector<GroupedWave::Ready>* ready) { widths.push_back(ready->size()); });
    ASSERT_TRUE(texts.Run(*wave));
    ASSERT_EQ(widths.size(), segments + layers - 1) << segments;
    EXPECT_EQ(wave->groups(), segments + layers - 1);
    for (size_t t = 0; t < widths.size(); ++t) {
      const size_t expected = std::min({t + 1, layers, segments, segments + layers - 1 - t});
      EXPECT_EQ(widths[t], expected) << segments << " segments, list " << t;
    }
  }
}

// Cells of a list run as one operation where they are of one form, whatever lies between them: layers with and without a window attend apart.
TEST(Wavefront, Lists_RunOncePerForm) {
  for (const std::string model : {"armt/llama", "families/gemma3_text", "families/qwen3_5_text_ratio3"}) {
    ModelRunner runner(Fixture(model), Options());
    const std::vector<DecoderLayer>& layers = runner.model().layers;
    Texts texts(runner, {60});
    const auto wave = Grouped(runner, texts, layers.size(), WaveOrder::kDiagonal);
    size_t windows = 0, forms = 0, lists_of_several = 0;
    wave->set_choose([&](std::vector<GroupedWave::Ready>* ready) {
      std::set<size_t> seen, kinds;
      for (const GroupedWave::Ready& cell : *ready) {
        const BranchWork work = layers[cell.layer].Work(DType::kF16);
        for (const AttentionShape& shape : work.attention) seen.insert(shape.window);
        kinds.insert(work.attention.size());
      }
      windows += seen.size();
      forms += kinds.size();
      lists_of_several += ready->size() > 2 ? 1 : 0;
    });
    ASSERT_TRUE(texts.Run(*wave));
    EXPECT_EQ(wave->counts().attentions, windows) << model;
    EXPECT_GT(lists_of_several, 1U) << model;
    // A layer without memory has four groups of products: of the attention's input and output, of the feed-forward layer's two halves.
    EXPECT_TRUE(runner.model().segments.present() || wave->counts().products == 4 * forms) << model;
  }
}

// A layer's weights serve all pieces in flight before the next layer's do.
TEST(Wavefront, LayerMajor_ChangesLayersAsOftenAsItMust) {
  ModelRunner runner(Fixture("armt/llama"), Options());
  const size_t layers = runner.model().layers.size();
  for (const size_t in_flight : {1, 2, 3, 5, 8}) {
    for (const size_t segments : {1, 3, 8, 20}) {
      Texts texts(runner, {7 * segments});
      const auto wave = Grouped(runner, texts, in_flight, WaveOrder::kLayerMajor);
      size_t changes = 0, last = layers;
      texts.set_passed([&](const WavePiece&, size_t layer) { changes += std::exchange(last, layer) != layer ? 1 : 0; });
      ASSERT_TRUE(texts.Run(*wave));
      EXPECT_EQ(changes, (segments + in_flight - 1) / in_flight * layers) << in_flight << ", " << segments;
    }
  }
}

// Lists of a seeded choice of ready cells, in any order of them; texts begin at any time.
TEST(Wavefront, AnyChoice_GivesTheBitsOfPieceAfterPiece) {
  const size_t mixes = testing::CountByHand("TIDEMILL_MIXES", 60), seed = testing::CountByHand("TIDEMILL_SEED", 1);
  std::vector<std::unique_ptr<ModelRunner>> runners;
  for (const char* model : {"armt/llama", "armt/qwen2", "armt/short_segments", "armt/center", "armt/no_correction"})
    runners.push_back(std::make_unique<ModelRunner>(Fixture(model), Options(1 + runners.size() % 3)));
  size_t cells = 0, lists = 0;
  for (size_t mix = 0; mix < mixes; ++mix) {
    std::mt19937_64 random(seed * 1000003 + mix);
    ModelRunner& runner = *runners[random() % runners.size()];
    std::vector<size_t> lengths(1 + random() % 4);
    for (size_t& length : lengths) length = 1 + random() % 40;
    Texts alone(runner, lengths), texts(runner, lengths);
    alone.RunOneByOne();
    const auto wave = Grouped(runner, texts, 1 + random() % 9, WaveOrder::kDiagonal);
    wave->set_choose([&random](std::vector<GroupedWave::Ready>* ready) {
      std::shuffle(ready->begin(), ready->end(), random);
      ready->resize(1 + random() % ready->size());
    });
    ASSERT_TRUE(texts.Run(*wave, nullptr, random()));
    texts.ExpectSame(alone, "mix " + std::to_string(mix));
    Texts carried(runner, lengths);
    const auto teams = TeamWave::Create(runner.model(), DetectIsa(), texts.piece_rows(), 1 + random() % 4, 1).value();
    std::mutex mutex;
    teams->set_before_cell([&](size_t, const WavePiece&, size_t) {
      uint64_t pause = 0;
      {
        const std::lock_guard lock(mutex);
        pause = random() % 4 == 0 ? random() % 100 : 0;
      }
      if (pause != 0) std::this_thread::sleep_for(std::chrono::microseconds(pause));
    });
    ASSERT_TRUE(carried.Run(*teams, nullptr, random()));
    carried.ExpectSame(alone, "mix " + std::to_string(mix) + ", teams");
    cells += wave->cells();
    lists += wave->groups();
    if (HasFailure()) return;
  }
  std::printf("  %zu cells in %zu lists\n", cells, lists);
  EXPECT_GT(cells, lists);
}

// Two teams are in cells of one text at the same time: each waits in front of its cell until the other stands in front of one.
TEST(Wavefront, TeamsCells_ReallyOverlap) {
  ModelRunner runner(Fixture("armt/llama"), Options());
  Texts texts(runner, {70});
  const auto wave = TeamWave::Create(runner.model(), DetectIsa(), texts.piece_rows(), 2, 1).value();
  std::atomic<int> standing{0}, met{0};
  wave->set_before_cell([&](size_t, const WavePiece& piece, size_t layer) {
    if (met.load() != 0 || (piece.number == 0 && layer == 0)) return;  // nobody else can be in one then
    ++standing;
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (met.load() == 0 && std::chrono::steady_clock::now() < until) {
      if (standing.load() >= 2) met = 1;
      std::this_thread::yield();
    }
    --standing;
  });
  ASSERT_TRUE(texts.Run(*wave));
  EXPECT_EQ(met.load(), 1);
}

TEST(Wavefront, Interrupted_LeavesStatesAsTheyWere) {
  ModelRunner runner(Fixture("armt/llama"), Options());
  const std::vector<int32_t> more = Ids(9, 3);
  for (const bool in_teams : {false, true}) {
    for (const size_t when : {0, 1, 7, 20}) {
      Texts texts(runner, {60, 30}), same(runner, {60, 30});
      std::vector<std::byte> before[2];
      for (size_t i = 0; i < 2; ++i) before[i] = texts.state(i).Checkpoint().value();
      std::atomic<bool> interrupt{false};
      std::atomic<size_t> cells{0};
      if (in_teams) {
        const auto wave = TeamWave::Create(runner.model(), DetectIsa(), texts.piece_rows(), 3, 1).value();
        wave->set_before_cell([&](size_t, const WavePiece&, size_t) {
          if (cells++ >= when) interrupt = true;
        });
        EXPECT_FALSE(texts.Run(*wave, &interrupt));
      } else {
        const auto wave = Grouped(runner, texts, 4, WaveOrder::kDiagonal);
        wave->set_choose([&](std::vector<GroupedWave::Ready>*) {
          if (cells++ >= when) interrupt = true;
        });
        EXPECT_FALSE(texts.Run(*wave, &interrupt));
      }
      for (size_t i = 0; i < 2; ++i) EXPECT_EQ(texts.state(i).Checkpoint().value(), before[i]) << when;
      const auto wave = Grouped(runner, texts, 2, WaveOrder::kDiagonal);
      ASSERT_TRUE(texts.Run(*wave));
      same.RunOneByOne();
      texts.ExpectSame(same, "interrupted at " + std::to_string(when));
    }
  }
}

// Another thread interrupts at any time, also within cells: nothing counts, and the next run has the bits that it would have had.
TEST(Wavefront, InterruptedAnywhere_LeavesStatesAsTheyWere) {
  const size_t interrupts = testing::CountByHand("TIDEMILL_INTERRUPTS", 20);
  for (const std::string model :
       {"armt/llama", "families/llama3_rope", "families/qwen3_moe", "families/qwen3_5_text_ratio3"}) {
    ModelRunner runner(Fixture(model), Options());
    const std::vector<size_t> lengths = {300, 150};
    Texts same(runner, lengths);
    same.WantNothing();
    same.RunOneByOne();
    size_t abandoned = 0;
    for (size_t mix = 0; mix < interrupts; ++mix) {
      Texts texts(runner, lengths);
      texts.WantNothing();  // logits would see the flag at the end
      const auto empty = texts.state(0).Checkpoint().value();
      std::atomic<bool> interrupt{false}, has_begun{false};
      std::thread other([&] {
        while (!has_begun) std::this_thread::yield();
        const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(197 * mix % 1000);
        while (std::chrono::steady_clock::now() < until) std::this_thread::yield();
        interrupt = true;
      });
      const auto run = [&](auto& wave) {
        has_begun = true;
        const bool complete = texts.Run(wave, &interrupt, mix);
        other.join();
        if (complete) return;
        ++abandoned;
        EXPECT_EQ(texts.state(0).Checkpoint().value(), empty) << model << ", mix " << mix;
        EXPECT_TRUE(texts.Run(wave, nullptr, mix + 1));  // which nothing interrupts, though the flag is set
      };
      if (mix % 2 == 0) {
        run(*TeamWave::Create(runner.model(), DetectIsa(), texts.piece_rows(), 3, 1).value());
      } else {
        run(*Grouped(runner, texts, 4, WaveOrder::kDiagonal));
      }
      texts.ExpectSame(same, model + ", mix " + std::to_string(mix));
      if (HasFailure()) return;
    }
    EXPECT_GT(abandoned, 0U) << model;
  }
}

}  // namespace
}  // namespace tidemill::wavefront_test
