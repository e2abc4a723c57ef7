#include "runtime/sparse_class.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <iterator>
#include <span>
#include <string_view>
#include <utility>

#include "base/checksum.h"
#include "kernels/sparse_attention.h"

namespace tidemill {
namespace {

using Shapes = std::vector<std::optional<AttentionShape>>;
using Layers = std::vector<std::optional<SparseLayer>>;

constexpr std::string_view kKindNames[] = {"dense", "sparq", "topk", "h2o", "window", "auto"};
static_assert(std::size(kKindNames) == kAttentionKinds.size());
// What decided.
constexpr std::string_view kFewPositions = "--attention auto: fewer than 4096 positions",
                           kNoSparseLayer = "--attention auto: no layer is left that can be sparse",
                           kReadsMuch =
                               "--attention auto: sparq would read more than half of what dense attention reads",
                           kReadsLittle = "--attention auto: sparq reads at most half of what dense attention reads",
                           kAllFallBack =
                               "--attention-floor: with its dense shares every layer would read more than "
                               "dense attention";
static_assert(kShortestAuto == 4096 && kLargestAutoShare == 0.5);
constexpr size_t kMaxListBytes = 40;  // of a list in a name; a longer one is hashed

Error Wrong(const std::string& what) { return Error(ErrorCode::kInvalidArgument, what); }

Error Wrong(const std::string& flag, size_t found, const std::string& expected) {
  return Wrong(flag + " " + std::to_string(found) + ": expected " + expected);
}

// The shortest that is read as the same number.
std::string Text(float number) {
  char text[32];
  return {text, std::to_chars(std::begin(text), std::end(text), number).ptr};
}

std::string Hash(std::span<const std::byte> bytes) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(Checksum(bytes)));
  return text;
}

std::string List(std::span<const size_t> numbers) {
  std::string text;
  for (const size_t number : numbers) text += (text.empty() ? "" : ",") + std::to_string(number);
  return text;
}

SparseKind FormKind(AttentionKind kind) {
  switch (kind) {
    case AttentionKind::kSparq:
    case AttentionKind::kAuto: return SparseKind::kSparq;
    case AttentionKind::kTopk: return SparseKind::kTopk;
    case AttentionKind::kH2o: return SparseKind::kH2o;
    case AttentionKind::kWindow: return SparseKind::kWindow;
    case AttentionKind::kDense: break;
  }
  return SparseKind::kDense;
}

// That the kind reads what was given.
Result<void> CheckIsRead(const AttentionPolicy& policy) {
  const AttentionKind kind = policy.kind;
  const std::string found = ", found " + std::string(AttentionKindName(kind)) + "; leave it out";
  if (kind == AttentionKind::kDense) {
    if (policy == AttentionPolicy()) return {};
    return Wrong("--sparq-k and its like: expected --attention sparq, topk, h2o, window or auto" + found);
  }
  const bool is_sparq = FormKind(kind) == SparseKind::kSparq, is_topk = kind == AttentionKind::kTopk;
  const struct {
    const char* flag;
    bool is_given, is_read;
    const char* by;
  } options[] = {
      {"--sparq-r", policy.r.has_value(), is_sparq, "sparq or auto"},
      {"--sparq-local", policy.local.has_value(), kind != AttentionKind::kWindow, "sparq, topk, h2o or auto"},
      {"--sparq-rule", policy.rule != SparqRule::kPaper, is_sparq || is_topk, "sparq, topk or auto"},
      {"--sparq-mean", !policy.reallocate, is_sparq, "sparq or auto"},
      {"--sparq-columns", policy.columns != KeyColumns::kAuto, is_sparq, "sparq or auto"},
      {"--attention-audit", policy.audit != 0, is_sparq || is_topk, "sparq, topk or auto"},
      {"--attention-floor", policy.floors != AttentionFloors(), is_sparq, "sparq or auto"}};
  for (const auto& option : options) {
    if (option.is_given && !option.is_read)
      return Wrong(std::string(option.flag) + ": expected --attention " + option.by + found);
  }
  return {};
}

