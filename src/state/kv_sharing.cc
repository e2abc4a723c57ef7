// What a KV layer shares with others: forks, small blocks that become one, and blocks of what nobody shares any more.
#include <algorithm>
#include <utility>

#include "state/kv_layer.h"

namespace tidemill {

void KvLayer::TakeLastBlock() {
  tail_ = std::move(shared_.back().block);
  tail_first_ = shared_.back().first;
  seen_rows_ = 0;
  shared_.pop_back();
  tail_->ForgetMerged();
  tail_->TransposeBack(tail_rows(), tail_rows());
}

// Older ones, which more sequences share: the newest half of kMaxSpans stays.
KvLayer::Run KvLayer::MergeableRun(size_t floor) const {
  const size_t needed = FirstNeeded(floor);
  const size_t first = static_cast<size_t>(
      std::find_if(shared_.begin(), shared_.end(), [needed](const SharedRows& rows) { return rows.end > needed; }) -
      shared_.begin());
  if (shared_.size() - first <= kMaxSpans || policy_.policy == KvPolicy::kPaged) return {};  // pages never move
  const size_t most = shared_.size() - kMaxSpans / 2;
  for (Run run{.begin = first}; run.begin < most; ++run.begin) {
    run.rows = 0;
    for (run.end = run.begin; run.end < most && run.rows + shared_[run.end].rows() <= kGrowthRows; ++run.end)
      run.rows += shared_[run.end].rows();
    if (run.end > run.begin + 1) return run;
  }
  return {};
}

void KvLayer::Merge(size_t floor) {
  const size_t most = MergeableRun(floor).rows;  // as GrowthBytes says
  TakeMerged();
  const Run run = MergeableRun(floor);
  if (run.rows == 0 || run.rows > most) return;
  auto block = MakeBlock(run.rows);
  if (!block->Allocate(nullptr).ok()) return;
  const size_t first = shared_[run.begin].first, end = shared_[run.end - 1].end;
  for (size_t i = run.begin; i < run.end; ++i) {
    const SharedRows& part = shared_[i];
    block->CopyRows(*part.block, 0, part.rows(), part.first - first);
  }
  block->TransposeTiles(run.rows);
  counts_.bytes_copied += run.rows * PositionBytes();
  for (size_t i = run.begin; i < run.end; ++i) {
    const SharedRows& part = shared_[i];
    if (part.block->merged().block == nullptr) part.block->MergeInto(block, part.first - first, part.rows());
  }
  shared_[run.begin] = {std::move(block), first, end};
  shared_.erase(shared_.begin() + static_cast<std::ptrdiff_t>(run.begin) + 1,
                shared_.begin() + static_cast<std::ptrdiff_t>(run.end));
}

void KvLayer::TakeMerged() {
  size_t kept = 0;
  for (size_t i = 0; i < shared_.size(); ++i) {
    SharedRows rows = std::move(shared_[i]);
    if (KvBlock::Merged merged = rows.block->merged(); merged.block != nullptr && rows.rows() <= merged.rows) {
      if (kept != 0 && shared_[kept - 1].block == merged.block) {
        shared_[kept - 1].end = rows.end;
        continue;
      }
      if (merged.before == 0) rows.block = std::move(merged.block);
    }
    shared_[kept++] = std::move(rows);
  }
  shared_.resize(kept);
}

void KvLayer::Compact(size_t floor) {
  DropShared(FirstNeeded(floor));
  TakeMerged();
  if (tail_rows() == 0) tail_ = nullptr;
  // The tail is one more of them.
  std::vector<SharedRows> made;
  made.reserve(length_ / kGrowthRows + shared_.size() + 2);
  spans_.resize(std::max(spans_.size(), made.capacity() + 1));
  const size_t first_seen = FirstNeeded(floor);
  const size_t num_parts = shared_.size() + (tail_ == nullptr ? 0 : 1);
  const auto part = [&](size_t i) { return i < shared_.size() ? shared_[i] : SharedRows{tail_, tail_first_, length_}; };
  const auto is_loose = [&](size_t i) {
    const KvBlock& block = *part(i).block;
    const bool is_ours = (i < shared_.size() ? shared_[i].block : tail_).use_count() == 1;
    return is_ours && (block.capacity() != kGrowthRows || part(i).rows() != kGrowthRows);
  };
  for (size_t i = 0; i < num_parts;) {
    size_t end = i;
    while (end < num_parts && is_loose(end)) ++end;
    if (end <= i + 1 && (end == i || part(i).block->capacity() == part(i).rows())) {
      made.push_back(part(i++));  // as it is
      continue;
    }
    const size_t first = std::max(first_seen, part(i).first), last = part(end - 1).end;
    for (size_t at = first; at < last; at += kGrowthRows) {
      const size_t rows = std::min(kGrowthRows, last - at);
      auto block = MakeBlock(rows);
      if (!block->Allocate(nullptr).ok()) return;
      for (size_t j = i; j < end; ++j) {
        const SharedRows from = part(j);
        const size_t begin = std::max(at, from.first), stop = std::min(at + rows, from.end);
        if (begin < stop) block->CopyRows(*from.block, begin - from.first, stop - from.first, begin - at);
      }
      block->TransposeTiles(rows);
      made.push_back({std::move(block), at, at + rows});
    }
    i = end;
  }
  shared_ = std::move(made);
  tail_ = nullptr;
  tail_first_ = length_;
}

void KvLayer::PrepareFork(LayerState& child) {
  const size_t blocks = shared_.size() + 1;
  for (KvLayer* layer : {this, &static_cast<KvLayer&>(child)}) {
    layer->shared_.reserve(blocks);
    layer->spans_.resize(std::max(layer->spans_.size(), blocks + 1));
  }
}

void KvLayer::Fork(LayerState& child) {
  auto& other = static_cast<KvLayer&>(child);
  other.shared_.assign(shared_.begin(), shared_.end());
  if (tail_rows() != 0) {
    other.shared_.push_back({tail_, tail_first_, length_});
    seen_rows_ = tail_rows();
  }
  other.length_ = other.tail_first_ = length_;
}

}  // namespace tidemill
