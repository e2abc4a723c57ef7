// What a line of `run --prompts` says of attention: --attention and its like, with underscores.
#ifndef TIDEMILL_CLI_PROMPT_ATTENTION_H_
#define TIDEMILL_CLI_PROMPT_ATTENTION_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/json.h"
#include "tidemill/policies.h"

namespace tidemill::cli {

struct PromptAttention {
  std::optional<AttentionKind> kind;
  std::optional<size_t> r, k, local, from, audit;
  std::optional<SparqRule> rule;
  std::optional<bool> mean;
  std::optional<KeyColumns> columns;
  std::optional<std::vector<size_t>> dense_layers;
  std::optional<std::vector<float>> floors;

  // In place of the command line's: all of it where the line names a kind, else what the line has. None: the line has nothing.
  std::optional<AttentionPolicy> Over(const AttentionPolicy& flags) const;
};

// The members, for those who suggest one.
extern const std::vector<std::string> kAttentionMembers;

// None: no such member. Empty: it was read. Else what was expected.
std::optional<std::string> ReadAttentionMember(std::string_view name, const JsonValue& value, PromptAttention* line);

}  // namespace tidemill::cli

#endif  // TIDEMILL_CLI_PROMPT_ATTENTION_H_
