// A sequence of KV layers alone, from plain numbers.
#ifndef TIDEMILL_TESTS_SUPPORT_KV_CACHE_H_
#define TIDEMILL_TESTS_SUPPORT_KV_CACHE_H_

#include <memory>
#include <utility>
#include <vector>

#include "state/kv_layer.h"
#include "state/sequence_state.h"

namespace tidemill::testing {

struct KvShape {
  std::vector<KvLayerShape> layers;
  DType dtype = DType::kF16;
  KvGrowth growth = {};
  size_t max_length = 1;
  size_t draft_rows = 64;
  uint64_t model = 0;
  uint64_t numeric_class = 0;
  PageCommitter* pages = nullptr;
  StateLedger* ledger = nullptr;
};

inline SequenceOptions SequenceOptionsOf(const KvShape& shape) {
  return {.max_length = shape.max_length,
          .draft_rows = shape.draft_rows,
          .model = shape.model,
          .numeric_class = shape.numeric_class,
          .ledger = shape.ledger};
}

inline KvOptions KvOptionsOf(const KvShape& shape) {
  return {.dtype = shape.dtype,
          .growth = shape.growth,
          .max_length = shape.max_length,
          .pages = shape.pages,
          .ledger = shape.ledger};
}

class KvCache : public SequenceState {
 public:
  explicit KvCache(const KvShape& shape) : SequenceState(SequenceOptionsOf(shape), MakeLayers(shape)) {}

 private:
  static Layers MakeLayers(const KvShape& shape) {
    Layers layers;
    for (const KvLayerShape& layer : shape.layers)
      layers.push_back(std::make_unique<KvLayer>(layer, KvOptionsOf(shape)));
    return layers;
  }
};

// A layer of it, as a cell takes it: settled.
inline KvLayer& KvLayerOf(SequenceState& state, size_t index) {
  state.layer(index).Settle();
  return static_cast<KvLayer&>(state.layer(index));
}

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_KV_CACHE_H_