Result<void> CheckLayerLists(const AttentionPolicy& policy, size_t num_layers) {
  std::vector<bool> named(num_layers, false);
  for (const size_t layer : policy.dense_layers) {
    if (layer >= num_layers)
      return Wrong("--sparq-dense-layers", layer, "a layer from 0 to " + std::to_string(num_layers - 1));
    if (named[layer]) return Wrong("--sparq-dense-layers", layer, "each layer once, found it twice");
    named[layer] = true;
  }
  const size_t floors = policy.floors.alphas.size();
  if (floors > 1 && floors != num_layers) {
    return Wrong("--attention-floor: expected 1 number or one for each of the model's " + std::to_string(num_layers) +
                 " layers, found " + std::to_string(floors));
  }
  for (const float floor : policy.floors.alphas) {
    if (!(floor >= 0 && floor <= 1)) return Wrong("--attention-floor " + Text(floor) + ": expected 0 to 1");
  }
  const size_t shares = policy.floors.dense_shares.size();
  if (shares != 0 && shares != num_layers) {
    return Wrong("--attention-floor: expected a dense share for each of the model's " + std::to_string(num_layers) +
                 " layers, found " + std::to_string(shares));
  }
  for (const float share : policy.floors.dense_shares) {
    if (!(share >= 0 && share <= 1))
      return Wrong("--attention-floor: expected dense shares from 0 to 1, found " + Text(share));
  }
  return {};
}

// The form of one layer with attention.
Result<SparseLayer> LayerOf(const AttentionPolicy& policy, const AttentionShape& shape) {
  SparseForm form{.kind = FormKind(policy.kind), .audit = policy.audit};
  const size_t head_dim = shape.head_dim;
  const std::string of_head = std::to_string(head_dim);
  if (form.kind == SparseKind::kSparq) {
    form.r = policy.r.value_or(DefaultSparseComponents(head_dim));
    if (form.r == 0) return Wrong("--sparq-r", 0, "1 to " + of_head);
    if (form.r > head_dim) return Wrong("--sparq-r", form.r, "at most the model's head_dim, which is " + of_head);
    form.reallocate = policy.reallocate;
  } else {
    form.reallocate = false;
    if (form.kind == SparseKind::kTopk) form.r = head_dim;
  }
  form.k = policy.k.value_or(kDefaultSparseTokens);
  if (form.k == 0) return Wrong("--sparq-k", 0, "at least 1");
  if (form.kind == SparseKind::kWindow) {
    if (form.k <= kSparseSinks) {
      return Wrong("--sparq-k", form.k,
                   "more than " + std::to_string(kSparseSinks) +
                       " with --attention window, which keeps so many first positions");
    }
    form.local = form.k - kSparseSinks;
  } else {
    form.local = policy.local.value_or(DefaultSparseLocal(form.k));
    if (form.local == 0) return Wrong("--sparq-local", 0, "1 to " + std::to_string(form.k));
    if (form.local > form.k)
      return Wrong("--sparq-local", form.local, "at most --sparq-k, which is " + std::to_string(form.k));
  }
  form.rule = policy.rule == SparqRule::kEval ? SparseRule::kEval : SparseRule::kPaper;
  SparseLayer layer{.form = form, .columns = false};
  if (form.kind == SparseKind::kSparq) {
    const bool is_q8_0 = shape.kv_dtype == DType::kQ8_0;
    if (policy.columns == KeyColumns::kCache && is_q8_0) {
      return Wrong(
          "--sparq-columns cache: expected --kv-dtype f16, bf16 or f32, found q8_0, whose columns are not kept; choose "
          "auto or none");
    }
    layer.columns = policy.columns != KeyColumns::kNone && !is_q8_0;
  }
  return layer;
}

std::string FormText(size_t r, size_t k, size_t local, bool is_paper, bool reallocates) {
  return "r " + std::to_string(r) + ", k " + std::to_string(k) + ", local " + std::to_string(local) + ", rule " +
         (is_paper ? "paper" : "eval") + ", mean " + (reallocates ? "on" : "off");
}

// That floors were fitted for the model that they are used with.
Result<void> CheckModel(const FloorOrigin& origin, const LanguageModel& model) {
  if (origin.model == model.id) return {};
  return Wrong(
      "--attention-floor: expected floors of this model, found those of one with other weights; choose another file, "
      "or make one with tidemill eval --calibrate");
}

// And for the form.
Result<void> CheckOrigin(const FloorOrigin& origin, const SparseForm& form) {
  const std::string fitted =
      FormText(origin.r, origin.k, origin.local, origin.rule == SparqRule::kPaper, origin.reallocate);
  const std::string found = FormText(form.r, form.k, form.local, form.rule == SparseRule::kPaper, form.reallocate);
  if (fitted == found) return {};
  return Wrong("--attention-floor: expected " + fitted + ", for which the floors were fitted, found " + found +
               "; choose those, or another file");
}

// Of sparse layers; the others have no floor.
std::string FloorName(std::span<const std::optional<SparseLayer>> layers) {
  std::vector<float> floors;
  for (const auto& layer : layers) {
    if (layer) floors.push_back(layer->form.floor);
  }
  const bool is_one = std::all_of(floors.begin(), floors.end(), [&](float floor) { return floor == floors.front(); });
  if (!is_one) return "-floors" + Hash(std::as_bytes(std::span(floors)));
  return floors.front() == 0 ? "" : "-floor" + Text(floors.front());
}

