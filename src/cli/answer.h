// What became of one request, and how `run --json` says it.
#ifndef TIDEMILL_CLI_ANSWER_H_
#define TIDEMILL_CLI_ANSWER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cli/json.h"
#include "tidemill/engine.h"
#include "tidemill/generation.h"
#include "tidemill/model.h"
#include "tidemill/result.h"

namespace tidemill::cli {

struct AnswerToken {
  int32_t id = 0;
  float logprob = 0;
  std::vector<TokenLogprob> top_logprobs;
};

struct Answer {
  std::string text;
  std::vector<AnswerToken> tokens;
  FinishReason finish = FinishReason::kEos;
  RequestStats stats;

  // What the request's next event says; errors are the caller's.
  void Add(const Event& event);
};

// docs/cli.md, `run --json`.
Json AnswerJson(const Answer& answer, const Model& model, const Engine& engine, double load_ms,
                const GenerationOptions& options);

// Of a request that failed: "error", and "text" where there is some.
Json FailureJson(const Answer& answer, const Error& error);

// What `stats` says of drafts, added to `sum`.
void AddDrafts(const RequestStats& stats, RequestStats* sum);
// The line of --stats about them; empty where no draft tokens were made.
std::string DescribeDrafts(const RequestStats& stats);
// What `stats` says of sparse attention, added to `sum`; AttentionKind::kAuto: of several policies.
void AddAttention(const RequestStats& stats, RequestStats* sum);
// The line about sparse attention, or dense attention that was chosen by the request's length; empty where there was neither.
std::string DescribeAttention(const RequestStats& stats);

double TokensPerSecond(double tokens, double ms);  // 0 where no time passed

}  // namespace tidemill::cli

#endif  // TIDEMILL_CLI_ANSWER_H_
