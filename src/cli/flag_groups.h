// Flags that several commands share, and what they ask of the library.
#ifndef TIDEMILL_CLI_FLAG_GROUPS_H_
#define TIDEMILL_CLI_FLAG_GROUPS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/attention_flags.h"
#include "cli/flags.h"
#include "tidemill/engine.h"
#include "tidemill/generation.h"
#include "tidemill/model.h"
#include "tidemill/policies.h"
#include "tidemill/result.h"

namespace tidemill::cli {

// How a model runs on this machine.
struct MachineFlags {
  std::optional<size_t> threads;
  std::optional<size_t> context;
  std::optional<size_t> kv_increment, max_batch, prefill_chunk, linear_buffer, linear_start;
  std::optional<uint64_t> state_memory;
  std::optional<std::string> isa, dtype, kv_dtype, kv_policy, weights, prefix_cache, linear_form, linear_dtype;
  std::optional<RopeOverride> rope_scaling;
  AttentionFlags attention;

  // `context_help`: what --context means to this command.
  void AddTo(FlagSet& flags, const std::string& context_help = "Positions of the state (the model's own)");
  // All but `attention`; for commands that choose it themselves.
  void AddWithoutAttentionTo(FlagSet& flags,
                             const std::string& context_help = "Positions of the state (the model's own)");
  // For commands that answer prompts.
  void AddPrefixCacheTo(FlagSet& flags);
  // How many requests share them; for commands that run more than one.
  void AddSharingTo(FlagSet& flags);
  LoadOptions load_options() const;
  // kInvalidArgument for a KV type or policy that there is not. As AttentionFlags::policy.
  Result<EngineOptions> engine_options() const;
};

// Draft tokens for the next tokens.
struct DraftFlags {
  std::optional<DraftSource> source;
  std::string model;           // of kModel: its path; empty: the model's own draft head
  size_t layers = 0;           // of kLayers
  AttentionPolicy sparq = {};  // of kSparq
  std::optional<size_t> min_draft_tokens, num_draft_tokens, ngram_min, ngram_max, threads;
  std::optional<float> min_probability;
  std::optional<std::string> tree;

  void AddTo(FlagSet& flags);
  // Of them those that say who drafts, how much and with what.
  void AddSourceTo(FlagSet& flags);
  // What can be known before a model is loaded.
  Result<void> Check() const;
  DraftOptions options() const;
};

// What is generated. Only what was given replaces what the model file recommends.
struct GenerationFlags {
  std::optional<int32_t> max_new_tokens, min_new_tokens, top_k, no_repeat_ngram_size, logprobs;
  std::optional<float> temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<uint64_t> seed;
  std::vector<std::pair<int32_t, float>> logit_bias;
  std::vector<std::string> stop;
  bool ignore_eos = false, allow_repetition = false;

  void AddTo(FlagSet& flags);
  GenerationOptions ApplyTo(GenerationOptions options) const;
  // Ranges, before a model of any size is loaded.
  Result<void> CheckRanges() const;
};

}  // namespace tidemill::cli

#endif  // TIDEMILL_CLI_FLAG_GROUPS_H_
