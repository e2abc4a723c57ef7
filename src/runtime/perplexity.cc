#include <algorithm>
#include <cmath>
#include <new>
#include <vector>

#include "runtime/eval_metrics.h"
#include "runtime/model_impl.h"
#include "tidemill/measure.h"

namespace tidemill {

Result<PerplexityResult> Perplexity(Engine& engine, const Model& model, std::span<const int32_t> ids,
                                    const PerplexityOptions& options,
                                    const std::function<void(size_t, size_t)>& progress) {
  const Tokenizer& tokenizer = model.text().tokenizer;
  const bool bos = tokenizer.adds_bos() && tokenizer.bos_id().has_value();
  if (options.context < 4 || options.context > engine.context()) {
    return Error(ErrorCode::kInvalidArgument, "measure perplexity: --context " + std::to_string(options.context) +
                                                  ": expected 4 to " + std::to_string(engine.context()) +
                                                  "; choose one of these or leave the flag out");
  }
  const size_t text_tokens = options.context - (bos ? 1 : 0);  // of one window
  if (ids.size() < 2) {
    return Error(ErrorCode::kInvalidArgument, "measure perplexity: the text: expected at least 2 tokens, found " +
                                                  std::to_string(ids.size()) + "; give a longer one");
  }
  const size_t windows = std::max<size_t>(1, ids.size() / text_tokens);
  PerplexityResult result;
  double sum = 0, sum_squares = 0;
  try {
    std::vector<int32_t> window;
    for (size_t w = 0; w < windows; ++w) {
      window.clear();
      if (bos) window.push_back(*tokenizer.bos_id());
      const auto part = ids.subspan(w * text_tokens, std::min(text_tokens, ids.size() - w * text_tokens));
      window.insert(window.end(), part.begin(), part.end());
      const size_t first = options.score_all ? 0 : std::min(window.size() / 2, window.size() - 2);  // one at least
      TIDEMILL_TRY_VOID(
          engine.Score(window, false, [&](size_t position, std::span<const float> logits) -> Result<void> {
            if (position < first || position + 1 == window.size()) return {};
            const double nll = NegativeLogLikelihood(logits, window[position + 1]);
            if (!std::isfinite(nll)) {
              return Error(ErrorCode::kNumericalError, "measure perplexity: window " + std::to_string(w) +
                                                           ", position " + std::to_string(position) +
                                                           ": a logit is not a finite number");
            }
            sum += nll;
            sum_squares += nll * nll;
            ++result.scored_tokens;
            return {};
          }));
      if (progress) progress(w + 1, windows);
    }
  } catch (const std::bad_alloc&) {
    return Error(ErrorCode::kOutOfMemory, "measure perplexity: the system has no more memory");
  }
  const auto n = static_cast<double>(result.scored_tokens);
  result.windows = windows;
  result.mean_nll = sum / n;
  result.perplexity = std::exp(result.mean_nll);
  const double variance = std::max(0.0, sum_squares / n - result.mean_nll * result.mean_nll);
  result.standard_error = n > 1 ? std::sqrt(variance / (n - 1)) : 0;
  return result;
}

}  // namespace tidemill
