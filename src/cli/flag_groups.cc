#include "cli/flag_groups.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <string_view>
#include <system_error>
#include <utility>

#include "cli/errors.h"
#include "cli/flags.h"
#include "cli/numbers.h"

namespace tidemill::cli {
namespace {

// "42=-100"; "42=-inf": never.
std::string ReadLogitBias(const std::string& text, std::vector<std::pair<int32_t, float>>& target) {
  const size_t equals = text.find('=');
  const std::string_view view = text;
  const auto id = ParseNumber<int32_t>(view.substr(0, equals));
  auto bias = equals == std::string::npos ? std::nullopt : ParseNumber<float>(view.substr(equals + 1));
  if (equals != std::string::npos && view.substr(equals + 1) == "-inf") bias = -std::numeric_limits<float>::infinity();
  if (!id || !bias) return "ID=BIAS, as in 42=-100 or 42=-inf";
  target.emplace_back(*id, *bias);
  return "";
}

// "1000", "512M": K, M, G and T are powers of 1024.
std::string ReadBytes(const std::string& text, std::optional<uint64_t>& target) {
  constexpr std::string_view kUnits = "KMGT";
  const size_t unit = text.empty() ? std::string_view::npos : kUnits.find(text.back());
  const size_t shift = unit == std::string_view::npos ? 0 : 10 * (unit + 1);
  const auto number = ParseNumber<uint64_t>(std::string_view(text).substr(0, text.size() - (shift != 0 ? 1 : 0)));
  if (!number || *number == 0 || *number > (std::numeric_limits<uint64_t>::max() >> shift))
    return "bytes, as in 1000000, 512M or 4G";
  target = *number << shift;
  return "";
}

// A folder for what should not be in memory: /tmp often is.
std::string SpillFolder() {
  const char* folder = std::getenv("TMPDIR");
  return folder != nullptr && *folder != '\0' ? folder : "/var/tmp";
}

// "r=16,k=128": what is given, of both or one.
bool ReadSparqDraft(std::string_view text, AttentionPolicy& target) {
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    const auto number = part.size() < 3 ? std::nullopt : ParseNumber<size_t>(part.substr(2));
    if (!number || *number == 0) return false;
    if (part.starts_with("r=")) {
      target.r = *number;
    } else if (part.starts_with("k=")) {
      target.k = *number;
    } else {
      return false;
    }
    text.remove_prefix(part.size());
    if (text.empty()) return true;
    text.remove_prefix(1);
  }
  return false;
}

// "ngram", "mtp", "layers:4", "sparq", or what there is a file or folder of.
std::string ReadDraft(const std::string& text, DraftFlags& target) {
  constexpr std::string_view kLayers = "layers:", kSparq = "sparq:";
  if (text == "ngram") {
    target.source = DraftSource::kNgram;
  } else if (text == "mtp") {
    target.source = DraftSource::kModel;
    target.model.clear();
  } else if (text == "sparq" || text.starts_with(kSparq)) {
    target.source = DraftSource::kSparq;
    target.sparq = {.kind = AttentionKind::kSparq};
    if (text != "sparq" && !ReadSparqDraft(std::string_view(text).substr(kSparq.size()), target.sparq))
      return "sparq or sparq:r=N,k=N with whole numbers of at least 1";
  } else if (text.starts_with(kLayers)) {
    const auto layers = ParseNumber<size_t>(std::string_view(text).substr(kLayers.size()));
    if (!layers || *layers == 0) return "layers:M with a whole number of at least 1";
    target.source = DraftSource::kLayers;
    target.layers = *layers;
  } else {
    std::error_code ignored;
    if (!std::filesystem::exists(text, ignored))
      return "ngram, mtp, layers:M, sparq or the path of a model that exists";
    target.source = DraftSource::kModel;
    target.model = text;
  }
  return "";
}

// "yarn=4"
std::string ReadRopeScaling(const std::string& text, std::optional<RopeOverride>& target) {
  const size_t equals = text.find('=');
  const std::string_view view = text, kind = view.substr(0, equals);
  const auto factor = equals == std::string::npos ? std::nullopt : ParseNumber<double>(view.substr(equals + 1));
  if ((kind != "linear" && kind != "yarn") || !factor || !(*factor > 1 && *factor <= kMaxRopeFactor))
    return "linear=FACTOR or yarn=FACTOR with a factor above 1 and at most " + NumberText(kMaxRopeFactor);
  target = RopeOverride{.kind = kind == "linear" ? RopeKind::kLinear : RopeKind::kYarn, .factor = *factor};
  return "";
}

}  // namespace

void MachineFlags::AddTo(FlagSet& flags, const std::string& context_help) {
  AddWithoutAttentionTo(flags, context_help);
  attention.AddTo(flags);
  flags.Group("Machine");
}

