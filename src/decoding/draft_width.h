// How many guesses a step should check: from what guesses cost and how often they are right.
//
//   a_i              probability that guess i is right where those before it are
//   E(g)             = 1 + a_1 + a_1 a_2 + ... + a_1 ... a_g, tokens of a step with g guesses; (1 - a^(g+1)) / (1 - a) where all are a
//   step(g), d       seconds of a step in which the sequence has 1 + g rows, and of making one guess
//                    where all are made at once, d is the seconds of that, and stands for g d below
//                    of a tree, which costs a draft step a level however many nodes that has, step(g) has the making in it, and d = 0
//   rate(g)          = (others + E(g)) / (step(g) + g d), where `others` counts the tokens that other sequences get from the same step
//
// Where guesses are a tree there is no chain of a_i: E(g) = 1 + p_1 + ... + p_g then, p_i the probability that node i is on the right path.
//
// Times say how wide a step is and nothing else: no answer depends on them.
#ifndef TIDEMILL_DECODING_DRAFT_WIDTH_H_
#define TIDEMILL_DECODING_DRAFT_WIDTH_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tidemill {

// The g of the highest rate(g) among [least, most], the lowest of equals.
//   gains        : [most] E(i + 1) - E(i)        step_seconds : [most + 1] above 0        least <= most
size_t BestDraftWidth(size_t least, std::span<const double> gains, std::span<const double> step_seconds,
                      double guess_seconds, double other_tokens);

// How a drafter makes the guesses of one draft.
enum class GuessOrder {
  kOneByOne,
  kAtOnce,  // many take as long as one
  kTree,    // level by level; checked drafts are told by CheckedTree, those of the other two by Checked
};

// What guesses are predicted to cost, before a sequence has times of its own. Whoever has measured the machine fills it.
struct DraftCosts {
  static constexpr size_t kMost = 64;

  std::array<double, kMost + 1> step_seconds = {};  // step(g), by guesses; all above 0, or all 0: nothing is predicted
  double guess_seconds = 0;                         // d
  double other_tokens = 0;                          // `others`, at first
  double share = 0.5;                               // a_i, before any guess was checked
  std::array<double, kMost> promises = {};          // of a tree: p_i, before any was checked

  bool any() const { return step_seconds[0] > 0; }
};

// Learns those numbers from one sequence's steps. Averages forget, so that a text which becomes predictable is noticed, and a machine
// that becomes busy:
//   acceptance   counts by position that lose 5 % with each draft; positions of which little is known lean on all of them together, nodes
//                of a tree on p_i^t, with the t at which the first node's promise is what came true: a chain's p_i = f^i at any f
//   step(g)      a moving average for each g that was tried; between two of them a straight line, but the one in the middle is hoped
//                to cost no more than the narrower, so that it is tried and stairs are found. Behind the widest one their mean slope
//                goes on, so that a wider step is tried where it might pay: at most about twice as wide a step as before
//   predicted    where costs are predicted, the first steps have as many guesses as pay by them where the assumed share is right (of a
//                tree: where nodes are as often right as promised), and a plain step is timed after eight; else it is the first, and two
//                guesses follow. What is timed scales what is predicted, step(g) and d, between two widths by a straight line of scales.
//                Once a plain step (twice, if need be) and a wider one were timed, and two scales differ by more than a quarter or 64
//                wider ones have passed, nothing is predicted any more but d, until guesses are timed
//   zero         where guesses do not pay, none are made, but for one or two (one that takes more than a quarter of a plain step is
//                tried alone) after 8 plain steps, then after 16, 32 and every 64 (a dear one after 8, 32, 64); sooner where what was checked is so
//                far forgotten that the assumed share says they pay. When those are right, up to four more follow in the next steps: what
//                is then known decides
// Allocates nothing. Cost: O(most) in Next.
class DraftWidth {
 public:
  static constexpr size_t kMost = DraftCosts::kMost;

  // least <= most <= kMost. Where they are equal, nothing is chosen.
  DraftWidth(size_t least, size_t most, GuessOrder order = GuessOrder::kOneByOne, const DraftCosts& predicted = {})
      : least_(least),
        most_(most),
        order_(order),
        predicted_(predicted),
        assumed_share_(predicted.share),
        predicted_guess_(predicted.any() ? predicted.guess_seconds / predicted.step_seconds[least] : 0),
        promises_(predicted.promises),
        has_promises_(order == GuessOrder::kTree && predicted.any()),
        other_tokens_(predicted.other_tokens) {}

