// A tokenizer.json of byte-level BPE, for models that are folders.
#ifndef TIDEMILL_TESTS_SUPPORT_BYTE_LEVEL_TOKENIZER_H_
#define TIDEMILL_TESTS_SUPPORT_BYTE_LEVEL_TOKENIZER_H_

#include <cstddef>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tidemill::testing {

// Token i has id i.
inline std::string ByteLevelTokenizer(const std::vector<std::string>& tokens,
                                      const std::function<bool(size_t id)>& is_special,
                                      const std::vector<std::string>& merges) {
  auto ids = nlohmann::json::object(), added = nlohmann::json::array();
  for (size_t id = 0; id < tokens.size(); ++id) {
    ids[tokens[id]] = id;
    if (!is_special(id)) continue;
    added.push_back({{"id", id},
                     {"content", tokens[id]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const nlohmann::json level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  return nlohmann::json{{"version", "1.0"},
                        {"added_tokens", added},
                        {"normalizer", nullptr},
                        {"pre_tokenizer", level},
                        {"post_processor", nullptr},
                        {"decoder", level},
                        {"model", {{"type", "BPE"}, {"vocab", ids}, {"merges", merges}}}}
      .dump();
}

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_BYTE_LEVEL_TOKENIZER_H_
