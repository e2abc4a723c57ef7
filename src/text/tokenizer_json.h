// The tokenizer of a Hugging Face checkpoint: its tokenizer.json, as the library `tokenizers` writes it. What is read:
//
//   model            BPE over bytes or, without ByteLevel, over characters; Unigram, WordPiece, WordLevel
//   added_tokens     special ones are control tokens, the others user-defined; with all of their flags
//   normalizer       NFC, NFD, Lowercase, StripAccents, Strip, Replace, Prepend, BertNormalizer, Precompiled
//   pre_tokenizer    Split, Digits, Punctuation, Whitespace, WhitespaceSplit, BertPreTokenizer, CharDelimiterSplit, ByteLevel, Metaspace
//   post_processor   ByteLevel (nothing), TemplateProcessing, RobertaProcessing, BertProcessing
//   decoder          ByteLevel, WordPiece, Metaspace, none; over characters Replace of U+2581, ByteFallback, Fuse, Strip of one space. The space
//                    that they take from the start of a text is Tokenizer::DecodeText's; Decode gives all bytes that the tokens stand for
//
// `truncation` and `padding` are settings of a training run and are ignored. Everything else is refused by its name. The file
// does not say which token ends a text: that is in config.json and generation_config.json.
#ifndef TIDEMILL_TEXT_TOKENIZER_JSON_H_
#define TIDEMILL_TEXT_TOKENIZER_JSON_H_

#include <string_view>

#include "text/tokenizer_spec.h"
#include "tidemill/result.h"

namespace tidemill {

// bos_id and eos_id are those that the post-processor adds, add_bos and add_eos whether it does. Errors: kCorruptFile for what
// is not JSON or contradicts itself, kUnsupported with the name of what we do not have and above the limits of
// tokenizer_document.h, kOutOfMemory. CreateTokenizer checks the rest.
Result<TokenizerSpec> ReadTokenizerJson(std::string_view json);

}  // namespace tidemill

#endif  // TIDEMILL_TEXT_TOKENIZER_JSON_H_
