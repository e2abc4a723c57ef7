// Every key that is neither obeyed nor known to leave the text alone is named; ordinary models' files have none.
#include "runtime/unread_settings.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "models/registry.h"
#include "runtime/model_impl.h"
#include "tests/fixtures_path.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/model_folder.h"
#include "tests/support/safetensors_writer.h"
#include "tests/support/tiny_model.h"

namespace tidemill::unread_settings_test {
namespace {

using testing::GgufWriter;
using testing::ModelFolder;

constexpr char kConfig[] = R"({"model_type": "llama", "vocab_size": 900, "hidden_size": 8, "num_hidden_layers": 1,
                               "num_attention_heads": 2, "max_position_embeddings": 64)";

std::string TokenizerJson() {
  std::ifstream file(std::string(TIDEMILL_FIXTURES) + "/tokenizer_json/llama3_like.json", std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(file)), {});
}

// As "FILE: key, key; FILE: ...".
std::string Text(const std::vector<UnreadSettings>& unread) {
  std::string text;
  for (const UnreadSettings& file : unread) {
    text += (text.empty() ? "" : "; ") + file.file + ":";
    for (const std::string& key : file.keys) text += " " + key;
  }
  return text;
}

struct Files {
  std::string config = std::string(kConfig) + "}", generation = "{}", tokenizer = "{}";
};

std::string UnreadOf(const Files& files) {
  ModelFolder folder;
  folder.Write("config.json", files.config)
      .Write("generation_config.json", files.generation)
      .Write("tokenizer_config.json", files.tokenizer)
      .Write("tokenizer.json", TokenizerJson())
      .Write("model.safetensors", testing::SafetensorsWriter().Build());
  const auto unread = FindUnreadSettings(folder.path());
  EXPECT_TRUE(unread.ok()) << unread.error().message();
  return unread.ok() ? Text(*unread) : "";
}

std::string RandomKey(std::mt19937_64& random) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz_0123456789";
  std::string key = "x";
  for (size_t i = random() % 20 + 3; i != 0; --i) key += kLetters[random() % kLetters.size()];
  return key + "z";
}

// A value that is no null.
std::string RandomValue(std::mt19937_64& random) {
  const char* const values[] = {"0", "1.5", "true", "false", R"("a")", "[1, 2]", R"({"deep": 1})", "[]", "{}"};
  return values[random() % std::size(values)];
}

TEST(UnreadSettings, UnknownKeysOfEveryFile_AreNamed) {
  std::mt19937_64 random(20261129);
  for (int round = 0; round < 40; ++round) {
    const std::string a = RandomKey(random), b = RandomKey(random), c = RandomKey(random), d = RandomKey(random);
    const auto member = [&](const std::string& key) { return "\"" + key + "\": " + RandomValue(random); };
    const std::string found = UnreadOf({.config = kConfig + (", " + member(a)) + ", " + member(b) + "}",
                                        .generation = "{" + member(c) + "}",
                                        .tokenizer = "{" + member(d) + "}"});
    EXPECT_EQ(found,
              "config.json: " + a + " " + b + "; generation_config.json: " + c + "; tokenizer_config.json: " + d);

    ModelFolder folder;
    GgufWriter writer;
    writer.SetString("general.architecture", "llama")
        .Set<uint32_t>("llama.embedding_length", 8)
        .Set<uint32_t>("llama.block_count", 1)
        .Set<uint32_t>("llama.context_length", 64)
        .Set<uint32_t>("llama.attention.head_count", 2)
        .Set<uint32_t>("llama." + a, 5)
        .SetString("tokenizer.ggml." + b, "x")
        .Set<float>("general.sampling." + c, 1)
        .SetString("general." + d, "of whoever made it")
        .AddTensor("token_embd.weight", DType::kF32, {8, 3}, std::string(8 * 3 * 4, '\0'));
    folder.Write("model.gguf", writer.Build());
    const ModelFiles files = std::move(ModelFiles::Open(folder.path())).value();
    ASSERT_TRUE(DescribeModel(files).ok());
    EXPECT_EQ(Text(ListUnread(files, ReadPart::kAll)),
              "metadata: llama." + a + " tokenizer.ggml." + b + " general.sampling." + c);
    EXPECT_EQ(Text(ListUnread(files, ReadPart::kModel)), "metadata: llama." + a);
    EXPECT_EQ(Text(ListUnread(files, ReadPart::kText)), "metadata: tokenizer.ggml." + b);
  }
}

