// Draft tokens for the tokens that come next. A draft token costs time when it is wrong; it never changes an answer.
#ifndef TIDEMILL_DECODING_DRAFTER_H_
#define TIDEMILL_DECODING_DRAFTER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "decoding/draft_tree.h"
#include "decoding/num_draft_tokens.h"
#include "decoding/suffix_automaton.h"

namespace tidemill {

class Drafter {
 public:
  virtual ~Drafter() = default;

  // The next id of prompt or answer. Throws std::bad_alloc: then it never drafts again.
  virtual void Append(int32_t id) = 0;
  // Whether it reads the target's features; constant.
  virtual bool reads_features() const { return false; }
  // Whether it runs new text before it drafts, so that the first draft after a pause takes longer; constant. A model's drafter that does not
  // drafts in the request's own state.
  virtual bool reads_text() const { return false; }
  // The target's feature of a committed position, in order; ids up to it were appended. Recomputed positions come again. Positions of a
  // saved state, or of a preempted state read back, do not come.
  virtual void AddFeature(size_t /*position*/, std::span<const float> /*feature*/) {}
  // At most `num_draft_tokens` nodes; valid until the next call. After an unknown id it never drafts again.
  virtual DraftTree Propose(size_t num_draft_tokens) = 0;
  // Frees memory that the next Propose takes again, while the request waits.
  virtual void Release() {}
  // Bytes of features that it keeps at most while its request runs; 0 once it never drafts again.
  virtual uint64_t feature_bytes() const { return 0; }
  virtual uint64_t held_feature_bytes() const { return 0; }  // of them, allocated
  virtual void HoldFeatures() {}                             // allocates them now, not with the first one
  // How Propose makes its draft tokens; constant.
  virtual DraftOrder draft_order() const { return DraftOrder::kOneByOne; }
  // Why it could not draft; empty: nothing prevented it. Static text.
  virtual std::string_view trouble() const { return {}; }
};

// Prompt lookup: what followed the end of the sequence where it occurred before.
class NgramDrafter : public Drafter {
 public:
  // At least `shortest` ids must match. If more than `longest` match, only the last `longest` are used, at their most recent occurrence.
  // Only ids below `vocab_size` are drafted; a sequence may contain others. shortest <= longest
  explicit NgramDrafter(size_t shortest, size_t longest = ~size_t{0}, size_t vocab_size = ~size_t{0})
      : shortest_(shortest), vocab_size_(vocab_size), parts_(longest) {}

  void Append(int32_t id) override;
  DraftTree Propose(size_t num_draft_tokens) override;  // a chain

 private:
  size_t shortest_, vocab_size_;
  std::vector<int32_t> ids_;
  SuffixAutomaton parts_;
  std::vector<int32_t> proposed_;
};

}  // namespace tidemill

#endif  // TIDEMILL_DECODING_DRAFTER_H_
