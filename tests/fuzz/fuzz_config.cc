// JSON settings over arbitrary bytes: a clean error, or a document whose every value answers every getter, with what a second parser
// makes of the bytes that the value was read from, and which is the same when it is written again. A first line that does not begin with '{' is a path to ask for.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/json_document.h"
#include "tests/support/inspect_safetensors.h"

namespace tidemill {
namespace {

using nlohmann::json;

void Require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

template <typename T>
bool Answers(const Result<T>& result) {
  if (result.ok()) return true;
  const std::string problem = testing::FindErrorProblem(result.error(), {"config.json: "});
  Require(problem.empty(), problem.c_str());
  return false;
}

// Every getter; `expected` is the same value as another reader has it.
void UseValue(const JsonValue& value, const json& expected) {
  constexpr auto kIntMin = std::numeric_limits<int64_t>::min();
  constexpr auto kIntMax = std::numeric_limits<int64_t>::max();
  constexpr auto kUintMax = std::numeric_limits<uint64_t>::max();
  const auto uint = value.GetUint("", 0, kUintMax);
  if (Answers(uint)) Require(expected.is_number_integer() && *uint == expected.get<uint64_t>(), "an unsigned integer");
  const auto integer = value.GetInt("", kIntMin, kIntMax);
  if (Answers(integer)) Require(expected.is_number_integer() && *integer == expected.get<int64_t>(), "an integer");
  Require(value.is_integer() == (uint.ok() || integer.ok()), "an integer answers");
  const auto real = value.GetFloat("");
  Require(Answers(real) == expected.is_number(), "a number answers");
  if (real.ok()) Require(*real == expected.get<double>(), "a number");
  const auto boolean = value.GetBool("");
  Require(Answers(boolean) == expected.is_boolean(), "a bool answers");
  if (boolean.ok()) Require(*boolean == expected.get<bool>(), "a bool");
  const auto text = value.GetString("");
  Require(Answers(text) == expected.is_string(), "a string answers");
  if (text.ok()) Require(*text == expected.get_ref<const std::string&>(), "a string");
  Require(value.is_null() == expected.is_null(), "null");
  Answers(value.GetInts(""));
  Answers(value.GetOneOrMoreInts(""));
  Answers(value.GetFloats(""));
  Answers(value.GetStrings(""));
  Require(Answers(value.GetObject("")) == expected.is_object(), "an object answers");
  Require(Answers(value.GetArray("")) == expected.is_array(), "an array answers");
}

void UseTree(const JsonValue& value, const json& expected, size_t& budget) {
  if (budget == 0) return;  // paths of deep values make this quadratic
  --budget;
  UseValue(value, expected);
  const auto elements = value.Elements();
  Require(elements.size() == (expected.is_array() ? expected.size() : 0), "as many elements");
  for (size_t i = 0; i < elements.size(); ++i) UseTree(elements[i], expected[i], budget);
  const auto keys = value.Keys();
  Require(keys.size() == (expected.is_object() ? expected.size() : 0), "as many keys");
  for (const std::string_view key : keys) {
    if (key.empty()) continue;  // an empty path is the value itself
    const auto member = value.Find(key);
    Require(member.has_value() && expected.contains(std::string(key)), "each key is found");
    UseTree(*member, expected[std::string(key)], budget);
  }
}

void UsePath(const JsonValue& root, std::string_view path) {
  const auto found = root.Find(path);
  Require(root.Has(path) == (found && !found->is_null()), "Has is Find without null");
  Require(root.IsNull(path) == (found && found->is_null()), "IsNull is Find of null");
  const auto number = root.GetUintOr(path, 7, 0, 1000);
  Require(!Answers(number) || *number <= 1000, "a number within its range, or the fallback");
  Answers(root.GetIntOr(path, -7, -1000, 1000));
  Answers(root.GetFloatOr(path, 0.5));
  Answers(root.GetBoolOr(path, true));
  Answers(root.GetStringOr(path, "x"));
  Answers(root.GetStrings(path));
}

}  // namespace
}  // namespace tidemill

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  std::string_view path = "rope_parameters.full_attention.rope_theta";
  if (!text.starts_with('{')) {
    path = text.substr(0, text.find('\n'));
    text.remove_prefix(path.size());
  }
  const auto document = tidemill::JsonDocument::Parse("config.json", text);
  if (!tidemill::Answers(document)) return 0;
  const auto expected = nlohmann::json::parse(text);
  const auto members =
      std::count_if(expected.begin(), expected.end(), [](const auto& value) { return !value.is_null(); });
  tidemill::Require(document->Unread().size() == static_cast<size_t>(members), "all members but nulls are unread");
  tidemill::UsePath(*document, path);
  tidemill::Require(document->Unread().size() <= document->num_values(), "what is unread is in the document");
  size_t budget = 2000;
  tidemill::UseTree(*document, expected, budget);
  tidemill::Require(nlohmann::json::parse(tidemill::Json(*document).dump()) == expected,
                    "what is written is what was read");
  return 0;
}
