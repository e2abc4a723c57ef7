#include "planner/machine_profile.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "formats/json_document.h"
#include "tensor/dtype.h"

namespace tidemill {
namespace {

using Json = nlohmann::ordered_json;

constexpr JsonDocumentLimits kLimits = {.max_bytes = 64 << 10, .max_values = 1000, .max_depth = 8};
constexpr size_t kMaxThreadsOfProfile = 4096;
constexpr size_t kMaxText = 200;
// Rates a second, and their inverses: from a thousand to what no machine of this decade does.
constexpr double kLeastRate = 1e3, kMostRate = 1e18;

Result<double> PositiveNumber(const JsonValue& value, std::string_view path, double low, double high) {
  TIDEMILL_TRY(number, value.GetFloat(path));
  if (!(number >= low && number <= high)) return value.Unexpected(path, "a positive number of a possible size");
  return number;
}

Result<std::string> ShortText(const JsonValue& value, std::string_view path) {
  TIDEMILL_TRY(text, value.GetString(path));
  if (text.size() > kMaxText) return value.Unexpected(path, "a text of at most 200 bytes");
  return std::string(text);
}

Result<MachineRates> ReadRates(const JsonDocument& document, const std::string& key) {
  MachineRates rates;
  const std::pair<const char*, double*> members[] = {
      {"read_bytes_per_s", &rates.read}, {"int8_ops_per_s", &rates.int8}, {"f32_flops_per_s", &rates.f32}};
  for (const auto& [name, rate] : members) {
    TIDEMILL_TRY(number, PositiveNumber(document, key + "." + name, kLeastRate, kMostRate));
    *rate = number;
  }
  TIDEMILL_TRY(bfloat16, PositiveNumber(document, key + ".bf16_ops_per_s", 0, kMostRate));
  rates.bfloat16 = bfloat16;
  return rates;
}

Json RatesJson(const MachineRates& rates) {
  return {{"read_bytes_per_s", rates.read},
          {"int8_ops_per_s", rates.int8},
          {"bf16_ops_per_s", rates.bfloat16},
          {"f32_flops_per_s", rates.f32}};
}

Result<PerRows> ReadSeconds(const JsonDocument& document, std::string_view key) {
  TIDEMILL_TRY(numbers, document.GetFloats(key));
  PerRows seconds{};
  const auto possible = [](double s) { return s >= 1 / kMostRate && s <= 1 / kLeastRate * 1e6; };
  if (numbers.size() != seconds.size() || !std::all_of(numbers.begin(), numbers.end(), possible))
    return document.Unexpected(key, "6 positive numbers of a possible size");
  std::copy(numbers.begin(), numbers.end(), seconds.begin());
  return seconds;
}

// Of the names, which this build may not know all: a profile of another architecture is read and then not used.
std::optional<Isa> IsaNamed(std::string_view name) {
  for (const Isa isa : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Vnni, Isa::kAvx512Bf16}) {
    if (IsaName(isa) == name) return isa;
  }
  return std::nullopt;
}

}  // namespace

AttentionShape SampleAttention() {
  AttentionShape shape;
  shape.heads = 32;
  shape.kv_heads = 8;
  shape.head_dim = 128;
  shape.scale = 0.0883883F;  // 1 / sqrt(128)
  shape.kv_dtype = DType::kF16;
  return shape;
}

Cost SampleProduct() {
  const auto rows = static_cast<double>(kSampleWeightRows), cols = static_cast<double>(kSampleWeightCols);
  return {.bytes = rows * static_cast<double>(RowBytes(DType::kQ8_0, kSampleWeightCols)),
          .flops = rows * cols / 32 * 3,  // the scales of a block
          .int8_ops = 2 * rows * cols};
}

double MachineRates::ArithmeticSeconds(const Cost& cost) const {
  const double of_bfloat16 = bfloat16 > 0 ? bfloat16 : f32;
  return std::max({cost.int8_ops / int8, cost.bfloat16_ops / of_bfloat16, cost.flops / f32});
}

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
  TIDEMILL_TRY(one, ReadRates(document, "one"));
  profile.one = one;
  TIDEMILL_TRY(all, ReadRates(document, "all"));
  profile.all = all;
  TIDEMILL_TRY(copy, PositiveNumber(document, "copy_bytes_per_s", kLeastRate, kMostRate));
  profile.copy = copy;
  TIDEMILL_TRY(touch, PositiveNumber(document, "touch_seconds_per_byte", 1 / kMostRate, 1 / kLeastRate));
  profile.touch = touch;
  TIDEMILL_TRY(rows, document.GetInts("rows"));
  if (!std::equal(rows.begin(), rows.end(), kProfileRows.begin(), kProfileRows.end(),
                  [](int64_t a, size_t b) { return a == static_cast<int64_t>(b); })) {
    return document.Unexpected("rows", "[1, 2, 4, 8, 16, 32]");
  }
  TIDEMILL_TRY(attention, ReadSeconds(document, "attention_seconds_per_kv_row"));
  profile.attention = attention;
  TIDEMILL_TRY(product, ReadSeconds(document, "product_seconds"));
  profile.product = product;
  return profile;
}

std::string ProfileText(const MachineProfile& profile) {
  Json json = {{"version", MachineProfile::kVersion},
               {"date", profile.date},
               {"source", profile.source},
               {"cpu", profile.cpu},
               {"isa", IsaName(profile.isa)},
               {"threads", profile.threads},
               {"one", RatesJson(profile.one)},
               {"all", RatesJson(profile.all)},
               {"copy_bytes_per_s", profile.copy},
               {"touch_seconds_per_byte", profile.touch},
               {"rows", kProfileRows},
               {"attention_seconds_per_kv_row", profile.attention},
               {"product_seconds", profile.product}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

MachineProfile NearestBuiltIn(Isa isa, size_t threads) {
  const auto distance = [&](const MachineProfile& profile) {
    const auto apart = [](size_t a, size_t b) { return a > b ? a - b : b - a; };
    return std::pair(apart(static_cast<size_t>(profile.isa), static_cast<size_t>(isa)),
                     apart(profile.threads, threads));
  };
  std::optional<MachineProfile> nearest;
  for (const std::string_view text : BuiltInProfiles()) {
    auto profile = ParseProfile("built-in profile", text);
    TIDEMILL_CHECK(profile.ok());
    if (!nearest || distance(*profile) < distance(*nearest)) nearest = std::move(profile).value();
  }
  TIDEMILL_CHECK(nearest.has_value());
  return *std::move(nearest);
}

}  // namespace tidemill
