// The file of a SentencePiece model, tokenizer.model or spiece.model: a message of Protocol Buffers, of whose fields these count.
//
//   1  repeated message   a piece: 1 text, 2 score (f32), 3 type (1-6, those of TokenType; missing: normal)
//   2  message            of the training: 3 model type (1 Unigram, 2 BPE), 24 spaces end pieces (refused), 35 byte fallback,
//                         40, 41, 42 the ids of the unknown token, of begin and end (missing: 0, 1, 2; -1: none)
//   3  message            of the normaliser: 2 character map, 3 a space in front, 4 extra spaces removed, 5 spaces as U+2581 (missing: yes;
//                         without it: refused)
#ifndef TIDEMILL_TEXT_SENTENCEPIECE_MODEL_H_
#define TIDEMILL_TEXT_SENTENCEPIECE_MODEL_H_

#include <string_view>

#include "text/tokenizer_spec.h"
#include "tidemill/result.h"

namespace tidemill {

// What SentencePiece itself does with a text; no token is put before or behind it. Errors: kCorruptFile with the byte, kUnsupported,
// kOutOfMemory. Cost: linear.
Result<TokenizerSpec> ReadSentencePieceModel(std::string_view bytes);

}  // namespace tidemill

#endif  // TIDEMILL_TEXT_SENTENCEPIECE_MODEL_H_
