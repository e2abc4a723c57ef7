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

}  // namespace

void NaiveSequence::Append(const StateKindUnderTest& kind, RowKey key) {
  keys.push_back(key);
  hashes.push_back(Mix(hashes.empty() ? 0 : hashes.back(), key));
  for (size_t layer = 0; layer < rows.size(); ++layer) {
    uint64_t hash = Mix(hashes.back(), layer);
    for (size_t i = 0; i < kind.layer(layer).row_bytes(); ++i) {
      hash = Mix(hash, 1);
      rows[layer].push_back(static_cast<std::byte>((hash >> 33) % 255));
    }
    kind.layer(layer).Admit(std::span(rows[layer]).last(kind.layer(layer).row_bytes()));
  }
  if (keys.size() > 2 * kind.draft_rows()) floor = std::max(floor, keys.size() - 2 * kind.draft_rows());
}

void NaiveSequence::Truncate(const StateKindUnderTest& kind, size_t length) {
  keys.resize(length);
  hashes.resize(length);
  for (size_t layer = 0; layer < rows.size(); ++layer) rows[layer].resize(length * kind.layer(layer).row_bytes());
}

size_t NaiveSequence::CheckpointEarliest(const StateKindUnderTest& kind) const {
  const size_t usual = keys.size() < kind.draft_rows() ? 0 : keys.size() - kind.draft_rows();
  return kind.UnlessAllIsSeen(std::max(usual, floor));
}

NaiveSequence NaiveSequence::Restored(const StateKindUnderTest& kind) const {
  NaiveSequence restored = *this;
  restored.floor = CheckpointEarliest(kind);
  if (keys.size() > 2 * kind.draft_rows()) {
    restored.floor = std::max(restored.floor, keys.size() - 2 * kind.draft_rows());
  }
  return restored;
}

void Subject::WriteUncommitted(size_t count) const {
  for (size_t layer = 0; layer < kind->num_layers(); ++layer)
    kind->layer(layer).WriteUncommitted(state->layer(layer), count);
}

void Subject::WriteRows(std::span<const uint32_t> slots, std::span<const RowKey> keys) const {
  NaiveSequence next = naive;
  for (const RowKey key : keys) next.Append(*kind, key);
  for (size_t layer = 0; layer < kind->num_layers(); ++layer) {
    const auto rows = std::span(next.rows[layer]).subspan(naive.keys.size() * kind->layer(layer).row_bytes());
    kind->layer(layer).WritePath(state->layer(layer), slots, rows);
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
  uint64_t committed = 0, made = 0, read = 0;
  for (size_t layer = 0; layer < kind->num_layers(); ++layer) {
    if (length == 0) break;
    const size_t earliest = naive.CheckpointEarliest(*kind);
    committed += kind->layer(layer).CommittedBytes(length, earliest);
    made += kind->layer(layer).MadeBytes(earliest);
    read += kind->layer(layer).ReadBytes(state->layer(layer), length, kind->draft_rows());
  }
  if (bytes.committed != committed) {
    return "committed: expected " + std::to_string(committed) + " bytes, found " + std::to_string(bytes.committed);
  }
  if (bytes.read_per_token != read) {
    return "read per token: expected " + std::to_string(read) + " bytes, found " + std::to_string(bytes.read_per_token);
  }
  if (state->earliest_rollback() != naive.EarliestRollback(*kind)) {
    return "earliest rollback: expected " + std::to_string(naive.EarliestRollback(*kind)) + ", found " +
           std::to_string(state->earliest_rollback());
  }
  if (bytes.reserved < committed - made) {
    return "reserved: " + std::to_string(bytes.reserved) +
           " bytes, fewer than are committed: " + std::to_string(committed - made);
  }
  for (size_t layer = 0; content && layer < kind->num_layers(); ++layer) {
    const std::string difference = kind->layer(layer).Difference(
        state->layer(layer), 0, naive.rows[layer], kind->layer(layer).FirstSeen(naive.EarliestRollback(*kind)));
    if (!difference.empty()) return "layer " + std::to_string(layer) + ": " + difference;
  }
  return {};
}

std::string Subject::StepDifference(std::span<const RowKey> step_keys) const {
  NaiveSequence next = naive;
  for (const RowKey key : step_keys) next.Append(*kind, key);
  for (size_t layer = 0; layer < kind->num_layers(); ++layer) {
    const std::string difference =
        kind->layer(layer).Difference(state->layer(layer), step_keys.size(), next.rows[layer],
                                      kind->layer(layer).FirstSeen(naive.EarliestRollback(*kind)));
    if (!difference.empty())
      return "step of " + std::to_string(step_keys.size()) + ", layer " + std::to_string(layer) + ": " + difference;
  }
  return {};
}

bool Subject::GaveUp() const {
  for (size_t layer = 0; layer < kind->num_layers(); ++layer) {
    if (kind->layer(layer).GaveUp(state->layer(layer))) return true;
  }
  return false;
}

std::vector<std::vector<const std::byte*>> Subject::Addresses() const {
  std::vector<std::vector<const std::byte*>> addresses;
  for (size_t layer = 0; layer < kind->num_layers(); ++layer)
    addresses.push_back(kind->layer(layer).Addresses(state->layer(layer)));
  return addresses;
}

size_t Subject::PoisonForgotten() const {
  size_t count = 0;
  for (size_t layer = 0; layer < kind->num_layers(); ++layer) {
    const LayerUnderTest& one = kind->layer(layer);
    count += one.Poison(state->layer(layer), one.FirstSeen(naive.EarliestRollback(*kind)));
  }
  return count;
}

std::vector<std::byte> PlainCheckpoint(const StateKindUnderTest& kind, const NaiveSequence& naive) {
  const size_t length = naive.keys.size();
  const bool fewer = kind.UnlessAllIsSeen(naive.floor) != 0 && naive.floor + kind.draft_rows() > length;
  const size_t longest = fewer ? naive.floor + 2 * kind.draft_rows() : length;
  Subject plain(kind, longest + 1);
  for (size_t at = 0; at < length; at += std::min(length - at, kind.longest_step()))
    plain.Extend(std::span(naive.keys).subspan(at, std::min(length - at, kind.longest_step())));
  if (longest != length) {
    plain.Extend(std::vector<RowKey>(longest - length, 5));
    TIDEMILL_CHECK(plain.state->Rollback(length).ok());
  }
  return CheckpointOf(*plain.state);
}

std::vector<std::byte> CheckpointOf(SequenceState& state) {
  auto checkpoint = state.Checkpoint();
  TIDEMILL_CHECK(checkpoint.ok());
  return std::move(checkpoint).value();
}

}  // namespace tidemill::testing
