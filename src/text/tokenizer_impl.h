// What a Tokenizer holds. Made by CreateTokenizer (tokenizer_spec.cc), read by tokenizer.cc.
#ifndef TIDEMILL_TEXT_TOKENIZER_IMPL_H_
#define TIDEMILL_TEXT_TOKENIZER_IMPL_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "text/added_tokens.h"
#include "text/byte_pair_merger.h"
#include "text/piece_symbols.h"
#include "text/text_list.h"
#include "text/text_table.h"
#include "text/tokenizer_spec.h"
#include "text/word_splitter.h"
#include "tidemill/tokenizer.h"

namespace tidemill {

struct Tokenizer::Impl {
  size_t num_tokens() const { return types.size(); }
  bool InRange(int32_t id) const { return id >= 0 && static_cast<size_t>(id) < num_tokens(); }
  // Of an id in range.
  std::string_view NameOf(int32_t id) const { return names[static_cast<size_t>(id)]; }
  std::string_view BytesOf(int32_t id) const { return bytes[static_cast<size_t>(id)]; }
  TokenType TypeOf(int32_t id) const { return types[static_cast<size_t>(id)]; }
  bool IsSpecial(int32_t id) const { return TypeOf(id) == TokenType::kControl || TypeOf(id) == TokenType::kUnknown; }

  // -1: none.
  int32_t FindName(std::string_view name) const {
    return id_by_name.Find(name, [this](int32_t id) { return NameOf(id); });
  }
  int32_t FindWholeWord(std::string_view word) const {
    return id_by_bytes.Find(word, [this](int32_t id) { return BytesOf(id); });
  }

  VocabularyKind kind = VocabularyKind::kByteLevel;
  TextList names;                         // by id: as the vocabulary spells them; complete before the views below exist
  TextList bytes;                         // by id: what they stand for
  std::vector<TokenType> types;           // by id
  TextTable id_by_name;                   // all tokens
  TextTable id_by_bytes;                  // normal tokens; only if whole words skip merging
  std::array<int32_t, 256> id_of_byte{};  // -1: no token is this byte; SentencePiece: all are there
  std::vector<uint8_t> dropped_bytes;
  WordRule word_rule = WordRule::kGpt2;
  bool whole_words_first = false;  // byte level: a word that is a token becomes it without merging
  bool normalize_nfc = false;      // byte level
  PieceSymbols piece_symbols;      // SentencePiece
  bool add_space_prefix = false;   // SentencePiece
  BytePairMerger merger;
  AddedTokens added_tokens;  // borrows names
  std::optional<int32_t> bos_id;
  std::optional<int32_t> eos_id;
  std::vector<int32_t> end_of_generation_ids;  // ascending
  bool add_bos = false;
  bool add_eos = false;
};

}  // namespace tidemill

#endif  // TIDEMILL_TEXT_TOKENIZER_IMPL_H_
