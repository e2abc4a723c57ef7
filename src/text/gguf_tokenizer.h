// The tokenizer that a GGUF file carries. The keys are those of ggml-org/ggml docs/gguf.md:
//
//   tokenizer.ggml.model             string    "gpt2": byte-level BPE; "llama": SentencePiece's; "gemma4": over characters, by merges;
//                                              "t5": Unigram; "bert": WordPiece; others are refused by name
//   tokenizer.ggml.pre               string    gpt2: the splitting rule, see FindPreTokenizer; missing: "default", as in llama.cpp
//   tokenizer.ggml.tokens            string[]
//   tokenizer.ggml.token_type        int[]     one per token; missing: all are normal
//   tokenizer.ggml.merges            string[]  gpt2, gemma4
//   tokenizer.ggml.scores            f32[]     llama, t5: one per token
//   tokenizer.ggml.{bos,eos,unknown}_token_id  optional; bert: also cls and seperator
//   tokenizer.ggml.{eot,eom}_token_id          optional; end generation, as eos does
//   tokenizer.ggml.add_{bos,eos}_token   bool  missing: a beginning-of-sequence token for llama, gemma4 and some splitting rules, an
//                                              end for t5, both for bert
//   tokenizer.ggml.add_space_prefix      bool  missing: yes for llama, else no
//   tokenizer.ggml.precompiled_charsmap  u8[]  t5: chars_map.h
//   tokenizer.ggml.remove_extra_whitespaces    t5; missing: no
//   tokenizer.ggml.normalizer.{lowercase,strip_accents}    bert; missing: yes
#ifndef TIDEMILL_TEXT_GGUF_TOKENIZER_H_
#define TIDEMILL_TEXT_GGUF_TOKENIZER_H_

#include "formats/gguf.h"
#include "text/tokenizer_spec.h"
#include "tidemill/result.h"

namespace tidemill {

// Errors: kNotFound for a missing key, kCorruptFile for one of another kind or outside its range, kUnsupported for another
// tokenizer, kOutOfMemory. The spec keeps nothing of `file`. CreateTokenizer checks the rest.
Result<TokenizerSpec> ReadTokenizerSpec(const GgufFile& file);

}  // namespace tidemill

#endif  // TIDEMILL_TEXT_GGUF_TOKENIZER_H_
