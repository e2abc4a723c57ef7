// The target of tests/fixtures/eagle with a tokenizer, its heads, and a pair of which the head is always right.
#ifndef TIDEMILL_TESTS_SUPPORT_EAGLE_MODELS_H_
#define TIDEMILL_TESTS_SUPPORT_EAGLE_MODELS_H_

#include <cmath>
#include <cstddef>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/byte_level_tokenizer.h"
#include "tests/support/changed_checkpoint.h"
#include "tests/support/model_folder.h"

namespace tidemill::testing {

inline constexpr int kEagleVocab = 96, kEagleHidden = 32, kEagleLayers = 8, kEagleSpecials = 3;

// A byte-level tokenizer.json of the first `size` of 96 tokens: "<0>" to "<2>", which are special unless `specials` says otherwise, then
// one character each. The bytes of others are left out.
inline std::string EagleTokenizer(size_t size = kEagleVocab, bool specials = true) {
  const auto is_special = [specials](size_t id) { return specials && id < kEagleSpecials; };
  std::vector<std::string> tokens;
  for (size_t id = 0; id < size; ++id) {
    std::string token(1, static_cast<char>('!' + id));  // '!' to '~' are 94
    if (is_special(id)) token = "<" + std::to_string(id) + ">";
    if (id == 94) token = "\xC4\xA0";  // a space
    if (id == 95) token = "\xC4\x8A";  // the end of a line
    tokens.push_back(token);
  }
  return ByteLevelTokenizer(tokens, is_special, {});
}

inline std::vector<float> FloatsOf(const std::string& bytes) {
  std::vector<float> floats(bytes.size() / sizeof(float));
  std::memcpy(floats.data(), bytes.data(), bytes.size());
  return floats;
}

inline void ReplaceFloats(ChangedCheckpoint& checkpoint, const std::string& name, const std::vector<uint64_t>& shape,
                          const std::vector<float>& floats) {
  checkpoint.Remove(name).Add(name, "F32", shape,
                              {reinterpret_cast<const char*>(floats.data()), floats.size() * sizeof(float)});
}

// Layers that add nothing: their last products are zero.
inline void Silence(ChangedCheckpoint& checkpoint, const std::string& layer) {
  constexpr size_t kFfn = 48;
  ReplaceFloats(checkpoint, layer + "self_attn.o_proj.weight", {kEagleHidden, kEagleHidden},
                std::vector<float>(kEagleHidden * kEagleHidden));
  ReplaceFloats(checkpoint, layer + "mlp.down_proj.weight", {kEagleHidden, kFfn},
                std::vector<float>(kEagleHidden * kFfn));
}

// A target whose next id depends on the last one alone, through hidden = w * embedding / rms(embedding), where rms is 1.
inline ChangedCheckpoint KnownTarget() {
  ChangedCheckpoint target("eagle/target");
  for (size_t i = 0; i < kEagleLayers; ++i) Silence(target, "model.layers." + std::to_string(i) + ".");
  std::vector<float> embedding = FloatsOf(target.BytesOf("model.embed_tokens.weight"));
  for (size_t id = 0; id < kEagleVocab; ++id) {
    float* row = embedding.data() + id * kEagleHidden;
    double squares = 0;
    for (size_t i = 0; i < kEagleHidden; ++i) squares += static_cast<double>(row[i]) * static_cast<double>(row[i]);
    const double rms = std::sqrt(squares / kEagleHidden);
    for (size_t i = 0; i < kEagleHidden; ++i) row[i] = static_cast<float>(row[i] / rms);
  }
  ReplaceFloats(target, "model.embed_tokens.weight", {kEagleVocab, kEagleHidden}, embedding);
  return target;
}

// An EAGLE head for it that makes the same: fuse = [diag(w), 0], and a layer that adds nothing.
inline ChangedCheckpoint KnowingHead() {
  ChangedCheckpoint head("eagle/eagle1");
  Silence(head, "layers.0.");
  const std::vector<float> w = FloatsOf(ChangedCheckpoint("eagle/target").BytesOf("model.norm.weight"));
  std::vector<float> fuse(kEagleHidden * 2 * kEagleHidden);
  for (size_t i = 0; i < kEagleHidden; ++i) fuse[i * 2 * kEagleHidden + i] = w[i];
  ReplaceFloats(head, "fc.weight", {kEagleHidden, 2 * kEagleHidden}, fuse);
  ReplaceFloats(head, "fc.bias", {kEagleHidden}, std::vector<float>(kEagleHidden));
  head.Remove("embed_tokens.weight");
  return head;
}

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_EAGLE_MODELS_H_
