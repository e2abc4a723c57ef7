// The tokenizer of a Hugging Face checkpoint: its tokenizer.json, as the library `tokenizers` writes it. What is read:
//
//   model            BPE, over bytes or, with byte_fallback, over characters (SentencePiece's); vocab, merges, ignore_merges
//   added_tokens     special ones are control tokens, the others user-defined; not lstrip, rstrip or single_word
//   normalizer       none or NFC. Over characters: Replace " " by U+2581, and Prepend U+2581
//   pre_tokenizer    over bytes: ByteLevel, Digits then ByteLevel, or Split then ByteLevel, where the regular expression is
//                    one of those that WordRule names, letter by letter. Over characters: none, or a Split that does nothing
//   post_processor   ByteLevel (nothing), TemplateProcessing with at most one token before the text and one after
//   decoder          ByteLevel. Over characters: Replace, ByteFallback, Fuse, Strip. The space that Prepend adds is not taken
//                    away again: Decode gives all bytes that the tokens stand for
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
