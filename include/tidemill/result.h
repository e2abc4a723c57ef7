// Errors as values: every call that somebody else's file, request or flag can make fail returns Result<T>.
// A Result holds either a value or an Error, never both and never neither; reading the wrong one stops the process.
#ifndef TIDEMILL_RESULT_H_
#define TIDEMILL_RESULT_H_

#include <cstdlib>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

namespace tidemill {

enum class ErrorCode {
  kInvalidArgument,     // a flag or a request field is wrong: the caller must change the call
  kNotFound,            // a file, tensor, key or token does not exist
  kCorruptFile,         // bytes contradict themselves or the format
  kUnsupported,         // well formed, but not something this build can do
  kOutOfMemory,         // memory or address space is not there
  kContextFull,         // more positions than the context holds
  kIoError,             // the operating system refused a read or a write
  kNoSpace,             // the disk is full
  kNumericalError,      // NaN or infinity where a number must be
  kFailedPrecondition,  // right call, wrong moment
  kCancelled,           // somebody asked to stop
  kInternal,            // a bug of ours
};

// The name as it is spelled above, without the k: "InvalidArgument".
constexpr std::string_view ErrorCodeName(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return "InvalidArgument";
    case ErrorCode::kNotFound: return "NotFound";
    case ErrorCode::kCorruptFile: return "CorruptFile";
    case ErrorCode::kUnsupported: return "Unsupported";
    case ErrorCode::kOutOfMemory: return "OutOfMemory";
    case ErrorCode::kContextFull: return "ContextFull";
    case ErrorCode::kIoError: return "IoError";
    case ErrorCode::kNoSpace: return "NoSpace";
    case ErrorCode::kNumericalError: return "NumericalError";
    case ErrorCode::kFailedPrecondition: return "FailedPrecondition";
    case ErrorCode::kCancelled: return "Cancelled";
    case ErrorCode::kInternal: return "Internal";
  }
  return "Unknown";
}

// `message` is one line: what was being done: to what: what was expected, what was found, what to do.
class [[nodiscard]] Error {
 public:
  Error(ErrorCode code, std::string message) : code_(code), message_(std::move(message)) {}

  ErrorCode code() const { return code_; }
  const std::string& message() const { return message_; }

  // Puts "context: " in front, so that each caller names its own part: "load model.gguf: tensor \"x\": ...".
  Error WithContext(std::string_view context) && {
    message_.insert(0, std::string(context) + ": ");
    return std::move(*this);
  }

 private:
  ErrorCode code_;
  std::string message_;
};

namespace internal {
// [[noreturn]] so that misuse of a Result cannot go on with garbage.
[[noreturn]] inline void StopOnBadResultAccess() { std::abort(); }
}  // namespace internal

template <typename T>
class [[nodiscard]] Result {
 public:
  using Value = std::conditional_t<std::is_void_v<T>, std::monostate, T>;

  Result() requires std::is_void_v<T> : state_(std::in_place_index<0>) {}
  template <typename U = Value>
  requires(!std::is_void_v<T> && std::is_constructible_v<Value, U&&> &&
           !std::is_same_v<std::remove_cvref_t<U>, Result> && !std::is_same_v<std::remove_cvref_t<U>, Error>)
      Result(U&& value)
      : state_(std::in_place_index<0>, std::forward<U>(value)) {}            // NOLINT: `return value;`
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: `return Error{...};`

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  const Error& error() const& { return *Checked(std::get_if<1>(&state_)); }
  Error error() && { return std::move(*Checked(std::get_if<1>(&state_))); }

  Value& value() & { return *Checked(std::get_if<0>(&state_)); }
  const Value& value() const& { return *Checked(std::get_if<0>(&state_)); }
  Value value() && { return std::move(*Checked(std::get_if<0>(&state_))); }
  Value* operator->() { return Checked(std::get_if<0>(&state_)); }
  const Value* operator->() const { return Checked(std::get_if<0>(&state_)); }
  Value& operator*() & { return value(); }
  const Value& operator*() const& { return value(); }

  Result WithContext(std::string_view context) && {
    if (ok()) return std::move(*this);
    return Result(std::move(*this).error().WithContext(context));
  }

 private:
  template <typename P>
  static P* Checked(P* pointer) {
    if (pointer == nullptr) internal::StopOnBadResultAccess();
    return pointer;
  }

  std::variant<Value, Error> state_;
};

// TIDEMILL_TRY(tensor, file.Find(name)); declares `tensor` as the value, or returns the error from this function.
#define TIDEMILL_TRY(name, expr)                                        \
  auto name##_or_error = (expr);                                        \
  if (!name##_or_error.ok()) return std::move(name##_or_error).error(); \
  auto name = std::move(name##_or_error).value()

// The same for calls without a value.
#define TIDEMILL_TRY_VOID(expr)                                                   \
  do {                                                                            \
    auto tidemill_try_result = (expr);                                            \
    if (!tidemill_try_result.ok()) return std::move(tidemill_try_result).error(); \
  } while (false)

}  // namespace tidemill

#endif  // TIDEMILL_RESULT_H_
