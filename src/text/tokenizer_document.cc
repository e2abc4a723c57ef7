#include "text/tokenizer_document.h"

#include <utility>

#include "base/json_reader.h"
#include "base/printable_name.h"
#include "text/tokenizer_steps.h"

namespace tidemill {
namespace {

Error TooMany(const std::string& what, size_t limit, const std::string& unit) {
  return Error(ErrorCode::kUnsupported, what + ": expected at most " + std::to_string(limit) + " " + unit);
}

// Takes the document event by event: the vocabulary and the merges into lists, the rest into a document.
class DocumentReader {
 public:
  Result<void> Take(const JsonEvent& event) {
    switch (place_) {
      case Place::kVocabulary: return TakeToken(event);
      case Place::kScored: return TakeScored(event);
      case Place::kMerges: return TakeMerge(event);
      case Place::kMergePair: return TakePart(event);
      case Place::kElsewhere: break;
    }
    switch (event.kind) {
      case JsonKind::kKey:
        // Of interest are those of the root and of root.model.
        if (depth_ == 1) is_model_ = event.text == "model";
        if (depth_ == 2) part_ = event.text;
        return rest_.Take(event);
      case JsonKind::kEndObject:
      case JsonKind::kEndArray: --depth_; return rest_.Take(event);
      case JsonKind::kBeginObject:
      case JsonKind::kBeginArray:
        if (IsPart(JsonKind::kBeginObject, event, "vocab")) return Enter(Place::kVocabulary, &has_vocabulary_);
        if (IsPart(JsonKind::kBeginArray, event, "vocab")) {
          has_scores_ = true;
          num_parts_ = 0;
          return Enter(Place::kScored, &has_vocabulary_);
        }
        if (IsPart(JsonKind::kBeginArray, event, "merges")) return Enter(Place::kMerges, &has_merges_);
        ++depth_;
        break;
      default: break;
    }
    if (num_values_++ == kMaxDocumentValues)
      return TooMany("document", kMaxDocumentValues, "values besides vocabulary and merges");
    return rest_.Take(event);
  }

  TokenizerDocument Finish() && {
    return {std::move(rest_).Finish(),
            std::move(vocabulary_),
            std::move(merges_),
            has_vocabulary_,
            has_scores_,
            has_merges_};
  }

 private:
  enum class Place { kElsewhere, kVocabulary, kScored, kMerges, kMergePair };

  // Whether the value that begins is model.<name>.
  bool IsPart(JsonKind kind, const JsonEvent& event, std::string_view name) const {
    return event.kind == kind && depth_ == 2 && is_model_ && part_ == name;
  }

  Result<void> Enter(Place place, bool* has_part) {
    if (*has_part) return Corrupt("key " + QuoteName(part_) + ": expected it once, found it twice");
    *has_part = true;
    place_ = place;
    return {};
  }

  Result<void> TakeToken(const JsonEvent& event) {
    if (event.kind == JsonKind::kEndObject) {
      place_ = Place::kElsewhere;
    } else if (event.kind == JsonKind::kKey) {
      token_ = event.text;
    } else if (event.kind != JsonKind::kInteger || event.negative) {
      return Corrupt("model.vocab: token " + QuoteName(token_) + ": expected an id, found another value");
    } else if (vocabulary_.size() == kMaxDocumentTokens) {
      return TooMany("model.vocab", kMaxDocumentTokens, "tokens");
    } else {
      vocabulary_.push_back({std::move(token_), event.integer});
    }
    return {};
  }

  // A list of [name, score].
  Result<void> TakeScored(const JsonEvent& event) {
    const auto bad = [this] {
      return Corrupt("model.vocab: entry " + std::to_string(vocabulary_.size()) + ": expected a token and its score");
    };
    switch (event.kind) {
      case JsonKind::kBeginArray:
        if (num_parts_ != 0 || in_entry_) return bad();
        in_entry_ = true;
        return {};
      case JsonKind::kString:
        if (!in_entry_ || num_parts_++ != 0) return bad();
        token_ = event.text;
        return {};
      case JsonKind::kInteger:
      case JsonKind::kFloat:
        if (!in_entry_ || num_parts_++ != 1) return bad();
        score_ = event.number;
        return {};
      case JsonKind::kEndArray:
        if (!in_entry_) {
          place_ = Place::kElsewhere;
          return {};
        }
        if (num_parts_ != 2) return bad();
        if (vocabulary_.size() == kMaxDocumentTokens) return TooMany("model.vocab", kMaxDocumentTokens, "tokens");
        vocabulary_.push_back({std::move(token_), vocabulary_.size(), score_});
        num_parts_ = 0;
        in_entry_ = false;
        return {};
      default: return bad();
    }
  }

  Result<void> TakeMerge(const JsonEvent& event) {
    if (event.kind == JsonKind::kEndArray) {
      place_ = Place::kElsewhere;
    } else if (event.kind == JsonKind::kString) {
      return AddMerge(std::string(event.text));
    } else if (event.kind == JsonKind::kBeginArray) {
      place_ = Place::kMergePair;
      pair_.clear();
      num_parts_ = 0;
    } else {
      return BadPair();
    }
    return {};
  }

  Result<void> TakePart(const JsonEvent& event) {
    if (event.kind == JsonKind::kEndArray) {
      place_ = Place::kMerges;
      return num_parts_ == 2 ? AddMerge(std::move(pair_)) : BadPair();
    }
    if (event.kind != JsonKind::kString || num_parts_ == 2) return BadPair();
    if (event.text.find(' ') != std::string_view::npos) {
      return Error(ErrorCode::kUnsupported, "model.merges: merge " + std::to_string(merges_.size()) +
                                                ": expected tokens without spaces, found " + QuoteName(event.text));
    }
    if (num_parts_++ == 1) pair_ += ' ';
    pair_ += event.text;
    return {};
  }

  Result<void> AddMerge(std::string merge) {
    if (merges_.size() == kMaxDocumentMerges) return TooMany("model.merges", kMaxDocumentMerges, "merges");
    merges_.push_back(std::move(merge));
    return {};
  }
  Error BadPair() const {
    return Corrupt("model.merges: merge " + std::to_string(merges_.size()) + ": expected two strings");
  }

  JsonDocumentBuilder rest_{"tokenizer.json"};
  std::vector<TokenizerDocument::Token> vocabulary_;
  std::vector<std::string> merges_;
  bool has_vocabulary_ = false;
  bool has_scores_ = false;
  bool has_merges_ = false;
  Place place_ = Place::kElsewhere;
  size_t depth_ = 0;  // of what is open in the rest
  bool is_model_ = false;
  std::string part_;   // the latest key at depth 2
  std::string token_;  // of the vocabulary: the latest
  double score_ = 0;
  bool in_entry_ = false;  // of a list of tokens and scores
  std::string pair_;
  size_t num_parts_ = 0;
  size_t num_values_ = 0;
};

}  // namespace

Result<TokenizerDocument> ParseTokenizerDocument(std::string_view json) {
  if (json.size() > kMaxDocumentBytes) {
    return Error(ErrorCode::kUnsupported, "expected at most " + std::to_string(kMaxDocumentBytes) + " bytes, found " +
                                              std::to_string(json.size()));
  }
  DocumentReader reader;
  const JsonLimits limits{.max_values = kMaxDocumentBytes};  // the reader counts what it takes
  TIDEMILL_TRY_VOID(ReadJson(json, limits, [&](const JsonEvent& event) { return reader.Take(event); }));
  return std::move(reader).Finish();
}

}  // namespace tidemill
