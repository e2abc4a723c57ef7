// A layer state for tests that is no list of rows: a running fold of all rows so far, as linear attention keeps one. Rows of a step are
// staged, those of a tree too; a committed row is folded once no rollback can take it back.
#ifndef TIDEMILL_TESTS_SUPPORT_FOLD_STATE_H_
#define TIDEMILL_TESTS_SUPPORT_FOLD_STATE_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "base/checked_math.h"
#include "state/layer_state.h"

namespace tidemill::testing {

// One row onto the fold, which depends on the order.
constexpr uint64_t Fold(uint64_t value, uint64_t row) {
  const uint64_t x = (value ^ (row + 0x9E3779B97F4A7C15ULL)) * 0xD6E8FEB86659FD93ULL;
  return x ^ (x >> 29);
}

class FoldState : public LayerState {
 public:
  static constexpr StateKind kKind = StateKind::kOfATest;
  static constexpr bool Holds(StateKind kind) { return kind == kKind; }

  explicit FoldState(uint64_t begin) : begin_(begin), folded_(begin) {}

  // Row `slot` of the step in progress.
  void Write(size_t slot, uint64_t row) { staged_[slot] = row; }
  // Of all tokens and the first rows of the step.
  uint64_t Value(size_t step_rows) const {
    uint64_t value = folded_;
    for (const uint64_t row : pending_) value = Fold(value, row);
    for (size_t i = 0; i < step_rows; ++i) value = Fold(value, staged_[i]);
    return value;
  }

  StateKind checkpoint_kind() const override { return kKind; }
  std::vector<uint64_t> Shape() const override { return {begin_}; }
  std::unique_ptr<LayerState> MakeEmpty() const override { return std::make_unique<FoldState>(begin_); }
  size_t EarliestRollback(size_t floor) const override { return floor; }
  bool has_constant_size() const override { return true; }
  uint64_t CheckpointBytes(size_t length, size_t earliest) const override {
    uint64_t bytes = 0;
    if (length == 0) return 0;
    return CheckedMul<uint64_t>(length - earliest + 1, 8, &bytes) ? bytes : UINT64_MAX;
  }
  uint64_t reserved_bytes() const override { return (pending_.capacity() + staged_.capacity() + (length_ != 0)) * 8; }
  uint64_t read_bytes_per_token(size_t length) const override { return length == 0 ? 0 : 8; }
  GrowthCounts growth() const override { return {}; }
  uint64_t GrowthBytes(size_t n, size_t) const override {
    return 8 * (Missing(pending_, pending_.size() + n) + Missing(staged_, n));
  }
  uint64_t GrowthBytes(size_t n, size_t, size_t floor, size_t) const override { return GrowthBytes(n, floor); }
  bool HasRoom(size_t n, size_t floor) const override { return GrowthBytes(n, floor) == 0; }

  Result<void> Reserve(size_t n, size_t floor, BufferArena*) override {
    Settle();
    if (Missing(pending_, pending_.size() + n) != 0) pending_.reserve(Rounded(pending_.size() + n));
    if (Missing(staged_, n) != 0) staged_.reserve(Rounded(n));
    staged_.assign(n, 0);
    floor_ = std::max(floor_, floor);
    return {};
  }
  void Commit(size_t n) override {
    pending_.insert(pending_.end(), staged_.begin(), staged_.begin() + static_cast<std::ptrdiff_t>(n));
    length_ += n;
  }
  void CommitPath(std::span<const uint32_t> path) override {
    for (const uint32_t slot : path) pending_.push_back(staged_[slot]);
    length_ += path.size();
  }
  size_t num_settle_parts() const override { return due() != 0 ? 1 : 0; }
  uint64_t settle_bytes() const override { return 8 * due(); }
  void SettlePart(size_t) override {
    for (size_t i = 0; i < due(); ++i) folded_ = Fold(folded_, pending_[i]);
  }
  void EndSettle() override { pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(due())); }

  void Rollback(size_t length) override {
    pending_.resize(pending_.size() - (length_ - length));
    length_ = length;
  }
  void Clear() override { *this = FoldState(begin_); }
  void Compact(size_t) override { pending_.shrink_to_fit(); }
  void PrepareFork(LayerState& child) override { static_cast<FoldState&>(child) = *this; }
  void Fork(LayerState&) override {}
  void AppendTo(std::vector<std::byte>* out, size_t earliest) const override {
    if (length_ == 0) return;
    const size_t kept = length_ - earliest, before = pending_.size() - kept;
    std::vector<uint64_t> words = {folded_};
    for (size_t i = 0; i < before; ++i) words[0] = testing::Fold(words[0], pending_[i]);
    words.insert(words.end(), pending_.begin() + static_cast<std::ptrdiff_t>(before), pending_.end());
    const auto bytes = std::as_bytes(std::span(words));
    out->insert(out->end(), bytes.begin(), bytes.end());
  }
  Result<void> ReadFrom(ByteReader& reader, size_t length, size_t earliest, BufferArena*) override {
    TIDEMILL_TRY(folded, reader.Read<uint64_t>("fold"));
    folded_ = folded;
    floor_ = earliest;
    length_ = length;
    pending_.resize(length - earliest);
    TIDEMILL_TRY(rows, reader.Take(pending_.size() * 8, "rows"));
    if (!rows.empty()) std::memcpy(pending_.data(), rows.data(), rows.size());
    return {};
  }
  void Take(LayerState&& other) override { *this = std::move(static_cast<FoldState&>(other)); }

 private:
  static size_t Rounded(size_t n) { return (n / 64 + 1) * 64; }
  static size_t Missing(const std::vector<uint64_t>& rows, size_t n) {
    return n <= rows.capacity() ? 0 : Rounded(n) - rows.capacity();
  }
  // Committed rows that the fold lacks and no rollback takes back.
  size_t due() const {
    const size_t first = length_ - pending_.size();
    return floor_ - std::min(floor_, first);
  }

  uint64_t begin_, folded_;
  size_t length_ = 0, floor_ = 0;
  std::vector<uint64_t> pending_;  // committed rows after the folded ones
  std::vector<uint64_t> staged_;   // of the step
};

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_FOLD_STATE_H_
