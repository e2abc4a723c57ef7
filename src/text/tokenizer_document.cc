#include "text/tokenizer_document.h"

#include <optional>
#include <utility>

#include "formats/printable_name.h"

namespace tidemill {
namespace {

using nlohmann::json;

// Receives the document piece by piece. Every method returns false to stop, with `error_` set.
class DocumentReader final : public nlohmann::json_sax<json> {
 public:
  Result<TokenizerDocument> Finish() {
    if (error_) return std::move(*error_);
    if (!document_.rest.is_object()) return Error(ErrorCode::kCorruptFile, "expected an object, found another value");
    return std::move(document_);
  }

  bool null() override { return AddScalar(nullptr); }
  bool boolean(bool value) override { return AddScalar(value); }
  bool number_integer(number_integer_t value) override { return AddScalar(value); }
  bool number_float(number_float_t value, const string_t& /*text*/) override { return AddScalar(value); }
  bool binary(binary_t& /*value*/) override { return Corrupt("expected JSON, found binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::kVocabulary) return AddScalar(value);
    if (document_.vocabulary.size() == kMaxDocumentTokens) return TooMany("model.vocab", kMaxDocumentTokens, "tokens");
    document_.vocabulary.push_back({std::move(key_), value});
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::kMerges) return AddMerge(std::move(value));
    if (place_ != Place::kMergePair) return AddScalar(std::move(value));
    if (value.find(' ') != std::string::npos) {
      return Fail(ErrorCode::kUnsupported, "model.merges: merge " + std::to_string(document_.merges.size()) +
                                               ": expected tokens without spaces, found " + QuoteName(value));
    }
    if (num_parts_ == 2) return BadPair();
    if (num_parts_++ == 1) pair_ += ' ';
    pair_ += value;
    return true;
  }

  bool start_object(size_t /*size*/) override {
    if (IsPart("vocab")) {
      if (document_.has_vocabulary) return Twice("vocab");
      document_.has_vocabulary = true;
      return Open(Place::kVocabulary);
    }
    return place_ == Place::kElsewhere ? OpenValue(json::object()) : BadPlace();
  }

  bool key(string_t& value) override {
    key_ = std::move(value);
    if (place_ == Place::kElsewhere) keys_.back() = key_;
    return true;
  }

  bool end_object() override { return Close(); }

  bool start_array(size_t /*size*/) override {
    if (IsPart("merges")) {
      if (document_.has_merges) return Twice("merges");
      document_.has_merges = true;
      return Open(Place::kMerges);
    }
    if (place_ == Place::kMerges) {
      pair_.clear();
      num_parts_ = 0;
      return Open(Place::kMergePair);
    }
    return place_ == Place::kElsewhere ? OpenValue(json::array()) : BadPlace();
  }

  bool end_array() override {
    if (place_ == Place::kMergePair) {
      if (num_parts_ != 2) return BadPair();
      if (!AddMerge(std::move(pair_))) return false;
    }
    return Close();
  }

  bool parse_error(size_t position, const std::string& /*token*/, const nlohmann::detail::exception& /*e*/) override {
    return Corrupt("byte " + std::to_string(position) + ": expected JSON, found something else");
  }

 private:
  enum class Place { kElsewhere, kVocabulary, kMerges, kMergePair };

  bool Fail(ErrorCode code, std::string message) {
    error_.emplace(code, std::move(message));
    return false;
  }
  bool Corrupt(std::string message) { return Fail(ErrorCode::kCorruptFile, std::move(message)); }
  bool TooMany(const std::string& what, size_t limit, const std::string& unit) {
    return Fail(ErrorCode::kUnsupported, what + ": expected at most " + std::to_string(limit) + " " + unit);
  }
  bool Twice(std::string_view key) { return Corrupt("key " + QuoteName(key) + ": expected it once, found it twice"); }
  bool BadPair() {
    return Corrupt("model.merges: merge " + std::to_string(document_.merges.size()) + ": expected two strings");
  }
  bool BadPlace() {
    if (place_ == Place::kVocabulary) {
      return Corrupt("model.vocab: token " + QuoteName(key_) + ": expected an id, found another value");
    }
    return BadPair();
  }

  // Whether the next value is model.<name>.
  bool IsPart(std::string_view name) const {
    return place_ == Place::kElsewhere && keys_.size() == 2 && keys_[0] == "model" && keys_[1] == name;
  }

  bool Open(Place place) {
    if (keys_.size() == kMaxDocumentDepth) return TooMany("nesting", kMaxDocumentDepth, "levels");
    place_ = place;
    keys_.emplace_back();
    return true;
  }

  bool OpenValue(json value) {
    json* const added = Add(std::move(value));
    if (added == nullptr) return false;
    open_.push_back(added);
    return Open(Place::kElsewhere);
  }

  bool Close() {
    keys_.pop_back();
    if (place_ == Place::kElsewhere) open_.pop_back();
    place_ = place_ == Place::kMergePair ? Place::kMerges : Place::kElsewhere;
    return true;
  }

  bool AddMerge(std::string merge) {
    if (document_.merges.size() == kMaxDocumentMerges) return TooMany("model.merges", kMaxDocumentMerges, "merges");
    document_.merges.push_back(std::move(merge));
    return true;
  }

  bool AddScalar(json value) { return place_ == Place::kElsewhere ? Add(std::move(value)) != nullptr : BadPlace(); }

  // Where the value now is; null, with an error, when it may not be there.
  json* Add(json value) {
    if (num_values_++ == kMaxDocumentValues) {
      TooMany("document", kMaxDocumentValues, "values besides vocabulary and merges");
      return nullptr;
    }
    if (open_.empty()) return &(document_.rest = std::move(value));
    json& parent = *open_.back();
    if (parent.is_array()) return &parent.emplace_back(std::move(value));
    const auto [place, is_new] = parent.emplace(key_, std::move(value));
    if (!is_new) Twice(key_);
    return is_new ? &*place : nullptr;
  }

  TokenizerDocument document_;
  std::optional<Error> error_;
  Place place_ = Place::kElsewhere;
  std::vector<std::string> keys_;  // of each open object or array the latest key, "" in an array
  std::vector<json*> open_;        // those that are in document_.rest
  std::string key_;
  std::string pair_;
  size_t num_parts_ = 0;
  size_t num_values_ = 0;
};

}  // namespace

Result<TokenizerDocument> ParseTokenizerDocument(std::string_view json_text) {
  if (json_text.size() > kMaxDocumentBytes) {
    return Error(ErrorCode::kUnsupported, "expected at most " + std::to_string(kMaxDocumentBytes) + " bytes, found " +
                                              std::to_string(json_text.size()));
  }
  DocumentReader reader;
  json::sax_parse(json_text, &reader);
  return reader.Finish();
}

}  // namespace tidemill
