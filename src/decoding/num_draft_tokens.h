// The number of draft tokens of a step, from their cost and acceptance rate.
//
//   a_i              probability that draft token i is accepted if those before it are
//   E(g)             = 1 + a_1 + a_1 a_2 + ... + a_1 ... a_g, tokens of a step with g draft tokens; (1 - a^(g+1)) / (1 - a) if all are a
//   step(g), d       seconds of a step in which the sequence has 1 + g rows, and of making one draft token
//                    all made at once: d is the seconds of all, and replaces g d below
//                    a tree: step(g) includes making it, and d = 0
//   rate(g)          = (others + E(g)) / (step(g) + g d), where `others` counts the tokens of other sequences in the step
//
// A tree has E(g) = 1 + p_1 + ... + p_g, p_i being the probability that node i is on the accepted path.
//
// Times choose the number and nothing else: no answer depends on them.
#ifndef TIDEMILL_DECODING_NUM_DRAFT_TOKENS_H_
#define TIDEMILL_DECODING_NUM_DRAFT_TOKENS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tidemill {

// The g of the highest rate(g) among [least, most], the lowest of equals.
//   gains        : [num_draft_tokens] E(i + 1) - E(i)        step_seconds : [num_draft_tokens + 1] above 0        min_draft_tokens <= num_draft_tokens
size_t BestNumDraftTokens(size_t min_draft_tokens, std::span<const double> gains, std::span<const double> step_seconds,
                          double draft_token_seconds, double other_tokens);

// How a drafter makes the tokens of one draft.
enum class DraftOrder {
  kOneByOne,
  kAtOnce,  // many take as long as one
  kTree,    // depth by depth; reported by CheckedTree, the other two by Checked
};

// Predicted costs of drafting, for a sequence without times of its own.
struct DraftCosts {
  static constexpr size_t kMax = 64;

  std::array<double, kMax + 1> step_seconds = {};  // step(g); all above 0, or all 0: nothing is predicted
  double draft_token_seconds = 0;                  // d
  double other_tokens = 0;                         // `others`, at first
  double acceptance = 0.5;                         // a_i, before any was verified
  std::array<double, kMax> promises = {};          // of a tree: p_i, before any was verified

  bool any() const { return step_seconds[0] > 0; }
};

// Learns these numbers from one sequence's steps. Averages fade, so changes of the text and of the machine's load are noticed:
//   acceptance   counts by position that lose 5 % with each draft. Positions with few counts lean on all of them together. Nodes of a tree
//                lean on p_i^t, with the t that fits the first node: for a chain p_i = f^i at any f.
//   step(g)      a moving average for each g that was tried, linear in between. The middle of a gap is assumed to cost no more than its
//                lower end, so that it is tried and steps of the curve are found. The mean slope extends past the greatest g, up to about
//                twice as many rows.
//   predicted    predicted costs and acceptance choose the first numbers, and a plain step is timed after eight. Without a prediction a
//                plain step comes first, then two draft tokens. Own times scale predicted step(g) and d, linearly between two g. The
//                prediction, but for an untimed d, is dropped after a plain step (two, if need be) and one with draft tokens were timed,
//                once two scales differ by more than a quarter or 64 steps with draft tokens have passed.
//   zero         if no number pays, two draft tokens are tried after 8 plain steps, then 16, 32 and every 64. One is tried, after 8, 32 and
//                every 64, if it takes more than a quarter of a plain step. A try comes sooner once counts have faded so far that the
//                assumed rate pays. After an accepted try up to four more follow in the next steps.
// Allocates nothing. Cost: O(num_draft_tokens) in Next.
class NumDraftTokens {
 public:
  static constexpr size_t kMax = DraftCosts::kMax;

  // min_draft_tokens <= num_draft_tokens <= kMax. Equal: nothing is chosen.
  NumDraftTokens(size_t min_draft_tokens, size_t num_draft_tokens, DraftOrder order = DraftOrder::kOneByOne,
                 const DraftCosts& predicted = {})
      : min_(min_draft_tokens),
        max_(num_draft_tokens),
        order_(order),
        predicted_(predicted),
        assumed_acceptance_(predicted.acceptance),
        predicted_draft_token_(
            predicted.any() ? predicted.draft_token_seconds / predicted.step_seconds[min_draft_tokens] : 0),
        promises_(predicted.promises),
        has_promises_(order == DraftOrder::kTree && predicted.any()),
        other_tokens_(predicted.other_tokens) {}

