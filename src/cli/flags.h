// The flags of one command. CLI11 splits the arguments and writes the help; what a value may be is checked here.
//   FlagSet flags("tokenize", "Print the token ids of a text");
//   flags.Positional("MODEL", model, "A .gguf file or a model folder");
//   flags.Switch("--json", json, "One JSON object");
//   TIDEMILL_TRY(go_on, flags.Parse(context));
//   if (!go_on) return {};
#ifndef TIDEMILL_CLI_FLAGS_H_
#define TIDEMILL_CLI_FLAGS_H_

#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "cli/command.h"
#include "cli/numbers.h"
#include "tidemill/result.h"

namespace tidemill::cli {

// `names`: "-n,--max-new-tokens", of which messages say the first long one. Targets must outlive Parse and are changed only
// by a flag that was given. A flag that takes one value is refused when it is given twice.
class FlagSet {
 public:
  FlagSet(std::string command, const std::string& description);
  ~FlagSet();
  FlagSet(const FlagSet&) = delete;
  FlagSet& operator=(const FlagSet&) = delete;

  // The heading in --help of the flags added from here on.
  void Group(const std::string& heading);

  void Positional(const std::string& name, std::string& target, const std::string& help);  // must be given
  void OptionalPositional(const std::string& name, std::optional<std::string>& target, const std::string& help);
  void Positionals(const std::string& name, std::vector<std::string>& target, const std::string& help);

  void Switch(const std::string& names, bool& target, const std::string& help);
  void Text(const std::string& names, std::optional<std::string>& target, const std::string& type,
            const std::string& help);
  void RequiredText(const std::string& names, std::string& target, const std::string& type, const std::string& help);
  void Texts(const std::string& names, std::vector<std::string>& target, const std::string& type,
             const std::string& help);  // may be repeated
  void Choice(const std::string& names, std::optional<std::string>& target, const std::vector<std::string>& choices,
              const std::string& help);
  template <typename T>
  void Number(const std::string& names, std::optional<T>& target, T lowest, T highest, const std::string& help) {
    const auto read = [&target, lowest, highest](const std::string& text) -> std::string {
      const std::optional<T> value = ParseNumber<T>(text);
      if (value && *value >= lowest && *value <= highest) {
        target = value;
        return "";
      }
      const std::string kind = std::is_floating_point_v<T> ? "a number" : "a whole number";
      // The library knows the range that means something.
      if (std::is_signed_v<T> && highest == std::numeric_limits<T>::max())
        return std::is_integral_v<T> && AreDigits(text) ? kind + " of at most " + NumberText(highest) : kind;
      return kind + " from " + NumberText(lowest) + " to " + NumberText(highest);
    };
    Value(names, "N", help, read);
  }
  // A list, "0,2048".
  void Numbers(const std::string& names, std::vector<size_t>& target, size_t lowest, size_t highest,
               const std::string& help);
  // Any other value: `read` takes it, or returns what was expected.
  using Reader = std::function<std::string(const std::string& text)>;
  void Value(const std::string& names, const std::string& type, const std::string& help, Reader read);
  void RepeatedValue(const std::string& names, const std::string& type, const std::string& help, Reader read);

  // Flags and positionals by name, added before.
  void Excludes(const std::string& one, const std::string& other);
  void Needs(const std::string& one, const std::string& other);
  // Still read, and no longer in --help: for a flag that this command refuses with a better message than "no such flag".
  void Hide(const std::string& name);
  // A flag of earlier versions: not in --help, and an error whatever its value. `instead`: what to do without it.
  void Removed(const std::string& name, const std::string& instead);

  // Also takes --help, --version, --log-level, --quiet. True: go on. False: --help or --version was answered.
  // kInvalidArgument: "read the command line: --flag: expected ..., found ...".
  Result<bool> Parse(CommandContext& context);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The one of `candidates` that `word` begins, or is likely a slip of: at most 1 + letters / 4 edits away (insert, delete, replace, swap).
std::optional<std::string> Nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace tidemill::cli

#endif  // TIDEMILL_CLI_FLAGS_H_
