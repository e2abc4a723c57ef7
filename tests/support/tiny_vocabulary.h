// A byte-level BPE vocabulary of any size, for models made of random numbers.
#ifndef TIDEMILL_TESTS_SUPPORT_TINY_VOCABULARY_H_
#define TIDEMILL_TESTS_SUPPORT_TINY_VOCABULARY_H_

#include <cstdint>
#include <string>
#include <vector>

namespace tidemill::testing {

inline constexpr int kTinyUnknownToken = 0;      // <|endoftext|>
inline constexpr int kTinyBosToken = 1;          // <|im_start|>
inline constexpr int kTinyEosToken = 2;          // <|im_end|>
inline constexpr int kTinyFirstByteToken = 3;    // byte b is token 3 + b
inline constexpr int kTinyFullVocabulary = 259;  // from here on every text can be encoded

// The vocabulary of 259 plus merges, cut after `size` entries. A merge "a b" makes the token "ab"; its parts stand
// before it. First come merges that spell common English words, then pairs of letters, pairs with a third, pairs of
// pairs.
struct TinyVocabulary {
  std::vector<std::string> tokens;   // [size]
  std::vector<int32_t> token_types;  // [size] 3 (control) for the three specials, 1 (normal) for the rest
  std::vector<std::string> merges;   // "left right", by rank
};
TinyVocabulary MakeTinyVocabulary(int size);

// GPT-2's printable stand-in for a byte, as UTF-8.
std::string ByteAlphabet(int byte);

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_TINY_VOCABULARY_H_