TEST(UnreadSettings, KeysInsideOfObjects_AreNamedWithTheirPath) {
  EXPECT_EQ(UnreadOf({.config = kConfig + std::string(R"(, "rope_scaling":
                {"rope_type": "linear", "type": "linear", "factor": 2, "mrope_section": [1]}})")}),
            "config.json: rope_scaling.mrope_section");
}

TEST(UnreadSettings, WhatChangesTheAnswerAndIsNotDone_IsNamed) {
  for (const std::string member :
       {R"("num_beams": 4)", R"("penalty_alpha": 0.6)", R"("typical_p": 0.9)", R"("guidance_scale": 1.5)",
        R"("epsilon_cutoff": 1e-4)", R"("eta_cutoff": 1e-4)", R"("sequence_bias": [[[1], 2.0]])",
        R"("exponential_decay_length_penalty": [5, 1.1])", R"("num_return_sequences": 2)", R"("min_length": 9)",
        R"("max_time": 2)", R"("force_words_ids": [[1]])", R"("watermarking_config": {"bias": 2})",
        R"("dola_layers": "low")", R"("token_healing": true)", R"("top_h": 0.4)"}) {
    const std::string key = member.substr(1, member.find('"', 1) - 1);
    EXPECT_EQ(UnreadOf({.generation = "{" + member + "}"}), "generation_config.json: " + key);
  }
  EXPECT_EQ(UnreadOf({.config = kConfig + std::string(R"(, "temperature": 0.6, "max_length": 4096})")}),
            "config.json: temperature max_length");
}

TEST(UnreadSettings, ValuesThatSwitchNothingOn_AreNotNamed) {
  EXPECT_EQ(UnreadOf({.generation = R"({"num_beams": 1, "typical_p": 1.0, "guidance_scale": 1, "min_length": 0,
                                        "penalty_alpha": null, "sequence_bias": null, "do_sample": false,
                                        "temperature": 0.6, "top_k": 20, "cache_implementation": "static",
                                        "transformers_version": "5.24.0", "use_cache": true})"}),
            "");
  EXPECT_EQ(UnreadOf({.config = kConfig + std::string(R"(, "temperature": 1.0, "top_k": 50, "num_beams": 1})")}), "");
}

TEST(UnreadSettings, BosThatTheTokenizerAddsAnyway_IsNotNamed) {
  // llama3_like.json puts a token in front and none behind.
  EXPECT_EQ(UnreadOf({.tokenizer = R"({"add_bos_token": true, "add_eos_token": false})"}), "");
  EXPECT_EQ(UnreadOf({.tokenizer = R"({"add_bos_token": false, "add_eos_token": true})"}),
            "tokenizer_config.json: add_bos_token add_eos_token");
}

TEST(UnreadSettings, TokensThatTheTokenizerHas_AreNotNamed) {
  const auto unread = [](const std::string& member) { return UnreadOf({.tokenizer = "{" + member + "}"}); };
  EXPECT_EQ(unread(R"("added_tokens_decoder": {"1": {"content": "<|endoftext|>", "special": true}})"), "");
  EXPECT_EQ(unread(R"("additional_special_tokens": ["<|im_start|>", {"content": "<|im_end|>"}])"), "");
  EXPECT_EQ(unread(R"("added_tokens_decoder": {"2": {"content": "<|endoftext|>"}})"),
            "tokenizer_config.json: added_tokens_decoder");
  EXPECT_EQ(unread(R"("added_tokens_decoder": {"1": {"content": "<new>"}})"),
            "tokenizer_config.json: added_tokens_decoder");
  for (const char* tokens : {R"(["<new>"])", R"(["a"])", R"([7])", R"({"x": 1})", "3"})
    EXPECT_EQ(unread(R"("additional_special_tokens": )" + std::string(tokens)),
              "tokenizer_config.json: additional_special_tokens")
        << tokens;
}

// Keys and values as published models have them; sizes are ours.
TEST(UnreadSettings, OrdinaryConfigs_HaveNone) {
  const std::string sizes = R"("vocab_size": 8, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
                               "max_position_embeddings": 64, "intermediate_size": 16, )";
  const struct {
    const char *name, *keys;
  } cases[] = {
      {"Llama 3.1", R"("architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
        "bos_token_id": 0, "eos_token_id": [1, 2], "hidden_act": "silu", "initializer_range": 0.02, "mlp_bias": false,
        "model_type": "llama", "num_key_value_heads": 1, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
        "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192, "rope_type": "llama3"}, "rope_theta": 500000.0,
        "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.43.0", "use_cache": true)"},
      {"Qwen2.5", R"("architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 0,
        "eos_token_id": 1, "hidden_act": "silu", "initializer_range": 0.02, "max_window_layers": 21,
        "model_type": "qwen2", "num_key_value_heads": 1, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
        "sliding_window": 32768, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
        "transformers_version": "4.43.1", "use_cache": true, "use_mrope": null, "use_sliding_window": false)"},
      {"Qwen3", R"("architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
        "bos_token_id": 0, "eos_token_id": 1, "head_dim": 4, "hidden_act": "silu", "initializer_range": 0.02,
        "max_window_layers": 28, "model_type": "qwen3", "num_key_value_heads": 1, "rms_norm_eps": 1e-06,
        "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null, "tie_word_embeddings": true,
        "torch_dtype": "bfloat16", "transformers_version": "4.51.0", "use_cache": true,
        "use_sliding_window": false)"},
      {"Qwen3-MoE", R"("architectures": ["Qwen3MoeForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
        "bos_token_id": 0, "decoder_sparse_step": 1, "eos_token_id": 1, "head_dim": 4, "hidden_act": "silu",
        "initializer_range": 0.02, "max_window_layers": 48, "mlp_only_layers": [], "model_type": "qwen3_moe",
        "moe_intermediate_size": 8, "norm_topk_prob": true, "num_experts": 4, "num_experts_per_tok": 2,
        "num_key_value_heads": 1, "output_router_logits": false, "rms_norm_eps": 1e-06, "rope_scaling": null,
        "rope_theta": 1000000.0, "router_aux_loss_coef": 0.001, "sliding_window": null,
        "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.51.0", "use_cache": true,
        "use_sliding_window": false)"},
      {"Qwen3-Next", R"("architectures": ["Qwen3NextForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
        "bos_token_id": 0, "decoder_sparse_step": 1, "eos_token_id": 1, "full_attention_interval": 4, "head_dim": 16,
        "hidden_act": "silu", "initializer_range": 0.02, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 4,
        "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_value_head_dim": 4, "mlp_only_layers": [],
        "model_type": "qwen3_next", "moe_intermediate_size": 8, "norm_topk_prob": true, "num_experts": 4,
        "num_experts_per_tok": 2, "num_key_value_heads": 1, "output_router_logits": false,
        "partial_rotary_factor": 0.25, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 10000000,
        "router_aux_loss_coef": 0.001, "shared_expert_intermediate_size": 8, "tie_word_embeddings": false,
        "torch_dtype": "bfloat16", "transformers_version": "4.57.0.dev0", "use_cache": true,
        "use_sliding_window": false)"},
      {"Gemma 3", R"("architectures": ["Gemma3ForCausalLM"], "_sliding_window_pattern": 6, "attention_bias": false,
        "attention_dropout": 0.0, "attn_logit_softcapping": null, "bos_token_id": 2, "cache_implementation": "hybrid",
        "eos_token_id": 1, "final_logit_softcapping": null, "head_dim": 4,
        "hidden_activation": "gelu_pytorch_tanh", "initializer_range": 0.02,
        "layer_types": ["sliding_attention", "full_attention"], "model_type": "gemma3_text",
        "num_key_value_heads": 1, "pad_token_id": 0, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06,
        "rope_local_base_freq": 10000.0, "rope_scaling": null, "rope_theta": 1000000.0, "sliding_window": 512,
        "torch_dtype": "bfloat16", "transformers_version": "4.55.0", "use_bidirectional_attention": false,
        "use_cache": true)"},
      {"Mistral", R"("architectures": ["MistralForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 1,
        "eos_token_id": 2, "head_dim": null, "hidden_act": "silu", "initializer_range": 0.02, "model_type": "mistral",
        "num_key_value_heads": 1, "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "sliding_window": null,
        "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.42.0",
        "use_cache": true)"},
      {"Pythia", R"("architectures": ["GPTNeoXForCausalLM"], "attention_bias": true, "attention_dropout": 0.0,
        "bos_token_id": 0, "classifier_dropout": 0.1, "eos_token_id": 0, "hidden_act": "gelu", "hidden_dropout": 0.0,
        "initializer_range": 0.02, "layer_norm_eps": 1e-05, "model_type": "gpt_neox", "rope_scaling": null,
        "rotary_emb_base": 10000, "rotary_pct": 0.5, "tie_word_embeddings": false, "torch_dtype": "float16",
        "transformers_version": "4.24.0", "use_cache": true, "use_parallel_residual": true)"},
  };
  for (const auto& c : cases) EXPECT_EQ(UnreadOf({.config = "{" + sizes + c.keys + "}"}), "") << c.name;
  const std::string qwen3_5 = "{" + sizes + R"("attention_bias": false, "attention_dropout": 0.0,
      "attn_output_gate": true, "dtype": "bfloat16", "eos_token_id": 1, "full_attention_interval": 4, "head_dim": 16,
      "hidden_act": "silu", "initializer_range": 0.02, "layer_types": ["linear_attention", "linear_attention"],
      "linear_conv_kernel_dim": 4, "linear_key_head_dim": 4, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
      "linear_value_head_dim": 4, "mamba_ssm_dtype": "float32", "mlp_only_layers": [],
      "model_type": "qwen3_5_moe_text", "moe_intermediate_size": 8, "mtp_num_hidden_layers": 1,
      "mtp_use_dedicated_embeddings": false, "num_experts": 4, "num_experts_per_tok": 2, "num_key_value_heads": 1,
      "output_router_logits": false, "rms_norm_eps": 1e-06, "router_aux_loss_coef": 0.001,
      "rope_parameters": {"mrope_interleaved": true, "mrope_section": [11, 11, 10], "partial_rotary_factor": 0.25,
      "rope_theta": 10000000, "rope_type": "default"}, "shared_expert_intermediate_size": 8,
      "tie_word_embeddings": false, "use_cache": true)";
  const std::string wrapper = R"({"architectures": ["Qwen3_5MoeForConditionalGeneration"], "image_token_id": 5,
      "model_type": "qwen3_5_moe", "tie_word_embeddings": false, "transformers_version": "4.57.0.dev0",
      "video_token_id": 6, "vision_config": {"depth": 1, "model_type": "qwen3_5_moe"}, "vision_end_token_id": 4,
      "vision_start_token_id": 3, "text_config": )";
  EXPECT_EQ(UnreadOf({.config = wrapper + qwen3_5 + "}}"}), "");
  EXPECT_EQ(UnreadOf({.config = wrapper + qwen3_5 + R"(, "what_is_this": 1}})"}),
            "config.json: text_config.what_is_this");
  EXPECT_EQ(UnreadOf({.config = R"({"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"],
      "attn_pdrop": 0.1, "bos_token_id": 7, "embd_pdrop": 0.1, "eos_token_id": 7, "initializer_range": 0.02,
      "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 64, "n_embd": 8, "n_head": 2, "n_inner": null,
      "n_layer": 2, "n_positions": 64, "reorder_and_upcast_attn": false, "resid_pdrop": 0.1,
      "scale_attn_by_inverse_layer_idx": false, "scale_attn_weights": true, "summary_activation": null,
      "summary_first_dropout": 0.1, "summary_proj_to_labels": true, "summary_type": "cls_index",
      "summary_use_proj": true, "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}},
      "vocab_size": 8})"}),
            "");
  EXPECT_EQ(UnreadOf({.config = R"({"_name_or_path": "facebook/opt-125m", "_remove_final_layer_norm": false,
      "activation_dropout": 0.0, "activation_function": "relu", "architectures": ["OPTForCausalLM"],
      "attention_dropout": 0.0, "bos_token_id": 2, "do_layer_norm_before": true, "dropout": 0.1, "eos_token_id": 2,
      "ffn_dim": 16, "hidden_size": 8, "init_std": 0.02, "layerdrop": 0.0, "max_position_embeddings": 64,
      "model_type": "opt", "num_attention_heads": 2, "num_hidden_layers": 1, "pad_token_id": 1, "prefix": "</s>",
      "torch_dtype": "float16", "transformers_version": "4.21.0", "use_cache": true, "vocab_size": 8,
      "word_embed_proj_dim": 8})"}),
            "");
}

