#include "planner/machine_profile.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/json.h"
#include "base/json_document.h"

namespace tidemill {
namespace {

constexpr JsonDocumentLimits kLimits = {.max_bytes = 64 << 10};
constexpr size_t kMaxThreadsOfProfile = 4096;
constexpr size_t kMaxText = 200;
// A copy: bytes a second. All the others: seconds of one byte, element, position or loop, from what no machine of this decade reaches to
// what an emulated one stays below.
constexpr double kMinRate = 1e3, kMaxRate = 1e18;
constexpr double kMinSeconds = 1e-18, kMaxSeconds = 1;

Result<double> NumberOf(const JsonValue& value, std::string_view path, double low, double high) {
  TIDEMILL_TRY(number, value.GetFloat(path));
  if (!(number >= low && number <= high)) return value.Unexpected(path, "a positive number of a possible size");
  return number;
}

Result<void> ReadSeconds(const JsonValue& value, std::string_view path, double& seconds) {
  TIDEMILL_TRY(number, NumberOf(value, path, kMinSeconds, kMaxSeconds));
  seconds = number;
  return {};
}

Result<std::string> ShortText(const JsonValue& value, std::string_view path) {
  TIDEMILL_TRY(text, value.GetString(path));
  if (text.size() > kMaxText) return value.Unexpected(path, "a text of at most 200 bytes");
  return std::string(text);
}

template <size_t kCount>
Result<void> ReadNumbers(const JsonValue& value, const std::string& path, std::array<double, kCount>& numbers) {
  TIDEMILL_TRY(read, value.GetFloats(path));
  const auto possible = [](double s) { return s >= kMinSeconds && s <= kMaxSeconds; };
  if (read.size() != kCount || !std::all_of(read.begin(), read.end(), possible))
    return value.Unexpected(path, std::to_string(kCount) + " positive numbers of a possible size");
  std::copy(read.begin(), read.end(), numbers.begin());
  return {};
}

// An object with so many members; that they are the accepted ones is found when each is read.
Result<void> ExpectMembers(const JsonValue& value, const std::string& path, size_t count) {
  TIDEMILL_TRY(object, value.GetObject(path));
  if (object.Keys().size() != count)
    return value.Unexpected(path, "an object of " + std::to_string(count) + " members");
  return {};
}

template <size_t kCount>
Result<void> ExpectRows(const JsonValue& value, std::string_view path, const std::array<size_t, kCount>& rows) {
  TIDEMILL_TRY(read, value.GetInts(path));
  if (std::equal(read.begin(), read.end(), rows.begin(), rows.end(),
                 [](int64_t a, size_t b) { return a == static_cast<int64_t>(b); }))
    return {};
  std::string list;
  for (const size_t row : rows) list += (list.empty() ? "" : ", ") + std::to_string(row);
  return value.Unexpected(path, "[" + list + "]");
}

std::string NameOf(DType dtype) { return std::string(InfoOf(dtype).name); }

std::string AttentionName(size_t dim_index, size_t group_index) {
  return std::to_string(kAttentionDims[dim_index]) + "x" + std::to_string(kAttentionGroups[group_index]);
}

constexpr const char* kProductKey = "product_seconds_per_byte";
constexpr const char* kAttentionKey = "attention_seconds_per_kv_row";

Result<void> ReadOperations(const JsonValue& value, const std::string& key, OperationSeconds& operations) {
  TIDEMILL_TRY_VOID(ReadSeconds(value, key + ".loop_seconds", operations.loop));
  const std::string products = key + "." + kProductKey, attention = key + "." + kAttentionKey;
  TIDEMILL_TRY_VOID(ExpectMembers(value, products, kNumDTypes));
  for (size_t type = 0; type < operations.product.size(); ++type) {
    const std::string path = products + "." + NameOf(static_cast<DType>(type));
    TIDEMILL_TRY_VOID(ReadNumbers(value, path, operations.product[type]));
  }
  TIDEMILL_TRY_VOID(ExpectMembers(value, attention, kAttentionDims.size() * kAttentionGroups.size()));
  for (size_t dim = 0; dim < kAttentionDims.size(); ++dim) {
    for (size_t group = 0; group < kAttentionGroups.size(); ++group) {
      const std::string path = attention + "." + AttentionName(dim, group);
      TIDEMILL_TRY_VOID(ReadNumbers(value, path, operations.attention[dim][group]));
    }
  }
  return {};
}

Json OperationsJson(const OperationSeconds& operations) {
  Json json = {{"loop_seconds", operations.loop}};
  for (size_t type = 0; type < operations.product.size(); ++type)
    json[kProductKey][NameOf(static_cast<DType>(type))] = operations.product[type];
  for (size_t dim = 0; dim < kAttentionDims.size(); ++dim) {
    for (size_t group = 0; group < kAttentionGroups.size(); ++group)
      json[kAttentionKey][AttentionName(dim, group)] = operations.attention[dim][group];
  }
  return json;
}

// Of the names, which this build may not know all: a profile of another architecture is read and then not used.
std::optional<Isa> IsaNamed(std::string_view name) {
  for (const Isa isa : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Vnni, Isa::kAvx512Bf16}) {
    if (IsaName(isa) == name) return isa;
  }
  return std::nullopt;
}

// What CPUs of one generation have in common, AMD's at least (25 is Zen 3 and Zen 4, 26 Zen 5); Intel's family 6 is most of them.
struct CpuFamily {
  std::string_view vendor;
  unsigned family = 0;

