// The tokenizer that a GGUF file carries. The keys are those of ggml-org/ggml docs/gguf.md:
//
//   tokenizer.ggml.model             string    "gpt2": byte-level BPE; "llama": SentencePiece's; others are refused by name
//   tokenizer.ggml.pre               string    gpt2: the splitting rule. "default" is refused as others are: who wrote it did
//                                              not know the model's rule
//   tokenizer.ggml.tokens            string[]
//   tokenizer.ggml.token_type        int[]     one per token; missing: all are normal
//   tokenizer.ggml.merges            string[]  gpt2
//   tokenizer.ggml.scores            f32[]     llama: one per token
//   tokenizer.ggml.{bos,eos}_token_id          optional
//   tokenizer.ggml.{eot,eom}_token_id          optional; end generation, as eos does
//   tokenizer.ggml.add_{bos,eos}_token   bool  missing: no, but a beginning-of-sequence token for llama and the llama-bpe rule
//   tokenizer.ggml.add_space_prefix      bool  missing: yes for llama, no for gpt2
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
