#include "cli/errors.h"

#include <cerrno>
#include <string>
#include <system_error>

#include "cli/utf8.h"

namespace tidemill::cli {

int ExitCodeFor(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return 2;
    case ErrorCode::kNoSpace: return 4;
    case ErrorCode::kInternal: return 70;
    case ErrorCode::kNotFound:
    case ErrorCode::kCorruptFile:
    case ErrorCode::kUnsupported:
    case ErrorCode::kOutOfMemory:
    case ErrorCode::kContextFull:
    case ErrorCode::kIoError:
    case ErrorCode::kNumericalError:
    case ErrorCode::kFailedPrecondition:
    case ErrorCode::kCancelled: return 1;
  }
  return 70;
}

namespace {

bool IsControl(char32_t code) { return code < 0x20 || (code >= 0x7F && code <= 0x9F); }

// At most `limit` bytes: the front, "...", and the end, cut between characters.
std::string LeaveOutMiddle(std::string text, size_t limit) {
  if (text.size() <= limit) return text;
  const auto is_inside = [&](size_t i) { return (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80; };
  size_t front = (limit - 3) / 2;
  size_t back = text.size() - (limit - 3 - front);
  while (front > 0 && is_inside(front)) --front;
  while (back < text.size() && is_inside(back)) ++back;
  return text.substr(0, front) + "..." + text.substr(back);
}

}  // namespace

std::string Printable(std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  out.reserve(text.size());
  for (size_t offset = 0; offset < text.size();) {
    const Utf8Character character = CharacterAt(text, offset);
    const size_t length = character.length == 0 ? 1 : character.length;
    if (character.length == 0 || IsControl(character.code)) {
      for (size_t i = 0; i < length; ++i) {
        const auto byte = static_cast<unsigned char>(text[offset + i]);
        out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
      }
    } else {
      out += text.substr(offset, length);
    }
    offset += length;
  }
  return out;
}

std::string Quoted(std::string_view text) { return '"' + LeaveOutMiddle(Printable(text), 80) + '"'; }

std::string ErrorLine(std::string_view message) {
  return LeaveOutMiddle("tidemill: " + Printable(message), kMaxErrorLine);
}

Error UsageError(std::string_view where, std::string_view what) {
  return Error(ErrorCode::kInvalidArgument, "read the command line: " + std::string(where) + ": " + std::string(what));
}

Error SystemError(std::string_view doing, std::string_view object, int error_number) {
  ErrorCode code = ErrorCode::kIoError;
  if (error_number == ENOSPC || error_number == EDQUOT || error_number == EFBIG) code = ErrorCode::kNoSpace;
  if (error_number == ENOENT || error_number == ENOTDIR) code = ErrorCode::kNotFound;
  std::string message = std::string(doing) + ": " + std::string(object) + ": ";
  message += std::generic_category().message(error_number);
  if (code == ErrorCode::kNotFound) message += "; check the path";
  if (code == ErrorCode::kNoSpace) message += "; free some and run it again";
  return Error(code, std::move(message));
}

}  // namespace tidemill::cli
