// --attention and what belongs to it: how much of a cache the attention of generated tokens reads.
#ifndef TIDEMILL_CLI_ATTENTION_FLAGS_H_
#define TIDEMILL_CLI_ATTENTION_FLAGS_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/flags.h"
#include "tidemill/engine.h"
#include "tidemill/policies.h"
#include "tidemill/result.h"

namespace tidemill::cli {

inline constexpr size_t kMaxSparseTokens = size_t{1} << 30;  // of r, k, local, from and audit

struct AttentionFlags {
  std::optional<std::string> kind, rule, mean, columns, floor;
  std::optional<size_t> r, k, local, from, audit;
  std::vector<size_t> dense_layers;

  void AddTo(FlagSet& flags);
  // kInvalidArgument: flags of a kind that was not asked for. Reads the file of --attention-floor: as ReadFile; kCorruptFile, with its name.
  Result<AttentionPolicy> policy() const;
  // Those that were given, but the kind: "--sparq-k, --attention-audit".
  std::string given() const;
};

// "0,3,30-31", in any order; none: no such list.
std::optional<std::vector<size_t>> ParseLayerList(std::string_view text);

// What a command says that reads prompts only, which are dense without --sparq-from.
Result<void> CheckReadsPrompts(const AttentionFlags& flags);

}  // namespace tidemill::cli

#endif  // TIDEMILL_CLI_ATTENTION_FLAGS_H_
