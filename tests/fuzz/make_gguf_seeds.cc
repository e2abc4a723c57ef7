// Writes the seed corpus of fuzz_gguf: make_gguf_seeds [--check] FOLDER.
#include <cstdint>
#include <string>
#include <vector>

#include "tests/fuzz/seed_files.h"
#include "tests/support/encode_weights.h"
#include "tests/support/gguf_writer.h"

namespace tidemill::testing {
namespace {

std::string EveryValueType() {
  GgufWriter w;
  w.Set<uint8_t>("a.u8", 200).Set<int8_t>("a.i8", -100).Set<uint16_t>("a.u16", 60000).Set<int16_t>("a.i16", -30000);
  w.Set<uint32_t>("a.u32", 4000000000U)
      .Set<int32_t>("a.i32", -2000000000)
      .Set<float>("a.f32", 0.5f)
      .Set<bool>("a.bool", true);
  w.SetString("a.string", "tide")
      .Set<uint64_t>("a.u64", 1ULL << 63)
      .Set<int64_t>("a.i64", -5)
      .Set<double>("a.f64", 1e-5);
  return w.Build();
}

std::string EveryArrayType() {
  GgufWriter w;
  w.SetArray<uint8_t>("b.u8", {1, 2})
      .SetArray<int8_t>("b.i8", {-1})
      .SetArray<uint16_t>("b.u16", {1})
      .SetArray<int16_t>("b.i16", {-1, 5});
  w.SetArray<uint32_t>("b.u32", {7}).SetArray<int32_t>("b.i32", {-7, 8, 9}).SetArray<float>("b.f32", {0.25f, -1.0f});
  w.SetArray<uint64_t>("b.u64", {1}).SetArray<int64_t>("b.i64", {-1}).SetArray<double>("b.f64", {2.0});
  w.SetRawArray("b.bool", 7, 3, std::string("\1\0\1", 3))
      .SetStrings("b.strings", {"a", "", "\xC3\xB6"})
      .SetStrings("b.none", {});
  return w.Build();
}

std::string EveryTensorType(uint32_t version, uint32_t alignment) {
  GgufWriter w;
  w.version = version;
  w.SetAlignment(alignment);
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    const std::vector<float> weights(3 * 256, 0.5f);
    w.AddTensor("t." + std::string(InfoOf(dtype).name), dtype, {256, 3}, EncodeWeights(dtype, weights));
  }
  w.AddTensor("vector", DType::kF32, {5}, std::string(20, '\1'))
      .AddTensor("ones", DType::kF16, {4, 2, 1, 1}, std::string(16, '\2'));
  return w.Build();
}

std::string LlamaLike() {
  GgufWriter w;
  w.SetString("general.architecture", "llama")
      .Set<uint32_t>("llama.block_count", 1)
      .Set<float>("llama.rope.freq_base", 1e4f);
  w.SetString("tokenizer.ggml.model", "gpt2").SetStrings("tokenizer.ggml.tokens", {"a", "b", "ab"});
  w.SetArray<int32_t>("tokenizer.ggml.token_type", {1, 1, 1}).SetStrings("tokenizer.ggml.merges", {"a b"});
  w.AddTensor("token_embd.weight", DType::kQ4_1, {32, 3}, std::string(60, '\3'));
  w.AddTensor("blk.0.attn_norm.weight", DType::kF32, {32}, std::string(128, '\4'));
  return w.Build();
}

std::string RefusedType() {
  GgufWriter w;
  w.AddRawTensor("k", 11, {256}, std::string(110, '\5'));
  return w.Build();
}

Seeds AllSeeds() {
  GgufWriter empty;
  return {{"empty_v3.gguf", empty.Build()},
          {"every_value_type.gguf", EveryValueType()},
          {"every_array_type.gguf", EveryArrayType()},
          {"every_tensor_type_v3.gguf", EveryTensorType(3, 32)},
          {"every_tensor_type_v2.gguf", EveryTensorType(2, 64)},
          {"llama_like.gguf", LlamaLike()},
          {"refused_type.gguf", RefusedType()}};
}

}  // namespace
}  // namespace tidemill::testing

int main(int argc, char** argv) {
  return tidemill::testing::WriteOrCheckSeeds(argc, argv, tidemill::testing::AllSeeds());
}