  GuessOrder order() const { return order_; }
  // Guesses for the next step.
  size_t Next() const;
  // Seconds that the guesses behind the first `few` of `many` are worth to a step: what their tokens take at its rate, less what their
  // rows take in it. All were made already. 0 where too little is known of that, and below `least`, where nothing is chosen.
  double Gain(size_t few, size_t many) const;

  // The drafter took so long for so many guesses, at least one: where it was asked and found none likely enough, one, which Checked is
  // told, too, and which was not right. Of one that reads text the first ones after a pause do not count: they catch up. Of a tree the
  // seconds come with Took.
  void Drafted(size_t guesses, double seconds, bool reads_text);
  // A step checked so many guesses, of which the first `right` were right.
  void Checked(size_t guesses, size_t right);
  // A step checked a tree of so many nodes, of which these were right, counted from 0 in the order of the draft.
  void CheckedTree(size_t nodes, std::span<const uint32_t> right);
  // Such a step, and nothing else was in it that this sequence did not ask for but other sequences' tokens, took so long; with the making
  // of the tree where there was one.
  void Took(size_t guesses, double seconds, double other_tokens);

 private:
  struct Share {  // of guesses that were right
    double right = 0, all = 0;
    void Fade(double factor) { right *= factor, all *= factor; }
  };
  struct Seconds {
    double mean = 0;
    size_t count = 0, last = 0;  // measurements; the step of the last one
  };

  // What was checked, but for the counts of right guesses; whether it was a try.
  bool Begin(size_t guesses);
  void End(bool is_try, bool any_right);
  bool IsKnown(size_t guesses) const;
  size_t Widest() const;                                        // that is known
  void FillStepSeconds(std::span<double> seconds) const;        // [most + 1], by guesses
  void ScalePredicted(std::span<double> seconds) const;         // the same, where those that are known are filled
  bool IsOfPredictedShape() const;                              // what is known
  void HopeForStairs(std::span<double> seconds) const;          // filled
  static double ShareWith(const Share& share, double assumed);  // `assumed` counts as a few
  std::array<double, kMost> Gains() const;                      // tokens that each guess adds
  double PromisePower() const;                                  // t
  double GuessSeconds(double least_step) const;  // of a guess, or of all; least_step: of a step with `least` ones
  size_t Best() const { return Best(Gains()); }
  size_t Best(std::span<const double> gains) const;  // [kMost]
  bool CouldPay() const;                             // any guesses, if only they were right
  size_t TryWidth() const;                           // guesses of a try; none are least_

  size_t least_, most_;
  GuessOrder order_;
  DraftCosts predicted_;
  double assumed_share_;
  double predicted_guess_;              // d in steps with `least` guesses: what stands for it until it is timed
  std::array<double, kMost> promises_;  // that count as a few checked trees
  bool has_promises_;
  std::array<Share, kMost> shares_ = {};  // by position
  Share all_;
  std::array<Seconds, kMost + 1> steps_ = {};  // by guesses
  double other_tokens_;
  double guess_seconds_ = 0;                 // of a guess, or of all where they are made at once
  double try_seconds_ = 0;                   // of a guess, the last time; it may have caught up
  size_t num_offers_ = 0, num_drafted_ = 0;  // times that guesses were made; of them, those whose time counts
  bool is_catching_up_ = false;              // the last guesses were the first after a pause
  size_t num_steps_ = 0;
  size_t num_compared_ = 0;    // steps with guesses that were timed beside a plain one, while costs are predicted
  bool asks_least_ = false;    // the plain step speaks against them, and was timed once
  size_t since_least_ = 0;     // steps since one was as narrow as it may be
  size_t since_guesses_ = 0;   // steps without guesses
  size_t pause_ = 8;           // steps without guesses before the next try
  size_t tries_ = 4;           // that may follow at once on one that was right
  bool is_promising_ = false;  // the last try was right, and one may follow
};

}  // namespace tidemill

#endif  // TIDEMILL_DECODING_DRAFT_WIDTH_H_
