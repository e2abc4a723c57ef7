// How many guesses a step should check: from what guesses cost and how often they are right.
//
//   a_i              probability that guess i is right where those before it are
//   E(g)             = 1 + a_1 + a_1 a_2 + ... + a_1 ... a_g, tokens of a step with g guesses; (1 - a^(g+1)) / (1 - a) where all are a
//   step(g), d       seconds of a step in which the sequence has 1 + g rows, and of making one guess
//   rate(g)          = (others + E(g)) / (step(g) + g d), where `others` counts the tokens that other sequences get from the same step
//
// Times say how wide a step is and nothing else: no answer depends on them.
#ifndef TIDEMILL_DECODING_DRAFT_WIDTH_H_
#define TIDEMILL_DECODING_DRAFT_WIDTH_H_

#include <array>
#include <cstddef>
#include <span>

namespace tidemill {

// E(g) for acceptance [g] = a_1 to a_g.
double ExpectedTokens(std::span<const double> acceptance);

// The g of the highest rate(g) among [least, most], the lowest of equals.
//   acceptance   : [most] in [0, 1]        step_seconds : [most + 1] above 0        least <= most
size_t BestDraftWidth(size_t least, std::span<const double> acceptance, std::span<const double> step_seconds,
                      double guess_seconds, double other_tokens);

// Learns those numbers from one sequence's steps. Averages forget, so that a text which becomes predictable is noticed, and a machine
// that becomes busy:
//   acceptance   counts by position that lose 5 % with each draft; positions of which little is known lean on all of them together
//   step(g)      a moving average for each g that was tried; between two of them a straight line, but for the next one, which may
//                cost no more. Behind the widest one their mean slope goes on, so that a wider step is tried where it might pay: at
//                most about twice as wide a step as before
//   zero         where guesses do not pay, none are made, but for one or two after 8 plain steps, then after 16, 32 and every 64. When
//                those are right, up to four more follow in the next steps: what is then known decides
// Allocates nothing. Cost: O(most) in Next.
class DraftWidth {
 public:
  static constexpr size_t kMost = 64;

  // least <= most <= kMost. Where they are equal, nothing is chosen.
  DraftWidth(size_t least, size_t most) : least_(least), most_(most) {}

  // Guesses for the next step.
  size_t Next() const;

  // The drafter took so long for so many guesses, at least one. The first ones after a pause do not count: they catch up.
  void Drafted(size_t guesses, double seconds);
  // A step checked so many guesses, of which the first `right` were right.
  void Checked(size_t guesses, size_t right);
  // Such a step, and nothing else was in it that this sequence did not ask for but other sequences' tokens, took so long.
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

  bool IsKnown(size_t guesses) const;
  size_t Widest() const;                                  // that is known
  void FillStepSeconds(std::span<double> seconds) const;  // [most + 1], by guesses
  size_t Best() const;
  size_t Best(std::span<const double> acceptance) const;  // [kMost]
  bool CouldPay() const;                                  // any guesses, if only they were right

  size_t least_, most_;
  std::array<Share, kMost> shares_ = {};  // by position
  Share all_;
  std::array<Seconds, kMost + 1> steps_ = {};  // by guesses
  double guess_seconds_ = 0, other_tokens_ = 0;
  size_t num_offers_ = 0, num_drafted_ = 0;  // times that guesses were made; of them, those whose time counts
  size_t num_steps_ = 0;
  size_t since_least_ = 0;     // steps since one was as narrow as it may be
  size_t since_guesses_ = 0;   // steps without guesses
  size_t pause_ = 8;           // steps without guesses before the next try
  size_t tries_ = 4;           // that may follow at once on one that was right
  bool is_promising_ = false;  // the last try was right, and one may follow
};

}  // namespace tidemill

#endif  // TIDEMILL_DECODING_DRAFT_WIDTH_H_
