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
#include "text/normalizer.h"
#include "text/piece_symbols.h"
#include "text/pre_tokenizer.h"
#include "text/text_list.h"
#include "text/text_table.h"
#include "text/tokenizer_spec.h"
#include "text/unigram.h"
#include "text/word_pieces.h"
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

  // Whether ordinary text may become it.
  bool IsOrdinary(int32_t id) const {
    return TypeOf(id) == TokenType::kNormal || TypeOf(id) == TokenType::kUserDefined;
  }

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
  std::array<int32_t, 256> id_of_byte{};  // -1: no token is this byte
  std::vector<uint8_t> dropped_bytes;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  bool whole_words_first = false;  // a word that is a token becomes it without merging
  bool keeps_line_feeds = false;   // so does a word of line feeds alone. SentencePiece
  int32_t unk_id = -1;             // -1: what no token stands for is left out
  bool fuse_unk = true;
  PieceSymbols piece_symbols;  // SentencePiece
  BytePairMerger merger;       // byte level and SentencePiece
  Unigram unigram;
  WordPieces word_pieces;
  AddedTokens added_tokens;                   // borrows names
  std::vector<std::string> normalized_names;  // of those below
  AddedTokens normalized_tokens;              // recognised in what is left, once it is normalised
  LeadingSpace leading_space = LeadingSpace::kKept;
  std::vector<int32_t> begin_ids;  // before each text
  std::vector<int32_t> end_ids;    // behind it
  std::optional<int32_t> bos_id;
  std::optional<int32_t> eos_id;
  std::vector<int32_t> end_of_generation_ids;  // ascending
  bool add_bos = false;
  bool add_eos = false;
};

}  // namespace tidemill

#endif  // TIDEMILL_TEXT_TOKENIZER_IMPL_H_
