// A KV cache as bytes and back; the layout stands in kv_cache.h.
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "base/byte_reader.h"
#include "state/kv_cache.h"

namespace tidemill {
namespace {

constexpr char kMagic[8] = {'T', 'M', 'K', 'V', 'C', 'P', '0', '1'};
constexpr uint64_t kHeaderBytes = sizeof(kMagic) + 3 * 8 + 4 * 4 + 8;

Error AnothersCheckpoint(const std::string& what) {
  return Error(ErrorCode::kFailedPrecondition,
               "restore state: " + what + " differs from this engine's: a checkpoint continues only where it was made");
}

}  // namespace

Result<std::vector<std::byte>> KvCache::Checkpoint() const {
  const uint64_t rows = length();
  const uint64_t total = kHeaderBytes + rows * 8 + shape_.layers * shape_.PositionBytes() * rows;
  try {
    std::vector<std::byte> out;
    out.reserve(total);
    const auto put = [&out](const void* data, size_t bytes) {
      const auto* begin = static_cast<const std::byte*>(data);
      out.insert(out.end(), begin, begin + bytes);
    };
    const auto put_u32 = [&put](size_t value) {
      const auto narrow = static_cast<uint32_t>(value);
      put(&narrow, sizeof(narrow));
    };
    const StateIdentity id = identity();
    put(kMagic, sizeof(kMagic));
    put(&id.model, 8);
    put(&id.numeric_class, 8);
    put(&id.tokens, 8);
    put_u32(shape_.layers);
    put_u32(shape_.kv_heads);
    put_u32(shape_.head_dim);
    put_u32(static_cast<size_t>(shape_.dtype));
    put(&rows, 8);
    put(keys_.data(), keys_.size() * 8);
    for (const KvLayer& layer : layers_) {
      for (const bool value : {false, true}) {
        for (size_t head = 0; head < shape_.kv_heads; ++head) {
          for (size_t i = 0; i < layer.prefix_.size(); ++i) {
            put(RowAt(*layer.prefix_[i], value, head, 0), prefix_rows_[i] * shape_.RowBytes());
          }
          if (tail_rows() != 0) put(RowAt(*layer.tail_, value, head, 0), tail_rows() * shape_.RowBytes());
        }
      }
    }
    return out;
  } catch (const std::bad_alloc&) {
    return Error(ErrorCode::kOutOfMemory, "checkpoint state: " + std::to_string(total) + " bytes: the system has no more memory");
  }
}

Result<void> KvCache::Restore(std::span<const std::byte> checkpoint) {
  ByteReader reader(checkpoint);
  TIDEMILL_TRY(magic, reader.Take(sizeof(kMagic), "restore state: magic"));
  if (std::memcmp(magic.data(), kMagic, sizeof(kMagic)) != 0) {
    return Error(ErrorCode::kCorruptFile, "restore state: byte 0: magic: expected TMKVCP01; this is no checkpoint of a KV cache");
  }
  TIDEMILL_TRY(model, reader.Read<uint64_t>("restore state: model"));
  TIDEMILL_TRY(numeric_class, reader.Read<uint64_t>("restore state: numeric class"));
  TIDEMILL_TRY(tokens, reader.Read<uint64_t>("restore state: tokens"));
  TIDEMILL_TRY(layers, reader.Read<uint32_t>("restore state: layers"));
  TIDEMILL_TRY(kv_heads, reader.Read<uint32_t>("restore state: kv_heads"));
  TIDEMILL_TRY(head_dim, reader.Read<uint32_t>("restore state: head_dim"));
  TIDEMILL_TRY(dtype, reader.Read<uint32_t>("restore state: dtype"));
  TIDEMILL_TRY(rows, reader.Read<uint64_t>("restore state: length"));
  if (model != shape_.model) return AnothersCheckpoint("the model");
  if (numeric_class != shape_.numeric_class) return AnothersCheckpoint("the numeric class");
  if (layers != shape_.layers || kv_heads != shape_.kv_heads || head_dim != shape_.head_dim ||
      dtype != static_cast<uint32_t>(shape_.dtype)) {
    return AnothersCheckpoint("the shape");
  }
  if (rows > shape_.max_length) {
    return Error(ErrorCode::kContextFull, "restore state: " + std::to_string(rows) + " positions: the context holds " +
                                              std::to_string(shape_.max_length));
  }
  // rows is at most the context and the shape is our own, so that this cannot wrap.
  const uint64_t expected = rows * 8 + shape_.layers * shape_.PositionBytes() * rows;
  if (reader.remaining() != expected) {
    return Error(ErrorCode::kCorruptFile, "restore state: byte " + std::to_string(reader.position()) + ": rows: expected " +
                                              std::to_string(expected) + " bytes, found " + std::to_string(reader.remaining()));
  }
  try {
    KvCache fresh(shape_);
    std::vector<RowKey> keys(rows);
    TIDEMILL_TRY(key_bytes, reader.Take(rows * 8, "restore state: keys"));
    if (rows != 0) std::memcpy(keys.data(), key_bytes.data(), key_bytes.size());
    TIDEMILL_TRY_VOID(fresh.Reserve(rows));
    for (KvLayer& layer : fresh.layers_) {
      for (const bool value : {false, true}) {
        for (size_t head = 0; head < shape_.kv_heads; ++head) {
          TIDEMILL_TRY(bytes, reader.Take(rows * shape_.RowBytes(), "restore state: rows"));
          if (rows != 0) std::memcpy(RowAt(*layer.tail_, value, head, 0), bytes.data(), bytes.size());
        }
      }
    }
    fresh.Commit(keys);
    if (fresh.hashes_.back() != tokens) {
      return Error(ErrorCode::kCorruptFile, "restore state: the hash of the tokens does not match them; the bytes are damaged");
    }
    layers_ = std::move(fresh.layers_);
    for (KvLayer& layer : layers_) layer.cache_ = this;
    prefix_rows_.clear();
    prefix_end_ = 0;
    keys_ = std::move(fresh.keys_);
    hashes_ = std::move(fresh.hashes_);
    return {};
  } catch (const std::bad_alloc&) {
    return Error(ErrorCode::kOutOfMemory, "restore state: the system has no more memory");
  }
}

}  // namespace tidemill
