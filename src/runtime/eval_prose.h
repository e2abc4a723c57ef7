// Texts for `tidemill eval`, drawn from lists of words: the same for a seed on every machine.
#ifndef TIDEMILL_RUNTIME_EVAL_PROSE_H_
#define TIDEMILL_RUNTIME_EVAL_PROSE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "decoding/random.h"

namespace tidemill {

// A row of counter-based random numbers.
class EvalRandom {
 public:
  EvalRandom(uint64_t seed, uint64_t sequence) : stream_{.seed = seed, .sequence = sequence} {}

  // 0 to n - 1; n is at least 1.
  size_t Below(size_t n) { return static_cast<size_t>(UniformAt(stream_, position_++) * static_cast<double>(n)); }
  std::string_view Pick(std::span<const std::string_view> words) { return words[Below(words.size())]; }
  template <typename T>
  void Shuffle(std::vector<T>& values) {
    for (size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[Below(i)]);
  }
  // `count` different numbers below n, or all n, in a drawn order.
  std::vector<size_t> Sample(size_t n, size_t count);

 private:
  RandomStream stream_;
  uint32_t position_ = 0;
};

// A sentence with a blank behind it; nothing in it looks like what a task asks for.
std::string ProseSentence(EvalRandom& random);
// Eight digits, the first of which is not 0.
std::string EightDigits(EvalRandom& random);
std::string PlaceName(EvalRandom& random);  // "the north gate"
std::string ThingName(EvalRandom& random);  // "blue lantern"

// Different names of people: "Mara Velden".
std::vector<std::string> PeopleNames(EvalRandom& random, size_t count);
inline constexpr size_t kMaxPeopleNames = 576;

// One fact of a person, and how to ask for it. `%` in a pattern is the person, `#` the value.
struct FactKind {
  std::string_view fact;      // "% was born in #."
  std::string_view question;  // with # for the first and @ for the second of two values
  std::string_view answer;    // with # for the true and @ for the false one
  std::span<const std::string_view> values;
};
std::span<const FactKind> FactKinds();
std::string FillPattern(std::string_view pattern, std::string_view person, std::string_view value,
                        std::string_view other);

// A Python function: its text is "def " + name + "(" + rest.
struct PythonFunction {
  std::string name, rest;
};
// Different names; count is at most kMaxFunctions.
std::vector<PythonFunction> PythonFunctions(EvalRandom& random, size_t count);
inline constexpr size_t kMaxFunctions = 100;

}  // namespace tidemill

#endif  // TIDEMILL_RUNTIME_EVAL_PROSE_H_
