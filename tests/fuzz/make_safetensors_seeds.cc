// Writes the seed corpus of fuzz_safetensors: make_safetensors_seeds [--check] FOLDER.
#include <string>

#include "formats/safetensors_type.h"
#include "tests/fuzz/seed_files.h"
#include "tests/support/safetensors_writer.h"

namespace tidemill::testing {
namespace {

std::string EveryType() {
  SafetensorsWriter w;
  for (const SafetensorsType& type : kSafetensorsTypes) {
    w.Add("t." + std::string(type.name), type.name, {2, 4}, std::string(type.bits, '\1'));
  }
  return w.Build();
}

std::string EveryRank() {
  SafetensorsWriter w;
  w.Add("scalar", "F32", {}, "abcd").Add("vector", "F32", {2}, "abcdefgh").Add("matrix", "F16", {2, 1}, "abcd");
  w.Add("experts", "BF16", {2, 1, 2}, "abcdefgh")
      .Add("conv", "U8", {1, 2, 1, 2}, "abcd")
      .Add("video", "U8", {1, 1, 2, 1, 1}, "ab");
  return w.Add("none", "F32", {0, 3}, "").Build();
}

std::string LlamaLike() {
  SafetensorsWriter w;
  w.SetMetadata("format", "pt");
  w.Add("model.embed_tokens.weight", "BF16", {3, 4}, std::string(24, '\2'));
  w.Add("model.layers.0.input_layernorm.weight", "BF16", {4}, std::string(8, '\3'));
  return w.Add("model.layers.0.self_attn.rotary_emb.inv_freq", "F32", {2}, std::string(8, '\4')).Build();
}

std::string Escaped() {
  SafetensorsWriter w;
  w.SetMetadata("note", "a\\u00e9\\n");
  return w.Add("\\u0061\\ud83c\\udf0a", "I8", {1}, "x").Build();
}

Seeds AllSeeds() {
  return {{"empty.safetensors", SafetensorsBytes("{}")},
          {"every_type.safetensors", EveryType()},
          {"every_rank.safetensors", EveryRank()},
          {"llama_like.safetensors", LlamaLike()},
          {"escaped.safetensors", Escaped()},
          {"odd_length.safetensors",
           SafetensorsBytes(R"({"a":{"shape":[1],"data_offsets":[0,4],"dtype":"F32"}})", "abcd")}};
}

}  // namespace
}  // namespace tidemill::testing

int main(int argc, char** argv) {
  return tidemill::testing::WriteOrCheckSeeds(argc, argv, tidemill::testing::AllSeeds());
}
