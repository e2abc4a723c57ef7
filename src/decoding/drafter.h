// Guesses at the tokens that come next. A guess costs time when it is wrong; under DraftRule::kNoise it never changes an answer.
#ifndef TIDEMILL_DECODING_DRAFTER_H_
#define TIDEMILL_DECODING_DRAFTER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "decoding/draft_tree.h"
#include "decoding/draft_width.h"
#include "decoding/suffix_automaton.h"

namespace tidemill {

class Drafter {
 public:
  virtual ~Drafter() = default;

  // The next id of the sequence, of prompt and answer alike. Throws std::bad_alloc: then it drafts nothing any more.
  virtual void Append(int32_t id) = 0;
  // Whether it reads features of the target's rows; the same for its life.
  virtual bool reads_features() const { return false; }
  // Whether it runs text that is new to it before it guesses, so that the first guesses after a pause take longer; the same for its life.
  // One that takes steps and reads none guesses in the request's own state.
  virtual bool reads_text() const { return false; }
  // What the target's layers made of a position that its state has taken up, in their order: the ids up to there were appended. Positions
  // that are computed again come again; those that came with a saved state, or come back with a state that was put aside, do not.
  virtual void AddFeature(size_t /*position*/, std::span<const float> /*feature*/) {}
  // At most `most` nodes; valid until the next call. With an id that is no token it drafts nothing any more.
  virtual DraftTree Propose(size_t most) = 0;
  // Gives back memory that the next Propose can have again, at the price of time: the request waits.
  virtual void Release() {}
  // Bytes of features that it holds, at most, while its request runs; the same for its life.
  virtual uint64_t feature_bytes() const { return 0; }
  // How Propose makes its guesses; the same for its life.
  virtual GuessOrder guess_order() const { return GuessOrder::kOneByOne; }
  // Why it had no guesses where it should have had some; empty: nothing stood against them. Static text.
  virtual std::string_view trouble() const { return {}; }
};

// Prompt lookup: where the end of the sequence stood before, what followed then.
class NgramDrafter : public Drafter {
 public:
  // The end must have at least `shortest` ids. Of more than `longest` that agree, the last `longest` are looked up: where they stood last
  // may be later than where all of them did. Only ids below `vocab_size` are guessed: a sequence may hold others. shortest <= longest
  explicit NgramDrafter(size_t shortest, size_t longest = ~size_t{0}, size_t vocab_size = ~size_t{0})
      : shortest_(shortest), vocab_size_(vocab_size), parts_(longest) {}

  void Append(int32_t id) override;
  DraftTree Propose(size_t most) override;  // a chain

 private:
  size_t shortest_, vocab_size_;
  std::vector<int32_t> ids_;
  SuffixAutomaton parts_;
  std::vector<int32_t> proposed_;
};

}  // namespace tidemill

#endif  // TIDEMILL_DECODING_DRAFTER_H_
