// What a Tokenizer holds. Made by CreateTokenizer (tokenizer_spec.cc), read by tokenizer.cc.
#ifndef TIDEMILL_TEXT_TOKENIZER_IMPL_H_
#define TIDEMILL_TEXT_TOKENIZER_IMPL_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/added_tokens.h"
#include "text/byte_pair_merger.h"
#include "text/piece_symbols.h"
#include "text/tokenizer_spec.h"
#include "text/word_splitter.h"
#include "tidemill/tokenizer.h"

namespace tidemill {

struct Tokenizer::Impl {
  struct Token {
    std::string name;   // as the vocabulary spells it
    std::string bytes;  // what it stands for
    TokenType type = TokenType::kNormal;

    bool special() const { return type == TokenType::kControl || type == TokenType::kUnknown; }
  };

  bool InRange(int32_t id) const { return id >= 0 && static_cast<size_t>(id) < tokens.size(); }
  const Token& At(int32_t id) const { return tokens[static_cast<size_t>(id)]; }

  VocabularyKind kind = VocabularyKind::kByteLevel;
  std::vector<Token> tokens;                                  // by id; never resized once the views below exist
  std::unordered_map<std::string_view, int32_t> id_by_name;   // borrows tokens[].name
  std::unordered_map<std::string_view, int32_t> id_by_bytes;  // normal tokens; only if whole words skip merging
  std::array<int32_t, 256> id_of_byte{};                      // -1: no token is this byte; SentencePiece: all are there
  std::vector<uint8_t> dropped_bytes;
  WordRule word_rule = WordRule::kGpt2;
  bool whole_words_first = false;  // byte level: a word that is a token becomes it without merging
  bool normalize_nfc = false;      // byte level
  PieceSymbols piece_symbols;      // SentencePiece
  bool add_space_prefix = false;   // SentencePiece
  BytePairMerger merger;
  AddedTokens added_tokens;  // borrows tokens[].name
  std::optional<int32_t> bos_id;
  std::optional<int32_t> eos_id;
  std::vector<int32_t> end_of_generation_ids;  // ascending
  bool add_bos = false;
  bool add_eos = false;
};

}  // namespace tidemill

#endif  // TIDEMILL_TEXT_TOKENIZER_IMPL_H_
