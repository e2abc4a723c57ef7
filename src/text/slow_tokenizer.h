// The tokenizer of a checkpoint that was saved without a tokenizer.json, as transformers' "slow" tokenizers are:
//
//   tokenizer.model or spiece.model   a SentencePiece model (sentencepiece_model.h), of LlamaTokenizer, CodeLlamaTokenizer, GemmaTokenizer
//                                     or T5Tokenizer
//   vocab.json and merges.txt         byte-level BPE, of GPT2Tokenizer, Qwen2Tokenizer, RobertaTokenizer or BartTokenizer
//   tokenizer_config.json             tokenizer_class, the special tokens, add_bos_token, add_eos_token, add_prefix_space, added_tokens_decoder
//   added_tokens.json                 names and ids, where added_tokens_decoder is missing; all are special, since it does not say which are
#ifndef TIDEMILL_TEXT_SLOW_TOKENIZER_H_
#define TIDEMILL_TEXT_SLOW_TOKENIZER_H_

#include <optional>
#include <string_view>

#include "base/json_document.h"
#include "text/tokenizer_spec.h"
#include "tidemill/result.h"

namespace tidemill {

struct SlowTokenizerFiles {
  std::optional<std::string_view> sentencepiece = {};
  std::optional<std::string_view> vocab_json = {}, merges_txt = {};
  const JsonDocument* tokenizer_config = nullptr;  // null: none
  const JsonDocument* added_tokens = nullptr;      // null: none
};

// Of a SentencePiece model, or else of vocab_json and merges_txt, one of which is there. Errors: kCorruptFile, kUnsupported for another
// tokenizer_class, whose ids may be others, kNotFound for merges without a vocabulary or the other way round, kOutOfMemory.
Result<TokenizerSpec> ReadSlowTokenizer(const SlowTokenizerFiles& files);

}  // namespace tidemill

#endif  // TIDEMILL_TEXT_SLOW_TOKENIZER_H_
