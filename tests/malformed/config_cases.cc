// config.json and generation_config.json beside weights that are as they should be.
#include "tests/malformed/malformed_tables.h"
#include "tests/support/safetensors_writer.h"

namespace tidemill::testing {
namespace {

using std::string_literals::operator""s;

std::string Weights() { return SafetensorsWriter().Add("t", "F32", {1}, "data").Build(); }

// A llama's settings, `key` with this value (as JSON) in place of its own; an empty value leaves it out.
std::string ConfigWith(std::string_view key = {}, const std::string& value = {}) {
  std::string text;
  bool met = false;
  const auto add = [&](std::string_view name, const std::string& json) {
    if (!json.empty()) text += (text.empty() ? "{\"" : ",\"") + std::string(name) + "\":" + json;
  };
  for (const auto& [name, json] :
       std::initializer_list<std::pair<const char*, const char*>>{{"model_type", "\"llama\""},
                                                                  {"vocab_size", "16"},
                                                                  {"hidden_size", "8"},
                                                                  {"num_hidden_layers", "2"},
                                                                  {"intermediate_size", "16"},
                                                                  {"num_attention_heads", "2"},
                                                                  {"max_position_embeddings", "64"}}) {
    met = met || key == name;
    add(name, key == name ? value : json);
  }
  if (!met) add(key, value);
  return text + "}";
}
// With more settings behind them.
std::string ConfigAnd(const std::string& more) {
  std::string text = ConfigWith();
  text.back() = ',';
  return text + more + "}";
}
std::string MistralAnd(const std::string& more) {
  return R"({"model_type":"mistral","vocab_size":16,"hidden_size":8,"num_hidden_layers":1,"num_attention_heads":2,)"
         R"("max_position_embeddings":64,)" +
         more + "}";
}
// Of four layers, three of them linear.
std::string HybridAnd(const std::string& more) {
  return R"({"model_type":"qwen3_5_text","vocab_size":16,"hidden_size":8,"num_hidden_layers":4,"num_attention_heads":2,)"
         R"("max_position_embeddings":64,"head_dim":8,)" +
         more + "}";
}
std::string WithRope(const std::string& scaling) { return ConfigWith("rope_scaling", scaling); }
std::string Nested(const std::string& open, const std::string& close, int depth) {
  std::string text = "{\"a\":";
  for (int i = 0; i < depth; ++i) text += open;
  text += "1";
  for (int i = 0; i < depth; ++i) text += close;
  return text + "}";
}

std::vector<MalformedRow> SyntaxRows() {
  return {
      {"empty", "", kCorrupt, "open {path}/config.json: the file is empty"},
      {"blank", " \n", kCorrupt,
       "config.json: byte 2: expected JSON, found a syntax error while parsing value - unexpected end of input; "
       "expected '[', '{', or a literal"},
      {"cut in a key", ConfigWith().substr(0, 10), kCorrupt,
       "config.json: byte 10: expected JSON, found a syntax error while parsing object key - invalid string: missing "
       "closing quote"},
      {"cut behind a value", ConfigWith().substr(0, 21), kCorrupt,
       "config.json: byte 21: expected JSON, found a syntax error while parsing object - unexpected end of input; "
       "expected '}'"},
      {"array", "[]", kCorrupt, "config.json: byte 0: expected an object, found an array"},
      {"string", "\"llama\"", kCorrupt, "config.json: byte 0: expected an object, found \"llama\""},
      {"null", "null", kCorrupt, "config.json: byte 0: expected an object, found null"},
      {"two objects", "{}{}", kCorrupt,
       "config.json: byte 2: expected JSON, found a syntax error while parsing value - unexpected '{'; expected end of "
       "input"},
      {"byte order mark", "\xEF\xBB\xBF" + ConfigWith(), kCorrupt,
       "config.json: byte 0: expected JSON, found a byte order mark; save the file without it"},
      {"zero byte", ConfigWith() + "\0"s, kCorrupt, "config.json: byte 152: expected JSON, found a zero byte"},
      {"UTF-16", "{\0\"\0a\0\"\0:\0001\0}\0"s, kCorrupt, "config.json: byte 1: expected JSON, found a zero byte"},
      {"comment", "{ // settings\n}", kCorrupt,
       "config.json: byte 2: expected JSON, found a syntax error while parsing object key - invalid literal"},
      {"comma at the end", "{\"a\":1,}", kCorrupt,
       "config.json: byte 7: expected JSON, found a syntax error while parsing object key - unexpected '}'; expected "
       "string literal"},
      {"names in single quotes", "{'a':1}", kCorrupt,
       "config.json: byte 1: expected JSON, found a syntax error while parsing object key - invalid literal"},
      {"name without quotes", "{a:1}", kCorrupt,
       "config.json: byte 1: expected JSON, found a syntax error while parsing object key - invalid literal"},
      {"True", "{\"a\":True}", kCorrupt,
       "config.json: byte 5: expected JSON, found a syntax error while parsing value - invalid literal"},
      {"NaN", ConfigWith("rms_norm_eps", "NaN"), kCorrupt,
       "config.json: byte 167: expected JSON, found NaN, which only Python writes; replace it by a number"},
      {"minus infinity", ConfigWith("rms_norm_eps", "-Infinity"), kCorrupt,
       "config.json: byte 167: expected JSON, found -Infinity, which only Python writes; replace it by a number"},
      {"number beyond a double", ConfigWith("rms_norm_eps", "1e999"), kCorrupt,
       "config.json: byte 167: expected a number within the range of a double, found a larger one"},
      {"number with a zero in front", ConfigWith("hidden_size", "08"), kCorrupt,
       "config.json: byte 53: expected JSON, found a syntax error while parsing object - unexpected number literal; "
       "expected '}'"},
      {"hexadecimal", ConfigWith("hidden_size", "0x8"), kCorrupt,
       "config.json: byte 53: expected JSON, found a syntax error while parsing object - invalid literal"},
      {"plus sign", ConfigWith("hidden_size", "+8"), kCorrupt,
       "config.json: byte 52: expected JSON, found a syntax error while parsing value - invalid literal"},
      {"broken UTF-8", "{\"\xC3(\":1}", kCorrupt,
       "config.json: byte 3: expected JSON, found a syntax error while parsing object key - invalid string: ill-formed "
       "UTF-8 byte"},
      {"half a surrogate", R"({"a":"\ud800"})", kCorrupt,
       "config.json: byte 12: expected JSON, found a syntax error while parsing value - invalid string: surrogate "
       "U+D800..U+DBFF must be followed by U+DC00..U+DFFF"},
      {"line break in a string", "{\"a\":\"x\ny\"}", kCorrupt,
       "config.json: byte 7: expected JSON, found a syntax error while parsing value - invalid string: control "
       "character U+000A (LF) must be escaped to \\u000A or \\n"},
      {"key twice", ConfigAnd("\"hidden_size\":16"), kCorrupt,
       "config.json: byte 152: expected each key of an object once, found \"hidden_size\", which also stands at byte "
       "38"},
      {"key twice, once escaped", ConfigAnd(R"("\u0068idden_size":16)"), kCorrupt,
       "config.json: byte 152: expected each key of an object once, found \"hidden_size\", which also stands at byte "
       "38"},
      {"key twice inside", R"({"rope_scaling":{"factor":2,"factor":4}})", kCorrupt,
       "config.json: byte 28: expected each key of an object once, found \"factor\", which also stands at byte 17"},
      {"arrays nested 65 deep", Nested("[", "]", 64), kUnsupported,
       "config.json: byte 68: expected at most 64 levels of nesting, found more"},
      {"objects nested 65 deep", Nested("{\"a\":", "}", 64), kUnsupported,
       "config.json: byte 320: expected at most 64 levels of nesting, found more"},
      {"arrays nested a million deep", "{\"a\":" + std::string(1'000'000, '['), kUnsupported,
       "config.json: byte 68: expected at most 64 levels of nesting, found more"},
      {"200001 values",
       [] {
         std::string text = "{\"a\":[1";
         for (int i = 0; i < 199'999; ++i) text += ",1";
         return text + "]}";
       },
       kUnsupported, "config.json: byte 400002: expected at most 200000 values, found more"},
      {"more than 16 MiB", Recipe("{").Stretched((16 << 20) + 1), kUnsupported,
       "config.json: expected at most 16777216 bytes, found 16777217"},
  };
}

// Families with linear layers, and settings under text_config.
std::vector<MalformedRow> HybridRows() {
  const auto wrapped = [](const std::string& text_config) {
    return R"({"model_type":"qwen3_5","text_config":)" + text_config + "}";
  };
  return {
      {"activation of a convolution", HybridAnd(R"("hidden_act":"gelu")"), kUnsupported,
       "config.json: \"hidden_act\": expected silu, found \"gelu\""},
      {"quantised language model of a wrapper", HybridAnd(R"("text_config":{"quantization_config":{"bits":4}})"),
       kUnsupported,
       "config.json: \"quantization_config\": quantised checkpoints are not supported; use the original one or a GGUF "
       "file"},
      {"linear layer types of another count", HybridAnd(R"("layer_types":["linear_attention","full_attention"])"),
       kCorrupt, "config.json: \"layer_types\": expected 4 types, one for each layer, found 2"},
      {"unknown layer type among linear ones",
       HybridAnd(R"("layer_types":["mamba","attention","linear_attention","sliding_attention"])"), kUnsupported,
       "config.json: \"layer_types\": expected linear_attention or full_attention, found \"sliding_attention\""},
      {"layer types as a string", HybridAnd(R"("layer_types":"linear_attention")"), kCorrupt,
       "config.json: \"layer_types\": expected an array of strings, found \"linear_attention\""},
      {"full attention in every 0th layer", HybridAnd("\"full_attention_interval\":0"), kCorrupt,
       "config.json: \"full_attention_interval\": expected an integer of 1 to 4096, found 0"},
      {"value heads that the key heads do not divide",
       HybridAnd("\"linear_num_key_heads\":2,\"linear_num_value_heads\":3"), kCorrupt,
       "config.json: \"linear_num_value_heads\": expected a multiple of the 2 key heads, found 3"},
      {"fewer value heads than key heads", HybridAnd("\"linear_num_key_heads\":4,\"linear_num_value_heads\":2"),
       kCorrupt, "config.json: \"linear_num_value_heads\": expected a multiple of the 4 key heads, found 2"},
      {"no key heads", HybridAnd("\"linear_num_key_heads\":0"), kCorrupt,
       "config.json: \"linear_num_key_heads\": expected an integer of 1 to 4096, found 0"},
      {"linear key heads of 257", HybridAnd("\"linear_key_head_dim\":257"), kCorrupt,
       "config.json: \"linear_key_head_dim\": expected an integer of 1 to 256, found 257"},
      {"linear value heads of 2^40", HybridAnd("\"linear_value_head_dim\":1099511627776"), kCorrupt,
       "config.json: \"linear_value_head_dim\": expected an integer of 1 to 256, found 1099511627776"},
      {"convolution of 17", HybridAnd("\"linear_conv_kernel_dim\":17"), kCorrupt,
       "config.json: \"linear_conv_kernel_dim\": expected an integer of 1 to 16, found 17"},
      {"attention without its gate", HybridAnd("\"attn_output_gate\":false"), kUnsupported,
       "config.json: \"attn_output_gate\": expected true, found false"},
      {"another gate", HybridAnd("\"output_gate_type\":\"sigmoid\""), kUnsupported,
       "config.json: \"output_gate_type\": expected swish, found \"sigmoid\""},
      {"states of another type", HybridAnd("\"mamba_ssm_dtype\":\"bfloat16\""), kUnsupported,
       "config.json: \"mamba_ssm_dtype\": expected float32, found \"bfloat16\""},
      {"two draft layers", HybridAnd("\"mtp_num_hidden_layers\":2"), kCorrupt,
       "config.json: \"mtp_num_hidden_layers\": expected an integer of 0 to 1, found 2"},
      {"embeddings of the draft layer", HybridAnd("\"mtp_use_dedicated_embeddings\":true"), kUnsupported,
       "config.json: \"mtp_use_dedicated_embeddings\": expected false, found true"},
      {"rotary part of an odd number", HybridAnd(R"("rope_parameters":{"partial_rotary_factor":0.4})"), kCorrupt,
       "config.json: \"rope_parameters.partial_rotary_factor\": expected a factor up to 1 that leaves an even number "
       "of "
       "8 dimensions, found 0.4"},
      {"no settings of the language model", R"({"model_type":"qwen3_5"})", kNotFound,
       "config.json: \"text_config\": expected an object, found no such key"},
      {"settings of the language model as a list", wrapped("[]"), kCorrupt,
       "config.json: \"text_config\": expected an object, found an array"},
      {"settings of another language model", wrapped(R"({"model_type":"qwen3_5_moe_text"})"), kCorrupt,
       "config.json: \"text_config.model_type\": expected qwen3_5_text, found \"qwen3_5_moe_text\""},
      {"no vocabulary of the language model", wrapped("{}"), kNotFound,
       "config.json: \"text_config.vocab_size\": expected an integer of 1 to 16777216, found no such key"},
      {"value heads of the language model",
       wrapped(HybridAnd("\"linear_num_key_heads\":2,\"linear_num_value_heads\":3")), kCorrupt,
       "config.json: \"text_config.linear_num_value_heads\": expected a multiple of the 2 key heads, found 3"},
      {"layer types of the language model", wrapped(HybridAnd(R"("layer_types":["attention"])")), kCorrupt,
       "config.json: \"text_config.layer_types\": expected 4 types, one for each layer, found 1"},
  };
}

std::vector<MalformedRow> SettingRows() {
  return {
      {"no settings", "{}", kNotFound, "config.json: \"model_type\": expected a string, found no such key"},
      {"model type is null", ConfigWith("model_type", "null"), kCorrupt,
       "config.json: \"model_type\": expected a string, found null"},
      {"model type is a list", ConfigWith("model_type", "[\"llama\"]"), kCorrupt,
       "config.json: \"model_type\": expected a string, found an array"},
      {"unknown model type", ConfigWith("model_type", "\"mamba\""), kUnsupported,
       "config.json: \"model_type\": expected a family of this build, llama, mistral, mixtral, qwen2, qwen3, "
       "qwen3_moe, qwen3_next, qwen3_5_text, qwen3_5, qwen3_5_moe_text, qwen3_5_moe, gemma3_text, gpt2, gpt_neox, opt, "
       "found \"mamba\""},
      {"model type with control characters", ConfigWith("model_type", R"("a\n\u001b[2J")"), kUnsupported,
       "config.json: \"model_type\": expected a family of this build, llama, mistral, mixtral, qwen2, qwen3, "
       "qwen3_moe, qwen3_next, qwen3_5_text, qwen3_5, qwen3_5_moe_text, qwen3_5_moe, gemma3_text, gpt2, gpt_neox, opt, "
       "found \"a\\x0a\\x1b[2J\""},
      {"model type of a megabyte", ConfigWith("model_type", "\"" + std::string(1 << 20, 'a') + "\""), kUnsupported,
       "config.json: \"model_type\": expected a family of this build, llama, mistral, mixtral, qwen2, qwen3, "
       "qwen3_moe, qwen3_next, qwen3_5_text, qwen3_5, qwen3_5_moe_text, qwen3_5_moe, gemma3_text, gpt2, gpt_neox, opt, "
       "found \"" +
           std::string(80, 'a') + "...\""},
      {"quantised checkpoint", ConfigAnd(R"("quantization_config":{"quant_method":"gptq"})"), kUnsupported,
       "config.json: \"quantization_config\": quantised checkpoints are not supported; use the original one or a GGUF "
       "file"},
      {"no vocabulary", ConfigWith("vocab_size", ""), kNotFound,
       "config.json: \"vocab_size\": expected an integer of 1 to 16777216, found no such key"},
      {"vocabulary of null", ConfigWith("vocab_size", "null"), kCorrupt,
       "config.json: \"vocab_size\": expected an integer of 1 to 16777216, found null"},
      {"empty vocabulary", ConfigWith("vocab_size", "0"), kCorrupt,
       "config.json: \"vocab_size\": expected an integer of 1 to 16777216, found 0"},
      {"vocabulary of 2^24 + 1", ConfigWith("vocab_size", "16777217"), kCorrupt,
       "config.json: \"vocab_size\": expected an integer of 1 to 16777216, found 16777217"},
      {"hidden size as a string", ConfigWith("hidden_size", "\"8\""), kCorrupt,
       "config.json: \"hidden_size\": expected an integer of 1 to 1048576, found \"8\""},
      {"hidden size as a float", ConfigWith("hidden_size", "8.0"), kCorrupt,
       "config.json: \"hidden_size\": expected an integer of 1 to 1048576, found 8.0"},
      {"hidden size with an exponent", ConfigWith("hidden_size", "8e0"), kCorrupt,
       "config.json: \"hidden_size\": expected an integer of 1 to 1048576, found 8e0"},
      {"hidden size as an object", ConfigWith("hidden_size", "{}"), kCorrupt,
       "config.json: \"hidden_size\": expected an integer of 1 to 1048576, found an object"},
      {"hidden size as a list", ConfigWith("hidden_size", "[8]"), kCorrupt,
       "config.json: \"hidden_size\": expected an integer of 1 to 1048576, found an array"},
      {"hidden size as a bool", ConfigWith("hidden_size", "true"), kCorrupt,
       "config.json: \"hidden_size\": expected an integer of 1 to 1048576, found true"},
      {"negative hidden size", ConfigWith("hidden_size", "-8"), kCorrupt,
       "config.json: \"hidden_size\": expected an integer of 1 to 1048576, found -8"},
      {"hidden size of minus zero", ConfigWith("hidden_size", "-0"), kCorrupt,
       "config.json: \"hidden_size\": expected an integer of 1 to 1048576, found 0"},
      {"hidden size of 2^32 + 8", ConfigWith("hidden_size", "4294967304"), kCorrupt,
       "config.json: \"hidden_size\": expected an integer of 1 to 1048576, found 4294967304"},
      {"hidden size of 2^64 + 8", ConfigWith("hidden_size", "18446744073709551624"), kCorrupt,
       "config.json: \"hidden_size\": expected an integer of 1 to 1048576, found 18446744073709551624"},
      {"hidden size of forty digits", ConfigWith("hidden_size", std::string(45, '1')), kCorrupt,
       "config.json: \"hidden_size\": expected an integer of 1 to 1048576, found "
       "1111111111111111111111111111111111111111..."},
      {"layer count of 4097", ConfigWith("num_hidden_layers", "4097"), kCorrupt,
       "config.json: \"num_hidden_layers\": expected an integer of 1 to 4096, found 4097"},
      {"no layers", ConfigWith("num_hidden_layers", "0"), kCorrupt,
       "config.json: \"num_hidden_layers\": expected an integer of 1 to 4096, found 0"},
      {"feed-forward of 0", ConfigWith("intermediate_size", "0"), kCorrupt,
       "config.json: \"intermediate_size\": expected an integer of 1 to 4194304, found 0"},
      {"context of 2^31", ConfigWith("max_position_embeddings", "2147483648"), kCorrupt,
       "config.json: \"max_position_embeddings\": expected an integer of 1 to 1073741824, found 2147483648"},
      {"no heads", ConfigWith("num_attention_heads", "0"), kCorrupt,
       "config.json: \"num_attention_heads\": expected an integer of 1 to 4096, found 0"},
      {"heads that the key heads do not divide", ConfigAnd("\"num_key_value_heads\":3"), kCorrupt,
       "config.json: \"num_key_value_heads\": expected a divisor of the 2 attention heads, found 3"},
      {"more heads than dimensions", ConfigWith("num_attention_heads", "16"), kCorrupt,
       "config.json: \"head_dim\": expected an even number of 2 to 512, found 0"},
      {"odd head size", ConfigAnd("\"head_dim\":5"), kCorrupt,
       "config.json: \"head_dim\": expected an even number of 2 to 512, found 5"},
      {"head size of 514", ConfigAnd("\"head_dim\":514"), kCorrupt,
       "config.json: \"head_dim\": expected an integer of 2 to 512, found 514"},
      {"epsilon of 0", ConfigAnd("\"rms_norm_eps\":0"), kCorrupt,
       "config.json: \"rms_norm_eps\": expected a number above 0 and below 1, found 0"},
      {"negative epsilon", ConfigAnd("\"rms_norm_eps\":-1e-5"), kCorrupt,
       "config.json: \"rms_norm_eps\": expected a number above 0 and below 1, found -1e-05"},
      {"epsilon as a string", ConfigAnd("\"rms_norm_eps\":\"1e-5\""), kCorrupt,
       "config.json: \"rms_norm_eps\": expected a number, found \"1e-5\""},
      {"activation is a number", ConfigAnd("\"hidden_act\":1"), kCorrupt,
       "config.json: \"hidden_act\": expected a string, found 1"},
      {"tied as a string", ConfigAnd("\"tie_word_embeddings\":\"true\""), kCorrupt,
       "config.json: \"tie_word_embeddings\": expected true or false, found \"true\""},
      {"rope base of 0", ConfigAnd("\"rope_theta\":0"), kCorrupt,
       "config.json: \"rope_theta\": expected a number above 1 and below 1e+12, found 0"},
      {"rope base as a list", ConfigAnd("\"rope_theta\":[10000]"), kCorrupt,
       "config.json: \"rope_theta\": expected a number, found an array"},
      {"unknown rope scaling", WithRope(R"({"rope_type":"longrope","factor":2})"), kUnsupported,
       "config.json: \"rope_scaling.rope_type\": expected default, linear, dynamic, llama3 or yarn, found "
       "\"longrope\""},
      {"rope scaling of a number type", WithRope(R"({"rope_type":3,"factor":2})"), kCorrupt,
       "config.json: \"rope_scaling.rope_type\": expected a string, found 3"},
      {"rope scaling without a factor", WithRope(R"({"rope_type":"linear"})"), kCorrupt,
       "config.json: \"rope_scaling.factor\": expected the factor of linear scaling, found nothing"},
      {"rope scaling by a half", WithRope(R"({"type":"linear","factor":0.5})"), kCorrupt,
       "config.json: \"rope_scaling.factor\": expected a number from 1 to 1e6, found 0.5"},
      {"rope scaling by a string", WithRope(R"({"type":"dynamic","factor":"2"})"), kCorrupt,
       "config.json: \"rope_scaling.factor\": expected a number, found \"2\""},
      {"llama3 scaling, low above high",
       WithRope(R"({"rope_type":"llama3","factor":8,"low_freq_factor":4,"high_freq_factor":1})"), kCorrupt,
       "config.json: \"rope_scaling.high_freq_factor\": expected more than low_freq_factor = 4, found 1"},
      {"yarn scaling, no context", WithRope(R"({"rope_type":"yarn","factor":4,"original_max_position_embeddings":0})"),
       kCorrupt,
       "config.json: \"rope_scaling.original_max_position_embeddings\": expected a number above 0 and below 1e+12, "
       "found 0"},
      {"yarn scaling, cut by a string", WithRope(R"({"rope_type":"yarn","factor":4,"truncate":"no"})"), kCorrupt,
       "config.json: \"rope_scaling.truncate\": expected true or false, found \"no\""},
      {"sliding window of 0", MistralAnd("\"sliding_window\":0"), kCorrupt,
       "config.json: \"sliding_window\": expected an integer of 1 to 1073741824, found 0"},
      {"sliding window of 2^31", MistralAnd("\"sliding_window\":2147483648"), kCorrupt,
       "config.json: \"sliding_window\": expected an integer of 1 to 1073741824, found 2147483648"},
      {"rotary part of zero",
       R"({"model_type":"gpt_neox","vocab_size":16,"hidden_size":8,"num_hidden_layers":1,"num_attention_heads":2,"max_position_embeddings":64,"rotary_pct":0})",
       kCorrupt,
       "config.json: \"rotary_pct\": expected a factor up to 1 that leaves an even number of 4 dimensions, found 0"},
      {"rotary part where heads turn whole", ConfigAnd("\"partial_rotary_factor\":0.5"), kUnsupported,
       "config.json: \"partial_rotary_factor\": expected 1, since this family turns whole heads, found 0.5"},
      {"rope by layer type where there is one",
       ConfigAnd(R"("rope_parameters":{"full_attention":{"rope_theta":10000}})"), kUnsupported,
       "config.json: \"rope_parameters.full_attention\": expected one rope for all layers, found one for layers of "
       "this "
       "type"},
      {"first token beyond the vocabulary", ConfigAnd("\"bos_token_id\":16"), kCorrupt,
       "config.json: \"bos_token_id\": expected an id from 0 to 15, found 16"},
      {"last tokens, one of them negative", ConfigAnd("\"eos_token_id\":[-1,2]"), kCorrupt,
       "config.json: \"eos_token_id\": expected an id from 0 to 15, found an array"},
      {"last token as a string", ConfigAnd("\"eos_token_id\":\"</s>\""), kCorrupt,
       "config.json: \"eos_token_id\": expected an integer or an array of integers, found \"</s>\""},
      {"layer types of another count",
       R"({"model_type":"qwen2","vocab_size":16,"hidden_size":8,"num_hidden_layers":2,"num_attention_heads":2,"max_position_embeddings":64,"use_sliding_window":true,"sliding_window":4,"layer_types":["full_attention"]})",
       kCorrupt, "config.json: \"layer_types\": expected 2 types, one for each layer, found 1"},
      {"unknown layer type",
       R"({"model_type":"qwen2","vocab_size":16,"hidden_size":8,"num_hidden_layers":1,"num_attention_heads":2,"max_position_embeddings":64,"use_sliding_window":true,"sliding_window":4,"layer_types":["linear_attention"]})",
       kUnsupported,
       "config.json: \"layer_types\": expected sliding_attention or full_attention, found \"linear_attention\""},
      {"dense layer beyond the last",
       R"({"model_type":"qwen3_moe","vocab_size":16,"hidden_size":8,"num_hidden_layers":2,"num_attention_heads":2,"max_position_embeddings":64,"num_experts":4,"num_experts_per_tok":2,"mlp_only_layers":[2]})",
       kCorrupt, "config.json: \"mlp_only_layers\": expected layers below 2, found 2"},
      {"more experts used than there are",
       R"({"model_type":"qwen3_moe","vocab_size":16,"hidden_size":8,"num_hidden_layers":2,"num_attention_heads":2,"max_position_embeddings":64,"num_experts":4,"num_experts_per_tok":5})",
       kCorrupt, "config.json: \"num_experts_per_tok\": expected an integer of 1 to 4, found 5"},
  };
}

constexpr const char* kTokenizer =
    R"({"version":"1.0","added_tokens":[],"normalizer":null,"post_processor":null,"decoder":{"type":"ByteLevel"},)"
    R"("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"use_regex":true},)"
    R"("model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":[]}})";

std::vector<MalformedRow> GenerationRows() {
  const auto sampled = [](const std::string& setting) { return "{\"do_sample\":true," + setting + "}"; };
  const auto load = [](const char* name, Recipe recipe, ErrorCode code, const std::string& message) {
    return MalformedRow{name, std::move(recipe), code, message, Question::kLoad};
  };
  return {
      {"generation, cut", "{\"do_sample\":", kCorrupt,
       "generation_config.json: byte 13: expected JSON, found a syntax error while parsing value - unexpected end of "
       "input; expected '[', '{', or a literal"},
      {"generation, array", "[1]", kCorrupt, "generation_config.json: byte 0: expected an object, found an array"},
      {"generation, key twice", R"({"top_k":1,"top_k":1})", kCorrupt,
       "generation_config.json: byte 11: expected each key of an object once, found \"top_k\", which also stands at "
       "byte 1"},
      {"generation, Infinity", R"({"temperature":Infinity})", kCorrupt,
       "generation_config.json: byte 15: expected JSON, found Infinity, which only Python writes; replace it by a "
       "number"},
      load("sampling as a string", R"({"do_sample":"yes"})", kCorrupt,
           "generation_config.json: \"do_sample\": expected true or false, found \"yes\""),
      load("sampling as a number", R"({"do_sample":1})", kCorrupt,
           "generation_config.json: \"do_sample\": expected true or false, found 1"),
      load("temperature as a string", sampled("\"temperature\":\"0.7\""), kCorrupt,
           "generation_config.json: \"temperature\": expected a number, found \"0.7\""),
      load("temperature as a list", sampled("\"temperature\":[0.7]"), kCorrupt,
           "generation_config.json: \"temperature\": expected a number, found an array"),
      load("negative top_k", sampled("\"top_k\":-2"), kCorrupt,
           "generation_config.json: \"top_k\": expected an integer of -1 to 16777216, found -2"),
      load("top_k as a float", sampled("\"top_k\":50.0"), kCorrupt,
           "generation_config.json: \"top_k\": expected an integer of -1 to 16777216, found 50.0"),
      load("top_k of 2^32", sampled("\"top_k\":4294967296"), kCorrupt,
           "generation_config.json: \"top_k\": expected an integer of -1 to 16777216, found 4294967296"),
      load("top_p as a bool", sampled("\"top_p\":true"), kCorrupt,
           "generation_config.json: \"top_p\": expected a number, found true"),
      load("min_p as an object", sampled("\"min_p\":{}"), kCorrupt,
           "generation_config.json: \"min_p\": expected a number, found an object"),
      load("penalty as a string", R"({"repetition_penalty":"1.1"})", kCorrupt,
           "generation_config.json: \"repetition_penalty\": expected a number, found \"1.1\""),
      load("temperature of -1", sampled("\"temperature\":-1"), kCorrupt,
           "generation_config.json: \"temperature\": expected a number from 0 to 100, found -1"),
      load("temperature of 1e300", sampled("\"temperature\":1e300"), kCorrupt,
           "generation_config.json: \"temperature\": expected a number from 0 to 100, found 1e300"),
      load("top_p of 7", sampled("\"top_p\":7"), kCorrupt,
           "generation_config.json: \"top_p\": expected a number above 0, at most 1, found 7"),
      load("top_p of 0", sampled("\"top_p\":0"), kCorrupt,
           "generation_config.json: \"top_p\": expected a number above 0, at most 1, found 0"),
      load("min_p of -0.1", sampled("\"min_p\":-0.1"), kCorrupt,
           "generation_config.json: \"min_p\": expected a number from 0 to 1, found -0.1"),
      load("penalty of 0", R"({"repetition_penalty":0})", kCorrupt,
           "generation_config.json: \"repetition_penalty\": expected a number from 0.01 to 100, found 0"),
      load("penalty of 1e9", R"({"repetition_penalty":1e9})", kCorrupt,
           "generation_config.json: \"repetition_penalty\": expected a number from 0.01 to 100, found 1e9"),
      load("last token beyond the tokenizer", R"({"eos_token_id":2})", kCorrupt,
           "generation_config.json: \"eos_token_id\": expected ids below the tokenizer's 2, found 2"),
      load("last token of 2^63", R"({"eos_token_id":9223372036854775808})", kCorrupt,
           "generation_config.json: \"eos_token_id\": expected an integer of -9223372036854775808 to "
           "9223372036854775807, found 9223372036854775808"),
      load("first token as a string", R"({"bos_token_id":"<s>"})", kCorrupt,
           "generation_config.json: \"bos_token_id\": expected an integer or an array of integers, found \"<s>\""),
      load("last tokens in a list of lists", R"({"eos_token_id":[[1]]})", kCorrupt,
           "generation_config.json: \"eos_token_id[0]\": expected an integer of -9223372036854775808 to "
           "9223372036854775807, found an array"),
  };
}

}  // namespace

std::vector<MalformedCase> ConfigCases() {
  std::vector<MalformedRow> rows = SyntaxRows();
  for (MalformedRow& row : SettingRows()) rows.push_back(std::move(row));
  for (MalformedRow& row : HybridRows()) rows.push_back(std::move(row));
  return CasesOf(rows, "config.json", {{"model.safetensors", Weights()}}, "");
}

std::vector<MalformedCase> GenerationConfigCases() {
  return CasesOf(GenerationRows(), "generation_config.json",
                 {{"model.safetensors", Weights()}, {"config.json", ConfigWith()}, {"tokenizer.json", kTokenizer}}, "");
}

}  // namespace tidemill::testing
