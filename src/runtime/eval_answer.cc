#include "runtime/eval_answer.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/eval_metrics.h"

namespace tidemill {
namespace {

size_t CharactersIn(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

}  // namespace

bool HasWords(EvalTask task) {
  return task == EvalTask::kChoice || task == EvalTask::kNotes || task == EvalTask::kFunctions;
}

Result<EncodedQuestion> EncodeQuestion(const Tokenizer& tokenizer, const EvalQuestion& question, size_t answer_tokens) {
  constexpr EncodeOptions kPlain = {.add_special = false, .parse_special = false};
  TIDEMILL_TRY(alone, tokenizer.Encode(question.text, kPlain));
  TIDEMILL_TRY(both, tokenizer.Encode(question.text + question.answer, kPlain));
  const auto split = std::mismatch(both.begin(), both.end(), alone.begin(), alone.end()).first;
  EncodedQuestion made = {.question = {both.begin(), split}, .answer = {split, both.end()}};
  made.answer.resize(std::min(made.answer.size(), answer_tokens));
  if (made.question.empty() || made.answer.size() < 2)
    return Error(ErrorCode::kUnsupported,
                 "evaluate: the tokenizer joins a question with its answer; choose another model");
  return made;
}

void TellRows(EvalAnswer& answer, const std::function<void(const EvalLayerRow&)>& tell) {
  answer.told.resize(answer.state->num_layers());
  for (size_t i = 0; i < answer.told.size(); ++i) {
    SparseKvLayer* layer = SparseOf(answer.state->layer(i));
    if (layer == nullptr) continue;
    const SparseCounts& now = layer->counts();
    const SparseCounts before = std::exchange(answer.told[i], now);
    if (now.heads == before.heads) continue;
    const auto share = [](uint64_t part, uint64_t all) { return static_cast<double>(part) / static_cast<double>(all); };
    tell({.layer = i,
          .alpha_estimate = (now.alpha - before.alpha) / static_cast<double>(now.heads - before.heads),
          .dense_share = share(now.dense_groups - before.dense_groups, now.groups - before.groups),
          .is_audited = now.audits != before.audits,
          .kept_mass = now.kept_mass - before.kept_mass,
          .error = now.error - before.error});
  }
}

EvalAttention CountedAttention(SequenceState& state) {
  SparseCounts all;
  for (size_t i = 0; i < state.num_layers(); ++i) {
    if (SparseKvLayer* layer = SparseOf(state.layer(i)); layer != nullptr) all += layer->counts();
  }
  EvalAttention attention = {.audits = all.audits};
  if (all.heads != 0) attention.alpha_estimate = all.alpha / static_cast<double>(all.heads);
  if (all.audits == 0) return attention;
  const auto audits = static_cast<double>(all.audits);
  attention.kept_mass = all.kept_mass / audits;
  attention.error = all.error / audits;
  attention.overlap = all.agreement / audits;
  return attention;
}

Result<EvalRecord> EvalRecordOf(const EvalAnswer& answer, const EncodedQuestion& ids, const EvalOptions& options,
                                const Tokenizer& tokenizer) {
  EvalRecord record = {.key = answer.key, .attention = answer.attention};
  record.scored_tokens = ids.answer.size() - (options.sparse_question ? 0 : 1);
  const auto n = static_cast<double>(record.scored_tokens);
  record.nll = answer.nll / n;
  record.kl = answer.kl / n;
  record.agreement = static_cast<double>(answer.agreed) / n;
  record.exact = answer.still_matches;
  const auto all = std::span(ids.answer);
  TIDEMILL_TRY(matched, tokenizer.Decode(all.first(answer.matched), false));
  record.matched_characters = CharactersIn(matched);
  if (options.generate && HasWords(record.key.task)) {
    TIDEMILL_TRY(generated,
                 tokenizer.Decode(answer.still_matches ? all : std::span<const int32_t>(answer.generated), false));
    TIDEMILL_TRY(reference, tokenizer.Decode(all, false));
    record.rouge_l = RougeL(reference, generated);
  }
  if (record.key.task == EvalTask::kBpc) {
    TIDEMILL_TRY(scored, tokenizer.Decode(all.last(record.scored_tokens), false));
    const size_t characters = std::max<size_t>(1, CharactersIn(scored));
    record.bits_per_character = answer.nll / std::log(2.0) / static_cast<double>(characters);
  }
  return record;
}

}  // namespace tidemill
