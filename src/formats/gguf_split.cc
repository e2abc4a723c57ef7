#include "formats/gguf_split.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <new>
#include <numeric>
#include <utility>

#include "base/printable_name.h"

namespace tidemill {
namespace {

constexpr size_t kDigits = 5;
constexpr std::string_view kOf = "-of-";
constexpr size_t kSuffixBytes = 1 + kDigits + kOf.size() + kDigits;  // "-00001-of-00003"

std::string FiveDigits(uint32_t number) {
  const std::string digits = std::to_string(number);
  return std::string(kDigits - std::min(kDigits, digits.size()), '0') + digits;
}

std::string PartSuffix(uint32_t number, uint32_t count) {
  return "-" + FiveDigits(number) + std::string(kOf) + FiveDigits(count) + ".gguf";
}

std::string PartContext(size_t number, size_t count) {
  return "GGUF part " + std::to_string(number) + " of " + std::to_string(count);
}

Error PartError(size_t number, size_t count, const std::string& key, const std::string& expected,
                const std::string& found) {
  return Error(ErrorCode::kCorruptFile,
               PartContext(number, count) + ": " + key + ": expected " + expected + ", found " + found);
}

std::optional<uint32_t> ParseFiveDigits(std::string_view text) {
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || text.front() == '-') return std::nullopt;
  return number;
}

}  // namespace

std::optional<PartNumber> ParsePartName(std::string_view file_name, std::string_view extension) {
  if (!file_name.ends_with(extension)) return std::nullopt;
  file_name.remove_suffix(extension.size());
  if (file_name.size() < kSuffixBytes) return std::nullopt;
  const std::string_view suffix = file_name.substr(file_name.size() - kSuffixBytes);
  if (suffix[0] != '-' || suffix.substr(1 + kDigits, kOf.size()) != kOf) return std::nullopt;
  const auto number = ParseFiveDigits(suffix.substr(1, kDigits));
  const auto count = ParseFiveDigits(suffix.substr(kSuffixBytes - kDigits));
  if (!number || !count || *number < 1 || *number > *count || *count > kGgufMaxParts) return std::nullopt;
  return PartNumber{*number, *count};
}

Result<std::optional<PartNumber>> ReadGgufPart(const GgufFile& file) {
  TIDEMILL_TRY(count, file.GetUintOr("split.count", 0, 0, kGgufMaxParts));
  if (count <= 1) return std::optional<PartNumber>();  // 0 and 1 are what tools write that could have split and did not
  TIDEMILL_TRY(number, file.GetUint("split.no", 0, count - 1));
  return std::optional(PartNumber{static_cast<uint32_t>(number + 1), static_cast<uint32_t>(count)});
}

Result<std::vector<std::string>> GgufPartNames(std::string_view file_name, const PartNumber& part) {
  const auto named = ParsePartName(file_name, ".gguf");
  if (!named || named->number != part.number || named->count != part.count) {
    return PartError(part.number, part.count, "file name",
                     "a name that ends in " + QuoteName(PartSuffix(part.number, part.count)), QuoteName(file_name));
  }
  const std::string prefix(file_name.substr(0, file_name.size() - PartSuffix(part.number, part.count).size()));
  std::vector<std::string> names;
  names.reserve(part.count);
  for (uint32_t number = 1; number <= part.count; ++number) names.push_back(prefix + PartSuffix(number, part.count));
  return names;
}

class GgufJoiner {
 public:
  static Result<GgufFile> Join(std::vector<GgufFile> parts) {
    TIDEMILL_TRY_VOID(CheckNumbers(parts));
    std::vector<uint32_t> part_of;  // each tensor's part
    size_t num_tensors = 0;
    for (const GgufFile& part : parts) num_tensors += part.tensors_.size();
    part_of.reserve(num_tensors);
    GgufFile joined = std::move(parts[0]);
    part_of.resize(joined.tensors_.size(), 1);
    joined.tensors_.reserve(num_tensors);
    for (uint32_t i = 1; i < parts.size(); ++i) {
      joined.tensors_.insert(joined.tensors_.end(), parts[i].tensors_.begin(), parts[i].tensors_.end());
      part_of.resize(joined.tensors_.size(), i + 1);
    }
    std::vector<uint32_t>& order = joined.tensors_by_name_;
    order.resize(num_tensors);
    std::iota(order.begin(), order.end(), 0U);
    const auto name = [&](uint32_t i) { return joined.tensors_[i].name; };
    std::sort(order.begin(), order.end(),
              [&](uint32_t a, uint32_t b) { return name(a) != name(b) ? name(a) < name(b) : a < b; });
    const auto twin =
        std::adjacent_find(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return name(a) == name(b); });
    if (twin != order.end()) {
      return Error(ErrorCode::kCorruptFile,
                   "GGUF tensor " + QuoteName(name(*twin)) + ": expected in one part, found in parts " +
                       std::to_string(part_of[twin[0]]) + " and " + std::to_string(part_of[twin[1]]));
    }
    TIDEMILL_TRY(expected, joined.GetUint("split.tensors.count", 0, kGgufMaxTensors));
    if (expected != num_tensors) {
      return Error(ErrorCode::kCorruptFile, "GGUF parts: split.tensors.count: expected " + std::to_string(num_tensors) +
                                                ", as many as there are, found " + std::to_string(expected));
    }
    return joined;
  }

 private:
  static Result<void> CheckNumbers(const std::vector<GgufFile>& parts) {
    const size_t count = parts.size();
    for (size_t i = 0; i < count; ++i) {
      auto part = ReadGgufPart(parts[i]);
      if (!part.ok()) return std::move(part).error().WithContext(PartContext(i + 1, count));
      const PartNumber found = part->value_or(PartNumber{});
      if (found.count != count) {
        return PartError(i + 1, count, "split.count", std::to_string(count), std::to_string(found.count));
      }
      if (found.number != i + 1) {
        return PartError(i + 1, count, "split.no", std::to_string(i), std::to_string(found.number - 1));
      }
    }
    return {};
  }
};

Result<GgufFile> JoinGgufParts(std::vector<GgufFile> parts) {
  try {
    return GgufJoiner::Join(std::move(parts));
  } catch (const std::bad_alloc&) {
    return Error(ErrorCode::kOutOfMemory, "GGUF parts: no memory for their tensors");
  }
}

}  // namespace tidemill
