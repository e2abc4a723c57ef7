#include "tests/support/state_model.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace tidemill::testing {
namespace {

// Another mixing than ChainTokenHash, which is under test.
uint64_t Mix(uint64_t hash, uint64_t value) {
  uint64_t x = (hash ^ value) * 0xD6E8FEB86659FD93ULL;
  x ^= x >> 32;
  return x * 0xD6E8FEB86659FD93ULL + 0x632BE59BD9B4E019ULL;
}

std::string DescribeRows(std::span<const std::byte> expected, std::span<const std::byte> found, size_t row_bytes) {
  if (expected.size() != found.size()) {
    return "expected " + std::to_string(expected.size() / row_bytes) + " rows, found " +
           std::to_string(found.size() / row_bytes);
  }
  const auto [at, other] = std::mismatch(expected.begin(), expected.end(), found.begin());
  if (at == expected.end()) return {};
  const auto byte = static_cast<size_t>(at - expected.begin());
  return "row " + std::to_string(byte / row_bytes) + " of " + std::to_string(expected.size() / row_bytes) + ", byte " +
         std::to_string(byte % row_bytes) + ": expected " + std::to_string(std::to_integer<int>(*at)) + ", found " +
         std::to_string(std::to_integer<int>(*other));
}

}  // namespace

std::vector<std::byte> RowFor(std::span<const RowKey> keys_so_far, size_t layer, size_t row_bytes) {
  uint64_t hash = Mix(0, layer);
  for (const RowKey key : keys_so_far) hash = Mix(hash, key);
  std::vector<std::byte> row(row_bytes);
  for (std::byte& byte : row) {
    hash = Mix(hash, 1);
    byte = static_cast<std::byte>((hash >> 33) % 255);
  }
  return row;
}

std::vector<std::byte> UncommittedRow(size_t row_bytes) { return std::vector<std::byte>(row_bytes, std::byte{0xFF}); }

void NaiveSequence::Append(const StateKindUnderTest& kind, RowKey key) {
  keys.push_back(key);
  for (size_t layer = 0; layer < rows.size(); ++layer) {
    const auto row = RowFor(keys, layer, kind.row_bytes());
    rows[layer].insert(rows[layer].end(), row.begin(), row.end());
  }
}

void NaiveSequence::Truncate(const StateKindUnderTest& kind, size_t length) {
  keys.resize(length);
  for (auto& layer : rows) layer.resize(length * kind.row_bytes());
}

void Subject::WriteUncommitted(size_t first, size_t count) const {
  const auto row = UncommittedRow(kind->row_bytes());
  for (size_t layer = 0; layer < kind->num_layers(); ++layer) {
    for (size_t i = 0; i < count; ++i) kind->Write(state->layer(layer), first + i, row);
  }
}

void Subject::WriteRows(std::span<const uint32_t> slots, std::span<const RowKey> keys) const {
  NaiveSequence next = naive;
  for (const RowKey key : keys) next.Append(*kind, key);
  const size_t bytes = kind->row_bytes();
  for (size_t layer = 0; layer < kind->num_layers(); ++layer) {
    for (size_t i = 0; i < slots.size(); ++i) {
      kind->Write(state->layer(layer), slots[i],
                  std::span(next.rows[layer]).subspan((naive.keys.size() + i) * bytes, bytes));
    }
  }
}

void Subject::Extend(std::span<const RowKey> keys) {
  TIDEMILL_CHECK(state->Reserve(keys.size()).ok());
  std::vector<uint32_t> slots(keys.size());
  std::iota(slots.begin(), slots.end(), 0U);
  WriteRows(slots, keys);
  state->Commit(keys);
  for (const RowKey key : keys) naive.Append(*kind, key);
}

std::string Subject::Difference(bool content) const {
  const size_t length = naive.keys.size();
  if (state->length() != length) {
    return "length: expected " + std::to_string(length) + ", found " + std::to_string(state->length());
  }
  uint64_t hash = 0;
  for (const RowKey key : naive.keys) hash = ChainTokenHash(hash, key);
  const StateIdentity expected{StateKindUnderTest::kModel, StateKindUnderTest::kNumericClass, hash};
  if (state->identity() != expected) return "identity of " + std::to_string(length) + " positions";
  const StateBytes bytes = state->bytes();
  if (bytes.committed != kind->CommittedBytes(length)) {
    return "committed: expected " + std::to_string(kind->CommittedBytes(length)) + " bytes, found " +
           std::to_string(bytes.committed);
  }
  if (bytes.reserved < bytes.committed) {
    return "reserved: " + std::to_string(bytes.reserved) +
           " bytes, fewer than are committed: " + std::to_string(bytes.committed);
  }
  for (size_t layer = 0; content && layer < kind->num_layers(); ++layer) {
    const std::string difference =
        DescribeRows(naive.rows[layer], kind->Read(state->layer(layer), 0), kind->row_bytes());
    if (!difference.empty()) return "layer " + std::to_string(layer) + ": " + difference;
  }
  return {};
}

std::string Subject::StepDifference(std::span<const RowKey> step_keys) const {
  NaiveSequence next = naive;
  for (const RowKey key : step_keys) next.Append(*kind, key);
  for (size_t layer = 0; layer < kind->num_layers(); ++layer) {
    const std::string difference =
        DescribeRows(next.rows[layer], kind->Read(state->layer(layer), step_keys.size()), kind->row_bytes());
    if (!difference.empty())
      return "step of " + std::to_string(step_keys.size()) + ", layer " + std::to_string(layer) + ": " + difference;
  }
  return {};
}

std::vector<std::vector<const std::byte*>> Subject::Addresses() const {
  std::vector<std::vector<const std::byte*>> addresses;
  for (size_t layer = 0; layer < kind->num_layers(); ++layer) addresses.push_back(kind->Addresses(state->layer(layer)));
  return addresses;
}

std::vector<std::byte> PlainCheckpoint(const StateKindUnderTest& kind, std::span<const RowKey> keys) {
  Subject plain(kind, keys.size() + 1);
  plain.Extend(keys);
  return CheckpointOf(*plain.state);
}

std::vector<std::byte> CheckpointOf(const SequenceState& state) {
  auto checkpoint = state.Checkpoint();
  TIDEMILL_CHECK(checkpoint.ok());
  return std::move(checkpoint).value();
}

}  // namespace tidemill::testing