  DraftOrder order() const { return order_; }
  // Draft tokens of the next step.
  size_t Next() const;
  // Seconds that draft tokens [few, many), already made, are worth to a step: their tokens at its rate, less their rows' time. 0 if too
  // little is known, and below `min_draft_tokens`.
  double Gain(size_t few, size_t many) const;

  // The drafter's time for so many tokens, at least one: a drafter that found none likely enough counts as one rejected, in Checked too. If
  // it runs the text first, the first time after a pause does not count. A tree's time comes with Took.
  void Drafted(size_t draft_tokens, double seconds, bool reads_text);
  // A step verified so many draft tokens and accepted the first few.
  void Checked(size_t draft_tokens, size_t accepted);
  // A step verified a tree of so many nodes and accepted these, counted from 0 in the draft's order.
  void CheckedTree(size_t nodes, std::span<const uint32_t> accepted);
  // The time of a step of this sequence's rows and other sequences' tokens, with the making of a tree.
  void Took(size_t draft_tokens, double seconds, double other_tokens);

 private:
  struct Count {  // accepted of verified
    double accepted = 0, verified = 0;
    void Fade(double factor) { accepted *= factor, verified *= factor; }
  };
  struct Seconds {
    double mean = 0;
    size_t count = 0, last = 0;  // measurements; the step of the last one
  };

  // Counts a verified draft but for what was accepted; whether it was a try.
  bool Begin(size_t draft_tokens);
  void End(bool is_try, bool any_accepted);
  bool IsKnown(size_t draft_tokens) const;
  size_t Widest() const;                                       // that is known
  void FillStepSeconds(std::span<double> seconds) const;       // [num_draft_tokens + 1] step(g)
  void ScalePredicted(std::span<double> seconds) const;        // the same, with known ones filled in
  bool IsOfPredictedShape() const;                             // what is known
  void HopeForStairs(std::span<double> seconds) const;         // filled
  static double RateWith(const Count& count, double assumed);  // `assumed` counts as a few
  std::array<double, kMax> Gains() const;                      // tokens that each draft token adds
  double PromisePower() const;                                 // t
  double DraftTokenSeconds(
      double min_step) const;  // d; min_step: seconds of a step with `min_draft_tokens` draft tokens
  size_t Best() const { return Best(Gains()); }
  size_t Best(std::span<const double> gains) const;  // [kMax]
  bool CouldPay() const;                             // any number, were all accepted
  size_t TryWidth() const;                           // draft tokens of a try, never min_

  size_t min_, max_;
  DraftOrder order_;
  DraftCosts predicted_;
  double assumed_acceptance_;
  double predicted_draft_token_;       // d until it is timed, in steps with `min_draft_tokens` draft tokens
  std::array<double, kMax> promises_;  // that count as a few verified trees
  bool has_promises_;
  std::array<Count, kMax> by_position_ = {};
  Count all_;
  std::array<Seconds, kMax + 1> steps_ = {};  // by draft tokens
  double other_tokens_;
  double draft_token_seconds_ = 0;           // d
  double try_seconds_ = 0;                   // d of the last draft, which may have run text first
  size_t num_offers_ = 0, num_drafted_ = 0;  // drafts made; of them, those whose time counts
  bool is_catching_up_ = false;              // the last draft was the first after a pause
  size_t num_steps_ = 0;
  size_t num_compared_ = 0;    // steps with draft tokens timed beside a plain one, while costs are predicted
  bool asks_min_ = false;      // the plain step, timed once, speaks against drafting
  size_t since_min_ = 0;       // steps since one had `min_draft_tokens` draft tokens
  size_t since_drafts_ = 0;    // steps without draft tokens
  size_t pause_ = 8;           // such steps before the next try
  size_t tries_ = 4;           // that may follow at once on an accepted one
  bool is_promising_ = false;  // the last try was accepted, and one may follow
};

}  // namespace tidemill

#endif  // TIDEMILL_DECODING_NUM_DRAFT_TOKENS_H_