  bool operator==(const CpuFamily&) const = default;
};

std::optional<CpuFamily> FamilyOf(std::string_view cpu) {
  constexpr std::string_view kFamily = ", family ";
  const size_t at = cpu.rfind(kFamily);
  if (at == std::string_view::npos) return std::nullopt;
  CpuFamily found;
  const std::string_view number = cpu.substr(at + kFamily.size());
  if (std::from_chars(number.data(), number.data() + number.size(), found.family).ec != std::errc())
    return std::nullopt;
  for (const std::string_view vendor : {"AMD", "Intel"}) {
    if (cpu.substr(0, at).find(vendor) != std::string_view::npos) found.vendor = vendor;
  }
  if (found.vendor.empty()) return std::nullopt;
  return found;
}

}  // namespace

Result<MachineProfile> ParseProfile(const std::string& name, std::string_view text) {
  TIDEMILL_TRY(document, JsonDocument::Parse(name, text, kLimits));
  TIDEMILL_TRY(version, document.GetUint("version", 0, UINT32_MAX));
  if (version != MachineProfile::kVersion) {
    return Error(ErrorCode::kUnsupported, name + ": \"version\": expected " + std::to_string(MachineProfile::kVersion) +
                                              ", found " + std::to_string(version));
  }
  MachineProfile profile;
  const std::pair<const char*, std::string*> texts[] = {
      {"date", &profile.date}, {"source", &profile.source}, {"cpu", &profile.cpu}};
  for (const auto& [key, target] : texts) {
    TIDEMILL_TRY(value, ShortText(document, key));
    *target = std::move(value);
  }
  TIDEMILL_TRY(isa_name, document.GetString("isa"));
  const std::optional<Isa> isa = IsaNamed(isa_name);
  if (!isa) return document.Unexpected("isa", "a level of --isa");
  profile.isa = *isa;
  TIDEMILL_TRY(threads, document.GetUint("threads", 1, kMaxThreadsOfProfile));
  profile.threads = threads;
  TIDEMILL_TRY(copy, NumberOf(document, "copy_bytes_per_s", kMinRate, kMaxRate));
  profile.copy = copy;
  TIDEMILL_TRY_VOID(ReadSeconds(document, "touch_seconds_per_byte", profile.touch));
  TIDEMILL_TRY_VOID(ReadSeconds(document, "element_seconds", profile.element));
  TIDEMILL_TRY_VOID(ExpectRows(document, "product_rows", kProductRows));
  TIDEMILL_TRY_VOID(ExpectRows(document, "attention_rows", kAttentionRows));
  TIDEMILL_TRY_VOID(ReadOperations(document, "one", profile.one));
  TIDEMILL_TRY_VOID(ReadOperations(document, "all", profile.all));
  return profile;
}

std::string ProfileText(const MachineProfile& profile) {
  Json json = {{"version", MachineProfile::kVersion},
               {"date", profile.date},
               {"source", profile.source},
               {"cpu", profile.cpu},
               {"isa", IsaName(profile.isa)},
               {"threads", profile.threads},
               {"copy_bytes_per_s", profile.copy},
               {"touch_seconds_per_byte", profile.touch},
               {"element_seconds", profile.element},
               {"product_rows", kProductRows},
               {"attention_rows", kAttentionRows},
               {"one", OperationsJson(profile.one)},
               {"all", OperationsJson(profile.all)}};
  return json.dump(1) + "\n";
}

const MachineProfile& NearestProfile(std::span<const MachineProfile> profiles, Isa isa, size_t threads,
                                     std::string_view cpu) {
  TIDEMILL_CHECK(!profiles.empty());
  const std::optional<CpuFamily> family = FamilyOf(cpu);
  const auto distance = [&](const MachineProfile& profile) {
    const auto apart = [](size_t a, size_t b) { return a > b ? a - b : b - a; };
    return std::tuple(apart(static_cast<size_t>(profile.isa), static_cast<size_t>(isa)),
                      !family || FamilyOf(profile.cpu) != family, apart(profile.threads, threads));
  };
  return *std::min_element(profiles.begin(), profiles.end(),
                           [&](const auto& a, const auto& b) { return distance(a) < distance(b); });
}

MachineProfile NearestBuiltIn(Isa isa, size_t threads, std::string_view cpu) {
  std::vector<MachineProfile> profiles;
  for (const std::string_view text : BuiltInProfiles()) {
    auto profile = ParseProfile("built-in profile", text);
    TIDEMILL_CHECK(profile.ok());
    profiles.push_back(std::move(profile).value());
  }
  return NearestProfile(profiles, isa, threads, cpu);
}

}  // namespace tidemill
