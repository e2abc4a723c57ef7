// The target of tests/fixtures/eagle with a tokenizer, its heads, and one for which heads can be made that are always right.
#ifndef TIDEMILL_TESTS_SUPPORT_EAGLE_MODELS_H_
#define TIDEMILL_TESTS_SUPPORT_EAGLE_MODELS_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/byte_level_tokenizer.h"
#include "tests/support/changed_checkpoint.h"
#include "tests/support/model_folder.h"

namespace tidemill::testing {

inline constexpr int kEagleVocab = 96, kEagleHidden = 32, kEagleLayers = 8, kEagleSpecials = 3, kEagleHeadDim = 8;

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
    for (size_t first = 0; first < kEagleHidden; first += kEagleHeadDim) {  // of each head alike
      double squares = 0;
      for (size_t i = first; i < first + kEagleHeadDim; ++i)
        squares += static_cast<double>(row[i]) * static_cast<double>(row[i]);
      const double rms = std::sqrt(squares / kEagleHeadDim);
      for (size_t i = first; i < first + kEagleHeadDim; ++i) row[i] = static_cast<float>(row[i] / rms);
    }
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

// An EAGLE-3 head for it that is right wherever the next id is one of `ids`, 40 of them, ascending. Its attention sees its own row alone,
// where the token scores highest, and takes the feature, which is the embedding of the token before, away for the token's.
inline ChangedCheckpoint KnowingHead3(const std::vector<int64_t>& ids) {
  constexpr float kStrength = 10;  // squared and times 0.28 or more in front of the others' scores
  const ChangedCheckpoint target("eagle/target");
  ChangedCheckpoint head("eagle/eagle3");
  Silence(head, "midlayer.");
  // [32, columns] with one number on the diagonal of each 32 columns.
  const auto diagonals = [&head](const std::string& name, const std::vector<float>& numbers) {
    const size_t columns = numbers.size() * kEagleHidden;
    std::vector<float> matrix(kEagleHidden * columns);
    for (size_t i = 0; i < kEagleHidden; ++i) {
      for (size_t part = 0; part < numbers.size(); ++part)
        matrix[i * columns + part * kEagleHidden + i] = numbers[part];
    }
    ReplaceFloats(head, name, {kEagleHidden, columns}, matrix);
  };
  diagonals("fc.weight", {1, 0, 0});
  diagonals("midlayer.self_attn.q_proj.weight", {kStrength, 0});
  diagonals("midlayer.self_attn.k_proj.weight", {kStrength, 0});
  diagonals("midlayer.self_attn.v_proj.weight", {1, -1});
  diagonals("midlayer.self_attn.o_proj.weight", {1});
  for (const char* norm : {"midlayer.input_layernorm.weight", "midlayer.hidden_norm.weight"})
    ReplaceFloats(head, norm, {kEagleHidden}, std::vector<float>(kEagleHidden, 1));
  ReplaceFloats(head, "norm.weight", {kEagleHidden}, FloatsOf(target.BytesOf("model.norm.weight")));
  const std::vector<float> all_rows = FloatsOf(target.BytesOf("lm_head.weight"));
  std::vector<float> rows;
  std::vector<int64_t> distances;
  std::string marks(kEagleVocab, '\0');
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto row = all_rows.begin() + ids[i] * kEagleHidden;
    rows.insert(rows.end(), row, row + kEagleHidden);
    distances.push_back(ids[i] - static_cast<int64_t>(i));
    marks[static_cast<size_t>(ids[i])] = 1;
  }
  ReplaceFloats(head, "lm_head.weight", {ids.size(), kEagleHidden}, rows);
  head.Remove("d2t").Add("d2t", "I64", {ids.size()},
                         {reinterpret_cast<const char*>(distances.data()), distances.size() * sizeof(int64_t)});
  head.Remove("t2d").Add("t2d", "BOOL", {kEagleVocab}, marks);
  return head;
}

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_EAGLE_MODELS_H_
