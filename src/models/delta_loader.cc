#include "models/delta_loader.h"

#include <cmath>
#include <cstdint>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "models/settings_reader.h"

namespace tidemill {
namespace {

using Rows = std::vector<uint32_t>;

void AddRun(Rows& rows, size_t first, size_t count) {
  for (size_t i = 0; i < count; ++i) rows.push_back(static_cast<uint32_t>(first + i));
}

class DeltaLoader {
 public:
  DeltaLoader(const ModelSettings& s, bool tiled, const LayerWeightName& name, WeightLoader& weights)
      : s_(s), tiled_(tiled), name_(name), weights_(weights) {}

  Result<DeltaLayer> Load() {
    DeltaLayer d{.key_heads = key_heads(),
                 .value_heads = value_heads(),
                 .key_dim = key_dim(),
                 .value_dim = value_dim(),
                 .conv_width = s_.linear_conv_kernel_dim,
                 .tiled = tiled_};
    TIDEMILL_TRY_VOID(LoadInputs(d));
    TIDEMILL_TRY_VOID(LoadGates(d));
    TIDEMILL_TRY_VOID(LoadConvolution(d));
    TIDEMILL_TRY_VOID(LoadDecay(d));
    TIDEMILL_TRY_VOID(LoadBias(d));
    TIDEMILL_TRY(norm, weights_.Rms(name_("linear_attn.norm", "ssm_norm"), value_dim(), s_.norm_eps));
    d.norm = std::move(norm);
    WeightForm form;
    if (!in_file_order()) AddHeads(form.cols, 0, value_dim());
    TIDEMILL_TRY(out, weights_.Layer(name_("linear_attn.out_proj", "ssm_out"), s_.hidden_size,
                                     value_heads() * value_dim(), Bias::kNone, form));
    d.out = std::move(out);
    return d;
  }

 private:
  size_t key_heads() const { return s_.linear_num_key_heads; }
  size_t value_heads() const { return s_.linear_num_value_heads; }
  size_t key_dim() const { return s_.linear_key_head_dim; }
  size_t value_dim() const { return s_.linear_value_head_dim; }
  size_t ratio() const { return value_heads() / key_heads(); }
  size_t channels() const { return 2 * key_heads() * key_dim() + value_heads() * value_dim(); }

  // Value head h of the layer where the heads of a key head stand together.
  size_t GroupedHead(size_t h) const { return tiled_ ? h % key_heads() * ratio() + h / key_heads() : h; }
  bool in_file_order() const { return !tiled_ || weights_.gguf() || ratio() == 1; }
  size_t FileHead(size_t h) const { return in_file_order() ? h : GroupedHead(h); }

  // Rows or columns [first, ...) that hold the value heads, `width` for each.
  void AddHeads(Rows& rows, size_t first, size_t width) const {
    for (size_t h = 0; h < value_heads(); ++h) AddRun(rows, first + FileHead(h) * width, width);
  }
  WeightForm HeadRows(size_t width) const {
    WeightForm form;
    if (in_file_order()) return form;
    AddHeads(form.rows, 0, width);
    form.file_rows = value_heads() * width;
    return form;
  }
  // Of a projection, and of the convolution: all of q, then k, then v.
  Rows ChannelRows() const {
    Rows rows;
    AddRun(rows, 0, 2 * key_heads() * key_dim());
    AddHeads(rows, rows.size(), value_dim());
    return rows;
  }

  // Two kinds: q, k and v in one matrix, z in another; or one matrix, by key head [q | k | v | z].
  Result<void> LoadInputs(DeltaLayer& d) {
    const size_t z_dim = value_heads() * value_dim(), hidden = s_.hidden_size;
    const WeightName whole = name_("linear_attn.in_proj_qkvz", "ssm_in");
    WeightName qkv_name = whole, z_name = whole;
    WeightForm qkv_form, z_form;
    if (weights_.Has(whole)) {
      const size_t keys = key_dim(), values = ratio() * value_dim(), width = 2 * keys + 2 * values;
      for (size_t g = 0; g < key_heads(); ++g) AddRun(qkv_form.rows, g * width, keys);
      for (size_t g = 0; g < key_heads(); ++g) AddRun(qkv_form.rows, g * width + keys, keys);
      for (size_t h = 0; h < value_heads(); ++h) {
        const size_t grouped = GroupedHead(h);
        const size_t v = grouped / ratio() * width + 2 * keys + grouped % ratio() * value_dim();
        AddRun(qkv_form.rows, v, value_dim());
        AddRun(z_form.rows, v + values, value_dim());
      }
      qkv_form.file_rows = z_form.file_rows = key_heads() * width;
    } else {
      qkv_name = name_("linear_attn.in_proj_qkv", "attn_qkv");
      z_name = name_("linear_attn.in_proj_z", "attn_gate");
      z_form = HeadRows(value_dim());
      if (!in_file_order()) {
        qkv_form.rows = ChannelRows();
        qkv_form.file_rows = channels();
      }
    }
    TIDEMILL_TRY(qkv, weights_.Layer(qkv_name, channels(), hidden, Bias::kNone, qkv_form));
    TIDEMILL_TRY(z, weights_.Layer(z_name, z_dim, hidden, Bias::kNone, z_form));
    d.qkv = std::move(qkv);
    d.z = std::move(z);
    return {};
  }

