// A byte-level vocabulary that fits on a page: all 256 bytes, a few merges, control and user-defined tokens.
#ifndef TIDEMILL_TESTS_SUPPORT_SMALL_VOCABULARY_H_
#define TIDEMILL_TESTS_SUPPORT_SMALL_VOCABULARY_H_

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "text/byte_alphabet.h"
#include "text/tokenizer_spec.h"

namespace tidemill::testing {

// Ids 0-255 are the bytes; then, in this order, the merges; then "<s>", "</s>", "<|im_start|>", "<|im_end|>" (control) and
// "<tool>" (user-defined).
inline TokenizerSpec SmallSpec(std::string_view pre_tokenizer) {
  TokenizerSpec spec;
  const auto add = [&spec](std::string name, TokenType type) {
    spec.tokens.push_back(std::move(name));
    spec.types.push_back(type);
  };
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    add(SpellBytes({&c, 1}), TokenType::kNormal);
  }
  struct Pair {
    std::string_view left;
    std::string_view right;
  };
  for (const Pair& pair : std::initializer_list<Pair>{{"h", "e"},
                                                      {"l", "l"},
                                                      {" ", "he"},
                                                      {"a", "a"},
                                                      {"aa", "aa"},
                                                      {" he", "ll"},
                                                      {" ", " "},
                                                      {"  ", "  "},
                                                      {"\xF0", "\x9F"},
                                                      {"\xC3", "\xA9"},
                                                      {"1", "2"},
                                                      {"12", "3"},
                                                      {"i", "m"},
                                                      {"\n", "\n"}}) {
    const std::string left = SpellBytes(pair.left);
    const std::string right = SpellBytes(pair.right);
    spec.merges.push_back(left + " " + right);
    add(left + right, TokenType::kNormal);
  }
  for (const std::string_view name : {"<s>", "</s>", "<|im_start|>", "<|im_end|>"})
    add(std::string(name), TokenType::kControl);
  add("<tool>", TokenType::kUserDefined);
  spec.pre_tokenizer = FindPreTokenizer(pre_tokenizer).value().steps;
  spec.ignore_merges = pre_tokenizer == "llama-bpe";
  return spec;
}

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_SMALL_VOCABULARY_H_
