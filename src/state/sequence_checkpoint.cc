// A sequence as bytes and back; the layout is in sequence_state.h.
#include <algorithm>
#include <cstring>
#include <exception>
#include <string>
#include <utility>

#include "base/byte_reader.h"
#include "base/checked_math.h"
#include "base/checksum.h"
#include "base/out_of_memory.h"
#include "state/sequence_state.h"

namespace tidemill {
namespace {

constexpr size_t kMagicBytes = 8;
constexpr char kKvMagic[] = "TMKVCP02", kListMagic[] = "TMSTATE1";
static_assert(SequenceState::kCheckpointHeaderBytes == kMagicBytes + 7 * 8);

Error AnothersCheckpoint(const std::string& what) {
  return Error(ErrorCode::kFailedPrecondition,
               what + " differs from this engine's: a checkpoint continues only where it was made");
}

Error Damaged(const std::string& what) { return Error(ErrorCode::kCorruptFile, what + "; the checkpoint is damaged"); }

void Append(std::vector<std::byte>* out, const void* data, size_t bytes) {
  const auto* begin = static_cast<const std::byte*>(data);
  out->insert(out->end(), begin, begin + bytes);
}

}  // namespace

bool SequenceState::has_only_kv() const {
  return !layers_.empty() && std::all_of(layers_.begin(), layers_.end(), [this](const auto& layer) {
    return layer->checkpoint_kind() == StateKind::kKv && layer->Shape().front() == layers_.front()->Shape().front();
  });
}

// Of KV layers alone: their type, draft_rows, then each layer's other numbers. Else each layer's kind and all of its numbers.
uint64_t SequenceState::ShapeHash() const {
  const bool only_kv = has_only_kv();
  uint64_t hash = ChainTokenHash(only_kv ? layers_.front()->Shape().front() : layers_.size(), options_.draft_rows);
  for (const auto& layer : layers_) {
    const std::vector<uint64_t> shape = layer->Shape();
    if (!only_kv)
      hash = ChainTokenHash(ChainTokenHash(hash, static_cast<uint64_t>(layer->checkpoint_kind())), shape.size());
    for (size_t i = only_kv ? 1 : 0; i < shape.size(); ++i) hash = ChainTokenHash(hash, shape[i]);
  }
  return hash;
}

uint64_t SequenceState::LayerBytes(size_t length, size_t earliest) const {
  uint64_t bytes = 0;
  for (const auto& layer : layers_) {
    if (!CheckedAdd(bytes, layer->CheckpointBytes(length, earliest), &bytes)) return UINT64_MAX;
  }
  return bytes;
}

// What stands before the keys where not all layers are KV layers.
std::vector<uint64_t> SequenceState::LayerList(size_t length, size_t earliest) const {
  std::vector<uint64_t> list;
  if (has_only_kv()) return list;
  list.push_back(layers_.size());
  for (const auto& layer : layers_) {
    list.push_back(static_cast<uint64_t>(layer->checkpoint_kind()));
    list.push_back(layer->CheckpointBytes(length, earliest));
  }
  return list;
}

Result<std::vector<std::byte>> SequenceState::Checkpoint() {
  SettleAll();
  const uint64_t rows = length(), earliest = CheckpointEarliest();
  const uint64_t total = kCheckpointHeaderBytes + keys_.size() * sizeof(RowKey) + bytes().committed;
  try {
    std::vector<std::byte> out;
    out.reserve(total);
    const StateIdentity id = identity();
    Append(&out, has_only_kv() ? kKvMagic : kListMagic, kMagicBytes);
    for (const uint64_t value : {id.model, id.numeric_class, id.tokens, ShapeHash(), rows, earliest})
      Append(&out, &value, sizeof(value));
    uint64_t checksum = 0;  // filled in below
    Append(&out, &checksum, sizeof(checksum));
    size_t skipped = 0;  // keys that only our way of dropping them has kept
    if (std::vector<uint64_t> list = LayerList(rows, earliest); !list.empty()) {
      if (has_constant_size_) skipped = earliest - first_key_;
      list.push_back(first_key_ + skipped);
      list.push_back(hashes_[skipped]);
      Append(&out, list.data(), list.size() * sizeof(uint64_t));
    }
    Append(&out, keys_.data() + skipped, (keys_.size() - skipped) * sizeof(RowKey));
    for (const auto& layer : layers_) layer->AppendTo(&out, earliest);
    checksum = Checksum(std::span(out).subspan(kCheckpointHeaderBytes));
    std::memcpy(out.data() + kCheckpointHeaderBytes - sizeof(checksum), &checksum, sizeof(checksum));
    return out;
  } catch (const std::exception&) {
    return OutOfMemoryError("checkpoint state", total);
  }
}

Result<void> SequenceState::Restore(std::span<const std::byte> checkpoint) {
  try {
    return RestoreOrThrow(checkpoint).WithContext("restore state");
  } catch (const std::exception&) {
    return OutOfMemoryError("restore state", checkpoint.size());
  }
}

Result<void> SequenceState::RestoreOrThrow(std::span<const std::byte> checkpoint) {
  ByteReader reader(checkpoint);
  const std::string expected_magic = has_only_kv() ? kKvMagic : kListMagic;
  TIDEMILL_TRY(magic, reader.Take(kMagicBytes, "magic"));
  if (std::memcmp(magic.data(), expected_magic.data(), kMagicBytes) != 0) {
    for (const char* other : {kKvMagic, kListMagic}) {
      if (std::memcmp(magic.data(), other, kMagicBytes) == 0) return AnothersCheckpoint("the list of layers");
    }
    return Error(ErrorCode::kCorruptFile, "byte 0: magic: expected " + expected_magic +
                                              "; this is no checkpoint of a " +
                                              (has_only_kv() ? "KV cache" : "sequence") + ", or another version's");
  }
  TIDEMILL_TRY(model, reader.Read<uint64_t>("model"));
  TIDEMILL_TRY(numeric_class, reader.Read<uint64_t>("numeric class"));
  TIDEMILL_TRY(tokens, reader.Read<uint64_t>("tokens"));
  TIDEMILL_TRY(shape, reader.Read<uint64_t>("shape"));
  TIDEMILL_TRY(rows, reader.Read<uint64_t>("length"));
  TIDEMILL_TRY(earliest, reader.Read<uint64_t>("earliest"));
  TIDEMILL_TRY(checksum, reader.Read<uint64_t>("checksum"));
  if (model != options_.model) return AnothersCheckpoint("the model");
  if (numeric_class != options_.numeric_class) return AnothersCheckpoint("the numeric class");
  if (shape != ShapeHash()) return AnothersCheckpoint("the shape");
  if (rows > max_length()) {
    return Error(ErrorCode::kContextFull,
                 std::to_string(rows) + " tokens: the context holds " + std::to_string(max_length()));
  }
  Layers layers;
  for (const auto& layer : layers_) layers.push_back(layer->MakeEmpty());
  SequenceState fresh(options_, std::move(layers));
  const size_t usual = rows - std::min<size_t>(rows, options_.draft_rows);
  const bool fewer_rows = earliest > usual && earliest <= rows && fresh.EarliestRollback(earliest) == earliest;
  const bool begins_anywhere = earliest <= rows && std::any_of(layers_.begin(), layers_.end(), [](const auto& layer) {
                                 return layer->may_begin_anywhere();
                               });
  const bool evicted = begins_anywhere || (earliest == rows && may_evict());
  if (!fewer_rows && !evicted && earliest != fresh.EarliestRollback(usual))
    return Damaged(std::to_string(rows) + " tokens: rollbacks cannot end at " + std::to_string(earliest));
  // Products and sums may wrap where the context is absurd.
  const std::vector<uint64_t> list = LayerList(rows, earliest);
  const size_t num_keys = list.empty() || !has_constant_size_ ? rows : rows - earliest;
  uint64_t expected = LayerBytes(rows, earliest), key_bytes = 0;
  const bool fits = expected != UINT64_MAX && CheckedMul<uint64_t>(num_keys, sizeof(RowKey), &key_bytes) &&
                    CheckedAdd(expected, key_bytes, &expected) &&
                    CheckedAdd<uint64_t>(expected, list.empty() ? 0 : (list.size() + 2) * sizeof(uint64_t), &expected);
  if (!fits || reader.remaining() != expected) {
    return Error(ErrorCode::kCorruptFile, std::to_string(rows) + " tokens: expected " +
                                              (fits ? std::to_string(expected) : "more than 2^64") + " bytes, found " +
                                              std::to_string(reader.remaining()) +
                                              "; the checkpoint is truncated or damaged");
  }
  if (Checksum(checkpoint.subspan(reader.position())) != checksum)
    return Damaged("the checksum does not match the rows");
  if (rows != 0) TIDEMILL_TRY_VOID(fresh.ReadContent(reader, rows, earliest));
  if (fresh.hashes_.back() != tokens) return Damaged("the hash of the tokens does not match them");
  // From here on nothing fails. The layers stay where they are: others may hold references to them.
  for (size_t i = 0; i < layers_.size(); ++i) layers_[i]->Take(std::move(*fresh.layers_[i]));
  floor_ = std::max<size_t>(earliest, fresh.floor_);
  first_key_ = fresh.first_key_;
  keys_ = std::move(fresh.keys_);
  hashes_ = std::move(fresh.hashes_);
  CountKeys();
  return {};
}

Result<void> SequenceState::ReadContent(ByteReader& reader, size_t length, size_t earliest) {
  size_t first = 0;
  for (const uint64_t value : LayerList(length, earliest)) {
    TIDEMILL_TRY(found, reader.Read<uint64_t>("layers"));
    if (found != value) return Damaged("the list of layers does not match the shape");
  }
  if (!has_only_kv()) {
    TIDEMILL_TRY(first_key, reader.Read<uint64_t>("first key"));
    TIDEMILL_TRY(hash, reader.Read<uint64_t>("hash of the keys before it"));
    if (first_key != (has_constant_size_ ? earliest : 0)) return Damaged("the first key is none of this length");
    first = first_key;
    hashes_.back() = hash;
  }
  std::vector<RowKey> keys(length - first);
  if (!keys.empty()) {
    TIDEMILL_TRY(bytes, reader.Take(keys.size() * sizeof(RowKey), "keys"));
    std::memcpy(keys.data(), bytes.data(), bytes.size());
  }
  BlockBytes blocks;
  for (const auto& layer : layers_) blocks.Add(layer->RestoredBlock(length, earliest));
  BufferArena longer(kArenaBytes, blocks.pages()), arena(kArenaBytes, blocks.pages(), &longer);
  for (const auto& layer : layers_) {
    TIDEMILL_TRY_VOID(
        layer->ReadFrom(reader, length, earliest, blocks.all >= BufferArena::kLargePage ? &arena : nullptr));
  }
  first_key_ = first;
  keys_.reserve(keys.size());
  hashes_.reserve(keys.size() + 1);
  AppendKeys(keys);
  return {};
}

}  // namespace tidemill
