#include "text/regex.h"

#include <pcre2.h>

#include <algorithm>
#include <new>
#include <utility>

#include "base/check.h"
#include "base/printable_name.h"

namespace tidemill {
namespace {

// A search starts with this bound on its steps. If it does not suffice, the bound grows, and what was allowed is paid for.
constexpr uint32_t kFirstSteps = 128;
constexpr uint32_t kMoreSteps = 8;
// A match is looked for at so many places, then the clock is read: PCRE2 does not count the loops over one character that each place may cost.
constexpr size_t kFirstWindow = 16;
constexpr size_t kLastWindow = 1024;
constexpr std::chrono::milliseconds kLongWindow{1};
constexpr uint32_t kMaxHeapKib = 256 << 10;
constexpr size_t kFirstStackBytes = size_t{32} << 10;
constexpr size_t kMaxStackBytes = size_t{64} << 20;

constexpr std::string_view kTooMuch = "more work than its text may take";

PCRE2_SPTR AsUnits(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

std::string Explain(int code) {
  PCRE2_UCHAR message[160];
  const int length = pcre2_get_error_message(code, message, sizeof(message));
  return length > 0 ? std::string(reinterpret_cast<const char*>(message), static_cast<size_t>(length)) : "error";
}

}  // namespace

struct Regex::Code {
  ~Code() { pcre2_code_free(code); }
  pcre2_code* code = nullptr;
};

struct Regex::Scratch::Impl {
  Impl()
      : data(pcre2_match_data_create(1, nullptr)),
        context(pcre2_match_context_create(nullptr)),
        stack(pcre2_jit_stack_create(kFirstStackBytes, kMaxStackBytes, nullptr)) {
    if (data == nullptr || context == nullptr) {
      Free();
      throw std::bad_alloc();
    }
    pcre2_set_heap_limit(context, kMaxHeapKib);
    // Without a stack of its own, which hardened systems may refuse, matching uses 32 KiB of the thread's.
    if (stack != nullptr) pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~Impl() { Free(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  void Free() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }

  pcre2_match_data* data;
  pcre2_match_context* context;
  pcre2_jit_stack* stack;
};

Regex::Scratch::Scratch() = default;
Regex::Scratch::~Scratch() = default;

Result<Regex> Regex::Compile(std::string_view expression) {
  TIDEMILL_TRY(translated, TranslateExpression(expression));
  const auto fail = [&](ErrorCode code, const std::string& what) {
    return Error(code, "regular expression " + QuoteName(expression) + ": " + what);
  };
  auto code = std::make_shared<Code>();
  pcre2_compile_context* const context = pcre2_compile_context_create(nullptr);
  if (context == nullptr) throw std::bad_alloc();
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  code->code = pcre2_compile(AsUnits(translated), translated.size(),
                             PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_USE_OFFSET_LIMIT,
                             &error, &offset, context);
  pcre2_compile_context_free(context);
  if (code->code == nullptr) {
    if (error == PCRE2_ERROR_HEAP_FAILED) throw std::bad_alloc();
    return fail(ErrorCode::kCorruptFile, Explain(error));
  }
  pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE);  // where it cannot be had, PCRE2 interprets
  Regex regex;
  regex.code_ = std::move(code);
  regex.expression_ = expression;
  return regex;
}

Result<std::optional<ByteRange>> Regex::Find(std::string_view text, size_t from, Scratch& scratch,
                                             RegexBudget& budget) const {
  if (scratch.impl_ == nullptr) scratch.impl_ = std::make_unique<Scratch::Impl>();
  Scratch::Impl& impl = *scratch.impl_;
  const auto now = [] { return std::chrono::steady_clock::now(); };
  const auto fail = [&](const std::string& why) {
    return Error(ErrorCode::kInvalidArgument,
                 "tokenize a text: regular expression " + QuoteName(expression_) + ": " + why +
                     "; shorten the text, or see whether the expression is one that a tokenizer needs");
  };
  if (budget.searches++ % 16 == 15 && now() > budget.until) return fail(std::string(kTooMuch));
  uint32_t options = PCRE2_NO_UTF_CHECK;
  size_t window = kFirstWindow;
  auto window_began = std::chrono::steady_clock::time_point::max();  // the first one is not timed
  size_t limit = from + window;                                      // where a match may begin
  pcre2_set_offset_limit(impl.context, limit);
  for (uint32_t steps = kFirstSteps;;) {
    pcre2_set_match_limit(impl.context, steps);
    const int found = pcre2_match(code_->code, AsUnits(text), text.size(), from, options, impl.data, impl.context);
    if (found >= 0) {
      const PCRE2_SIZE* const ends = pcre2_get_ovector_pointer(impl.data);
      // \K, which alone can make a match end before it begins, is refused.
      TIDEMILL_CHECK(from <= ends[0] && ends[0] <= ends[1] && ends[1] <= text.size());
      return std::optional(ByteRange{ends[0], ends[1]});
    }
    if (found == PCRE2_ERROR_NOMATCH) {
      if (limit >= text.size()) return std::optional<ByteRange>();
      from = limit + 1;
      while (from < text.size() && (text[from] & 0xC0) == 0x80) ++from;
      const auto time = now();
      if (time > budget.until) return fail(std::string(kTooMuch));
      const bool was_long = time > window_began && time - window_began > kLongWindow;
      window = was_long ? 1 : std::min(2 * window, kLastWindow);
      window_began = time;
      limit = from + window;
      pcre2_set_offset_limit(impl.context, limit);
      continue;
    }
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) {
      options |= PCRE2_NO_JIT;
      continue;
    }
    if (found == PCRE2_ERROR_NOMEMORY) throw std::bad_alloc();
    if (found != PCRE2_ERROR_MATCHLIMIT) return fail(Explain(found));
    if (budget.steps < steps || now() > budget.until) return fail(std::string(kTooMuch));
    budget.steps -= steps;
    steps = steps > UINT32_MAX / kMoreSteps ? UINT32_MAX : steps * kMoreSteps;
  }
}

}  // namespace tidemill
