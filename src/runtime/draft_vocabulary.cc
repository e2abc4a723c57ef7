#include "runtime/draft_vocabulary.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/printable_name.h"

namespace tidemill {
namespace {

constexpr size_t kNamed = 5;  // of the ids that differ

bool IsSame(const Tokenizer& a, const Tokenizer& b, int32_t id) {
  return a.TokenBytes(id) == b.TokenBytes(id) && a.IsSpecial(id) == b.IsSpecial(id) &&
         (!a.IsSpecial(id) || a.TokenName(id) == b.TokenName(id));
}

std::string Spelling(const Tokenizer& tokenizer, int32_t id) {
  return (tokenizer.IsSpecial(id) ? "special " : "") + QuoteName(tokenizer.TokenName(id));
}

}  // namespace

Result<void> CheckDraftVocabulary(const Tokenizer& target, const Tokenizer& draft) {
  const size_t common = std::min(target.vocab_size(), draft.vocab_size());
  size_t different = 0;
  std::string examples;
  for (size_t i = 0; i < common; ++i) {
    const auto id = static_cast<int32_t>(i);
    if (IsSame(target, draft, id) || ++different > kNamed) continue;
    examples += (examples.empty() ? "" : ", ") + std::to_string(id) + " is " + Spelling(target, id) + ", here " +
                Spelling(draft, id);
  }
  if (different == 0) return {};
  return Error(ErrorCode::kInvalidArgument, "expected the model's vocabulary, found " + std::to_string(different) +
                                                " of " + std::to_string(common) + " ids that differ: " + examples +
                                                (different > kNamed ? ", ..." : "") +
                                                "; choose a draft model with the same tokenizer");
}

}  // namespace tidemill
