// Regular expressions as tokenizers hold them, Oniguruma's dialect of Ruby's, run by PCRE2 with a bound on the work.
//
// What the two read differently is rewritten: \s \w \d \h \b as Oniguruma defines them over Unicode, (?m), {,n}, {n,m}+, \uHHHH, and a class
// that excludes another, [A&&[^B]]. What cannot be rewritten is refused by name, never read as something else: other class operations,
// {n}?, \K, \g, \G, \R in a class, (* and (?~. Case is folded character by character: (?i:ss) is not the one letter. Properties (\p{L}) are those of PCRE2's Unicode version.
#ifndef TIDEMILL_TEXT_REGEX_H_
#define TIDEMILL_TEXT_REGEX_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "tidemill/result.h"
#include "tidemill/tokenizer.h"

namespace tidemill {

inline constexpr size_t kMaxExpressionBytes = size_t{16} << 10;

// What one call of Encode may spend on matching. Steps are PCRE2's, of which only searches of more than a hundred are counted. Loops over one
// character are a single step to it, so there is a bound on the time, too: a hundred times what published rules take. The clock is read in every
// 16th search.
struct RegexBudget {
  explicit RegexBudget(size_t text_bytes)
      : steps(uint64_t{200} * text_bytes + 10'000'000),
        until(std::chrono::steady_clock::now() + std::chrono::seconds(2) + std::chrono::microseconds(5) * text_bytes) {}
  uint64_t steps;
  std::chrono::steady_clock::time_point until;
  uint32_t searches = 0;
};

// Immutable once made: any number of threads may search with it, each with a Regex::Scratch of its own.
class Regex {
 public:
  // Errors: kUnsupported for what is not read, with the byte; kCorruptFile for what is no expression. Compile and Find throw std::bad_alloc,
  // which CreateTokenizer and Encode catch.
  static Result<Regex> Compile(std::string_view expression);

  // Memory of searches: one per thread.
  class Scratch {
   public:
    Scratch();
    ~Scratch();
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;

   private:
    friend class Regex;
    struct Impl;
    std::unique_ptr<Impl> impl_;
  };

  // The leftmost match at or after `from` in `text`, which is valid UTF-8; `from` stands between characters. Nothing: none.
  // Errors: kInvalidArgument when the budget or PCRE2's memory bound is used up; the message names the expression.
  Result<std::optional<ByteRange>> Find(std::string_view text, size_t from, Scratch& scratch,
                                        RegexBudget& budget) const;

  std::string_view expression() const { return expression_; }  // as given

 private:
  struct Code;
  Regex() = default;

  std::shared_ptr<const Code> code_;
  std::string expression_;
};

// The expression in PCRE2's dialect. For tests.
Result<std::string> TranslateExpression(std::string_view expression);

}  // namespace tidemill

#endif  // TIDEMILL_TEXT_REGEX_H_