void MachineFlags::AddWithoutAttentionTo(FlagSet& flags, const std::string& context_help) {
  flags.Group("Machine");
  flags.Number<size_t>("-t,--threads", threads, 1, kMaxThreads, "Threads (physical cores that we may use)");
  flags.Number<size_t>("-c,--context", context, 1, size_t{1} << 30, context_help);
  flags.Choice("--isa", isa, {"baseline", "avx2", "avx512", "avx512-vnni", "avx512-bf16"},
               "Instruction set (the best the CPU has, on an Intel avx512-vnni); avx512-bf16 computes in BF16 where "
               "weights are in it");
  flags.Choice("--dtype", dtype, {"auto", "f32"}, "f32: compute with f32 weights, activations and state (auto)");
  flags.Choice("--kv-dtype", kv_dtype, {"f32", "f16", "bf16", "q8_0"},
               "Type of the stored keys and values (f16); q8_0: 53 % of the memory of f16");
  flags.Choice("--kv-policy", kv_policy, {"iterative", "upfront", "bmc", "geometric", "reserve", "paged"},
               "How far ahead the state is allocated (bmc); answers are the same");
  flags.Number<size_t>("--kv-increment", kv_increment, 1, size_t{1} << 30,
                       "Rows by which bmc, reserve and paged grow (bmc: as tidemill plan says; 256, or the context)");
  flags.Removed("--kv-period", "give --kv-increment");
  flags.Choice("--linear-form", linear_form, {"auto", "recurrent", "buffered", "kv"},
               "When linear attention writes its state: after each token; after --linear-buffer tokens; so, but not "
               "before --linear-start tokens (by the model's shape)");
  flags.Number<size_t>(
      "--linear-buffer", linear_buffer, 1, LinearPolicy::kMaxTokens,
      "Tokens that linear attention keeps before it writes them into its state (by the model's shape)");
  flags.Number<size_t>(
      "--linear-start", linear_start, 1, LinearPolicy::kMaxTokens,
      "Tokens that it keeps before it makes a state, at least --linear-buffer (as many; of kv by the model's shape)");
  flags.Choice("--linear-buffer-dtype", linear_dtype, {"f32", "bf16"}, "Type of what it keeps (f32)");
  flags.Choice("--weights", weights, {"packed", "mapped"},
               "packed: rearranged for speed; mapped: read from the file, no memory of their own (packed)");
  flags.Value(
      "--rope-scaling", "linear|yarn=FACTOR",
      "Stretch the model's rotary positions, so that --context may be up to FACTOR times its own (as the file has it)",
      [this](const std::string& text) { return ReadRopeScaling(text, rope_scaling); });
}

void MachineFlags::AddPrefixCacheTo(FlagSet& flags) {
  flags.Choice("--prefix-cache", prefix_cache, {"on", "off"},
               "Whether what prompts begin with in common is computed once (on); answers are the same");
}

void MachineFlags::AddSharingTo(FlagSet& flags) {
  flags.Number<size_t>("--max-batch", max_batch, 1, 1024, "Requests in one step (32)");
  flags.Number<size_t>("--prefill-chunk", prefill_chunk, 1, 8192, "Rows of prompts in one step (by the model's size)");
  flags.Value("--state-memory", "BYTES", "For the states of all requests, as 512M or 4G (half of what is free)",
              [this](const std::string& text) { return ReadBytes(text, state_memory); });
}

LoadOptions MachineFlags::load_options() const {
  LoadOptions options;
  options.f32 = dtype == "f32";
  options.weights = weights == "mapped" ? WeightStorage::kMapped : WeightStorage::kPacked;
  options.threads = threads.value_or(0);
  options.rope_scaling = rope_scaling;
  return options;
}

Result<EngineOptions> MachineFlags::engine_options() const {
  EngineOptions options;
  options.threads = threads.value_or(0);
  options.isa = isa.value_or("");
  options.context = context.value_or(0);
  if (kv_dtype) {
    TIDEMILL_TRY(kv_type, ParseKvType(*kv_dtype));
    options.kv_type = kv_type;
  }
  if (kv_policy) {
    TIDEMILL_TRY(policy, ParseKvPolicy(*kv_policy));
    options.kv_policy = policy;
  }
  options.kv_increment = kv_increment.value_or(0);
  TIDEMILL_TRY(form, ParseLinearForm(linear_form.value_or("auto")));
  options.linear = {.form = form,
                    .buffer = linear_buffer.value_or(0),
                    .start = linear_start.value_or(0),
                    .bfloat16 = linear_dtype == "bf16"};
  TIDEMILL_TRY(attends, attention.policy());
  options.attention = std::move(attends);
  if (max_batch) options.max_batch = *max_batch;
  options.prefill_chunk = prefill_chunk.value_or(0);
  options.state_memory = state_memory.value_or(0);
  options.spill_folder = SpillFolder();
  options.prefix_cache = prefix_cache != "off";
  return options;
}

