#include "cli/answer.h"

#include <utility>

namespace tidemill::cli {
namespace {

Json LogprobsJson(const Answer& answer, const Tokenizer& tokenizer) {
  Json list = Json::array();
  for (const AnswerToken& token : answer.tokens) {
    Json top = Json::array();
    for (const TokenLogprob& other : token.top_logprobs) {
      top.push_back({{"id", other.id}, {"token", tokenizer.TokenName(other.id)}, {"logprob", other.logprob}});
    }
    list.push_back(
        {{"id", token.id}, {"token", tokenizer.TokenName(token.id)}, {"logprob", token.logprob}, {"top", top}});
  }
  return list;
}

}  // namespace

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
  json["restored_tokens"] = stats.restored_tokens;
  json["generated_tokens"] = stats.generated_tokens;
  json["finish_reason"] = FinishReasonName(answer.finish);
  json["timings"] = {
      {"load_ms", load_ms},
      {"prefill_ms", stats.prefill_ms},
      {"first_token_ms", stats.first_token_ms},
      {"decode_ms", stats.decode_ms},
      {"prefill_tokens_per_s",
       TokensPerSecond(static_cast<double>(stats.prompt_tokens - stats.restored_tokens), stats.prefill_ms)},
      {"decode_tokens_per_s", TokensPerSecond(decoded, stats.decode_ms)}};
  json["state"] = {{"bytes", stats.state_bytes},
                   {"policy", KvPolicyName(engine.kv_policy())},
                   {"reserved_bytes", stats.growth.reserved_bytes},
                   {"growths", stats.growth.growths},
                   {"bytes_copied", stats.growth.bytes_copied},
                   {"preemptions", stats.preemptions}};
  if (stats.drafted_tokens != 0)
    json["draft"] = {{"drafted", stats.drafted_tokens}, {"accepted", stats.accepted_tokens}};
  json["numeric_class"] = engine.numeric_class();
  json["seed"] = options.seed;
  if (options.logprobs >= 0) json["logprobs"] = LogprobsJson(answer, model.text().tokenizer);
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
