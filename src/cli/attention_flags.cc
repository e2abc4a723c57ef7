#include "cli/attention_flags.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <utility>

#include "cli/errors.h"
#include "cli/files.h"
#include "cli/json.h"
#include "cli/numbers.h"

namespace tidemill::cli {
namespace {

constexpr size_t kMaxListedLayer = 4095;
constexpr char kReadFloors[] = "read the floors of attention";
constexpr const char* kNeedKind[] = {"--sparq-r",         "--sparq-k",        "--sparq-local",        "--sparq-rule",
                                     "--sparq-mean",      "--sparq-from",     "--sparq-dense-layers", "--sparq-columns",
                                     "--attention-audit", "--attention-floor"};

// Which of kNeedKind, in that order.
auto GivenOf(const AttentionFlags& flags) {
  const std::array is_given = {flags.r.has_value(),         flags.k.has_value(),       flags.local.has_value(),
                               flags.rule.has_value(),      flags.mean.has_value(),    flags.from.has_value(),
                               !flags.dense_layers.empty(), flags.columns.has_value(), flags.audit.has_value(),
                               flags.floor.has_value()};
  static_assert(std::size(is_given) == std::size(kNeedKind));
  return is_given;
}

std::vector<std::string> KindNames() {
  std::vector<std::string> names;
  for (const AttentionKind own : kAttentionKinds) names.emplace_back(AttentionKindName(own));
  return names;
}

// Of a list of shares, one for each layer.
Result<std::vector<float>> SharesOf(const JsonDocument& json, const char* key) {
  constexpr const char* kExpected = "a number from 0 to 1";
  TIDEMILL_TRY(list, json.GetArray(key));
  if (list.size() == 0) return json.Unexpected(key, std::string(kExpected) + " for each layer");
  std::vector<float> shares;
  for (const JsonValue& element : list.Elements()) {
    const auto number = element.GetFloat("");
    if (!number.ok() || !(*number >= 0 && *number <= 1)) return element.Unexpected("", kExpected);
    shares.push_back(static_cast<float>(*number));
  }
  return shares;
}

// What the floors were fitted for.
Result<FloorOrigin> OriginOf(const JsonDocument& json) {
  FloorOrigin origin;
  TIDEMILL_TRY(hash, json.GetString("model_hash"));
  const char* end = hash.data() + hash.size();
  const auto read = std::from_chars(hash.data(), end, origin.model, 16);
  if (read.ec != std::errc() || read.ptr != end) return json.Unexpected("model_hash", "a hexadecimal number");
  for (const auto& [key, target] : {std::pair<const char*, size_t*>{"attention.r", &origin.r},
                                    {"attention.k", &origin.k},
                                    {"attention.local", &origin.local}}) {
    TIDEMILL_TRY(number, json.GetUint(key, 1, kMaxSparseTokens));
    *target = number;
  }
  TIDEMILL_TRY(rule, json.GetString("attention.rule"));
  if (rule != "paper" && rule != "eval") return json.Unexpected("attention.rule", "paper or eval");
  origin.rule = rule == "eval" ? SparqRule::kEval : SparqRule::kPaper;
  TIDEMILL_TRY(mean, json.GetBool("attention.mean"));
  origin.reallocate = mean;
  return origin;
}

// Into `policy`; a file that says what it was fitted for also says what flags do not.
Result<void> ReadFloors(const std::string& path, const AttentionFlags& flags, AttentionPolicy& policy) {
  TIDEMILL_TRY(text, ReadFile(kReadFloors, path));
  const std::string name = std::string(kReadFloors) + ": " + path;
  TIDEMILL_TRY(json, JsonDocument::Parse(name, text));
  TIDEMILL_TRY(floors, SharesOf(json, "floors"));
  policy.floors.alphas = std::move(floors);
  if (json.Has("dense_share")) {
    TIDEMILL_TRY(shares, SharesOf(json, "dense_share"));
    policy.floors.dense_shares = std::move(shares);
  }
  if (!json.Has("model_hash")) return {};
  TIDEMILL_TRY(origin, OriginOf(json));
  if (!flags.r) policy.r = origin.r;
  if (!flags.k) policy.k = origin.k;
  if (!flags.local) policy.local = origin.local;
  if (!flags.rule) policy.rule = origin.rule;
  if (!flags.mean) policy.reallocate = origin.reallocate;
  policy.floors.origin = origin;
  return {};
}

}  // namespace

std::optional<std::vector<size_t>> ParseLayerList(std::string_view text) {
  std::vector<size_t> layers;
  while (true) {
    const size_t comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    const size_t dash = part.find('-');
    const auto first = ParseNumber<size_t>(part.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : ParseNumber<size_t>(part.substr(dash + 1));
    if (!first || !last || *first > *last || *last > kMaxListedLayer) return std::nullopt;
    for (size_t layer = *first; layer <= *last; ++layer) layers.push_back(layer);
    if (comma == std::string_view::npos) return layers;
    text.remove_prefix(comma + 1);
  }
}

void AttentionFlags::AddTo(FlagSet& flags) {
  flags.Group("Attention");
  flags.Choice(
      "--attention", kind, KindNames(),
      "What generated tokens attend to (dense: all before them). The others read less and change answers. sparq: "
      "what some components of the query score highest; topk: what scores highest; h2o: the last ones and those "
      "attended to most; window: the first 16 and the last ones; auto: sparq where it pays, else dense");
  flags.Number<size_t>("--sparq-r", r, 1, kMaxSparseTokens,
                       "Components of a query that sparq reads (an eighth of them)");
  flags.Number<size_t>("--sparq-k", k, 1, kMaxSparseTokens, "Positions that are read (128)");
  flags.Number<size_t>("--sparq-local", local, 1, kMaxSparseTokens, "Of them, the last ones (a quarter)");
  flags.Choice("--sparq-rule", rule, {"paper", "eval"},
               "How a group's query heads choose: by the sum of their softmaxes, or of their logits (paper)");
  flags.Choice("--sparq-mean", mean, {"on", "off"},
               "Whether the mean of all values stands for what sparq does not read (on)");
  flags.Choice(
      "--sparq-columns", columns, {"auto", "none", "cache"},
      "Where components of keys are read: from rows, or from a second copy in the cache (auto: cache, but with "
      "q8_0 none); answers are the same");
  flags.Value("--sparq-dense-layers", "LIST", "Layers that stay dense, as 0,1,30-31 (none)",
              [this](const std::string& text) -> std::string {
                auto list = ParseLayerList(text);
                if (!list) return "layers from 0, as in 0,1,30-31";
                dense_layers = std::move(*list);
                return "";
              });
  flags.Number<size_t>("--sparq-from", from, 0, kMaxSparseTokens,
                       "Tokens from this position on attend so, also a prompt's (those that are generated)");
  flags.Number<size_t>("--attention-audit", audit, 1, kMaxSparseTokens,
                       "Compare each Nth position with dense attention, for --stats and --json");
  flags.Value(
      "--attention-floor", "A|FILE",
      "Read all where sparq estimates that it keeps no more than this share of attention; a file has one for each "
      "layer",
      [this](const std::string& text) -> std::string {
        const auto number = ParseNumber<float>(text);
        if (number && !(*number >= 0 && *number <= 1)) return "a number from 0 to 1 or a file of such";
        floor = text;
        return "";
      });
  for (const char* flag : kNeedKind) flags.Needs(flag, "--attention");
}

Result<AttentionPolicy> AttentionFlags::policy() const {
  AttentionPolicy policy;
  TIDEMILL_TRY(chosen, ParseAttentionKind(kind.value_or("dense")));
  policy.kind = chosen;
  const auto is_given = GivenOf(*this);
  for (size_t i = 0; i < is_given.size() && chosen == AttentionKind::kDense; ++i) {
    if (is_given[i])
      return UsageError(kNeedKind[i], "expected --attention sparq, topk, h2o, window or auto beside it, found dense");
  }
  policy.r = r;
  policy.k = k;
  policy.local = local;
  policy.from = from;
  policy.rule = rule == "eval" ? SparqRule::kEval : SparqRule::kPaper;
  policy.reallocate = mean != "off";
  if (columns == "none") policy.columns = KeyColumns::kNone;
  if (columns == "cache") policy.columns = KeyColumns::kCache;
  policy.dense_layers = dense_layers;
  policy.audit = audit.value_or(0);
  if (floor) {
    if (const auto number = ParseNumber<float>(*floor)) {
      policy.floors.alphas = {*number};
    } else {
      TIDEMILL_TRY_VOID(ReadFloors(*floor, *this, policy));
    }
  }
  return policy;
}

std::string AttentionFlags::given() const {
  const auto is_given = GivenOf(*this);
  std::string names;
  for (size_t i = 0; i < is_given.size(); ++i) {
    if (is_given[i]) names += (names.empty() ? "" : ", ") + std::string(kNeedKind[i]);
  }
  return names;
}

Result<void> CheckReadsPrompts(const AttentionFlags& flags) {
  if (flags.from || flags.kind.value_or("dense") == "dense") return {};
  return UsageError("--attention " + *flags.kind,
                    "expected --sparq-from beside it, since this command reads prompts, which are dense; add it");
}

}  // namespace tidemill::cli