void DraftFlags::AddSourceTo(FlagSet& flags) {
  flags.Group("Drafts");
  flags.Removed("--draft-accept", "answers with --draft are always those of plain decoding; leave it out");
  flags.Value("--draft", "ngram|mtp|layers:M|sparq|MODEL",
              "Draft the next tokens and check them in one step; answers are the same. ngram: what followed the last "
              "tokens before, in prompt or answer; mtp: by the draft head in the model's own files (Qwen3-Next, "
              "Qwen3.5); layers:M: by the model's first M layers; sparq, sparq:r=N,k=N: by the model itself with "
              "sparse attention; MODEL: by a smaller model with the same vocabulary, or "
              "by a draft head of this one (EAGLE)",
              [this](const std::string& text) { return ReadDraft(text, *this); });
  flags.Number<size_t>("--draft-max", num_draft_tokens, 1, DraftOptions::kMax,
                       "Draft tokens in a step, at most (8; of a tree 25)");
  flags.Number<size_t>("--draft-min", min_draft_tokens, 0, DraftOptions::kMax,
                       "And at least (0): between the two, as many as make most tokens a second");
  flags.Number<size_t>("--draft-threads", threads, 1, kMaxThreads,
                       "Threads of a draft model's steps, at most those of --threads (as many); answers are the same");
  for (const char* flag : {"--draft-max", "--draft-min", "--draft-threads"}) flags.Needs(flag, "--draft");
}

void DraftFlags::AddTo(FlagSet& flags) {
  AddSourceTo(flags);
  flags.Choice(
      "--draft-tree", tree, {"chain", "fixed", "dynamic", "optimal"},
      "Shape of a draft model's draft tokens (chain): of a tree several stand at the same place. fixed: 25 nodes, "
      "five deep; "
      "dynamic: those that the draft model thinks likeliest; optimal: by what was right so far");
  flags.Number<float>("--draft-p-min", min_probability, 0, 1,
                      "A draft ends where the draft model thinks no token as likely (0); refused with ngram");
  flags.Number<size_t>("--ngram-min", ngram_min, 1, 1024, "Tokens that must agree before ngram drafts (3)");
  flags.Number<size_t>("--ngram-max", ngram_max, 1, 1024,
                       "Tokens that are looked up at most, at their latest place (as many as agree)");
  for (const char* flag : {"--draft-tree", "--draft-p-min", "--ngram-min", "--ngram-max"}) flags.Needs(flag, "--draft");
}

Result<void> DraftFlags::Check() const {
  const DraftOptions draft = options();
  if (draft.tree != DraftTreeKind::kChain && draft.source == DraftSource::kNgram) {
    return UsageError("--draft-tree", "expected chain with --draft ngram, which drafts one way to go on, found " +
                                          *tree + "; give --draft layers:M, sparq or a model");
  }
  if (threads && draft.source == DraftSource::kNgram) {
    return UsageError(
        "--draft-threads",
        "expected --draft layers:M, sparq or a model, whose steps use threads, found ngram, which makes none");
  }
  if (min_probability && draft.source == DraftSource::kNgram) {
    return UsageError(
        "--draft-p-min",
        "expected --draft layers:M, sparq or a model, which says how likely a draft token is, found ngram, which "
        "does not");
  }
  if ((ngram_min || ngram_max) && draft.source != DraftSource::kNgram) {
    return UsageError(ngram_min ? "--ngram-min" : "--ngram-max",
                      "expected --draft ngram, which looks tokens up, found " +
                          (draft.source == DraftSource::kSparq   ? "sparq"
                           : draft.source != DraftSource::kModel ? "layers:" + std::to_string(layers)
                           : model.empty()                       ? "mtp"
                                                                 : "the model " + model));
  }
  if (draft.ngram_max != 0 && draft.ngram_max < draft.ngram_min) {
    return UsageError("--ngram-max", "expected at least --ngram-min, which is " + std::to_string(draft.ngram_min) +
                                         ", found " + std::to_string(draft.ngram_max));
  }
  if (draft.min_draft_tokens <= draft.num_draft_tokens) return {};
  return UsageError("--draft-min", "expected at most --draft-max, which is " + std::to_string(draft.num_draft_tokens) +
                                       ", found " + std::to_string(draft.min_draft_tokens));
}

