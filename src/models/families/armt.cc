// Recurrent-memory transformers around Llama, Qwen2 or GPT-2, with associative memories (ARMT, arXiv:2407.04841) or without (RMT,
// arXiv:2207.06881). Their settings are the base model's, with a block "armt" or "rmt"; tensors have the base model's names, or those of the authors'
// state dicts:
//   memory_cell.memory;   memory_cell.model.NAME, in layers with ".layer" behind the number;   memory_cell.model.model.layers.N.W_mq
#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/printable_name.h"
#include "models/families/families.h"
#include "models/layers/memory_branch.h"

namespace tidemill {
namespace {

SettingKey Key(std::string_view name) { return {"armt." + std::string(name), ""}; }
SettingKey RmtKey(std::string_view name) { return {"rmt." + std::string(name), ""}; }

// Switches of the successor variant, of which no checkpoint is known: only the values that leave the original.
Result<void> RefuseVariants(const SettingsReader& reader) {
  constexpr std::pair<const char*, bool> kSwitches[] = {{"use_denom", true},
                                                        {"gating", false},
                                                        {"use_sink", false},
                                                        {"sliding_window", false},
                                                        {"attend_to_previous_input", false}};
  for (const auto& [name, original] : kSwitches) {
    TIDEMILL_TRY(set, reader.BoolOr(Key(name), original));
    if (set != original) {
      return reader.Wrong(Key(name), original ? "true" : "false, as the original has it", set ? "true" : "false",
                          ErrorCode::kUnsupported);
    }
  }
  constexpr std::pair<const char*, uint64_t> kNumbers[] = {{"n_heads", 1}, {"act_depth", 0}};
  for (const auto& [name, original] : kNumbers) {
    TIDEMILL_TRY(number, reader.UintOr(Key(name), original, 0, 4096));
    if (number != original) {
      return reader.Wrong(Key(name), std::to_string(original) + ", as the original has it", std::to_string(number),
                          ErrorCode::kUnsupported);
    }
  }
  return {};
}

Result<void> RefuseUnknown(const SettingsReader& reader, const char* name) {
  TIDEMILL_TRY(block, reader.config().GetObject(name));
  for (const JsonValue& unread : block.Unread()) {
    return Error(ErrorCode::kUnsupported, "config.json: \"" + std::string(name) + "\": " + QuoteName(unread.path()) +
                                              ": no such setting is known; docs/recurrent-memory.md lists them");
  }
  return {};
}

Result<SegmentAlignment> AlignmentOf(const SettingsReader& reader, const SettingKey& key) {
  TIDEMILL_TRY(name, reader.StringOr(key, "left"));
  if (name == "left") return SegmentAlignment::kLeft;
  if (name == "right") return SegmentAlignment::kRight;
  if (name == "center") return SegmentAlignment::kCenter;
  return reader.Wrong(key, "\"left\", \"right\" or \"center\"", QuoteName(name));
}

// 0: the files have no adapters.
Result<double> LoraAlphaOf(const SettingsReader& reader, const SettingKey& key) {
  TIDEMILL_TRY(alpha, reader.FloatOr(key, 0));
  if (!(alpha >= 0 && alpha <= 1e6)) return reader.Wrong(key, "0 to 1e6", SettingText(alpha));
  const bool adapters =
      std::any_of(reader.files().tensors().begin(), reader.files().tensors().end(),
                  [](const FileTensor& tensor) { return tensor.name.find(".lora_A.") != std::string::npos; });
  if (!adapters || alpha != 0) return alpha;
  return reader.Wrong(key, "the adapters' alpha, since the files have LoRA adapters that are not merged", "none");
}

// `rows`: of a segment, besides its tokens, that have positions of their own.
Result<void> CheckSegments(const SettingsReader& reader, const SettingKey& key, const ModelSettings& settings,
                           size_t segment, size_t rows) {
  if (std::any_of(settings.windows.begin(), settings.windows.end(), [](size_t window) { return window != 0; })) {
    return Error(ErrorCode::kUnsupported,
                 "config.json: \"" + key.config.substr(0, key.config.find('.')) +
                     "\": expected a base model whose rows see all of a segment, found sliding windows; "
                     "set use_sliding_window to false if it was trained so");
  }
  const size_t positions = settings.max_position_embeddings;
  if (segment + rows <= positions) return {};
  return reader.Wrong(key, "with num_mem_tokens at most the model's " + std::to_string(positions) + " positions",
                      std::to_string(segment) + " and " + std::to_string(rows));
}

Result<DType> MemoryTypeOf(const SettingsReader& reader) {
  TIDEMILL_TRY(name, reader.StringOr(Key("memory_dtype"), "float32"));
  if (name == "float32") return DType::kF32;
  if (name == "bfloat16") return DType::kBF16;
  return reader.Wrong(Key("memory_dtype"), "\"float32\" or \"bfloat16\"", QuoteName(name));
}

// The plain name as the known ways spell it: below a root, in a layer's ".layer", as what an adapter is beside.
std::vector<std::string> SpellingsOf(const std::string& plain) {
  size_t inner = std::string::npos;  // behind the layer's number
  for (const std::string_view layers : {"layers.", "h."}) {
    const size_t at = plain.find(layers);
    if (at != std::string::npos && (at == 0 || plain[at - 1] == '.')) inner = plain.find('.', at + layers.size());
    if (inner != std::string::npos) break;
  }
  std::vector<std::string> names;
  for (const std::string_view root :
       {"memory_cell.model.", "memory_cell.model.base_model.model.", "memory_cell.", ""}) {
    const std::string below = std::string(root) + plain;
    if (inner != std::string::npos) names.push_back(std::string(below).insert(root.size() + inner, ".layer"));
    names.push_back(below);
  }
  for (size_t i = 0, count = names.size(); i < count; ++i) {
    const size_t last = names[i].rfind('.');
    if (last != std::string::npos) names.push_back(std::string(names[i]).insert(last, ".base_layer"));
  }
  return names;
}

}  // namespace

Result<void> ReadArmtSettings(const SettingsReader& reader, ModelSettings& settings) {
  TIDEMILL_TRY_VOID(reader.config().GetObject("armt"));
  TIDEMILL_TRY(segment, reader.Uint(Key("segment_size"), 1, uint64_t{1} << 20));
  TIDEMILL_TRY(memory, reader.Uint(Key("num_mem_tokens"), 1, 1024));
  TIDEMILL_TRY(key_dim, reader.Uint(Key("d_mem"), 1, kMaxMemoryKeyDim));
  TIDEMILL_TRY(nu, reader.UintOr(Key("nu"), 3, 1, 2 * key_dim));
  TIDEMILL_TRY(correction, reader.BoolOr(Key("correction"), true));
  TIDEMILL_TRY(wrap, reader.BoolOr(Key("wrap_pos"), false));
  TIDEMILL_TRY(alignment, AlignmentOf(reader, Key("segment_alignment")));
  TIDEMILL_TRY(memory_dtype, MemoryTypeOf(reader));
  TIDEMILL_TRY(alpha, LoraAlphaOf(reader, Key("lora_alpha")));
  for (const char* layers : {"model.layers", "transformer.h"}) reader.TakeIfEqual(Key("layers_attr"), layers);
  TIDEMILL_TRY_VOID(RefuseVariants(reader));
  TIDEMILL_TRY_VOID(RefuseUnknown(reader, "armt"));
  if (wrap && settings.rotary_dim != 0) {
    return reader.Wrong(Key("wrap_pos"), "false where positions are rotary", "true", ErrorCode::kUnsupported);
  }
  TIDEMILL_TRY_VOID(CheckSegments(reader, Key("segment_size"), settings, segment, wrap ? 0 : memory));
  settings.armt = {.segment_size = segment,
                   .num_mem_tokens = memory,
                   .d_mem = key_dim,
                   .nu = nu,
                   .correction = correction,
                   .wrap_pos = wrap,
                   .segment_alignment = alignment,
                   .lora_alpha = alpha,
                   .memory_dtype = memory_dtype};
  return {};
}

Result<void> ReadRmtSettings(const SettingsReader& reader, ModelSettings& settings) {
  TIDEMILL_TRY_VOID(reader.config().GetObject("rmt"));
  TIDEMILL_TRY(segment, reader.Uint(RmtKey("segment_size"), 1, uint64_t{1} << 20));
  TIDEMILL_TRY(memory, reader.Uint(RmtKey("num_mem_tokens"), 1, 1024));
  TIDEMILL_TRY(alignment, AlignmentOf(reader, RmtKey("segment_alignment")));
  TIDEMILL_TRY(alpha, LoraAlphaOf(reader, RmtKey("lora_alpha")));
  TIDEMILL_TRY_VOID(RefuseUnknown(reader, "rmt"));
  TIDEMILL_TRY_VOID(CheckSegments(reader, RmtKey("segment_size"), settings, segment, 2 * memory));
  settings.armt = {.segment_size = segment,
                   .num_mem_tokens = memory,
                   .d_mem = 0,
                   .segment_alignment = alignment,
                   .lora_alpha = alpha};
  return {};
}

std::string ArmtName(const ModelFiles& files, const std::string& plain) {
  for (std::string& name : SpellingsOf(plain)) {
    if (files.FindTensor(name) != nullptr) return std::move(name);
  }
  return plain;
}

Result<void> AddArmtMemory(WeightLoader& weights, LanguageModel& model) {
  const ModelSettings& s = model.settings;
  const ArmtSettings& armt = *s.armt;
  const MemoryShape shape = MemoryShapeOf(s);
  TIDEMILL_TRY(rows, weights.Table({"memory", ""}, armt.num_mem_tokens, s.hidden_size, ""));
  model.segments = {.shape = {.memory = shape,
                              .segment_tokens = armt.segment_size,
                              .memory_rows = armt.num_mem_tokens,
                              .max_rows = s.max_position_embeddings + armt.num_mem_tokens},
                    .rows = std::move(rows)};
  if (armt.d_mem == 0) {
    model.segments.shape.max_rows = s.max_position_embeddings;
    model.segments.shape.front_rows = armt.num_mem_tokens;
    model.segments.shape.carried = armt.num_mem_tokens * s.hidden_size;
    return {};
  }
  const std::string layers = s.architecture == "gpt2" ? "transformer.h." : "model.layers.";
  for (size_t i = 0; i < model.layers.size(); ++i) {
    const auto name = [&](const char* weight) { return WeightName{layers + std::to_string(i) + "." + weight, ""}; };
    TIDEMILL_TRY(q, weights.Layer(name("W_mq"), armt.d_mem, s.hidden_size, Bias::kNone));
    TIDEMILL_TRY(k, weights.Layer(name("W_mk"), armt.d_mem, s.hidden_size, Bias::kNone));
    TIDEMILL_TRY(v, weights.Layer(name("W_mv"), s.hidden_size, s.hidden_size, Bias::kNone));
    TIDEMILL_TRY(b, weights.Layer(name("W_mb"), 1, s.hidden_size, Bias::kRequired));
    std::vector<LayerBranch>& branches = model.layers[i].branches;
    branches.insert(branches.begin(),
                    LayerBranch{.norm = {}, .branch = std::make_unique<MemoryReadBranch>(std::move(q), shape)});
    model.layers[i].Add({}, {}, MemoryWriteBranch(std::move(k), std::move(v), std::move(b), shape));
  }
  return {};
}

}  // namespace tidemill
