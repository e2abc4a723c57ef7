#include "runtime/linear_class.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "state/linear_layer.h"
#include "tidemill/engine.h"

namespace tidemill {
namespace {

static_assert(LinearPolicy::kMaxTokens == kMaxDeltaPeriod);
static_assert(DraftOptions::kMax + 1 <=
              std::min(LinearLayer::kMaxStagedRows, kMaxDeltaTree));  // any path can be committed

DType EntryType(bool bfloat16) { return bfloat16 ? DType::kBF16 : DType::kF32; }

// Tokens without a state under `kv`, where the caller does not say: about as many as have the bytes of a state.
size_t KvStart(const DeltaShape& shape, bool bfloat16) {
  const size_t tokens = shape.state_bytes() / shape.entry_bytes(EntryType(bfloat16));
  return std::clamp<size_t>(tokens / 16 * 16, 16, LinearPolicy::kMaxTokens);
}

Error Wrong(const std::string& flag, size_t found, const std::string& expected) {
  return Error(ErrorCode::kInvalidArgument, flag + " " + std::to_string(found) + ": expected " + expected);
}

}  // namespace

Result<LinearForm> ParseLinearForm(std::string_view name) {
  for (const LinearForm form : {LinearForm::kAuto, LinearForm::kRecurrent, LinearForm::kBuffered, LinearForm::kKv}) {
    if (LinearFormName(form) == name) return form;
  }
  return Error(ErrorCode::kInvalidArgument, "choose form of linear attention: '" + std::string(name) +
                                                "': expected auto, recurrent, buffered or kv");
}

std::string_view LinearFormName(LinearForm form) {
  switch (form) {
    case LinearForm::kAuto: return "auto";
    case LinearForm::kRecurrent: return "recurrent";
    case LinearForm::kBuffered: return "buffered";
    case LinearForm::kKv: return "kv";
  }
  return "unknown";
}

// sqrt(2 w S / e) entries cost least (docs/linear-attention.md), S the bytes of a state, e of an entry; w = 1/3 lies between a state in
// memory (0 to 0.15) and one in the cache (0.54).
DeltaClass ChosenDeltaClass(const DeltaShape& shape, bool bfloat16) {
  const DType dtype = EntryType(bfloat16);
  const double entries = static_cast<double>(shape.state_bytes()) / static_cast<double>(shape.entry_bytes(dtype));
  const double best = std::sqrt(2.0 / 3 * entries);
  const size_t period = std::clamp<size_t>(static_cast<size_t>(best / 4 + 0.5) * 4, 4, 32);
  return {.start = period, .period = period, .dtype = dtype};
}

Result<DeltaClass> ResolveLinearPolicy(const LinearPolicy& policy, const LanguageModel& model, size_t context) {
  const std::optional<DeltaShape> shape = model.delta_shape();
  if (!shape) {
    if (policy == LinearPolicy()) return DeltaClass();
    return Error(ErrorCode::kInvalidArgument,
                 "--linear-form and its like: expected a model with linear attention, found one of family " +
                     model.settings.architecture + "; leave them out");
  }
  const size_t most = std::min(context, LinearPolicy::kMaxTokens);
  if (policy.buffer > most) return Wrong("--linear-buffer", policy.buffer, "1 to " + std::to_string(most));
  if (policy.start > most) return Wrong("--linear-start", policy.start, "1 to " + std::to_string(most));
  LinearForm form = policy.form;
  if (form == LinearForm::kAuto && policy.start != 0) form = LinearForm::kKv;
  if (form == LinearForm::kAuto && policy.buffer != 0) form = LinearForm::kBuffered;
  DeltaClass result = ChosenDeltaClass(*shape, policy.bfloat16);
  if (policy.buffer != 0) result.start = result.period = policy.buffer;
  switch (form) {
    case LinearForm::kAuto: break;
    case LinearForm::kRecurrent:
      if (policy.buffer > 1) return Wrong("--linear-form recurrent with --linear-buffer", policy.buffer, "1 or none");
      result.period = result.start = 1;
      [[fallthrough]];
    case LinearForm::kBuffered:
      if (policy.start != 0) {
        return Wrong("--linear-form " + std::string(LinearFormName(form)) + " with --linear-start", policy.start,
                     "none, since that is the form kv");
      }
      break;
    case LinearForm::kKv:
      result.start = policy.start != 0 ? policy.start : std::max(result.period, KvStart(*shape, policy.bfloat16));
  }
  if (result.start < result.period) {
    return Wrong("--linear-start", result.start, "at least the buffer's " + std::to_string(result.period));
  }
  return result;
}

std::string DeltaClassName(const DeltaClass& form) {
  return "linear-" + (form.start == form.period ? "" : std::to_string(form.start) + "-") + std::to_string(form.period) +
         (form.dtype == DType::kBF16 ? "-bf16" : "");
}

std::optional<LinearStats> LinearStatsOf(SequenceState& state) {
  std::optional<LinearStats> stats;
  for (size_t i = 0; i < state.num_layers(); ++i) {
    const LinearLayer* linear = LinearOf(state.layer(i));
    if (linear == nullptr) continue;
    const LinearLayer& layer = *linear;
    const DeltaClass& form = layer.shape().delta.form;
    if (!stats) {
      stats = {.form = form.start > form.period ? LinearForm::kKv
                       : form.period > 1        ? LinearForm::kBuffered
                                                : LinearForm::kRecurrent,
               .start = form.start,
               .buffer = form.period,
               .bfloat16 = form.dtype == DType::kBF16};
    }
    stats->boundaries += layer.counts().boundaries;
    stats->state_writes += layer.counts().writes;
    // All blocks but its rings'.
    layer.ForEachBlock([&](const void* block, uint64_t bytes) { stats->state_bytes += block == &layer ? 0 : bytes; });
  }
  return stats;
}

}  // namespace tidemill