DraftOptions DraftFlags::options() const {
  DraftOptions options;
  if (!source) return options;
  options.source = *source;
  options.layers = layers;
  if (*source == DraftSource::kSparq) options.sparq = sparq;
  if (tree == "fixed") options.tree = DraftTreeKind::kFixed;
  if (tree == "dynamic") options.tree = DraftTreeKind::kDynamic;
  if (tree == "optimal") options.tree = DraftTreeKind::kOptimal;
  options.num_draft_tokens = num_draft_tokens.value_or(options.tree == DraftTreeKind::kChain ? 8 : 25);
  options.min_draft_tokens = min_draft_tokens.value_or(options.min_draft_tokens);
  options.ngram_min = ngram_min.value_or(options.ngram_min);
  options.ngram_max = ngram_max.value_or(options.ngram_max);
  options.min_probability = min_probability.value_or(options.min_probability);
  return options;
}

void GenerationFlags::AddTo(FlagSet& flags) {
  flags.Group("Generation");
  // The ranges that mean something are the library's: Validate names them.
  const auto whole = [&](const char* names, std::optional<int32_t>& target, const char* help) {
    constexpr int32_t kLow = std::numeric_limits<int32_t>::min(), kHigh = std::numeric_limits<int32_t>::max();
    flags.Number<int32_t>(names, target, kLow, kHigh, help);
  };
  const auto real = [&](const char* names, std::optional<float>& target, const char* help) {
    constexpr float kLargest = std::numeric_limits<float>::max();
    flags.Number<float>(names, target, -kLargest, kLargest, help);
  };
  whole("-n,--max-new-tokens", max_new_tokens, "At most this many tokens (2048)");
  whole("--min-new-tokens", min_new_tokens, "No end of sequence before this many tokens (0)");
  real("--temperature,--temp", temperature,
       "0: the most likely token; higher: more varied (as the model's files say, else 0.8)");
  whole("--top-k", top_k, "Draw from the N most likely tokens; 0: from all (as the files say, else 40)");
  real("--top-p", top_p,
       "Draw from the most likely tokens that together hold this probability (as the files say, else 0.95)");
  real("--min-p", min_p, "Draw from tokens at least this likely compared with the best (as the files say, else 0.05)");
  real("--repetition-penalty", repetition_penalty, "Above 1: tokens of prompt and answer become less likely");
  real("--presence-penalty", presence_penalty, "Taken from the logit of every token in the answer");
  real("--frequency-penalty", frequency_penalty, "The same, times how often it is there");
  whole("--no-repeat-ngram-size", no_repeat_ngram_size, "No N tokens in a row twice; 0: off");
  flags.RepeatedValue("--logit-bias", "ID=BIAS", "Added to the logit of token ID; -inf bans it; may be repeated",
                      [this](const std::string& text) { return ReadLogitBias(text, logit_bias); });
  flags.Texts("--stop", stop, "TEXT", "The answer ends before this text; may be repeated");
  flags.Number<uint64_t>("--seed", seed, 0, std::numeric_limits<uint64_t>::max(),
                         "Of the draws (random; --stats and --json show it)");
  flags.Switch("--ignore-eos", ignore_eos, "An end-of-sequence token does not end the answer");
  flags.Switch("--allow-repetition", allow_repetition,
               "An answer goes on where its last 256 tokens have a period of at most 64");
  whole("--logprobs", logprobs, "With --json: log-probability of each token and of the N most likely ones");
}

GenerationOptions GenerationFlags::ApplyTo(GenerationOptions options) const {
  if (max_new_tokens) options.max_new_tokens = *max_new_tokens;
  options.min_new_tokens = min_new_tokens.value_or(options.min_new_tokens);
  // A limit that is given comes before a least number that was not.
  if (max_new_tokens && !min_new_tokens) options.min_new_tokens = std::min(options.min_new_tokens, *max_new_tokens);
  options.temperature = temperature.value_or(options.temperature);
  options.top_k = top_k.value_or(options.top_k);
  options.top_p = top_p.value_or(options.top_p);
  options.min_p = min_p.value_or(options.min_p);
  options.repetition_penalty = repetition_penalty.value_or(options.repetition_penalty);
  options.presence_penalty = presence_penalty.value_or(options.presence_penalty);
  options.frequency_penalty = frequency_penalty.value_or(options.frequency_penalty);
  options.no_repeat_ngram_size = no_repeat_ngram_size.value_or(options.no_repeat_ngram_size);
  options.logprobs = logprobs.value_or(options.logprobs);
  options.seed = seed.value_or(options.seed);
  if (!logit_bias.empty()) options.logit_bias = logit_bias;
  if (!stop.empty()) options.stop = stop;
  options.ignore_eos = options.ignore_eos || ignore_eos;
  options.stop_at_repetition = options.stop_at_repetition && !allow_repetition;
  return options;
}

Result<void> GenerationFlags::CheckRanges() const { return Validate(ApplyTo(GenerationOptions{}), size_t{1} << 31); }

}  // namespace tidemill::cli
