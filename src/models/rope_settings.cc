#include "models/rope_settings.h"

#include <cmath>
#include <string>
#include <utility>

#include "base/printable_name.h"

namespace tidemill {
namespace {

constexpr const char* kLayerTypes[] = {"full_attention", "sliding_attention"};

// The keys of one rope under the names of both formats.
class RopeKeys {
 public:
  RopeKeys(const SettingsReader& reader, const RopePlace& place) : reader_(reader), place_(place) {}

  SettingKey operator()(const std::string& name, const char* gguf = "") const {
    const std::string before = place_.before + "." + name;
    const bool is_before = !place_.before.empty() && reader_.Has({before, ""});
    return {is_before ? before : place_.at + "." + name, gguf};
  }
  bool Has(const std::string& name) const { return !reader_.gguf() && reader_.Has((*this)(name)); }

 private:
  const SettingsReader& reader_;
  const RopePlace& place_;
};

// "llama3" -> kLlama3, under the names of both formats.
Result<RopeScaling> ScalingOf(const SettingsReader& reader, const SettingKey& key, const std::string& name) {
  if (name == "default" || name == "none" || name.empty()) return RopeScaling::kNone;
  if (name == "linear") return RopeScaling::kLinear;
  if (name == "dynamic") return RopeScaling::kDynamic;
  if (name == "llama3") return RopeScaling::kLlama3;
  if (name == "yarn") return RopeScaling::kYarn;
  return reader.Wrong(key, "default, linear, dynamic, llama3 or yarn", QuoteName(name), ErrorCode::kUnsupported);
}

// The first mixes both frequencies otherwise than yarn; the second multiplies in some versions of llama.cpp and not in others.
Result<void> CheckYarnKeys(const SettingsReader& reader) {
  for (const char* name : {"rope.scaling.yarn_ext_factor", "rope.scaling.yarn_attn_factor"}) {
    TIDEMILL_TRY(value, reader.FloatOr({"", name}, 1));
    if (value != 1) return reader.Wrong({"", name}, "1", SettingText(value), ErrorCode::kUnsupported);
  }
  return {};
}

// yarn's factor of cosines and sines where the file does not give it: arXiv:2309.00071 eq. 22.
Result<double> YarnAttentionFactor(const SettingsReader& reader, const RopeKeys& keys, double factor) {
  const auto scale = [](double by, double mscale) { return by <= 1 ? 1.0 : 0.1 * mscale * std::log(by) + 1.0; };
  if (reader.gguf()) {
    TIDEMILL_TRY(times, reader.FloatWithin({"", "rope.scaling.attn_factor"}, 1, 0, 1e6));
    return times * scale(factor, 1);
  }
  TIDEMILL_TRY(given, reader.FloatWithin(keys("attention_factor"), 1, 0, 1e6));
  TIDEMILL_TRY(mscale, reader.FloatOr(keys("mscale"), 0));
  TIDEMILL_TRY(all_dim, reader.FloatOr(keys("mscale_all_dim"), 0));
  if (keys.Has("attention_factor")) return given;
  if (mscale == 0 || all_dim == 0) return scale(factor, 1);
  const double attention_factor = scale(factor, mscale) / scale(factor, all_dim);
  if (!(attention_factor > 0 && attention_factor < 1e6)) {
    return reader.Wrong(keys("mscale"),
                        "with mscale_all_dim = " + SettingText(all_dim) + " a ratio above 0 and below 1e+06",
                        SettingText(mscale) + ": " + SettingText(attention_factor));
  }
  return attention_factor;
}

// An integer in GGUF files; checkpoints spell it either way.
Result<double> ReadOriginalLength(const SettingsReader& reader, const RopePlace& place,
                                  size_t max_position_embeddings) {
  const char* name = "original_max_position_embeddings";
  SettingKey key = RopeKeys(reader, place)(name, "rope.scaling.original_context_length");
  if (!reader.gguf()) {
    if (place.is_for_all_layers && reader.Has({name, ""})) key.config = name;
    return reader.FloatWithin(key, static_cast<double>(max_position_embeddings), 0, 1e12);
  }
  TIDEMILL_TRY(length, reader.UintOr(key, max_position_embeddings, 1, uint64_t{1} << 30));
  return static_cast<double>(length);
}

Result<double> ReadTheta(const SettingsReader& reader, const RopePlace& place) {
  const RopeKeys keys(reader, place);
  const bool is_inside = keys.Has("rope_theta");
  TIDEMILL_TRY(theta, reader.FloatWithin(is_inside ? keys("rope_theta") : place.theta, place.default_theta,
                                         kMinRopeTheta, kMaxRopeTheta));
  if (is_inside) reader.TakeIfEqual(place.theta, theta);
  return theta;
}

}  // namespace

Result<RopePlace> FindRope(const SettingsReader& reader, std::string theta_key, double default_theta) {
  RopePlace place{.at = "rope_parameters", .before = "", .theta = {std::move(theta_key), "rope.freq_base"}};
  place.default_theta = default_theta;
  if (reader.gguf()) return place;
  const JsonValue& config = reader.config();
  for (const char* name : {"rope_parameters", "rope_scaling"}) {
    if (!config.Has(name)) continue;
    TIDEMILL_TRY(object, config.GetObject(name));
    if (object.size() != 0) place.at = name;
  }
  for (const char* type : kLayerTypes) {
    const SettingKey key{place.at + "." + type, ""};
    if (!reader.Has(key)) continue;
    return reader.Wrong(key, "one rope for all layers", "one for layers of this type", ErrorCode::kUnsupported);
  }
  return place;
}

Result<RopeSettings> ReadRopeSettings(const SettingsReader& reader, const RopePlace& place,
                                      size_t max_position_embeddings) {
  const RopeKeys keys(reader, place);
  RopeSettings rope;
  TIDEMILL_TRY(theta, ReadTheta(reader, place));
  rope.theta = theta;
  const SettingKey type_key = keys(keys.Has("rope_type") ? "rope_type" : "type", "rope.scaling.type");
  SettingKey factor_key = keys("factor", "rope.scaling.factor");
  if (const SettingKey old_key{"", "rope.scale_linear"}; !reader.Has(factor_key) && reader.Has(old_key))
    factor_key = old_key;  // before there were types
  // In a GGUF file a factor alone is linear scaling, and linear scaling without a factor is none.
  const bool gguf_factor = reader.gguf() && reader.Has(factor_key);
  TIDEMILL_TRY(type, reader.StringOr(type_key, gguf_factor ? "linear" : "default"));
  TIDEMILL_TRY(scaling, ScalingOf(reader, type_key, type));
  reader.TakeIfEqual(keys("type"), type);  // older checkpoints have both
  if (scaling == RopeScaling::kNone || (scaling == RopeScaling::kLinear && reader.gguf() && !gguf_factor)) return rope;
  rope.scaling = scaling;
  if (!reader.Has(factor_key)) return reader.Wrong(factor_key, "the factor of " + type + " scaling", "nothing");
  TIDEMILL_TRY(factor, reader.FloatOr(factor_key, 1));
  if (!(factor >= 1 && factor < 1e6)) return reader.Wrong(factor_key, "a number from 1 to 1e6", SettingText(factor));
  rope.factor = factor;
  if (scaling == RopeScaling::kLinear) return rope;
  rope.original_max_position_embeddings = static_cast<double>(max_position_embeddings);
  if (scaling == RopeScaling::kDynamic) return rope;
  TIDEMILL_TRY(original, ReadOriginalLength(reader, place, max_position_embeddings));
  rope.original_max_position_embeddings = original;
  if (scaling == RopeScaling::kLlama3) {
    TIDEMILL_TRY(low, reader.FloatWithin(keys("low_freq_factor"), 1, 0, 1e6));
    const SettingKey high_key = keys("high_freq_factor");
    TIDEMILL_TRY(high, reader.FloatWithin(high_key, 4, 0, 1e6));
    if (!(low < high))
      return reader.Wrong(high_key, "more than low_freq_factor = " + SettingText(low), SettingText(high));
    rope.low_freq_factor = low;
    rope.high_freq_factor = high;
  }
  if (scaling == RopeScaling::kYarn) {
    TIDEMILL_TRY_VOID(CheckYarnKeys(reader));
    TIDEMILL_TRY(fast, reader.FloatWithin(keys("beta_fast", "rope.scaling.yarn_beta_fast"), 32, 0, 1e6));
    TIDEMILL_TRY(slow, reader.FloatWithin(keys("beta_slow", "rope.scaling.yarn_beta_slow"), 1, 0, 1e6));
    TIDEMILL_TRY(attention_factor, YarnAttentionFactor(reader, keys, factor));
    TIDEMILL_TRY(
        truncate,
        reader.BoolOr(place.is_for_all_layers ? keys("truncate") : SettingKey{"rope_parameters.truncate", ""}, true));
    rope.beta_fast = fast;
    rope.beta_slow = slow;
    rope.attention_factor = attention_factor;
    rope.truncate = truncate;
  }
  return rope;
}

}  // namespace tidemill