TEST(UnreadSettings, OrdinaryTokenizerConfigs_HaveNone) {
  for (
      const char* tokenizer :
      {R"({"add_bos_token": true, "add_eos_token": false, "added_tokens_decoder": {"0": {"content": "<|begin_of_text|>"}},
            "additional_special_tokens": [], "boi_token": "<start_of_image>", "bos_token": "<bos>",
            "clean_up_tokenization_spaces": false, "eoi_token": "<end_of_image>", "eos_token": "<eos>",
            "extra_special_tokens": {"image_token": "<image>"}, "image_token": "<image>",
            "model_max_length": 1000000000000000019884624838656, "pad_token": "<pad>", "padding_side": "left",
            "processor_class": "P", "sp_model_kwargs": null, "spaces_between_special_tokens": false,
            "tokenizer_class": "GemmaTokenizer", "unk_token": "<unk>", "use_default_system_prompt": false})",
       R"({"add_prefix_space": false, "errors": "replace", "split_special_tokens": false, "legacy": true,
            "model_input_names": ["input_ids"], "chat_template": "{{ 1 }}"})"})
    EXPECT_EQ(UnreadOf({.tokenizer = tokenizer}), "") << tokenizer;
}

// Keys of published files of SentencePiece vocabularies, which word splitting and merges do not concern.
TEST(UnreadSettings, OrdinaryGguf_HasNone) {
  GgufWriter writer;
  writer.SetString("general.architecture", "gemma3")
      .SetString("general.type", "model")
      .SetString("general.name", "Gemma 3")
      .SetString("general.license", "gemma")
      .Set<uint32_t>("general.file_type", 15)
      .Set<uint32_t>("general.quantization_version", 2)
      .SetString("quantize.imatrix.file", "x.dat")
      .Set<uint32_t>("gemma3.embedding_length", 8)
      .Set<uint32_t>("gemma3.block_count", 1)
      .Set<uint32_t>("gemma3.context_length", 64)
      .Set<uint32_t>("gemma3.feed_forward_length", 8)
      .Set<uint32_t>("gemma3.attention.head_count", 2)
      .Set<uint32_t>("gemma3.attention.head_count_kv", 1)
      .Set<uint32_t>("gemma3.attention.key_length", 4)
      .Set<uint32_t>("gemma3.attention.value_length", 4)
      .Set<uint32_t>("gemma3.attention.sliding_window", 16)
      .Set<float>("gemma3.attention.layer_norm_rms_epsilon", 1e-6f)
      .Set<float>("gemma3.rope.freq_base", 1e6f)
      .SetString("gemma3.rope.scaling.type", "linear")
      .Set<float>("gemma3.rope.scaling.factor", 8)
      .Set<uint32_t>("gemma3.vocab_size", 3)
      .SetString("tokenizer.ggml.pre", "default")
      .Set<uint32_t>("tokenizer.ggml.padding_token_id", 0)
      .Set<uint32_t>("tokenizer.ggml.unknown_token_id", 0)
      .AddTensor("token_embd.weight", DType::kF32, {8, 3}, std::string(8 * 3 * 4, '\0'));
  ModelFolder folder;
  folder.Write("model.gguf", writer.Build());
  const ModelFiles files = std::move(ModelFiles::Open(folder.path())).value();
  ASSERT_TRUE(DescribeModel(files).ok());
  EXPECT_EQ(Text(ListUnread(files, ReadPart::kAll)), "");
}

