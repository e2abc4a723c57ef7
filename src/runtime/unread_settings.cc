#include "runtime/unread_settings.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace tidemill {
namespace {

// A key that changes no text: of any value, or of this one alone.
struct Quiet {
  std::string_view key;
  const char* value = nullptr;  // a number, a word or a text; null: any
};

// Of config.json: training, other tasks, what a program reports, and transformers' defaults of what belongs in generation_config.json.
constexpr Quiet kConfig[] = {{"architectures"},
                             {"transformers_version"},
                             {"torch_dtype"},
                             {"dtype"},
                             {"_name_or_path"},
                             {"name_or_path"},
                             {"_commit_hash"},
                             {"_attn_implementation"},
                             {"_attn_implementation_autoset"},
                             {"attn_implementation"},
                             {"use_cache"},
                             {"cache_implementation"},
                             {"unsloth_version"},
                             {"unsloth_fixed"},
                             {"initializer_range"},
                             {"init_std"},
                             {"attention_dropout"},
                             {"hidden_dropout"},
                             {"hidden_dropout_prob"},
                             {"attention_probs_dropout_prob"},
                             {"activation_dropout"},
                             {"classifier_dropout"},
                             {"dropout"},
                             {"layerdrop"},
                             {"attn_pdrop"},
                             {"embd_pdrop"},
                             {"resid_pdrop"},
                             {"output_router_logits"},
                             {"router_aux_loss_coef"},
                             {"router_jitter_noise"},
                             {"pretraining_tp"},
                             {"gradient_checkpointing"},
                             {"reorder_and_upcast_attn"},
                             {"n_ctx"},
                             {"sliding_window_pattern"},  // read where layer_types is missing
                             {"_sliding_window_pattern"},
                             {"bos_token_id"},
                             {"eos_token_id"},
                             {"pad_token_id"},
                             {"unk_token_id"},
                             {"sep_token_id"},
                             {"cls_token_id"},
                             {"mask_token_id"},
                             {"decoder_start_token_id"},
                             {"tokenizer_class"},
                             {"task_specific_params"},
                             {"summary_activation"},
                             {"summary_first_dropout"},
                             {"summary_proj_to_labels"},
                             {"summary_type"},
                             {"summary_use_proj"},
                             {"prefix"},
                             {"problem_type"},
                             {"finetuning_task"},
                             {"id2label"},
                             {"label2id"},
                             {"num_labels"},
                             {"output_attentions"},
                             {"output_hidden_states"},
                             {"output_scores"},
                             {"return_dict"},
                             {"return_dict_in_generate"},
                             {"torchscript"},
                             {"use_bfloat16"},
                             {"chunk_size_feed_forward"},
                             {"pruned_heads"},
                             {"image_token_id"},
                             {"video_token_id"},
                             {"vision_start_token_id"},
                             {"vision_end_token_id"},
                             {"vision_config"},
                             {"use_sliding_window", "false"},
                             {"_remove_final_layer_norm", "false"},
                             {"is_encoder_decoder", "false"},
                             {"is_decoder"},
                             {"cross_attention_hidden_size"},
                             {"tie_encoder_decoder", "false"},
                             {"add_cross_attention", "false"},
                             {"rope_parameters.rope_type", "default"},
                             {"max_length", "20"},
                             {"min_length", "0"},
                             {"do_sample", "false"},
                             {"early_stopping", "false"},
                             {"num_beams", "1"},
                             {"num_beam_groups", "1"},
                             {"diversity_penalty", "0"},
                             {"temperature", "1"},
                             {"top_k", "50"},
                             {"top_p", "1"},
                             {"typical_p", "1"},
                             {"repetition_penalty", "1"},
                             {"length_penalty", "1"},
                             {"no_repeat_ngram_size", "0"},
                             {"encoder_no_repeat_ngram_size", "0"},
                             {"num_return_sequences", "1"},
                             {"remove_invalid_values", "false"}};

// Of generation_config.json: how transformers computes and what it returns, and values that switch nothing on.
constexpr Quiet kGeneration[] = {{"_from_model_config"},
                                 {"transformers_version"},
                                 {"trust_remote_code"},
                                 {"bos_token_id"},
                                 {"eos_token_id"},
                                 {"pad_token_id"},
                                 {"decoder_start_token_id"},
                                 {"use_cache"},
                                 {"cache_implementation"},
                                 {"cache_config"},
                                 {"max_cache_len"},
                                 {"return_legacy_cache"},
                                 {"compile_config"},
                                 {"disable_compile"},
                                 {"continuous_batching_config"},
                                 {"prefill_chunk_size"},
                                 {"low_memory"},
                                 {"output_attentions"},
                                 {"output_hidden_states"},
                                 {"output_scores"},
                                 {"output_logits"},
                                 {"return_dict_in_generate"},
                                 {"remove_invalid_values"},  // such a logit is an error here
                                 {"renormalize_logits"},
                                 {"encoder_repetition_penalty"},
                                 {"encoder_no_repeat_ngram_size"},
                                 {"length_penalty"},  // of beams, as the next one
                                 {"early_stopping"},
                                 {"prompt_lookup_num_tokens"},
                                 {"max_matching_ngram_size"},
                                 {"num_assistant_tokens"},
                                 {"num_assistant_tokens_schedule"},
                                 {"assistant_confidence_threshold"},
                                 {"assistant_early_exit"},
                                 {"assistant_ensemble_weight"},
                                 {"assistant_lookbehind"},
                                 {"target_lookbehind"},
                                 {"is_assistant"},
                                 {"speculation_type"},
                                 {"use_mtp"},
                                 {"min_length", "0"},
                                 {"num_beams", "1"},
                                 {"num_beam_groups", "1"},
                                 {"num_return_sequences", "1"},
                                 {"diversity_penalty", "0"},
                                 {"penalty_alpha", "0"},
                                 {"typical_p", "1"},
                                 {"epsilon_cutoff", "0"},
                                 {"eta_cutoff", "0"},
                                 {"guidance_scale", "1"},
                                 {"token_healing", "false"}};

// Of tokenizer_config.json: what tokenizer.json says, and how other programs load, batch and name things.
constexpr Quiet kTokenizer[] = {{"tokenizer_class"},
                                {"processor_class"},
                                {"auto_map"},
                                {"backend"},
                                {"name_or_path"},
                                {"tokenizer_file"},
                                {"special_tokens_map_file"},
                                {"local_files_only"},
                                {"is_local"},
                                {"use_fast"},
                                {"model_max_length"},
                                {"max_length"},
                                {"stride"},
                                {"padding"},
                                {"padding_side"},
                                {"pad_to_multiple_of"},
                                {"pad_token_type_id"},
                                {"truncation"},
                                {"truncation_side"},
                                {"truncation_strategy"},
                                {"model_input_names"},
                                {"return_token_type_ids"},
                                {"extra_special_tokens"},
                                {"model_specific_special_tokens"},
                                {"add_prefix_space"},
                                {"legacy"},
                                {"sp_model_kwargs"},
                                {"errors"},
                                {"clean_up_tokenization_spaces"},
                                {"spaces_between_special_tokens"},
                                {"split_special_tokens", "false"},
                                {"use_default_system_prompt"},
                                {"chat_template"}};  // where a file of its own comes before it

// Of a GGUF file, behind the architecture too.
constexpr std::string_view kGgufPrefixes[] = {"general.", "quantize.", "split.", "tokenizer.chat_template"};
constexpr std::string_view kGgufKeys[] = {"tokenizer.ggml.padding_token_id",
                                          "tokenizer.ggml.unknown_token_id",
                                          "tokenizer.ggml.seperator_token_id",
                                          "tokenizer.ggml.separator_token_id",
                                          "tokenizer.ggml.cls_token_id",
                                          "tokenizer.ggml.mask_token_id",
                                          "tokenizer.ggml.prefix_token_id",
                                          "tokenizer.ggml.suffix_token_id",
                                          "tokenizer.ggml.middle_token_id",
                                          "tokenizer.ggml.fim_pre_token_id",
                                          "tokenizer.ggml.fim_suf_token_id",
                                          "tokenizer.ggml.fim_mid_token_id",
                                          "tokenizer.ggml.fim_pad_token_id",
                                          "tokenizer.ggml.fim_rep_token_id",
                                          "tokenizer.ggml.fim_sep_token_id",
                                          "tokenizer.ggml.token_type_count",
                                          "tokenizer.ggml.scores",
                                          "tokenizer.ggml.merges",
                                          "tokenizer.ggml.pre",
                                          "tokenizer.huggingface.json"};
constexpr std::string_view kGgufArchitectureKeys[] = {"vocab_size", "tensor_data_layout", "rope.scaling.finetuned",
                                                      "rope.dimension_sections"};

bool IsValue(const JsonValue& found, const char* value) {
  if (found.is_string()) return found.text() == value;
  if (found.is_number()) {
    char* end = nullptr;
    const double number = std::strtod(value, &end);
    return *end == '\0' && found.GetFloat("").value() == number;
  }
  return found.is_bool() && found.Describe() == value;
}

constexpr std::string_view kLanguageModel = "text_config.";  // in front of keys of a model that also reads images

bool IsQuiet(const JsonValue& member, std::span<const Quiet> quiet) {
  std::string path = member.path();
  if (path.starts_with(kLanguageModel)) path.erase(0, kLanguageModel.size());
  return std::any_of(quiet.begin(), quiet.end(), [&](const Quiet& known) {
    return known.key == path && (known.value == nullptr || IsValue(member, known.value));
  });
}

void Add(const JsonDocument* document, std::span<const Quiet> quiet, bool names_tokens,
         std::vector<UnreadSettings>* unread) {
  if (document == nullptr) return;
  UnreadSettings found{.file = document->name(), .keys = {}};
  for (const JsonValue& member : document->Unread()) {
    // "image_token" and the like, in tokenizer_config.json: tokens that only other inputs than text need.
    const std::string path = member.path();
    const bool is_token = names_tokens && path.ends_with("_token") && !path.starts_with("add_");
    if (!is_token && !IsQuiet(member, quiet)) found.keys.push_back(path);
  }
  if (!found.keys.empty()) unread->push_back(std::move(found));
}

// The text of a token that is a string, or an object as tokenizer.json has them; empty: it is neither.
std::string_view ContentOf(const JsonValue& token) {
  const auto content = token.is_object() ? token.Peek("content") : std::optional(token);
  return content ? content->text() : std::string_view();
}

// {"7": {"content": "<s>"}}
bool HasTokensById(const std::optional<JsonValue>& tokens, const Tokenizer& tokenizer) {
  if (!tokens || !tokens->is_object()) return false;
  const auto keys = tokens->Keys();
  return std::all_of(keys.begin(), keys.end(), [&](std::string_view key) {
    const auto token = tokens->Peek(key);
    const std::optional<int32_t> id = token ? tokenizer.FindToken(ContentOf(*token)) : std::nullopt;
    return id && std::to_string(*id) == key;
  });
}

bool HasSpecialTokens(const std::optional<JsonValue>& tokens, const Tokenizer& tokenizer) {
  if (!tokens || !tokens->is_array()) return false;
  const auto elements = tokens->Elements();
  return std::all_of(elements.begin(), elements.end(), [&](const JsonValue& token) {
    const std::optional<int32_t> id = tokenizer.FindToken(ContentOf(token));
    return id && tokenizer.IsSpecial(*id);
  });
}

bool IsQuietGguf(std::string_view key, std::string_view architecture, ReadPart part) {
  const auto begins = [key](std::string_view prefix) { return key.starts_with(prefix); };
  const bool is_text = key.starts_with("tokenizer."), is_sampling = key.starts_with("general.sampling.");
  if (part == ReadPart::kModel && (is_text || is_sampling)) return true;
  if (part == ReadPart::kText && !is_text) return true;
  if (is_sampling) return false;
  if (std::any_of(std::begin(kGgufPrefixes), std::end(kGgufPrefixes), begins)) return true;
  if (std::find(std::begin(kGgufKeys), std::end(kGgufKeys), key) != std::end(kGgufKeys)) return true;
  if (!key.starts_with(architecture) || key.size() <= architecture.size()) return false;
  const std::string_view rest = key.substr(architecture.size() + 1);
  return std::find(std::begin(kGgufArchitectureKeys), std::end(kGgufArchitectureKeys), rest) !=
         std::end(kGgufArchitectureKeys);
}

}  // namespace

