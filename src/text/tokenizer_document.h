// A tokenizer.json as its parts: the vocabulary and the merges, which are nearly all of it, as plain lists, and the rest as a
// small document. Nothing here knows what the parts mean.
#ifndef TIDEMILL_TEXT_TOKENIZER_DOCUMENT_H_
#define TIDEMILL_TEXT_TOKENIZER_DOCUMENT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_document.h"
#include "tidemill/result.h"

namespace tidemill {

inline constexpr size_t kMaxDocumentBytes = size_t{64} << 20;
inline constexpr size_t kMaxDocumentValues = size_t{1} << 20;  // besides vocabulary and merges
inline constexpr size_t kMaxDocumentTokens = size_t{1} << 21;
inline constexpr size_t kMaxDocumentMerges = size_t{1} << 22;

struct TokenizerDocument {
  struct Token {
    std::string name;
    uint64_t id = 0;
    double score = 0;  // where the vocabulary is a list of [name, score], in the order of the ids
  };
  JsonDocument rest;                // without model.vocab and model.merges
  std::vector<Token> vocabulary;    // model.vocab, in the order of the file
  std::vector<std::string> merges;  // model.merges as "LEFT RIGHT", from strings and from pairs
  bool has_vocabulary = false;
  bool has_scores = false;
  bool has_merges = false;
};

// Errors: kCorruptFile for what JsonDocument refuses and for a vocabulary or merge of another shape; kUnsupported above the
// limits, and for a pair with a space in it. Cost: linear; never more than a few times the file's size, however it is nested.
Result<TokenizerDocument> ParseTokenizerDocument(std::string_view json);

}  // namespace tidemill

#endif  // TIDEMILL_TEXT_TOKENIZER_DOCUMENT_H_
