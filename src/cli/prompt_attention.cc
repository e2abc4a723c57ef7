#include "cli/prompt_attention.h"

#include <span>
#include <utility>
#include <vector>

#include "cli/attention_flags.h"

namespace tidemill::cli {
namespace {

struct TokensMember {
  const char* name;
  uint64_t lowest;
  std::optional<size_t> PromptAttention::*target;
};
constexpr TokensMember kTokens[] = {{"sparq_r", 1, &PromptAttention::r},
                                    {"sparq_k", 1, &PromptAttention::k},
                                    {"sparq_local", 1, &PromptAttention::local},
                                    {"sparq_from", 0, &PromptAttention::from},
                                    {"attention_audit", 0, &PromptAttention::audit}};

// The one that the text names.
template <typename T>
std::string ReadChoice(const JsonValue& value, std::span<const std::pair<std::string_view, T>> choices,
                       std::optional<T>* target) {
  std::string expected;
  for (const auto& [name, choice] : choices) {
    if (value.is_string() && value.text() == name) {
      *target = choice;
      return "";
    }
    expected += (expected.empty() ? "\"" : ", \"") + std::string(name) + "\"";
  }
  return "one of " + expected;
}

std::string ReadKind(const JsonValue& value, std::optional<AttentionKind>* target) {
  std::vector<std::pair<std::string_view, AttentionKind>> choices;
  for (const AttentionKind kind : kAttentionKinds) choices.emplace_back(AttentionKindName(kind), kind);
  return ReadChoice<AttentionKind>(value, choices, target);
}

constexpr std::pair<std::string_view, SparqRule> kRuleNames[] = {{"paper", SparqRule::kPaper},
                                                                 {"eval", SparqRule::kEval}};
constexpr std::pair<std::string_view, KeyColumns> kColumnNames[] = {
    {"auto", KeyColumns::kAuto}, {"none", KeyColumns::kNone}, {"cache", KeyColumns::kCache}};

}  // namespace

const std::vector<std::string> kAttentionMembers = {
    "attention",  "sparq_r",         "sparq_k",        "sparq_local",
    "sparq_rule", "sparq_mean",      "sparq_columns",  "sparq_dense_layers",
    "sparq_from", "attention_audit", "attention_floor"};

std::optional<std::string> ReadAttentionMember(std::string_view name, const JsonValue& value, PromptAttention* line) {
  for (const TokensMember& member : kTokens) {
    if (name != member.name) continue;
    const auto whole = value.GetUint("", member.lowest, kMaxSparseTokens);
    if (!whole.ok()) {
      return "a whole number from " + std::to_string(member.lowest) + " to " + std::to_string(kMaxSparseTokens);
    }
    line->*member.target = static_cast<size_t>(*whole);
    return "";
  }
  if (name == "attention") return ReadKind(value, &line->kind);
  if (name == "sparq_rule") return ReadChoice<SparqRule>(value, kRuleNames, &line->rule);
  if (name == "sparq_columns") return ReadChoice<KeyColumns>(value, kColumnNames, &line->columns);
  if (name == "sparq_mean") {
    if (!value.is_bool()) return "true or false";
    line->mean = value.GetBool("").value();
    return "";
  }
  if (name == "sparq_dense_layers") {
    const auto numbers = value.GetInts("");
    auto& layers = line->dense_layers.emplace();
    for (size_t i = 0; numbers.ok() && i < numbers->size() && (*numbers)[i] >= 0; ++i)
      layers.push_back(static_cast<size_t>((*numbers)[i]));
    return numbers.ok() && layers.size() == numbers->size() ? "" : "a list of layers from 0";
  }
  if (name == "attention_floor") {
    auto& floors = line->floors.emplace();
    if (value.is_number()) {
      floors = {static_cast<float>(value.GetFloat("").value())};
      return "";
    }
    const auto numbers = value.GetFloats("");
    if (!numbers.ok()) return "a number, or a list of one for each layer";
    for (const double number : *numbers) floors.push_back(static_cast<float>(number));
    return "";
  }
  return std::nullopt;
}

std::optional<AttentionPolicy> PromptAttention::Over(const AttentionPolicy& flags) const {
  if (!kind && !r && !k && !local && !from && !audit && !rule && !mean && !columns && !dense_layers && !floors)
    return std::nullopt;
  AttentionPolicy policy = kind ? AttentionPolicy{.kind = *kind} : flags;
  if (r) policy.r = r;
  if (k) policy.k = k;
  if (local) policy.local = local;
  if (from) policy.from = from;
  policy.audit = audit.value_or(policy.audit);
  policy.rule = rule.value_or(policy.rule);
  policy.reallocate = mean.value_or(policy.reallocate);
  policy.columns = columns.value_or(policy.columns);
  if (dense_layers) policy.dense_layers = *dense_layers;
  if (floors) policy.floors = {.alphas = *floors};
  return policy;
}

}  // namespace tidemill::cli
