// A KV cache as bytes and back; the layout is in kv_cache.h.
#include <algorithm>
#include <cstring>
#include <exception>
#include <string>
#include <utility>

#include "base/byte_reader.h"
#include "base/checked_math.h"
#include "base/checksum.h"
#include "base/out_of_memory.h"
#include "state/kv_cache.h"

namespace tidemill {
namespace {

constexpr char kMagic[8] = {'T', 'M', 'K', 'V', 'C', 'P', '0', '2'};
static_assert(KvCache::kCheckpointHeaderBytes == sizeof(kMagic) + 7 * 8);

Error AnothersCheckpoint(const std::string& what) {
  return Error(ErrorCode::kFailedPrecondition,
               what + " differs from this engine's: a checkpoint continues only where it was made");
}

}  // namespace

uint64_t KvCache::ShapeHash() const {
  uint64_t hash = ChainTokenHash(static_cast<uint64_t>(shape_.dtype), shape_.draft_rows);
  for (const KvLayerShape& layer : shape_.layers) {
    for (const size_t value : {layer.kv_heads, layer.head_dim, layer.window}) hash = ChainTokenHash(hash, value);
  }
  return hash;
}

Result<std::vector<std::byte>> KvCache::Checkpoint() const {
  const uint64_t rows = length(), earliest = CheckpointEarliest();
  const uint64_t total = kCheckpointHeaderBytes + rows * sizeof(RowKey) + bytes().committed;
  try {
    std::vector<std::byte> out;
    out.reserve(total);
    const auto put = [&out](const void* data, size_t bytes) {
      const auto* begin = static_cast<const std::byte*>(data);
      out.insert(out.end(), begin, begin + bytes);
    };
    const StateIdentity id = identity();
    put(kMagic, sizeof(kMagic));
    for (const uint64_t value : {id.model, id.numeric_class, id.tokens, ShapeHash(), rows, earliest}) put(&value, 8);
    uint64_t checksum = 0;  // filled in below
    put(&checksum, 8);
    put(keys_.data(), keys_.size() * 8);
    for (const KvLayer& layer : layers_) layer.AppendRows(layer.shape().FirstSeen(earliest), &out);
    checksum = Checksum(std::span(out).subspan(kCheckpointHeaderBytes));
    std::memcpy(out.data() + kCheckpointHeaderBytes - sizeof(checksum), &checksum, sizeof(checksum));
    return out;
  } catch (const std::exception&) {
    return OutOfMemoryError("checkpoint state", total);
  }
}

Result<void> KvCache::Restore(std::span<const std::byte> checkpoint) {
  try {
    return RestoreOrThrow(checkpoint).WithContext("restore state");
  } catch (const std::exception&) {
    return OutOfMemoryError("restore state", checkpoint.size());
  }
}

Result<void> KvCache::RestoreOrThrow(std::span<const std::byte> checkpoint) {
  ByteReader reader(checkpoint);
  TIDEMILL_TRY(magic, reader.Take(sizeof(kMagic), "magic"));
  if (std::memcmp(magic.data(), kMagic, sizeof(kMagic)) != 0) {
    return Error(ErrorCode::kCorruptFile,
                 "byte 0: magic: expected TMKVCP02; this is no checkpoint of a KV cache, or another version's");
  }
  TIDEMILL_TRY(model, reader.Read<uint64_t>("model"));
  TIDEMILL_TRY(numeric_class, reader.Read<uint64_t>("numeric class"));
  TIDEMILL_TRY(tokens, reader.Read<uint64_t>("tokens"));
  TIDEMILL_TRY(shape, reader.Read<uint64_t>("shape"));
  TIDEMILL_TRY(rows, reader.Read<uint64_t>("length"));
  TIDEMILL_TRY(earliest, reader.Read<uint64_t>("earliest"));
  TIDEMILL_TRY(checksum, reader.Read<uint64_t>("checksum"));
  if (model != shape_.model) return AnothersCheckpoint("the model");
  if (numeric_class != shape_.numeric_class) return AnothersCheckpoint("the numeric class");
  if (shape != ShapeHash()) return AnothersCheckpoint("the shape");
  if (rows > shape_.max_length) {
    return Error(ErrorCode::kContextFull,
                 std::to_string(rows) + " tokens: the context holds " + std::to_string(shape_.max_length));
  }
  const size_t usual = rows - std::min<uint64_t>(rows, shape_.draft_rows);
  const bool fewer_rows = earliest > usual && earliest >= smallest_window_ && earliest <= rows;
  if (!fewer_rows && earliest != (usual < smallest_window_ ? 0 : usual)) {
    return Error(ErrorCode::kCorruptFile, std::to_string(rows) + " tokens: rollbacks cannot end at " +
                                              std::to_string(earliest) + "; the checkpoint is damaged");
  }
  // Products and sums may wrap where the context is absurd.
  uint64_t expected = 0;
  bool fits = CheckedMul<uint64_t>(rows, sizeof(RowKey), &expected);
  for (const KvLayer& layer : layers_) {
    uint64_t layer_bytes = 0;
    fits = fits && CheckedMul(rows - layer.shape().FirstSeen(earliest), layer.PositionBytes(), &layer_bytes) &&
           CheckedAdd(expected, layer_bytes, &expected);
  }
  if (!fits || reader.remaining() != expected) {
    return Error(ErrorCode::kCorruptFile, std::to_string(rows) + " tokens: expected " +
                                              (fits ? std::to_string(expected) : "more than 2^64") + " bytes, found " +
                                              std::to_string(reader.remaining()) +
                                              "; the checkpoint is truncated or damaged");
  }
  if (Checksum(checkpoint.subspan(reader.position())) != checksum) {
    return Error(ErrorCode::kCorruptFile, "the checksum does not match the rows; the checkpoint is damaged");
  }
  KvCache fresh(shape_);
  std::vector<RowKey> keys(rows);
  if (rows != 0) {
    TIDEMILL_TRY(key_bytes, reader.Take(rows * sizeof(RowKey), "keys"));
    std::memcpy(keys.data(), key_bytes.data(), key_bytes.size());
    KvLayer::BlockBytes blocks;
    for (const KvLayer& layer : fresh.layers_) blocks.Add(layer.RestoredBlock(layer.shape().FirstSeen(earliest), rows));
    BufferArena arena(kArenaBytes, blocks.pages());
    for (KvLayer& layer : fresh.layers_) {
      TIDEMILL_TRY_VOID(layer.ReadRows(reader, layer.shape().FirstSeen(earliest), rows,
                                       blocks.all >= BufferArena::kLargePage ? &arena : nullptr));
    }
    fresh.keys_.reserve(rows);
    fresh.hashes_.reserve(rows + 1);
    fresh.AppendKeys(keys);
  }
  if (fresh.hashes_.back() != tokens) {
    return Error(ErrorCode::kCorruptFile, "the hash of the tokens does not match them; the checkpoint is damaged");
  }
  // From here on nothing fails. The layers stay where they are: others may hold references to them.
  for (size_t i = 0; i < layers_.size(); ++i) layers_[i].Take(std::move(fresh.layers_[i]));
  floor_ = std::max(earliest, fresh.floor_);
  keys_ = std::move(fresh.keys_);
  hashes_ = std::move(fresh.hashes_);
  return {};
}

}  // namespace tidemill
