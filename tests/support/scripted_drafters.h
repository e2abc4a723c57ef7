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

// Knows the answer and says each token of it with a probability, else any other.
class ScriptedDrafter : public Drafter {
 public:
  ScriptedDrafter(std::vector<int32_t> truth, double right, uint64_t seed)
      : truth_(std::move(truth)), right_(right), random_(seed) {}

  void Append(int32_t) override { ++length_; }
  DraftTree Propose(size_t most) override {
    proposed_.clear();
    for (size_t i = 0; i < most; ++i) {
      const bool known = length_ + i < truth_.size();
      const bool right = known && std::uniform_real_distribution<double>()(random_) < right_;
      proposed_.push_back(right ? truth_[length_ + i] : static_cast<int32_t>(3 + random_() % 290));
    }
    return {.ids = proposed_};
  }

 private:
  std::vector<int32_t> truth_, proposed_;
  double right_;
  size_t length_ = 0;
  std::mt19937_64 random_;
};

// What a tree said last: its nodes, and the right ones of them from the first down, each with its place among its siblings.
struct ProposedTree {
  size_t nodes = 0;
  struct Right {
    size_t node, sibling;
  };
  std::vector<Right> path;
};

// The same, as a tree: at each depth of the right path wrong siblings stand before and behind the right one, with nodes of their own.
class ScriptedTreeDrafter : public Drafter {
 public:
  ScriptedTreeDrafter(std::vector<int32_t> truth, double right, uint64_t seed, ProposedTree* last)
      : truth_(std::move(truth)), right_(right), random_(seed), last_(last) {}

  void Append(int32_t) override { ++length_; }
  DraftTree Propose(size_t most) override {
    ids_.clear();
    parents_.clear();
    last_->path.clear();
    const size_t wrong_ones = random_() % 3;  // before and behind a right one, at most; without any it is a chain
    int32_t at = -1;
    size_t depth = 0;
    while (ids_.size() < most) {
      const size_t before = random_() % (wrong_ones + 1), behind = random_() % (wrong_ones + 1);
      for (size_t i = 0; i < before; ++i) AddWrong(most, at, depth);
      const bool known = length_ + depth < truth_.size();
      if (!known || std::uniform_real_distribution<double>()(random_) >= right_) {
        AddWrong(most, at, depth);
        break;
      }
      const auto right = static_cast<int32_t>(ids_.size());
      if (!Add(most, truth_[length_ + depth], at)) break;
      last_->path.push_back({ids_.size() - 1, before});
      for (size_t i = 0; i < behind; ++i) AddWrong(most, at, depth);
      at = right;
      ++depth;
    }
    while (ids_.size() < most && wrong_ones != 0 && random_() % 4 != 0) {  // below a wrong one
      const auto parent = static_cast<int32_t>(random_() % ids_.size());
      const auto is_right = [parent](const ProposedTree::Right& node) {
        return static_cast<int32_t>(node.node) == parent;
      };
      if (std::none_of(last_->path.begin(), last_->path.end(), is_right))
        Add(most, static_cast<int32_t>(3 + random_() % 290), parent);
    }
    last_->nodes = ids_.size();
    return {.ids = ids_, .parents = parents_};
  }

 private:
  bool Add(size_t most, int32_t id, int32_t parent) {
    if (ids_.size() == most) return false;
    ids_.push_back(id);
    parents_.push_back(parent);
    return true;
  }
  void AddWrong(size_t most, int32_t parent, size_t depth) {
    auto id = static_cast<int32_t>(3 + random_() % 290);
    if (length_ + depth < truth_.size() && id == truth_[length_ + depth]) id = id == 3 ? 4 : id - 1;
    Add(most, id, parent);
  }

  std::vector<int32_t> truth_, ids_, parents_;
  double right_;
  size_t length_ = 0;
  std::mt19937_64 random_;
  ProposedTree* last_;
};

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_SCRIPTED_DRAFTERS_H_