// `stay_dense`: layers that would be sparse, but were named, or would read more so.
std::string NameOf(const AttentionClass& attention, std::span<const size_t> stay_dense) {
  std::vector<size_t> components;  // of layers with different heads, those that differ
  const SparseForm* form = nullptr;
  for (const auto& layer : attention.layers) {
    if (!layer) continue;
    if (form == nullptr) form = &layer->form;
    if (std::find(components.begin(), components.end(), layer->form.r) == components.end())
      components.push_back(layer->form.r);
  }
  const std::string k = "-k" + std::to_string(form->k), local = "-l" + std::to_string(form->local);
  std::string name;
  switch (form->kind) {
    case SparseKind::kDense: break;
    case SparseKind::kSparq: name = "sparq-r" + List(components) + k + local; break;
    case SparseKind::kTopk: name = "topk" + k + local; break;
    case SparseKind::kH2o: name = "h2o" + k + local; break;
    case SparseKind::kWindow: name = "window" + k; break;
  }
  if (form->rule == SparseRule::kEval) name += "-eval";
  if (form->kind == SparseKind::kSparq && !form->reallocate) name += "-nomean";
  if (attention.from) name += "-from" + std::to_string(*attention.from);
  if (!stay_dense.empty()) {
    const std::string list = List(stay_dense);
    name += "-dense" + (list.size() <= kMaxListBytes ? list : Hash(std::as_bytes(std::span(list))));
  }
  return name + FloorName(attention.layers);
}

// Bytes of keys and values that attention reads for a token at `length` positions, without what the mean value takes. A key is read whole where it
// does not stand in columns.
double BytesRead(const AttentionShape& shape, const std::optional<SparseLayer>& sparse, size_t length) {
  const size_t seen = shape.window == 0 ? length : std::min(length, shape.window);
  SparseForm form;  // dense
  if (sparse) {
    form = {.kind = sparse->form.kind,
            .reallocate = false,
            .r = sparse->columns ? sparse->form.r : shape.head_dim,
            .k = sparse->form.k};
  }
  return static_cast<double>(shape.kv_heads) * SparseReadsOf(shape, form, seen, 0, false).asked;
}

// The same of layer `i`, where steps that turn out dense have read components by then.
double ExpectedBytesRead(const AttentionPolicy& policy, size_t i, const AttentionShape& shape,
                         const std::optional<SparseLayer>& sparse, size_t length) {
  const double dense = BytesRead(shape, std::nullopt, length), read = BytesRead(shape, sparse, length);
  const bool falls_back = read < dense && !policy.floors.dense_shares.empty();  // not where all is read anyway
  return falls_back ? read + static_cast<double>(policy.floors.dense_shares[i]) * dense : read;
}

// The table of kAuto. Empty: sparq is worth it; else why it is not.
std::string_view WhyDense(const AttentionPolicy& policy, const AttentionClass& sparq, const Shapes& shapes,
                          size_t length) {
  if (length < kShortestAuto) return kFewPositions;
  double read = 0, dense = 0;
  for (size_t i = 0; i < shapes.size(); ++i) {
    if (!shapes[i]) continue;
    read += ExpectedBytesRead(policy, i, *shapes[i], sparq.layers[i], length);
    dense += BytesRead(*shapes[i], std::nullopt, length);
  }
  return read <= kLargestAutoShare * dense ? std::string_view() : kReadsMuch;
}

}  // namespace

Result<AttentionKind> ParseAttentionKind(std::string_view name) {
  std::string all;
  for (const AttentionKind kind : kAttentionKinds) {
    if (AttentionKindName(kind) == name) return kind;
    all += (all.empty() ? "" : kind == kAttentionKinds.back() ? " or " : ", ") + std::string(AttentionKindName(kind));
  }
  return Wrong("choose attention: '" + std::string(name) + "': expected " + all);
}

std::string_view AttentionKindName(AttentionKind kind) { return kKindNames[static_cast<size_t>(kind)]; }

bool AttentionClass::evicts() const {
  return std::any_of(layers.begin(), layers.end(),
                     [](const std::optional<SparseLayer>& layer) { return layer && Evicts(layer->form.kind); });
}

size_t AttentionClass::SparseFrom(size_t prompt_tokens) const {
  return is_sparse() ? from.value_or(prompt_tokens) : SIZE_MAX;
}

