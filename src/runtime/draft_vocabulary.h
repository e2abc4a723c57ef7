// Whether one model can draft for another: each id must mean the same to both.
#ifndef TIDEMILL_RUNTIME_DRAFT_VOCABULARY_H_
#define TIDEMILL_RUNTIME_DRAFT_VOCABULARY_H_

#include "tidemill/result.h"
#include "tidemill/tokenizer.h"

namespace tidemill {

// Each id that both have means the same bytes and is special in both or in none. Ids that only one has, such as padding, are never drafted.
// kInvalidArgument names the first five ids that differ, in both spellings.
Result<void> CheckDraftVocabulary(const Tokenizer& target, const Tokenizer& draft);

}  // namespace tidemill

#endif  // TIDEMILL_RUNTIME_DRAFT_VOCABULARY_H_
