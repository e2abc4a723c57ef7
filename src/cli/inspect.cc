// tidemill inspect: what is in a model file, without reading the weights.
#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include "cli/command.h"
#include "cli/errors.h"
#include "cli/flag_groups.h"
#include "cli/flags.h"
#include "cli/json.h"
#include "tidemill/model.h"

namespace tidemill::cli {
namespace {

// "98.9 MB": decimal, three digits.
std::string Size(double value, const char* unit) {
  constexpr const char* kPrefixes[] = {"", "k", "M", "G", "T", "P"};
  size_t prefix = 0;
  while (value >= 999.5 && prefix < 5) {
    value /= 1000;
    ++prefix;
  }
  char text[64];
  const int digits = prefix == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  std::snprintf(text, sizeof text, "%.*f %s%s", digits, value, kPrefixes[prefix], unit);
  std::string_view view = text;
  while (view.ends_with(' ')) view.remove_suffix(1);
  return std::string(view);
}

std::string Shape(const TensorInfo& tensor) {
  if (tensor.rows == 1) return "[" + std::to_string(tensor.cols) + "]";
  return "[" + std::to_string(tensor.rows) + ", " + std::to_string(tensor.cols) + "]";
}

std::string Plain(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

void AppendRow(std::string& table, std::string_view name, const std::string& value) {
  table += name;
  table.append(name.size() < 16 ? 16 - name.size() : 1, ' ');
  table += Printable(value) + "\n";
}

std::string TokenIdText(std::optional<int32_t> id) { return id ? std::to_string(*id) : "none"; }

std::string Table(const ModelInfo& info, bool with_tensors) {
  std::string table;
  AppendRow(table, "file",
            info.path + " (" + Size(static_cast<double>(info.file_bytes), "B") + ", " + info.format + ")");
  if (!info.name.empty()) AppendRow(table, "name", info.name);
  AppendRow(table, "family", info.family);
  AppendRow(table, "parameters", Size(static_cast<double>(info.parameters), ""));
  AppendRow(table, "layers", std::to_string(info.num_hidden_layers));
  AppendRow(table, "hidden size",
            std::to_string(info.hidden_size) + ", feed-forward " + std::to_string(info.intermediate_size));
  AppendRow(table, "attention",
            std::to_string(info.num_attention_heads) + " heads, " + std::to_string(info.num_key_value_heads) +
                " for keys and values, of " + std::to_string(info.head_dim));
  if (info.num_linear_layers != 0) {
    AppendRow(table, "linear attention",
              std::to_string(info.num_linear_layers) + " of the layers, with states of " +
                  Size(static_cast<double>(info.linear_state_bytes), "B") + " together");
  }
  if (info.segment_size != 0) {
    AppendRow(table, "segments",
              std::to_string(info.segment_size) + " tokens and " + std::to_string(info.num_mem_tokens) +
                  " memory tokens; memories of " + Size(static_cast<double>(info.memory_bytes), "B") + " together");
  }
  AppendRow(table, "rope theta", Plain(info.rope_theta) + ", norm epsilon " + Plain(info.rms_norm_eps));
  AppendRow(table, "vocabulary",
            std::to_string(info.vocab_size) + (info.tie_word_embeddings ? ", output tied to the embedding" : ""));
  AppendRow(table, "tokenizer", info.tokenizer);
  AppendRow(table, "begin, end", TokenIdText(info.bos_token_id) + ", " + TokenIdText(info.eos_token_id));
  AppendRow(table, "chat template",
            info.chat_template ? std::to_string(info.chat_template->size()) + " bytes" : "none");
  AppendRow(table, "context", std::to_string(info.max_position_embeddings));
  AppendRow(
      table, "state",
      Size(static_cast<double>(info.state_bytes_per_token), "B") + " per token, " +
          Size(static_cast<double>(info.state_bytes_per_token) * static_cast<double>(info.max_position_embeddings),
               "B") +
          (info.segment_size != 0 ? " at a segment's last position, with f16, and the memories"
                                  : " at full context, with f16") +
          (info.num_linear_layers != 0 ? ", and those of linear attention" : ""));
  std::string dtypes;
  for (const auto& [dtype, count] : info.dtypes)
    dtypes += (dtypes.empty() ? "" : ", ") + dtype + " x " + std::to_string(count);
  AppendRow(table, "tensors", std::to_string(info.tensors.size()) + ": " + dtypes);
  if (!with_tensors) return table;
  size_t longest = 0;
  for (const TensorInfo& tensor : info.tensors) longest = std::max(longest, Printable(tensor.name).size());
  for (const TensorInfo& tensor : info.tensors) {
    std::string line = "  " + Printable(tensor.name);
    line.resize(2 + longest + 2, ' ');
    line += tensor.dtype;
    line.resize(std::max(line.size() + 1, 2 + longest + 2 + 8), ' ');
    table += line + Shape(tensor) + "\n";
  }
  return table;
}

Json InfoJson(const ModelInfo& info, bool with_tensors) {
  const auto optional_id = [](std::optional<int32_t> id) { return id ? Json(*id) : Json(nullptr); };
  Json json;
  json["path"] = info.path;
  json["format"] = info.format;
  json["family"] = info.family;
  json["name"] = info.name;
  json["file_bytes"] = info.file_bytes;
  json["parameters"] = info.parameters;
  json["num_tensors"] = info.tensors.size();
  json["dtypes"] = Json::object();
  for (const auto& [dtype, count] : info.dtypes) json["dtypes"][dtype] = count;
  json["vocab_size"] = info.vocab_size;
  json["hidden_size"] = info.hidden_size;
  json["intermediate_size"] = info.intermediate_size;
  json["num_hidden_layers"] = info.num_hidden_layers;
  json["num_attention_heads"] = info.num_attention_heads;
  json["num_key_value_heads"] = info.num_key_value_heads;
  json["head_dim"] = info.head_dim;
  json["max_position_embeddings"] = info.max_position_embeddings;
  json["rope_theta"] = info.rope_theta;
  json["rms_norm_eps"] = info.rms_norm_eps;
  json["tie_word_embeddings"] = info.tie_word_embeddings;
  json["tokenizer"] = info.tokenizer;
  json["bos_token_id"] = optional_id(info.bos_token_id);
  json["eos_token_id"] = optional_id(info.eos_token_id);
  json["chat_template"] = info.chat_template ? Json(*info.chat_template) : Json(nullptr);
  json["state_bytes_per_token"] = info.state_bytes_per_token;
  json["num_linear_layers"] = info.num_linear_layers;
  json["linear_state_bytes"] = info.linear_state_bytes;
  json["segment_size"] = info.segment_size;
  json["num_mem_tokens"] = info.num_mem_tokens;
  json["memory_bytes"] = info.memory_bytes;
  if (!with_tensors) return json;
  json["tensors"] = Json::array();
  for (const TensorInfo& tensor : info.tensors) {
    Json shape = tensor.rows == 1 ? Json::array({tensor.cols}) : Json::array({tensor.rows, tensor.cols});
    json["tensors"].push_back(
        {{"name", tensor.name}, {"dtype", tensor.dtype}, {"shape", std::move(shape)}, {"bytes", tensor.bytes}});
  }
  return json;
}

std::string UnreadTable(const std::vector<UnreadSettings>& files) {
  std::string table;
  for (const UnreadSettings& file : files) {
    for (const std::string& key : file.keys) AppendRow(table, "no effect", file.file + ": " + key);
  }
  if (files.empty()) AppendRow(table, "no effect", "no key");
  return table;
}

Json UnreadJson(const std::vector<UnreadSettings>& files) {
  Json json = Json::object();
  for (const UnreadSettings& file : files) json[file.file] = file.keys;
  return json;
}

}  // namespace

Result<void> InspectCommand(CommandContext& context) {
  std::string path;
  bool tensors = false, json = false, unread = false;
  MachineFlags machine;  // every command takes them
  FlagSet set("inspect", "Show what is in a model file, without reading the weights");
  set.Positional("MODEL", path, "A .gguf file or a model folder");
  set.Switch("--tensors", tensors, "List the tensors");
  set.Switch("--unread", unread, "List the keys of settings files that have no effect here");
  set.Switch("--json", json, "One JSON object");
  machine.AddTo(set);
  TIDEMILL_TRY(go_on, set.Parse(context));
  if (!go_on) return {};
  TIDEMILL_TRY(info, Inspect(path));
  std::vector<UnreadSettings> files;
  if (unread) {
    TIDEMILL_TRY(found, FindUnreadSettings(path));
    files = std::move(found);
  }
  if (!json) return context.out.Write(Table(info, tensors) + (unread ? UnreadTable(files) : ""));
  Json object = InfoJson(info, tensors);
  if (unread) object["unread"] = UnreadJson(files);
  return context.out.Write(JsonLine(object));
}

}  // namespace tidemill::cli