  // Two kinds: b and a by themselves; or one matrix, by key head [b | a].
  Result<void> LoadGates(DeltaLayer& d) {
    const WeightName whole = name_("linear_attn.in_proj_ba", "ssm_ba");
    WeightName b_name = whole, a_name = whole;
    WeightForm b_form, a_form;
    if (weights_.Has(whole)) {
      for (size_t h = 0; h < value_heads(); ++h) {
        const size_t grouped = GroupedHead(h), b = grouped / ratio() * 2 * ratio() + grouped % ratio();
        AddRun(b_form.rows, b, 1);
        AddRun(a_form.rows, b + ratio(), 1);
      }
      b_form.file_rows = a_form.file_rows = 2 * value_heads();
    } else {
      b_name = name_("linear_attn.in_proj_b", "ssm_beta");
      a_name = name_("linear_attn.in_proj_a", "ssm_alpha");
      b_form = a_form = HeadRows(1);
    }
    TIDEMILL_TRY(b, weights_.Layer(b_name, value_heads(), s_.hidden_size, Bias::kNone, b_form));
    TIDEMILL_TRY(a, weights_.Layer(a_name, value_heads(), s_.hidden_size, Bias::kNone, a_form));
    d.b = std::move(b);
    d.a = std::move(a);
    return {};
  }

  Result<void> LoadConvolution(DeltaLayer& d) {
    const size_t width = d.conv_width;
    TIDEMILL_TRY(file, weights_.Table(name_("linear_attn.conv1d", "ssm_conv1d"), channels(), width));
    const Rows rows = ChannelRows();
    d.conv.resize(width * channels());
    for (size_t c = 0; c < channels(); ++c) {
      for (size_t i = 0; i < width; ++i) d.conv[i * channels() + c] = file[rows[c] * width + i];
    }
    return {};
  }

  Result<void> LoadBias(DeltaLayer& d) {
    const WeightName name = name_("linear_attn.dt_bias", "ssm_dt.bias");
    TIDEMILL_TRY(file, weights_.Vector(name, value_heads(), ""));
    for (size_t h = 0; h < value_heads(); ++h) {
      const float value = file[FileHead(h)];
      if (!std::isfinite(value)) {
        return Error(ErrorCode::kCorruptFile, "tensor \"" + (weights_.gguf() ? name.gguf : name.checkpoint) +
                                                  "\": expected finite numbers, found " + std::to_string(value));
      }
      d.dt_bias.push_back(value);
    }
    return {};
  }

  // Checkpoints have the logarithm of the decay's size, GGUF files the decay. Of the logarithms all are taken whose decay is a normal number.
  Result<void> LoadDecay(DeltaLayer& d) {
    const WeightName name = name_("linear_attn.A_log", "ssm_a");
    TIDEMILL_TRY(file, weights_.Vector(name, value_heads(), ""));
    const bool is_decay = weights_.gguf();
    for (size_t h = 0; h < value_heads(); ++h) {
      const float value = file[FileHead(h)];
      const bool is_right = is_decay ? std::isfinite(value) && value < 0 : value >= -87 && value <= 88;
      if (!is_right) {
        return Error(ErrorCode::kCorruptFile, "tensor \"" + (is_decay ? name.gguf : name.checkpoint) + "\": expected " +
                                                  (is_decay ? "finite numbers below 0" : "numbers from -87 to 88") +
                                                  ", found " + SettingText(value));
      }
      d.decay.push_back(is_decay ? value : static_cast<float>(-std::exp(static_cast<double>(value))));
    }
    return {};
  }

  const ModelSettings& s_;
  bool tiled_;
  const LayerWeightName& name_;
  WeightLoader& weights_;
};

}  // namespace

Result<DeltaLayer> LoadDeltaLayer(const ModelSettings& settings, bool tiled, const LayerWeightName& name,
                                  WeightLoader& weights) {
  return DeltaLoader(settings, tiled, name, weights).Load();
}

}  // namespace tidemill
