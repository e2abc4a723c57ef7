// The vocabulary of tiny_vocabulary.h as a tokenizer.json, for models that are folders.
#ifndef TIDEMILL_TESTS_SUPPORT_TINY_TOKENIZER_JSON_H_
#define TIDEMILL_TESTS_SUPPORT_TINY_TOKENIZER_JSON_H_

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/tiny_vocabulary.h"

namespace tidemill::testing {

inline std::string TinyTokenizerJson(int vocab) {
  const TinyVocabulary vocabulary = MakeTinyVocabulary(vocab);
  auto ids = nlohmann::json::object();
  auto added = nlohmann::json::array();
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    ids[vocabulary.tokens[id]] = id;
    if (vocabulary.token_types[id] == 3) {
      added.push_back({{"id", id},
                       {"content", vocabulary.tokens[id]},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", true}});
    }
  }
  const nlohmann::json level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  const nlohmann::json tokenizer = {{"version", "1.0"},
                                    {"added_tokens", added},
                                    {"normalizer", nullptr},
                                    {"pre_tokenizer", level},
                                    {"post_processor", nullptr},
                                    {"decoder", level},
                                    {"model", {{"type", "BPE"}, {"vocab", ids}, {"merges", vocabulary.merges}}}};
  return tokenizer.dump();
}

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_TINY_TOKENIZER_JSON_H_
