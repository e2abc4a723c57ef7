#include "tests/support/state_kinds.h"

#include <algorithm>
#include <variant>

#include "tests/support/kv_under_test.h"
#include "tests/support/linear_under_test.h"
#include "tests/support/segment_under_test.h"
#include "tests/support/sparse_under_test.h"

namespace tidemill::testing {
namespace {

using Kv = KvLayerShape;
struct Fold {
  uint64_t begin = 0;
};
struct Sparse {
  Kv shape;
  SparseForm form = {};
  bool columns = true;
};
struct Segment {
  Kv shape;
  SegmentShape segments = {};
};
using Layer = std::variant<Kv, Fold, LinearShape, Sparse, Segment>;

// What all KV layers of a list have in common.
struct KvOfAll {
  DType dtype = DType::kF16;
  KvGrowth growth = {};
  bool ahead = false;
};

LayerUnderTest::Pointer MakeLayer(const Layer& layer, const KvOfAll& kv) {
  if (const Kv* shape = std::get_if<Kv>(&layer))
    return std::make_shared<KvUnderTest>(*shape, kv.dtype, kv.growth, kv.ahead);
  if (const Fold* fold = std::get_if<Fold>(&layer)) return std::make_shared<FoldUnderTest>(fold->begin);
  if (const Sparse* sparse = std::get_if<Sparse>(&layer)) {
    return std::make_shared<SparseUnderTest>(sparse->shape, kv.dtype, kv.growth, kv.ahead, sparse->form,
                                             sparse->columns);
  }
  if (const Segment* segment = std::get_if<Segment>(&layer))
    return std::make_shared<SegmentUnderTest>(segment->shape, kv.dtype, kv.growth, kv.ahead, segment->segments);
  return std::make_shared<LinearUnderTest>(std::get<LinearShape>(layer));
}

std::unique_ptr<const StateKindUnderTest> MakeKind(const KvOfAll& kv, const std::vector<Layer>& layers,
                                                   size_t draft_rows) {
  StateKindUnderTest::Layers list;
  std::string names;
  bool drops = false, only_linear = true;
  for (const Layer& layer : layers) {
    list.push_back(MakeLayer(layer, kv));
    names += list.back()->name();
    drops = drops || list.back()->window() != 0;
    only_linear = only_linear && std::holds_alternative<LinearShape>(layer);
  }
  std::string name = only_linear ? "" : "KvCache" + std::string(InfoOf(kv.dtype).name);
  std::erase(name, '_');
  name += names;
  if (drops) name += "Draft" + std::to_string(draft_rows);
  if (kv.growth != KvGrowth()) {
    name += (kv.ahead ? "Ahead" : "") + std::string("Policy") + std::to_string(static_cast<int>(kv.growth.policy)) +
            "Increment" + std::to_string(kv.growth.increment) + "Expected" + std::to_string(kv.growth.expected);
  }
  return std::make_unique<StateKindUnderTest>(std::move(name), std::move(list), draft_rows);
}

// All layers of a list, if they are plain KV layers.
std::vector<const KvUnderTest*> OnlyKv(const StateKindUnderTest::Layers& layers) {
  std::vector<const KvUnderTest*> out;
  for (const auto& layer : layers) {
    out.push_back(dynamic_cast<const KvUnderTest*>(layer.get()));
    if (out.back() == nullptr || !out.back()->is_plain()) return {};
  }
  return out;
}

}  // namespace

SequenceOptions StateKindUnderTest::OptionsOf(size_t max_length) const {
  return {.max_length = max_length, .draft_rows = draft_rows_, .model = kModel, .numeric_class = kNumericClass};
}

std::unique_ptr<SequenceState> StateKindUnderTest::Make(const SequenceOptions& options, const Layers& layers) {
  SequenceState::Layers states;
  for (const auto& layer : layers) states.push_back(layer->Make(options));
  return std::make_unique<SequenceState>(options, std::move(states));
}

std::vector<StrangerState> StateKindUnderTest::Strangers(size_t max_length) const {
  std::vector<StrangerState> strangers;
  const auto with_options = [&](const std::string& what, auto change) {
    SequenceOptions options = OptionsOf(max_length);
    change(options);
    strangers.push_back({what, Make(options, layers_)});
  };
  const auto with_layers = [&](const std::string& what, const Layers& layers) {
    strangers.push_back({what, Make(OptionsOf(max_length), layers)});
  };
  with_options("model", [](SequenceOptions& s) { ++s.model; });
  with_options("numeric class", [](SequenceOptions& s) { ++s.numeric_class; });
  with_options("draft_rows", [](SequenceOptions& s) { ++s.draft_rows; });
  Layers layers = layers_;
  layers.push_back(layers.back());
  with_layers("layers", layers);
  layers.back() = std::make_shared<FoldUnderTest>(1);
  with_layers("one more fold", layers);
  layers = layers_;
  layers.front() = std::make_shared<FoldUnderTest>(99);
  with_layers("a fold", layers);
  for (size_t i = 0; i < layers_.size(); ++i) {
    for (const auto& [what, layer] : layers_[i]->Strangers()) {
      layers = layers_;
      layers[i] = layer;
      with_layers("layer " + std::to_string(i) + ": " + what, layers);
    }
  }
  if (const auto kv = OnlyKv(layers_); !kv.empty()) {
    const DType dtype = kv.front()->dtype() == DType::kF16 ? DType::kBF16 : DType::kF16;  // same sizes where it can
    for (size_t i = 0; i < kv.size(); ++i) layers[i] = kv[i]->Of(kv[i]->shape(), dtype);
    with_layers("dtype", layers);
    // The same number of bytes in another arrangement, where all layers are equal.
    KvLayerShape shape = kv.front()->shape();
    const size_t count = shape.kv_heads + (shape.kv_heads == kv.size());
    shape.kv_heads = kv.size();
    with_layers("layers and kv_heads", Layers(count, kv.front()->Of(shape, kv.front()->dtype())));
  }
  return strangers;
}

bool StateKindUnderTest::keeps_rows() const {
  return std::any_of(layers_.begin(), layers_.end(), [](const auto& layer) { return layer->keeps_rows(); });
}

bool StateKindUnderTest::drops_rows() const {
  return std::any_of(layers_.begin(), layers_.end(),
                     [](const auto& layer) { return layer->keeps_rows() && layer->window() != 0; });
}

size_t StateKindUnderTest::checkpoint_header_bytes() const {
  return SequenceState::kCheckpointHeaderBytes + (OnlyKv(layers_).empty() ? 8 * (2 * layers_.size() + 3) : 0);
}

size_t StateKindUnderTest::fewest_quiet_steps(size_t rows) const {
  size_t growths = 0;
  for (const auto& layer : layers_) growths = std::max(growths, layer->most_growths(rows));
  return 20 - std::min<size_t>(20, growths);
}

size_t StateKindUnderTest::longest_step() const {
  size_t rows = SIZE_MAX;
  for (const auto& layer : layers_) rows = std::min(rows, layer->longest_step(draft_rows_));
  return rows;
}

size_t StateKindUnderTest::longest_step_in_part() const {
  size_t rows = SIZE_MAX;
  for (const auto& layer : layers_) rows = std::min(rows, layer->longest_step_in_part(draft_rows_));
  return rows;
}

size_t StateKindUnderTest::longest_draft() const {
  size_t rows = SIZE_MAX;
  for (const auto& layer : layers_) rows = std::min(rows, layer->longest_draft(draft_rows_));
  return rows;
}

size_t StateKindUnderTest::UnlessAllIsSeen(size_t position) const {
  const bool all =
      std::all_of(layers_.begin(), layers_.end(), [&](const auto& layer) { return layer->FirstSeen(position) == 0; });
  return all ? 0 : position;
}

const std::vector<std::unique_ptr<const StateKindUnderTest>>& AllStateKinds() {
  static const auto kinds = [] {
    std::vector<std::unique_ptr<const StateKindUnderTest>> all;
    using Layers = std::vector<Layer>;
    const auto add = [&all](DType dtype, const Layers& layers, size_t draft_rows = 64, const KvGrowth& growth = {},
                            bool ahead = false) {
      all.push_back(MakeKind({.dtype = dtype, .growth = growth, .ahead = ahead}, layers, draft_rows));
    };
    const auto same = [](size_t layers, const Layer& layer) { return Layers(layers, layer); };
    add(DType::kF16, same(1, Kv{1, 1}));
    add(DType::kF16, same(2, Kv{3, 5}));
    add(DType::kBF16, same(3, Kv{2, 16}));
    add(DType::kF32, same(2, Kv{1, 7}));
    add(DType::kF32, same(1, Kv{4, 8}));
    add(DType::kF16, Layers{Kv{2, 3}, Kv{1, 8}});
    add(DType::kQ8_0, same(1, Kv{1, 32}));
    add(DType::kQ8_0, Layers{Kv{2, 32}, Kv{1, 64}});
    // Windows everywhere: of one row, of a few, of as many as a long step has.
    add(DType::kF16, same(1, Kv{1, 2, 1}), 0);
    add(DType::kF16, same(2, Kv{2, 3, 4}), 1);
    add(DType::kBF16, Layers{Kv{1, 3, 2}, Kv{2, 2, 7}}, 3);
    add(DType::kF32, same(2, Kv{1, 2, 100}));
    add(DType::kQ8_0, same(1, Kv{2, 32, 4}), 1);
    // Between layers that keep everything.
    add(DType::kF16, Layers{Kv{1, 4}, Kv{2, 3, 3}, Kv{1, 2, 5}}, 2);
    add(DType::kBF16, Layers{Kv{2, 2, 6}, Kv{1, 5}}, 0);
    add(DType::kF16, Layers{Kv{1, 2, 48}, Kv{1, 2}, Kv{1, 2, 48}}, 16);
    add(DType::kQ8_0, Layers{Kv{1, 64, 5}, Kv{1, 32}}, 2);
    // Every policy of growth, beside a layer that does not follow it.
    for (const KvGrowth& growth :
         {KvGrowth{.policy = KvPolicy::kIterative}, KvGrowth{.policy = KvPolicy::kUpfront, .expected = 5000},
          KvGrowth{.policy = KvPolicy::kUpfront, .expected = 10}, KvGrowth{.policy = KvPolicy::kBmc, .increment = 3},
          KvGrowth{.policy = KvPolicy::kBmc, .increment = 16, .expected = 40}, KvGrowth{.policy = KvPolicy::kGeometric},
          KvGrowth{.policy = KvPolicy::kReserve, .increment = 64},
          KvGrowth{.policy = KvPolicy::kPaged, .increment = 16}}) {
      add(DType::kBF16, Layers{Kv{1, 4}, Kv{2, 3, 3}}, 2, growth);
    }
    // Folds alone, and between layers of rows.
    add(DType::kF16, same(1, Fold{7}), 0);
    add(DType::kF16, same(2, Fold{7}), 3);
    add(DType::kF16, Layers{Fold{7}, Kv{2, 3}}, 0);
    add(DType::kBF16, Layers{Kv{1, 4}, Fold{7}, Kv{2, 3, 3}, Fold{9}}, 2);
    add(DType::kQ8_0, Layers{Kv{1, 32}, Fold{7}}, 16, KvGrowth{.policy = KvPolicy::kBmc, .increment = 16});
    for (const size_t increment : {size_t{16}, size_t{100}}) {
      add(DType::kBF16, Layers{Kv{1, 4}, Kv{2, 3, 3}}, 2,
          KvGrowth{.policy = KvPolicy::kReserve, .increment = increment}, true);
    }
    // Linear attention: each class alone, then beside itself and others.
    const auto linear = [](size_t key_heads, size_t value_heads, size_t key_dim, size_t value_dim, size_t conv_width,
                           const DeltaClass& form) {
      return LinearShape{.delta = {.key_heads = key_heads,
                                   .value_heads = value_heads,
                                   .key_dim = key_dim,
                                   .value_dim = value_dim,
                                   .tiled = value_dim % 2 == 1,
                                   .form = form},
                         .channels = 1 + key_dim / 2,
                         .conv_width = conv_width};
    };
    const auto alone = [&](const Layers& layers, size_t draft_rows) { add(DType::kF16, layers, draft_rows); };
    constexpr DType kF32 = DType::kF32, kBF16 = DType::kBF16;
    const LinearShape recurrent = linear(1, 2, 3, 2, 4, {1, 1, kF32}), by_three = linear(2, 2, 2, 5, 3, {3, 3, kF32}),
                      by_eight = linear(1, 2, 4, 3, 2, {8, 8, kBF16}), late = linear(2, 4, 2, 3, 4, {24, 8, kF32}),
                      latest = linear(1, 1, 5, 4, 1, {64, 16, kBF16});
    for (const size_t draft_rows : std::vector<size_t>{0, 1}) alone({recurrent}, draft_rows);
    for (const size_t draft_rows : std::vector<size_t>{0, 16}) alone({by_three}, draft_rows);
    alone({by_eight}, 3);
    for (const size_t draft_rows : std::vector<size_t>{0, 16}) alone({late}, draft_rows);
    for (const size_t draft_rows : std::vector<size_t>{0, 1}) alone({latest}, draft_rows);
    alone({linear(1, 1, 2, 2, 1, {1, 1, kBF16})}, 0);
    alone({by_three, late}, 0);
    alone({late, recurrent}, 3);
    add(DType::kF16, {Kv{2, 3}, late}, 0);
    add(DType::kBF16, {by_eight, Kv{1, 4, 6}}, 0);
    add(DType::kF16, {by_three, Fold{7}, Kv{1, 2, 40}, Kv{1, 2}}, 16);
    add(DType::kQ8_0, {Fold{7}, latest, Kv{1, 32, 5}}, 2, {.policy = KvPolicy::kBmc, .increment = 16});
    // Keys in rows and in columns: of each type, then beside others.
    const SparseForm sparq{.kind = SparseKind::kSparq, .r = 1, .k = 7, .local = 2},
        topk{.kind = SparseKind::kTopk, .r = 2, .k = 100, .local = 1},
        h2o{.kind = SparseKind::kH2o, .k = 9, .local = 3}, last{.kind = SparseKind::kWindow, .k = 20, .local = 4};
    add(DType::kF16, same(2, Sparse{{2, 3}}));
    add(DType::kBF16, {Sparse{{2, 4}, sparq}});
    add(DType::kF32, {Sparse{{1, 2}, topk}});
    add(DType::kF16, {Sparse{{1, 4}, sparq, false}});
    add(DType::kQ8_0, {Sparse{{2, 32}, sparq}});
    add(DType::kF16, {Sparse{{1, 2, 1}}}, 0);
    add(DType::kBF16, {Sparse{{1, 3, 2}, sparq}, Sparse{{2, 2, 70}, sparq}}, 3);
    add(DType::kF32, {Sparse{{1, 2, 100}, sparq}, Kv{1, 2, 47}, Kv{1, 2}}, 16);
    add(DType::kQ8_0, {Sparse{{1, 32, 5}}, Kv{1, 32}}, 2);
    add(DType::kF16, {Kv{1, 3}, late, Sparse{{2, 3, 33}, sparq}, Fold{7}, Sparse{{1, 2}, topk}}, 0);
    add(DType::kBF16, {Sparse{{2, 3}, h2o}, Sparse{{1, 2}, last}, Sparse{{1, 2, 30}, h2o}}, 1);
    for (const KvGrowth& growth :
         {KvGrowth{.policy = KvPolicy::kIterative}, KvGrowth{.policy = KvPolicy::kBmc, .increment = 3},
          KvGrowth{.policy = KvPolicy::kGeometric}, KvGrowth{.policy = KvPolicy::kReserve, .increment = 64},
          KvGrowth{.policy = KvPolicy::kPaged, .increment = 16}}) {
      add(DType::kBF16, {Sparse{{1, 4}, sparq}, Sparse{{2, 3, 3}, sparq}}, 2, growth);
    }
    add(DType::kBF16, {Sparse{{1, 4}, sparq}}, 2, KvGrowth{.policy = KvPolicy::kReserve, .increment = 16}, true);
    // The KV cache of a segment. Memory rows are no longer than the steps of the tests, so that most of them reserve a memory, too.
    const auto segment = [](size_t tokens, DType dtype) {
      return SegmentShape{.memory = {.hidden = 3, .key_dim = 2, .nu = 1, .dtype = dtype},
                          .segment_tokens = tokens,
                          .memory_rows = 2,
                          .max_rows = 100000};
    };
    add(DType::kF16, same(2, Segment{{2, 3}, segment(40, DType::kF32)}));
    add(DType::kQ8_0, {Segment{{1, 32}, segment(7, DType::kBF16)}});
    for (const KvGrowth& growth :
         {KvGrowth{.policy = KvPolicy::kIterative}, KvGrowth{.policy = KvPolicy::kBmc, .increment = 3},
          KvGrowth{.policy = KvPolicy::kGeometric}, KvGrowth{.policy = KvPolicy::kReserve, .increment = 64},
          KvGrowth{.policy = KvPolicy::kPaged, .increment = 16}}) {
      add(DType::kBF16, {Segment{{1, 4}, segment(16, DType::kF32)}, Segment{{2, 3}, segment(16, DType::kF32)}}, 64,
          growth);
    }
    return all;
  }();
  return kinds;
}

std::vector<StateKindPointer> AllStateKindPointers() {
  std::vector<StateKindPointer> pointers;
  for (const auto& kind : AllStateKinds()) pointers.push_back(kind.get());
  return pointers;
}

std::vector<StateKindPointer> StateKindsThatForget() {
  std::vector<StateKindPointer> pointers = AllStateKindPointers();
  std::erase_if(pointers, [](StateKindPointer kind) { return !kind->drops_rows(); });
  return pointers;
}

}  // namespace tidemill::testing
