#include "cli/text_source.h"

#include <unistd.h>

#include <utility>
#include <vector>

#include "cli/errors.h"
#include "cli/files.h"
#include "cli/utf8.h"

namespace tidemill::cli {

Result<void> CheckUtf8(std::string_view doing, std::string_view object, std::string_view text) {
  const auto offset = FindInvalidUtf8(text);
  if (!offset) return {};
  constexpr char kHex[] = "0123456789abcdef";
  const auto byte = static_cast<unsigned char>(text[*offset]);
  return Error(ErrorCode::kInvalidArgument,
               std::string(doing) + ": " + std::string(object) + ": expected UTF-8, found byte 0x" + kHex[byte >> 4] +
                   kHex[byte & 15] + " at offset " + std::to_string(*offset) + "; convert it, as with iconv");
}

void TextSource::AddTo(FlagSet& flags, bool with_prompt) {
  if (with_prompt) flags.Text("-p,--prompt", prompt, "TEXT", "The text; - stands for itself here");
  flags.Text("-f,--file", file, "FILE", "Read the text from this file; - is standard input");
}

Result<std::string> TextSource::Read(std::string_view doing, std::string_view if_none) const {
  std::vector<std::string> given;
  if (positional) given.push_back("the argument " + Quoted(*positional));
  if (prompt) given.push_back("-p " + Quoted(*prompt));
  if (file) given.push_back("-f " + Quoted(*file));
  if (given.size() > 1) {
    return UsageError("text", "expected one, found two: " + given[0] + " and " + given[1] + "; leave one out");
  }
  std::string text;
  std::string object = "the argument";
  const bool is_input = positional == "-" || file == "-" || given.empty();
  if (is_input) {
    if (given.empty() && isatty(STDIN_FILENO) == 1)
      return UsageError("text", "expected one, found none; " + std::string(if_none));
    TIDEMILL_TRY(bytes, ReadStandardInput(doing));
    text = std::move(bytes);
    object = "standard input";
  } else if (file) {
    TIDEMILL_TRY(bytes, ReadFile(doing, *file));
    text = std::move(bytes);
    object = *file;
  } else {
    text = prompt ? *prompt : *positional;
    if (prompt) object = "-p";
  }
  TIDEMILL_TRY_VOID(CheckUtf8(doing, object, text));
  return text;
}

}  // namespace tidemill::cli
