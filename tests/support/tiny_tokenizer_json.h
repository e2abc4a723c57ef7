// The vocabulary of tiny_vocabulary.h as a tokenizer.json, for models that are folders.
#ifndef TIDEMILL_TESTS_SUPPORT_TINY_TOKENIZER_JSON_H_
#define TIDEMILL_TESTS_SUPPORT_TINY_TOKENIZER_JSON_H_

#include <cstddef>
#include <string>

#include "tests/support/byte_level_tokenizer.h"
#include "tests/support/tiny_vocabulary.h"

namespace tidemill::testing {

inline std::string TinyTokenizerJson(int vocab) {
  const TinyVocabulary vocabulary = MakeTinyVocabulary(vocab);
  return ByteLevelTokenizer(
      vocabulary.tokens, [&](size_t id) { return vocabulary.token_types[id] == 3; }, vocabulary.merges);
}

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_TINY_TOKENIZER_JSON_H_