TEST(UnreadSettings, TemplateBehindAFileOfItsOwn_IsNotNamed) {
  ModelFolder folder;
  folder.Write("tokenizer.json", TokenizerJson())
      .Write("chat_template.jinja", "{{ 1 }}")
      .Write("tokenizer_config.json", R"({"chat_template": "{{ 2 }}"})");
  const auto text = LoadText(folder.path());
  ASSERT_TRUE(text.ok()) << text.error().message();
  EXPECT_EQ(Text(text->unread_settings), "");
}

TEST(UnreadSettings, OfTextAlone_AreThoseOfTokenizerConfig) {
  ModelFolder folder;
  folder.Write("tokenizer.json", TokenizerJson()).Write("tokenizer_config.json", R"({"what_is_this": 1})");
  const auto text = LoadText(folder.path());
  ASSERT_TRUE(text.ok()) << text.error().message();
  EXPECT_EQ(Text(text->unread_settings), "tokenizer_config.json: what_is_this");
}

TEST(UnreadSettings, TinyModel_HasNone) {
  ModelFolder folder;
  folder.Write("model.gguf", testing::BuildTinyLlama({}));
  const auto model = Model::Load(folder.path(), {.threads = 1, .progress = {}});
  ASSERT_TRUE(model.ok()) << model.error().message();
  EXPECT_EQ(Text((*model)->unread_settings()), "");
}

}  // namespace
}  // namespace tidemill::unread_settings_test
