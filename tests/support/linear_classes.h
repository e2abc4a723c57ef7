// The classes of linear attention that tests go through, and checkpoints whose models have such layers.
#ifndef TIDEMILL_TESTS_SUPPORT_LINEAR_CLASSES_H_
#define TIDEMILL_TESTS_SUPPORT_LINEAR_CLASSES_H_

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/delta_rule.h"
#include "state/linear_layer.h"
#include "state/sequence_state.h"
#include "tensor/dtype.h"

namespace tidemill::testing {

// Below tests/fixtures/families: 2 and 3 value heads for each key head, mixtures and dense layers, 4 and 8 layers.
inline constexpr const char* kHybrids[] = {"qwen3_next", "qwen3_next_interval", "qwen3_5_text_ratio3"};

// As (start, period): recurrent, short buffers, one of 8, and two that begin without a state.
inline std::vector<DeltaClass> LinearClasses() {
  std::vector<DeltaClass> classes;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const auto& [start, period] : {std::array<size_t, 2>{1, 1}, {2, 2}, {3, 3}, {8, 8}, {24, 8}, {64, 16}})
      classes.push_back({.start = start, .period = period, .dtype = dtype});
  }
#ifdef TIDEMILL_FEW_POSITIONS  // emulated or sanitized
  const std::vector<DeltaClass> few = {classes[0], classes[2], classes[4], classes[9]};
  return few;
#endif
  return classes;
}

inline std::string NameOf(const DeltaClass& form) {
  return std::to_string(form.start) + "/" + std::to_string(form.period) +
         (form.dtype == DType::kBF16 ? " bf16" : " f32");
}

inline std::vector<const LinearLayer*> LinearLayersOf(SequenceState& state) {
  std::vector<const LinearLayer*> layers;
  for (size_t i = 0; i < state.num_layers(); ++i) {
    if (const LinearLayer* layer = LinearOf(state.layer(i))) layers.push_back(layer);
  }
  return layers;
}

// Allocated for states, whose blocks are all but that of the layer's rings.
inline uint64_t StateBytesOf(const LinearLayer& layer) {
  uint64_t sum = 0;
  layer.ForEachBlock([&](const void* block, uint64_t bytes) { sum += block == &layer ? 0 : bytes; });
  return sum;
}

// Boundaries that a token of `length` has passed: those that are before its last one.
inline uint64_t BoundariesPassed(const DeltaClass& form, size_t length) {
  uint64_t passed = 0;
  for (size_t b = form.Next(0); b < length; b = form.Next(b)) ++passed;
  return passed;
}

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_LINEAR_CLASSES_H_
