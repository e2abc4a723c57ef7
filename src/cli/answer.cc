#include "cli/answer.h"

#include <algorithm>
#include <cstdio>
#include <tuple>
#include <utility>

#include "cli/errors.h"

namespace tidemill::cli {
namespace {

// Of the last one, which stands for all that are wider.
std::string StepCountName(size_t width) {
  return std::to_string(width) + (width + 1 == DraftStats::kStepCounts ? "+" : "");
}

// Accepted draft tokens of a step that had some.
double PerStep(const RequestStats& stats) {
  return static_cast<double>(stats.accepted_tokens) / static_cast<double>(std::max(1U, stats.drafts.drafted[0]));
}

// As OpenAI's API has it, and the id: the text of a token, U+FFFD for what is no UTF-8 alone, and its bytes.
Json TokenJson(int32_t id, float logprob, const Tokenizer& tokenizer) {
  const std::string_view text = tokenizer.TokenBytes(id);
  Json bytes = Json::array();
  for (const char byte : text) bytes.push_back(static_cast<unsigned>(static_cast<unsigned char>(byte)));
  return {{"id", id}, {"token", text}, {"logprob", logprob}, {"bytes", std::move(bytes)}};
}

Json LogprobsJson(const Answer& answer, const Tokenizer& tokenizer) {
  Json list = Json::array();
  for (const AnswerToken& token : answer.tokens) {
    Json top = Json::array();
    for (const TokenLogprob& other : token.top_logprobs) top.push_back(TokenJson(other.id, other.logprob, tokenizer));
    Json json = TokenJson(token.id, token.logprob, tokenizer);
    json["top_logprobs"] = std::move(top);
    list.push_back(std::move(json));
  }
  return list;
}

Json DraftJson(const RequestStats& stats) {
  const DraftStats& drafts = stats.drafts;
  Json acceptance = Json::array(), widths = Json::object();
  for (size_t i = 0; i < DraftStats::kPositions && drafts.drafted[i] != 0; ++i)
    acceptance.push_back(drafts.AcceptanceRate(i));
  for (size_t i = 0; i < DraftStats::kStepCounts; ++i) {
    if (drafts.steps_by_draft_tokens[i] != 0) widths[StepCountName(i)] = drafts.steps_by_draft_tokens[i];
  }
  return {{"drafted", stats.drafted_tokens},
          {"accepted", stats.accepted_tokens},
          {"accepted_with_bonus", stats.accepted_tokens + drafts.bonuses},
          {"accepted_later_siblings", drafts.later_siblings},
          {"accepted_per_step", PerStep(stats)},
          {"acceptance_rate", std::move(acceptance)},
          {"steps_by_draft_tokens", std::move(widths)},
          {"cut", drafts.cut},
          {"grown", drafts.grown},
          {"draft_prefill_ms", drafts.draft_prefill_ms}};
}

Json LinearJson(const LinearStats& linear) {
  return {{"form", LinearFormName(linear.form)},
          {"start", linear.start},
          {"buffer", linear.buffer},
          {"dtype", linear.bfloat16 ? "bf16" : "f32"},
          {"boundaries", linear.boundaries},
          {"state_writes", linear.state_writes},
          {"state_bytes", linear.state_bytes}};
}

// Those of sparq and topk that saw more than k positions.
bool HasEstimate(AttentionKind kind, const SparseStats::Counts& counts) {
  return (kind == AttentionKind::kSparq || kind == AttentionKind::kTopk) && counts.rows != counts.short_rows;
}

Json CountsJson(AttentionKind kind, const SparseStats::Counts& counts) {
  Json json = {{"rows", counts.rows}, {"short_rows", counts.short_rows}};
  if (HasEstimate(kind, counts)) {
    json["alpha_estimate"] = counts.alpha_estimate;
    json["dense_share"] = counts.dense_share;
  }
  json.update({{"bytes", counts.bytes}, {"dense_bytes", counts.dense_bytes}, {"audits", counts.audits}});
  if (counts.audits == 0) return json;
  json["kept_mass"] = counts.kept_mass;
  json["error"] = counts.error;
  json["agreement"] = counts.agreement;
  return json;
}

Json AttentionJson(const SparseStats& attention) {
  Json json = {{"kind", AttentionKindName(attention.kind)}, {"k", attention.k}, {"local", attention.local}};
  if (attention.kind == AttentionKind::kSparq) {
    json["r"] = attention.r;
    json["mean"] = attention.reallocate;
    json["columns"] = attention.columns;
  }
  if (attention.kind == AttentionKind::kSparq || attention.kind == AttentionKind::kTopk)
    json["rule"] = attention.rule == SparqRule::kEval ? "eval" : "paper";
  json.update(CountsJson(attention.kind, attention.all));
  Json layers = Json::array();
  for (const SparseStats::Layer& layer : attention.layers) {
    Json one = {{"layer", layer.layer}};
    one.update(CountsJson(attention.kind, layer.counts));
    layers.push_back(std::move(one));
  }
  json["layers"] = std::move(layers);
  return json;
}

// Means are weighted by what they are means of.
void AddCounts(const SparseStats::Counts& counts, SparseStats::Counts* sum) {
  const auto mean = [](double a, uint64_t of_a, double b, uint64_t of_b) {
    const auto all = static_cast<double>(of_a + of_b);
    return all == 0 ? 0 : (a * static_cast<double>(of_a) + b * static_cast<double>(of_b)) / all;
  };
  const uint64_t before = sum->rows - sum->short_rows, added = counts.rows - counts.short_rows;
  sum->alpha_estimate = mean(sum->alpha_estimate, before, counts.alpha_estimate, added);
  sum->dense_share = mean(sum->dense_share, before, counts.dense_share, added);
  sum->kept_mass = mean(sum->kept_mass, sum->audits, counts.kept_mass, counts.audits);
  sum->error = mean(sum->error, sum->audits, counts.error, counts.audits);
  sum->agreement = mean(sum->agreement, sum->audits, counts.agreement, counts.audits);
  sum->rows += counts.rows;
  sum->short_rows += counts.short_rows;
  sum->bytes += counts.bytes;
  sum->dense_bytes += counts.dense_bytes;
  sum->audits += counts.audits;
}

}  // namespace

void AddAttention(const RequestStats& stats, RequestStats* sum) {
  if (!stats.attention) return;
  const SparseStats& one = *stats.attention;
  if (!sum->attention) {
    sum->attention = one;
    sum->attention->layers.clear();
    return;
  }
  SparseStats& all = *sum->attention;
  const auto policy = [](const SparseStats& of) {
    return std::tuple(of.kind, of.r, of.k, of.local, of.rule, of.reallocate);
  };
  if (policy(one) != policy(all)) all.kind = AttentionKind::kAuto;
  all.columns = all.columns && one.columns;
  AddCounts(one.all, &all.all);
}

void AddDrafts(const RequestStats& stats, RequestStats* sum) {
  sum->drafted_tokens += stats.drafted_tokens;
  sum->accepted_tokens += stats.accepted_tokens;
  for (size_t i = 0; i < DraftStats::kPositions; ++i) {
    sum->drafts.drafted[i] += stats.drafts.drafted[i];
    sum->drafts.accepted[i] += stats.drafts.accepted[i];
  }
  for (size_t i = 0; i < DraftStats::kStepCounts; ++i)
    sum->drafts.steps_by_draft_tokens[i] += stats.drafts.steps_by_draft_tokens[i];
  sum->drafts.bonuses += stats.drafts.bonuses;
  sum->drafts.cut += stats.drafts.cut;
  sum->drafts.grown += stats.drafts.grown;
  sum->drafts.later_siblings += stats.drafts.later_siblings;
  sum->drafts.draft_prefill_ms += stats.drafts.draft_prefill_ms;
  if (sum->draft_trouble.empty()) sum->draft_trouble = stats.draft_trouble;
}

std::string DescribeDrafts(const RequestStats& stats) {
  if (stats.drafted_tokens == 0) return "";
  const DraftStats& drafts = stats.drafts;
  char number[32];
  std::snprintf(number, sizeof number, "%.2f", PerStep(stats));
  std::string text = "drafts       " + std::to_string(stats.drafted_tokens) + " drafted, " +
                     std::to_string(stats.accepted_tokens) + " accepted (" +
                     std::to_string(stats.accepted_tokens + drafts.bonuses) + " with bonus tokens), ";
  if (drafts.later_siblings != 0) text += std::to_string(drafts.later_siblings) + " of them not the first sibling, ";
  text += std::string(number) + " a step; acceptance rate by depth";
  for (size_t i = 0; i < DraftStats::kPositions && drafts.drafted[i] != 0; ++i) {
    std::snprintf(number, sizeof number, " %.0f %%", 100 * drafts.AcceptanceRate(i));
    text += number;
  }
  text += "; steps by number of draft tokens";
  for (size_t i = 0; i < DraftStats::kStepCounts; ++i) {
    if (drafts.steps_by_draft_tokens[i] != 0)
      text += " " + StepCountName(i) + ":" + std::to_string(drafts.steps_by_draft_tokens[i]);
  }
  if (drafts.cut != 0) text += "; " + std::to_string(drafts.cut) + " steps cut to unused rows";
  if (drafts.grown != 0) text += "; KV cache grown early in " + std::to_string(drafts.grown) + " steps";
  if (drafts.draft_prefill_ms > 0) {
    std::snprintf(number, sizeof number, "%.1f", drafts.draft_prefill_ms);
    text += std::string("; draft prefill ") + number + " ms";
  }
  return text + "\n";
}

std::string DescribeAttention(const RequestStats& stats) {
  const std::string chosen = stats.attention_reason.empty() ? "" : "; chosen by " + std::string(stats.attention_reason);
  if (!stats.attention) return chosen.empty() ? "" : "attention    dense" + chosen + "\n";
  const SparseStats& attention = *stats.attention;
  const SparseStats::Counts& all = attention.all;
  const double share = all.dense_bytes == 0 ? 1 : static_cast<double>(all.bytes) / static_cast<double>(all.dense_bytes);
  const bool is_sparq = attention.kind == AttentionKind::kSparq;
  const std::string r = is_sparq ? "r " + std::to_string(attention.r) + ", " : "";
  std::string text = "attention    ";
  if (attention.kind == AttentionKind::kAuto) {
    text += "several policies";
  } else {
    text += std::string(AttentionKindName(attention.kind)) + " " + r + "k " + std::to_string(attention.k) + ", local " +
            std::to_string(attention.local);
  }
  if (all.rows == 0) return text + "; no row was sparse" + chosen + "\n";
  char numbers[160];
  std::snprintf(numbers, sizeof numbers, "; rows %llu, short %llu; bytes %.1f %%",
                static_cast<unsigned long long>(all.rows), static_cast<unsigned long long>(all.short_rows),
                100 * share);
  text += numbers;
  if (HasEstimate(attention.kind, all)) {
    std::snprintf(numbers, sizeof numbers, "; alpha_estimate %.4f, dense heads %.1f %%", all.alpha_estimate,
                  100 * all.dense_share);
    text += numbers;
  }
  if (all.audits != 0) {
    std::snprintf(numbers, sizeof numbers, "; audits %llu: kept mass %.4f, error %.4f, agreement %.4f",
                  static_cast<unsigned long long>(all.audits), all.kept_mass, all.error, all.agreement);
    text += numbers;
  }
  return text + chosen + "\n";
}

Json AnswerJson(const Answer& answer, const Model& model, const Engine& engine, double load_ms,
                const GenerationOptions& options) {
  const RequestStats& stats = answer.stats;
  const double decoded = stats.generated_tokens > 0 ? static_cast<double>(stats.generated_tokens - 1) : 0;
  Json ids = Json::array();
  for (const AnswerToken& token : answer.tokens) ids.push_back(token.id);
  Json json;
  json["text"] = answer.text;
  json["ids"] = std::move(ids);
  json["prompt_tokens"] = stats.prompt_tokens;
  json["cached_tokens"] = stats.cached_tokens;
  json["generated_tokens"] = stats.generated_tokens;
  json["finish_reason"] = FinishReasonName(answer.finish);
  json["timings"] = {
      {"load_ms", load_ms},
      {"prefill_ms", stats.prefill_ms},
      {"ttft_ms", stats.ttft_ms},
      {"decode_ms", stats.decode_ms},
      {"prefill_tokens_per_s",
       TokensPerSecond(static_cast<double>(stats.prompt_tokens - stats.cached_tokens), stats.prefill_ms)},
      {"decode_tokens_per_s", TokensPerSecond(decoded, stats.decode_ms)}};
  json["state"] = {{"used_bytes", stats.state_bytes},
                   {"policy", KvPolicyName(engine.kv_policy())},
                   {"allocated_bytes", stats.growth.allocated_bytes},
                   {"growths", stats.growth.growths},
                   {"bytes_copied", stats.growth.bytes_copied},
                   {"minor_faults", stats.faults.minor},
                   {"major_faults", stats.faults.major},
                   {"preemptions", stats.preemptions}};
  if (stats.drafted_tokens != 0) json["draft"] = DraftJson(stats);
  if (stats.linear) json["linear"] = LinearJson(*stats.linear);
  const std::string_view reason = stats.attention_reason;
  if (stats.attention || !reason.empty())
    json["attention"] = stats.attention ? AttentionJson(*stats.attention) : Json{{"kind", "dense"}};
  if (!reason.empty()) json["attention"]["chosen_by"] = reason;
  json["numeric_class"] = stats.numeric_class;
  json["seed"] = options.seed;
  if (options.logprobs >= 0) json["logprobs"] = LogprobsJson(answer, model.text().tokenizer);
  return json;
}

Json FailureJson(const Answer& answer, const Error& error) {
  Json json = {{"error", {{"code", ErrorCodeName(error.code())}, {"message", Printable(error.message())}}}};
  if (!answer.tokens.empty()) json["text"] = answer.text;
  return json;
}

void Answer::Add(const Event& event) {
  if (event.token) tokens.push_back({*event.token, event.logprob, event.top_logprobs});
  text += event.text;
  if (event.last()) stats = event.stats;
  if (event.finish) finish = *event.finish;
}

double TokensPerSecond(double tokens, double ms) { return ms > 0 ? tokens / ms * 1000 : 0; }

}  // namespace tidemill::cli