std::vector<UnreadSettings> ListUnread(const ModelFiles& files, ReadPart part) {
  std::vector<UnreadSettings> unread;
  if (const GgufFile* gguf = files.gguf()) {
    const auto architecture = gguf->GetStringOr("general.architecture", "");
    UnreadSettings found{.file = "metadata", .keys = {}};
    for (const std::string_view key : gguf->UnreadKeys()) {
      if (!IsQuietGguf(key, architecture.ok() ? *architecture : "", part)) found.keys.emplace_back(key);
    }
    if (!found.keys.empty()) unread.push_back(std::move(found));
    return unread;
  }
  if (part != ReadPart::kText) Add(files.config(), kConfig, false, &unread);
  if (part == ReadPart::kAll) Add(files.generation_config(), kGeneration, false, &unread);
  if (part != ReadPart::kModel) Add(files.tokenizer_config(), kTokenizer, true, &unread);
  return unread;
}

void TakeWhatTokenizerDoes(const ModelFiles& files, const Tokenizer& tokenizer) {
  const JsonDocument* config = files.tokenizer_config();
  if (config == nullptr) return;
  for (const auto& [key, does] :
       {std::pair{"add_bos_token", tokenizer.adds_bos()}, {"add_eos_token", tokenizer.adds_eos()}}) {
    const auto stated = config->Peek(key);
    if (stated && stated->is_bool() && stated->GetBool("").value() == does) static_cast<void>(config->Find(key));
  }
  if (HasTokensById(config->Peek("added_tokens_decoder"), tokenizer))
    static_cast<void>(config->Find("added_tokens_decoder")->Members());
  if (HasSpecialTokens(config->Peek("additional_special_tokens"), tokenizer))
    static_cast<void>(config->Find("additional_special_tokens"));
}

}  // namespace tidemill
