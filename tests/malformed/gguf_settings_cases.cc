// GGUF: well-formed metadata that is no model's: a setting of another type, out of its range, or missing.
#include <functional>

#include "tests/malformed/gguf_recipes.h"
#include "tests/malformed/malformed_tables.h"

namespace tidemill::testing {
namespace {

// A llama of 16 tokens whose settings are right but for `key`, which `replace` writes, or leaves out.
template <typename Replace>
std::string ModelWith(const std::string& key, Replace replace) {
  GgufWriter w;
  bool met = false;
  const auto set = [&](const std::string& name, auto write) {
    if (name == key) {
      met = true;
      replace(w);
    } else {
      write();
    }
  };
  set("general.architecture", [&] { w.SetString("general.architecture", "llama"); });
  for (const auto& [name, value] :
       std::initializer_list<std::pair<const char*, uint32_t>>{{"llama.embedding_length", 8},
                                                               {"llama.block_count", 1},
                                                               {"llama.context_length", 64},
                                                               {"llama.feed_forward_length", 16},
                                                               {"llama.attention.head_count", 2},
                                                               {"llama.attention.head_count_kv", 2}}) {
    set(name, [&, name = name, value = value] { w.Set<uint32_t>(name, value); });
  }
  set("llama.attention.layer_norm_rms_epsilon", [&] { w.Set<float>("llama.attention.layer_norm_rms_epsilon", 1e-5f); });
  if (!met) replace(w);
  return w.AddTensor("token_embd.weight", DType::kF32, {8, 16}, std::string(512, '\0')).Build();
}
Recipe Without(const std::string& key) {
  return [key] { return ModelWith(key, [](GgufWriter&) {}); };
}
template <typename T>
Recipe With(const std::string& key, T value) {
  return [=] { return ModelWith(key, [&](GgufWriter& w) { w.Set<T>(key, value); }); };
}
Recipe WithText(const std::string& key, const std::string& value) {
  return [=] { return ModelWith(key, [&](GgufWriter& w) { w.SetString(key, value); }); };
}

// A qwen35 of four layers, without weights, whose settings are right but for `key`.
Recipe HybridWith(const std::string& key, const std::function<void(GgufWriter&)>& replace) {
  return [=] {
    GgufWriter w;
    w.SetString("general.architecture", "qwen35");
    bool met = false;
    for (const auto& [name, value] :
         std::initializer_list<std::pair<const char*, uint32_t>>{{"qwen35.embedding_length", 8},
                                                                 {"qwen35.block_count", 4},
                                                                 {"qwen35.context_length", 64},
                                                                 {"qwen35.attention.head_count", 2},
                                                                 {"qwen35.ssm.conv_kernel", 4},
                                                                 {"qwen35.ssm.state_size", 4},
                                                                 {"qwen35.ssm.group_count", 2},
                                                                 {"qwen35.ssm.time_step_rank", 4},
                                                                 {"qwen35.ssm.inner_size", 16}}) {
      if (name == key) {
        met = true;
        replace(w);
      } else {
        w.Set<uint32_t>(name, value);
      }
    }
    if (!met) replace(w);
    return w.AddTensor("token_embd.weight", DType::kF32, {8, 16}, std::string(512, '\0')).Build();
  };
}
Recipe HybridWith(const std::string& key, uint32_t value) {
  return HybridWith(key, [=](GgufWriter& w) { w.Set<uint32_t>(key, value); });
}

std::vector<MalformedRow> HybridRows() {
  const std::string flags = "qwen35.attention.recurrent_layers";
  return {
      {"value heads that the key heads do not divide", HybridWith("qwen35.ssm.time_step_rank", 3), kCorrupt,
       "metadata: \"qwen35.ssm.time_step_rank\": expected a multiple of the 2 key heads, found 3"},
      {"no key heads in the file", HybridWith("qwen35.ssm.group_count", [](GgufWriter&) {}), kNotFound,
       "GGUF metadata key \"qwen35.ssm.group_count\": expected in the file, found none"},
      {"values that the heads do not divide", HybridWith("qwen35.ssm.inner_size", 18), kCorrupt,
       "metadata: \"qwen35.ssm.inner_size\": expected a multiple of the 4 value heads, found 18"},
      {"flags of another count",
       HybridWith(flags, [=](GgufWriter& w) { w.SetRawArray(flags, 7, 3, std::string("\1\1\0", 3)); }), kCorrupt,
       "metadata: \"qwen35.attention.recurrent_layers\": expected 4 bools, one for each layer, found 3"},
  };
}

std::vector<MalformedRow> Rows() {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::string layers = "llama.block_count", heads = "llama.attention.head_count";
  const std::string eps = "llama.attention.layer_norm_rms_epsilon", scaling = "llama.rope.scaling.type";
  return {
      {"no architecture", Without("general.architecture"), kNotFound,
       "GGUF metadata key \"general.architecture\": expected in the file, found none"},
      {"architecture is a number", With<uint32_t>("general.architecture", 1), kCorrupt,
       "GGUF metadata key \"general.architecture\": byte 56: value: expected a string, found u32"},
      {"unknown architecture", WithText("general.architecture", "mamba"), kUnsupported,
       "metadata: \"general.architecture\": expected a family of this build, llama, qwen2, qwen3, qwen3moe, "
       "qwen3next, qwen35, qwen35moe, gemma3, gpt2, gptneox, found \"mamba\""},
      {"adapter", WithText("general.type", "adapter"), kUnsupported,
       "metadata: \"general.type\": expected a model, found a LoRA adapter; merge it into its base model and give the "
       "result"},
      {"part that reads images", WithText("general.type", "mmproj"), kUnsupported,
       "metadata: \"general.type\": expected a model, found the part of a model that reads images; give the file of "
       "its "
       "language model"},
      {"part that reads images, old", WithText("general.architecture", "clip"), kUnsupported,
       "metadata: \"general.architecture\": expected a model, found the part of a model that reads images; give the "
       "file "
       "of its language model"},
      {"importance matrix", WithText("general.type", "imatrix"), kUnsupported,
       "metadata: \"general.type\": expected a model, found an importance matrix, which serves to make quantised "
       "models"},
      {"vocabulary alone", WithText("general.type", "vocab"), kUnsupported,
       "metadata: \"general.type\": expected a model, found a vocabulary without weights, which tokenize and "
       "detokenize "
       "take"},
      {"architecture with control characters", WithText("general.architecture", "lla\nma\x1B[2J"), kUnsupported,
       "metadata: \"general.architecture\": expected a family of this build, llama, qwen2, qwen3, qwen3moe, "
       "qwen3next, qwen35, qwen35moe, gemma3, gpt2, gptneox, found \"lla\\x0ama\\x1b[2J\""},
      {"architecture of a megabyte", WithText("general.architecture", std::string(1 << 20, 'a')), kUnsupported,
       "metadata: \"general.architecture\": expected a family of this build, llama, qwen2, qwen3, qwen3moe, "
       "qwen3next, qwen35, qwen35moe, gemma3, gpt2, gptneox, found \"" +
           std::string(80, 'a') + "...\""},
      {"no layer count", Without(layers), kNotFound,
       "GGUF metadata key \"llama.block_count\": expected in the file, found none"},
      {"layer count is a string", WithText(layers, "1"), kCorrupt,
       "GGUF metadata key \"llama.block_count\": byte 136: value: expected an integer from 1 to 4096, found string"},
      {"layer count is a float", With<float>(layers, 1), kCorrupt,
       "GGUF metadata key \"llama.block_count\": byte 136: value: expected an integer from 1 to 4096, found f32"},
      {"layer count is a bool", With<bool>(layers, true), kCorrupt,
       "GGUF metadata key \"llama.block_count\": byte 136: value: expected an integer from 1 to 4096, found bool"},
      {"layer count is an array",
       [=] { return ModelWith(layers, [&](GgufWriter& w) {
               w.SetArray<uint32_t>(layers, {1, 1});
             }); }, kCorrupt,
       "GGUF metadata key \"llama.block_count\": byte 148: value: expected an integer from 1 to 4096, found array of 2 "
       "u32"},
      {"no layers", With<uint32_t>(layers, 0), kCorrupt,
       "GGUF metadata key \"llama.block_count\": byte 136: value: expected an integer from 1 to 4096, found 0"},
      {"negative layer count", With<int32_t>(layers, -1), kCorrupt,
       "GGUF metadata key \"llama.block_count\": byte 136: value: expected an integer from 1 to 4096, found -1"},
      {"layer count of 4097", With<uint32_t>(layers, 4097), kCorrupt,
       "GGUF metadata key \"llama.block_count\": byte 136: value: expected an integer from 1 to 4096, found 4097"},
      {"layer count of 2^64 - 1", With<uint64_t>(layers, kMax), kCorrupt,
       "GGUF metadata key \"llama.block_count\": byte 136: value: expected an integer from 1 to 4096, found "
       "18446744073709551615"},
      {"hidden size 0", With<uint32_t>("llama.embedding_length", 0), kCorrupt,
       "GGUF metadata key \"llama.embedding_length\": byte 103: value: expected an integer from 1 to 1048576, found 0"},
      {"hidden size of 2^32 + 8", With<uint64_t>("llama.embedding_length", (uint64_t{1} << 32) + 8), kCorrupt,
       "GGUF metadata key \"llama.embedding_length\": byte 103: value: expected an integer from 1 to 1048576, found "
       "4294967304"},
      {"context of 2^31", With<uint64_t>("llama.context_length", uint64_t{1} << 31), kCorrupt,
       "GGUF metadata key \"llama.context_length\": byte 172: value: expected an integer from 1 to 1073741824, found "
       "2147483648"},
      {"no heads", With<uint32_t>(heads, 0), kCorrupt,
       "GGUF metadata key \"llama.attention.head_count\": byte 255: value: expected an integer from 1 to 4096, found "
       "0"},
      {"heads per layer", [=] { return ModelWith(heads, [&](GgufWriter& w) { w.SetArray<int32_t>(heads, {2}); }); },
       kCorrupt,
       "GGUF metadata key \"llama.attention.head_count\": byte 267: value: expected an integer from 1 to 4096, found "
       "array of 1 i32"},
      {"heads that the key heads do not divide", With<uint32_t>(heads, 3), kCorrupt,
       "metadata: \"llama.attention.head_count_kv\": expected a divisor of the 3 attention heads, found 2"},
      {"129 heads for each key head", With<uint32_t>(heads, 258), kUnsupported,
       "metadata: \"llama.attention.head_count_kv\": expected at most 128 attention heads for each, found 129"},
      {"more heads than dimensions", With<uint32_t>(heads, 16), kCorrupt,
       "metadata: \"llama.attention.key_length\": expected an even number of 2 to 512, found 0"},
      {"odd key length", With<uint32_t>("llama.attention.key_length", 3), kCorrupt,
       "metadata: \"llama.attention.key_length\": expected an even number of 2 to 512, found 3"},
      {"value length that is not the key length", With<uint32_t>("llama.attention.value_length", 6), kCorrupt,
       "metadata: \"llama.attention.value_length\": expected the key length, 4, found 6"},
      {"more rotary dimensions than the head has", With<uint32_t>("llama.rope.dimension_count", 64), kCorrupt,
       "metadata: \"llama.rope.dimension_count\": expected an even number up to 4, found 64"},
      {"epsilon is NaN", With<float>(eps, std::numeric_limits<float>::quiet_NaN()), kCorrupt,
       "GGUF metadata key \"llama.attention.layer_norm_rms_epsilon\": byte 354: value: expected a finite f32 or f64, "
       "found NaN"},
      {"epsilon is infinite", With<float>(eps, kInfinity), kCorrupt,
       "GGUF metadata key \"llama.attention.layer_norm_rms_epsilon\": byte 354: value: expected a finite f32 or f64, "
       "found infinity"},
      {"epsilon is 0", With<float>(eps, 0), kCorrupt,
       "metadata: \"llama.attention.layer_norm_rms_epsilon\": expected a number above 0 and below 1, found 0"},
      {"epsilon is negative", With<double>(eps, -1e-5), kCorrupt,
       "metadata: \"llama.attention.layer_norm_rms_epsilon\": expected a number above 0 and below 1, found -1e-05"},
      {"epsilon is a string", WithText(eps, "1e-5"), kCorrupt,
       "GGUF metadata key \"llama.attention.layer_norm_rms_epsilon\": byte 354: value: expected a finite f32 or f64, "
       "found string"},
      {"rope base is negative", With<float>("llama.rope.freq_base", -10000), kCorrupt,
       "metadata: \"llama.rope.freq_base\": expected a number above 1 and below 1e+12, found -10000"},
      {"unknown rope scaling", WithText(scaling, "longrope"), kUnsupported,
       "metadata: \"llama.rope.scaling.type\": expected default, linear, dynamic, llama3 or yarn, found \"longrope\""},
      {"rope scaling without a factor", WithText(scaling, "yarn"), kCorrupt,
       "metadata: \"llama.rope.scaling.factor\": expected the factor of yarn scaling, found nothing"},
      {"rope scaling by 0",
       [=] {
         return ModelWith(scaling, [&](GgufWriter& w) {
           w.SetString(scaling, "linear").Set<float>("llama.rope.scaling.factor", 0);
         });
       },
       kCorrupt, "metadata: \"llama.rope.scaling.factor\": expected a number from 1 to 1e6, found 0"},
      {"sliding window of 0", With<uint32_t>("llama.attention.sliding_window", 0), kCorrupt,
       "GGUF metadata key \"llama.attention.sliding_window\": byte 400: value: expected an integer from 1 to "
       "1073741824, found 0"},
      {"more experts used than there are",
       [] {
         return ModelWith("llama.expert_count", [](GgufWriter& w) {
           w.Set<uint32_t>("llama.expert_count", 2).Set<uint32_t>("llama.expert_used_count", 3);
         });
       },
       kCorrupt,
       "GGUF metadata key \"llama.expert_used_count\": byte 427: value: expected an integer from 1 to 2, found 3"},
      {"experts, of which none is used", With<uint32_t>("llama.expert_count", 8), kNotFound,
       "GGUF metadata key \"llama.expert_used_count\": expected in the file, found none"},
      {"no embedding", [] { return GgufWriter().SetString("general.architecture", "llama").Build(); }, kCorrupt,
       "tensor \"token_embd.weight\": not in the file; every language model has it"},
      {"first token beyond the vocabulary", With<uint32_t>("tokenizer.ggml.bos_token_id", 16), kCorrupt,
       "GGUF metadata key \"tokenizer.ggml.bos_token_id\": byte 397: value: expected an integer from 0 to 15, found "
       "16"},
      {"last token of -1", With<int32_t>("tokenizer.ggml.eos_token_id", -1), kCorrupt,
       "GGUF metadata key \"tokenizer.ggml.eos_token_id\": byte 397: value: expected an integer from 0 to 15, found "
       "-1"},
      {"template is a number", With<uint32_t>("tokenizer.chat_template", 1), kCorrupt,
       "GGUF metadata key \"tokenizer.chat_template\": byte 393: value: expected a string, found u32"},
      {"name is an array",
       [] { return ModelWith("general.name", [](GgufWriter& w) { w.SetStrings("general.name", {"a"}); }); }, kCorrupt,
       "GGUF metadata key \"general.name\": byte 394: value: expected a string, found array of 1 string"},
  };
}

}  // namespace

std::vector<MalformedCase> GgufSettingsCases() {
  std::vector<MalformedRow> rows = Rows();
  for (MalformedRow& row : HybridRows()) rows.push_back(std::move(row));
  return CasesOf(rows, "model.gguf", {}, "model.gguf");
}

}  // namespace tidemill::testing
