#include "text/unigram.h"

#include <algorithm>
#include <utility>

#include "text/utf8.h"

namespace tidemill {
namespace {

constexpr double kUnknownPenalty = 10;

}  // namespace

Unigram::Unigram(std::vector<PieceTrie::Piece> pieces, std::vector<double> scores) : scores_(std::move(scores)) {
  double lowest = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const double score = scores_[static_cast<size_t>(pieces[i].id)];
    lowest = i == 0 ? score : std::min(lowest, score);
  }
  unknown_score_ = lowest - kUnknownPenalty;
  trie_ = PieceTrie(std::move(pieces));
}

void Unigram::Cut(std::string_view word, Scratch& scratch, std::vector<Part>& parts) const {
  auto& best = scratch.best_;
  best.assign(word.size() + 1, {0, 0, -1});
  for (size_t at = 0; at < word.size();) {
    const Utf8Char next = DecodeUtf8(word.substr(at));
    const size_t length = next.status == Utf8Status::kValid ? next.length : 1;
    const double so_far = best[at].score;
    const auto reach = [&](size_t end, double score, int32_t id) {
      Scratch::Best& there = best[end];
      if (there.length != 0 && score <= there.score) return;
      there = {score, static_cast<uint32_t>(end - at), id};
    };
    bool has_single = false;
    uint32_t node = PieceTrie::kRoot;
    for (size_t end = at; end < word.size();) {
      node = trie_.Step(node, static_cast<uint8_t>(word[end++]));
      if (node == PieceTrie::kNowhere) break;
      const int32_t id = trie_.IdAt(node);
      if (id < 0) continue;
      reach(end, so_far + scores_[static_cast<size_t>(id)], id);
      has_single = has_single || end == at + length;
    }
    if (!has_single) reach(at + length, so_far + unknown_score_, -1);
    at += length;
  }
  const size_t first = parts.size();
  for (size_t end = word.size(); end > 0;) {
    const Scratch::Best& last = best[end];
    const size_t begin = end - last.length;
    if (last.id < 0 && parts.size() > first && parts.back().id < 0) {
      parts.back().text = word.substr(begin, last.length + parts.back().text.size());
    } else {
      parts.push_back({word.substr(begin, last.length), last.id});
    }
    end = begin;
  }
  std::reverse(parts.begin() + static_cast<std::ptrdiff_t>(first), parts.end());
}

}  // namespace tidemill
