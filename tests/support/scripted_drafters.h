// Drafters that know the answer, and are wrong as often as a test wants.
#ifndef TIDEMILL_TESTS_SUPPORT_SCRIPTED_DRAFTERS_H_
#define TIDEMILL_TESTS_SUPPORT_SCRIPTED_DRAFTERS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "decoding/drafter.h"

namespace tidemill::testing {

// What a drafter knows, and how it errs.
struct DraftScript {
  std::vector<int32_t> truth;  // the prompt and what follows it
  double right = 1;            // how often it drafts that
  uint64_t seed = 0;
  // At each depth of the right path wrong siblings stand before and behind the right one, with nodes of their own.
  bool trees = false;
  bool turns = false;           // right up to some depth of each draft, and wrong behind it
  int32_t vocab = 293;          // wrong ids are from 3 on, and below
  std::vector<int32_t> lies{};  // or, where there are any, every other one of these
};

// What a draft was: its nodes, and the accepted ones of them from the first down, each with its place among its siblings.
struct ProposedTree {
  size_t nodes = 0;
  struct Right {
    size_t node, sibling;
  };
  std::vector<Right> path;

  // The right nodes, from the first down, that are among the first so many of all.
  size_t RightAmong(size_t first) const {
    size_t right = 0;
    while (right < path.size() && path[right].node < first) ++right;
    return right;
  }
};

class ScriptedDrafter : public Drafter {
 public:
  // `last`: where it says what it proposed last; outlives it.
  ScriptedDrafter(DraftScript script, ProposedTree* last)
      : script_(std::move(script)), random_(script_.seed), last_(last) {}

  void Append(int32_t) override { ++length_; }
  DraftTree Propose(size_t num_draft_tokens) override {
    ids_.clear();
    parents_.clear();
    last_->path.clear();
    max_ = num_draft_tokens;
    turn_ = script_.turns ? random_() % (num_draft_tokens + 1) : num_draft_tokens;
    if (script_.trees) {
      AddTree();
    } else {
      AddChain();
    }
    last_->nodes = ids_.size();
    return {.ids = ids_, .parents = parents_};
  }
  DraftOrder draft_order() const override { return script_.trees ? DraftOrder::kTree : DraftOrder::kOneByOne; }

 private:
  void AddChain() {
    for (size_t depth = 0; depth < max_; ++depth) {
      const bool right = IsRight(depth);
      if (right && last_->path.size() == depth) last_->path.push_back({depth, 0});
      ids_.push_back(right ? script_.truth[length_ + depth] : Wrong(depth));
    }
  }

  void AddTree() {
    const size_t wrong_ones = random_() % 3;  // before and behind a right one, at most; without any it is a chain
    int32_t at = -1;
    size_t depth = 0;
    while (ids_.size() < max_) {
      const size_t before = random_() % (wrong_ones + 1), behind = random_() % (wrong_ones + 1);
      for (size_t i = 0; i < before; ++i) Add(Wrong(depth), at);
      if (!IsRight(depth)) {
        Add(Wrong(depth), at);
        break;
      }
      const auto right = static_cast<int32_t>(ids_.size());
      if (!Add(script_.truth[length_ + depth], at)) break;
      last_->path.push_back({ids_.size() - 1, before});
      for (size_t i = 0; i < behind; ++i) Add(Wrong(depth), at);
      at = right;
      ++depth;
    }
    while (ids_.size() < max_ && wrong_ones != 0 && random_() % 4 != 0) {  // below a wrong one
      const auto parent = static_cast<int32_t>(random_() % ids_.size());
      const auto is_right = [parent](const ProposedTree::Right& node) {
        return static_cast<int32_t>(node.node) == parent;
      };
      if (std::none_of(last_->path.begin(), last_->path.end(), is_right)) Add(AnyId(), parent);
    }
  }

  bool Add(int32_t id, int32_t parent) {
    if (ids_.size() == max_) return false;
    ids_.push_back(id);
    parents_.push_back(parent);
    return true;
  }
  bool IsKnown(size_t depth) const { return length_ + depth < script_.truth.size(); }
  bool IsRight(size_t depth) {
    return IsKnown(depth) && depth < turn_ && std::uniform_real_distribution<double>()(random_) < script_.right;
  }
  int32_t AnyId() {
    if (!script_.lies.empty() && random_() % 2 == 0) return script_.lies[random_() % script_.lies.size()];
    return static_cast<int32_t>(3 + random_() % static_cast<uint64_t>(script_.vocab - 3));
  }
  int32_t Wrong(size_t depth) {
    const int32_t id = AnyId();
    if (!IsKnown(depth) || id != script_.truth[length_ + depth]) return id;
    return id == 3 ? 4 : 3;
  }

  DraftScript script_;
  std::vector<int32_t> ids_, parents_;
  size_t length_ = 0, max_ = 0, turn_ = 0;
  std::mt19937_64 random_;
  ProposedTree* last_;
};

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_SCRIPTED_DRAFTERS_H_
