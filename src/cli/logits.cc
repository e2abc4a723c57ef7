// tidemill logits: the logits of given ids as f32 safetensors.
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "cli/errors.h"
#include "cli/files.h"
#include "cli/flag_groups.h"
#include "cli/flags.h"
#include "cli/id_lists.h"
#include "cli/json.h"
#include "cli/session.h"

namespace tidemill::cli {
namespace {

constexpr char kWriteLogits[] = "write the logits";

struct LogitsFlags {
  std::string model;
  std::string ids_file;
  std::string out_file;
  bool last_only = false;
  MachineFlags machine;
};

std::string TensorName(const IdLists& ids, size_t index) {
  return ids.is_nested ? "logits." + std::to_string(index) : "logits";
}

//   u64 little-endian: bytes of the header    header: JSON, padded with blanks to 8    f32 little-endian, tensor after tensor
std::string SafetensorsHeader(const IdLists& ids, bool last_only, size_t vocab_size) {
  Json json;
  uint64_t offset = 0;
  for (size_t i = 0; i < ids.lists.size(); ++i) {
    const size_t rows = last_only ? 1 : ids.lists[i].size();
    const uint64_t end = offset + uint64_t{rows} * vocab_size * sizeof(float);
    json[TensorName(ids, i)] = {{"dtype", "F32"}, {"shape", {rows, vocab_size}}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string header = json.dump();
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string bytes;
  for (int shift = 0; shift < 64; shift += 8) bytes += static_cast<char>(uint64_t{header.size()} >> shift & 0xFF);
  return bytes + header;
}

Result<void> CheckFinite(const std::string& name, size_t position, std::span<const float> logits) {
  for (size_t id = 0; id < logits.size(); ++id) {
    if (!std::isfinite(logits[id])) {
      return Error(ErrorCode::kNumericalError, "compute the logits: " + name + ": expected finite numbers, found " +
                                                   (std::isnan(logits[id]) ? "NaN" : "infinity") + " at position " +
                                                   std::to_string(position) + ", token " + std::to_string(id) +
                                                   "; the weights may be damaged");
    }
  }
  return {};
}

Result<void> WriteLogits(Session& session, const IdLists& ids, bool last_only, const std::atomic<bool>& is_interrupted,
                         OutputFile& file) {
  static_assert(std::numeric_limits<float>::is_iec559 && sizeof(float) == 4);
  TIDEMILL_TRY_VOID(file.Write(SafetensorsHeader(ids, last_only, session.model->info().vocab_size)));
  for (size_t i = 0; i < ids.lists.size(); ++i) {
    const std::string name = TensorName(ids, i);
    const auto sink = [&](size_t position, std::span<const float> logits) -> Result<void> {
      if (is_interrupted) return Error(ErrorCode::kCancelled, "compute the logits: stopped by a signal");
      TIDEMILL_TRY_VOID(CheckFinite(name, position, logits));
      return file.Write({reinterpret_cast<const char*>(logits.data()), logits.size_bytes()});
    };
    TIDEMILL_TRY_VOID(session.engine->Score(ids.lists[i], last_only, sink, &is_interrupted));
  }
  return file.Commit();
}

}  // namespace

Result<void> LogitsCommand(CommandContext& context) {
  LogitsFlags flags;
  FlagSet set("logits", "Write the logits of every position as f32 safetensors; no tokens are added");
  set.Positional("MODEL", flags.model, "A .gguf file or a model folder");
  set.RequiredText("--ids", flags.ids_file, "FILE",
                   "JSON: a list of ids, or a list of such lists; - is standard input");
  set.RequiredText("-o,--out", flags.out_file, "FILE", "Tensor logits [len, vocab], or logits.0, logits.1, ...");
  set.Switch("--last-only", flags.last_only, "The last position only: [1, vocab]");
  flags.machine.AddTo(set);
  TIDEMILL_TRY(go_on, set.Parse(context));
  if (!go_on) return {};
  TIDEMILL_TRY_VOID(CheckReadsPrompts(flags.machine.attention));
  TIDEMILL_TRY(ids, ReadIdLists(flags.ids_file));
  TIDEMILL_TRY(options, flags.machine.engine_options());
  LoadOptions load = flags.machine.load_options();
  load.text = false;
  TIDEMILL_TRY(session, OpenSession(flags.model, std::move(load), options, context));
  std::atomic<bool> is_interrupted = false;
  // So that no half file is left behind.
  const SignalWatch::Grace grace(context.signals, [&is_interrupted] { is_interrupted = true; });
  TIDEMILL_TRY(file, OutputFile::Create(kWriteLogits, flags.out_file, context.out));
  return WriteLogits(session, ids, flags.last_only, is_interrupted, *file);
}

}  // namespace tidemill::cli