// What was evicted for one request is missing in another.
size_t AttentionClass::SharedPositions(size_t prompt_tokens) const { return evicts() ? 0 : SparseFrom(prompt_tokens); }

Result<AttentionClass> ResolveAttentionPolicy(const AttentionPolicy& policy, const LanguageModel& model, size_t length,
                                              DType kv_dtype) {
  TIDEMILL_TRY_VOID(CheckIsRead(policy));
  if (policy.kind == AttentionKind::kDense) return AttentionClass();
  if (policy.floors.origin) TIDEMILL_TRY_VOID(CheckModel(*policy.floors.origin, model));
  const Shapes shapes = model.attention_shapes(kv_dtype);
  TIDEMILL_TRY_VOID(CheckLayerLists(policy, shapes.size()));
  if (model.segments.present() && policy.kind == AttentionKind::kAuto) return AttentionClass();
  if (model.segments.present()) {
    return Wrong("--attention " + std::string(AttentionKindName(policy.kind)) +
                 ": expected a model whose rows see its whole text, found one that reads segments; choose dense");
  }
  AttentionClass made{.layers = Layers(shapes.size()), .from = policy.from};
  std::vector<size_t> stay_dense;
  bool is_any = false, reads_more = false;
  for (size_t i = 0; i < shapes.size(); ++i) {
    if (!shapes[i] || !CanBeSparse(*shapes[i], FormKind(policy.kind))) continue;
    TIDEMILL_TRY(layer, LayerOf(policy, *shapes[i]));
    const auto& named = policy.dense_layers;
    if (std::find(named.begin(), named.end(), i) != named.end()) {
      stay_dense.push_back(i);
      continue;
    }
    if (policy.floors.origin) TIDEMILL_TRY_VOID(CheckOrigin(*policy.floors.origin, layer.form));
    if (!policy.floors.dense_shares.empty() &&
        ExpectedBytesRead(policy, i, *shapes[i], layer, length) > BytesRead(*shapes[i], std::nullopt, length)) {
      stay_dense.push_back(i);
      reads_more = true;
      continue;
    }
    if (!policy.floors.alphas.empty())
      layer.form.floor = policy.floors.alphas[policy.floors.alphas.size() == 1 ? 0 : i];
    made.layers[i] = layer;
    is_any = true;
  }
  if (policy.kind == AttentionKind::kAuto) {
    const std::string_view why = is_any       ? WhyDense(policy, made, shapes, length)
                                 : reads_more ? kAllFallBack
                                              : kNoSparseLayer;
    if (!why.empty()) return AttentionClass{.reason = why};
    made.reason = kReadsLittle;
  }
  if (!is_any && reads_more) return AttentionClass{.reason = kAllFallBack};
  if (!is_any) {
    return Wrong("--attention " + std::string(AttentionKindName(policy.kind)) + ": expected a layer whose attention " +
                 (Evicts(FormKind(policy.kind))
                      ? "has no window"
                      : "sees more than " + std::to_string(AttentionPolicy::kMaxDenseWindow) + " positions") +
                 (stay_dense.empty() ? "" : " and that --sparq-dense-layers does not name") +
                 ", found none in a model of family " + model.settings.architecture + "; choose dense");
  }
  made.name = NameOf(made, stay_dense);
  return made;
}

Error WithoutFlags(const Error& error) {
  std::string message = error.message();
  for (const std::string_view flag : {"--sparq-", "--attention "}) {
    for (size_t at = 0; (at = message.find(flag, at)) != std::string::npos;) message.erase(at, flag.size());
  }
  return Error(error.code(), std::move(message));
}

// Of two layers of one shape the one of the larger share goes dense first.
std::vector<AttentionPolicy> ChoicesByLength(const AttentionPolicy& policy) {
  if (policy.kind != AttentionKind::kAuto && policy.floors.dense_shares.empty()) return {policy};
  AttentionPolicy sparq = policy;
  sparq.kind = AttentionKind::kSparq;
  sparq.floors.dense_shares.clear();
  std::vector<AttentionPolicy> choices = {AttentionPolicy(), sparq};
  std::vector<float> shares = policy.floors.dense_shares;
  std::sort(shares.begin(), shares.end());
  shares.erase(std::unique(shares.begin(), shares.end()), shares.end());
  for (const float least : shares) {
    AttentionPolicy& choice = choices.emplace_back(sparq);
    const auto& named = policy.dense_layers;
    for (size_t i = 0; i < policy.floors.dense_shares.size(); ++i) {
      if (policy.floors.dense_shares[i] >= least && std::find(named.begin(), named.end(), i) == named.end())
        choice.dense_layers.push_back(i);
    }
  }
  return choices;
}

}  // namespace tidemill
